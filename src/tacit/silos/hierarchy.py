r"""Empirical Bayes over what silos released, aware of its noise: one prior for all of them.

Silo j has a model β_j = μ + δ_j, δ_j ~ N(0, Γ), Γ diagonal, its variances tied: one a column, or
one γ for all, which is mean regularisation (S2, objective (2)) at λ = σ²/γ. It released second
moments M_j = Σ ffᵀ and scores b_j = Σ f(y − fᵀβ°) at a public β°, both with noise of known
deviations. So for any μ, with M̄_j the moments shrunk to what is usual (moments.py),

.. math:: b̂_j − M̄_j(μ − β°) ∼ N\big(0,\; M̄_j Γ M̄_j + σ² M̄_j + \mathrm{Var}\, e_j
    + \mathrm{Var}\big((M_j − M̄_j)(μ − β°)\big)\big).

``from_moments``: β° = 0, as the first release has it. μ is solved from pooled sums, then by
generalised least squares over silos, Γ by EM; the mean of both is kept. ``from_scores``: the second
release is at β° = μ, where the noise of M_j multiplies next to nothing, and whose clipped residuals
are smaller than y: at the same budget it says several times as much about μ and δ_j.

A silo's public model is the posterior mean under N(μ, Γ + Cov μ̂): without the second term a few
silos with much noise would be believed to agree. Everything here is post-processing of releases.

The constants were set on generated tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tacit.arrays import FloatArray, IntArray
from tacit.linear.threads import isolated
from tacit.silos.moments import Moments, Sums, pooled, shrunk

POOLED_STEPS, SILO_STEPS = 20, 40  # of EM
LEAST_VARIANCE = 0.02  # of y
NOISE_SHARE = (0.4, 1.0)  # σ² as a share of the variance of y
FIRST_SPREAD = (0.05, 0.005)  # Γ of the constant and of others, in units of that variance
REACH = (1 / 3, 0.02)  # variance of μ: of the constant, and what others are held to by one more


@dataclass(frozen=True)
class Prior:
    """What a silo may believe of its model β before it looks at its rows."""

    mean: FloatArray  # (d,), μ
    covariance: FloatArray  # (d, d), Γ + Cov μ̂
    noise: float  # σ²


@dataclass(frozen=True)
class Hierarchy:
    """One state of the EM."""

    silos: Sums  # (J, ...)
    owner: IntArray  # (d,), the column of each coefficient; −1 of the constant
    noise: float  # σ²
    mu: FloatArray  # (d,)
    doubt: FloatArray  # (d, d), Cov μ̂
    spread: FloatArray  # (d,), the diagonal of Γ
    reach: FloatArray  # (d,), the variance that μ is given beforehand
    tie: Tie
    curvature: float  # of the loss, where models are: 1, or p(1 − p)

    def prior(self) -> Prior:
        """Γ, and what is not known of μ."""
        return Prior(self.mu, np.diag(self.spread) + self.doubt, self.noise)

    def models(self) -> FloatArray:
        """(J, d): the posterior means of all silos."""
        gain = self._gain(self.prior().covariance)
        return np.asarray(self.mu + (gain @ self.silos.apart(self.mu)[:, :, None])[:, :, 0])

    def moved(self, mu: FloatArray, doubt: FloatArray) -> Hierarchy:
        """At another μ; EM takes Γ along."""
        at = replace(self, mu=mu, doubt=doubt)
        gain = at._gain(np.diag(at.spread))
        delta = (gain @ at.silos.apart(mu)[:, :, None])[:, :, 0]
        left = at.spread - np.einsum("jpq,jqp,p->jp", gain, at.silos.M, at.spread)
        spread = at.tie(at, (delta**2 + left).mean(axis=0))
        return replace(at, spread=spread, reach=at._reach())

    def by_silos(self) -> tuple[FloatArray, FloatArray]:
        """μ and its covariance by generalised least squares over all silos."""
        s = self.silos
        Q = np.linalg.solve(self._covariances(np.diag(self.spread)), s.M)
        doubt = np.asarray(np.linalg.inv((s.M @ Q).sum(axis=0) + np.diag(1 / self.reach)))
        target = np.einsum("jpq,jp->q", Q, s.b + s.M @ s.base)
        return doubt @ target, doubt

    def by_sums(self, of: Sums, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The same from the sums over silos with these weights."""
        M = self.silos.M
        between = np.einsum("j,jpq,q,jqr->pr", weights**2, M, self.spread, M)
        C = of.noise(self.mu) + self.noise * of.M + between
        Q = np.linalg.solve(C + 1e-7 * np.trace(of.M) * np.eye(len(C)), of.M)
        doubt = np.asarray(np.linalg.inv(of.M @ Q + np.diag(1 / self.reach)))
        return doubt @ (Q.T @ of.b), doubt

    def _covariances(self, spread: FloatArray) -> FloatArray:
        """(J, d, d), of ``apart``, for δ of covariance ``spread``."""
        M = self.silos.M
        C = M @ spread @ M + self.noise * M + self.silos.noise(self.mu)
        ridge = 1e-9 * np.trace(C, axis1=1, axis2=2) + 1e-7
        return np.asarray(C + ridge[:, None, None] * np.eye(len(self.mu)))

    def _gain(self, spread: FloatArray) -> FloatArray:
        """(J, d, d): from ``apart`` to δ."""
        solved = np.linalg.solve(self._covariances(spread), self.silos.M @ spread)
        return np.swapaxes(solved, 1, 2)

    def _reach(self) -> FloatArray:
        """The size of μ in each column, as if one coefficient more had REACH."""
        found, size = (
            np.bincount(self.owner + 1, each)
            for each in (self.mu**2 + np.diagonal(self.doubt), np.ones(len(self.mu)))
        )
        held = ((found + REACH[1]) / (size + 1))[self.owner + 1]
        return np.where(self.owner < 0, REACH[0], held)


