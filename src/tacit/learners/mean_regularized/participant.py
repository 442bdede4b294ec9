"""A task at home: what it makes of the shared state, and what it says in each step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit.arrays import FloatArray
from tacit.engine import Message, Step
from tacit.estimator import Home
from tacit.estimator.open_scale import in_shared_units, scale_votes, units_of
from tacit.linear.batched import solve_path
from tacit.linear.losses import Loss
from tacit.linear.model_averaging import (
    LEAST_TRUST,
    ballots,
    default_penalty,
    log_evidence,
    mixture,
    usual_penalties,
)
from tacit.linear.problems import Problems
from tacit.linear.row_algebra import directed, or_zero
from tacit.linear.single_task_fits import PENALTIES, best_alone, in_own_units, own_path
from tacit.linear.threads import isolated

VOTED = PENALTIES[2:-1:2]  # 0.1, 1, ..., 10⁴: the coarser path on which tasks vote


# --- what every task believes, given what was shared ---------------------------------------------


@dataclass(frozen=True)
class PriorMean:
    """What the shared state says to a task: a mean, how far to trust it, and penalties."""

    mean: FloatArray  # (D,), D = d + 1, in scaled units
    joined: bool  # whether there is a mean at all
    trust: float  # in [0, 1], the share of the mean that is not noise; at 0 it is not used
    own_units: bool  # no common scale is known: every task scales by itself
    vote: FloatArray  # (2, L), log prior of each penalty: on its own, around the mean
    target_scale: float
    feature_scale: FloatArray  # (d,)

    @classmethod
    def of(cls, shared: Message) -> PriorMean:
        """Read from the shared state."""
        parts = {name: part.value for name, part in shared.items()}
        return cls(
            parts["mean"],
            bool(parts["joined"]),
            float(parts["trust"]),
            bool(parts["own_units"]),
            parts["vote"],
            float(parts["target_scale"]),
            np.asarray(parts["feature_scale"]),
        )

    def options(self, problems: Problems, loss: Loss) -> tuple[FloatArray, FloatArray]:
        """Models (m, A, L, D) and their log evidence (m, A, L): alone, around the mean."""
        if self.own_units:
            scaled, back = in_own_units(problems, loss)
            own = own_path(scaled, loss)
            coef, evidence = [own.coef * back[:, None]], [log_evidence(scaled, own, loss)]
        else:
            own = own_path(problems, loss)
            coef, evidence = [own.coef], [log_evidence(problems, own, loss)]
        if self.joined:
            around = solve_path(problems, PENALTIES, loss=loss, mean=self.mean)
            coef.append(around.coef)
            evidence.append(log_evidence(problems, around, loss))
        return np.stack(coef, axis=1), np.stack(evidence, axis=1)

    def log_prior(self) -> FloatArray:
        """(A, L), public: how far the mean is trusted, and which penalties are usual."""
        usual = usual_penalties(PENALTIES, len(self.mean))
        if not self.joined:
            return usual[None]
        around = math.log(max(self.trust, LEAST_TRUST)) if self.trust > 0 else -math.inf
        return np.stack([math.log(max(1 - self.trust, LEAST_TRUST)) + usual, around + usual])

    def mixture(self, home: Home) -> FloatArray:
        """Each task's model (m, D) in the units of home: the options weighed by their posterior;
        the best for its own rows where no scale is known, in which a vote could be cast."""
        if self.own_units:
            return best_alone(home.problems, home.loss)
        problems = in_shared_units(home, self.target_scale, self.feature_scale)
        coef, evidence = self.options(problems, home.loss)
        prior = self.log_prior() + self.vote[: evidence.shape[1]]
        units = units_of(home.loss, self.target_scale, self.feature_scale)
        return np.asarray(mixture(coef, evidence + prior) * units)


# --- what it says --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tasks:
    """All tasks of this process at once: private data in, contributions of norm one out."""

    home: Home
    clip_norm: float | None

    def select(self, units: Sequence[int]) -> Tasks:
        """These tasks only, in this order."""
        return replace(self, home=self.home.select(units))

    @isolated()
    def contribute(self, step: Step, shared: Message, state: Any) -> tuple[FloatArray, Any]:
        """One row per task; the mechanism clips it to norm one whatever it is."""
        speaks = self.home.problems.speak(self.home.loss)
        return or_zero(self._said(step, shared), speaks), None

    def _said(self, step: Step, shared: Message) -> FloatArray:
        if step.name == "scale":
            return scale_votes(self.home)
        prior = PriorMean.of(shared)
        problems = in_shared_units(self.home, prior.target_scale, prior.feature_scale)
        kind = step.name.split()[0]
        if kind == "direction":
            return directions(problems, self.home.loss, prior.mean, self.clip_norm)
        if kind == "step":
            along = np.asarray(shared["direction"].value)
            unit = float(shared["step_unit"].value)
            return step_votes(problems, self.home.loss, prior.mean, along, unit)
        return penalty_votes(prior, problems, self.home.loss)


def directions(
    problems: Problems, loss: Loss, mean: FloatArray, clip_norm: float | None
) -> FloatArray:
    """The pull of each task on the mean: w_k − w̄ at λ₀, at norm one, or shorter where it is next
    to nothing (``directed``); or divided by clip_norm."""
    penalty = np.array([default_penalty(problems.X.shape[1])])
    update = solve_path(problems, penalty, loss=loss, mean=mean).coef[:, 0] - mean
    return directed(update) if clip_norm is None else update / clip_norm


def step_votes(
    problems: Problems, loss: Loss, mean: FloatArray, along: FloatArray, unit: float
) -> FloatArray:
    """(−slope, unit · curvature) of the leave-one-out loss of w̄ + a·v at a = 0, at norm one.

    Held-out predictions at λ₀ are linear in the prior mean (squared loss), so the loss is a
    parabola in a, and the sum of these votes has its minimum at a = unit · first/second.
    """
    penalty = np.array([default_penalty(problems.X.shape[1])])
    here = solve_path(problems, penalty, loss=loss, mean=mean).held_out[:, 0]
    there = solve_path(problems, penalty, loss=loss, mean=mean + unit * along).held_out[:, 0]
    change = (there - here) / unit
    slope = problems.sum_rows(loss.slope(here, problems.y) * change)
    curvature = problems.sum_rows(loss.curvature(here, problems.y) * change**2)
    return directed(np.stack([-slope, unit * curvature], axis=1))


def penalty_votes(prior: PriorMean, problems: Problems, loss: Loss) -> FloatArray:
    """What each task says of the voted penalties (m, A·V), alone and around the mean."""
    _, evidence = prior.options(problems, loss)
    return ballots((evidence + prior.log_prior())[:, :, np.isin(PENALTIES, VOTED)])
