"""What a run declares before its first release: its tasks, whom it protects from whom, its budget
for each task, the events it plans, and every doubt about them. What that costs: prices.py."""

from __future__ import annotations

import getpass
import itertools
import os
import platform
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import Array, FloatArray
from tacit.errors import InvalidInput
from tacit.privacy.accounting import Event, Poisson, Pure, Visible
from tacit.privacy.budget import A_TASK, OTHER_TASKS, Budget, Neighbours
from tacit.privacy.chain import event_from_json, event_to_json
from tacit.privacy.not_covered import SEVERAL_SILOS
from tacit.tasks.label_texts import canonical_labels

SAMPLED: frozenset[type] = frozenset({Poisson, Visible})

ANTIPODAL = (
    "Poisson sampling with replace neighbours: that the antipodal pair dominates is assumed, not "
    "proven; zero-out needs no such assumption"
)

Cap = tuple[Budget, ...]
"""A lifetime cap: one budget, or a ladder of them, declared before the first output; () is none."""


def checked_cap(cap: Budget | Sequence[Budget] | None) -> Cap:
    """A ladder of budgets whose ε rise; one budget is a ladder of one rung.

    >>> checked_cap(Budget(1.0)), checked_cap(None)
    ((Budget(epsilon=1.0, delta=1e-05, neighbours='replace'),), ())
    """
    if cap is None:
        return ()
    rungs = (cap,) if isinstance(cap, Budget) else tuple(cap)
    if not all(isinstance(rung, Budget) for rung in rungs):
        raise InvalidInput(f"cap must be a Budget, or several whose epsilons rise, got {cap!r}")
    rising = all(a.epsilon < b.epsilon for a, b in itertools.pairwise(rungs))
    alike = len({rung.neighbours for rung in rungs}) <= 1
    if not (rising and alike and sum(rung.delta for rung in rungs) < 1):
        raise InvalidInput(
            "the rungs of a cap rise in epsilon, have the same neighbours, and their deltas, which "
            f"add up, stay below 1; got {', '.join(map(str, rungs))}"
        )
    return rungs


@dataclass(frozen=True)
class RunTerms:
    """What a run declares beside its tasks, their budgets and its plan."""

    unit: str = A_TASK  # who is protected
    adversary: str = OTHER_TASKS  # from whom
    secure: bool = True  # noise from the operating system; False: from a seeded generator
    doubts: Sequence[str] = ()  # why nothing is proven
    planned: int = 0  # k, where the cap is for k releases of this one event and nothing else
    family: str = ""  # an estimator and its clones


USUAL_TERMS = RunTerms()


class Promise(NamedTuple):
    """Whom a run protects, against whom: runs add up only if they promise alike."""

    unit: str
    neighbours: str
    adversary: str

    @property
    def of_several(self) -> bool:
        """Whether somebody may be in several silos. The record has it in words alone."""
        return SEVERAL_SILOS.partition("{}")[0] in self.unit


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
            "cap": budgets_to_json(self.cap),
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
            "budgets": budgets_to_json(self.budgets),
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
            budgets=budgets_from_json(fields["budgets"], promise.neighbours),
            budget_of=unpacked(fields["budget_of"], m).astype(np.intp),
            shares=unpacked(fields["shares"], m),
            plan=tuple((event_from_json(event), count) for event, count in fields["plan"]),
            secure=bool(fields["secure"]),
            doubts=tuple(fields["doubts"]),
            cap=budgets_from_json(fields["cap"], promise.neighbours),
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


def budgets_to_json(budgets: Sequence[Budget]) -> list[list[float]]:
    """[ε, δ] of each."""
    return [[budget.epsilon, budget.delta] for budget in budgets]


def budgets_from_json(pairs: Sequence[Sequence[float]], neighbours: Any) -> tuple[Budget, ...]:
    """Inverse of budgets_to_json: all have the same neighbours."""
    return tuple(Budget(*pair, neighbours=neighbours) for pair in pairs)


def made_now() -> tuple[str, str]:
    """By whom, and when: for the inventory."""
    try:
        who = getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        who = str(os.getuid())
    return f"{who}@{platform.node()}", datetime.now(UTC).isoformat(timespec="seconds")


# --- declaring -----------------------------------------------------------------------------------


def declared(
    name: str,
    dataset: str,
    tasks: Sequence[Hashable],
    budgets: Budget | Sequence[Budget | None],
    plan: Sequence[Event],
    terms: RunTerms,
    shares: Sequence[float] | FloatArray | None,
) -> Run:
    """The run that a caller describes, checked; its prices are not computed yet."""
    if not (isinstance(name, str) and isinstance(dataset, str)):
        raise InvalidInput(f"a run and its data set are named by text, got {name!r}, {dataset!r}")
    labels = canonical_labels(tasks)
    if not labels or len(set(labels)) < len(labels):
        raise InvalidInput("a run needs at least one task, and each task once")
    caps = [budgets] * len(labels) if isinstance(budgets, Budget) else list(budgets)
    if len(caps) != len(labels):
        raise InvalidInput(f"{len(labels)} tasks, but {len(caps)} budgets")
    different, budget_of = numbered(caps)
    run = Run(
        name=name,
        dataset=dataset,
        tasks=labels,
        promise=Promise(terms.unit, _relation(different, plan), terms.adversary),
        budgets=different,
        budget_of=budget_of,
        shares=(budget_of >= 0).astype(np.float64),
        plan=tuple(Counter(plan).items()),
        secure=terms.secure,
        doubts=tuple(dict.fromkeys([*terms.doubts, *_assumed(plan)])),
        planned=terms.planned,
        family=terms.family,
    )
    run.declaration()  # refuses events that are none
    run = run if shares is None else replace(run, shares=_checked_shares(run, shares))
    _require_sense(run)
    return run


def numbered(
    budgets: Sequence[Budget | None],
) -> tuple[tuple[Budget, ...], NDArray[np.intp]]:
    """The different ones, and which of them each is; −1 for None. Most tasks have the same object,
    which is compared once.

    >>> numbered([Budget(2.0), None, Budget(1.0), Budget(2.0)])[1].tolist()
    [0, -1, 1, 0]
    """
    first = budgets[0] if budgets else None
    if first is not None and budgets.count(first) == len(budgets):  # in a hundredth of the time
        return (first,), np.zeros(len(budgets), dtype=np.intp)
    objects = dict(zip(map(id, budgets), budgets, strict=True))
    place: dict[Budget, int] = {}
    number = {
        key: -1 if budget is None else place.setdefault(budget, len(place))
        for key, budget in objects.items()
    }
    of_each = np.fromiter(map(number.__getitem__, map(id, budgets)), np.intp, len(budgets))
    return tuple(place), of_each


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


def packed(values: Array) -> Any:
    """A list, or the one number that all are."""
    first = values[0].item()
    return first if np.all(values == first) else values.tolist()


def unpacked(written: Any, m: int) -> FloatArray:
    """Inverse of packed."""
    return np.broadcast_to(np.asarray(written, dtype=np.float64), (m,)).copy()
