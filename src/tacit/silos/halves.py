"""The two halves: silos with their people's rows, and a coordinator that reads what they release.

The participant's contribution to a release is one row per person's row (moments) or per person
(scores), each by itself, bit for bit; the coordinator is made of public numbers alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logit, ndtr

from tacit.arrays import FloatArray, IntArray
from tacit.engine import Message, Public, Step
from tacit.estimator import Home
from tacit.linear.losses import Loss
from tacit.linear.threads import isolated
from tacit.privacy.isolation import products, require_alone
from tacit.privacy.mechanisms import Blocks
from tacit.privacy.planning import Door
from tacit.privacy.release import Declared, Release
from tacit.silos.coding import Coding
from tacit.silos.hierarchy import Hierarchy, Tie, from_moments, from_scores
from tacit.silos.moments import Moments, moments_of
from tacit.silos.silo_plan import CLIP, MOMENTS, SCORES, SiloPlan

MOST_CERTAIN = 0.98
"""No class is taken to be rarer than 1% on average, whatever noise says."""


@dataclass(frozen=True)
class SiloHome(Home):
    """Silos as they look at home: rows as declared, and whose they are."""

    coding: Coding
    person: IntArray  # (N,), a number for each person of a silo

    def select(self, tasks: Sequence[int]) -> SiloHome:
        """These silos only, in this order."""
        at = self.problems.offsets
        rows = np.concatenate([np.arange(at[t], at[t + 1]) for t in tasks])
        return replace(
            self, problems=self.problems.select(tasks), person=self.person[rows.astype(np.int64)]
        )

    @property
    def cells(self) -> FloatArray:
        """(N, B + 1): the cells of each row, and its target."""
        return np.column_stack([self.coding.cells(self.problems.X[:, :-1]), self.problems.y])

    def people(self) -> FloatArray:
        """(J,): how many each silo has."""
        silo = self.problems.task
        found = np.unique(np.column_stack([silo, self.person]), axis=0)[:, 0]
        return np.bincount(found, minlength=self.problems.n_tasks).astype(np.float64)


# --- at the silos --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Silos:
    """The participant half."""

    home: SiloHome
    blocks: Blocks
    score_weights: FloatArray  # (d,)

    def select(self, units: Sequence[int]) -> Silos:
        """These silos only, in this order."""
        return replace(self, home=self.home.select(units))

    def contribute(self, step: Step, shared: Message, state: None) -> tuple[list[FloatArray], None]:
        """Of each silo: a row for each row of a person (moments), or for each person (scores)."""
        cells, person = self.home.cells, self.home.person
        compute = partial(self._row_scores, cells, shared) if step.name == SCORES else partial(
            _each, cells
        )  # fmt: skip
        rows = compute(slice(None))
        require_alone("a row's part in a release", compute, rows)
        if step.name == MOMENTS:
            return self._by_silo(np.column_stack([person, rows])), None
        each = zip(self._by_silo(rows), self._by_silo(person), strict=True)
        return [means(mine, whose) for mine, whose in each], None

    def _by_silo(self, rows: Any) -> list[Any]:
        return np.split(rows, self.home.problems.offsets[1:-1])

    def _row_scores(self, cells: FloatArray, shared: Message, rows: slice) -> FloatArray:
        f = self.blocks.coordinates(cells[rows])[:, :-1]
        base, largest = (np.asarray(shared[name].value) for name in ("base", "largest"))
        psi = residuals(f, cells[rows, -1], base, float(largest), self.home.loss)
        return np.asarray(f * self.score_weights * psi[:, None])


def _each(cells: FloatArray, rows: slice) -> FloatArray:
    return cells[rows]


def residuals(
    f: FloatArray, y: FloatArray, base: FloatArray, largest: float, loss: Loss
) -> FloatArray:
    """(n,): ψ in [−1, 1], of each row by itself: y − fᵀβ°, or ½(1 + y) − p of a class, clipped at
    ``largest`` and divided by it.

    >>> from tacit.linear.losses import Squared
    >>> residuals(np.ones((2, 1)), np.array([1.0, 0.2]), np.array([0.1]), 0.5, Squared()).round(3)
    array([1. , 0.2])
    """
    eta = products(f, base[None])[:, 0]
    left = (1 + y) / 2 - expit(eta) if loss.targets_are_classes else y - eta
    return np.clip(np.nan_to_num(left / largest), -1.0, 1.0)


def means(rows: FloatArray, person: IntArray) -> FloatArray:
    """(people, ...): the mean over the rows of each, in order of their numbers.

    >>> means(np.array([[1.0], [2.0], [4.0]]), np.array([7, 3, 7]))
    array([[2. ],
           [2.5]])
    """
    if not len(rows):
        return rows
    order = np.argsort(person, kind="stable")
    starts = np.flatnonzero(np.diff(person[order], prepend=person[order][0] - 1))
    sums = np.add.reduceat(rows[order], starts, axis=0)
    return np.asarray(sums / np.diff(starts, append=len(rows))[:, None])


# --- at the coordinator --------------------------------------------------------------------------


@dataclass(frozen=True)
class MomentsCoordinator:
    """The half that is given no data: plans of those who speak, and how many people each has."""

    plans: dict[int, SiloPlan]
    people: FloatArray  # (J,), of those silos
    tie: Tie  # of the variances of their prior

    @property
    def any_plan(self) -> SiloPlan:
        """What all plans have in common: columns, weights, loss."""
        return next(iter(self.plans.values()))

    def steps(self, silo: int) -> tuple[Step, ...]:
        """What this silo releases."""
        return self.plans[silo].steps

    def start(self) -> Public:
        """A model of zeros."""
        return {"base": Declared(np.zeros(len(self.any_plan.score_weights)))}

    def absorb(self, step: str, shared: Public, releases: Sequence[Release]) -> Public:
        """All moments and where scores are to be taken; then all moments and scores."""
        new = Release.combine(lambda *values: np.stack(values), *releases)
        if step == SCORES:
            return {MOMENTS: shared[MOMENTS], SCORES: new}
        now = self.learned(new.value)
        largest = largest_residual(now, self.any_plan.loss)
        return {
            MOMENTS: new,
            "base": new.map(lambda _: now.mu),
            "largest": new.map(lambda _: largest),
        }

    def learned(self, moments: FloatArray, *scores: FloatArray) -> Hierarchy:
        """From the releases so far; the same again whenever it is asked for."""
        plans = list(self.plans.values())
        sigmas = np.array([plan.moments.sigma for plan in plans])
        of = moments_of(self.any_plan.blocks, moments, self.people, sigmas)
        said = [(each / plans[0].score_weights, self._score_variances()) for each in scores]
        return learned(of, (sigmas.min() / sigmas) ** 2, self.any_plan.loss, self.tie, said)

    def _score_variances(self) -> FloatArray:
        """(J, d)."""
        sigmas = np.array([plan.scores.sigma for plan in self.plans.values()])
        return np.asarray((sigmas[:, None] / self.any_plan.score_weights) ** 2)


class SiloHalves(NamedTuple):
    """Both halves of a run, and the door of every silo."""

    silos: Silos
    coordinator: MomentsCoordinator
    doors: list[Door]
    speaking: tuple[int, ...]


def largest_residual(at: Hierarchy, loss: Loss) -> float:
    """Where residuals are clipped: CLIP deviations, and 1 at most, as of a probability."""
    return 1.0 if loss.targets_are_classes else min(1.0, CLIP * math.sqrt(at.noise))


@isolated()
def learned(
    of: Moments,
    weights: FloatArray,
    loss: Loss,
    tie: Tie,
    scores: Sequence[tuple[FloatArray, FloatArray]],
) -> Hierarchy:
    """From moments, and from scores (J, d) with variances (J, d), each at the μ before it.

    A clipped residual moves with the model by less than it would: by the share of residuals that
    are inside, here of a normal law. That of a probability moves by p(1 − p).
    """
    if loss.targets_are_classes:
        seen = float(weights @ of.S[:, 0, -1]) / max(float(weights @ of.people), 1.0)
        level = float(np.clip(seen, -MOST_CERTAIN, MOST_CERTAIN))
        slope = (1 - level**2) / 4
        now = as_logistic(from_moments(of, weights, tie, curvature=slope), level)
    else:
        now = from_moments(of, weights, tie)
        slope = 2 * float(ndtr(largest_residual(now, loss) / math.sqrt(now.noise))) - 1
    for total, variance in scores:
        scale = largest_residual(now, loss) / slope
        now = from_scores(now, now.mu, scale * total, scale**2 * variance, now.noise)
    return now


def as_logistic(of: Hierarchy, level: float) -> Hierarchy:
    """From least squares on y = ±1, of mean ``level``, to log odds: (1 + fᵀβ)/2 is a probability p,
    whose log odds move by 1/(p(1 − p)) times as much. Scores move by that slope; over it their own
    variance is 1/(p(1 − p)) times M, which takes the place of σ²."""
    double = 2 * of.curvature  # of (1 + fᵀβ)/2
    base = np.zeros_like(of.mu)
    base[0] = logit((1 + level) / 2) - level / double
    factor = 1 / double**2
    silos = replace(
        of.silos, b=of.silos.b / double, b_variance=of.silos.b_variance * factor, base=base
    )
    return replace(
        of,
        silos=silos,
        mu=of.mu / double + base,
        doubt=of.doubt * factor,
        spread=of.spread * factor,
        reach=of.reach * factor,
        noise=1 / of.curvature,
    )
