"""What a node may spend, what it is promised, and what was spent: node by node."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from tacit.learners.async_proximal.node import node_run
from tacit.learners.async_proximal.private_steps import Allowance, NodePlan, Setting
from tacit.privacy.accounting import gaussian_mu
from tacit.privacy.budget import Budget
from tacit.privacy.mechanisms import GaussianSum
from tacit.privacy.planning import UNIT, Door

ADVERSARY = replace(
    UNIT,
    unit="one example in one node's data",
    adversary="the server and all other nodes, who see every message of the node",
    not_covered=(
        "a person with examples in two nodes: their losses add up, and ε is the largest of a node",
        "the node itself, and its home model (home_coef_): hand it to nobody else",
        "the labels, the number of nodes, when a node sends, and every declared range and class",
        "the number of rows of each node, under replace",
    ),
)
"""S3: nobody is trusted."""

TRUSTED = replace(
    ADVERSARY,
    adversary="all other nodes together, who see everything the server sends",
    not_covered=("the operator of the server, who sees every gradient", *ADVERSARY.not_covered),
)
"""The server is trusted; the nodes are not."""

ASSUMED = (
    "Poisson sampling with replace neighbours: that the antipodal pair dominates is assumed, not "
    "proven; zero-out needs no such assumption"
)
COINS = "seeded coins of the sample: no amplification against whoever knows the seed"


def allowances(door: Door, setting: Setting) -> list[Allowance]:
    """What each node may spend in this run."""
    if door.pure is not None:
        shares = [max(float(share) * door.pure.epsilon, 1e-12) for share in door.shares]
        relation = door.neighbours
        rests = [Budget(share, door.pure.delta, neighbours=relation) for share in shares]
        return [Allowance(0.0, rest) for rest in rests]
    if setting.sampling_rate is None:
        any_budget = next(budget for budget in door.budgets if budget is not None)
        return [Allowance(float(share) * door.mu, any_budget) for share in door.shares]
    rests = [budget or Budget(1.0) for budget in door.budgets]
    return [Allowance(gaussian_mu(rest.epsilon, rest.delta), rest) for rest in rests]


def silent(setting: Setting) -> NodePlan:
    """The plan of a node that has spent its budget: it sends nothing, and the others go on."""
    return NodePlan(
        releases=0,
        step=1.0,
        own_step=1.0,
        mechanism=GaussianSum(setting.clip_norm, setting.clip_norm),
        divisor=1.0,
        noise=math.inf,
        error=1.0,
        deviation=0.0,
        largest=setting.clip_norm,
    )


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
