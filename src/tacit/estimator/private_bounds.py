"""Ranges that nobody declared: found by votes of all tasks, and paid for by the run.

Two releases come before the learner's own. In each, every task votes once for each of the q open
columns (the target may be one of them), by its own cells of that column:

``spreads``   for the power of two 2^k nearest to the width of the middle 80% of its cells; where
              they are all the same, to their size
``places``    for where their median lies, in steps of the 2^k that won

**Sensitivity.** A task's row has q blocks, each zero or one-hot with the entry 1/√q, so its ℓ2 norm
is at most one and no entry is negative: Δ₂ = √2 under replace, reached by two tasks that agree
nowhere, and 1 under zero-out, whatever a cell holds (``VoteSum``; it clips besides). What follows,
the winner and the shortest window that holds half of the tasks, is post-processing.

**Price.** The noise of one count is σ√q votes. A window of two counts must stand out of it for half
of the m tasks to be seen, m/2 ≥ z σ √(2q) with σ = Δ/(μ√(s/2)), so both releases together take the
share of μ²

    s = 16 z² q Δ² / (μ m)²,

a public number, and at least ``LEAST``. Where it would be above ``MOST`` ranges would be noise, or
little would be left to learn with: then they have to be declared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit.arrays import Array, BoolArray, FloatArray
from tacit.engine import Coordinator, Facts, Message, Participant, Public, Step, Unprotected
from tacit.engine.protocol import combined
from tacit.errors import InvalidInput
from tacit.estimator.home import Home
from tacit.privacy.accounting import gaussian_mu
from tacit.privacy.budget import Budget, Neighbours
from tacit.privacy.mechanisms import VoteSum
from tacit.privacy.mechanisms.sensitivities import vote_sensitivity
from tacit.privacy.release import Declared, Release
from tacit.tasks.schema import within

BOUNDS = "bounds"
"""The ranges (q, 2) in what is shared: low and high of each open column, the target last."""

LEAST, MOST = 0.04, 0.4  # of μ²
STANDS_OUT = 4.0  # z
SPREADS = np.arange(-20, 41)  # k of the candidate spreads 2^k
PLACES = 512  # steps to either side of zero; what lies further is at the end


def share(mu: float, n_tasks: int, n_open: int, neighbours: Neighbours) -> float:
    """The share of μ² that the ranges of so many columns take; InvalidInput if it is too much.

    >>> round(share(0.27, 1000, 6, "replace"), 3)
    0.042
    """
    delta = vote_sensitivity(1.0, neighbours)
    needed = 16 * STANDS_OUT**2 * n_open * delta**2 / (mu * n_tasks) ** 2
    if needed > MOST:
        enough = math.ceil(n_tasks * math.sqrt(needed / MOST))
        most = math.floor(n_open * MOST / needed)
        raise InvalidInput(
            f"private ranges of {n_open} columns would be noise: {n_tasks} tasks at this budget "
            f"can find {most or 'no'} ranges, {n_open} need {enough:,} tasks; declare them"
        )
    return max(LEAST, needed)


def bounds_share(budget: Budget, n_tasks: int, n_open: int) -> float:
    """The same, of a budget that all tasks have."""
    return share(gaussian_mu(budget.epsilon, budget.delta), n_tasks, n_open, budget.neighbours)


@dataclass(frozen=True)
class Bounds:
    """Which columns are open, and what their ranges may cost."""

    columns: BoolArray  # (d + k,), the target, or all of several, last
    steps: tuple[Step, Step]
    left: float  # μ for what is learned with them

    @classmethod
    def planned(cls, facts: Facts, columns: BoolArray) -> Bounds:
        """From public facts."""
        if not facts.mu:
            raise InvalidInput(
                "private ranges are released with Gaussian noise, and the learner's budget is for "
                "another one; declare the ranges"
            )
        taken = share(facts.mu, facts.n_tasks, int(columns.sum()), facts.neighbours)
        each = VoteSum.for_mu(1.0, facts.mu * math.sqrt(taken / 2), facts.neighbours)
        steps = Step("spreads", each), Step("places", each)
        return cls(columns, steps, facts.mu * math.sqrt(1 - taken))


# --- at home -------------------------------------------------------------------------------------


def spread_votes(home: Home, columns: BoolArray) -> FloatArray:
    """(m, q · 61): each task's spread of each open column."""

    def vote(cells: FloatArray) -> int | None:
        low, middle, high = np.quantile(cells, [0.1, 0.5, 0.9])
        width = high - low if high > low else abs(middle)
        return None if width == 0 else round(math.log2(width)) - int(SPREADS[0])

    return _votes(home, columns, [vote] * int(columns.sum()), len(SPREADS))


def place_votes(home: Home, columns: BoolArray, steps: FloatArray) -> FloatArray:
    """(m, q · 1024): where each task's median lies, in those steps (q,)."""

    def voting(step: float) -> Callable[[FloatArray], int]:
        return lambda cells: math.floor(float(np.clip(np.median(cells) / step, *_ENDS))) + PLACES

    return _votes(home, columns, [voting(step) for step in steps.tolist()], 2 * PLACES)


_ENDS = -PLACES, PLACES - 1


def _votes(
    home: Home,
    columns: BoolArray,
    votes: Sequence[Callable[[FloatArray], int | None]],
    width: int,
) -> FloatArray:
    """One-hot blocks of norm 1/√q, from each task's own cells alone; none where it has no cell."""
    p = home.problems
    cells = np.column_stack([p.X[:, :-1], p.y])[:, columns]
    found = np.zeros((p.n_tasks, len(votes), width))
    for i, (start, stop) in enumerate(zip(p.offsets[:-1], p.offsets[1:], strict=True)):
        for j, vote in enumerate(votes):
            own = cells[start:stop, j]
            own = own[np.isfinite(own)]
            place = vote(own) if len(own) else None
            if place is not None:
                found[i, j, min(max(place, 0), width - 1)] = 1 / math.sqrt(len(votes))
    return found.reshape(p.n_tasks, -1)


