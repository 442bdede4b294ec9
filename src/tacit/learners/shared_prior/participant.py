"""The half that is at home with the tasks: what each says in each step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tacit.arrays import BoolArray, FloatArray, IntArray
from tacit.engine import Message, Step
from tacit.estimator import Home
from tacit.estimator.open_scale import in_shared_units, scale_votes
from tacit.learners.shared_prior.gaussian_tasks import View, likelihoods
from tacit.learners.shared_prior.lessons import (
    LEVEL_WIDTH,
    SIZE_WIDTH,
    TRUSTED,
    USUAL_SIZE,
    WINDOW,
    Lessons,
    Values,
    values_of,
)
from tacit.learners.shared_prior.posterior_mixture import VOTED, Priors
from tacit.learners.shared_prior.release_schedule import variance_grid, voting_share
from tacit.learners.shared_prior.shrinkage import bell
from tacit.linear.losses import Loss
from tacit.linear.model_averaging import ballots
from tacit.linear.problems import Problems, of_each_chunk
from tacit.linear.row_algebra import directed, or_zero, row_norms
from tacit.linear.threads import isolated
from tacit.privacy.mechanisms.grid import svec, triangle_side

VOTES = ("coordinates", "variances", "adjustment", "priors")
FOLLOWED_BY = {"directions": "length", "information": "scores"}
Kept = tuple[str, FloatArray]
"""A step, and what the one before it found for it on its way: a row a task."""


@dataclass(frozen=True)
class Tasks:
    """All tasks of this process at once: private data in, contributions out."""

    home: Home
    n_tasks: int  # m of the run, wherever the others are

    def select(self, units: Sequence[int]) -> Tasks:
        """These tasks only, in this order."""
        return replace(self, home=self.home.weighed.select(units))

    @property
    def speaks(self) -> BoolArray:
        """(m,): has the task anything to say?"""
        return self.home.speaks

    def scaled(self, target: float, features: FloatArray) -> Problems:
        """All tasks in the units that are shared."""
        return in_shared_units(self.home.weighed, target, features)

    def voters(self, problems: Problems, chosen: IntArray) -> Problems:
        """Those among the tasks whose ballots are asked for."""
        return problems.select(chosen)

    @isolated()
    def contribute(
        self, step: Step, shared: Message, state: Kept | None
    ) -> tuple[FloatArray, Kept | None]:
        """One row per task; the mechanism clips it whatever it is."""
        if step.name == "scale":
            return or_zero(scale_votes(self.home), self.speaks), None
        values = values_of(shared)
        scaled = self.scaled(float(values["target_scale"]), values["feature_scale"])
        kind, _, number = step.name.partition(" ")
        if kind in VOTES:
            return self._voted(step, values, scaled), None
        known = () if state is None or state[0] != step.name else (state[1],)
        found = of_each_chunk(scaled, partial(self._said, kind, values), *known)
        if kind not in FOLLOWED_BY:
            return or_zero(found, self.speaks), None
        width = len(values["feature_scale"]) + 1
        sent = width + 1 if kind == "directions" else width * (width + 1) // 2
        rows, more = found[:, :sent], found[:, sent:].copy()
        return or_zero(rows, self.speaks), (f"{FOLLOWED_BY[kind]} {number}", more)

    def _voted(self, step: Step, values: Values, problems: Problems) -> FloatArray:
        """The ballots of those whom a public sample asks; the others' are empty."""
        asked = self.home.sampled(voting_share(self.n_tasks))
        chosen = np.flatnonzero(asked) if asked.any() else np.zeros(1, dtype=np.int64)
        some = problems if asked.all() else self.voters(problems, chosen)
        found = of_each_chunk(some, partial(ballots_on, step, values, self.home.loss))
        rows = np.zeros_like(found, shape=(problems.n_tasks, found.shape[1]))
        rows[chosen] = found
        return or_zero(rows, self.speaks & asked)

    def _said(
        self, kind: str, values: Values, problems: Problems, known: FloatArray | None = None
    ) -> FloatArray:
        """What is sent, and beside it what the following step needs to know."""
        told = Lessons.of(values)
        match kind:
            case "level":
                return levels(problems)
            case "size":
                return sizes(problems, told)
            case "scores" if known is not None:
                return joined(known / told.score_clip(float(values["score_width"])), told.tilt)
        view = view_of(problems, self.home.loss, told)
        match kind:
            case "directions":
                return directions(view, told)
            case "length":
                return lengths(view, told, known)
        information, scores = view.scores(told.noise)
        if kind == "information":
            return np.column_stack([centred_triangles(information), scores])
        return joined(scores / told.score_clip(float(values["score_width"])), told.tilt)


