"""The cells of a column as numbers: each by itself, or refused by its row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tacit.arrays import Array, FloatArray
from tacit.errors import BadCell, InvalidInput, MissingValues
from tacit.tasks.labels import NUMERIC, missing_mask


def undeclared_numbers(values: Array, name: str) -> FloatArray:
    """Those of a column of which nothing was declared."""
    try:
        return as_numbers(values, name)
    except BadCell as error:
        how = f"; categories are declared, ranges={{{name!r}: [...]}}, or coded as numbers"
        raise BadCell(error.told + how, error.row) from None


def as_numbers(values: Array, name: str) -> FloatArray:
    """Numbers and numeric text as float64, missing as NaN; anything else is refused by row.

    >>> as_numbers(np.array([1, None, "2.5"], dtype=object), "age")
    array([1. , nan, 2.5])
    """
    kind = values.dtype.kind
    if kind in NUMERIC:
        return float64_of(values)
    if kind == "c":
        raise InvalidInput(f"Complex data not supported: column {name!r} is {values.dtype}")
    if kind not in "OUST":
        raise InvalidInput(f"column {name!r} is {values.dtype}; expected numbers")
    return _parsed(values, name)


def readable_numbers(values: Array, name: str) -> FloatArray:
    """As `as_numbers`, with NaN for every cell that holds no number.

    >>> readable_numbers(np.array(["1", "n/a"]), "age")
    array([ 1., nan])
    """
    try:
        return as_numbers(values, name)
    except InvalidInput:
        if values.dtype.kind not in "OUST":
            raise  # a whole column of dates: that is no matter of one row
    cells = values.astype(object)
    cells[~np.fromiter(map(_is_number, cells), np.bool_, len(cells))] = None
    return as_numbers(cells, name)


def require_finite(matrix: FloatArray, names: Sequence[str]) -> None:
    """Refuse NaN and infinity in a matrix (N, d), naming the column."""
    if np.isfinite(matrix).all():
        return
    missing = np.isnan(matrix).sum(axis=0)
    if missing.any():
        j = int(np.argmax(missing > 0))
        raise MissingValues(names[j], int(missing[j]))
    row, j = np.argwhere(np.isinf(matrix))[0]
    raise BadCell(
        f"column {names[j]!r} is infinite (inf) in row {{row}}; expected finite", int(row)
    )


def float64_of(values: Array) -> FloatArray:
    """Numbers of any width."""
    with np.errstate(over="ignore"):  # a long double may become inf, which is then refused
        return np.asarray(values, dtype=np.float64)


def _parsed(values: Array, name: str) -> FloatArray:
    filled = values.astype(object)
    filled[missing_mask(filled)] = np.nan
    try:
        return filled.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        row = next(row for row, value in enumerate(filled) if not _is_number(value))
        raise BadCell(
            f"column {name!r} holds {filled[row]!r} in row {{row}}; expected a number", row
        ) from None


def _is_number(value: object) -> bool:
    cell = np.empty(1, dtype=object)
    cell[0] = value
    try:
        cell.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        return False
    return True
