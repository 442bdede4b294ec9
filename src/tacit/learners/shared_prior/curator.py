"""The half that is given no data: steps planned from public facts, and what releases teach."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import softmax

from tacit.arrays import FloatArray
from tacit.engine import Facts, Public, Step
from tacit.estimator.open_scale import unclear, voted_scales
from tacit.learners.shared_prior.candidates import Candidate, candidates, only_plain, rough
from tacit.learners.shared_prior.lessons import TRUSTED, Lessons, Values
from tacit.learners.shared_prior.posterior_mixture import SCALES, VOTED, Priors
from tacit.learners.shared_prior.release_schedule import (
    ReleaseSchedule,
    is_wide,
    later_tilt,
    score_width,
    variance_grid,
    voting_share,
)
from tacit.learners.shared_prior.shrinkage import nearness, smooth_vote, square_root
from tacit.privacy.mechanisms.grid import smat
from tacit.privacy.mechanisms.products import WithGaussianNoise
from tacit.privacy.release import Declared, Release

LIKE = {"scale": 2.5, "noise": 1.2, "home": 1.0, "trust": 0.5}
"""How far totals are alike: nats, nats, decades, shares."""

INDIFFERENCE = {"variances": 0.005, "priors": 0.01}
BALLOT_SPREAD = 0.25  # of what tasks say on a prior: their total is a sample's, noise or none
NOISE_SPREADS = (0.4, 1.3, 2.5)  # nats
HETEROGENEOUS = 0.3  # below this noise all spreads of the tasks' noises are voted on
LEAST_SCALE_SPREAD = 1.5  # nats
MOST_FLATTERED = 3.0  # nats
UNITS = ("target_scale", "feature_scale", "own_units")


@dataclass(frozen=True)
class Curator:
    """Post-processing of releases; every number here is public."""

    facts: Facts
    schedule: ReleaseSchedule

    @classmethod
    def planned(cls, facts: Facts) -> Curator:
        """All steps, from public facts."""
        return cls(facts, ReleaseSchedule.of(facts))

    @property
    def steps(self) -> tuple[Step, ...]:
        """All releases of the run, in order."""
        return self.schedule.steps

    @property
    def _last_vote(self) -> str:
        """The vote on (c, s) after which priors are made."""
        return self.steps[-2].name

    def start(self) -> Public:
        """Declared constants: nothing was learned."""
        told = Lessons.none(self.facts.width, self.facts.n_tasks, self.schedule.tilt)
        if self.facts.loss.targets_are_classes:
            told = replace(told, noise=1.0, size=1.0)
        if self.schedule.drowned:
            told = replace(told, frame=self._rough(told))
        start = vars(told) | {
            "score_width": score_width(self.schedule.noise),
            "target_scale": 1.0,
            "feature_scale": np.ones(self.facts.width - 1),
            "own_units": False,
        }
        return {name: Declared(value) for name, value in start.items()}

    def absorb(self, step: Step, shared: Public, release: Release) -> Public:
        """Everything that is shared is public, so what follows from it and a release is one."""
        assert isinstance(step.mechanism, WithGaussianNoise)
        sigma = step.mechanism.sigma

        def after(total: FloatArray, *parts: Any) -> Values:
            values = {name: np.asarray(part) for name, part in zip(shared, parts, strict=True)}
            return self.after(step, values, total, sigma)

        return {**self.needed(step, shared), **Release.derive(after, release, *shared.values())}

    def needed(self, step: Step, shared: Mapping[str, Any]) -> Mapping[str, Any]:
        """What is shared further: the lessons only until priors were made of them."""
        if step.name != self._last_vote:
            return shared
        return {name: shared[name] for name in UNITS}

    def after(self, step: Step, values: Values, total: FloatArray, sigma: float) -> Values:
        """What a release with noise σ changes."""
        if step.name == "scale":
            return self._scales(total, sigma)
        if step.name == "priors":
            return {"vote": self._vote(Priors.of(values), total, sigma)}
        told = Lessons.of(values)
        if step.name == self._last_vote:
            return vars(self._priors(told, *self._voted(step, total, sigma)))
        more = self._lesson(step, told, values, total, sigma)
        following = self.steps[self.steps.index(step) + 1].name
        if following == self._last_vote:
            more = replace(more, frame=self._rough(more))
        elif following == "variances 0":
            more = more.ready_to_refine()
        return {k: np.asarray(v) for k, v in vars(more).items() if v is not getattr(told, k)}

    def _scales(self, total: FloatArray, sigma: float) -> Values:
        declared = ~self.facts.declared_features, self.facts.declared_target
        target, features = voted_scales(total, sigma, *declared)
        return {
            "target_scale": np.asarray(target),
            "feature_scale": features,
            "own_units": np.asarray(unclear(total, sigma, *declared)),
        }

    def _lesson(
        self, step: Step, told: Lessons, values: Values, total: FloatArray, sigma: float
    ) -> Lessons:
        kind, _, number = step.name.partition(" ")
        match kind:
            case "level":
                return told.with_level(total, sigma)
            case "size":
                return told.with_size(total, sigma)
            case "directions":
                return told.with_directions(total, sigma, later=number != "0")
            case "length":
                return told.with_length(total, sigma)
            case "coordinates":
                return self._whitened(told, total, sigma)
            case "information":
                return told.with_information(smat(total), sigma)
            case "scores":
                clip = told.score_clip(float(values["score_width"]))
                return told.with_scores(total, sigma, clip)
        scale, noise, _, _ = self._voted(step, total, sigma)
        return told.with_variances(scale, noise)

    # --- votes ---------------------------------------------------------------------------------

    @property
    def _n_voters(self) -> float:
        return voting_share(self.facts.n_tasks) * self.facts.n_tasks

    def _whitened(self, told: Lessons, total: FloatArray, sigma: float) -> Lessons:
        """What the next round sends, by how far T serves the tasks, as they voted."""
        alike = nearness(TRUSTED, LIKE["trust"])
        log_prior = smooth_vote(total, sigma, alike, self._n_voters, INDIFFERENCE["variances"])
        trust = float(softmax(log_prior) @ TRUSTED)
        tilt = later_tilt(self.facts.width, self.schedule.noise, trust / float(TRUSTED.max()))
        return replace(told.whitened(trust), tilt=tilt)

    def _voted(
        self, step: Step, total: FloatArray, sigma: float
    ) -> tuple[float, float, float, float]:
        """Posterior means of log c and log s, relative to what they were, and their spreads."""
        wide = is_wide(step.name)
        scales, noises = (np.log(x) for x in variance_grid(step.name, self.facts.loss))
        near = nearness(scales, LIKE["scale"]), nearness(noises, LIKE["noise"])
        alike = np.asarray(np.kron(*near), dtype=np.float64)
        log_prior = smooth_vote(total, sigma, alike, self._n_voters, INDIFFERENCE["variances"])
        posterior = log_prior.reshape(len(scales), len(noises))
        if wide:
            usual = (scales[:, None] / 4) ** 2 + ((noises + 0.4) / 2.5) ** 2
            posterior = posterior - 0.5 * usual
        weight = softmax(posterior)
        found = [_moments(weight.sum(1), scales), _moments(weight.sum(0), noises)]
        return found[0][0], found[1][0], found[0][1], found[1][1]

    def _vote(self, priors: Priors, total: FloatArray, sigma: float) -> FloatArray:
        """(S, 1 + A, L): what all tasks together find usual."""
        spreads, options = len(priors.noise_spreads), len(priors.handicap)
        one = np.ones((options, options))
        same = (1 + np.kron(np.eye(spreads), one) + np.eye(spreads * options)) / 3
        alike = np.asarray(np.kron(same, nearness(np.log10(VOTED), LIKE["home"])))
        indifference = math.hypot(INDIFFERENCE["priors"], BALLOT_SPREAD / math.sqrt(self._n_voters))
        log_prior = smooth_vote(total, sigma, alike, self._n_voters, indifference)
        rows = log_prior.reshape(spreads * options, -1)
        fine = [np.interp(np.log10(SCALES), np.log10(VOTED), row) for row in rows]
        return np.stack(fine).reshape(spreads, options, -1)

    # --- priors --------------------------------------------------------------------------------

    def _rough(self, told: Lessons) -> FloatArray:
        return rough(told, bool(self.schedule.refinements))

    def _priors(
        self, told: Lessons, log_scale: float, log_noise: float, of_scale: float, of_noise: float
    ) -> Priors:
        """Every prior that a task may use at home, at the voted scale."""
        scale, refined = math.exp(log_scale), bool(self.schedule.refinements)
        drowned = self.schedule.drowned
        found = only_plain(told) if drowned else candidates(told, scale, refined)
        spreads = NOISE_SPREADS if self.schedule.noise < HETEROGENEOUS else NOISE_SPREADS[:1]
        widened = [max(spread, of_noise) * (1 + min(1.0, of_noise)) for spread in spreads]
        handicap = self._handicap(found)
        return Priors(
            np.stack([each.mean for each in found]),
            np.stack([square_root(scale * each.covariance) for each in found]),
            told.noise * math.exp(log_noise),
            np.asarray(widened),
            max(LEAST_SCALE_SPREAD, of_scale),
            handicap,
            np.zeros((len(widened), len(handicap), len(SCALES))),
        )

    def _handicap(self, found: list[Candidate]) -> FloatArray:
        """(1 + A,): noise speaks for a task by itself; and where there is hardly any, p numbers
        fitted to m tasks flatter them by p/m nats each (Akaike)."""
        handicap = np.zeros(1 + len(found))
        handicap[0] = 1.0 if self.schedule.drowned else min(2.0, self.schedule.noise)
        handicap[1] = min(1.0, self.schedule.noise)
        if self.schedule.refinements:
            flattered = np.array([each.fitted for each in found]) / self.facts.n_tasks
            handicap[1:] -= np.minimum(flattered, MOST_FLATTERED)
        return handicap


def _moments(weight: FloatArray, places: FloatArray) -> tuple[float, float]:
    """Mean and spread of a law on a grid, the width of a cell included."""
    mean = float(weight @ places)
    cell = (places[-1] - places[-2]) ** 2 / 12 if len(places) > 1 else 0.0
    return mean, math.sqrt(max(float(weight @ places**2) - mean**2, 0.0) + cell)
