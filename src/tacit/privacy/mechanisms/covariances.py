"""Noisy second moments of clipped columns: WWᵀ, its diagonal, and WᵀW, with Gaussian noise.

Units are given as rows, so W has them as columns: W = contributionsᵀ, (d, m).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np

from tacit.errors import InvalidInput
from tacit.privacy.accounting import Gaussian
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms.rows import (
    as_rows,
    by_neighbours,
    check_positive,
    clip_rows,
    grid,
    grid_sum,
    shared_clips,
    smat,
    svec,
    svec_grid_sum,
)
from tacit.privacy.noise import FloatArray, IntArray, SecureSource, rounded_gaussian


def covariance_sensitivity(clip_norm: float, neighbours: Neighbours) -> float:
    """Of Σ wwᵀ in Frobenius norm, and of its diagonal in ℓ2: √2 K² (replace), K² (zero-out).

    ‖wwᵀ − vvᵀ‖_F² = ‖w‖⁴ + ‖v‖⁴ − 2(wᵀv)² ≤ 2K⁴, reached by orthogonal w, v of norm K; with v = 0
    it is ‖w‖⁴ ≤ K⁴. The diagonal is part of the matrix, and w = K e₁, v = K e₂ are all diagonal.

    >>> round(covariance_sensitivity(2.0, "replace"), 6), covariance_sensitivity(2.0, "zero-out")
    (5.656854, 4.0)
    """
    square = clip_norm**2
    return by_neighbours(neighbours, replace=math.sqrt(2) * square, zero_out=square)


def sensitivity_gram(clip_norm: float, units: int, neighbours: Neighbours) -> float:
    """Of WᵀW (m×m) in Frobenius norm: K²√(8(m−1)) (replace), K²√(2m−1) (zero-out).

    Replacing column w by v changes a row and a column: with a = ‖w‖, b = ‖v‖,
    Δ² = 2 Σ_j (w_jᵀ(w−v))² + (a²−b²)² ≤ (a+b)² (2(m−1)K² + (a−b)²). With t = |a−b|, a+b ≤ 2K−t, and
    (2K−t)²(2(m−1)K² + t²) falls with t for m ≥ 2: at most 8(m−1)K⁴, reached where all w_j = w = −v.
    With v = 0: 2(m−1)K²a² + a⁴ ≤ (2m−1)K⁴. A single unit has only the diagonal: K² for both.

    >>> sensitivity_gram(1.0, 3, "replace"), round(sensitivity_gram(1.0, 3, "zero-out"), 6)
    (4.0, 2.236068)
    """
    square = clip_norm**2
    return by_neighbours(
        neighbours,
        replace=square * math.sqrt(8 * (units - 1)) if units > 1 else square,
        zero_out=square * math.sqrt(2 * units - 1),
    )


# Cutting toward zero onto a grid g never raises a norm, but it may raise a *difference*:
# |t(x) − t(y)| < |x − y| + g, so ‖t(a) − t(b)‖ < ‖a − b‖ + g√n on n coordinates. Under zero-out one
# side is 0 and nothing is lost; under replace secure releases of matrices clip a little below the
# clip norm, by a public amount, so that the stated sensitivity holds of what is cut, exactly. (A
# sum of vectors needs only its norms, and so does a diagonal, whose entries are not negative:
# ‖t(a) − t(b)‖² ≤ ‖a‖² + ‖b‖².)

_DOWN = 1 - 2.0**-48  # so that the difference below, too, is rounded down


def covariance_clip(clips: FloatArray, dim: int, step: float) -> FloatArray:
    """K' with √2 K'² + g√D = √2 K², D = d(d+1)/2; 0 where the grid is coarser than that.

    >>> covariance_clip(np.array([1.0, 0.1]), 1, 0.02).round(4)
    array([0.9929, 0.    ])
    """
    return np.sqrt(np.maximum(_DOWN * clips**2 - step * math.sqrt(dim * (dim + 1) / 4), 0.0))


def gram_clip(clips: FloatArray, clip_norm: float, step: float) -> FloatArray:
    """A' = A − g/(2K), A the clip norm of one unit and K of the others.

    The unit's sensitivity A'K√(8(m−1)) + g√m stays below A·K√(8(m−1)), as m ≤ 2(m−1) for m ≥ 2; for
    m = 1 there is only a diagonal.
    """
    return np.maximum(_DOWN * clips - step / (2 * clip_norm), 0.0)


@dataclass(frozen=True)
class SymmetricGaussian:
    """WWᵀ = Σ wwᵀ (d×d), ‖w‖₂ ≤ K, plus symmetric noise: μ-GDP with μ = Δ_F/σ.

    The noise is isotropic in svec coordinates: variance σ² on the diagonal, σ²/2 off it. svec is an
    isometry, so this is a Gaussian release of a vector with Δ₂ = Δ_F.

    >>> SymmetricGaussian(clip_norm=1.0, sigma=2.0).event("zero-out")
    Gaussian(mu=0.5)
    >>> S = SymmetricGaussian(1.0, 2.0).release(np.eye(3), np.random.default_rng(0))
    >>> bool(np.array_equal(S, S.T))
    True
    """

    clip_norm: float
    sigma: float
    pure: ClassVar[bool] = False
    proven: ClassVar[bool] = True
    reason: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_positive("clip_norm", self.clip_norm)
        check_positive("sigma", self.sigma)

    @classmethod
    def for_mu(cls, clip_norm: float, mu: float, neighbours: Neighbours) -> SymmetricGaussian:
        """The noise that makes the release μ-GDP."""
        check_positive("mu", mu)
        return cls(clip_norm, covariance_sensitivity(clip_norm, neighbours) / mu)

    def event(self, neighbours: Neighbours) -> Gaussian:
        """μ = √2 K²/σ (replace), K²/σ (zero-out)."""
        return Gaussian(covariance_sensitivity(self.clip_norm, neighbours) / self.sigma)

    def release(
        self,
        contributions: FloatArray,
        rng: np.random.Generator | None,
        shares: FloatArray | None = None,
    ) -> FloatArray:
        """The noisy covariance; unit i is clipped to K·√shares[i], so that Δ scales with it."""
        if rng is not None:
            rows = as_rows(contributions, vectors=True)
            W = clip_rows(rows, shared_clips(self.clip_norm, len(rows), shares, 0.5))
            noise = self.sigma * rng.standard_normal(self.values(rows.shape))
            return np.asarray(W.T @ W + smat(noise))
        counts = self.counts(contributions, shares)
        return smat((counts + rounded_gaussian(counts.shape, SecureSource())) * grid(self.sigma))

    def counts(self, contributions: FloatArray, shares: FloatArray | None = None) -> IntArray:
        """The exact sum of svec(wwᵀ) before the noise, in steps of the grid."""
        rows = as_rows(contributions, vectors=True)
        clips = shared_clips(self.clip_norm, len(rows), shares, 0.5)
        W = clip_rows(rows, covariance_clip(clips, rows.shape[1], grid(self.sigma)))
        return svec_grid_sum(W, self.sigma, self.clip_norm**2)

    def secure(self, rng: np.random.Generator | None) -> bool:
        """Is the noise exact and from the operating system?"""
        return rng is None

    def values(self, shape: tuple[int, ...]) -> int:
        """Noise values of one release of contributions (m, d)."""
        return shape[1] * (shape[1] + 1) // 2

    def to_dict(self) -> dict[str, object]:
        """Name and parameters."""
        return {"name": type(self).__name__} | asdict(self)


@dataclass(frozen=True)
class DiagonalGaussian:
    """The diagonal of WWᵀ, Σ w∘w (d,), plus N(0, σ² I): μ-GDP with μ = Δ₂/σ.

    ‖w∘w − v∘v‖₂² ≤ ‖w∘w‖₂² + ‖v∘v‖₂² ≤ 2K⁴, since entries are not negative and ‖w∘w‖₂ ≤ ‖w‖₂².

    >>> DiagonalGaussian(clip_norm=1.0, sigma=2.0).event("zero-out")
    Gaussian(mu=0.5)
    """

    clip_norm: float
    sigma: float
    pure: ClassVar[bool] = False
    proven: ClassVar[bool] = True
    reason: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_positive("clip_norm", self.clip_norm)
        check_positive("sigma", self.sigma)

    @classmethod
    def for_mu(cls, clip_norm: float, mu: float, neighbours: Neighbours) -> DiagonalGaussian:
        """The noise that makes the release μ-GDP."""
        check_positive("mu", mu)
        return cls(clip_norm, covariance_sensitivity(clip_norm, neighbours) / mu)

    def event(self, neighbours: Neighbours) -> Gaussian:
        """μ = √2 K²/σ (replace), K²/σ (zero-out)."""
        return Gaussian(covariance_sensitivity(self.clip_norm, neighbours) / self.sigma)

    def release(
        self,
        contributions: FloatArray,
        rng: np.random.Generator | None,
        shares: FloatArray | None = None,
    ) -> FloatArray:
        """The noisy diagonal; unit i is clipped to K·√shares[i], so that Δ scales with it."""
        if rng is not None:
            total = self._squares(contributions, shares).sum(axis=0)
            return np.asarray(total + self.sigma * rng.standard_normal(len(total)))
        counts = self.counts(contributions, shares)
        noise = rounded_gaussian(counts.shape, SecureSource())
        return np.asarray((counts + noise) * grid(self.sigma))

    def _squares(self, contributions: FloatArray, shares: FloatArray | None) -> FloatArray:
        rows = as_rows(contributions, vectors=True)
        clips = shared_clips(self.clip_norm, len(rows), shares, 0.5)
        return np.asarray(clip_rows(rows, clips) ** 2)

    def counts(self, contributions: FloatArray, shares: FloatArray | None = None) -> IntArray:
        """The exact sum of w∘w before the noise, in steps of the grid."""
        return grid_sum(self._squares(contributions, shares), self.sigma, self.clip_norm**2)

    def secure(self, rng: np.random.Generator | None) -> bool:
        """Is the noise exact and from the operating system?"""
        return rng is None

    def values(self, shape: tuple[int, ...]) -> int:
        """Noise values of one release of contributions (m, d)."""
        return shape[1]

    def to_dict(self) -> dict[str, object]:
        """Name and parameters."""
        return {"name": type(self).__name__} | asdict(self)


@dataclass(frozen=True)
class GramGaussian:
    """WᵀW (m×m), ‖w‖₂ ≤ K, plus symmetric noise: μ-GDP with μ = Δ_F/σ.

    Its sensitivity grows with √m: one unit is in a whole row and column (docs/privacy.md, A').

    >>> round(GramGaussian(clip_norm=1.0, units=9, sigma=16.0).event("replace").mu, 9)
    0.5
    """

    clip_norm: float
    units: int
    sigma: float
    pure: ClassVar[bool] = False
    proven: ClassVar[bool] = True
    reason: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_positive("clip_norm", self.clip_norm)
        check_positive("sigma", self.sigma)
        if self.units < 1:
            raise InvalidInput(f"units must be at least 1, got {self.units!r}")

    @classmethod
    def for_mu(
        cls, clip_norm: float, units: int, mu: float, neighbours: Neighbours
    ) -> GramGaussian:
        """The noise that makes the release μ-GDP."""
        check_positive("mu", mu)
        return cls(clip_norm, units, sensitivity_gram(clip_norm, units, neighbours) / mu)

    def event(self, neighbours: Neighbours) -> Gaussian:
        """μ = K²√(8(m−1))/σ (replace), K²√(2m−1)/σ (zero-out)."""
        return Gaussian(sensitivity_gram(self.clip_norm, self.units, neighbours) / self.sigma)

    def release(
        self,
        contributions: FloatArray,
        rng: np.random.Generator | None,
        shares: FloatArray | None = None,
    ) -> FloatArray:
        """The noisy Gram matrix; unit i is clipped to K·shares[i]: Δ is at most linear in it.

        Entry (i, j) of the product depends on rows i and j only, its rounding included: at most
        d·2^−53 K² an entry, which ``rounding_slack`` covers.
        """
        rows = as_rows(contributions, vectors=True)
        if len(rows) != self.units:
            raise InvalidInput(f"declared for {self.units} units, got {len(rows)} rows")
        clips = shared_clips(self.clip_norm, len(rows), shares)
        if rng is not None:
            W = clip_rows(rows, clips)
            noise = self.sigma * rng.standard_normal(self.values(rows.shape))
            return np.asarray(W @ W.T + smat(noise))
        W = clip_rows(rows, gram_clip(clips, self.clip_norm, grid(self.sigma)))
        counts = grid_sum(svec(W @ W.T)[None], self.sigma, math.sqrt(2) * self.clip_norm**2)
        return smat((counts + rounded_gaussian(counts.shape, SecureSource())) * grid(self.sigma))

    def secure(self, rng: np.random.Generator | None) -> bool:
        """Is the noise exact and from the operating system?"""
        return rng is None

    def values(self, shape: tuple[int, ...]) -> int:
        """Noise values of one release of contributions (m, d)."""
        return shape[0] * (shape[0] + 1) // 2

    def to_dict(self) -> dict[str, object]:
        """Name and parameters."""
        return {"name": type(self).__name__} | asdict(self)
