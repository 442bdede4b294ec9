"""The curator: steps planned from public facts, and what follows from their releases."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.arrays import BoolArray, FloatArray
from tacit.engine import Facts, Public, Step
from tacit.errors import InvalidInput
from tacit.estimator.open_scale import SHARE as SCALE_SHARE
from tacit.estimator.open_scale import unclear, voted_scales
from tacit.learners.mean_regularized.participant import VOTED
from tacit.linear.model_averaging import prior_of_votes
from tacit.linear.single_task_fits import PENALTIES
from tacit.privacy.mechanisms import GaussianSum, VoteSum
from tacit.privacy.release import Declared, Release

SHARES = {"direction": 0.65, "step": 0.2, "vote": 0.15}  # of μ², over all rounds
QUIETEST = 0.9  # no direction is released when its predicted noise-to-signal exceeds this
SECOND_ROUND = 0.1  # a further round must keep it below this
MOST_ROUNDS = 4
FIRST_STEP = 0.5  # the unit of length of the first step, in scaled units


@dataclass(frozen=True)
class Curator:
    """Post-processing of releases; every number here is public."""

    width: int  # D
    n_tasks: int
    steps: tuple[Step, ...]
    joined: bool  # whether a mean is released
    undeclared: BoolArray  # (d,), columns without a declared range
    declared_target: bool

    @classmethod
    def planned(cls, facts: Facts, rounds: int | None) -> Curator:
        """All steps, from (μ, m, D) and the declarations alone."""
        width, m, mu = facts.width, facts.n_tasks, facts.mu
        undeclared = ~facts.declared_features
        unscaled = bool(undeclared.any() or not facts.declared_target)
        left = mu * math.sqrt(1 - SCALE_SHARE) if unscaled else mu
        rounds = public_rounds(left, m, width) if rounds is None else rounds
        if rounds < 0:
            raise InvalidInput(f"rounds must be 'auto' or at least 0, got {rounds}")
        open_scale = unscaled and rounds > 0
        shares = [("scale", SCALE_SHARE)] if open_scale else []
        rest = 1 - SCALE_SHARE if open_scale else 1.0
        for t in range(rounds):
            shares += [
                (f"{kind} {t}", rest * SHARES[kind] / rounds) for kind in ("direction", "step")
            ]
        shares.append(("vote", rest * (SHARES["vote"] if rounds else 1.0)))
        steps = tuple(
            Step(name, _summed(name).for_mu(1.0, mu * math.sqrt(share), facts.neighbours))
            for name, share in shares
        )
        return cls(width, m, steps, rounds > 0, undeclared, facts.declared_target)

    def start(self) -> Public:
        """Declared constants: no mean, no vote, unit scales."""
        return {
            "mean": Declared(np.zeros(self.width)),
            "joined": Declared(self.joined),
            "trust": Declared(0.0),
            "own_units": Declared(bool(self.undeclared.any() or not self.declared_target)),
            "vote": Declared(np.zeros((2, len(PENALTIES)))),
            "target_scale": Declared(1.0),
            "feature_scale": Declared(np.ones(self.width - 1)),
            "step_unit": Declared(FIRST_STEP),
        }

    def absorb(self, step: Step, shared: Public, release: Release) -> Public:
        """The shared state after one more release."""
        assert isinstance(step.mechanism, GaussianSum)
        sigma = step.mechanism.sigma
        kind = step.name.split()[0]
        if kind == "scale":
            return {**shared, **self._scales(release, sigma)}
        if kind == "direction":
            return {**shared, **self._direction(shared, release, sigma)}
        if kind == "step":
            return {**shared, **self._step(shared, release, sigma)}
        return {**shared, "vote": release.map(lambda total: self._vote(total, sigma))}

    def _scales(self, release: Release, sigma: float) -> Public:
        """Twice the most voted size; own units if a winner does not stand out of the noise."""

        def found(total: FloatArray) -> dict[str, Any]:
            seen = total, sigma, self.undeclared, self.declared_target
            target, feature = voted_scales(*seen)
            return {"own_units": unclear(*seen), "target_scale": target, "feature_scale": feature}

        return Release.derive(found, release)

    def _direction(self, shared: Public, release: Release, sigma: float) -> Public:
        """v at norm one, and the share of its length that is not noise, 1 − Dσ²/‖Σ‖²."""

        def signal(total: FloatArray, trust: FloatArray, own_units: FloatArray) -> FloatArray:
            share = max(0.0, 1 - self.width * sigma**2 / max(float(total @ total), 1e-300))
            return np.asarray(0.0 if own_units else 1 - (1 - trust) * (1 - share))

        return {
            "direction": release.map(
                lambda total: total / max(float(np.linalg.norm(total)), 1e-300)
            ),
            "trust": Release.combine(signal, release, shared["trust"], shared["own_units"]),
        }

    def _step(self, shared: Public, release: Release, sigma: float) -> Public:
        """w̄ + a·v, a = unit · B·C/(C² + σ²) from the summed slopes B and curvatures C: the best
        step B/C, shortened as the noise on C demands."""

        def length(total: FloatArray, unit: FloatArray) -> FloatArray:
            slope, curvature = float(total[0]), float(total[1])
            ratio = slope * curvature / (curvature**2 + sigma**2)
            return np.asarray(unit * max(ratio, 0.0))

        step = Release.combine(length, release, shared["step_unit"])
        mean = Release.combine(
            lambda mean, along, a: mean + a * along, shared["mean"], shared["direction"], step
        )
        return {"mean": mean, "step_unit": step.map(lambda a: np.maximum(a, 1e-3))}

    def _vote(self, total: FloatArray, sigma: float) -> FloatArray:
        """The log prior (2, L) that the votes imply."""
        log_prior = prior_of_votes(total, sigma, self.n_tasks).reshape(-1, len(VOTED))
        fine = [np.interp(np.log10(PENALTIES), np.log10(VOTED), row) for row in log_prior]
        return np.stack(fine if self.joined else [*fine, np.zeros(len(PENALTIES))])


def _summed(step: str) -> type[GaussianSum]:
    """Votes, which have no negative entry, differ by √2 at most, other rows of norm one by 2."""
    return VoteSum if step in ("scale", "vote") else GaussianSum


def public_rounds(mu: float, n_tasks: int, width: int) -> int:
    """How many rounds keep the predicted noise below the signal.

    The noise on the mean direction has norm 2√D/(μ_t m) (replace) against a signal of at most 1.
    """
    noise = 2 * math.sqrt(width) / (mu * math.sqrt(SHARES["direction"]) * n_tasks)
    if noise > QUIETEST:
        return 0
    return max(1, min(MOST_ROUNDS, int((SECOND_ROUND / noise) ** 2)))
