"""The public grid of secure sums: rows cut onto it toward zero, and added up in whole numbers.

A symmetric matrix is released as a vector (``svec``), in whose coordinates its noise is isotropic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit.arrays import FloatArray, IntArray, namespace, on_host
from tacit.errors import InvalidInput
from tacit.privacy.noise import RESOLUTION

_BLOCK = 2**15  # numbers at a time: what they need stays in the cache
_MOST = 2.0**62  # half of what an int64 holds; the noise needs 2^30


# --- symmetric matrices as vectors ---------------------------------------------------------------


def svec(matrix: ArrayLike) -> FloatArray:
    """The upper triangle of a symmetric matrix, off-diagonal entries times √2: an isometry.

    ‖svec(A)‖₂ = ‖A‖_F, since each off-diagonal entry occurs twice in A.

    >>> bool(np.isclose(np.linalg.norm(svec([[1.0, 2.0], [2.0, 3.0]])), np.sqrt(18.0)))
    True
    """
    A = np.asarray(matrix, dtype=np.float64)
    i, j, weights = _triangle(len(A))
    return np.asarray(A[i, j] * weights)


def each_svec(matrices: FloatArray) -> FloatArray:
    """(m, d(d+1)/2): svec of each of (m, d, d).

    >>> each_svec(np.array([[[1.0, 0.0], [0.0, 3.0]]]))
    array([[1., 0., 3.]])
    """
    i, j, weights = _triangle(matrices.shape[1])
    flat = matrices.reshape(len(matrices), -1)
    found: FloatArray = flat.take(i * matrices.shape[1] + j, axis=1) * weights
    return found


def smat(vector: ArrayLike) -> FloatArray:
    """The inverse of svec.

    >>> smat(svec([[1.0, 2.0], [2.0, 3.0]])).round(9)
    array([[1., 2.],
           [2., 3.]])
    """
    v = np.asarray(vector, dtype=np.float64)
    dim = triangle_side(v.size)
    i, j, weights = _triangle(dim)
    A = np.empty((dim, dim))
    A[i, j] = A[j, i] = v / weights
    return A


def triangle_side(size: int) -> int:
    """d of the d×d matrix whose upper triangle has so many entries.

    >>> triangle_side(6)
    3
    """
    return (math.isqrt(8 * size + 1) - 1) // 2


@lru_cache(maxsize=4)
def _triangle(dim: int) -> tuple[IntArray, IntArray, FloatArray]:
    """Rows and columns of the upper triangle; and 1 for the diagonal, √2 off it."""
    i, j = np.triu_indices(dim)
    return i, j, np.where(i == j, 1.0, math.sqrt(2))


# --- the grid ------------------------------------------------------------------------------------


def grid(scale: float) -> float:
    """The public grid of noise with this scale; an exact quotient, since R is a power of two."""
    return scale / RESOLUTION


def grid_sum(rows: FloatArray, scale: float, bound: float) -> IntArray:
    """Σ of the rows, each coordinate cut toward zero onto the grid, in grid steps; exact.

    Cutting toward zero lowers every |coordinate|, so no norm of a row rises. ``bound`` is the
    largest coordinate that clipping leaves.

    >>> grid_sum(np.array([[1.0, -1.0], [0.25, 0.0]]), 1.0, 1.0) / RESOLUTION
    array([ 1.25, -1.  ])
    """
    inverse = grid_steps(scale, bound, len(rows))
    total = np.zeros(rows.shape[1], dtype=np.int64)
    xp = namespace(rows)
    for block in blocks(rows, _BLOCK if xp is np else len(rows) * rows.shape[1]):
        total += on_host(cut(block, inverse, xp).sum(axis=0))
    return total


def cut(rows: Any, steps: Any, xp: Any = np) -> Any:
    """rows · steps in whole numbers, cut toward zero; by numpy, or by PyTorch of its tensors.

    >>> cut(np.array([1.5, -1.5]), 1.0)
    array([ 1, -1])
    """
    return xp.asarray(rows * steps, dtype=xp.int64)  # the cast cuts toward zero


def grid_cut(rows: FloatArray, scale: float, bound: float) -> IntArray:
    """Each row by itself, cut toward zero onto the grid, in grid steps.

    >>> grid_cut(np.array([[1.0, -0.5]]), 1.0, 1.0) / RESOLUTION
    array([[ 1. , -0.5]])
    """
    return np.asarray(cut(rows, grid_steps(scale, bound, 1)))


def svec_grid_sum(rows: FloatArray, scale: float, bound: float) -> IntArray:
    """Σ svec(w wᵀ) over the rows w, each term cut toward zero onto the grid; exact.

    >>> svec_grid_sum(np.array([[1.0, 0.5], [0.0, 2.0]]), 1.0, 4.0) / RESOLUTION
    array([1.        , 0.70710677, 4.25      ])
    """
    inverse = grid_steps(scale, bound, len(rows))
    dim = rows.shape[1]
    total = np.zeros(dim * (dim + 1) // 2, dtype=np.int64)
    xp = namespace(rows)
    for block in blocks(rows, _BLOCK if xp is np else len(rows) * rows.shape[1]):
        W = np.ascontiguousarray(block.T) if xp is np else block.T  # (dim, units of the block)
        offset = 0
        for a in range(dim):  # row a of the upper triangle
            products = W[a:] * (W[a] * inverse)
            products[1:] *= math.sqrt(2)
            total[offset : offset + dim - a] += on_host(cut(products, 1.0, xp).sum(axis=1))
            offset += dim - a
    return total


def snapped(values: FloatArray, scale: float) -> FloatArray:
    """The nearest points of the grid.

    >>> float(snapped(np.array(0.1), 1.0) * RESOLUTION)
    6710886.0
    """
    return np.asarray(np.rint(values / grid(scale)) * grid(scale))


def grid_steps(scale: float, bound: float, units: int) -> float:
    """Grid steps in one unit of the data; refuses if a sum might not fit 64-bit integers."""
    inverse = RESOLUTION / scale
    if not units * bound * inverse <= _MOST:
        raise InvalidInput(
            f"noise of scale {scale:g} is too small for secure sums of {units} units clipped to "
            f"{bound:g} each: units × bound / scale must be below 2^36"
        )
    return inverse


def blocks(rows: FloatArray, numbers: int = _BLOCK) -> Iterator[FloatArray]:
    """Rows (n, width) in their order, about so many numbers at a time."""
    step = max(1, numbers // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        yield rows[start : start + step]
