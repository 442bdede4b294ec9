"""The declared domain of an encoder: rows are cut to it at home, and nobody is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.arrays import FloatArray
from tacit.errors import InvalidInput
from tacit.tasks import as_schema


@dataclass(frozen=True, eq=False)
class Domain:
    """An interval a column."""

    low: FloatArray  # (n,), −∞ where nothing was declared
    high: FloatArray  # (n,), ∞ likewise

    @classmethod
    def everything(cls, n: int) -> Domain:
        """Nothing was declared."""
        return cls(np.full(n, -np.inf), np.full(n, np.inf))

    @classmethod
    def declared(cls, ranges: Any, X: Any, names: Any) -> Domain:
        """What ``ranges`` says: {column: (low, high)}, or "from-data" for that of public rows.

        >>> Domain.declared({1: (0, 2)}, np.zeros((1, 2)), None)
        Domain(low=array([-inf,   0.]), high=array([inf,  2.]))
        """
        n = X.shape[1]
        if ranges is None:
            return cls.everything(n)
        if isinstance(ranges, str):
            if ranges != "from-data":
                raise InvalidInput(f'ranges must be None, "from-data" or a mapping, got {ranges!r}')
            return cls(_flat(X.min(axis=0)), _flat(X.max(axis=0)))
        schema = as_schema(ranges, [f"x{j}" for j in range(n)] if names is None else names)
        if any(column.coded or column.missing is not None for column in schema.columns):
            raise InvalidInput(
                "an encoder's ranges are intervals (low, high); code categories first"
            )
        low = [-np.inf if column.low is None else column.low for column in schema.columns]
        high = [np.inf if column.high is None else column.high for column in schema.columns]
        return cls(np.array(low, dtype=np.float64), np.array(high, dtype=np.float64))

    @property
    def bounded(self) -> bool:
        """Was anything declared?"""
        return bool(np.isfinite(self.low).any() or np.isfinite(self.high).any())

    def clipped(self, X: Any) -> Any:
        """Rows inside the domain. Sparse rows stay sparse: the ranges must hold zero."""
        if not self.bounded:
            return X
        if isinstance(X, np.ndarray):
            return np.clip(X, self.low, self.high)
        without_zero = (self.low > 0) | (self.high < 0)
        if np.any(without_zero):
            j = int(np.argmax(without_zero))
            raise InvalidInput(
                f"column {j} of sparse rows is declared in [{self.low[j]:g}, {self.high[j]:g}], "
                "which does not hold zero; pass dense rows"
            )
        out = X.copy()
        out.data = np.clip(X.data, self.low[X.indices], self.high[X.indices])
        return out

    def outside(self, X: Any) -> int:
        """How many rows lie outside: for simulations only."""
        if not self.bounded:
            return 0
        if hasattr(X, "tocsr"):
            rows = X.tocsr()
            out = (rows.data < self.low[rows.indices]) | (rows.data > self.high[rows.indices])
            return len(np.unique(np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))[out]))
        values = np.asarray(X, dtype=np.float64)
        return int(np.any((values < self.low) | (values > self.high), axis=1).sum())

    @classmethod
    def of_pairs(cls, pairs: Sequence[Sequence[float]]) -> Domain:
        """Inverse of pairs."""
        sides = np.array(pairs, dtype=np.float64)
        sides[np.abs(sides) == np.finfo(np.float64).max] *= np.inf
        return cls(sides[:, 0], sides[:, 1])

    def pairs(self) -> list[list[float]]:
        """[low, high] by column, as JSON: the largest numbers where nothing was declared."""
        most = np.finfo(np.float64).max
        found: list[list[float]] = np.clip(
            np.column_stack([self.low, self.high]), -most, most
        ).tolist()
        return found


def _flat(side: Any) -> FloatArray:
    dense = side.toarray() if hasattr(side, "toarray") else side
    return np.asarray(dense, dtype=np.float64).ravel()
