r"""Penalties on the matrix of models: a penalty is its value and its proximal operator.

W is (d, m), one column per task. The proximal operator of λΩ at V is

.. math:: \mathrm{prox}_{λΩ}(V) = \arg\min_W ½‖W − V‖_F² + λ Ω(W).

``basis`` names the directions of feature space that a matrix uses, the strongest first: a solver
that knows them works in that subspace only. None means that there is no such subspace.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit.arrays import FloatArray
from tacit.linear.prox_columns import ProxColumns, RowColumns, SpectralColumns
from tacit.linear.row_algebra import row_norms
from tacit.linear.thresholds import Level, shrunk, soft_threshold


class Penalty(ABC):
    """Ω(W) and its proximal operator; the rest is what a solver may ask of those that know more."""

    separable: ClassVar[bool] = False
    """Whether it sees each column by itself. Then prox also takes one level per column, (m,)."""
    is_ridge: ClassVar[bool] = False
    """Whether it is ‖W‖_F²: then a squared loss has a closed form, and noise no dual norm."""

    @abstractmethod
    def value(self, W: FloatArray) -> float:
        """Ω(W)."""

    @abstractmethod
    def prox(self, V: FloatArray, level: Level) -> FloatArray:
        """The proximal operator of level · Ω at V."""

    def basis(self, W: FloatArray) -> FloatArray | None:
        """(d, r), orthonormal, spanning the columns of W in the sense of this penalty."""
        return None

    def spread(self, W: FloatArray) -> FloatArray:
        """How much W uses each feature (d,): the norms of its rows; or each direction (d, d)."""
        return np.asarray(np.linalg.norm(W, axis=1))

    def columns(self, level: float) -> ProxColumns:
        """The cheapest way to some columns of the prox, while others stay as they are."""
        return ProxColumns(self, level)

    def noise_size(self, deviations: FloatArray, d: int) -> float:
        """The size, in the dual norm, of noise (d, m) whose column t has this deviation.

        A level at which the prox leaves little of it. By default that of the trace norm: the
        spectral norm, about √d · max + the root of the sum of squares.
        """
        return float(np.linalg.norm(deviations)) + float(deviations.max()) * math.sqrt(d)


def spectrum(W: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Singular values (r,) and left singular vectors (d, r) of W, largest first, r = min(d, m)."""
    sizes, U, _ = _decomposed(W)
    return sizes, U


