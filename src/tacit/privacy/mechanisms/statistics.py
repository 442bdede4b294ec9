"""Statistics: what is released of clipped rows. Each owns its clip, its sensitivity and its sum.

Second moments have units as columns: W = contributionsᵀ, (d, m).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tacit.arrays import FloatArray, IntArray, namespace, on_host
from tacit.errors import InvalidInput
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms.clipping import as_rows, clip_rows, shared_clips
from tacit.privacy.mechanisms.grid import (
    grid,
    grid_cut,
    grid_steps,
    grid_sum,
    smat,
    svec,
    svec_grid_sum,
)
from tacit.privacy.mechanisms.noises import Noise, Norm, Shape
from tacit.privacy.mechanisms.sensitivities import (
    covariance_sensitivity,
    nuclear_sensitivity,
    sensitivity_gram,
    sum_sensitivity,
    vote_sensitivity,
)

_TOGETHER = 2**17  # numbers of rows that are clipped and cut at a time: they stay in a cache
_TOGETHER_ON_DEVICE = 2**28  # of which a few copies are made there

# --- sums of vectors -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Sum:
    """Σ x over rows of any shape, each clipped in the norm of the noise."""

    clip_norm: float
    norm: Norm = "l2"
    share_power: ClassVar[float] = 1.0  # a share s clips to clip_norm · s^power: Δ scales with s
    norms: ClassVar[tuple[Norm, ...]] = ("l1", "l2")  # in which its sensitivity is known
    vectors: ClassVar[bool] = False  # must a row be one vector?
    adds: ClassVar[bool] = True  # is it the sum of the same statistic of parts of the units?

    def __post_init__(self) -> None:
        if self.norm not in self.norms:
            raise InvalidInput(f"the {self.norm} sensitivity of {self} is not known")

    def sensitivity(self, neighbours: Neighbours) -> float:
        """Δ, in ``norm``."""
        return sum_sensitivity(self.clip_norm, neighbours)

    @property
    def bound(self) -> float:
        """The largest coordinate of a term."""
        return self.clip_norm

    def checked(
        self, contributions: FloatArray, shares: FloatArray | None
    ) -> tuple[FloatArray, FloatArray]:
        """Rows as floats, one a unit, and the clip norm of each."""
        rows = as_rows(contributions, vectors=self.vectors)
        return rows, shared_clips(self.clip_norm, len(rows), shares, self.share_power)

    def terms(self, rows: FloatArray, clips: FloatArray) -> FloatArray:
        """(units, size): what each unit adds."""
        flat = rows.reshape(len(rows), math.prod(rows.shape[1:]))
        clipped: FloatArray = clip_rows(flat, clips, order=1 if self.norm == "l1" else 2)
        return clipped

    def total(self, rows: FloatArray, clips: FloatArray) -> FloatArray:
        """The statistic, in floats."""
        return self.shaped(on_host(self.terms(rows, clips).sum(axis=0)), rows.shape)

    def counts(self, rows: FloatArray, clips: FloatArray, scale: float) -> IntArray:
        """The statistic in coordinates, exactly, in steps of the grid of noise of this scale; some
        rows at a time, as whole numbers add exactly in any order."""
        size = math.prod(rows.shape[1:])
        grid_steps(scale, self.bound, len(rows))  # all together fit
        total = np.zeros(size, dtype=np.int64)
        together = _TOGETHER if namespace(rows) is np else _TOGETHER_ON_DEVICE
        step = max(1, together // max(1, size))
        for some in (slice(i, i + step) for i in range(0, len(rows), step)):
            total += grid_sum(self.terms(rows[some], clips[some]), scale, self.bound)
        return total

    def coordinates(self, shape: Shape) -> Shape:
        """The shape of the noise, for contributions of this shape."""
        return (math.prod(shape[1:]),)

    def shaped(self, coordinates: FloatArray, shape: Shape) -> FloatArray:
        """From coordinates to the form that is released."""
        return np.asarray(coordinates.reshape(shape[1:]))

    def edge(self, noise: Noise[Any], shape: Shape) -> float:
        """About the largest entry of the noise (of a matrix: the largest eigenvalue)."""
        return noise.largest_entry(math.prod(shape[1:]))


@dataclass(frozen=True)
class Votes(Sum):
    """Σ x over rows without negative entries: what is negative becomes zero before the clip, so
    that the bound is not taken on trust; a row that is not finite is no vote at all."""

    norms: ClassVar[tuple[Norm, ...]] = ("l2",)

    def sensitivity(self, neighbours: Neighbours) -> float:
        """√2 C (replace), C (zero-out)."""
        return vote_sensitivity(self.clip_norm, neighbours)

    def terms(self, rows: FloatArray, clips: FloatArray) -> FloatArray:
        """What each unit adds."""
        xp = namespace(rows)
        votes = xp.where(xp.isfinite(rows), rows.clip(0.0), xp.nan)
        return super().terms(votes, clips)


@dataclass(frozen=True)
class EachRowApart(Sum):
    """Every unit's row by itself: the sum of the rows e_i ⊗ x_i, never written out.

    One unit changes its own row only, so all rows together have the sensitivity of one.
    """

    vectors: ClassVar[bool] = True
    adds: ClassVar[bool] = False

    def total(self, rows: FloatArray, clips: FloatArray) -> FloatArray:
        """(units, dim)."""
        return self.shaped(self.terms(rows, clips), rows.shape)

    def counts(self, rows: FloatArray, clips: FloatArray, scale: float) -> IntArray:
        """(units, dim)."""
        return grid_cut(self.terms(rows, clips), scale, self.bound)

    def coordinates(self, shape: Shape) -> Shape:
        """One vector of noise a row."""
        return shape

    def shaped(self, coordinates: FloatArray, shape: Shape) -> FloatArray:
        """As they are."""
        return coordinates


@dataclass(frozen=True)
class WeightedRows(EachRowApart):
    """σ∘x of every unit's row by itself, ‖x‖₂ ≤ r; released as x, so divided by σ again."""

    weights: tuple[float, ...] = ()

    @property
    def bound(self) -> float:
        """Of σ∘x."""
        return self.clip_norm * max(self.weights, default=0.0)

    def terms(self, rows: FloatArray, clips: FloatArray) -> FloatArray:
        """(units, dim)."""
        return np.asarray(super().terms(rows, clips) * self.weights)

    def total(self, rows: FloatArray, clips: FloatArray) -> FloatArray:
        """(units, dim), without the weights."""
        return super().terms(rows, clips)

    def shaped(self, coordinates: FloatArray, shape: Shape) -> FloatArray:
        """Without the weights."""
        return np.asarray(coordinates / self.weights)


