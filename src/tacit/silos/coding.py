"""How the declared columns of a table become cells and coordinates, and how models come back.

A task's rows hold declared numbers in [−1, 1] and, for a declared category, one column of ±1 for
each of its levels (tacit.tasks). A silo's statistic wants the level itself (a *cell*), and models
are found in its Helmert coordinates v, in which no direction is redundant (block_moments.py). Both
are affine functions of what the rows hold, v = Lᵀx + c, so that a model comes back without loss:
βᵀ(1, v) = (Lβ)ᵀx + β₀ + cᵀβ.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit.arrays import FloatArray, IntArray
from tacit.errors import InvalidInput
from tacit.privacy.mechanisms.block_moments import NUMBER, helmert
from tacit.tasks import Column, Schema


@dataclass(frozen=True)
class Coding:
    """The columns of X as they were declared.

    >>> from tacit.tasks import as_schema
    >>> declared = as_schema({"age": (0, 100), "plan": ["a", "b", "c"], "target": (0, 1)},
    ...                      ["age", "plan"])
    >>> coding = coding_of(declared)
    >>> coding.levels, coding.cells(declared.transform([[25, "b"], [100, "c"]]))
    ((0, 3), array([[-0.5,  1. ],
           [ 1. ,  2. ]]))
    """

    columns: tuple[Column, ...]

    @property
    def levels(self) -> tuple[int, ...]:
        """The levels of each column: how many categories, a missing one among them, or NUMBER."""
        return tuple(
            NUMBER if column.categories is None else _levels(column) for column in self.columns
        )

    def cells(self, X: FloatArray) -> FloatArray:
        """(N, B): each row's category by its number, or its number; X (N, d) is coded."""
        cells = [_cell(column, part) for column, part in self._parts(X)]
        return np.column_stack(cells) if cells else np.zeros((len(X), 0))

    @cached_property
    def to_rows(self) -> tuple[FloatArray, FloatArray]:
        """L (d, q) and c (q,)."""
        parts = [_affine(column) for column in self.columns]
        d, q = (sum(part[0].shape[axis] for part in parts) for axis in (0, 1))
        L, row, place = np.zeros((d, q)), 0, 0
        for block, _ in parts:
            L[row : row + block.shape[0], place : place + block.shape[1]] = block
            row, place = row + block.shape[0], place + block.shape[1]
        return L, np.concatenate([np.zeros(0), *(shift for _, shift in parts)])

    def models(self, beta: FloatArray) -> FloatArray:
        """(m, d + 1) for rows X, the intercept last, of models (m, 1 + q) for (1, v)."""
        L, c = self.to_rows
        return np.column_stack([beta[:, 1:] @ L.T, beta[:, 0] + beta[:, 1:] @ c])

    def covariance(self, spread: FloatArray) -> FloatArray:
        """(d + 1, d + 1) of the same models, of a covariance (1 + q, 1 + q)."""
        half = self.models(np.eye(len(spread))).T  # (d + 1, 1 + q): a linear map
        return half @ spread @ half.T

    def _parts(self, X: FloatArray) -> Iterator[tuple[Column, FloatArray]]:
        stop = 0
        for column in self.columns:
            start, stop = stop, stop + max(1, len(column.coded))
            yield column, X[:, start:stop]


def coding_of(schema: Schema) -> Coding:
    """The coding of a schema; InvalidInput where a range is missing.

    Whom a silo protects stands in its rows, and how far one row can move a sum is how far its cells
    can: without declared ranges there is no noise that would hide it.
    """
    named = (*zip(schema.feature_names, schema.columns, strict=True), ("target", schema.target))
    for name, column in named:
        if column.low is None and column.categories is None:
            raise InvalidInput(
                f"{name!r} has no declared range: where people inside a silo are protected, every "
                f"column needs one, as ranges={{{name!r}: (low, high)}} or a list of categories"
            )
    return Coding(schema.columns)


def _levels(column: Column) -> int:
    return len(column.categories or ()) + (column.missing == "category")


def _cell(column: Column, part: FloatArray) -> FloatArray:
    """(N,) of the columns (N, K) that one declared column became."""
    if column.categories is None:
        return part[:, 0]
    if len(column.coded) < len(column.categories):  # one column for the last of two
        return np.where(part[:, 0] > 0, 1.0, 0.0)
    missing = len(column.categories)  # the level after the last; there is none without one
    found: IntArray = np.where((part > 0).any(axis=1), part.argmax(axis=1), missing)
    return found.astype(np.float64)


def _affine(column: Column) -> tuple[FloatArray, FloatArray]:
    """L (K, q) and c (q,) of one column."""
    if column.categories is None:
        return np.ones((1, 1)), np.zeros(1)
    H = helmert(_levels(column))
    shown = len(column.coded)
    if shown < _levels(column) and column.missing != "category":
        return H[-1:].copy(), np.zeros(H.shape[1])  # ±1 as they are
    base = H[shown] if column.missing == "category" else np.zeros(H.shape[1])
    L = (H[:shown] - base) / 2
    return L, base + L.sum(axis=0)
