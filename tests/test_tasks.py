"""TaskSet: what goes in comes out, in any row order; what cannot be used is refused by name."""

from __future__ import annotations

import datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from tacit.errors import InvalidInput, MissingValues, TacitError, UndeclaredValue
from tacit.tasks import (
    Column,
    Ranges,
    TaskSet,
    as_schema,
    column_names,
    read_table,
    task_codes,
)
from tacit.tasks.schema import with_ones

FINITE = st.floats(-1e6, 1e6)
LABELS = st.one_of(st.integers(-3, 3), st.sampled_from(["a", "b", "c"]), st.tuples(st.booleans()))


@st.composite
def tables(draw: st.DrawFn) -> tuple[Any, Any, list[Any]]:
    """X, y and task labels of up to twelve rows, all of them good."""
    rows, columns = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    X = draw(hnp.arrays(np.float64, (rows, columns), elements=FINITE))
    y = draw(hnp.arrays(np.float64, rows, elements=FINITE))
    return X, y, draw(st.lists(LABELS, min_size=rows, max_size=rows))


def small(task: Any = ("b", "a", "b", "c")) -> TaskSet:
    return TaskSet.from_arrays(np.arange(8.0).reshape(4, 2), [0.0, 1.0, 2.0, 3.0], task)


def rows_by_label(tasks: TaskSet) -> dict[Any, list[tuple[float, ...]]]:
    """Each task's rows as a sorted list: a TaskSet up to the order of rows and labels."""
    rows = {}
    for i, label in enumerate(tasks.labels):
        X, y = tasks.task(i)
        rows[label] = sorted((*x, value) for x, value in zip(X.tolist(), y.tolist(), strict=True))
    return rows


# What goes in comes out


@settings(deadline=None)
@given(tables())
def test_order_leads_back_to_the_input(table: tuple[Any, Any, list[Any]]) -> None:
    X, y, task = table
    tasks = TaskSet.from_arrays(X, y, task)
    np.testing.assert_array_equal(tasks.X, X[tasks.order])
    np.testing.assert_array_equal(tasks.y, y[tasks.order])
    assert sorted(tasks.order.tolist()) == list(range(len(X)))
    assert [tasks.labels[i] for i in tasks.task_index] == [task[row] for row in tasks.order]


