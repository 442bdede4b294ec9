"""Nodes that trust nobody: each has a ledger run of its own, one task with its own plan."""

from __future__ import annotations

from dataclasses import replace
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
    """For each node that sent anything: how often, through what, and ε of all it ever spent."""
    numbers = {node_run(door.run, t): t for t in range(len(door.labels))}
    lines: dict[int, dict[str, Any]] = {}
    for entry in door.ledger.entries():
        node = numbers.get(str(entry.payload.get("run", "")))
        if entry.kind != "spend" or node is None:
            continue
        line = lines.setdefault(node, {"node": node, "releases": 0})
        line["releases"] += 1
        line |= {name: entry.payload[name] for name in ("round", "mechanism", "event")}
    for node, line in lines.items():
        line["epsilon"] = door.ledger.statement([door.labels[node]]).epsilon
    return [lines[node] for node in sorted(lines)]
