"""Operations on the models of many tasks, (m, d), that give each row the same bits whatever m is.

A sum follows the memory's layout, a matrix product the number of rows: W @ M takes several rows at
a time and the rest through another kernel. Here a row is contiguous before it is summed, and a
product of its own when it is multiplied.
"""

from __future__ import annotations

import numpy as np

from tacit.arrays import BoolArray, FloatArray

FLOOR = 1e-6
"""The shortest row that is stretched to norm one, in units where data are about one in size."""


def row_sums(values: FloatArray) -> FloatArray:
    """(m,): the sum of each row of (m, d).

    >>> row_sums(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([3., 7.])
    """
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
    return np.asarray(np.matmul(np.ascontiguousarray(W)[:, None, :], M)[:, 0])


def each_times(M: FloatArray, W: FloatArray) -> FloatArray:
    """(m, k): M w of each row w (m, d) and its own M (m, k, d).

    >>> each_times(np.array([[[0.0, 1.0], [3.0, 0.0]]]), np.array([[1.0, 2.0]]))
    array([[2., 3.]])
    """
    return np.asarray(np.matmul(M, np.ascontiguousarray(W)[:, :, None])[:, :, 0])


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
    return np.asarray(rows / np.maximum(row_norms(rows), FLOOR)[:, None])


def or_zero(rows: FloatArray, kept: BoolArray | bool = True) -> FloatArray:
    """The rows that are kept and finite; zero instead of the others, by selection.

    >>> or_zero(np.array([[1.0], [np.nan], [2.0]]), np.array([True, True, False]))
    array([[1.],
           [0.],
           [0.]])
    """
    sound = np.asarray(np.isfinite(rows).all(axis=1) & kept)
    return rows if sound.all() else np.where(sound[:, None], rows, 0.0)
