"""How the columns of a table become the columns that a learner sees."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from tacit.arrays import Array, FloatArray
from tacit.errors import InvalidInput, nearest
from tacit.tasks.columns import Column
from tacit.tasks.labels import Classes, distinct, missing_mask
from tacit.tasks.tables import as_numbers, as_table, as_vector, require_finite
from tacit.tasks.targets import TARGET, class_pair, class_signs, target_numbers

Declaration: TypeAlias = Column | tuple[float, float] | Sequence[Hashable]
Ranges: TypeAlias = Mapping[Any, Declaration]
"""Column name, column index or "target" -> a Column, a range (low, high), or a list of categories.

"target" declares y; a feature of that name is declared by its index.
"""

MOST_COLUMNS = 10_000
"""Of the columns that a learner sees. A covariance, or the normal equations of one task, has the
square of that in numbers, here 0.8 GB: more is refused before a row is coded or anything spent.
"""


@dataclass(frozen=True)
class Schema:
    """How the columns of X become the columns that a learner sees. Made by `as_schema`.

    With d_out columns going out, offset and scale (d_out,) are centre and half width of a declared
    range, 0 and 1 for every other column:

        x_scaled = (x - offset) / scale,    y_scaled = (y - target.centre) / target_scale,

    both clipped to [-1, 1].

    >>> schema = as_schema({"age": (0, 100), "plan": ["a", "b", "c"]}, ["age", "plan"])
    >>> schema.transform([[25, "b"], [100, "c"]])
    array([[-0.5, -1. ,  1. , -1. ],
           [ 1. , -1. , -1. ,  1. ]])
    >>> schema.feature_names_out
    ('age', 'plan=a', 'plan=b', 'plan=c')
    """

    feature_names: tuple[str, ...]
    columns: tuple[Column, ...]
    target: Column = field(default_factory=Column)
    from_data: bool = False  # measured, not declared: no guarantee that rests on it is proven

    def __post_init__(self) -> None:
        if len(self.columns) != len(self.feature_names):
            raise InvalidInput(
                f"{len(self.columns)} declarations for {len(self.feature_names)} features"
            )
        require_width(self.feature_names, self._widths)
        if self.target.missing not in (None, "drop"):
            raise InvalidInput(
                'there is no value that replaces a missing target; missing="drop" drops its row'
            )

    @property
    def is_identity(self) -> bool:
        """Whether X passes through unchanged (the target may still be scaled)."""
        return all(column == Column() for column in self.columns)

    @property
    def feature_names_out(self) -> tuple[str, ...]:
        """The names of the d_out columns."""
        named = zip(self.columns, self.feature_names, strict=True)
        return tuple(out for column, name in named for out in column.names_out(name))

    @property
    def offset(self) -> FloatArray:
        """(d_out,) the centre of each column's range; 0 where none was declared."""
        return np.repeat([column.centre for column in self.columns], self._widths)

    @property
    def scale(self) -> FloatArray:
        """(d_out,) the half width of each column's range; 1 where none was declared."""
        return np.repeat([column.half_width for column in self.columns], self._widths)

    @property
    def target_scale(self) -> float:
        """The half width of the target's range; 1 if none was declared."""
        return self.target.half_width

    @property
    def classes(self) -> Classes | None:
        """The two declared classes of the target, the second one positive."""
        return None if self.target.categories is None else class_pair(self.target.categories)

    @property
    def drops(self) -> bool:
        """Whether a fit leaves out rows whose values are missing or undeclared."""
        return any(column.drops for column in (*self.columns, self.target))

    def transform(self, X: object) -> FloatArray:
        """X (N, d) scaled and coded, a new array (N, d_out). A frame's columns go by name."""
        coded = self.coded(X)
        if self.drops:
            firsts = np.cumsum(self._widths) - self._widths
            require_finite(coded[:, firsts], self.feature_names)
        return coded

    def coded(self, X: object) -> FloatArray:
        """As `transform`, with NaN where a row is to be dropped.

        >>> schema = as_schema({"age": Column(0, 100, missing="drop")}, ["age"])
        >>> schema.coded([[50], [None]]).ravel()
        array([ 0., nan])
        """
        table = as_table(X).arranged_as(self.feature_names)
        if self.is_identity:
            return np.array(table.to_numbers(), order="C")
        coded = np.empty((table.n_rows, sum(self._widths)))
        stops = np.cumsum(self._widths)
        declared = zip(self.columns, table.values, self.feature_names, stops, strict=True)
        for column, values, name, stop in declared:
            part = column.transform(values, name)
            coded[:, stop - part.shape[1] : stop] = part
        return coded

    def coded_target(self, y: object) -> FloatArray:
        """y (N,) scaled and clipped to [-1, 1], or classes as -1 and +1; NaN: a row to drop."""
        if self.target.drops:
            return self.target.transform(as_vector(y, "y"), TARGET)[:, 0]
        if self.classes is not None:
            return class_signs(y, self.classes)
        return np.array(self.target.scaled(target_numbers(y)))

    def inverse_target(self, scaled: FloatArray) -> FloatArray:
        """y = target.centre + target_scale · y_scaled.

        >>> as_schema({"target": (1, 70)}, ["x0"]).inverse_target(np.array([-1.0, 1.0]))
        array([ 1., 70.])
        """
        return self.target.inverse(scaled)

    def unscale(self, coef: FloatArray, intercept: FloatArray) -> tuple[FloatArray, FloatArray]:
        """A linear model in scaled units, turned into the units of X and y.

            w = target_scale · w_scaled / scale
            b = target.centre + target_scale · (b_scaled - sum_j w_scaled_j · offset_j / scale_j)

        coef is (d_out, m) or (d_out,), intercept (m,) or (). Inside the declared ranges the two
        models predict the same; outside, only the scaled one clips x. Coded categories keep their
        -1 and +1.

        >>> schema = as_schema({0: (0, 10), "target": (0, 2)}, ["x0"])
        >>> schema.unscale(np.array([1.0]), np.array(0.0))
        (array([0.2]), array(0.))
        """
        slopes = (np.asarray(coef).T / self.scale).T
        level = np.asarray(intercept) - self.offset @ slopes
        return self.target_scale * slopes, np.asarray(self.inverse_target(level))

    @property
    def _widths(self) -> list[int]:
        return [max(1, len(column.coded)) for column in self.columns]


