r"""Penalties on the matrix of models: a penalty is its value and its proximal operator.

W is (d, m), one column per task. The proximal operator of λΩ at V is

.. math:: \mathrm{prox}_{λΩ}(V) = \arg\min_W ½‖W − V‖_F² + λ Ω(W).

``basis`` names the directions of feature space that a matrix uses, the strongest first: a solver
that knows them works in that subspace only. None means that there is no such subspace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tacit.linear.losses import FloatArray
from tacit.linear.rows import row_norms

Level = float | FloatArray


class Penalty(Protocol):
    """Ω(W), its proximal operator, and the subspace in which a matrix lives."""

    def value(self, W: FloatArray) -> float:
        """Ω(W)."""

    def prox(self, V: FloatArray, level: Level) -> FloatArray:
        """The proximal operator of level · Ω at V.

        Penalties that see each column by itself also take one level per column, (m,).
        """

    def basis(self, W: FloatArray) -> FloatArray | None:
        """(d, r), orthonormal, spanning the columns of W in the sense of this penalty."""


def soft_threshold(values: FloatArray, level: Level) -> FloatArray:
    """sign(x) · max(|x| − level, 0).

    >>> soft_threshold(np.array([-3.0, 0.5, 2.0]), 1.0)
    array([-2.,  0.,  1.])
    """
    return np.asarray(np.sign(values) * np.maximum(np.abs(values) - level, 0.0))


def shrunk(sizes: FloatArray, level: Level) -> FloatArray:
    """max(1 − level/size, 0): the factor that shortens a length by level; 0 at length 0.

    >>> shrunk(np.array([4.0, 1.0, 0.0]), 2.0)
    array([0.5, 0. , 0. ])
    """
    out = np.zeros_like(sizes)
    return np.asarray(np.divide(np.maximum(sizes - level, 0.0), sizes, out=out, where=sizes > 0))


def spectrum(W: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Singular values (r,) and left singular vectors (d, r) of W, largest first, r = min(d, m).

    By the eigenvectors U of WWᵀ when d ≤ m (d is the small side); the values are the norms of the
    rows of UᵀW, which keeps small ones accurate to about 1e-8 of the largest.
    """
    if W.shape[0] > W.shape[1]:
        U, sizes, _ = np.linalg.svd(W, full_matrices=False)
        return np.asarray(sizes), np.asarray(U)
    U = np.asarray(np.linalg.eigh(W @ W.T)[1][:, ::-1])
    return np.asarray(np.linalg.norm(U.T @ W, axis=1)), U


@dataclass(frozen=True)
class TraceNorm:
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
        sizes, U = spectrum(V)  # S1, Eq. (7): U max(1 − level/σ, 0) Uᵀ V
        return np.asarray((U * shrunk(sizes, level)) @ (U.T @ V))

    def basis(self, W: FloatArray) -> FloatArray:
        sizes, U = spectrum(W)
        order = np.argsort(-sizes, kind="stable")
        used = order[sizes[order] > 1e-9 * max(float(sizes.max(initial=0.0)), 1e-300)]
        return np.asarray(U[:, used])


@dataclass(frozen=True)
class GroupNorm:
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


@dataclass(frozen=True)
class L1Norm:
    """‖W‖₁ = Σ |entry|: outliers entry by entry (S1, Eq. 23).

    >>> L1Norm().prox(np.array([[3.0, -0.5]]), 1.0) + 0.0
    array([[2., 0.]])
    """

    def value(self, W: FloatArray) -> float:
        return float(np.abs(W).sum())

    def prox(self, V: FloatArray, level: Level) -> FloatArray:
        return soft_threshold(V, level)  # S1 Algorithm 4, step 11

    def basis(self, W: FloatArray) -> None:
        return None


@dataclass(frozen=True)
class ColumnNorm:
    """‖W‖_{1,2} = Σ_i ‖column i‖₂: whole tasks that are outliers (S1, Remark 4).

    >>> ColumnNorm().prox(np.array([[3.0, 0.3], [4.0, 0.4]]), 1.0)
    array([[2.4, 0. ],
           [3.2, 0. ]])
    """

    def value(self, W: FloatArray) -> float:
        return float(np.linalg.norm(W, axis=0).sum())

    def prox(self, V: FloatArray, level: Level) -> FloatArray:
        return np.asarray(V * shrunk(row_norms(V.T), level))

    def basis(self, W: FloatArray) -> None:
        return None


@dataclass(frozen=True)
class SquaredNorm:
    """‖W‖_F²: every task a little off the common structure (S1, Remark 4).

    >>> SquaredNorm().prox(np.array([[3.0]]), 1.0)
    array([[1.]])
    """

    def value(self, W: FloatArray) -> float:
        return float((W * W).sum())

    def prox(self, V: FloatArray, level: Level) -> FloatArray:
        return np.asarray(V / (1 + 2 * level))

    def basis(self, W: FloatArray) -> None:
        return None


@dataclass(frozen=True)
class RowMaxNorm:
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

    def basis(self, W: FloatArray) -> None:
        return None
