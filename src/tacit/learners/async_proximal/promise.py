"""What a node may spend, what it is promised, and what was spent: node by node."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from tacit.estimator import UNIT, Door
from tacit.estimator.planning import (
    composition_delta,
    per_task,
    remaining_epsilon,
    require_left,
)
from tacit.learners.async_proximal.node import node_run
from tacit.learners.async_proximal.private_steps import Allowance, NodePlan, Setting
from tacit.privacy.accounting import Cost, gaussian_mu, remaining_mu
from tacit.privacy.budget import Budget
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import GaussianSum
from tacit.privacy.release import new_run

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


def node_door(
    ledger: Ledger,
    run: str | None,
    labels: tuple[Hashable, ...],
    budget: Budget | Mapping[Hashable, Budget],
    rng: np.random.Generator | None,
    *,
    pure: bool,
) -> Door:
    """The door of a run in which every node has a ledger run of its own (node.node_run).

    BudgetExceeded before any noise is drawn. A run that resumes plans as when it was declared.
    """
    budgets = per_task(budget, labels)
    run = run or new_run()
    spent = spent_before(ledger, run, labels)
    remaining = remaining_epsilon if pure else remaining_mu
    left = np.array([remaining(*pair) for pair in zip(budgets, spent, strict=True)])
    if not isinstance(budget, Mapping) or not left.any():
        require_left(labels, budgets, spent, left, pure)
    charged = tuple(b if each > 0 else None for b, each in zip(budgets, left, strict=True))
    top = float(left.max())
    planned = Cost(epsilon=top, delta=composition_delta(budgets, spent)) if pure else None
    return Door(ledger, run, labels, charged, left / top, 0.0 if pure else top, rng, planned)


def spent_before(ledger: Ledger, run: str, labels: tuple[Hashable, ...]) -> list[Cost]:
    """What was spent on each node before its part of this run was declared."""
    return [ledger.costs([label], before=node_run(run, t))[0] for t, label in enumerate(labels)]


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
    spent = spent_before(door.ledger, door.run, door.labels)
    rests = [_rest(b or Budget(1.0), cost) for b, cost in zip(door.budgets, spent, strict=True)]
    return [Allowance(gaussian_mu(rest.epsilon, rest.delta), rest) for rest in rests]


def _rest(budget: Budget, spent: Cost) -> Budget:
    """(ε, δ) that add up with what was spent: half of δ for each."""
    if spent == Cost():
        return budget
    left = budget.epsilon - spent.epsilon_at(budget.delta / 2)
    return replace(budget, epsilon=max(left, 1e-12), delta=budget.delta / 2)


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
    costs = door.ledger.costs(door.labels)
    for node, line in lines.items():
        budget = door.budgets[node]
        line["epsilon"] = _epsilon(costs[node], 0.0 if budget is None else budget.delta)
    return [lines[node] for node in sorted(lines)]


@lru_cache(maxsize=1024)
def _epsilon(cost: Cost, delta: float) -> float:
    return cost.epsilon_at(delta)
