"""What a run declares before its first release, and what that costs.

A run declares its tasks, the cap of each, and the events it plans. Each release consumes one
planned event and charges every task i of the run, which reveals shares[i] of the event:

================  ===================================================================
``Gaussian(μ)``   (μ · share)², release by release
``Pure(ε)``       ε · share, release by release
``Approximate``   (ε, δ), release by release; nothing where the share is 0
sampled           the whole block of the plan once, with its first release, as (ε, δ)
================  ===================================================================

Sampled events (``Poisson``, ``Visible``) have no cost of their own; the plan's are composed
together when the run is declared. So are ``Pure`` ones if plain addition does not fit but their
optimal composition does.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import BudgetExceeded, InvalidInput
from tacit.privacy import accounting
from tacit.privacy.accounting import Approximate, Cost, Event, Gaussian, Poisson, Pure, Visible
from tacit.privacy.budget import Budget, Neighbours
from tacit.privacy.chain import (
    RELATIVE,
    event_from_json,
    event_to_json,
    label_from_json,
    label_identity,
    label_to_json,
)
from tacit.privacy.release import FloatArray

SAMPLED: frozenset[type] = frozenset({Poisson, Visible})


@dataclass(frozen=True, eq=False)
class Run:
    """What a run declared before its first release."""

    name: str
    dataset: str
    tasks: tuple[Any, ...]  # labels as JSON
    neighbours: Neighbours
    budgets: tuple[Budget, ...]  # the different caps
    budget_of: NDArray[np.intp]  # (m,), which of them is task i's; −1: task i is not charged
    shares: FloatArray  # (m,), in [0, 1], of releases that name no others
    plan: tuple[tuple[Event, int], ...]  # each event and how often
    block_kinds: frozenset[type] = SAMPLED
    block: FloatArray = field(default_factory=lambda: np.zeros((0, 3)))  # (m, 3), charged once

    def to_json(self) -> dict[str, Any]:
        """The payload of its entry."""
        kinds = sorted(kind.__name__ for kind in self.block_kinds)
        return self.declaration() | {
            "block": {"kinds": kinds, "charges": [packed(column) for column in self.block.T]}
        }

    def declaration(self) -> dict[str, Any]:
        """What the caller declared: the payload without what the ledger computed from it."""
        return {
            "run": self.name,
            "dataset": self.dataset,
            "tasks": list(self.tasks),
            "neighbours": self.neighbours,
            "budgets": [[budget.epsilon, budget.delta] for budget in self.budgets],
            "budget_of": packed(self.budget_of),
            "shares": packed(self.shares),
            "plan": [[event_to_json(event), count] for event, count in self.plan],
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Run:
        """Inverse of to_json."""
        m, relation = len(fields["tasks"]), fields["neighbours"]
        kinds = {kind.__name__: kind for kind in SAMPLED | {Pure}}
        columns = [unpacked(column, m) for column in fields["block"]["charges"]]
        return cls(
            name=fields["run"],
            dataset=fields["dataset"],
            tasks=tuple(fields["tasks"]),
            neighbours=relation,
            budgets=tuple(Budget(*pair, neighbours=relation) for pair in fields["budgets"]),
            budget_of=unpacked(fields["budget_of"], m).astype(np.intp),
            shares=unpacked(fields["shares"], m),
            plan=tuple((event_from_json(event), count) for event, count in fields["plan"]),
            block_kinds=frozenset(kinds[name] for name in fields["block"]["kinds"]),
            block=np.column_stack(columns),
        )


def declared(
    name: str,
    dataset: str,
    tasks: Sequence[Hashable],
    budgets: Budget | Sequence[Budget | None],
    plan: Sequence[Event],
    shares: Sequence[float] | FloatArray | None = None,
) -> Run:
    """The run that a caller describes, checked; its block is not computed yet."""
    labels = tuple(label_to_json(task) for task in tasks)
    if not labels or len(set(map(label_identity, labels))) < len(labels):
        raise InvalidInput("a run needs at least one task, and each task once")
    caps = [budgets] * len(labels) if isinstance(budgets, Budget) else list(budgets)
    if len(caps) != len(labels):
        raise InvalidInput(f"{len(labels)} tasks, but {len(caps)} budgets")
    different = tuple(dict.fromkeys(cap for cap in caps if cap is not None))
    number = {cap: i for i, cap in enumerate(different)}
    budget_of = np.array([-1 if cap is None else number[cap] for cap in caps], dtype=np.intp)
    run = Run(
        name=name,
        dataset=dataset,
        tasks=labels,
        neighbours=_relation(different, plan),
        budgets=different,
        budget_of=budget_of,
        shares=(budget_of >= 0).astype(np.float64),
        plan=tuple(Counter(plan).items()),
        block=np.zeros((len(labels), 3)),
    )
    run.declaration()  # refuses events that are none
    return run if shares is None else replace(run, shares=checked_shares(run, shares))


def _relation(budgets: Sequence[Budget], plan: Sequence[Event]) -> Neighbours:
    relations = {budget.neighbours for budget in budgets}
    relations |= {event.neighbours for event in plan if isinstance(event, Poisson)}
    if len(relations) > 1:
        raise InvalidInput("the budgets and events of one run must have the same neighbours")
    return relations.pop() if relations else "replace"


def checked_shares(run: Run, shares: Sequence[float] | FloatArray) -> FloatArray:
    """Shares as an array (m,) in [0, 1], 0 for each task without a budget."""
    given = np.array(shares, dtype=np.float64)
    if given.shape != run.shares.shape or not np.all((given >= 0) & (given <= 1)):
        raise InvalidInput(f"shares must be {len(run.tasks)} numbers in [0, 1]")
    if np.any(given[run.budget_of < 0] > 0):
        raise InvalidInput("a task without a budget must have share 0")
    return given


# --- costs, as arrays (m, 3) with columns μ², ε, δ ----------------------------------------------


def event_charge(event: Event, shares: FloatArray) -> FloatArray:
    """What one release of an event that adds up costs each task.

    >>> event_charge(Gaussian(0.5), np.array([1.0, 0.5, 0.0]))[:, 0]
    array([0.25  , 0.0625, 0.    ])
    """
    charge = np.zeros((len(shares), 3))
    match event:
        case Gaussian(mu):
            charge[:, 0] = (mu * shares) ** 2
        case Pure(epsilon):
            charge[:, 1] = epsilon * shares
        case Approximate(epsilon, delta):
            charge[shares > 0] = (0.0, epsilon, delta)
        case _:
            raise AssertionError(f"{event} has no cost of its own")
    return charge


def planned_charge(run: Run) -> FloatArray:
    """What the whole plan costs each task."""
    total = run.block.copy()
    for event, count in run.plan:
        if type(event) not in run.block_kinds:
            total += count * event_charge(event, run.shares)
    return total


def with_block(run: Run, spent: FloatArray, kinds: frozenset[type] = SAMPLED) -> Run:
    """The run with the events of these kinds composed into one (ε, δ) for each task.

    They get the δ that is left to the task, or their equal part of it (as in
    ``accounting.epsilon``) if some of it is needed for Gaussian releases, spent or planned. Any δ
    would be right; this one is fixed when the run is declared, so the charge is too.
    """
    inside = [event for event, n in run.plan for _ in range(n) if type(event) in kinds]
    gaussian = any(isinstance(event, Gaussian) for event, _ in run.plan)
    approximate = math.fsum(n * e.delta for e, n in run.plan if isinstance(e, Approximate))
    parts = len({type(event) for event in inside})
    block = np.zeros((len(run.tasks), 3))
    if not inside:
        return replace(run, block_kinds=kinds, block=block)
    keys = np.column_stack([run.shares, run.budget_of, spent[:, 0] > 0, spent[:, 2]])
    for group in groups(keys, run.shares > 0):
        share, cap, used, _ = keys[group[0]]
        delta = run.budgets[int(cap)].delta - float(spent[group[0], 2]) - approximate
        delta *= parts / (parts + 1) if gaussian or used else 1.0
        events = [_scaled(event, float(share)) for event in inside]
        epsilon = accounting.epsilon(events, delta) if delta > 0 else math.inf
        block[group] = (0.0, epsilon, max(delta, 0.0))
    return replace(run, block_kinds=kinds, block=block)


def _scaled(event: Event, share: float) -> Event:
    """The event as it is for a task that reveals ``share`` of it."""
    match event:
        case Poisson():
            return replace(event, noise_multiplier=event.noise_multiplier / share)
        case Visible():
            return replace(event, mu=event.mu * share)
        case Pure(epsilon):
            return Pure(epsilon * share)
    raise AssertionError(f"{event} adds up by itself")


def groups(keys: FloatArray, among: NDArray[np.bool_]) -> list[NDArray[np.intp]]:
    """The rows that have equal keys, among those asked for; in the order of their first rows.

    >>> [g.tolist() for g in groups(np.array([[2.0], [1.0], [2.0], [1.0]]), np.array([1, 1, 1, 0]))]
    [[0, 2], [1]]
    """
    rows = np.flatnonzero(among)
    if not rows.size:
        return []
    codes = np.zeros(rows.size, dtype=np.intp)
    for column in keys[rows].T:
        _, code = np.unique(column, return_inverse=True)
        _, codes = np.unique(codes * (code.max() + 1) + code, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    found = np.split(rows[order], np.flatnonzero(np.diff(codes[order])) + 1)
    return sorted(found, key=lambda group: int(group[0]))


def refusal(run: Run, spent: FloatArray, charge: FloatArray) -> BudgetExceeded | None:
    """The first task that cannot afford the charge on top of what was spent on it.

    Costs only ever forbid more as they grow. So the largest μ², ε and δ among the tasks of one
    budget are judged first, together; only if those do not fit is each different cost judged.
    """
    charged, total = np.any(charge > 0, axis=1), spent + charge
    over = charged & ~_corner_fits(run, charged, total)
    for group in groups(np.column_stack([total, run.budget_of]), over):
        first = int(group[0])
        budget = run.budgets[run.budget_of[first]]
        after = Cost(*total[first].tolist())
        if not after.within(_with_slack(budget)):
            before = Cost(*spent[first].tolist()).epsilon_at(budget.delta)
            asked = after.epsilon_at(budget.delta) - before if before < math.inf else math.inf
            left = max(0.0, budget.epsilon - before)
            return BudgetExceeded(label_from_json(run.tasks[first]), left, asked, budget)
    return None


def _corner_fits(run: Run, charged: NDArray[np.bool_], total: FloatArray) -> NDArray[np.bool_]:
    """For each task: would even the worst cost among the tasks of its budget fit?"""
    worst = np.zeros((len(run.budgets), 3))
    np.maximum.at(worst, run.budget_of[charged], total[charged])
    fits = [
        Cost(*cost.tolist()).within(_with_slack(budget))
        for cost, budget in zip(worst, run.budgets, strict=True)
    ]
    return np.array([*fits, True])[run.budget_of]  # the last one is that of no budget (−1)


def _with_slack(budget: Budget) -> Budget:
    """The budget and the rounding of adding its parts up: T times ε/T may exceed ε by an ulp."""
    up = 1 + RELATIVE
    return replace(budget, epsilon=budget.epsilon * up, delta=min(budget.delta * up, 1 - RELATIVE))


def packed(values: NDArray[Any]) -> Any:
    """A list, or the one number that all are."""
    first = values[0].item()
    return first if np.all(values == first) else values.tolist()


def unpacked(written: Any, m: int) -> FloatArray:
    """Inverse of packed."""
    return np.broadcast_to(np.asarray(written, dtype=np.float64), (m,)).copy()
