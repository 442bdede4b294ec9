"""The half that is at home with the tasks: what each says in each step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from tacit.arrays import BoolArray, FloatArray
from tacit.engine import Message, Step
from tacit.estimator import Home
from tacit.estimator.open_scale import in_shared_units, scale_votes
from tacit.learners.shared_prior.gaussian_tasks import Likelihoods, View, likelihoods
from tacit.learners.shared_prior.lessons import USUAL_SIZE, WINDOW, Lessons, Values, values_of
from tacit.learners.shared_prior.posterior_mixture import VOTED, Priors
from tacit.learners.shared_prior.release_schedule import variance_grid
from tacit.linear.model_averaging import ballots
from tacit.linear.problems import Problems, of_each_chunk
from tacit.linear.row_algebra import directed, or_zero
from tacit.linear.threads import isolated


@dataclass(frozen=True)
class Tasks:
    """All tasks of this process at once: private data in, contributions out."""

    home: Home

    def select(self, units: Sequence[int]) -> Tasks:
        """These tasks only, in this order."""
        return replace(self, home=self.home.select(units))

    @cached_property
    def _speaks(self) -> BoolArray:
        """(m,): has the task anything to say?"""
        return self.home.problems.speak(self.home.loss)

    @isolated()
    def contribute(self, step: Step, shared: Message, state: Any) -> tuple[FloatArray, Any]:
        """One row per task; the mechanism clips it whatever it is."""
        if step.name == "scale":
            return or_zero(scale_votes(self.home), self._speaks), None
        values = values_of(shared)
        scaled = in_shared_units(self.home, float(values["target_scale"]), values["feature_scale"])
        rows = of_each_chunk(scaled, partial(self._said, step, values))
        return or_zero(rows, self._speaks), None

    def _said(self, step: Step, values: Values, problems: Problems) -> FloatArray:
        loss = self.home.loss
        if step.name == "priors":
            priors = Priors.of(values)
            return ballots(priors.evidence(priors.likelihoods(problems, loss), VOTED)[0])
        told = Lessons.of(values)
        covariance = told.noise**2 * told.frame @ told.frame.T
        tasks = likelihoods(problems, loss, told.mean, covariance)
        match step.name.split()[0]:
            case "level":
                return levels(tasks)
            case "size":
                return sizes(tasks, told)
        view = View.of(tasks, told.mean, told.frame)
        tilt = float(values["tilt"])
        match step.name.split()[0]:
            case "directions":
                return directions(view, told, tilt)
            case "length":
                return lengths(view, told)
            case "information":
                return centred_triangles(view.scores(told.noise)[0])
            case "scores":
                clip = told.score_clip(float(values["score_width"]))
                return joined(view.scores(told.noise)[1] / clip, tilt)
        scales, noises = variance_grid(step.name, loss)
        return ballots(view.log_likelihood(scales, told.noise * noises))


def levels(tasks: Likelihoods) -> FloatArray:
    """(m, 1): the average target, in [−1, 1]."""
    return np.asarray(np.clip(tasks.g[:, -1:] / np.maximum(tasks.rows, 1)[:, None], -1, 1))


def sizes(tasks: Likelihoods, told: Lessons) -> FloatArray:
    """(m, 1): the log of the root mean square left by the level, over WINDOW, in [−1, 1]."""
    square = tasks.residual(told.mean) / np.maximum(tasks.rows, 1) / USUAL_SIZE**2
    return np.clip(0.5 * np.log(square + 1e-12)[:, None] / WINDOW, -1, 1)


def joined(rows: FloatArray, tilt: float) -> FloatArray:
    """(m, 1 + D): (t, v)/√(1 + t²) of norm one at most, v clipped to norm one by shortening."""
    length = np.maximum(np.sqrt((np.ascontiguousarray(rows) ** 2).sum(axis=1)), 1.0)[:, None]
    whole = np.column_stack([np.full(len(rows), tilt), rows / length])
    return np.asarray(whole / math.sqrt(1 + tilt**2))


def directions(view: View, told: Lessons, tilt: float) -> FloatArray:
    """Each task's own deviation from the shared mean, at norm one, in the outer coordinates."""
    inner = np.linalg.solve(told.base, told.frame)
    u, _ = view.own(told.noise)
    return joined(directed(np.matmul(u[:, None, :], inner.T)[:, 0]), tilt)


def lengths(view: View, told: Lessons) -> FloatArray:
    """(m, 2): slope and stride · curvature of each log likelihood along the direction, norm one."""
    _, scales = view.own(told.noise)
    slope, curvature = view.along(told.direction, scales)
    return directed(np.stack([slope, told.stride * curvature], axis=1))


def centred_triangles(matrices: FloatArray) -> FloatArray:
    """(m, D(D+1)/2): svec(Ã − I/2), of norm √D/2 at most, as 0 ⪯ Ã ⪯ I."""
    d = matrices.shape[1]
    i, j = np.triu_indices(d)
    return np.asarray((matrices - np.eye(d) / 2)[:, i, j] * np.where(i == j, 1.0, math.sqrt(2)))