@settings(deadline=None)
@given(tables(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(table: tuple[Any, Any, list[Any]], random: Any) -> None:
    X, y, task = table
    rows = list(range(len(X)))
    random.shuffle(rows)
    shuffled = TaskSet.from_arrays(X[rows], y[rows], [task[row] for row in rows])
    assert rows_by_label(shuffled) == rows_by_label(TaskSet.from_arrays(X, y, task))


@settings(deadline=None)
@given(tables())
def test_stored_arrays_keep_the_promised_layout(table: tuple[Any, Any, list[Any]]) -> None:
    tasks = TaskSet.from_arrays(*table)
    assert tasks.X.flags.c_contiguous
    assert tasks.X.dtype.name == tasks.y.dtype.name == "float64"
    assert tasks.offsets.dtype.name == tasks.order.dtype.name == "int64"
    assert tasks.offsets[0] == 0
    assert (tasks.sizes > 0).all()
    assert tasks.n_rows == tasks.sizes.sum() == len(tasks.y)
    assert len(tasks) == tasks.n_tasks == len(set(table[2]))


@pytest.mark.parametrize("task", [["a", "a", "b"], ["b", "a", "b"]])
def test_what_a_schema_made_is_in_memory_once_with_its_intercept(task: list[str]) -> None:
    wide = np.array([[0.5, 0.25, 1.0], [0.0, 2.0, 1.0], [-1.0, 1.0, 1.0]])
    schema = as_schema({0: (-1, 1)}, ["x0", "x1"])
    tasks = TaskSet.from_arrays(wide[:, :-1], [1, 2, 3], task, schema=schema)
    with_intercept = with_ones(tasks.X)
    np.testing.assert_array_equal(with_intercept[:, :-1], tasks.X)
    assert (with_intercept[:, -1] == 1).all()
    assert np.shares_memory(with_intercept, tasks.X)
    assert not np.shares_memory(wide, tasks.X)
    some = tasks.select([1])
    assert with_ones(some.X).tolist() == [[*row, 1.0] for row in some.X.tolist()]
    with_intercept[0, -1] = 0.0
    assert (with_ones(tasks.X)[:, -1] == 1).all()


def test_input_is_neither_changed_nor_shared() -> None:
    X, y, task = np.ones((3, 2)), np.ones(3), np.array([0, 0, 1])
    tasks = TaskSet.from_arrays(X, y, task)
    tasks.X[:] = tasks.y[:] = 7
    assert (X == 1).all()
    assert (y == 1).all()
    assert not np.shares_memory(X, tasks.X)


def test_one_row_is_enough() -> None:
    tasks = TaskSet.from_arrays([[3]], [4])
    assert (tasks.labels, tasks.sizes.tolist(), tasks.feature_names) == ((0,), [1], ("x0",))


def test_without_labels_there_is_one_task_labelled_zero() -> None:
    assert small(task=None).labels == (0,)


def test_rows_of_one_task_keep_their_order() -> None:
    assert small().order.tolist() == [1, 0, 2, 3]


def test_repr_shows_no_row() -> None:
    assert repr(small()) == "TaskSet(3 tasks, 4 rows, 2 features)"


# Labels


@pytest.mark.parametrize(
    ("given_labels", "stored"),
    [
        ([3, 1, 2], (1, 2, 3)),
        ([2.5, 1, 1.0], (1, 2.5)),
        (["b", "a", "b"], ("a", "b")),
        (np.array(["b", "a", "b"]), ("a", "b")),
        (np.array([2, 1, 2], dtype=np.uint8), (1, 2)),
        ([("x", 2), ("x", 1), ("x", 2)], (("x", 1), ("x", 2))),
        (["b", 1, "a"], (1, "a", "b")),
        (pd.Series(["b", "a", "b"], dtype="category"), ("a", "b")),
        (pl.Series(["b", "a", "b"]), ("a", "b")),
        (np.array([[2], [1], [2]]), (1, 2)),
    ],
)
def test_labels_are_sorted_as_their_type_sorts_or_by_their_texts(
    given_labels: Any, stored: tuple[Any, ...]
) -> None:
    tasks = TaskSet.from_arrays(np.zeros((3, 1)), np.zeros(3), given_labels)
    assert tasks.labels == stored


def test_labels_are_plain_python_values() -> None:
    labels, _ = task_codes(np.array([1, 2], dtype=np.int16), 2)
    assert [type(label) for label in labels] == [int, int]
    labels, _ = task_codes(np.array([np.str_("a"), "b"], dtype=object), 2)
    assert [type(label) for label in labels] == [str, str]


def test_dates_are_labels_whatever_their_resolution() -> None:
    day = datetime.datetime(2020, 1, 2)
    for unit in ("ns", "us", "D"):
        labels, _ = task_codes(np.array(["2020-01-02"], dtype=f"datetime64[{unit}]"), 1)
        assert labels == (day,)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ([1, None, 2], "row 1"),
        ([1.0, float("nan"), 2.0], "row 1"),
        (pd.Series([1, None, 2], dtype="Int64"), "row 1"),
        (np.array([1, pd.NA, 2], dtype=object), "row 1"),
        ([1, [2], 3], "row 1, not hashable"),
        ([1, 2], "task has 2 labels, X has 3 rows"),
        (np.zeros((3, 2)), "one value per row"),
        ("abc", "X has no such column"),
        (5, "one value per row"),
    ],
)
def test_bad_labels_are_refused_by_row(task: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        TaskSet.from_arrays(np.zeros((3, 1)), np.zeros(3), task)


# Frames and files


def frames() -> list[Any]:
    columns = {"age": [30, 20, 40], "score": [3.0, 2.0, 4.0], "school": ["s2", "s1", "s2"]}
    return [pd.DataFrame(columns), pl.DataFrame(columns)]


@pytest.mark.parametrize("frame", frames())
def test_a_frame_is_read_by_column_name(frame: Any) -> None:
    tasks = TaskSet.from_frame(frame, task="school", target="score")
    assert tasks.labels == ("s1", "s2")
    assert tasks.feature_names == ("age",)
    assert tasks.X.ravel().tolist() == [20, 30, 40]
    assert tasks.y.tolist() == [2, 3, 4]


@pytest.mark.parametrize("frame", frames())
def test_a_wrong_column_name_gets_a_suggestion(frame: Any) -> None:
    with pytest.raises(InvalidInput, match="no task column 'shool'; did you mean 'school'"):
        TaskSet.from_frame(frame, task="shool", target="score")
    with pytest.raises(InvalidInput, match="no target column 'scores'; did you mean 'score'"):
        TaskSet.from_frame(frame, task="school", target="scores")


@pytest.mark.parametrize("frame", frames())
def test_text_in_a_feature_is_refused_by_row_and_column(frame: Any) -> None:
    with pytest.raises(InvalidInput, match="column 'school' holds 's2' in row 0"):
        TaskSet.from_frame(frame, task=None, target="score")


def test_files_that_are_no_tables_are_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"not parquet")
    (tmp_path / "empty.csv").write_text("")
    for name, message in [
        ("none.csv", "no file"),
        ("table.pdf", "is no table"),
        ("broken.parquet", "cannot be read"),
        ("empty.csv", "cannot be read"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            read_table(tmp_path / name)


def test_an_array_is_no_frame() -> None:
    with pytest.raises(InvalidInput, match="expected a data frame"):
        TaskSet.from_frame(np.zeros((2, 2)), task=None, target="x0")


def test_feature_names_come_from_the_frame_or_from_the_caller() -> None:
    assert column_names(frames()[0]) == ("age", "score", "school")
    tasks = TaskSet.from_arrays([[1, 2]], [3], feature_names=["a", "b"])
    assert tasks.feature_names == ("a", "b")


def test_nullable_columns_are_read_as_numbers() -> None:
    frame = pd.DataFrame(
        {"a": pd.array([1, 2], dtype="Int64"), "b": pd.array([True, False], dtype="boolean")}
    )
    np.testing.assert_array_equal(TaskSet.from_arrays(frame, [0, 0]).X, [[1, 1], [2, 0]])


# The door


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([1.0, 2.0, 3.0], "Reshape your data"),
        (np.zeros((3, 2, 2)), "got 3D"),
        (5, "got 0D"),
        (None, "got 0D"),
        (np.zeros((0, 2)), "0 sample"),
        (np.zeros((3, 0)), r"0 feature\(s\) \(shape=\(3, 0\)\)"),
        (pl.DataFrame(), "0 feature"),
        ([[1.0], [2.0, 3.0], [4.0]], "cannot be read as an array"),
        ([[1.0], [np.inf], [2.0]], r"column 'x0' is infinite \(inf\) in row 1"),
        ([["a"], ["1"], ["2"]], "column 'x0' holds 'a' in row 0"),
        ([[1], [10**400], [2]], "in row 1; expected a number"),
        ([[1], [{}], [2]], "in row 1; expected a number"),
        (np.array([[1j], [2], [3]]), "Complex data not supported"),
        (np.zeros((3, 1), dtype="datetime64[s]"), "expected numbers"),
        (np.zeros((3, 1), dtype="V8"), "expected numbers"),
        (np.zeros((2, 1)), "y has 3 rows, X has 2"),
    ],
)
def test_bad_features_are_refused_with_what_was_seen(X: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        TaskSet.from_arrays(X, [1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    "X",
    [
        [[1, 2], [3, float("nan")], [4, None]],
        pd.DataFrame({"x0": [1, 2, 3], "x1": [1, None, None]}),
        pl.DataFrame({"x0": [1, 2, 3], "x1": [1, None, None]}),
        pd.DataFrame({"x0": [1, 2, 3], "x1": pd.array([True, None, None], dtype="boolean")}),
        np.ma.masked_greater([[1, 2], [3, 9], [4, 9]], 8),
    ],
)
def test_missing_features_are_counted_by_column(X: Any) -> None:
    with pytest.raises(MissingValues) as caught:
        TaskSet.from_arrays(X, [0.0, 0.0, 0.0])
    assert (caught.value.column, caught.value.count) == ("x1", 2)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil"])
def test_sparse_features_are_written_out(form: str) -> None:
    X = sparse.random_array((5, 3), density=0.4, rng=np.random.default_rng(0)).asformat(form)
    tasks = TaskSet.from_arrays(X, np.arange(5.0), [1, 0, 1, 0, 1])
    np.testing.assert_array_equal(tasks.X, X.toarray()[tasks.order])
    wrapped = TaskSet.from_arrays(sparse.csr_matrix(X), np.arange(5.0), [1, 0, 1, 0, 1])
    np.testing.assert_array_equal(wrapped.X, tasks.X)


def test_what_is_too_large_when_written_out_is_refused_before_it_is() -> None:
    X = sparse.coo_array((2**20, 2**10))
    with pytest.raises(InvalidInput, match=r"sparse, 1,048,576 × 1,024.* at most 268,435,456"):
        TaskSet.from_arrays(X, np.zeros(2**20))


def test_sparse_targets_are_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="y is a sparse matrix"):
        TaskSet.from_arrays(np.eye(3), sparse.eye_array(3, format="csr"))


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([1.0, np.nan, 2.0], "1 missing value.*row 1"),
        ([1.0, np.inf, 2.0], "column 'target' is infinite"),
        (["a", "b", "a"], 'if y holds classes, fit with loss="logistic"'),
        (np.zeros((3, 2, 2)), "Expected 2D|one value per row"),
        ([1.0], "y has 1 rows, X has 3"),
        ([[1], [2], [3]], "row 0; expected a number"),
    ],
)
def test_bad_targets_are_refused(y: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        TaskSet.from_arrays(np.zeros((3, 1)), y)


def test_doubled_names_are_refused() -> None:
    with pytest.raises(InvalidInput, match="'a' occurs twice"):
        TaskSet.from_arrays([[1, 2]], [3], feature_names=["a", "a"])
    with pytest.raises(InvalidInput, match="'a' occurs twice"):
        TaskSet.from_arrays(pd.DataFrame([[1, 2]], columns=["a", "a"]), [3])
    with pytest.raises(InvalidInput, match="1 feature names for 2 features"):
        TaskSet.from_arrays([[1, 2]], [3], feature_names=["a"])


def test_numeric_text_is_a_number() -> None:
    np.testing.assert_array_equal(TaskSet.from_arrays([["1.5", 2]], ["3"]).X, [[1.5, 2]])


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=3),
    st.dates(),
    st.binary(max_size=2),
    st.just(pd.NA),
    st.lists(st.integers(), max_size=2),
)
ANYTHING = st.one_of(
    SCALARS,
    st.lists(SCALARS, max_size=4),
    st.lists(st.lists(SCALARS, max_size=3), max_size=4),
    hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(max_dims=3, max_side=3, min_side=0)),
    st.builds(lambda cells: pd.DataFrame({"a": cells}), st.lists(SCALARS, max_size=3)),
)