def as_schema(
    ranges: Ranges | Literal["from-data"] | None,
    feature_names: Sequence[str],
    X: object = None,
    y: object = None,
) -> Schema:
    """The schema that `ranges` declares for these columns.

    None declares nothing: everything passes through. "from-data" measures the ranges and
    categories of X, and of y if it is given, and says so in `from_data`.

    >>> as_schema({"age": (0, 100)}, ["age", "income"]).scale
    array([50.,  1.])
    """
    names = tuple(str(name) for name in feature_names)
    require_width(names, [1] * len(names))
    if isinstance(ranges, str):
        return _measured_schema(ranges, names, X, y)
    columns, target = [Column()] * len(names), Column()
    seen: dict[int, object] = {}
    for key, declaration in _items(ranges):
        if isinstance(key, str) and key == TARGET:
            target = _as_column(declaration, TARGET)
            continue
        j = _column_index(key, names)
        if j in seen:
            raise InvalidInput(f"column {names[j]!r} is declared twice: {seen[j]!r} and {key!r}")
        seen[j] = key
        columns[j] = _as_column(declaration, names[j])
    return Schema(names, tuple(columns), target)


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


def _items(ranges: object) -> list[tuple[object, object]]:
    if ranges is None:
        return []
    if not isinstance(ranges, Mapping):
        raise InvalidInput(
            f'ranges must be None, "from-data" or a mapping from columns, got {ranges!r}'
        )
    return list(ranges.items())


def _column_index(key: object, names: tuple[str, ...]) -> int:
    if isinstance(key, str) and key in names:
        return names.index(key)
    if isinstance(key, int | np.integer) and 0 <= key < len(names):
        return int(key)
    if isinstance(key, str):
        raise InvalidInput(f"ranges declare an unknown column {key!r}{nearest(key, names)}")
    raise InvalidInput(f"ranges declare column {key!r}; expected a name or 0 to {len(names) - 1}")


def _as_column(declaration: object, name: str) -> Column:
    try:
        if isinstance(declaration, Column):
            return declaration
        if isinstance(declaration, list):
            return Column(categories=tuple(declaration))
        if isinstance(declaration, tuple) and len(declaration) == 2:
            return Column(*declaration)
    except InvalidInput as error:
        raise InvalidInput(f"column {name!r}: {error}") from None
    raise InvalidInput(
        f"column {name!r}: expected a Column, a range (low, high) or a list of categories, "
        f"got {declaration!r}"
    )


def _measured_schema(ranges: str, names: tuple[str, ...], X: object, y: object) -> Schema:
    if ranges != "from-data":
        raise InvalidInput(f'ranges must be None, "from-data" or a mapping, got {ranges!r}')
    if X is None:
        raise InvalidInput('ranges="from-data" needs the data: as_schema(ranges, names, X, y)')
    table = as_table(X).arranged_as(names)
    measured = zip(table.values, names, strict=True)
    target = Column() if y is None else _measured(as_vector(y, "y"), TARGET)
    return Schema(names, tuple(_measured(*pair) for pair in measured), target, from_data=True)


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