# --- how variances are tied ----------------------------------------------------------------------

Tie = Callable[[Hierarchy, FloatArray], FloatArray]
"""The diagonal of Γ (d,), given what EM expects of δ² (d,), a mean over silos."""


def by_column(of: Hierarchy, squares: FloatArray) -> FloatArray:
    """One variance for the coefficients of each column."""
    place = of.owner + 1
    return np.asarray((np.bincount(place, squares) / np.maximum(np.bincount(place), 1))[place])


def all_alike(of: Hierarchy, squares: FloatArray) -> FloatArray:
    """One variance γ for all: λ = σ²/γ is what the releases say."""
    return np.full_like(of.mu, squares.mean())


@dataclass(frozen=True)
class AtPenalty:
    """One variance γ for all, at a given λ: γ = cσ²/λ, c the curvature of the loss.

    Squared, c = 1: σ² times the log posterior is −½ Σ(y − fᵀβ)² − σ²/(2γ) ‖δ‖². Classes: over log
    odds σ² = 1/c (as_logistic), and the loss is a log likelihood itself, γ = 1/λ; before that, over
    y = ±1, σ² = 4c and models are 2c times as long, γ = 4c²/λ.
    """

    penalty: float

    def __call__(self, of: Hierarchy, squares: FloatArray) -> FloatArray:
        """γ, whatever was seen."""
        return np.full_like(squares, of.curvature * of.noise / self.penalty)


# --- from releases -------------------------------------------------------------------------------


@isolated()
def from_moments(
    of: Moments, weights: FloatArray, tie: Tie = by_column, curvature: float = 1.0
) -> Hierarchy:
    """From the first release; ``weights`` (J,), public, are those of silos in pooled sums."""
    sums = pooled(of, weights)
    total = max(float(sums.M[0, 0]), 1.0)
    level, squares = float(np.clip(sums.b[0] / total, -1, 1)), float(weights @ of.S[:, -1, -1])
    variance = float(np.clip(squares / total - level**2, LEAST_VARIANCE, 1.0))  # y in [−1, 1]
    constant = of.owner < 0
    reach = np.where(constant, *REACH)
    now = Hierarchy(
        shrunk(of, sums.M / total),
        of.owner,
        noise=0.7 * variance,
        mu=np.where(constant, level, 0.0),
        doubt=np.diag(reach),
        spread=np.where(constant, *FIRST_SPREAD) * variance,
        reach=reach,
        tie=tie,
        curvature=curvature,
    )
    for _ in range(POOLED_STEPS):
        first = now.by_sums(sums, weights)
        now = _with_noise(now.moved(*first), sums, squares, variance)
    for _ in range(SILO_STEPS):
        now = _with_noise(now.moved(*now.by_silos()), sums, squares, variance)
    return replace(now, mu=(now.mu + first[0]) / 2, doubt=(now.doubt + first[1]) / 2)


def _with_noise(of: Hierarchy, sums: Sums, squares: float, variance: float) -> Hierarchy:
    """σ² = what μ and Γ leave of Σy², within NOISE_SHARE."""
    mu, M = of.mu, sums.M
    left = squares - 2 * mu @ sums.b + mu @ M @ mu - float(of.spread @ np.diagonal(M))
    low, high = NOISE_SHARE
    found = float(np.clip(left / max(float(M[0, 0]), 1.0), low * variance, high * variance))
    return replace(of, noise=found)


@isolated()
def from_scores(
    before: Hierarchy, base: FloatArray, scores: FloatArray, variance: FloatArray, noise: float
) -> Hierarchy:
    """From scores (J, d) at ``base`` with noise of these variances (J, d), and σ² = ``noise``."""
    silos = replace(before.silos, b=scores, b_variance=variance, base=base)
    now = replace(before, silos=silos, noise=noise)
    for _ in range(SILO_STEPS):
        now = now.moved(*now.by_silos())
    return now