def _decomposed(W: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The same, and UᵀW (r, m).

    By the eigenvectors U of WWᵀ when d ≤ m (d is the small side); the values are the norms of the
    rows of UᵀW, which keeps small ones accurate to about 1e-8 of the largest.
    """
    if W.shape[0] > W.shape[1]:
        U, sizes, across = np.linalg.svd(W, full_matrices=False)
        return np.asarray(sizes), np.asarray(U), sizes[:, None] * across
    U = np.ascontiguousarray(np.linalg.eigh(W @ W.T)[1][:, ::-1])
    seen = U.T @ W
    return np.asarray(np.linalg.norm(seen, axis=1)), U, np.asarray(seen)


@dataclass(frozen=True)
class TraceNorm(Penalty):
    """‖W‖_* = Σ_j σ_j(W): few directions (S1, Eq. 2).

    >>> TraceNorm().value(np.diag([3.0, 4.0]))
    7.0
    >>> TraceNorm().prox(np.diag([3.0, 4.0]), 3.5).round(12) + 0.0
    array([[0. , 0. ],
           [0. , 0.5]])
    """

    def value(self, W: FloatArray) -> float:
        return float(spectrum(W)[0].sum())

    def prox(self, V: FloatArray, level: Level) -> FloatArray:
        sizes, U, seen = _decomposed(V)  # S1, Eq. (7): U max(1 − level/σ, 0) Uᵀ V
        factors = shrunk(sizes, level)
        used = factors > 0
        return np.asarray((U[:, used] * factors[used]) @ seen[used])

    def basis(self, W: FloatArray) -> FloatArray:
        sizes, U = spectrum(W)
        order = np.argsort(-sizes, kind="stable")
        used = order[sizes[order] > 1e-9 * max(float(sizes.max(initial=0.0)), 1e-300)]
        return np.asarray(U[:, used])

    def spread(self, W: FloatArray) -> FloatArray:
        """(WWᵀ)^½."""
        sizes, U = spectrum(W)
        return np.asarray((U * sizes) @ U.T)

    def columns(self, level: float) -> SpectralColumns:
        return SpectralColumns(self, level)


@dataclass(frozen=True)
class GroupNorm(Penalty):
    """‖W‖_{2,1} = Σ_j ‖row j‖₂: few features, the same for all tasks (S1, Eq. 3).

    >>> GroupNorm().prox(np.array([[3.0, 4.0], [0.3, 0.4]]), 1.0)
    array([[2.4, 3.2],
           [0. , 0. ]])
    """

    def value(self, W: FloatArray) -> float:
        return float(np.linalg.norm(W, axis=1).sum())

    def prox(self, V: FloatArray, level: Level) -> FloatArray:
        return np.asarray(shrunk(np.linalg.norm(V, axis=1), level)[:, None] * V)  # S1, Eq. (8)

    def basis(self, W: FloatArray) -> FloatArray:
        sizes = np.linalg.norm(W, axis=1)
        order = np.argsort(-sizes, kind="stable")
        return np.asarray(np.eye(len(W))[:, order[sizes[order] > 0]])

    def columns(self, level: float) -> RowColumns:
        return RowColumns(self, level)

    def noise_size(self, deviations: FloatArray, d: int) -> float:
        """The largest of d norms of m coordinates."""
        largest = float(deviations.max()) * math.sqrt(2 * math.log(max(d, 2)))
        return float(np.linalg.norm(deviations)) + largest


@dataclass(frozen=True)
class L1Norm(Penalty):
    """‖W‖₁ = Σ |entry|: outliers entry by entry (S1, Eq. 23).

    >>> L1Norm().prox(np.array([[3.0, -0.5]]), 1.0) + 0.0
    array([[2., 0.]])
    """

    separable: ClassVar[bool] = True

    def value(self, W: FloatArray) -> float:
        return float(np.abs(W).sum())

    def prox(self, V: FloatArray, level: Level) -> FloatArray:
        return soft_threshold(V, level)  # S1 Algorithm 4, step 11

    def noise_size(self, deviations: FloatArray, d: int) -> float:
        """The largest of d · m coordinates."""
        return float(deviations.max()) * math.sqrt(2 * math.log(d * len(deviations)))


@dataclass(frozen=True)
class ColumnNorm(Penalty):
    """‖W‖_{1,2} = Σ_i ‖column i‖₂: whole tasks that are outliers (S1, Remark 4).

    >>> ColumnNorm().prox(np.array([[3.0, 0.3], [4.0, 0.4]]), 1.0)
    array([[2.4, 0. ],
           [3.2, 0. ]])
    """

    separable: ClassVar[bool] = True

    def value(self, W: FloatArray) -> float:
        return float(np.linalg.norm(W, axis=0).sum())

    def prox(self, V: FloatArray, level: Level) -> FloatArray:
        return np.asarray(V * shrunk(row_norms(V.T), level))

    def noise_size(self, deviations: FloatArray, d: int) -> float:
        """The largest of m norms of d coordinates, but for their scatter."""
        return float(deviations.max()) * math.sqrt(d)


@dataclass(frozen=True)
class SquaredNorm(Penalty):
    """‖W‖_F²: every task a little off the common structure (S1, Remark 4).

    >>> SquaredNorm().prox(np.array([[3.0]]), 1.0)
    array([[1.]])
    """

    separable: ClassVar[bool] = True
    is_ridge: ClassVar[bool] = True

    def value(self, W: FloatArray) -> float:
        return float((W * W).sum())

    def prox(self, V: FloatArray, level: Level) -> FloatArray:
        return np.asarray(V / (1 + 2 * level))


@dataclass(frozen=True)
class RowMaxNorm(Penalty):
    """‖W‖_{1,∞} = Σ_j max_t |entry|: few features, of one size in all tasks (the dirty model's).

    By Moreau's identity the prox takes from each row its projection onto the ℓ1 ball of radius
    ``level``: what is largest is cut to one height.

    >>> RowMaxNorm().prox(np.array([[3.0, 2.0, 0.5], [0.2, -0.1, 0.0]]), 2.0) + 0.0
    array([[1.5, 1.5, 0.5],
           [0. , 0. , 0. ]])
    """

    def value(self, W: FloatArray) -> float:
        return float(np.abs(W).max(axis=1, initial=0.0).sum())

    def prox(self, V: FloatArray, level: Level) -> FloatArray:
        sizes = np.abs(V)
        falling = -np.sort(-sizes, axis=1)
        # The height h solves Σ max(|v| − h, 0) = level; with the k largest above it,
        # h = (their sum − level)/k, and the right k gives the largest such h.
        heights = (np.cumsum(falling, axis=1) - level) / np.arange(1, V.shape[1] + 1)
        height = np.maximum(heights.max(axis=1, initial=0.0), 0.0)
        return np.asarray(np.sign(V) * np.minimum(sizes, height[:, None]))