@settings(max_examples=400, deadline=None)
@given(ANYTHING, ANYTHING, ANYTHING, st.sampled_from([None, "from-data", (0, 1)]))
def test_bad_input_raises_a_tacit_error_and_nothing_else(
    X: Any, y: Any, task: Any, classes: Any
) -> None:
    try:
        tasks = TaskSet.from_arrays(X, y, task, classes=classes)
    except TacitError:
        return
    assert np.isfinite(tasks.X).all()
    assert np.isfinite(tasks.y).all()


@settings(max_examples=400, deadline=None)
@given(tables(), ANYTHING, st.sampled_from(["X", "y", "task"]))
def test_one_bad_argument_raises_a_tacit_error_and_nothing_else(
    table: tuple[Any, Any, Any], bad: Any, where: str
) -> None:
    arguments: dict[str, Any] = dict(zip(["X", "y", "task"], table, strict=True)) | {where: bad}
    try:
        TaskSet.from_arrays(**arguments)
    except TacitError:
        return


# Classes


@pytest.mark.parametrize("y", [["no", "yes"], pd.Series(["no", "yes"]), np.array(["no", "yes"])])
def test_declared_classes_become_signs(y: Any) -> None:
    tasks = TaskSet.from_arrays([[0], [1]], y, classes=("no", "yes"))
    assert tasks.y.tolist() == [-1, 1]
    assert tasks.classes == ("no", "yes")


