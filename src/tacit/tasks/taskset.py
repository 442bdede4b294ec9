"""TaskSet: the rows of many tasks in one array, sorted by task."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tacit.arrays import Array, BoolArray, FloatArray, IntArray
from tacit.errors import InvalidInput
from tacit.machine import of_slices
from tacit.tasks.counting import MANY
from tacit.tasks.labels import (
    Classes,
    canonical_label,
    distinct,
    python_values,
    require_one_text,
    require_present,
)
from tacit.tasks.schema import TOGETHER, Schema, with_ones, within
from tacit.tasks.tables import as_table, as_vector, require_labels
from tacit.tasks.targets import (
    class_labels,
    class_signs,
    measured_classes,
    target_columns,
    target_numbers,
)

DeclaredClasses = Sequence[Hashable] | Literal["from-data"] | None


@dataclass(frozen=True, eq=False, repr=False)
class TaskSet:
    """Ragged tasks stored as one array with offsets: task i is rows offsets[i] to offsets[i+1].

    Labels are sorted: as numbers, as one type that sorts, or by their texts. Rows of one task keep
    their order. Nothing is shared with the arrays that were given.

    >>> tasks = TaskSet.from_arrays([[1.0], [2.0], [3.0]], [10, 20, 30], task=["b", "a", "b"])
    >>> tasks
    TaskSet(2 tasks, 3 rows, 1 feature)
    >>> tasks.labels, tasks.sizes, tasks.order
    (('a', 'b'), array([1, 2]), array([1, 0, 2]))
    >>> tasks.task(1)
    (array([[1.],
           [3.]]), array([10., 30.]))
    """

    X: FloatArray  # (N, d), sorted by task
    y: FloatArray  # (N,), -1 and +1 if there are classes; (N, K) of K targets or more classes
    offsets: IntArray  # (m + 1,)
    labels: tuple[Hashable, ...]  # m of them
    order: IntArray  # (N,), the row of the input that each stored row came from
    feature_names: tuple[str, ...]  # d of them
    classes: Classes | None = None  # coded -1, +1; of more than two each against the others

    def __post_init__(self) -> None:
        expected = {
            "X": (int(self.offsets[-1]), len(self.feature_names)),
            "y": (int(self.offsets[-1]), *self.y.shape[1:2]),
            "order": (int(self.offsets[-1]),),
            "offsets": (len(self.labels) + 1,),
        }
        for name, shape in expected.items():
            if getattr(self, name).shape != shape:
                seen = getattr(self, name).shape
                raise InvalidInput(f"{name} must have shape {shape}, got {seen}")

    @classmethod
    def from_arrays(
        cls,
        X: object,
        y: object,
        task: object = None,
        *,
        feature_names: Sequence[str] | None = None,
        classes: DeclaredClasses = None,
        schema: Schema | None = None,
    ) -> TaskSet:
        """Read X (N, d), y (N,) and one task label per row; task=None is one task labelled 0.

        Arrays, lists, pandas and polars. A schema scales and codes X and y and fills missing
        values, or drops their rows. Two `classes`, the second positive, code y as -1 and +1, more
        of them as (N, K); "from-data" is 0/1 or false/true if y holds nothing else, and otherwise
        what occurs. y (N, K) are several targets.

        Labels are public and dropped rows are not: a task with no row left stays, without rows.

        >>> TaskSet.from_arrays([[0], [1]], ["no", "yes"], classes=("no", "yes")).y
        array([-1.,  1.])
        """
        table = as_table(X, feature_names)
        matrix = table.to_numbers() if schema is None else schema.coded(table)
        names = table.names if schema is None else schema.feature_names_out
        del table  # of a frame in many pieces it is a copy
        target, pair = _coded_target(y, classes, schema)
        labels, codes = task_codes(task, len(matrix))
        if len(target) != len(matrix):
            raise InvalidInput(f"y has {len(target)} rows, X has {len(matrix)}")
        order = _stable_order(codes, len(labels))
        if schema is not None and schema.may_lack:  # otherwise all were seen to be finite
            kept = _complete(matrix, target, schema.may_wait)
            order, codes = order[kept[order]], codes[kept]
        offsets = _offsets(np.bincount(codes, minlength=len(labels)))
        if schema is None:  # it may still be the user's own array
            stored = _taken(matrix, order)
        else:
            stored = _in_order(with_ones(matrix), order)[:, :-1]
        return cls(stored, _taken(target, order), offsets, labels, order, names, pair)

    @classmethod
    def from_frame(
        cls,
        frame: object,
        *,
        task: str | None,
        target: str,
        classes: DeclaredClasses = None,
        schema: Schema | None = None,
    ) -> TaskSet:
        """Read a pandas or polars frame; every column but `task` and `target` is a feature.

        >>> import polars
        >>> frame = polars.DataFrame({"age": [20, 30], "school": ["s1", "s2"], "score": [3, 4]})
        >>> TaskSet.from_frame(frame, task="school", target="score")
        TaskSet(2 tasks, 2 rows, 1 feature)
        """
        table = as_table(frame)
        if not table.named:
            raise InvalidInput(f"expected a data frame, got {type(frame).__name__}")
        y = table.column(target, "target")
        labels = None if task is None else table.column(task, "task")
        features = table.without(target) if task is None else table.without(target, task)
        return cls.from_arrays(features, y, labels, classes=classes, schema=schema)

    @classmethod
    def without_rows(cls, labels: Sequence[Hashable], schema: Schema) -> TaskSet:
        """Tasks by name: what somebody has of them whose rows are elsewhere."""
        names = schema.feature_names_out
        none = np.zeros(0, dtype=np.int64)
        offsets = np.zeros(len(labels) + 1, dtype=np.int64)
        outputs = (schema.n_outputs,) if schema.n_outputs > 1 else ()
        empty = np.zeros((0, len(names))), np.zeros((0, *outputs))
        return cls(*empty, offsets, tuple(labels), none, names, schema.classes)

    @property
    def n_tasks(self) -> int:
        """m, the number of tasks."""
        return len(self.labels)

    @property
    def n_rows(self) -> int:
        """N, the rows of all tasks together."""
        return int(self.offsets[-1])

    @property
    def n_features(self) -> int:
        """d, the number of features."""
        return len(self.feature_names)

    @property
    def sizes(self) -> IntArray:
        """(m,) the rows of each task. Private where a whole task is protected."""
        return np.diff(self.offsets)

    @property
    def task_index(self) -> IntArray:
        """(N,) the position in `labels` of each stored row's task."""
        return np.repeat(np.arange(self.n_tasks), self.sizes)

    def task(self, i: int) -> tuple[FloatArray, FloatArray]:
        """Task i's X (n_i, d) and y (n_i,), as views."""
        if not 0 <= i < self.n_tasks:
            raise InvalidInput(f"task index {i} is outside 0 to {self.n_tasks - 1}")
        rows = slice(self.offsets[i], self.offsets[i + 1])
        return self.X[rows], self.y[rows]

    def select(self, task_indices: Sequence[int] | IntArray) -> TaskSet:
        """These tasks only, in this order.

        >>> tasks = TaskSet.from_arrays([[1.0], [2.0], [3.0]], [1, 2, 3], task=["a", "b", "c"])
        >>> tasks.select([2, 0]).y
        array([3., 1.])
        """
        chosen = self._checked_indices(task_indices)
        sizes = self.sizes[chosen]
        offsets = _offsets(sizes)
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], sizes)
        labels = tuple(self.labels[i] for i in chosen)
        return self._rows(rows, offsets, labels)

    def bounded(self, schema: Schema, bounds: FloatArray) -> TaskSet:
        """The same rows, once the ranges (q, 2) of the schema's open columns are known."""
        X, y = within(self.X, self.y, schema.open_columns, bounds)
        return replace(self, X=X, y=y)

    def split(self, fraction: float, rng: np.random.Generator) -> tuple[TaskSet, TaskSet]:
        """Split every task at random: max(1, round(fraction · n_i)) rows to train on, and the rest.

        Both parts keep all labels. A task may have no test row left: its offsets are then equal.
        Each task has its own coins, by its label: no task's rows follow from how many others there
        are, or from which of them have rows.

        >>> tasks = TaskSet.from_arrays(np.ones((5, 1)), np.ones(5), task=[0, 0, 0, 0, 1])
        >>> train, test = tasks.split(0.5, np.random.default_rng(0))
        >>> train.sizes, test.sizes
        (array([2, 1]), array([2, 0]))
        """
        if not 0 < fraction < 1:
            raise InvalidInput(f"fraction must be in (0, 1), got {fraction}")
        train = np.minimum(self.sizes, np.maximum(1, np.rint(fraction * self.sizes))).astype(int)
        seed = rng.integers(2**32, size=4).tolist()
        owners = zip(self.labels, self.sizes, strict=True)
        places = np.concatenate([_coins(seed, label).permutation(n) for label, n in owners])
        in_train = places < np.repeat(train, self.sizes)
        parts = (in_train, train), (~in_train, self.sizes - train)
        first, second = (
            self._rows(np.flatnonzero(chosen), _offsets(sizes), self.labels)
            for chosen, sizes in parts
        )
        return first, second

    def __len__(self) -> int:
        """The number of tasks."""
        return self.n_tasks

    def __repr__(self) -> str:  # the rows are private
        counts = (self.n_tasks, "task"), (self.n_rows, "row"), (self.n_features, "feature")
        text = ", ".join(f"{count} {noun}{'s' * (count != 1)}" for count, noun in counts)
        return f"TaskSet({text})"

    def _rows(self, rows: Array, offsets: IntArray, labels: tuple[Hashable, ...]) -> TaskSet:
        X, y, order = self.X[rows], self.y[rows], self.order[rows]
        return replace(self, X=X, y=y, order=order, offsets=offsets, labels=labels)

    def _checked_indices(self, task_indices: object) -> IntArray:
        chosen = as_vector(task_indices, "task_indices")
        if len(chosen) == 0 or chosen.dtype.kind not in "iu":
            raise InvalidInput(f"expected one or more task indices, got {task_indices!r}")
        if chosen.min() < 0 or chosen.max() >= self.n_tasks:
            raise InvalidInput(f"task indices must be in 0 to {self.n_tasks - 1}, got {chosen}")
        if len(np.unique(chosen)) < len(chosen):
            raise InvalidInput(f"task indices must differ, got {chosen}")
        return chosen.astype(np.int64)