# --- what follows from releases ------------------------------------------------------------------


def won_spreads(total: FloatArray) -> FloatArray:
    """(q,): 2^k of the most votes."""
    return np.asarray(2.0 ** SPREADS[total.reshape(-1, len(SPREADS)).argmax(axis=1)])


def won_bounds(total: FloatArray, steps: FloatArray, n_tasks: int) -> FloatArray:
    """(q, 2): the shortest window that half of the tasks voted for, and half of it on either side.

    >>> votes = np.zeros(2 * PLACES)
    >>> votes[PLACES + 3] = 10.0
    >>> won_bounds(votes, np.array([4.0]), 10)
    array([[ 4., 20.]])
    """
    counts = total.reshape(len(steps), -1) * math.sqrt(len(steps))
    windows = np.array([_window(row, n_tasks / 2) for row in counts])  # (q, 2): start, length
    start, length = windows.T
    low = start - PLACES - length / 2
    return np.stack([low, low + 2 * length], axis=1) * steps[:, None]


def _window(counts: FloatArray, enough: float) -> tuple[int, int]:
    length = 2
    while True:
        sums = np.convolve(counts, np.ones(length), mode="valid")[:: length // 2]
        best = int(sums.argmax())
        if sums[best] >= enough or length == len(counts):
            return best * length // 2, length
        length *= 2


# --- both halves, before those of a learner ------------------------------------------------------


def without_bounds(shared: Mapping[str, Any]) -> dict[str, Any]:
    """What the learner itself shares."""
    return {name: part for name, part in shared.items() if name != BOUNDS}


@dataclass(frozen=True)
class BoundsFirst:
    """A coordinator: ranges, and then whatever the learner shares."""

    bounds: Bounds
    learner: Coordinator
    n_tasks: int

    @property
    def steps(self) -> tuple[Step, ...]:
        """Those of the ranges, and the learner's."""
        return (*self.bounds.steps, *self.learner.steps)

    def start(self) -> Message:
        """Declared constants."""
        unknown = np.ones(int(self.bounds.columns.sum()))
        return {**self.learner.start(), BOUNDS: Declared(unknown)}

    def absorb(self, step: Step, shared: Public, release: Release) -> Message:
        """The steps of the places, then the ranges, then what the learner makes of its own."""
        first, second = self.bounds.steps
        if step.name == first.name:
            return {**shared, BOUNDS: release.map(won_spreads)}
        if step.name == second.name:
            found = combined(
                lambda total, steps: won_bounds(total, steps, self.n_tasks), release, shared[BOUNDS]
            )
            return {**shared, BOUNDS: found}
        own = self.learner.absorb(step, without_bounds(shared), release)
        return {**own, BOUNDS: shared[BOUNDS]}


@dataclass(frozen=True)
class VotesFirst:
    """A participant: votes, and then the learner's own, made of what became of the columns."""

    home: Home
    bounds: Bounds
    learner: Callable[[Home], Participant]

    def select(self, units: Sequence[int]) -> VotesFirst:
        """These tasks only, in this order."""
        return replace(self, home=self.home.select(units))

    def contribute(self, step: Step, shared: Message, state: Any) -> tuple[Any, Any]:
        """The state is the learner's participant and its own state."""
        known: Array = np.asarray(shared[BOUNDS].value)
        first, second = self.bounds.steps
        if step.name == first.name:
            return spread_votes(self.home, self.bounds.columns), None
        if step.name == second.name:
            return place_votes(self.home, self.bounds.columns, known), None
        learner, kept = state or (self.learner(bounded(self.home, known)), None)
        rows, kept = learner.contribute(step, without_bounds(shared), kept)
        return rows, (learner, kept)


def with_bounds(
    home: Home,
    facts: Facts,
    participant: Callable[[Home, Facts], Participant],
    coordinator: Callable[[Facts], Coordinator],
) -> tuple[Participant, Coordinator]:
    """Both halves of a learner, after those that find the ranges of the open columns."""
    bounds = Bounds.planned(facts, home.open_columns)
    d = len(facts.declared_features)
    left = replace(
        facts,
        mu=bounds.left,
        declared_features=facts.declared_features | home.open_columns[:d],
        declared_target=facts.declared_target or bool(home.open_columns[d:].any()),
    )
    tasks = VotesFirst(home, bounds, lambda scaled: participant(scaled, left))
    return tasks, BoundsFirst(bounds, coordinator(left), facts.n_tasks)


def bounded(home: Home, bounds: FloatArray) -> Home:
    """The same rows with open columns clipped and scaled to their ranges (q, 2)."""
    columns, p = home.open_columns, home.problems
    X, y = within(p.X[:, :-1], p.y, columns, bounds)
    return replace(
        home,
        problems=replace(p, X=np.column_stack([X, p.X[:, -1]]), y=y),
        declared_features=home.declared_features | columns[: X.shape[1]],
        declared_target=home.declared_target or bool(columns[X.shape[1] :].any()),
        open_columns=np.zeros_like(columns),
    )


def open_bounds(home: Home) -> Unprotected:
    """The ranges that the votes without any noise give: for a twin without a budget."""
    m = home.problems.n_tasks
    steps = won_spreads(spread_votes(home, home.open_columns).sum(axis=0))
    votes = place_votes(home, home.open_columns, steps).sum(axis=0)
    return Unprotected(won_bounds(votes, steps, m))