def test_the_second_class_is_positive() -> None:
    tasks = TaskSet.from_arrays([[0], [1]], ["no", "yes"], classes=("yes", "no"))
    assert tasks.y.tolist() == [1, -1]


def test_classes_are_measured_only_when_asked() -> None:
    tasks = TaskSet.from_arrays([[0], [1]], ["b", "a"], classes="from-data")
    assert (tasks.classes, tasks.y.tolist()) == (("a", "b"), [1, -1])
    assert TaskSet.from_arrays([[0], [1]], [0, 1]).classes is None


@pytest.mark.parametrize(
    ("y", "classes", "signs"),
    [
        ([0, 1, 1], (0, 1), [-1, 1, 1]),
        ([1, 1, 1], (0, 1), [1, 1, 1]),
        ([0.0, 0.0, 0.0], (0, 1), [-1, -1, -1]),
        (np.array([1, 1, 1], dtype=np.uint8), (0, 1), [1, 1, 1]),
        ([True, True, True], (0, 1), [1, 1, 1]),
        ([False, True, False], (0, 1), [-1, 1, -1]),
        (pd.Series([False] * 3, dtype="boolean"), (0, 1), [-1, -1, -1]),
        ([True, 0, 1], (0, 1), [1, -1, 1]),
        ([-1, 1, 1], (-1, 1), [-1, 1, 1]),
    ],
)
def test_zero_and_one_are_the_classes_whichever_occur(y: Any, classes: Any, signs: Any) -> None:
    tasks = TaskSet.from_arrays(np.zeros((3, 1)), y, classes="from-data")
    assert repr(tasks.classes) == repr(classes)
    assert tasks.y.tolist() == signs


