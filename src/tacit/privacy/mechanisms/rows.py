"""What every mechanism does to the rows it is given: check, clip, put on the grid, sum.

Contributions are (units, ...): one row per unit. Nothing here looks at more than the clip norm
promises, whatever the rows are: a row that is not finite contributes zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit.errors import InvalidInput
from tacit.privacy.budget import Neighbours
from tacit.privacy.noise import RESOLUTION, FloatArray, IntArray

_BLOCK = 2**15  # numbers at a time: what they need stays in the cache
_MOST = 2.0**62  # half of what an int64 holds; the noise needs 2^30


# --- checks --------------------------------------------------------------------------------------


def check_positive(name: str, value: object) -> None:
    """Refuse a parameter whose square or inverse would leave the normal floating-point numbers."""
    if not (isinstance(value, int | float) and 1e-150 <= value <= 1e150):
        raise InvalidInput(f"{name} must be a number in [1e-150, 1e150], got {value!r}")


def by_neighbours(neighbours: Neighbours, *, replace: float, zero_out: float) -> float:
    """The number that belongs to the neighbour relation.

    >>> by_neighbours("zero-out", replace=2.0, zero_out=1.0)
    1.0
    """
    match neighbours:
        case "replace":
            return replace
        case "zero-out":
            return zero_out
    raise InvalidInput(f"neighbours must be 'replace' or 'zero-out', got {neighbours!r}")


def as_rows(contributions: ArrayLike, *, vectors: bool = False) -> FloatArray:
    """Contributions as floats, one row per unit; with vectors=True each row must be one vector."""
    rows = np.asarray(contributions, dtype=np.float64)
    if rows.ndim < 2 or (vectors and rows.ndim != 2):
        shape = "(units, dim)" if vectors else "(units, dim, ...)"
        raise InvalidInput(f"contributions must have shape {shape}, got {rows.shape}")
    return rows


def shared_clips(
    clip_norm: float, units: int, shares: ArrayLike | None, power: float = 1.0
) -> FloatArray:
    """The clip norm of each unit: clip_norm · share^power.

    A share s means that the unit reveals s times the event: power is 1 where the sensitivity is
    linear in the unit's clip norm, ½ where it is quadratic.

    >>> shared_clips(2.0, 2, [1.0, 0.25], 0.5)
    array([2., 1.])
    """
    if shares is None:
        return np.full(units, float(clip_norm))
    given = np.asarray(shares, dtype=np.float64)
    if given.shape != (units,) or not np.all((given >= 0) & (given <= 1)):
        raise InvalidInput(f"shares must be {units} numbers in [0, 1], got {given}")
    return np.asarray(clip_norm * given**power)


# --- clipping ------------------------------------------------------------------------------------


def rounding_slack(dim: int) -> float:
    """By how much, relatively, norms are clipped below the clip norm: max(2^−40, (dim+8) 2^−52).

    With u = 2^−53, a computed ℓ1 or ℓ2 norm of dim numbers is off by at most (dim+2)u relatively,
    in whatever order they are added; the quotient, the product, the step to the grid and the
    products of a covariance add less than 12u. So the exact norm, and the exact norm of what is
    made of it, stays below the clip norm: (dim+14)u ≤ max(2^−40, 2(dim+8)u).
    """
    return max(2.0**-40, (dim + 8) * 2.0**-52)


def clip_rows(rows: ArrayLike, norm: float | FloatArray, order: int = 2) -> FloatArray:
    """Each row scaled to an ℓ1 or ℓ2 norm of at most ``norm`` (one for all, or one for each).

    The bound holds in exact arithmetic (see ``rounding_slack``). Zero rows stay zero; a row with
    NaN or infinity becomes zero; rows are scaled by powers of two first, so nothing overflows.

    >>> clip_rows([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [np.nan, 1.0]], 1.0).round(9)
    array([[0.6, 0.8],
           [0.3, 0.4],
           [0. , 0. ],
           [0. , 0. ]])
    """
    x = as_rows(rows, vectors=True)
    finite = np.asarray(np.isfinite(x).all(axis=1))
    if not finite.all():
        x = np.where(finite[:, None], x, 0.0)
    limit = np.broadcast_to(np.asarray(norm) * (1 - rounding_slack(x.shape[1])), len(x))
    largest = np.max(np.abs(x), axis=1, initial=0.0)
    down = np.ldexp(1.0, -np.maximum(np.frexp(largest)[1], -1000))  # largest·down is in [½, 1)
    # In C order and not by einsum: the sum of a row must not depend on the rows beside it, and
    # einsum's does beyond 8,192 columns.
    y = np.multiply(x, down[:, None], order="C")
    size = np.sqrt((y * y).sum(axis=1)) if order == 2 else np.abs(y).sum(axis=1)
    with np.errstate(over="ignore"):
        long = size > limit * down
    factor = np.divide(limit, size, out=np.ones_like(size), where=long)
    return np.asarray(np.where(long[:, None], y, x) * factor[:, None])


# --- symmetric matrices as vectors ---------------------------------------------------------------


def svec(matrix: ArrayLike) -> FloatArray:
    """The upper triangle of a symmetric matrix, off-diagonal entries times √2: an isometry.

    ‖svec(A)‖₂ = ‖A‖_F, since each off-diagonal entry occurs twice in A.

    >>> bool(np.isclose(np.linalg.norm(svec([[1.0, 2.0], [2.0, 3.0]])), np.sqrt(18.0)))
    True
    """
    A = np.asarray(matrix, dtype=np.float64)
    return np.asarray(A[np.triu_indices(len(A))] * svec_weights(len(A)))


def smat(vector: ArrayLike) -> FloatArray:
    """The inverse of svec.

    >>> smat(svec([[1.0, 2.0], [2.0, 3.0]])).round(9)
    array([[1., 2.],
           [2., 3.]])
    """
    v = np.asarray(vector, dtype=np.float64)
    dim = (math.isqrt(8 * v.size + 1) - 1) // 2
    A = np.zeros((dim, dim))
    A[np.triu_indices(dim)] = v / svec_weights(dim)
    return np.asarray(A + np.triu(A, 1).T)


def svec_weights(dim: int) -> FloatArray:
    """1 for the diagonal, √2 off it, in the order of svec."""
    i, j = np.triu_indices(dim)
    return np.where(i == j, 1.0, math.sqrt(2))


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
    for block in _blocks(rows, rows.shape[1]):
        total += (block * inverse).astype(np.int64).sum(axis=0)  # the cast cuts toward zero
    return total


def svec_grid_sum(rows: FloatArray, scale: float, bound: float) -> IntArray:
    """Σ svec(w wᵀ) over the rows w, each term cut toward zero onto the grid; exact.

    >>> svec_grid_sum(np.array([[1.0, 0.5], [0.0, 2.0]]), 1.0, 4.0) / RESOLUTION
    array([1.        , 0.70710677, 4.25      ])
    """
    inverse = grid_steps(scale, bound, len(rows))
    dim = rows.shape[1]
    total = np.zeros(dim * (dim + 1) // 2, dtype=np.int64)
    for block in _blocks(rows, dim):
        W = np.ascontiguousarray(block.T)  # (dim, units of the block)
        offset = 0
        for a in range(dim):  # row a of the upper triangle
            products = W[a:] * (W[a] * inverse)
            products[1:] *= math.sqrt(2)
            total[offset : offset + dim - a] += products.astype(np.int64).sum(axis=1)
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


def _blocks(rows: FloatArray, width: int) -> Iterator[np.ndarray[Any, np.dtype[np.float64]]]:
    step = max(1, _BLOCK // max(1, width))
    for start in range(0, len(rows), step):
        yield rows[start : start + step]
