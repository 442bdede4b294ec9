"""The declared domain of an encoder: rows are cut to it at home, and nobody is told."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit.errors import InvalidInput
from tacit.privacy.noise import FloatArray
from tacit.tasks import as_schema

Domain = tuple[FloatArray, FloatArray] | None
"""Low and high, (n,) each, infinite where nothing was declared; None: nothing was declared."""


def declared(ranges: Any, X: Any, names: Any) -> Domain:
    """The domain that ``ranges`` declares: {column: (low, high)}, or the range of the public rows.

    >>> declared({1: (0, 2)}, np.zeros((1, 2)), None)
    (array([-inf,   0.]), array([inf,  2.]))
    """
    if ranges is None:
        return None
    n = X.shape[1]
    if isinstance(ranges, str):
        if ranges != "from-data":
            raise InvalidInput(f'ranges must be None, "from-data" or a mapping, got {ranges!r}')
        return tuple(_flat(side) for side in (X.min(axis=0), X.max(axis=0)))  # type: ignore[return-value] # a pair
    schema = as_schema(ranges, [f"x{j}" for j in range(n)] if names is None else names)
    if any(column.coded or column.missing is not None for column in schema.columns):
        raise InvalidInput("an encoder's ranges are intervals (low, high); code categories first")
    low = [-np.inf if column.low is None else column.low for column in schema.columns]
    high = [np.inf if column.high is None else column.high for column in schema.columns]
    return np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)


def _flat(side: Any) -> FloatArray:
    dense = side.toarray() if hasattr(side, "toarray") else side
    return np.asarray(dense, dtype=np.float64).ravel()


def bounds(domain: Domain, n: int) -> tuple[FloatArray, FloatArray]:
    """Low and high as arrays, infinite without a declaration."""
    return (np.full(n, -np.inf), np.full(n, np.inf)) if domain is None else domain


def clipped(X: Any, domain: Domain) -> Any:
    """Rows inside the domain. Sparse rows stay sparse: the ranges must hold zero."""
    if domain is None:
        return X
    low, high = domain
    if isinstance(X, np.ndarray):
        return np.clip(X, low, high)
    if np.any((low > 0) | (high < 0)):
        column = int(np.argmax((low > 0) | (high < 0)))
        raise InvalidInput(
            f"column {column} of sparse rows is declared in [{low[column]:g}, {high[column]:g}], "
            "which does not hold zero; pass dense rows"
        )
    out = X.copy()
    out.data = np.clip(X.data, low[X.indices], high[X.indices])
    return out


def outside(X: Any, domain: Domain) -> int:
    """How many rows lie outside: for simulations only."""
    if domain is None:
        return 0
    low, high = domain
    if hasattr(X, "tocsr"):
        rows = X.tocsr()
        out = (rows.data < low[rows.indices]) | (rows.data > high[rows.indices])
        return len(np.unique(np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))[out]))
    values = np.asarray(X, dtype=np.float64)
    return int(np.any((values < low) | (values > high), axis=1).sum())
