"""What is declared about one column, and the coding that follows from it.

Scaling must not look at the data (a minimum is somebody's record), so ranges, categories and
what a missing value means are *declared*. Missing values follow Liang et al., Model-Protected
Multi-Task Learning, section 5.5.

Differs from the paper in
  1. a missing number becomes a declared value, not the sample mean: the mean leaks.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np

from tacit.arrays import Array, FloatArray
from tacit.errors import InvalidInput, MissingValues
from tacit.json_converter import fields_to_json
from tacit.machine import of_slices
from tacit.tasks.counting import MANY
from tacit.tasks.labels import (
    category,
    distinct,
    listed,
    missing_mask,
    python_values,
    require_declared,
)
from tacit.tasks.numeric_cells import (
    as_numbers,
    readable_numbers,
    require_finite,
    undeclared_numbers,
)

MOST_COLUMNS = 10_000
"""Of the columns that a learner sees. A covariance, or the normal equations of one task, has the
square of that in numbers, here 0.8 GB: more is refused before a row is coded or anything spent.
"""

_MISSING = -2  # the position of a missing value; -1 is an undeclared one


@dataclass(frozen=True)
class Column:
    """What is publicly known about one feature, or about the target.

    A range scales and clips, x_scaled = (x - centre) / half_width in [-1, 1]. Categories are coded
    in {-1, +1}, one column each; two of them need one column only, +1 for the second. Without
    either, numbers pass through; with bounds="private" until a run has released a range for them.
    `missing` is a number that replaces missing values or, with categories, "category": one more
    category without a column of its own, -1 in all others. With "middle" whatever is no finite
    number becomes the middle of the range. With "drop" a row whose value is missing or undeclared
    (no number, not finite, no such category) takes no part in a fit; whether it does is seen from
    its own cells alone.

    >>> Column(0, 100).transform(np.array([0.0, 75.0, 200.0]), "age").ravel()
    array([-1. ,  0.5,  1. ])
    >>> Column(categories=("no", "yes"), missing="category").names_out("smokes")
    ('smokes=no', 'smokes=yes')
    """

    low: float | None = None
    high: float | None = None
    categories: tuple[Hashable, ...] | None = None
    missing: float | Literal["category", "middle", "drop"] | None = None
    bounds: Literal["private"] | None = None

    def __post_init__(self) -> None:
        for name, value in _checked(self).items():
            object.__setattr__(self, name, value)

    @property
    def centre(self) -> float:
        """The middle of the range; 0 without one."""
        return 0.0 if self.low is None or self.high is None else self.low / 2 + self.high / 2

    @property
    def half_width(self) -> float:
        """Half the length of the range; 1 without one."""
        return 1.0 if self.low is None or self.high is None else self.high / 2 - self.low / 2

    def names_out(self, name: str) -> tuple[str, ...]:
        """The names of the columns that this one becomes."""
        return tuple(f"{name}={category}" for category in self.coded) or (name,)

    @property
    def is_open(self) -> bool:
        """Whether a run has still to release its range."""
        return self.bounds == "private"

    @property
    def drops(self) -> bool:
        """Whether rows without a declared value take no part in a fit."""
        return self.missing == "drop"

    def transform(self, values: Array, name: str, *, strict: bool = True) -> FloatArray:
        """The coded or scaled column, (N, 1), or (N, K) for K coded categories.

        NaN marks the rows to drop; there are none unless missing="drop". It also marks what becomes
        the middle of a range that is still open, and unless ``strict`` what would be an error.

        >>> Column(0, 10, missing="drop").transform(np.array([5, "n/a"], dtype=object), "age").T
        array([[ 0., nan]])
        """
        if self.categories is not None:
            return self._code(values, name, strict=strict and not self.drops)
        return self.scaled(self._numbers(values, name, strict=strict))[:, None]

    def _numbers(self, values: Array, name: str, *, strict: bool) -> FloatArray:
        if self.missing in ("drop", "middle") or not strict:
            numbers = readable_numbers(values, name)
            numbers = np.where(np.isfinite(numbers), numbers, np.nan)
        else:
            undeclared = self.low is None and not self.is_open
            numbers = (undeclared_numbers if undeclared else as_numbers)(values, name)
        if self.missing == "middle" and not self.is_open:
            numbers = np.where(np.isnan(numbers), self.centre, numbers)
        elif isinstance(self.missing, float):
            numbers = np.where(np.isnan(numbers), self.missing, numbers)
        if strict and self.missing not in ("drop", "middle"):
            require_finite(numbers[:, None], [name])
        return numbers

    def inverse(self, scaled: FloatArray) -> FloatArray:
        """x = centre + half_width · x_scaled, for a range."""
        return self.centre + self.half_width * scaled

    def to_dict(self) -> dict[str, Any]:
        """The declared fields, ready for JSON.

        >>> Column(0, 1).to_dict()
        {'low': 0.0, 'high': 1.0}
        """
        return {name: value for name, value in fields_to_json(self).items() if value is not None}

    @property
    def coded(self) -> tuple[Hashable, ...]:
        """The categories that get a column: of one or two, without missing, only the last."""
        if self.categories is None:
            return ()
        redundant = len(self.categories) <= 2 and self.missing != "category"
        return self.categories[-1:] if redundant else self.categories

    def _code(self, values: Array, name: str, *, strict: bool) -> FloatArray:
        found = _category_positions(values, self.categories or (), name)
        if strict:
            require_declared(found, values, self.categories or (), name)
        count = int((found == _MISSING).sum())
        if strict and count and self.missing is None:
            raise MissingValues(name, count)
        first = len(self.categories or ()) - len(self.coded)
        coded = np.arange(first, first + len(self.coded))
        signs = np.where(found[:, None] == coded, 1.0, -1.0)
        known = found >= 0 if self.missing != "category" else found != -1
        return np.where(known[:, None], signs, np.nan)

    def scaled(self, numbers: FloatArray) -> FloatArray:
        """Numbers clipped to the range and mapped to [-1, 1]; unchanged without a range."""
        if self.low is None or self.high is None:
            return numbers
        found, told = np.empty(len(numbers)), (self.low, self.high, self.centre, self.half_width)

        def scale(rows: slice) -> None:
            scaled_to_range(numbers[rows], *told, out=found[rows])

        of_slices(scale, len(found), MANY)
        return found


def scaled_to_range(
    numbers: FloatArray, low: Any, high: Any, centre: Any, by: Any, out: Any = None
) -> FloatArray:
    """Numbers clipped to a range, which is mapped to [-1, 1]; a range, or one for each column."""
    inside: FloatArray = np.clip(numbers, low, high, out=out)  # first, so that nothing overflows
    inside -= centre
    inside /= by
    return np.clip(inside, -1.0, 1.0, out=inside)


def _category_positions(values: Array, categories: Sequence[Hashable], name: str) -> Array:
    """The position of each row's category (N,); -1 if it is not declared, or _MISSING.

    Each cell is read by itself: one "n/a" makes a column of numbers text, and "1" is still 1; one
    True beside numbers makes no 1 true.
    """
    found = np.full(len(values), _MISSING, dtype=np.int64)
    present = ~missing_mask(values)
    cells, codes = _distinct_cells(values[present], f"column {name!r}")
    lookup = {known: position for position, known in enumerate(categories)}
    meant = [lookup.get(category(cell, categories), -1) for cell in cells]
    found[present] = np.array(meant, dtype=np.int64)[codes]
    return found


def _distinct_cells(values: Array, name: str) -> tuple[tuple[Hashable, ...], Array]:
    """As ``distinct``; but True, 1 and 1.0 are one label in Python, and three cells, and so are an
    hour that a clock shows twice two. Whichever came first would stand for all, and so say how
    other tasks' cells are read."""
    alike = distinct(values, name)
    if values.dtype.kind != "O":
        return alike
    cells = python_values(values)
    kinds = [(type(cell), cell, getattr(cell, "fold", 0)) for cell in cells]
    place = {kind: i for i, kind in enumerate(dict.fromkeys(kinds))}
    codes = np.fromiter(map(place.__getitem__, kinds), np.int64, len(kinds))
    return tuple(cell for _, cell, _ in place), codes


