"""What a run declares before its first release, and what that costs.

A run declares its tasks, whom it protects from whom, its budget for each task, the events it plans,
and every doubt about them. Two prices follow, both fixed with the declaration:

**Its own** (ε, δ) for each task, composed as tightly as we can prove (``accounting.epsilon``),
since everything in it is fixed in advance. It must stay within the task's budget, and is charged
whole with the first release. Prices of several runs on one task add up, ε and δ both: basic
composition survives that later runs are chosen after seeing earlier outputs.

**Under a lifetime cap**, which was fixed before the first output of all, runs compose tightly
however they are chosen (a filter), so there each release also costs (μ², ε, δ₀):

================  ===================================================================
``Gaussian(μ)``   (μ · share)², release by release
``Pure(ε)``       ε · share, release by release
``Approximate``   (ε, δ), release by release; nothing where the share is 0
sampled           the whole block of the plan once, with its first release: the smallest μ with
                  δ_run(ε) ≤ (1 − δ₀) δ_GDP(ε; μ) + δ₀ for all ε (``accounting.dominating``)
================  ===================================================================

Pure releases whose sum exceeds the budget, but whose optimal composition does not, are a block too:
they cost the run's own (ε, δ), once. Where k releases of one pure event were planned beforehand and
come one by one, in runs of their own (a person's reports), the first costs the optimal composition
of all k, the others nothing, and the k + 1st is refused.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import FloatArray
from tacit.errors import BudgetExceeded, InvalidInput
from tacit.privacy import accounting
from tacit.privacy.accounting import Approximate, Cost, Event, Gaussian, Poisson, Pure, Visible
from tacit.privacy.budget import Budget, Neighbours
from tacit.privacy.chain import RELATIVE, event_from_json, event_to_json
from tacit.tasks.labels import canonical_label

SAMPLED: frozenset[type] = frozenset({Poisson, Visible})

ANTIPODAL = (
    "Poisson sampling with replace neighbours: that the antipodal pair dominates is assumed, not "
    "proven; zero-out needs no such assumption"
)

EXPECTED = 2
"""Of a cap's δ a sampled run takes what is best if there are so many like it: a public rule."""

Cap = tuple[Budget, ...]
"""A lifetime cap: one budget, or a ladder of them, declared before the first output; () is none."""


class Promise(NamedTuple):
    """Whom a run protects, against whom: runs add up only if they promise alike."""

    unit: str
    neighbours: str
    adversary: str


