"""The account of a data set: what was spent on each of its tasks, and what that adds up to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import BoolArray
from tacit.privacy.accounting import Cost, Event
from tacit.privacy.prices import groups, with_slack
from tacit.privacy.runs import Cap, Promise, Run

IN_FLOATS = (
    "pure noise drawn in floating point: δ = 0 holds of the ideal mechanism, and is not claimed of "
    "this one"
)


COMPARED = (
    "one of several fits by clones of one estimator, as in a grid search: the scores by which they "
    "were compared are looks at private data that nothing counts"
)


ROUNDING = 1e-6
"""Runs that share a cap out exactly add up to it, but for this."""


@dataclass(frozen=True)
class Statement:
    """What everything recorded for some tasks reveals of the worst of them, all told."""

    epsilon: float
    delta: float
    runs: int  # the most on one task
    after_output: bool  # several runs' own prices, added: the sum was not fixed beforehand
    cap: Cap
    secure_noise: bool  # of all of them
    doubts: tuple[str, ...]  # of all of them; nothing is proven where there is one
    run_epsilon: float = 0.0  # of the run asked about, by itself
    run_delta: float = 0.0

    @property
    def proven(self) -> bool:
        """Whether nothing is doubtful."""
        return not self.doubts


class Account:
    """What was spent on each task of one data set, for whom, and what is doubtful about it."""

    def __init__(self) -> None:
        self._row: dict[str, int] = {}
        self._found: tuple[tuple[str, ...], NDArray[np.intp]] = ((), np.zeros(0, dtype=np.intp))
        self.costs = np.zeros((0, 3))  # μ², ε, δ₀: what a lifetime cap is held against
        self.pairs = np.zeros((0, 2))  # Σε and Σδ of the runs' own prices
        self.runs = np.zeros(0, dtype=np.intp)
        self.promise = np.zeros(0, dtype=np.intp)  # of ``promises``; −1 until something is charged
        self.insecure = np.zeros(0, dtype=np.bool_)
        self.first = np.zeros(0)  # δ of the first run's own price
        self.reports: dict[tuple[Event, int], NDArray[np.intp]] = {}  # of each plan, made so far
        self.promises: list[Promise] = []
        self.doubts: dict[str, BoolArray] = {}
        self.families: dict[str, set[str]] = {}  # the members of each that have released
        self.cap: Cap = ()
        self.opened = False  # whether a run was declared: from then on the cap is fixed

    def rows(self, labels: Iterable[str]) -> NDArray[np.intp]:
        """Where these tasks are; a new one has spent nothing."""
        asked, row = tuple(labels), self._row
        if asked == self._found[0]:  # a run's tasks are looked up when it is declared, and stated
            return self._found[1]
        fresh = [label for label in dict.fromkeys(asked) if not row or label not in row]
        row.update(zip(fresh, range(len(row), len(row) + len(fresh)), strict=True))
        new = len(fresh)
        if new:
            self.costs = np.vstack([self.costs, np.zeros((new, 3))])
            self.pairs = np.vstack([self.pairs, np.zeros((new, 2))])
            self.runs = np.append(self.runs, np.zeros(new, dtype=np.intp))
            self.promise = np.append(self.promise, np.full(new, -1))
            self.first = np.append(self.first, np.zeros(new))
            pad, zeros = np.zeros(new, dtype=np.bool_), np.zeros(new, dtype=np.intp)
            self.insecure = np.append(self.insecure, pad)
            self.doubts = {text: np.append(mask, pad) for text, mask in self.doubts.items()}
            self.reports = {plan: np.append(n, zeros) for plan, n in self.reports.items()}
        if new == len(asked):
            found = np.arange(len(row) - new, len(row))
        else:
            found = np.fromiter(map(row.__getitem__, asked), np.intp, len(asked))
        self._found = asked, found
        return found

    @property
    def labels(self) -> list[str]:
        """All tasks that a run ever declared, by row."""
        return list(self._row)

    def begin(self, run: Run, rows: NDArray[np.intp]) -> None:
        """The first release of a run: its own price, and its doubts, for all that it charges."""
        if run.promise not in self.promises:
            self.promises.append(run.promise)
        own = run.pairs[run.shares > 0]
        self.first[rows] = np.where(self.runs[rows] == 0, own[:, 1], self.first[rows])
        self.pairs[rows] += own
        self.runs[rows] += 1
        if run.planned:
            plan, count = run.planned_event()
            self.made(plan)[rows] += count
        self.promise[rows] = self.promises.index(run.promise)
        if run.family:
            self.families.setdefault(run.family.split("/")[0], set()).add(run.family)
        for text in run.doubts:
            self.doubt(text, rows)

    def made(self, plan: tuple[Event, int]) -> NDArray[np.intp]:
        """How many releases of a plan each task has made."""
        return self.reports.setdefault(plan, np.zeros(len(self.costs), dtype=np.intp))

    def doubt(self, text: str, rows: NDArray[np.intp]) -> None:
        """From now on something is doubtful about these tasks."""
        if rows.size:
            self.doubts.setdefault(text, np.zeros(len(self.costs), dtype=np.bool_))[rows] = True

    def compared(self, run: Run) -> bool:
        """Whether clones of the run's estimator (family "name/member") have released too."""
        members = self.families.get(run.family.split("/")[0], set())
        return bool(members - {run.family})

    def statement(self, rows: NDArray[np.intp]) -> Statement:
        """Everything that was spent on these tasks, of the worst of them."""
        runs = self.runs[rows]
        known = np.column_stack([runs, self.pairs[rows], self.first[rows], self.costs[rows]])
        different = [group[0] for group in groups(known, np.ones(len(known), dtype=bool))]
        found = {self._pair(*each) for each in known[different].tolist()}
        return Statement(
            epsilon=max((pair[0] for pair in found), default=0.0),
            delta=max((pair[1] for pair in found), default=0.0),
            runs=int(runs.max(initial=0)),
            after_output=any(pair[2] for pair in found),
            cap=self.cap,
            secure_noise=not self.insecure[rows].any(),
            doubts=tuple(text for text, mask in self.doubts.items() if mask[rows].any()),
        )

    def _pair(
        self, runs: float, epsilon: float, delta: float, first: float, *cost: float
    ) -> tuple[float, float, bool]:
        """(ε, δ) of one task, and whether it is a sum that was not fixed beforehand.

        One run states its own price. Several state their sum, or the rung of the cap's ladder that
        they have reached, whichever is less. For a rung k, what is seen while it is not passed is
        (ε_k, δ_k)-DP (a filter); summed over the rungs on which one may stop, δ is their sum. The
        first run's own price, which was stated when there was no other, is a rung too.
        """
        if runs <= 1 or not self.cap:
            return epsilon, delta, runs > 1
        reached = next((r for r in self.cap if Cost(*cost).within(with_slack(r))), self.cap[-1])
        if reached.epsilon <= epsilon * (1 + ROUNDING):
            return reached.epsilon, first + sum(rung.delta for rung in self.cap), False
        return epsilon, delta, True