def test_a_schema_may_declare_the_classes() -> None:
    schema = as_schema({"target": ["no", "yes"]}, ["x0"])
    assert TaskSet.from_arrays([[0], [1]], ["yes", "no"], schema=schema).y.tolist() == [1, -1]


def test_one_declared_class_may_be_absent() -> None:
    assert TaskSet.from_arrays([[0]], [1], classes=(0, 1)).y.tolist() == [1]


def test_an_undeclared_class_is_named_with_its_row() -> None:
    with pytest.raises(UndeclaredValue, match="'maybe' in row 1"):
        TaskSet.from_arrays([[0], [1]], ["no", "maybe"], ["b", "a"], classes=("no", "yes"))


@pytest.mark.parametrize("classes", ["from-data", ("a", "b", "c")])
def test_three_classes_are_each_told_from_the_others(classes: Any) -> None:
    tasks = TaskSet.from_arrays(np.zeros((3, 1)), ["b", "a", "c"], classes=classes)
    assert tasks.classes == ("a", "b", "c")
    np.testing.assert_array_equal(tasks.y, [[-1, 1, -1], [1, -1, -1], [-1, -1, 1]])


def test_several_targets_are_columns() -> None:
    y = np.arange(6.0).reshape(3, 2)
    tasks = TaskSet.from_arrays(np.zeros((3, 1)), y, ["b", "a", "b"])
    np.testing.assert_array_equal(tasks.y, y[[1, 0, 2]])
    with pytest.raises(InvalidInput, match="'target1'"):
        TaskSet.from_arrays(np.zeros((1, 1)), np.array([[1.0, np.nan]]))


