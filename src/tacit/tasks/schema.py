"""How the columns of a table become the columns that a learner sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tacit.arrays import Array, BoolArray, FloatArray
from tacit.errors import InvalidInput
from tacit.json_converter import fields_to_json
from tacit.machine import of_slices
from tacit.tasks.columns import Column, require_width, scaled_to_range
from tacit.tasks.labels import Classes
from tacit.tasks.numeric_cells import as_numbers, require_finite
from tacit.tasks.tables import Table, as_table, as_vector
from tacit.tasks.targets import class_labels, class_signs, target_columns, target_numbers

TOGETHER = 2**13
"""Rows that are scaled, or looked at, by one core at a time."""


@dataclass(frozen=True)
class Schema:
    """How the columns of X become the columns that a learner sees. Made by `as_schema`.

    With d_out columns going out, offset and scale (d_out,) are centre and half width of a declared
    range, 0 and 1 for every other column:

        x_scaled = (x - offset) / scale,    y_scaled = (y - target.centre) / target_scale,

    both clipped to [-1, 1].

    >>> from tacit.tasks import as_schema
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
    more_targets: tuple[Column, ...] = ()  # the second, third, ..., where there are several

    def __post_init__(self) -> None:
        if len(self.columns) != len(self.feature_names):
            raise InvalidInput(
                f"{len(self.columns)} declarations for {len(self.feature_names)} features"
            )
        require_width(self.feature_names, self._widths)
        if any(target.missing not in (None, "drop") for target in self.targets):
            raise InvalidInput(
                'there is no value that replaces a missing target; missing="drop" drops its row'
            )
        if self.more_targets:
            _require_alike(self.targets)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON; one target is written as ever."""
        aside = () if self.more_targets else ("more_targets",)
        return {name: value for name, value in fields_to_json(self).items() if name not in aside}

    @property
    def targets(self) -> tuple[Column, ...]:
        """All of them."""
        return (self.target, *self.more_targets)

    @property
    def n_outputs(self) -> int:
        """How many models each task has: one for each target, or for each class of three or more.

        >>> from tacit.tasks import as_schema
        >>> as_schema({"target": ["a", "b", "c"]}, ["x0"]).n_outputs
        3
        """
        classes = self.classes or ()
        return len(classes) if len(classes) > 2 else len(self.targets)

    def of_output(self, k: int) -> Schema:
        """The schema of target k alone; classes are told apart in the same columns."""
        if not self.more_targets:
            return self
        return replace(self, target=self.targets[k], more_targets=())

    @property
    def in_range(self) -> BoolArray:
        """(d_out,): of which columns every number lies in [-1, 1]."""
        known = [column.low is not None or bool(column.coded) for column in self.columns]
        return np.repeat(known, self._widths).astype(bool)

    @property
    def open_columns(self) -> BoolArray:
        """(d_out + 1,), the target, or all of several, last: whose range a run has still to
        release."""
        of_features = np.repeat([column.is_open for column in self.columns], self._widths)
        return np.append(of_features, [target.is_open for target in self.targets]).astype(bool)

    def open_names(self, *targets: str) -> list[str]:
        """The names of the open columns."""
        named = zip((*self.feature_names, *targets), (*self.columns, *self.targets), strict=True)
        return [name for name, column in named if column.is_open]

    @property
    def may_lack(self) -> bool:
        """Whether a coded cell may be no number: its row is dropped, or it waits for a range."""
        return self.drops or bool(self.open_columns.any())

    @property
    def may_wait(self) -> BoolArray:
        """(d_out,): where a cell without a number waits for the middle of the released range."""
        waits = [column.is_open and not column.drops for column in self.columns]
        return np.repeat(waits, self._widths).astype(bool)

    def bounded(self, bounds: FloatArray) -> Schema:
        """With the ranges (q, 2) of its open columns, the target last.

        >>> from tacit.tasks import as_schema
        >>> schema = as_schema({"age": Column(bounds="private")}, ["age"])
        >>> schema.bounded(np.array([[0.0, 64.0]])).columns
        (Column(low=0.0, high=64.0, categories=None, missing=None, bounds=None),)
        """
        ranges = iter(bounds.tolist())
        given = []
        for column in (*self.columns, *self.targets):
            if column.is_open:
                low, high = next(ranges)
                column = Column(low, high, missing=column.missing)
            given.append(column)
        d = len(self.columns)
        features, target, more = tuple(given[:d]), given[d], tuple(given[d + 1 :])
        return replace(self, columns=features, target=target, more_targets=more)

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
        """The declared classes of the target; of two the second one is positive."""
        return None if self.target.categories is None else class_labels(self.target.categories)

    @property
    def drops(self) -> bool:
        """Whether a fit leaves out rows whose values are missing or undeclared."""
        return any(column.drops for column in (*self.columns, *self.targets))

    def transform(self, X: object) -> FloatArray:
        """X (N, d) scaled and coded, a new array (N, d_out). A frame's columns go by name."""
        coded = self.coded(X)
        if self.drops:
            firsts = np.cumsum(self._widths) - self._widths
            require_finite(coded[:, firsts], self.feature_names)
        return coded

    def coded(self, X: object, *, strict: bool = True) -> FloatArray:
        """As `transform`, with NaN where a row is to be dropped; unless ``strict`` also where a
        cell is not as declared.

        >>> from tacit.tasks import as_schema
        >>> schema = as_schema({"age": Column(0, 100, missing="drop")}, ["age"])
        >>> schema.coded([[50], [None]]).ravel()
        array([ 0., nan])
        """
        table = as_table(X).arranged_as(self.feature_names)
        if self.is_identity and strict:
            return np.array(table.to_numbers(), order="C")
        coded = np.empty((table.n_rows, sum(self._widths) + 1))  # as ``with_ones`` needs it
        if table.matrix is None or not self._ranges_only:
            self._code(coded, table, strict=strict)
            return coded[:, :-1]
        try:
            of_slices(self._scaling(coded, table.matrix), table.n_rows, TOGETHER)
        except InvalidInput:  # a column at a time, which is told of all rows
            self._code(coded, table, strict=strict)
        return coded[:, :-1]

    def _code(self, coded: FloatArray, table: Table, *, strict: bool) -> None:
        """Column by column, and a last one of ones."""
        stops = np.cumsum(self._widths)
        declared = zip(self.columns, table.values, self.feature_names, stops, strict=True)
        for column, values, name, stop in declared:
            part = column.transform(values, name, strict=strict)
            coded[:, stop - part.shape[1] : stop] = part
        coded[:, -1] = 1.0

    @property
    def _ranges_only(self) -> bool:
        """Whether every column is of numbers in a range, none of them missing."""
        return all(column.low is not None and column.missing is None for column in self.columns)

    def _scaling(self, coded: FloatArray, matrix: Array) -> Callable[[slice], None]:
        """The same of some rows, all columns at once, elementwise."""
        told = [(c.low, c.high, c.centre, c.half_width) for c in self.columns]
        low, high, centre, by = np.array(told, dtype=np.float64).T

        def scale(rows: slice) -> None:
            numbers = as_numbers(matrix[rows], "X")
            require_finite(numbers, self.feature_names)
            scaled_to_range(numbers, low, high, centre, by, out=coded[rows, :-1])
            coded[rows, -1] = 1.0

        return scale

    def coded_target(self, y: object) -> FloatArray:
        """y (N,) scaled and clipped to [-1, 1], or classes as -1 and +1; NaN: a row to drop.
        (N, K) of K targets, or of more than two classes."""
        given = target_columns(y)
        if len(given) != len(self.targets):
            raise InvalidInput(f"y has {len(given)} targets, expected {len(self.targets)}")
        named = zip(self.targets, given.items(), strict=True)
        coded = [self._coded(column, values, name) for column, (name, values) in named]
        return coded[0] if len(coded) == 1 else np.stack(coded, axis=1)

    def _coded(self, target: Column, y: object, name: str) -> FloatArray:
        if target.drops or target.is_open:
            coded = target.transform(as_vector(y, "y"), name)
            return coded[:, 0] if coded.shape[1] == 1 else coded
        if self.classes is not None:
            return class_signs(y, self.classes)
        numbers = target_numbers(y, name)
        return np.array(numbers) if target.low is None else target.scaled(numbers)

    def inverse_target(self, scaled: FloatArray) -> FloatArray:
        """y = target.centre + target_scale · y_scaled; (N, K) of several targets.

        >>> from tacit.tasks import as_schema
        >>> as_schema({"target": (1, 70)}, ["x0"]).inverse_target(np.array([-1.0, 1.0]))
        array([ 1., 70.])
        """
        if not self.more_targets:
            return self.target.inverse(scaled)
        named = zip(self.targets, np.moveaxis(scaled, -1, 0), strict=True)
        return np.stack([target.inverse(values) for target, values in named], axis=-1)

    def within_target(self, scaled: FloatArray) -> FloatArray:
        """What was predicted, cut to the range of its target as the rows of a fit are.

        >>> from tacit.tasks import as_schema
        >>> as_schema({"target": (1, 70)}, ["x0"]).within_target(np.array([0.5, 3.0]))
        array([0.5, 1. ])
        """
        known = [target.low is not None for target in self.targets]
        return np.where(known, np.clip(scaled, -1.0, 1.0), scaled)

    def unscale(self, coef: FloatArray, intercept: FloatArray) -> tuple[FloatArray, FloatArray]:
        """A linear model in scaled units, turned into the units of X and y.

            w = target_scale · w_scaled / scale
            b = target.centre + target_scale · (b_scaled - sum_j w_scaled_j · offset_j / scale_j)

        coef is (d_out, m) or (d_out,), intercept (m,) or (). Inside the declared ranges the two
        models predict the same; outside, only the scaled one clips x. Coded categories keep their
        -1 and +1.

        >>> from tacit.tasks import as_schema
        >>> schema = as_schema({0: (0, 10), "target": (0, 2)}, ["x0"])
        >>> schema.unscale(np.array([1.0]), np.array(0.0))
        (array([0.2]), array(0.))
        """
        slopes = (np.asarray(coef).T / self.scale).T
        level = np.asarray(intercept) - self.offset @ slopes
        slopes *= self.target_scale
        return slopes, np.asarray(self.inverse_target(level))

    def rescale(self, models: FloatArray) -> FloatArray:
        """Models (m, d_out + 1), the intercept last, from the units of X and y to scaled ones: the
        inverse of `unscale`, up to rounding.

        >>> from tacit.tasks import as_schema
        >>> schema = as_schema({0: (0, 10), "target": (0, 2)}, ["x0"])
        >>> schema.rescale(np.array([[0.2, 0.0]]))
        array([[1., 0.]])
        """
        slopes = models[:, :-1] / self.target_scale
        level = (models[:, -1] - self.target.centre) / self.target_scale
        return np.column_stack([slopes * self.scale, level + slopes @ self.offset])

    @property
    def _widths(self) -> list[int]:
        return [max(1, len(column.coded)) for column in self.columns]