def _checked(column: Column) -> dict[str, Any]:
    """The fields of a Column, validated and in plain Python types."""
    low, high = _checked_range(column.low, column.high)
    categories = _checked_categories(column.categories)
    if low is not None and categories is not None:
        raise InvalidInput("declare a range or categories, not both")
    missing = _checked_missing(column, low, high, categories)
    if column.bounds not in (None, "private"):
        raise InvalidInput(f'bounds must be None or "private", got {column.bounds!r}')
    if column.bounds is not None and (low is not None or categories is not None):
        raise InvalidInput('bounds="private" is for a column of which nothing else is declared')
    return {"low": low, "high": high, "categories": categories, "missing": missing}


def _checked_range(low: object, high: object) -> tuple[float | None, float | None]:
    if low is None and high is None:
        return None, None
    if not (_is_finite(low) and _is_finite(high)):
        raise InvalidInput(f"a range needs two finite numbers, got low={low!r}, high={high!r}")
    bounds = float(low), float(high)  # type: ignore[arg-type]
    if not bounds[1] / 2 - bounds[0] / 2 > 0:
        raise InvalidInput(f"low must be below high, got low={low!r}, high={high!r}")
    return bounds


def _checked_categories(categories: object) -> tuple[Hashable, ...] | None:
    if categories is None:
        return None
    if not isinstance(categories, list | tuple):
        raise InvalidInput(f"categories must be a list or tuple, got {categories!r}")
    plain = [value.item() if isinstance(value, np.generic) else value for value in categories]
    for value in plain:
        if not isinstance(value, str | int) and not (
            isinstance(value, float) and _is_finite(value)
        ):
            raise InvalidInput(f"a category must be text, a number or a boolean, got {value!r}")
    if not plain or len(set(plain)) < len(plain):
        raise InvalidInput(f"categories must be given and differ, got {listed(plain)}")
    return tuple(plain)


