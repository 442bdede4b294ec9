"""Isolation: what one unit contributes is, bit for bit, a function of its own row.

Every sensitivity assumes that changing one unit changes one contribution. A library's matrix
product breaks that: ``X @ w`` takes rows in groups, and those that are left over go through another
kernel, so that one row more or fewer rounds up to three others differently (OpenBLAS 0.3.31). An
adversary who chooses w makes that rounding as large as the clip norm: the sum of a node's messages
moved by 7C where C was claimed (docs/privacy.md).

``products`` multiplies and adds elementwise, one feature after the other: IEEE operations, each
rounded by itself and all in one order, so that there is nothing a neighbour could change.
``require_alone`` holds what was computed in a batch against the same alone, in every run.
"""

from __future__ import annotations

import platform
import secrets
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tacit.arrays import FloatArray
from tacit.errors import IsolationError

_BLOCK = 2**14  # numbers at a time: what they need stays in the cache


def products(X: FloatArray, A: FloatArray) -> FloatArray:
    """(n, Z): X Aᵀ, each row by itself, Σ_j x_j a_zj in the order of j; X is (n, d), A is (Z, d).

    Infinities and NaN stay in their row, and warn nobody.

    >>> products(np.array([[1.0, 2.0], [np.inf, 0.0]]), np.array([[3.0, 4.0]]))
    array([[11.],
           [inf]])
    """
    out = np.empty((len(X), len(A)))
    step = max(1, _BLOCK // max(1, len(A)))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for start in range(0, len(X), step):
            block = slice(start, start + step)
            out[block] = _summed(X[block], A)
    return out


def _summed(rows: FloatArray, A: FloatArray) -> FloatArray:
    """One block; features outside, rows inside: the inner loops are long, and elementwise.

    Where rows are few, many features are multiplied at once; they are added one after the other.
    """
    total = np.zeros((len(A), len(rows)))
    columns, weights = np.ascontiguousarray(rows.T), A.T
    step = max(1, 2 * _BLOCK // max(1, total.size))
    for start in range(0, len(columns), step):
        some = slice(start, start + step)
        for term in np.multiply(weights[some, :, None], columns[some, None], order="C"):
            total += term
    return total.T


def require_alone(what: str, compute: Callable[[slice], Any], together: Any) -> None:
    """IsolationError unless one row, chosen in secret, has the same bits alone.

    ``compute`` makes the rows of a slice by themselves; ``together`` (n, ...) was made of all.

    >>> X = np.arange(6.0).reshape(3, 2)
    >>> require_alone("a product", lambda rows: products(X[rows], X), products(X, X))
    """
    if not len(together):
        return
    i = secrets.randbelow(len(together))
    alone = compute(slice(i, i + 1))[0]
    if not np.array_equal(alone, together[i], equal_nan=True):
        raise IsolationError(what, installation())


def installation() -> str:
    """What bits depend on: the machine, numpy and PyTorch (where it is at work), and their linear
    algebra with its threads."""
    from threadpoolctl import threadpool_info

    torch = sys.modules.get("torch")
    used = [f"numpy {np.__version__}"] + ([f"PyTorch {torch.__version__}"] if torch else [])

    libraries = [
        f"{found['internal_api']} {found['version']} on {found['num_threads']} threads"
        for found in threadpool_info()
    ]
    return ", ".join([platform.machine(), *used, *libraries])
