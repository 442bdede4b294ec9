"""What a user hands over, read as columns: arrays (sparse ones too), lists, pandas, polars.

Neither pandas nor polars is imported: a frame is anything with ``columns``, ``to_numpy`` and
``frame[name]``; a series is anything with ``to_numpy``. Missing means NaN, None, NaT or pandas.NA.
Rows are counted from 0 in every message.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from tacit.arrays import Array, BoolArray, FloatArray
from tacit.errors import InvalidInput, nearest
from tacit.tasks.labels import NUMERIC
from tacit.tasks.numeric_cells import float64_of, require_finite, undeclared_numbers

MOST_DENSE = 2**28
"""Cells of a sparse X that is written out: 2 GiB of numbers."""


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """The columns of one table, with the values as they were given.

    ``named`` tells whether the names are the user's own (then columns are found by name) or
    x0, x1, ... (then by position).
    """

    names: tuple[str, ...]
    values: tuple[Array, ...]  # d columns of shape (N,)
    named: bool
    matrix: Array | None = None  # (N, d), when all columns came as one numeric array

    @property
    def n_rows(self) -> int:
        return len(self.values[0]) if self.values else 0

    def without(self, *names: str) -> Table:
        """The other columns.

        >>> as_table([[1, 2, 3]]).without("x1").names
        ('x0', 'x2')
        """
        return self._take([j for j, name in enumerate(self.names) if name not in names])

    def column(self, name: str, role: str) -> Array:
        """One column (N,), found by name; `role` says in errors what it was wanted for."""
        require_column(name, self.names, role)
        return self.values[self.names.index(name)]

    def arranged_as(self, names: tuple[str, ...]) -> Table:
        """The columns called `names`, in that order; by position if they came without names."""
        if len(self.names) != len(names):
            absent = [name for name in names if self.named and name not in self.names]
            lost = f": there is no {', '.join(absent)}" if absent else ""
            raise InvalidInput(f"X has {len(self.names)} features, expected {len(names)}{lost}")
        if not self.named or self.names == names:
            return replace(self, names=names)
        known = {*names}
        for name in self.names:
            if name not in known:
                raise InvalidInput(f"X has an unknown column {name!r}{nearest(name, names)}")
        place = {name: j for j, name in enumerate(self.names)}
        return self._take([place[name] for name in names])

    def at(self, rows: BoolArray) -> Table:
        """These rows only."""
        return Table(self.names, tuple(column[rows] for column in self.values), self.named)

    def to_numbers(self) -> FloatArray:
        """All columns as one finite float64 matrix (N, d). It may share memory with the input.

        >>> as_table([["1", 2], [3, True]]).to_numbers()
        array([[1., 2.],
               [3., 1.]])
        """
        if self.matrix is None:
            named = zip(self.values, self.names, strict=True)
            matrix = np.column_stack([undeclared_numbers(values, name) for values, name in named])
        else:
            matrix = float64_of(self.matrix)
        require_finite(matrix, self.names)
        return matrix

    def _take(self, positions: list[int]) -> Table:
        names = tuple(self.names[j] for j in positions)
        return Table(names, tuple(self.values[j] for j in positions), self.named)


def as_table(X: object, names: Sequence[str] | None = None) -> Table:
    """Read a feature table: at least one row and one column, 2-d; of a sparse matrix written out.

    >>> as_table([[0.5, "red"], [1.5, "blue"]]).names
    ('x0', 'x1')
    """
    if isinstance(X, Table):
        table = X
    elif is_frame(X):
        table = _frame_table(X)
    else:
        table = _matrix_table(_as_matrix(X))
    _require_size((table.n_rows, len(table.names)))
    return table if names is None else _renamed(table, names)


def rows_and_labels(X: object, task: object, role: str = "task") -> tuple[Any, Any]:
    """X and the label of each row, where ``task`` may name a column of a frame, which is then no
    feature; or the ``role`` that it has, the person of each row.

    >>> import polars
    >>> X, task = rows_and_labels(polars.DataFrame({"school": ["a"], "age": [7]}), "school")
    >>> X.names, task.tolist()
    (('age',), ['a'])
    """
    if not isinstance(task, str) or task not in _own_names(X):
        return _dense(X), task
    table = as_table(X)
    return table.without(task), table.column(task, role)


def _own_names(X: Any) -> tuple[str, ...]:
    """Of a frame's columns, or of a table's that was one."""
    if isinstance(X, Table):
        return X.names if X.named else ()
    return tuple(map(str, X.columns)) if is_frame(X) else ()


def require_labels(task: object, role: str = "task") -> None:
    """Refuse a text where labels are expected: it is the name of no column."""
    if isinstance(task, str):
        raise InvalidInput(
            f"{role} is {task!r}, and X has no such column; expected the name of a frame's column, "
            "or a label for each row"
        )


def rows_and_people(X: object, task: object, person: object) -> tuple[Any, Any, Any]:
    """As rows_and_labels, where ``person``, too, may name a column of a frame.

    >>> import polars
    >>> X = polars.DataFrame({"ward": ["a"], "patient": ["p"], "age": [7]})
    >>> X, task, person = rows_and_people(X, "ward", "patient")
    >>> X.names, task.tolist(), person.tolist()
    (('age',), ['a'], ['p'])
    """
    if not isinstance(person, str):
        return X, task, person
    if isinstance(task, str) and task == person:
        raise InvalidInput(f"task and person are both {person!r}; expected two columns")
    X, person = rows_and_labels(X, person, "person")
    require_labels(person, "person")
    return *rows_and_labels(X, task), person


def has_names(X: object) -> bool:
    """Whether its columns have names of the user's own."""
    return X.named if isinstance(X, Table) else hasattr(X, "columns")


