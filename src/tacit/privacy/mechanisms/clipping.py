"""What every mechanism does first to the rows it is given: check them, and clip them.

Contributions are (units, ...): one row per unit. Nothing here looks at more than the clip norm
promises, whatever the rows are: a row that is not finite contributes zero.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit.arrays import BoolArray, FloatArray, namespace, on_host
from tacit.errors import InvalidInput
from tacit.privacy.budget import Neighbours

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


def as_rows(contributions: Any, *, vectors: bool = False) -> Any:
    """Contributions as floats, one row per unit; with vectors=True each row must be one vector.
    Where they are on a device (tacit.device.arrays), a tensor there, of doubles already."""
    if hasattr(contributions, "tensor"):
        rows = contributions.tensor
    else:
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


def clip_rows(rows: Any, norm: float | FloatArray, order: int = 2) -> Any:
    """Each row scaled to an ℓ1 or ℓ2 norm of at most ``norm`` (one for all, or one for each).

    The bound holds in exact arithmetic (see ``rounding_slack``). Zero rows stay zero; a row with
    NaN or infinity becomes zero; rows are scaled by powers of two first, so nothing overflows.

    >>> clip_rows([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [np.nan, 1.0]], 1.0).round(9)
    array([[0.6, 0.8],
           [0.3, 0.4],
           [0. , 0. ],
           [0. , 0. ]])
    """
    x = rows if namespace(rows) is not np else as_rows(rows, vectors=True)
    limit = np.asarray(norm) * (1 - rounding_slack(x.shape[1]))
    return clipped(x, limit, order, namespace(x))[0]


def down_to_one(largest: FloatArray) -> FloatArray:
    """Powers of two d with largest·d in [½, 1): squares of rows so scaled do not leave the floats.

    >>> down_to_one(np.array([0.75, 1.0, 3.0]))
    array([1.  , 0.5 , 0.25])
    """
    return np.ldexp(1.0, -np.maximum(np.frexp(largest)[1], -1000))


def clipped(x: Any, limit: Any, order: int = 2, xp: Any = np) -> tuple[Any, BoolArray]:
    """x (n, width), doubles, each row scaled to a norm of at most ``limit``; and (n,), which rows
    stayed as they were. ``limit`` is below the clip norm by ``rounding_slack``.

    ``xp`` is numpy, or PyTorch with x one of its tensors, on whatever device: products and sums of
    two numbers there, each rounded by itself, and what is one number a row on the host, by numpy.
    So all give the same bits, and nothing in a row depends on the rows beside it, on their number,
    or on threads. (PyTorch's square roots, and its quotients of plain numbers, are rounded twice.)
    """
    if x.shape[1] == 0:
        return x, np.ones(len(x), dtype=bool)
    there = partial(xp.asarray, device=x.device)
    largest = on_host(xp.maximum(xp.amax(x, axis=1), -xp.amin(x, axis=1)))  # NaN, if one is
    finite = np.isfinite(largest)
    if not finite.all():
        x, largest = xp.where(there(finite)[:, None], x, 0.0), np.where(finite, largest, 0.0)
    down = down_to_one(largest)
    size = tree_norms(x * there(down)[:, None], order)
    with np.errstate(over="ignore"):
        long = size > limit * down
    factor = np.divide(limit, size, out=np.ones_like(size), where=long)
    rows = x * there(np.where(long, down, 1.0))[:, None]  # exactly, and then rounded once
    rows *= there(factor)[:, None]
    return rows, finite & ~long


def tree_norms(rows: Any, order: int = 2) -> FloatArray:
    """(n,), the ℓ1 or ℓ2 norm of each row (n, width > 0), which is used up: halves are added to
    halves until one column is left, ⌈log₂ width⌉ + 2 roundings at most. (A library's sum of rows
    may choose its order of addition by how many rows there are.)

    >>> tree_norms(np.array([[3.0, 0.0, 4.0], [0.0, 0.0, 0.0]]))
    array([5., 0.])
    """
    if order == 2:
        rows *= rows
    else:
        rows = abs(rows)
    width = rows.shape[1]
    while width > 1:
        half = (width + 1) // 2
        rows[:, : width - half] += rows[:, half:width]
        width = half
    found: FloatArray = on_host(rows[:, 0])
    return np.sqrt(found) if order == 2 else found