def view_of(problems: Problems, loss: Loss, told: Lessons) -> View:
    """The tasks in the coordinates of a step."""
    covariance = told.noise**2 * told.frame @ told.frame.T
    return View.of(likelihoods(problems, loss, told.mean, covariance), told.mean, told.frame)


def ballots_on(step: Step, values: Values, loss: Loss, problems: Problems) -> FloatArray:
    """(m, K): on every prior at every scale, or on (c, s)."""
    if step.name == "priors":
        priors = Priors.of(values)
        views = priors.views(priors.likelihoods(problems, loss))
        return ballots(priors.evidence(views, VOTED))
    told = Lessons.of(values)
    if step.name.startswith("coordinates"):
        tried = [view_of(problems, loss, told.whitened(float(trust))) for trust in TRUSTED]
        return ballots(np.stack([view.own_evidence(told.noise) for view in tried], axis=1))
    scales, noises = variance_grid(step.name, loss)
    view = view_of(problems, loss, told)
    return ballots(view.log_likelihood(scales, told.noise * noises))


def levels(problems: Problems) -> FloatArray:
    """(m, K): a vote on the average target, in [−1, 1]; on zero without an intercept."""
    return bell(np.clip(problems.levels(), -1, 1), LEVEL_WIDTH)


def sizes(problems: Problems, told: Lessons) -> FloatArray:
    """(m, K): a vote on the log of the root mean square that the level leaves, over WINDOW."""
    square = problems.mean_squares(told.mean) / USUAL_SIZE**2
    return bell(np.clip(0.5 * np.log(square + 1e-12) / WINDOW, -1, 1), SIZE_WIDTH)


def joined(rows: FloatArray, tilt: float) -> FloatArray:
    """(m, 1 + D): (t, v)/√(1 + t²) of norm one at most, v clipped to norm one by shortening."""
    length = np.maximum(row_norms(rows), 1.0)[:, None]
    whole = np.concatenate([np.full_like(rows[:, :1], tilt), rows / length], axis=1)
    found: FloatArray = whole / math.sqrt(1 + tilt**2)
    return found


def centred_triangles(triangles: FloatArray) -> FloatArray:
    """svec(Ã − I/2) of svec(Ã), (m, D(D+1)/2): of norm √D/2 at most, as 0 ⪯ Ã ⪯ I."""
    return triangles - svec(np.eye(triangle_side(triangles.shape[1]))) / 2


def directions(view: View, told: Lessons) -> FloatArray:
    """Each task's own deviation from the shared mean, at norm one, in the round's coordinates; and
    its own scale."""
    u, scales = view.own(told.noise)
    return np.column_stack([joined(directed(u), told.tilt), scales])


def lengths(view: View, told: Lessons, known: FloatArray | None) -> FloatArray:
    """(m, 5): slopes and stride · curvature of each log likelihood in the plane of both directions,
    norm one; of tasks whose own scales (m, 1) may be known."""
    scales = view.own(told.noise)[1] if known is None else known[:, 0]
    slopes, curvature = view.along(told.direction, told.beside, scales)
    return directed(np.concatenate([slopes, told.stride * curvature], axis=1))