@pytest.mark.parametrize(
    ("y", "classes", "message"),
    [
        ([0.5, 1.5, 2.5], "from-data", "continuous"),
        ([2, 2, 2], "from-data", "one class: 2; declare both"),
        ([-1, -1, -1], "from-data", "one class"),
        (["yes", "yes", "yes"], "from-data", "one class"),
        ([1, 1, 1], (1, 1), "two different classes"),
        ([1, 1, 1], "yes", "list of labels"),
        ([1, None, 1], (0, 1), "row 1"),
    ],
)
def test_bad_classes_are_refused(y: Any, classes: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        TaskSet.from_arrays(np.zeros((3, 1)), y, classes=classes)


# Parts


@settings(deadline=None)
@given(tables(), st.floats(0.05, 0.95), st.integers(0, 5))
def test_a_split_shares_out_every_row_within_its_task(
    table: tuple[Any, Any, list[Any]], fraction: float, seed: int
) -> None:
    tasks = TaskSet.from_arrays(*table)
    train, test = tasks.split(fraction, np.random.default_rng(seed))
    assert train.labels == test.labels == tasks.labels
    assert train.sizes.tolist() == [max(1, round(fraction * n)) for n in tasks.sizes.tolist()]
    assert (train.sizes + test.sizes == tasks.sizes).all()
    assert sorted([*train.order, *test.order]) == list(range(tasks.n_rows))
    for part in (train, test):
        np.testing.assert_array_equal(part.X, table[0][part.order])
        assert [part.labels[i] for i in part.task_index] == [table[2][row] for row in part.order]


def test_a_task_with_one_row_stays_in_training() -> None:
    train, test = small().split(0.1, np.random.default_rng(0))
    assert train.sizes.tolist() == [1, 1, 1]
    assert test.sizes.tolist() == [0, 1, 0]


def test_a_test_part_may_be_empty_altogether() -> None:
    _, test = small(task=[0, 1, 2, 3]).split(0.9, np.random.default_rng(0))
    assert (test.n_rows, test.X.shape, test.n_tasks) == (0, (0, 2), 4)


def test_a_split_is_random_and_reproducible() -> None:
    tasks = TaskSet.from_arrays(np.zeros((50, 1)), np.zeros(50))
    orders = [tasks.split(0.5, np.random.default_rng(seed))[0].order.tolist() for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize("fraction", [0, 1, -0.5, float("nan")])
def test_a_fraction_outside_zero_and_one_is_refused(fraction: float) -> None:
    with pytest.raises(InvalidInput, match="fraction"):
        small().split(fraction, np.random.default_rng(0))


def test_selected_tasks_come_in_the_order_asked() -> None:
    chosen = small().select([2, 1])
    assert chosen.labels == ("c", "b")
    assert chosen.y.tolist() == [3, 0, 2]
    assert chosen.offsets.tolist() == [0, 1, 3]


@pytest.mark.parametrize("indices", [[], [3], [-1], [0, 0], [0.5], ["a"]])
def test_bad_selections_are_refused(indices: Any) -> None:
    with pytest.raises(InvalidInput):
        small().select(indices)


def test_a_task_is_a_view_found_by_index() -> None:
    tasks = small()
    X, y = tasks.task(1)
    assert np.shares_memory(X, tasks.X)
    assert y.tolist() == [0, 2]
    with pytest.raises(InvalidInput, match="outside 0 to 2"):
        tasks.task(3)


def test_inconsistent_parts_do_not_make_a_task_set() -> None:
    with pytest.raises(InvalidInput, match="offsets must have shape"):
        TaskSet(np.zeros((2, 1)), np.zeros(2), np.array([0, 2]), ("a", "b"), np.arange(2), ("x",))


# With a schema


def test_a_schema_scales_codes_and_fills_while_reading() -> None:
    frame = pd.DataFrame(
        {"age": [50, None], "smokes": ["yes", None], "clinic": ["b", "a"], "risk": [0, 10]}
    )
    ranges: Ranges = {
        "age": Column(0, 100, missing=25),
        "smokes": Column(categories=("no", "yes"), missing="category"),
        "target": (0, 10),
    }
    schema = as_schema(ranges, ["age", "smokes"])
    tasks = TaskSet.from_frame(frame, task="clinic", target="risk", schema=schema)
    assert tasks.feature_names == ("age", "smokes=no", "smokes=yes")
    np.testing.assert_array_equal(tasks.X, [[-0.5, -1, -1], [0, -1, 1]])
    np.testing.assert_array_equal(tasks.y, [1, -1])


# Dropped rows

DROP: Ranges = {
    "age": Column(0, 100, missing="drop"),
    "smokes": Column(categories=("no", "yes"), missing="drop"),
    "target": Column(0, 10, missing="drop"),
}


def dropping(rows: list[tuple[Any, ...]]) -> TaskSet:
    """Rows of (clinic, age, smokes, risk), read with DROP."""
    clinic, age, smokes, risk = zip(*rows, strict=True)
    schema = as_schema(DROP, ["age", "smokes"])
    X = [list(pair) for pair in zip(age, smokes, strict=True)]
    return TaskSet.from_arrays(X, list(risk), list(clinic), schema=schema)


def test_rows_with_missing_or_undeclared_values_are_dropped_and_their_task_stays() -> None:
    tasks = dropping(
        [
            ("c", None, "yes", 1),
            ("b", 50, "yes", 5),
            ("a", 50, "perhaps", 5),
            ("b", "old", "no", 5),
            ("b", 100, "no", 10),
            ("a", 50, "no", float("inf")),
        ]
    )
    assert tasks.labels == ("a", "b", "c")
    assert tasks.sizes.tolist() == [0, 2, 0]
    assert tasks.order.tolist() == [1, 4]
    np.testing.assert_array_equal(tasks.X, [[0, 1], [1, -1]])
    np.testing.assert_array_equal(tasks.y, [0, 1])


def test_all_rows_may_be_dropped() -> None:
    tasks = dropping([("a", None, "no", 1), ("b", 2, "no", None)])
    assert (tasks.labels, tasks.X.shape, tasks.sizes.tolist()) == (("a", "b"), (0, 2), [0, 0])


CELLS = st.one_of(
    st.floats(),
    st.integers(-5, 200),
    st.sampled_from([None, "no", "yes", "5", "n/a", "", True]),
)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), CELLS, CELLS, CELLS), min_size=1, max_size=8))
def test_what_is_kept_of_a_task_depends_on_its_own_rows_alone(rows: list[Any]) -> None:
    together = rows_by_label(dropping([("a", 1, "no", 1), *rows]))
    alone = rows_by_label(dropping([("a", 1, "no", 1), *(row for row in rows if row[0] == "a")]))
    assert together["a"] == alone["a"]


