"""Nodes that trust nobody: each has a ledger run of its own, one task with its own plan."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from tacit.errors import InvalidInput
from tacit.privacy.planning import Door
from tacit.tasks.labels import canonical_label

NODE = ", node "


def node_run(run: str, number: int) -> str:
    """The ledger run of node ``number``: one task, its own plan."""
    return f"{run}{NODE}{number}"


def declared_counts(
    name: str, given: int | Mapping[Any, int], labels: Sequence[Hashable]
) -> list[float]:
    """A declared number for each node: one for all, or by label.

    >>> declared_counts("rows", {"a": 3, "b": 4}, ["b", "a"])
    [4.0, 3.0]
    """
    if not isinstance(given, Mapping):
        return [float(given)] * len(labels)
    named = {canonical_label(label): float(count) for label, count in given.items()}
    missing = [label for label in labels if canonical_label(label) not in named]
    if missing:
        raise InvalidInput(f"{name} declares no number for node {missing[0]!r}")
    return [named[canonical_label(label)] for label in labels]


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


def require_all_nodes(door: Door) -> None:
    """InvalidInput unless every node on record takes part, and all that speak spend the same.

    Of a unit in s nodes, each with noise for μ/√s, all together reveal the mean of their μ², at
    most the largest. So a statement has to look at all of them, and what is on record of one alone,
    or of one that spends less than others, would say too little.
    """
    mine = {canonical_label(label) for label in door.labels}
    ledger = door.ledger
    runs = (entry.payload for entry in ledger.entries() if entry.kind == "run")
    there = {task for run in runs if run["dataset"] == ledger.dataset for task in run["tasks"]}
    if missing := sorted(there - mine):
        raise InvalidInput(
            f"somebody may be in several of these nodes, and {missing[0]!r} is on the ledger but "
            f"not in this run ({len(missing)} such): what it released counts, too; fit all of them "
            "together, or use another data set id if these are other people"
        )
    spent = door.shares[door.shares > 0]
    if np.ptp(spent) > 0:
        raise InvalidInput(
            "somebody may be in several of these nodes: all must be able to spend the same, got "
            f"between {spent.min():.3g} and 1 of the most generous budget's μ"
        )


def node_history(door: Door) -> list[dict[str, Any]]:
    """For each node and mechanism that sent anything: how often, and ε of all it ever spent."""
    lines = []
    for node, label in enumerate(door.labels):
        spends = door.ledger.spends(node_run(door.run, node))
        for _, alike in groupby(spends, lambda entry: entry.payload["mechanism"]):
            payloads = [entry.payload for entry in alike]
            line = {"node": node, "count": len(payloads)}
            line |= {name: payloads[-1][name] for name in ("round", "mechanism", "event")}
            lines.append(line | {"epsilon": door.ledger.statement([label]).epsilon})
    return lines
