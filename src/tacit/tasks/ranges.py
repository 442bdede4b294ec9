"""What somebody declares about the columns of a table, as a schema."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from tacit.arrays import Array
from tacit.errors import InvalidInput, nearest
from tacit.tasks.columns import Column, require_width
from tacit.tasks.labels import distinct, missing_mask
from tacit.tasks.numeric_cells import as_numbers
from tacit.tasks.schema import Schema
from tacit.tasks.tables import as_table, as_vector
from tacit.tasks.targets import TARGET, name_of_target, target_columns, target_names

Declaration: TypeAlias = Column | tuple[float, float] | Sequence[Hashable] | Literal["private"]
Ranges: TypeAlias = Mapping[Any, Declaration]
"""Column name, column index or "target" -> a Column, a range (low, high), a list of categories, or
"private": a range that the run releases.

"target" declares y, and so does the name that y has itself, as a column of a frame; a feature
called "target" is declared by its index. Several targets are declared by the names of y's columns,
or as "target0", "target1", ...
"""


def as_schema(
    ranges: Ranges | Literal["from-data", "private"] | None,
    feature_names: Sequence[str],
    X: object = None,
    y: object = None,
) -> Schema:
    """The schema that `ranges` declares for these columns.

    None declares nothing: everything passes through. "private" leaves every range to be released
    by the run, and so does that word for one column. "from-data" measures the ranges and
    categories of X, and of y if it is given, and says so in `from_data`.

    >>> as_schema({"age": (0, 100)}, ["age", "income"]).scale
    array([50.,  1.])
    """
    names, of_y = tuple(str(name) for name in feature_names), target_names(y)
    require_width(names, [1] * len(names))
    if isinstance(ranges, str) and ranges == "private":
        features = (_as_column(ranges, ""),) * len(names)
        first, *more = [_as_column(ranges, TARGET)] * len(of_y)
        return Schema(names, features, first, more_targets=tuple(more))
    if isinstance(ranges, str):
        return _measured_schema(ranges, names, X, y)
    columns, targets = [Column()] * len(names), dict.fromkeys(of_y, Column())
    seen: dict[int, object] = {}
    own, declared = name_of_target(y), set[str]()
    own = None if own in names else own
    for key, declaration in _items(ranges):
        called = TARGET if own is not None and key == own else key
        if isinstance(called, str) and called in of_y:
            if called in declared:
                raise InvalidInput(f"y is declared twice: {TARGET!r} and {own!r}")
            declared.add(called)
            targets[called] = _as_column(declaration, TARGET)
            continue
        j = _column_index(key, names)
        if j in seen:
            raise InvalidInput(f"column {names[j]!r} is declared twice: {seen[j]!r} and {key!r}")
        seen[j] = key
        columns[j] = _as_column(declaration, names[j])
    first, *more = targets.values()
    return Schema(names, tuple(columns), first, more_targets=tuple(more))


def _items(ranges: object) -> list[tuple[object, object]]:
    if ranges is None:
        return []
    if not isinstance(ranges, Mapping):
        raise InvalidInput(
            f'ranges must be None, "private", "from-data" or a mapping from columns, got {ranges!r}'
        )
    return list(ranges.items())


def _column_index(key: object, names: tuple[str, ...]) -> int:
    if isinstance(key, str) and key in names:
        return names.index(key)
    if isinstance(key, int | np.integer) and 0 <= key < len(names):
        return int(key)
    if isinstance(key, str):
        near = nearest(key, names) or f"; there are {names[0]!r} to {names[-1]!r}"
        raise InvalidInput(f"ranges declare an unknown column {key!r}{near}")
    raise InvalidInput(f"ranges declare column {key!r}; expected a name or 0 to {len(names) - 1}")


def _as_column(declaration: object, name: str) -> Column:
    try:
        if isinstance(declaration, Column):
            return declaration
        if isinstance(declaration, list):
            return Column(categories=tuple(declaration))
        if isinstance(declaration, str) and declaration == "private":
            return Column(bounds="private", missing="drop" if name == TARGET else "middle")
        if isinstance(declaration, tuple) and len(declaration) == 2:
            return Column(*declaration)
    except InvalidInput as error:
        raise InvalidInput(f"column {name!r}: {error}") from None
    raise InvalidInput(
        f"column {name!r}: expected a Column, a range (low, high), a list of categories or "
        f"'private', got {declaration!r}"
    )


def _measured_schema(ranges: str, names: tuple[str, ...], X: object, y: object) -> Schema:
    if ranges != "from-data":
        raise InvalidInput(
            f'ranges must be None, "private", "from-data" or a mapping, got {ranges!r}'
        )
    if X is None:
        raise InvalidInput('ranges="from-data" needs the data: as_schema(ranges, names, X, y)')
    table = as_table(X).arranged_as(names)
    measured = zip(table.values, names, strict=True)
    columns = tuple(_measured(*pair) for pair in measured)
    given = {} if y is None else target_columns(y)
    first, *more = [_measured(as_vector(v, "y"), TARGET) for v in given.values()] or [Column()]
    return Schema(names, columns, first, from_data=True, more_targets=tuple(more))


def _measured(values: Array, name: str) -> Column:
    try:
        numbers = as_numbers(values, name)
    except InvalidInput:
        return _as_column(list(distinct(values[~missing_mask(values)], name)[0]), name)
    present = numbers[np.isfinite(numbers)]
    if len(present) == 0:
        return Column()
    return _measured_range(float(present.min()), float(present.max()))


def _measured_range(low: float, high: float) -> Column:
    if high / 2 - low / 2 > 0:
        return Column(low, high)
    around, most = max(1.0, abs(low) / 2), np.finfo(np.float64).max  # a constant maps to about 0
    return Column(max(low - around, -most), min(high + around, most))