@dataclass(frozen=True, eq=False)
class Run:
    """What a run declared before its first release, and its prices."""

    name: str
    dataset: str
    tasks: tuple[str, ...]  # canonical labels
    promise: Promise
    budgets: tuple[Budget, ...]  # the different ones
    budget_of: NDArray[np.intp]  # (m,), which of them is task i's; −1: task i is not charged
    shares: FloatArray  # (m,), in [0, 1], what task i reveals of each event
    plan: tuple[tuple[Event, int], ...]  # each event and how often
    secure: bool = True  # noise from the operating system; False: a seeded generator
    doubts: tuple[str, ...] = ()  # why nothing is proven, if it is not
    cap: Cap = ()
    planned: int = 0  # k, where the cap is for k such releases and nothing else
    family: str = ""  # shared by an estimator and its clones
    made: tuple[str, str] = ("", "")  # by whom, and when
    pairs: FloatArray = field(default_factory=lambda: np.zeros((0, 2)))  # (m, 2), ε and δ
    block_kinds: frozenset[type] = SAMPLED
    block: FloatArray = field(default_factory=lambda: np.zeros((0, 3)))  # (m, 3), charged once

    @property
    def neighbours(self) -> Neighbours:
        """The relation of its budgets and events."""
        return "replace" if self.promise.neighbours == "replace" else "zero-out"

    def planned_event(self) -> tuple[tuple[Event, int], int]:
        """(the event, k) that were planned for each task, and how many of them are made here."""
        return (self.plan[0][0], self.planned), self.plan[0][1]

    def float_delta(self) -> FloatArray:
        """(m,): the budget's δ, where the run's own price has none: what noise in floats claims."""
        budgets = np.array([*(budget.delta for budget in self.budgets), 0.0])[self.budget_of]
        return np.where((self.shares > 0) & (self.pairs[:, 1] == 0), budgets, 0.0)

    def to_json(self) -> dict[str, Any]:
        """The payload of its entry."""
        kinds = sorted(kind.__name__ for kind in self.block_kinds)
        return self.declaration() | {
            "cap": _budgets_to_json(self.cap),
            "family": self.family,
            "made": list(self.made),
            "pairs": [packed(column) for column in self.pairs.T],
            "block": {"kinds": kinds, "charges": [packed(column) for column in self.block.T]},
        }

    def declaration(self) -> dict[str, Any]:
        """What the caller declared: the payload without what the ledger added to it."""
        return {
            "run": self.name,
            "dataset": self.dataset,
            "tasks": list(self.tasks),
            "promise": list(self.promise),
            "budgets": _budgets_to_json(self.budgets),
            "budget_of": packed(self.budget_of),
            "shares": packed(self.shares),
            "plan": [[event_to_json(event), count] for event, count in self.plan],
            "secure": self.secure,
            "doubts": list(self.doubts),
            "planned": self.planned,
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Run:
        """Inverse of to_json."""
        m, promise = len(fields["tasks"]), Promise(*fields["promise"])
        kinds = {kind.__name__: kind for kind in SAMPLED | {Pure}}
        run = cls(
            name=fields["run"],
            dataset=fields["dataset"],
            tasks=tuple(map(str, fields["tasks"])),
            promise=promise,
            budgets=_budgets_from_json(fields["budgets"], promise.neighbours),
            budget_of=unpacked(fields["budget_of"], m).astype(np.intp),
            shares=unpacked(fields["shares"], m),
            plan=tuple((event_from_json(event), count) for event, count in fields["plan"]),
            secure=bool(fields["secure"]),
            doubts=tuple(fields["doubts"]),
            cap=_budgets_from_json(fields["cap"], promise.neighbours),
            planned=fields["planned"],
            family=fields["family"],
            made=(fields["made"][0], fields["made"][1]),
            pairs=np.column_stack([unpacked(column, m) for column in fields["pairs"]]),
            block_kinds=frozenset(kinds[name] for name in fields["block"]["kinds"]),
            block=np.column_stack([unpacked(c, m) for c in fields["block"]["charges"]]),
        )
        _require_sense(run)
        return run


def _require_sense(run: Run) -> None:
    """What no run declares, whoever wrote it: counts and shares that would refund."""
    counts = [count for _, count in run.plan]
    if not all(type(count) is int and count >= 1 for count in counts):
        raise InvalidInput(f"run {run.name!r} plans an event a number of times, got {counts}")
    if not np.all((run.shares >= 0) & (run.shares <= 1)):
        raise InvalidInput(f"run {run.name!r}: shares are in [0, 1]")
    if not (np.all(run.pairs >= 0) and np.all(run.block >= 0)):
        raise InvalidInput(f"run {run.name!r}: prices are numbers that are not negative")
    if run.planned and not _is_planned(run):
        raise InvalidInput(
            f"run {run.name!r}: {run.planned!r} planned releases are of one pure event, whole, at "
            "least as many as the run makes"
        )


def _is_planned(run: Run) -> bool:
    whole = np.all((run.shares == 0) | (run.shares == 1))
    return bool(
        type(run.planned) is int
        and len(run.plan) == 1
        and isinstance(run.plan[0][0], Pure)
        and run.plan[0][1] <= run.planned
        and whole
    )


def _budgets_to_json(budgets: Sequence[Budget]) -> list[list[float]]:
    return [[budget.epsilon, budget.delta] for budget in budgets]


def _budgets_from_json(pairs: Sequence[Sequence[float]], neighbours: Any) -> tuple[Budget, ...]:
    return tuple(Budget(*pair, neighbours=neighbours) for pair in pairs)


# --- declaring -----------------------------------------------------------------------------------


def declared(
    name: str,
    dataset: str,
    tasks: Sequence[Hashable],
    budgets: Budget | Sequence[Budget | None],
    plan: Sequence[Event],
    *,
    shares: Sequence[float] | FloatArray | None = None,
    unit: str,
    adversary: str,
    secure: bool = True,
    doubts: Sequence[str] = (),
    planned: int = 0,
    family: str = "",
) -> Run:
    """The run that a caller describes, checked; its prices are not computed yet."""
    if not (isinstance(name, str) and isinstance(dataset, str)):
        raise InvalidInput(f"a run and its data set are named by text, got {name!r}, {dataset!r}")
    labels = tuple(canonical_label(task) for task in tasks)
    if not labels or len(set(labels)) < len(labels):
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
        promise=Promise(unit, _relation(different, plan), adversary),
        budgets=different,
        budget_of=budget_of,
        shares=(budget_of >= 0).astype(np.float64),
        plan=tuple(Counter(plan).items()),
        secure=secure,
        doubts=tuple(dict.fromkeys([*doubts, *_assumed(plan)])),
        planned=planned,
        family=family,
    )
    run.declaration()  # refuses events that are none
    run = run if shares is None else replace(run, shares=_checked_shares(run, shares))
    _require_sense(run)
    return run


def _assumed(plan: Sequence[Event]) -> list[str]:
    """What the accounting of a plan assumes and nobody has proven."""
    replaced = any(isinstance(e, Poisson) and e.neighbours == "replace" for e in plan)
    return [ANTIPODAL] if replaced else []


def _relation(budgets: Sequence[Budget], plan: Sequence[Event]) -> Neighbours:
    relations = {budget.neighbours for budget in budgets}
    relations |= {event.neighbours for event in plan if isinstance(event, Poisson)}
    if len(relations) > 1:
        raise InvalidInput("the budgets and events of one run must have the same neighbours")
    return relations.pop() if relations else "replace"