def test_a_task_without_rows_can_be_split_and_selected() -> None:
    tasks = dropping([("a", None, "no", 1), *[("b", 2, "no", 3)] * 4])
    for part in tasks.split(0.5, np.random.default_rng(0)):
        assert part.labels == ("a", "b")
        assert part.sizes.tolist() == [0, 2]
    assert tasks.select([0]).sizes.tolist() == [0]


def test_a_tasks_split_depends_on_its_own_rows_and_coins_alone() -> None:
    """The seed may be public, as a run's name is: coins shared with others would tell of them."""
    a, b, c = ([(clinic, age, "no", 1) for age in range(30)] for clinic in "abc")
    before, after = dropping(a + b + c), dropping([*a[:7], ("b", None, "no", 1), *c])
    for seed in range(5):
        parts = [each.split(0.5, np.random.default_rng(seed))[0] for each in (before, after)]
        np.testing.assert_array_equal(parts[0].task(2)[0], parts[1].task(2)[0])
        assert len(parts[0].task(2)[0]) == 15


def test_a_tasks_split_is_the_same_whichever_others_have_rows() -> None:
    """A site knows only the tasks of its table: one that is not in it must not move the others."""
    a, b, c = ([(clinic, age, "no", 1) for age in range(30)] for clinic in "abc")
    splits = [
        dropping(rows).split(0.5, np.random.default_rng(3))[0] for rows in (a + b + c, b + c, c)
    ]
    whole, fewer, lone = (train.task(train.n_tasks - 1)[0] for train in splits)
    np.testing.assert_array_equal(whole, fewer)
    np.testing.assert_array_equal(whole, lone)


def test_two_tasks_with_equal_rows_are_split_by_coins_of_their_own() -> None:
    tasks = dropping([(clinic, age, "no", 1) for clinic in "ab" for age in range(30)])
    train, _ = tasks.split(0.5, np.random.default_rng(0))
    assert train.task(0)[0].tolist() != train.task(1)[0].tolist()


def test_classes_that_are_not_declared_are_dropped_with_their_rows() -> None:
    schema = as_schema({"target": Column(categories=("no", "yes"), missing="drop")}, ["x0"])
    y = ["yes", None, "perhaps", "no"]
    tasks = TaskSet.from_arrays([[0], [1], [2], [3]], y, classes=("no", "yes"), schema=schema)
    assert (tasks.X.ravel().tolist(), tasks.y.tolist()) == ([0, 3], [1, -1])


def test_without_the_rule_a_bad_row_is_still_an_error() -> None:
    schema = as_schema({"age": (0, 1), "smokes": Column(0, 1, missing="drop")}, ["age", "smokes"])
    with pytest.raises(MissingValues, match="column 'age' has 1 missing"):
        TaskSet.from_arrays([[None, None], [0, 0]], [0, 1], schema=schema)


# --- one task's cell and the others' ------------------------------------------------------------

ODD_CELLS = [
    pytest.param(("1", "2"), [1, 2, 1, 1], True, id="a truth value beside numbers"),
    pytest.param(("1", "2"), [1, 2, 1, 1], Fraction(1), id="what only equals a number"),
    pytest.param(
        ("false", "true"), [True, False, True, True], 2, id="a number beside truth values"
    ),
    pytest.param((2**53, 2**53 + 1), [2**53 + 1, 2**53, 2**53, 2**53], 0.5, id="a fraction"),
    pytest.param((2**53, 2**53 + 1), [2**53 + 1, 2**53, 2**53, 2**53], -(2**64), id="a huge one"),
]