def _checked_missing(
    column: Column, low: float | None, high: float | None, categories: object
) -> float | str | None:
    missing: object = column.missing
    if missing is None or (isinstance(missing, str) and missing == "drop"):
        return missing
    if isinstance(missing, str) and missing == "middle":
        if low is None and column.bounds is None:
            raise InvalidInput('missing="middle": only a range has a middle')
        return missing
    is_category = isinstance(missing, str) and missing == "category"
    if is_category != (categories is not None):
        raise InvalidInput(
            f'missing={missing!r}: "category" goes with categories, a number with any other column'
        )
    if is_category:
        return "category"
    if not _is_finite(missing):
        raise InvalidInput(
            f'missing must be a finite number, "category", "middle" or "drop", got {missing!r}'
        )
    value = float(missing)  # type: ignore[arg-type]
    if low is not None and high is not None and not low <= value <= high:
        raise InvalidInput(f"missing={value:g} lies outside the range ({low:g}, {high:g})")
    return value


def _is_finite(value: object) -> bool:
    try:
        return isinstance(value, Real) and math.isfinite(float(value))
    except OverflowError:
        return False


def require_width(names: Sequence[str], widths: Sequence[int]) -> None:
    """Refuse more columns than a learner can take, naming the one that becomes the most.

    >>> require_width(["age", "plan"], [1, 20_000])
    Traceback (most recent call last):
    tacit.errors.InvalidInput: 20,001 columns to learn from, 'plan' alone becomes 20,000; \
expected at most 10,000: declare fewer categories, or leave columns out
    """
    if (total := sum(widths)) > MOST_COLUMNS:
        most = max(widths)
        widest = f", {names[list(widths).index(most)]!r} alone becomes {most:,}" * (most > 1)
        raise InvalidInput(
            f"{total:,} columns to learn from{widest}; expected at most {MOST_COLUMNS:,}: "
            "declare fewer categories, or leave columns out"
        )