def column_names(X: object) -> tuple[str, ...]:
    """The names of a frame's columns, or x0, x1, ... for an array.

    >>> column_names([[1, 2, 3]])
    ('x0', 'x1', 'x2')
    """
    return as_table(X).names


def as_vector(values: object, name: str) -> Array:
    """One value per row (N,), of the type it was given in: list, array, series, (N, 1) column.

    >>> as_vector([1, "a"], "task")
    array([1, 'a'], dtype=object)
    """
    if isinstance(values, list | tuple):
        return _list_vector(values)
    vector = _plain_array(values, name)
    if vector.ndim == 2 and vector.shape[1] == 1:
        vector = vector[:, 0]
    if vector.ndim != 1:
        raise InvalidInput(f"{name} must hold one value per row, got shape {vector.shape}")
    return vector


def require_column(name: str, names: Collection[str], role: str) -> None:
    """Refuse a name that is no column, suggesting the nearest.

    >>> require_column("scool", ["school", "age"], "task")
    Traceback (most recent call last):
    tacit.errors.InvalidInput: there is no task column 'scool'; did you mean 'school'?
    """
    if name not in names:
        raise InvalidInput(f"there is no {role} column {name!r}{nearest(name, names)}")


def is_frame(X: object) -> bool:
    """Whether it has named columns, as pandas and polars have."""
    return hasattr(X, "to_numpy") and hasattr(X, "columns") and hasattr(X, "__getitem__")


def _frame_table(frame: Any) -> Table:
    keys = list(frame.columns)
    names = tuple(str(key) for key in keys)
    _require_distinct(names)
    return Table(names, tuple(as_vector(frame[key], str(key)) for key in keys), named=True)


def _matrix_table(matrix: Array) -> Table:
    names = tuple(f"x{j}" for j in range(matrix.shape[1]))
    whole = matrix if matrix.dtype.kind in NUMERIC else None
    return Table(names, tuple(matrix.T), named=False, matrix=whole)