def task_codes(task: object, n_rows: int) -> tuple[tuple[Hashable, ...], IntArray]:
    """The distinct task labels, and each row's position among them (N,).

    >>> task_codes(["b", "a", "b"], n_rows=3)
    (('a', 'b'), array([1, 0, 1]))
    """
    if task is None:
        return (0,), np.zeros(n_rows, dtype=np.int64)
    values = _task_vector(task, n_rows)
    labels, codes = distinct(values, "task")
    alike = values.dtype.kind != "O" or {*map(type, values)} <= {str}
    if values.dtype.kind not in "iu":  # each whole number has a text of its own
        require_one_text(labels if alike else python_values(values), "task")  # 1 hides True
    return labels, codes


def _task_vector(task: object, n_rows: int) -> Array:
    require_labels(task)
    values = _each_as_given(task) if isinstance(task, list | tuple) else as_vector(task, "task")
    if len(values) != n_rows:
        raise InvalidInput(f"task has {len(values)} labels, X has {n_rows} rows")
    require_present(values, "task")
    return values


def _each_as_given(labels: Sequence[object]) -> Array:
    """A list of several types stays one: numpy would write True beside 2 as 1."""
    if len({*map(type, labels)}) > 1:
        return np.fromiter(labels, object, len(labels))
    return as_vector(labels, "task")