# --- second moments ------------------------------------------------------------------------------


@dataclass(frozen=True)
class SecondMoments(Sum):
    """A part of WWᵀ = Σ wwᵀ, ‖w‖₂ ≤ K."""

    share_power: ClassVar[float] = 0.5
    vectors: ClassVar[bool] = True

    def sensitivity(self, neighbours: Neighbours) -> float:
        """√2 K², in ℓ1 or nuclear norm 2K² (replace); K² (zero-out)."""
        found = covariance_sensitivity if self.norm == "l2" else nuclear_sensitivity
        return found(self.clip_norm, neighbours)

    @property
    def bound(self) -> float:
        """K²."""
        return self.clip_norm**2


@dataclass(frozen=True)
class Diagonal(SecondMoments):
    """Σ w∘w, the diagonal of WWᵀ, ‖w‖₂ ≤ K.

    ‖w∘w − v∘v‖₂² ≤ ‖w∘w‖₂² + ‖v∘v‖₂² ≤ 2K⁴, since entries are not negative and ‖w∘w‖₂ ≤ ‖w‖₂².
    """

    def terms(self, rows: FloatArray, clips: FloatArray) -> FloatArray:
        """(units, dim)."""
        return np.asarray(clip_rows(rows, clips) ** 2)


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
class Covariance(SecondMoments):
    """WWᵀ = Σ wwᵀ (d×d), ‖w‖₂ ≤ K; in svec coordinates, an isometry."""

    norms: ClassVar[tuple[Norm, ...]] = ("l2", "nuclear")
    side: ClassVar[int] = 1  # of contributions (m, d): the matrix is d×d

    def total(self, rows: FloatArray, clips: FloatArray) -> FloatArray:
        """(d, d)."""
        W = clip_rows(rows, clips)
        return np.asarray(on_host(W.T @ W))

    def counts(self, rows: FloatArray, clips: FloatArray, scale: float) -> IntArray:
        """(d(d+1)/2,)."""
        W = clip_rows(rows, covariance_clip(clips, rows.shape[1], grid(scale)))
        return svec_grid_sum(W, scale, self.bound)

    def coordinates(self, shape: Shape) -> Shape:
        """Of an upper triangle."""
        return (shape[self.side] * (shape[self.side] + 1) // 2,)

    def shaped(self, coordinates: FloatArray, shape: Shape) -> FloatArray:
        """The symmetric matrix."""
        return smat(coordinates)

    def edge(self, noise: Noise[Any], shape: Shape) -> float:
        """About the largest eigenvalue of the noise."""
        return noise.largest_eigenvalue(shape[self.side])


@dataclass(frozen=True)
class Gram(Covariance):
    """WᵀW (m×m), ‖w‖₂ ≤ K; a share is linear in it, as Δ is.

    Entry (i, j) of the product depends on rows i and j only, its rounding included: at most
    d·2^−53 K² an entry, which ``rounding_slack`` covers.
    """

    units: int | None = None  # None: as many as come, and no sensitivity is known
    share_power: ClassVar[float] = 1.0
    norms: ClassVar[tuple[Norm, ...]] = ("l2",)
    side: ClassVar[int] = 0
    adds: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.units is not None and self.units < 1:
            raise InvalidInput(f"units must be at least 1, got {self.units!r}")

    def sensitivity(self, neighbours: Neighbours) -> float:
        """K²√(8(m−1)) (replace), K²√(2m−1) (zero-out)."""
        assert self.units is not None
        return sensitivity_gram(self.clip_norm, self.units, neighbours)

    def checked(
        self, contributions: FloatArray, shares: FloatArray | None
    ) -> tuple[FloatArray, FloatArray]:
        """As many as declared."""
        if np.ndim(contributions) == 2 and self.units not in (None, len(contributions)):
            raise InvalidInput(f"declared for {self.units} units, got {len(contributions)} rows")
        return super().checked(contributions, shares)

    def total(self, rows: FloatArray, clips: FloatArray) -> FloatArray:
        """(m, m)."""
        W = clip_rows(rows, clips)
        return np.asarray(W @ W.T)

    def counts(self, rows: FloatArray, clips: FloatArray, scale: float) -> IntArray:
        """(m(m+1)/2,)."""
        W = clip_rows(rows, gram_clip(clips, self.clip_norm, grid(scale)))
        return grid_sum(svec(W @ W.T)[None], scale, math.sqrt(2) * self.bound)