@pytest.mark.parametrize(
    "series",
    [
        pl.Series,
        lambda cells: pd.Series(cells, dtype="Int64"),
        lambda cells: pd.Series(cells, dtype="category"),
    ],
)
def test_a_missing_cell_of_one_task_rounds_no_other_task_s_integers(series: Any) -> None:
    """With a null in a column of integers, polars and pandas give numpy floats: of ids of 64 bits
    none was a declared one any more, and everybody's rows were dropped."""
    one, two = 2**60 + 1, 2**60 + 3
    declared = Column(categories=(one, two), missing="drop")
    schema = as_schema({"id": declared, "target": (0, 1)}, ["id"])
    frame = pl.DataFrame if series is pl.Series else pd.DataFrame
    for first in (two, None):
        table = frame({"id": series([first, one, two, two, one])})
        tasks = TaskSet.from_arrays(table, np.zeros(5), [*"abbcc"], schema=schema)
        assert tasks.X[-4:].ravel().tolist() == [-1.0, 1.0, 1.0, -1.0]
        assert tasks.sizes.tolist() == [int(first is not None), 2, 2]


def test_an_hour_that_a_clock_shows_twice_is_two_cells() -> None:
    """In Python both are equal, and whichever came first stood for both: everybody's rows were
    dropped for one cell."""
    early = datetime.datetime(2020, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    late = early.replace(fold=1)
    declared = Column(categories=("2020-10-25T00:30:00+00:00", "x"), missing="drop")
    schema = as_schema({"x0": declared, "target": (0, 1)}, ["x0"])
    for first, rows in ((early, 1), (late, 0)):
        table = pd.DataFrame({"x0": pd.Series([first, early, early], dtype=object)})
        tasks = TaskSet.from_arrays(table, np.zeros(3), [*"abb"], schema=schema)
        assert tasks.sizes.tolist() == [rows, 2]


@pytest.mark.parametrize("kind", [pl.Array(pl.Int64, 1), pl.Struct({"a": pl.Int64})])
def test_a_column_of_values_inside_values_is_refused(kind: Any) -> None:
    """Those of one number each were read as numbers, and for one missing cell no longer:
    everybody's rows were dropped."""
    cell: Any = {"a": 1} if kind == pl.Struct({"a": pl.Int64}) else [1]
    for first in (cell, None):
        table = pl.DataFrame({"x": pl.Series([first, cell, cell], dtype=kind)})
        with pytest.raises(InvalidInput, match="expected one value per row"):
            as_schema({"x": Column(0, 2, missing="drop")}, ["x"]).coded(table)


def test_a_signalling_nan_is_a_missing_cell() -> None:
    X = np.array([[Decimal("sNaN")], [Decimal("1")]])
    schema = as_schema({"x0": Column(0, 2, missing="drop"), "target": (0, 1)}, ["x0"])
    assert TaskSet.from_arrays(X, [0, 0], ["a", "b"], schema=schema).sizes.tolist() == [0, 1]


@pytest.mark.parametrize("given", [list, "frame", "target"])
@pytest.mark.parametrize(("categories", "others", "odd"), ODD_CELLS)
def test_an_odd_cell_of_one_task_changes_no_other_task_s_rows(
    categories: tuple[Any, ...], others: list[Any], odd: Any, given: Any
) -> None:
    """True == 1 in Python, and whichever came first stood for both; numpy writes a list's True
    beside 2 as 1. Everybody's rows were dropped for one cell."""
    declared = Column(categories=categories, missing="drop")
    names, zeros = ["a", "b", "b", "c", "c"], [0.0] * 5

    def rows_of_others(first: Any) -> Any:
        cells = [first, *others]
        if given == "target":
            schema = as_schema({"target": declared}, ["x0"])
            tasks = TaskSet.from_arrays(np.zeros((5, 1)), cells, names, schema=schema)
            return [tasks.task(i)[1].tolist() for i in (1, 2)]
        X = [[cell] for cell in cells]
        table = X if given is list else pd.DataFrame({"x0": pd.Series(cells, dtype=object)})
        schema = as_schema({"x0": declared, "target": (0, 1)}, ["x0"])
        tasks = TaskSet.from_arrays(table, zeros, names, schema=schema)
        return [tasks.task(i)[0].tolist() for i in (1, 2)]

    assert rows_of_others(odd) == rows_of_others(others[0])
    assert list(map(len, rows_of_others(odd))) == [2, 2]