def _require_alike(targets: Sequence[Column]) -> None:
    """All numbers; and where a range is still open, a range for each."""
    if any(target.categories is not None for target in targets):
        raise InvalidInput("several targets are numbers; fit a target of classes by itself")
    known = [target.low is not None or target.is_open for target in targets]
    if any(target.is_open for target in targets) and not all(known):
        raise InvalidInput("declare the range of every target, or let all others be private")


def within(
    X: FloatArray, y: FloatArray, columns: BoolArray, bounds: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """X (N, d) and y (N,) or (N, K) with the open columns (d + K,) clipped and scaled to their
    ranges (q, 2); a cell that waited for its range is in the middle.

    >>> X, y = np.array([[8.0], [np.nan]]), np.array([0.0, 1.0])
    >>> within(X, y, np.array([True, False]), np.array([[4.0, 8.0]]))[0].ravel()
    array([1., 0.])
    """
    cells, d = np.column_stack([X, y]), X.shape[1]
    for j, (low, high) in zip(np.flatnonzero(columns), bounds.tolist(), strict=True):
        cells[:, j] = np.nan_to_num(Column(low, high).scaled(cells[:, j]), nan=0.0)
    return np.ascontiguousarray(cells[:, :d]), cells[:, d:].reshape(y.shape)


def with_ones(X: FloatArray) -> FloatArray:
    """(N, d + 1): X (N, d) and a column of ones. Where X lies in such an array, that array: a large
    table with an intercept is then in memory once.

    >>> with_ones(np.array([[2.0], [3.0]]))
    array([[2., 1.],
           [3., 1.]])
    """
    wide = X.base
    if isinstance(wide, np.ndarray) and wide.shape == (len(X), X.shape[1] + 1):
        first = wide[:, :-1].__array_interface__ == X.__array_interface__
        ones = of_slices(lambda rows: bool(np.all(wide[rows, -1] == 1)), len(wide), 2**17)
        if first and wide.dtype == X.dtype and all(ones):
            return wide
    return np.column_stack([X, np.ones(len(X))])
