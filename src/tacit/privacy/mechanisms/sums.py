"""Noisy sums of clipped rows: Gaussian, Laplace, K-norm.

Let x → x' be one unit's row before and after, both clipped to norm C. The sum changes by x' − x, so
by the triangle inequality its sensitivity in the norm of the clip is 2C under replace (reached at
x' = −x), and C under zero-out (x' = 0). Cutting rows onto the grid keeps ‖x‖ ≤ C, so it also
holds of secure sums, exactly. Rows without negative entries, such as votes, are nearer to each
other: ‖x' − x‖₂² = ‖x'‖² + ‖x‖² − 2⟨x', x⟩ ≤ 2C², on the grid too, as no entry changes its sign.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import prod, sqrt
from typing import ClassVar, Self

import numpy as np

from tacit.privacy.accounting import Gaussian, Pure
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms.rows import (
    as_rows,
    by_neighbours,
    check_positive,
    clip_rows,
    grid,
    grid_sum,
    shared_clips,
    snapped,
)
from tacit.privacy.noise import (
    FloatArray,
    IntArray,
    SecureSource,
    knorm,
    rounded_gaussian,
    rounded_laplace,
    system_generator,
)

FLOAT_NOISE = (
    "the noise has no exact sampler: it is drawn in floating point and the release snapped to a "
    "public grid; how far that is from its law is not derived, so that δ = 0 holds of the ideal "
    "mechanism only"
)


def sum_sensitivity(clip_norm: float, neighbours: Neighbours) -> float:
    """Of a sum of rows of norm ≤ C, in that norm: 2C (replace), C (zero-out).

    >>> sum_sensitivity(1.5, "replace"), sum_sensitivity(1.5, "zero-out")
    (3.0, 1.5)
    """
    return by_neighbours(neighbours, replace=2 * clip_norm, zero_out=clip_norm)


def vote_sensitivity(clip_norm: float, neighbours: Neighbours) -> float:
    """Of a sum of rows of ℓ2 norm ≤ C without negative entries: √2 C (replace), C (zero-out).

    √2 C is reached by two votes that have nothing in common, C e₁ and C e₂.

    >>> round(vote_sensitivity(1.0, "replace"), 6), vote_sensitivity(1.0, "zero-out")
    (1.414214, 1.0)
    """
    return by_neighbours(neighbours, replace=sqrt(2) * clip_norm, zero_out=clip_norm)


@dataclass(frozen=True)
class GaussianSum:
    """Σ of rows clipped to ℓ2 norm C, plus N(0, σ² I): μ-GDP with μ = Δ₂/σ.

    Secure: rows are integers on the grid σ/R, so adding a rounded Gaussian is the same as
    rounding the continuous release. That is post-processing; μ is exact.

    >>> GaussianSum(clip_norm=1.0, sigma=4.0).event("replace")
    Gaussian(mu=0.5)
    >>> GaussianSum(1.0, 4.0).release(np.zeros((0, 3)), np.random.default_rng(0)).shape
    (3,)
    """

    clip_norm: float
    sigma: float
    pure: ClassVar[bool] = False
    proven: ClassVar[bool] = True
    reason: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_positive("clip_norm", self.clip_norm)
        check_positive("sigma", self.sigma)

    @staticmethod
    def sensitivity(clip_norm: float, neighbours: Neighbours) -> float:
        """Δ₂: 2C (replace), C (zero-out)."""
        return sum_sensitivity(clip_norm, neighbours)

    @classmethod
    def for_mu(cls, clip_norm: float, mu: float, neighbours: Neighbours) -> Self:
        """The noise that makes the release μ-GDP."""
        check_positive("mu", mu)
        return cls(clip_norm, cls.sensitivity(clip_norm, neighbours) / mu)

    def event(self, neighbours: Neighbours) -> Gaussian:
        """μ = Δ₂/σ."""
        return Gaussian(self.sensitivity(self.clip_norm, neighbours) / self.sigma)

    def release(
        self,
        contributions: FloatArray,
        rng: np.random.Generator | None,
        shares: FloatArray | None = None,
    ) -> FloatArray:
        """The noisy sum over units; unit i is clipped to C·shares[i]."""
        if rng is not None:
            total = self.clipped(contributions, shares).sum(axis=0)
            noisy = total + self.sigma * rng.standard_normal(len(total))
        else:
            counts = self.counts(contributions, shares)
            noisy = (counts + rounded_gaussian(counts.shape, SecureSource())) * grid(self.sigma)
        return np.asarray(noisy.reshape(np.shape(contributions)[1:]))

    def clipped(self, contributions: FloatArray, shares: FloatArray | None = None) -> FloatArray:
        """(units, dim): what each unit adds."""
        rows = as_rows(contributions)
        return clip_rows(_flat(rows), shared_clips(self.clip_norm, len(rows), shares))

    def counts(self, contributions: FloatArray, shares: FloatArray | None = None) -> IntArray:
        """The exact sum before the noise, in steps of the grid: all that a secure release sees."""
        return grid_sum(self.clipped(contributions, shares), self.sigma, self.clip_norm)

    def secure(self, rng: np.random.Generator | None) -> bool:
        """Is the noise exact and from the operating system?"""
        return rng is None

    def values(self, shape: tuple[int, ...]) -> int:
        """Noise values of one release of contributions of this shape."""
        return prod(shape[1:])

    def to_dict(self) -> dict[str, object]:
        """Name and parameters."""
        return {"name": type(self).__name__} | asdict(self)


@dataclass(frozen=True)
class VoteSum(GaussianSum):
    """Σ of rows without negative entries, of ℓ2 norm ≤ C, plus N(0, σ² I): Δ₂ = √2 C, not 2C.

    What is negative in a row becomes zero before it is clipped: the bound is not taken on trust.

    >>> round(VoteSum(clip_norm=1.0, sigma=4.0).event("replace").mu, 6)
    0.353553
    """

    @staticmethod
    def sensitivity(clip_norm: float, neighbours: Neighbours) -> float:
        """Δ₂: √2 C (replace), C (zero-out)."""
        return vote_sensitivity(clip_norm, neighbours)

    def clipped(self, contributions: FloatArray, shares: FloatArray | None = None) -> FloatArray:
        """(units, dim): what each unit adds; no vote at all (NaN) where a row is not finite."""
        rows = as_rows(contributions)
        votes = np.where(np.isfinite(rows), np.maximum(rows, 0.0), np.nan)
        return super().clipped(votes, shares)


@dataclass(frozen=True)
class LaplaceSum:
    """Σ of rows clipped to ℓ1 norm C, plus independent Laplace noise of scale b: ε = Δ₁/b.

    The densities at two sums differ by exp(Σ|difference|/b) at most. Secure as in GaussianSum.
    A covariance's diagonal is such a sum: rows w∘w with C = K², since ‖w∘w‖₁ = ‖w‖₂² ≤ K²; there
    entries are not negative, and Δ₁ = 2K² (replace), K² (zero-out) again.

    >>> LaplaceSum(clip_norm=1.0, scale=4.0).event("replace")
    Pure(epsilon=0.5)
    """

    clip_norm: float
    scale: float
    pure: ClassVar[bool] = True
    proven: ClassVar[bool] = True
    reason: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_positive("clip_norm", self.clip_norm)
        check_positive("scale", self.scale)

    @classmethod
    def for_epsilon(cls, clip_norm: float, epsilon: float, neighbours: Neighbours) -> LaplaceSum:
        """The noise that makes the release (ε, 0)-DP."""
        check_positive("epsilon", epsilon)
        return cls(clip_norm, sum_sensitivity(clip_norm, neighbours) / epsilon)

    def event(self, neighbours: Neighbours) -> Pure:
        """ε = 2C/b (replace), C/b (zero-out)."""
        return Pure(sum_sensitivity(self.clip_norm, neighbours) / self.scale)

    def release(
        self,
        contributions: FloatArray,
        rng: np.random.Generator | None,
        shares: FloatArray | None = None,
    ) -> FloatArray:
        """The noisy sum over units; unit i is clipped to C·shares[i]."""
        rows = as_rows(contributions)
        clips = shared_clips(self.clip_norm, len(rows), shares)
        clipped = clip_rows(_flat(rows), clips, order=1)
        if rng is not None:
            noisy = clipped.sum(axis=0) + rng.laplace(scale=self.scale, size=clipped.shape[1])
        else:
            counts = grid_sum(clipped, self.scale, self.clip_norm)
            noisy = (counts + rounded_laplace(counts.shape, SecureSource())) * grid(self.scale)
        return np.asarray(noisy.reshape(rows.shape[1:]))

    def secure(self, rng: np.random.Generator | None) -> bool:
        """Is the noise exact and from the operating system?"""
        return rng is None

    def values(self, shape: tuple[int, ...]) -> int:
        """Noise values of one release of contributions of this shape."""
        return prod(shape[1:])

    def to_dict(self) -> dict[str, object]:
        """Name and parameters."""
        return {"name": type(self).__name__} | asdict(self)


@dataclass(frozen=True)
class KNormSum:
    """Σ of rows clipped to ℓ2 norm C, plus noise of density ∝ exp(−‖b‖₂/s): ε = Δ₂/s.

    By the triangle inequality the densities at two sums differ by exp(‖difference‖₂/s) at most.
    S1 Algorithm 5 with its fraction turned the right way up (docs/privacy.md, C): one row at a
    time, s = 2C/ε.

    >>> KNormSum(clip_norm=1.0, scale=4.0).event("replace")
    Pure(epsilon=0.5)
    """

    clip_norm: float
    scale: float
    pure: ClassVar[bool] = True
    proven: ClassVar[bool] = True
    reason: ClassVar[str] = FLOAT_NOISE

    def __post_init__(self) -> None:
        check_positive("clip_norm", self.clip_norm)
        check_positive("scale", self.scale)

    @classmethod
    def for_epsilon(cls, clip_norm: float, epsilon: float, neighbours: Neighbours) -> KNormSum:
        """The noise that makes the release (ε, 0)-DP."""
        check_positive("epsilon", epsilon)
        return cls(clip_norm, sum_sensitivity(clip_norm, neighbours) / epsilon)

    def event(self, neighbours: Neighbours) -> Pure:
        """ε = 2C/s (replace), C/s (zero-out)."""
        return Pure(sum_sensitivity(self.clip_norm, neighbours) / self.scale)

    def release(
        self,
        contributions: FloatArray,
        rng: np.random.Generator | None,
        shares: FloatArray | None = None,
    ) -> FloatArray:
        """The noisy sum over units, on the grid; unit i is clipped to C·shares[i]."""
        rows = as_rows(contributions)
        clips = shared_clips(self.clip_norm, len(rows), shares)
        total = clip_rows(_flat(rows), clips).sum(axis=0)
        noisy = total + self.scale * knorm(total.size, rng or system_generator())
        return snapped(noisy, self.scale).reshape(rows.shape[1:])

    def secure(self, rng: np.random.Generator | None) -> bool:
        """Never: see reason."""
        return False

    def values(self, shape: tuple[int, ...]) -> int:
        """Noise values of one release: a direction and a radius."""
        return prod(shape[1:]) + 1

    def to_dict(self) -> dict[str, object]:
        """Name and parameters."""
        return {"name": type(self).__name__} | asdict(self)


def _flat(rows: FloatArray) -> FloatArray:
    return rows.reshape(len(rows), prod(rows.shape[1:]))