def _coded_target(
    y: object, classes: DeclaredClasses, schema: Schema | None
) -> tuple[FloatArray, Classes | None]:
    if isinstance(classes, str) and classes == "from-data":
        known: Classes | None = measured_classes(y)
    elif classes is not None:
        known = class_labels(classes)
    else:
        known = None if schema is None else schema.classes
    if schema is not None and known == schema.classes:
        return schema.coded_target(y), known
    if known is not None:
        return class_signs(y, known), known
    columns = [target_numbers(values, name) for name, values in target_columns(y).items()]
    return columns[0] if len(columns) == 1 else np.stack(columns, axis=1), known


def _coins(seed: Sequence[int], label: Hashable) -> np.random.Generator:
    """A task's own, the same whichever other tasks there are."""
    name = hashlib.sha256(canonical_label(label).encode()).digest()
    return np.random.default_rng([*seed, *np.frombuffer(name, "<u4").tolist()])


def _complete(matrix: FloatArray, target: FloatArray, may_wait: BoolArray) -> BoolArray:
    """(N,): the rows that have every number that they need; some rows at a time, on all cores."""

    def ask(rows: slice) -> BoolArray:
        known, told = np.isfinite(matrix[rows]), np.isfinite(target[rows])
        if known.all() and told.all():
            return np.ones(len(known), dtype=bool)
        targets = told.reshape(len(told), -1)
        return np.asarray((known | may_wait).all(axis=1) & targets.all(axis=1))

    return np.concatenate(of_slices(ask, len(matrix), TOGETHER))


def _stable_order(codes: IntArray, n_labels: int) -> IntArray:
    ends, starts = codes[1:], codes[:-1]
    if all(of_slices(lambda rows: bool(np.all(ends[rows] >= starts[rows])), len(ends), MANY)):
        return np.arange(len(codes))
    narrow = codes.astype(np.uint16) if n_labels <= 2**16 else codes  # radix sort: O(N)
    return np.argsort(narrow, kind="stable")


def _in_order(rows: FloatArray, order: IntArray) -> FloatArray:
    """These rows in this order; a copy only if it is another."""

    def is_there(some: slice) -> bool:
        return np.array_equal(order[some], np.arange(some.start, some.stop))

    if len(order) == len(rows) and all(of_slices(is_there, len(rows), MANY)):
        return rows
    return _taken(rows, order)


def _taken(rows: FloatArray, order: IntArray) -> FloatArray:
    """A copy of these rows, in this order, on all cores."""
    found = np.empty((len(order), *rows.shape[1:]))

    def take(some: slice) -> None:
        np.take(rows, order[some], axis=0, out=found[some], mode="clip")  # "raise" would copy twice

    of_slices(take, len(order), TOGETHER)
    return found


def _offsets(sizes: Array) -> IntArray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
