"""Nodes that trust nobody: each has a ledger run of its own, one task with its own plan."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from tacit.privacy.planning import Door


def node_run(run: str, number: int) -> str:
    """The ledger run of node ``number``: one task, its own plan."""
    return f"{run}, node {number}"


def node_doors(door: Door) -> list[Door]:
    """For every node a door to a ledger run of its own, with its own coins."""
    m = len(door.labels)
    rngs = [None] * m if door.rng is None else door.rng.spawn(m)
    return [
        replace(
            door,
            run=node_run(door.run, t),
            labels=(label,),
            budgets=(budget,),
            shares=np.ones(1),
            rng=rng,
        )
        for t, (label, budget, rng) in enumerate(zip(door.labels, door.budgets, rngs, strict=True))
    ]


def node_history(door: Door) -> list[dict[str, Any]]:
    """For each node and mechanism that sent anything: how often, and ε of all it ever spent."""
    lines = []
    for node, label in enumerate(door.labels):
        spends = door.ledger.spends(node_run(door.run, node))
        for _, alike in groupby(spends, lambda entry: entry.payload["mechanism"]):
            payloads = [entry.payload for entry in alike]
            line = {"node": node, "releases": len(payloads)}
            line |= {name: payloads[-1][name] for name in ("round", "mechanism", "event")}
            lines.append(line | {"epsilon": door.ledger.statement([label]).epsilon})
    return lines