def _as_matrix(X: object) -> Array:
    matrix = _plain_array(_dense(X), "X")
    if matrix.ndim != 2:
        raise InvalidInput(
            f"Expected 2D array X (rows, features), got {matrix.ndim}D with shape {matrix.shape}. "
            "Reshape your data: X.reshape(-1, 1) for one feature, X.reshape(1, -1) for one row"
        )
    _require_size(matrix.shape)
    if isinstance(X, list | tuple) and not _keeps_cells(chain.from_iterable(X), matrix):
        matrix = np.array(X, dtype=object)
    return matrix


def _dense(X: Any) -> Any:
    """A sparse matrix written out, as learners see it: every declared range has a centre, so that
    a scaled zero is none."""
    if not hasattr(X, "toarray") or len(X.shape) != 2:
        return X
    if (cells := math.prod(X.shape)) > MOST_DENSE:
        raise InvalidInput(
            f"X is sparse, {X.shape[0]:,} × {X.shape[1]:,}, and {cells:,} cells when written out; "
            f"expected at most {MOST_DENSE:,}: leave out columns, or fit parts of the tasks"
        )
    return X.toarray()


def _plain_array(values: Any, name: str) -> Array:
    if hasattr(values, "toarray"):
        raise InvalidInput(f"{name} is a sparse matrix; expected an array: use .toarray()")
    if isinstance(values, np.ma.MaskedArray):
        filled = np.asarray(values).astype(object)
        filled[np.ma.getmaskarray(values)] = None
        return filled
    kind = getattr(values, "dtype", "")
    if hasattr(kind, "is_nested") and kind.is_nested():  # numpy's unless a cell is missing
        raise InvalidInput(f"{name} holds {kind}; expected one value per row")
    try:
        read = values.to_numpy if hasattr(values, "to_numpy") else lambda: np.asarray(values)
        found = np.asarray(read())
        made = found.dtype.kind == "f" and "float" not in str(kind).lower()
        if hasattr(values, "to_list") and (made or getattr(kind, "time_zone", None)):
            # Otherwise a missing cell would round all integers, and hours forget where they are.
            found = np.array(values.to_list(), dtype=object)
        return found
    except Exception as error:  # whatever somebody's table raises
        raise InvalidInput(f"{name} cannot be read as an array: {error}") from error


def _list_vector(values: Sequence[object]) -> Array:
    try:
        vector = np.asarray(values)
    except (TypeError, ValueError):  # ragged: labels may be tuples
        return np.fromiter(values, object, len(values))
    plain = vector.ndim == 1 and vector.dtype.kind in NUMERIC and _keeps_cells(values, vector)
    return vector if plain else np.fromiter(values, object, len(values))


def _keeps_cells(cells: Iterable[object], array: Array) -> bool:
    """Whether numpy took a list's cells as they are. Beside text it would write numbers as text,
    beside a number truth values as 0 and 1, beside 0.5 or -1 integers of 16 digits and more as
    others: one cell would say how all others are read."""
    kinds = {*map(type, cells)}
    rounded = array.dtype.kind == "f" and int in kinds
    return array.dtype.kind not in "US" and len(kinds) <= 1 and not rounded


def _require_size(shape: tuple[int, ...]) -> None:
    if shape[1] == 0:
        raise InvalidInput(f"X has 0 feature(s) (shape={shape}) while a minimum of 1 is required.")
    if shape[0] == 0:
        raise InvalidInput(f"X has 0 sample(s) (shape={shape}) while a minimum of 1 is required.")


def _renamed(table: Table, names: Sequence[str]) -> Table:
    if len(names) != len(table.names):
        raise InvalidInput(f"{len(names)} feature names for {len(table.names)} features")
    text = tuple(str(name) for name in names)
    _require_distinct(text)
    return Table(text, table.values, named=True, matrix=table.matrix)


def _require_distinct(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        twice, _ = Counter(names).most_common(1)[0]
        raise InvalidInput(f"column {twice!r} occurs twice; column names must differ")
