"""Operations on the models of many tasks, (m, d), that give each row the same bits whatever m is.

A sum follows the memory's layout, a matrix product the number of rows: W @ M takes several rows at
a time and the rest through another kernel. Here a row is contiguous before it is summed, and a
product of its own when it is multiplied. Arrays that are not numpy's (tacit.device) know these
operations themselves, by the same rule.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from tacit.arrays import BoolArray, FloatArray

FLOOR = 1e-6
"""The shortest row that is stretched to norm one, in units where data are about one in size."""


def row_sums(values: FloatArray) -> FloatArray:
    """(m,): the sum of each row of (m, d).

    >>> row_sums(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([3., 7.])
    """
    if not isinstance(values, np.ndarray):
        return values.sum(axis=1)
    return np.asarray(np.ascontiguousarray(values).sum(axis=1))


def positive_or_one(sizes: FloatArray) -> FloatArray:
    """The sizes, and 1 where there is none to divide by.

    >>> positive_or_one(np.array([2.0, 0.0]))
    array([2., 1.])
    """
    return np.where(sizes > 0, sizes, 1.0)


def row_norms(rows: FloatArray) -> FloatArray:
    """(m,): ‖w‖₂ of each row.

    >>> row_norms(np.array([[3.0, 4.0]]))
    array([5.])
    """
    return np.sqrt(row_sums(rows**2))


def times_each(W: FloatArray, M: FloatArray) -> FloatArray:
    """(m, k): wᵀM of each row w (m, d), with one M (d, k) or one for each (m, d, k).

    >>> times_each(np.array([[1.0, 2.0]]), np.array([[0.0, 1.0], [3.0, 0.0]]))
    array([[6., 1.]])
    """
    if not isinstance(W, np.ndarray):
        return W.times_each(M)
    return np.asarray(np.matmul(np.ascontiguousarray(W)[:, None, :], M)[:, 0])


def each_times(M: FloatArray, W: FloatArray) -> FloatArray:
    """(m, k): M w of each row w (m, d) and its own M (m, k, d); one w (d,) or one M (1, k, d) is
    everybody's.

    >>> each_times(np.array([[[0.0, 1.0], [3.0, 0.0]]]), np.array([[1.0, 2.0]]))
    array([[2., 3.]])
    """
    if not isinstance(M, np.ndarray):
        return M.each_times(W)
    rows = np.ascontiguousarray(W if W.ndim == 2 else np.broadcast_to(W, (len(M), len(W))))
    return np.asarray(np.matmul(M, rows[:, :, None])[:, :, 0])


def between(M: FloatArray, F: FloatArray) -> FloatArray:
    """(m, r, r): FᵀMF of each symmetric M (m, d, d), with one F (d, r).

    >>> between(np.array([[[2.0]]]), np.array([[3.0]]))
    array([[[18.]]])
    """
    if not isinstance(M, np.ndarray):
        return M.between(F)
    return np.asarray(np.ascontiguousarray(F.T) @ (M @ F))


def log_sum_exp(values: FloatArray) -> FloatArray:
    """log Σ exp over the second axis; −∞ where all are.

    >>> log_sum_exp(np.array([[0.0, 0.0], [-np.inf, -np.inf]])).round(3)
    array([0.693,  -inf])
    """
    if isinstance(values, np.ndarray):
        return np.asarray(special.logsumexp(values, axis=1))
    best = values.max(axis=1, keepdims=True)
    best = np.where(np.isfinite(best), best, 0.0)
    return np.log(np.exp(values - best).sum(axis=1)) + best[:, 0]


def softmax(values: FloatArray) -> FloatArray:
    """(m, K): exp of each row (m, K), at a sum of one.

    >>> softmax(np.log([[1.0, 3.0]]))
    array([[0.25, 0.75]])
    """
    if isinstance(values, np.ndarray):
        return np.asarray(special.softmax(values, axis=1))
    weight = np.exp(values - values.max(axis=1, keepdims=True))
    return weight / weight.sum(axis=1, keepdims=True)


def directed(rows: FloatArray) -> FloatArray:
    """w/max(‖w‖, FLOOR) of each row: a direction, and close to zero what is close to zero.

    w/‖w‖ would blow rounding up to norm one. A residue ρ of a solve, about 1e-14 in these units,
    leaves ρ/FLOOR here, and a mechanism that cuts toward zero onto its grid σ/2^26 makes nothing of
    what is below FLOOR·σ/2^26 = 1.5e-14 σ.

    >>> directed(np.array([[3.0, 4.0], [1e-17, 0.0], [0.0, 0.0]]))
    array([[6.e-01, 8.e-01],
           [1.e-11, 0.e+00],
           [0.e+00, 0.e+00]])
    """
    found: FloatArray = rows / np.maximum(row_norms(rows), FLOOR)[:, None]
    return found


def or_zero(rows: FloatArray, kept: BoolArray | bool = True) -> FloatArray:
    """The rows that are kept and finite; zero instead of the others, by selection.

    >>> or_zero(np.array([[1.0], [np.nan], [2.0]]), np.array([True, True, False]))
    array([[1.],
           [0.],
           [0.]])
    """
    sound: BoolArray = np.isfinite(rows).all(axis=1) & kept  # type: ignore[assignment] # no scalar
    return rows if sound.all() else np.where(sound[:, None], rows, 0.0)
