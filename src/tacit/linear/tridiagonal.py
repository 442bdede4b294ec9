r"""Quadratic forms and determinants of I + cB at many scales c, for thousands of small B at once.

Householder reflections turn a vector b along the first axis and B into a tridiagonal T:
b = β₀Pe₁, B = PTPᵀ. From the last row up, with T's diagonal α and what stands beside it β,

.. math:: p_k = 1 + cα_k − (cβ_{k+1})² / p_{k+1}

are the pivots of I + cT, so that log det(I + cB) = Σ log p_k and bᵀ(I/c + B)⁻¹b = cβ₀²/p_0. A
reflection takes a third of what eigenvectors take, and every further scale next to nothing.

Tasks are the last axis: every operation is one of vectors of tasks, and none is added to another. A
task of zeros stands behind all others: a sum over one task alone would run in another order. (Not
on a device, where tasks come in passes of one shape.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tacit.arrays import FloatArray
from tacit.linear.row_algebra import row_sums

TOGETHER = 8
"""Rows in one operation: fewer would wait for Python more than two threads gain, and more would
compute what the other half of a symmetric matrix says."""


@dataclass(frozen=True)
class Tridiagonal:
    """b = β₀Pe₁ and B = PTPᵀ of m tasks, and one of zeros behind them."""

    diagonal: FloatArray  # (r, m + 1), α
    beside: FloatArray  # (r, m + 1), β; the first is b's
    reflections: tuple[FloatArray, ...]  # v_k (r − k, m + 1): P is the product of all I − vvᵀ
    n_tasks: int  # m

    @classmethod
    def of(cls, B: FloatArray, b: FloatArray) -> Tridiagonal:
        """Of positive semi-definite B (m, r, r) and b (m, r); a device may have its own way."""
        there = not isinstance(b, np.ndarray)
        if there and (own := B.tridiagonal(b)) is not None:  # type: ignore[attr-defined] # OnDevice
            return own  # type: ignore[no-any-return]
        m, r = b.shape
        slots = m if there else m + 1
        left = np.zeros_like(B, shape=(r, r, slots), order="C")
        left[:, :, :m] = B.transpose(1, 2, 0)
        column = np.zeros_like(B, shape=(r, slots), order="C")
        column[:, :m] = b.T
        diagonal, beside = np.empty_like(B, shape=(2, r, slots), order="C")
        reflections = []
        for k in range(r):
            v, beside[k] = _reflection(column)
            p = np.einsum("ijt,jt->it", left, v)
            p -= v * (0.5 * _inner(p, v))
            for i in range(0, len(v), TOGETHER):  # left −= vpᵀ + pvᵀ, one half of it mirrored
                end = i + TOGETHER
                rows = left[i:end, i:]
                _less(rows, v[i:end, None], p[i:])
                _less(rows, p[i:end, None], v[i:])
                left[end:, i:end] = rows[:, TOGETHER:].swapaxes(0, 1)
            diagonal[k], column, left = left[0, 0], left[0, 1:], left[1:, 1:]
            reflections.append(v)
        return cls(diagonal, beside, tuple(reflections), m)

    def path(self, scales: FloatArray) -> tuple[FloatArray, FloatArray]:
        """bᵀ(I/c + B)⁻¹b and log det(I + cB), both (m, L)."""
        shape = self.beside.shape[1], len(scales)
        log_det, first = np.zeros_like(self.beside, shape=shape), np.ones(1)
        for first in self._pivots(scales):
            log_det += np.log(first)
        found = scales * self.beside[0][:, None] ** 2 / first
        return found[: self.n_tasks], log_det[: self.n_tasks]

    def solved(self, scales: FloatArray, weights: FloatArray) -> FloatArray:
        """Σ_c weight (I/c + B)⁻¹b (m, r), of weights (m, L)."""
        pivots = list(self._pivots(scales))[::-1]
        found = np.empty_like(self.diagonal)
        x = np.zeros_like(self.beside, shape=(self.beside.shape[1], len(scales)))
        x[: self.n_tasks] = -weights
        for k, pivot in enumerate(pivots):
            x = -x * scales * self.beside[k][:, None] / pivot
            found[k] = row_sums(x)
        for k, v in reversed(list(enumerate(self.reflections))):
            found[k:] -= v * _inner(v, found[k:])
        return found[:, : self.n_tasks].T.copy()

    def _pivots(self, scales: FloatArray) -> Iterator[FloatArray]:
        """p_k (m + 1, L), the last first; not below one, as I + cT is not."""
        pivot = np.ones(1)
        beside = np.zeros_like(self.beside[0])
        for k in range(len(self.diagonal) - 1, -1, -1):
            away = (scales * beside[:, None]) ** 2 / pivot
            pivot = np.maximum(1 + scales * self.diagonal[k][:, None] - away, 1.0)
            beside = self.beside[k]
            yield pivot


def _reflection(column: FloatArray) -> tuple[FloatArray, FloatArray]:
    """v (k, m) of norm √2, or zero, whose reflection I − vvᵀ puts a column along the first axis,
    and the coordinate that it has there."""
    length = np.sqrt(_inner(column, column))
    there = np.where(column[0] < 0, length, -length)
    v: FloatArray = column.copy()
    v[0] -= there
    half = length * (length + np.abs(column[0]))  # ½‖v‖²
    return v / np.sqrt(np.where(half > 0, half, 1.0)), there


def _inner(a: FloatArray, b: FloatArray) -> FloatArray:
    """(m,), over the first axis."""
    found: FloatArray = (a * b).sum(axis=0)
    return found


def _less(rows: FloatArray, a: FloatArray, b: FloatArray) -> None:
    """rows −= ab, in place; a device does not write ab down in between."""
    if isinstance(rows, np.ndarray):
        rows -= a * b
    else:
        rows.less_product(a, b)