def _checked_shares(run: Run, shares: Sequence[float] | FloatArray) -> FloatArray:
    """Shares as an array (m,) in [0, 1], 0 for each task without a budget."""
    given = np.array(shares, dtype=np.float64)
    if given.shape != run.shares.shape or not np.all((given >= 0) & (given <= 1)):
        raise InvalidInput(f"shares must be {len(run.tasks)} numbers in [0, 1]")
    if np.any(given[run.budget_of < 0] > 0):
        raise InvalidInput("a task without a budget must have share 0")
    return given


# --- prices --------------------------------------------------------------------------------------


def priced(run: Run, cap: Cap) -> Run:
    """The run with its prices; BudgetExceeded if its own exceeds a task's budget."""
    m = len(run.tasks)
    pairs, block = np.zeros((m, 2)), np.zeros((m, 3))
    keys = np.column_stack([run.shares, run.budget_of])
    for group in groups(keys, run.shares > 0):
        events = scaled_plan(run.plan, float(run.shares[group[0]]))
        budget = run.budgets[run.budget_of[group[0]]]
        pairs[group] = pair = own_pair(events, budget)
        if pair[0] > budget.epsilon * (1 + RELATIVE):
            raise BudgetExceeded(run.tasks[group[0]], budget.epsilon, pair[0], budget)
        if cap and any(type(event) in SAMPLED for event, _ in events):
            block[group] = _sampled_price(events, cap[-1])
    kinds = SAMPLED
    if all(isinstance(event, Pure) for event, _ in run.plan) and (pairs[:, 1].any() or run.planned):
        whole = _planned_price(run, cap) if run.planned and cap else pairs
        kinds, block = SAMPLED | {Pure}, np.column_stack([np.zeros(m), whole])
    return replace(run, cap=cap, pairs=pairs, block=block, block_kinds=kinds)


def _planned_price(run: Run, cap: Cap) -> FloatArray:
    """(m, 2): the optimal composition of the k releases that were planned, for each task."""
    plan, _ = run.planned_event()
    pair = np.array(own_pair([plan], cap[-1]))
    return np.asarray((run.shares > 0)[:, None] * pair)


def scaled_plan(plan: Sequence[tuple[Event, int]], share: float) -> tuple[tuple[Event, int], ...]:
    """The plan as it is for a task that reveals ``share`` of each event.

    >>> scaled_plan([(Gaussian(0.4), 2), (Pure(1.0), 1)], 0.5)
    ((Gaussian(mu=0.2), 2), (Pure(epsilon=0.5), 1))
    """
    return tuple((_scaled(event, share), count) for event, count in plan)


def _scaled(event: Event, share: float) -> Event:
    match event:
        case Poisson():
            return replace(event, noise_multiplier=event.noise_multiplier / share)
        case Gaussian() | Visible():
            return replace(event, mu=event.mu * share)
        case Pure(epsilon):
            return Pure(epsilon * share)
    return event  # Approximate


def own_pair(events: Sequence[tuple[Event, int]], budget: Budget) -> tuple[float, float]:
    """(ε, δ) of a plan by itself: at δ = 0 where pure releases fit by plain addition.

    >>> own_pair([(Pure(0.1), 5)], Budget(1.0)), own_pair([], Budget(1.0))
    ((0.5, 0.0), (0.0, 0.0))
    """
    every = [event for event, count in events for _ in range(count)]
    if all(isinstance(event, Pure) for event in every):
        total = math.fsum(event.epsilon for event in every if isinstance(event, Pure))
        if total <= budget.epsilon * (1 + RELATIVE) or budget.delta == 0:
            return total, 0.0
    return accounting.epsilon(every, budget.delta), budget.delta


def _sampled_price(events: Sequence[tuple[Event, int]], cap: Budget) -> tuple[float, float, float]:
    """(μ², 0, δ₀) of the sampled part of a plan, under a cap."""
    inside = [event for event, count in events for _ in range(count) if type(event) in SAMPLED]
    mu, delta = accounting.dominating(inside, cap.delta, runs=EXPECTED)
    return mu * mu, 0.0, delta


def event_charge(event: Event, shares: FloatArray) -> FloatArray:
    """What one release of an event that adds up costs each task, (m, 3): μ², ε, δ.

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
    """The first task whose charge exceeds the run's lifetime cap on top of what was spent on it."""
    if not run.cap:
        return None
    cap, charged, total = run.cap[-1], np.any(charge > 0, axis=1), spent + charge
    # Costs only ever forbid more as they grow: if the worst of each fits, all do.
    if Cost(*total[charged].max(axis=0, initial=0.0).tolist()).within(with_slack(cap)):
        return None
    for group in groups(total, charged):
        first = int(group[0])
        after = Cost(*total[first].tolist())
        if not after.within(with_slack(cap)):
            before = Cost(*spent[first].tolist()).epsilon_at(cap.delta)
            asked = after.epsilon_at(cap.delta) - before if before < math.inf else math.inf
            return BudgetExceeded(run.tasks[first], max(0.0, cap.epsilon - before), asked, cap)
    return None


def with_slack(budget: Budget) -> Budget:
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
