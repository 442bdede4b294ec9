"""Declared columns: scaling, coding, missing values, and the way back to the units of X."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tacit.errors import InvalidInput, MissingValues, TacitError, UndeclaredValue
from tacit.json_converter import from_json, to_json
from tacit.tasks import Column, Schema, as_schema

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def declared_columns(draw: st.DrawFn) -> Column:
    """A range, categories, or nothing, with or without a rule for missing values."""
    kind = draw(st.sampled_from(["range", "categories", "nothing"]))
    if kind == "categories":
        values = st.one_of(st.text(max_size=3), st.integers(-5, 5), st.booleans())
        categories = draw(st.lists(values, min_size=1, max_size=4, unique=True))
        return Column(
            categories=tuple(categories), missing=draw(st.sampled_from([None, "category", "drop"]))
        )
    low = draw(st.floats(-1e6, 1e6))
    missing: Any = draw(st.sampled_from([None, low, "drop"]))
    if kind == "nothing":
        return Column(missing=missing)
    return Column(low, low + draw(st.floats(0.5, 1e6)), missing=missing)


# Ranges


@settings(deadline=None)
@given(hnp.arrays(np.float64, 5, elements=NUMBERS), NUMBERS, NUMBERS)
def test_a_declared_range_bounds_every_number(values: Any, one: float, other: float) -> None:
    low, high = min(one, other), max(one, other)
    if high / 2 - low / 2 == 0:
        with pytest.raises(InvalidInput, match="low must be below high"):
            Column(low, high)
        return
    scaled = Column(low, high).transform(values, "x")
    assert scaled.shape == (5, 1)
    assert (np.abs(scaled) <= 1).all()


def test_the_ends_of_a_range_become_minus_one_and_one() -> None:
    schema = as_schema({"x0": (10, 20)}, ["x0"])
    scaled = schema.transform([[10], [15], [17.5], [20], [0], [99]]).ravel()
    assert scaled.tolist() == [-1, 0, 0.5, 1, -1, 1]


def test_columns_without_a_range_pass_through() -> None:
    schema = as_schema({1: (0, 2)}, ["a", "b", "c"])
    np.testing.assert_array_equal(schema.transform([[7, 1, -9]]), [[7, 0, -9]])
    np.testing.assert_array_equal(schema.offset, [0, 1, 0])
    np.testing.assert_array_equal(schema.scale, [1, 1, 1])


def test_no_ranges_change_nothing_and_share_nothing() -> None:
    X, y = np.arange(6.0).reshape(3, 2), np.arange(3.0)
    schema = as_schema(None, ["a", "b"])
    assert schema.is_identity
    np.testing.assert_array_equal(schema.transform(X), X)
    assert not np.shares_memory(schema.transform(X), X)
    assert not np.shares_memory(schema.coded_target(y), y)


@settings(deadline=None)
@given(
    hnp.arrays(np.float64, (3, 4), elements=st.floats(-1, 1)),
    hnp.arrays(np.float64, 4, elements=st.floats(-1, 1)),
    st.lists(st.tuples(st.floats(-100, 100), st.floats(0.1, 100)), min_size=4, max_size=4),
)
def test_an_unscaled_model_predicts_the_same_inside_the_ranges(
    W: Any, b: Any, bounds: list[tuple[float, float]]
) -> None:
    ranges = {j: (low, low + width) for j, (low, width) in enumerate(bounds[:2])}
    schema = as_schema(ranges | {"target": (bounds[3][0], sum(bounds[3]))}, ["a", "b", "c"])
    inside = np.array([[0.1, 0.9], [0.5, 0.0], [1.0, 0.3]])
    X = np.column_stack(
        [*(low + width * inside[:, j] for j, (low, width) in enumerate(bounds[:2])), inside[:, 0]]
    )
    coef, intercept = schema.unscale(W, b)
    in_scaled_units = schema.inverse_target(schema.transform(X) @ W + b)
    np.testing.assert_allclose(X @ coef + intercept, in_scaled_units, atol=1e-9)


def test_a_single_model_is_unscaled_too() -> None:
    coef, intercept = as_schema({0: (0, 10)}, ["a"]).unscale(np.array([5.0]), np.array(1.0))
    assert (coef.tolist(), intercept.tolist()) == ([1.0], -4.0)


def test_the_target_is_scaled_clipped_and_brought_back() -> None:
    schema = as_schema({"target": (1, 71)}, ["a"])
    scaled = schema.coded_target([1, 36, 71, 100])
    assert scaled.tolist() == [-1, 0, 1, 1]
    assert schema.inverse_target(scaled).tolist() == [1, 36, 71, 71]
    assert (schema.target.centre, schema.target_scale) == (36, 35)


# Categories


def test_categories_are_coded_one_column_each() -> None:
    schema = as_schema({"colour": ["red", "green", "blue"]}, ["colour"])
    assert schema.feature_names_out == ("colour=red", "colour=green", "colour=blue")
    np.testing.assert_array_equal(schema.transform([["blue"], ["red"]]), [[-1, -1, 1], [1, -1, -1]])
    np.testing.assert_array_equal(schema.scale, [1, 1, 1])


def test_two_categories_need_one_column() -> None:
    schema = as_schema({"smokes": ["no", "yes"]}, ["smokes"])
    assert schema.feature_names_out == ("smokes=yes",)
    assert schema.transform([["no"], ["yes"]]).ravel().tolist() == [-1, 1]


def test_a_missing_category_is_minus_one_in_both_columns() -> None:
    schema = as_schema({"smokes": Column(categories=("no", "yes"), missing="category")}, ["smokes"])
    X = [["no"], ["yes"], [None], [float("nan")]]
    np.testing.assert_array_equal(schema.transform(X), [[1, -1], [-1, 1], [-1, -1], [-1, -1]])


@pytest.mark.parametrize(
    "X",
    [
        [["red"], ["red"], ["plum"]],
        pd.DataFrame({"colour": ["red", "red", "plum"]}),
        pl.DataFrame({"colour": ["red", "red", "plum"]}),
    ],
)
def test_an_undeclared_category_is_named_with_column_and_row(X: Any) -> None:
    schema = as_schema({"colour": ["red", "green"]}, ["colour"])
    with pytest.raises(UndeclaredValue, match=r"'colour' holds 'plum' in row 2.*'red', 'green'"):
        schema.transform(X)


def test_numeric_categories_match_by_value() -> None:
    schema = as_schema({0: [1, 2, 3]}, ["grade"])
    expected = [[1, -1, -1], [-1, -1, 1]]
    np.testing.assert_array_equal(schema.transform(np.array([[1.0], [3.0]])), expected)
    np.testing.assert_array_equal(schema.transform(np.array([[1], [3]], dtype=object)), expected)
    with pytest.raises(UndeclaredValue, match=r"holds 2\.5 in row 0"):
        schema.transform([[2.5]])


@pytest.mark.parametrize("drops", [None, "drop"])
def test_one_odd_cell_does_not_change_what_the_others_mean(drops: Any) -> None:
    """It makes a column of numbers text: every other row was undeclared, and dropped."""
    schema = as_schema({0: Column(categories=(0, 1), missing=drops)}, ["k"])
    numbers = schema.coded(np.array([[0], [1], [1]], dtype=object))
    if drops is None:
        with pytest.raises(UndeclaredValue, match="'n/a' in row 2"):
            schema.coded(np.array([["0"], ["1"], ["n/a"]]))
        return
    text = schema.coded(np.array([["0"], ["1"], ["n/a"]]))
    np.testing.assert_array_equal(text[:2], numbers[:2])
    assert np.isnan(text[2]).all()


def test_a_code_is_text_and_keeps_its_zeros() -> None:
    with pytest.raises(UndeclaredValue, match="'01' in row 0"):
        as_schema({0: ["1", "2"]}, ["grade"]).transform([["01"]])


# Missing values


@pytest.mark.parametrize("missing_X", [[[0.0], [None]], pd.DataFrame({"age": [0, None]})])
def test_a_missing_number_becomes_the_declared_one(missing_X: Any) -> None:
    schema = as_schema({"age": Column(0, 100, missing=75)}, ["age"])
    assert schema.transform(missing_X).ravel().tolist() == [-1, 0.5]
    unscaled = as_schema({"age": Column(missing=40)}, ["age"])
    assert unscaled.transform(missing_X).ravel().tolist() == [0, 40]


@pytest.mark.parametrize("column", [Column(), Column(0, 1), Column(categories=(0, 1))])
def test_missing_without_a_rule_is_refused(column: Column) -> None:
    with pytest.raises(MissingValues) as caught:
        as_schema({"b": column}, ["a", "b"]).transform([[0, None], [0, 1]])
    assert (caught.value.column, caught.value.count) == ("b", 1)


@pytest.mark.parametrize(
    ("column", "bad"),
    [
        (Column(0, 1, missing="drop"), [None, np.nan, np.inf, "text", "", 10**400]),
        (Column(missing="drop"), [None, -np.inf, {}, "1,5"]),
        (Column(categories=("a", "b"), missing="drop"), [None, np.nan, "c", 1, "A"]),
        (Column(categories=(0, 1, 2), missing="drop"), [None, 3, 0.5, "zero"]),
    ],
)
def test_a_row_to_be_dropped_is_marked_and_its_neighbours_keep_every_bit(
    column: Column, bad: list[Any]
) -> None:
    schema = as_schema({0: column, "target": column}, ["a"])
    good = column.categories or (0.3, 1, 0.1, "0.7")
    alone = [schema.coded([[cell]]) for cell in good]
    for cell in bad:
        among = schema.coded([[each] for each in (cell, *good, cell)])
        assert np.isnan(among[[0, -1]]).all()
        np.testing.assert_array_equal(among[1:-1], np.vstack(alone))
        if column.categories is None or len(column.categories) == 2:
            assert np.isnan(schema.coded_target([*good, cell])).tolist() == [False] * len(good) + [
                True
            ]


def test_two_categories_need_one_column_where_the_others_are_dropped() -> None:
    assert Column(categories=("no", "yes"), missing="drop").names_out("a") == ("a=yes",)


def test_what_would_be_dropped_has_no_prediction() -> None:
    schema = as_schema({"b": Column(0, 1, missing="drop")}, ["a", "b"])
    with pytest.raises(MissingValues) as caught:
        schema.transform([[0, None], [0, "text"], [0, 1]])
    assert (caught.value.column, caught.value.count) == ("b", 2)


def test_infinity_is_refused_even_inside_a_clipped_column() -> None:
    with pytest.raises(InvalidInput, match=r"'a' is infinite .* row 1"):
        as_schema({"a": (0, 1)}, ["a"]).transform([[0.0], [np.inf]])


# Declarations


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"low": 0}, "two finite numbers"),
        ({"low": 1, "high": 1}, "low must be below high"),
        ({"low": 2, "high": 1}, "low must be below high"),
        ({"low": 0, "high": float("inf")}, "two finite numbers"),
        ({"low": float("nan"), "high": 1}, "two finite numbers"),
        ({"low": "0", "high": "1"}, "two finite numbers"),
        ({"low": 0, "high": 10**400}, "two finite numbers"),
        ({"low": 0, "high": 1, "categories": (0, 1)}, "not both"),
        ({"categories": ()}, "must be given"),
        ({"categories": ("a", "a")}, "differ"),
        ({"categories": (None, "a")}, "text, a number or a boolean"),
        ({"categories": ([1], "a")}, "text, a number or a boolean"),
        ({"categories": "ab"}, "list or tuple"),
        ({"missing": "category"}, "goes with categories"),
        ({"low": 0, "high": 1, "missing": "category"}, "goes with categories"),
        ({"categories": ("a", "b"), "missing": 0.0}, "goes with categories"),
        ({"low": 0, "high": 1, "missing": 2}, "outside the range"),
        ({"missing": float("nan")}, "finite number"),
        ({"missing": "mean"}, "finite number"),
    ],
)
def test_bad_declarations_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Column(**fields)


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ({"incom": (0, 1)}, "unknown column 'incom'; did you mean 'income'?"),
        ({"zzz": (0, 1)}, "unknown column 'zzz'; there are 'age' to 'income'$"),
        ({2: (0, 1)}, "column 2; expected a name or 0 to 1"),
        ({-1: (0, 1)}, "expected a name or 0 to 1"),
        ({("age",): (0, 1)}, "expected a name or 0 to 1"),
        ({0: (0, 1), "age": (0, 1)}, "'age' is declared twice"),
        ({"age": (0, 1, 2)}, "expected a Column, a range"),
        ({"age": "wide"}, "expected a Column, a range"),
        ({"age": (1, 0)}, "column 'age': low must be below high"),
        ({"target": Column(missing=0)}, "no value that replaces a missing target"),
        ({"target": Column(categories=(0, 1), missing="category")}, "no value that replaces"),
        ("measured", "from-data"),
        ("from-data", "needs the data"),
        ([(0, 1)], "mapping"),
    ],
)
def test_bad_ranges_are_refused_by_column(ranges: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        as_schema(ranges, ["age", "income"])


def test_a_feature_called_target_is_declared_by_index() -> None:
    schema = as_schema({0: (0, 1), "target": (0, 10)}, ["target"])
    assert schema.columns[0] == Column(0, 1)
    assert schema.target == Column(0, 10)


def test_two_declared_classes_code_the_target() -> None:
    schema = as_schema({"target": ["ill", "well"]}, ["a"])
    assert schema.classes == ("ill", "well")
    assert schema.coded_target(["well", "ill"]).tolist() == [1, -1]
    of_three = as_schema({"target": [0, 1, 2]}, ["a"])
    assert of_three.n_outputs == 3
    assert of_three.coded_target([2, 0]).tolist() == [[-1, -1, 1], [1, -1, -1]]


def test_several_targets_have_a_range_each() -> None:
    y = np.array([[5.0, 0.0], [10.0, 4.0]])
    schema = as_schema({"target0": (0, 10), "target1": (0, 4)}, ["a"], y=y)
    assert schema.n_outputs == 2
    np.testing.assert_array_equal(schema.coded_target(y), [[0, -1], [1, 1]])
    np.testing.assert_array_equal(schema.inverse_target(schema.coded_target(y)), y)
    assert schema.of_output(1).target == schema.more_targets[0]
    with pytest.raises(InvalidInput, match="y has 1 targets, expected 2"):
        schema.coded_target([1.0])
    with pytest.raises(InvalidInput, match="several targets are numbers"):
        as_schema({"target0": ["a", "b"]}, ["a"], y=y)
    assert from_json(Schema, to_json(schema), "schema") == schema


# Frames


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_a_frame_is_matched_by_name(frame: Any) -> None:
    schema = as_schema({"a": (0, 2)}, ["a", "b"])
    swapped = frame({"b": [5.0], "a": [2.0]})
    np.testing.assert_array_equal(schema.transform(swapped), [[1, 5]])
    with pytest.raises(InvalidInput, match="unknown column 'ab'; did you mean"):
        schema.transform(frame({"ab": [1.0], "b": [1.0]}))
    with pytest.raises(InvalidInput, match="X has 1 features, expected 2"):
        schema.transform(frame({"a": [1.0]}))


# From data


def test_measured_ranges_say_so() -> None:
    X = [[1, "u", 5], [3, "v", 5], [2, "u", 5]]
    schema = as_schema("from-data", ["a", "b", "c"], X, y=[0, 4, 2])
    assert schema.from_data
    assert schema.columns[:2] == (Column(1, 3), Column(categories=("u", "v")))
    assert schema.target == Column(0, 4)
    np.testing.assert_array_equal(schema.transform(X), [[-1, -1, 0], [1, 1, 0], [0, -1, 0]])
    assert not as_schema({"a": (0, 1)}, ["a"]).from_data


@settings(deadline=None)
@given(hnp.arrays(np.float64, (3, 2), elements=NUMBERS))
def test_anything_finite_can_be_measured(X: Any) -> None:
    scaled = as_schema("from-data", ["a", "b"], X, X[:, 0]).transform(X)
    assert (np.abs(scaled) <= 1).all()


# Round trips


@settings(deadline=None)
@given(st.lists(declared_columns(), min_size=1, max_size=4), declared_columns(), st.booleans())
def test_a_schema_survives_json(columns: list[Column], target: Column, from_data: bool) -> None:
    names = tuple(f"x{j}" for j in range(len(columns)))
    if target.missing not in (None, "drop"):
        target = Column(target.low, target.high, target.categories)
    schema = Schema(names, tuple(columns), target, from_data)
    assert from_json(Schema, json.loads(json.dumps(to_json(schema))), "schema") == schema


def test_a_damaged_file_is_refused() -> None:
    with pytest.raises(InvalidInput, match="needs the entry 'columns'"):
        from_json(Schema, {"feature_names": ["a"]}, "schema")
    with pytest.raises(InvalidInput, match="no 'hihg'; did you mean 'high'"):
        from_json(Column, {"low": 0, "hihg": 1}, "column")
    with pytest.raises(InvalidInput, match="0 declarations for 1 features"):
        Schema(("a",), ())


@settings(deadline=None)
@given(declared_columns(), st.lists(st.one_of(NUMBERS, st.none(), st.text(max_size=2)), min_size=1))
def test_a_column_gives_bounded_numbers_or_a_tacit_error(column: Column, cells: list[Any]) -> None:
    try:
        coded = as_schema({0: column}, ["a"]).transform([[cell] for cell in cells])
    except TacitError:
        return
    assert coded.shape == (len(cells), len(column.names_out("a")))
    assert np.isfinite(coded).all()


def test_y_is_declared_by_its_own_name_unless_a_feature_has_it() -> None:
    y = pl.Series("score", [1.0, 70.0])
    assert as_schema({"score": (0, 70)}, ["age"], y=y).target == Column(0, 70)
    assert as_schema({"score": (0, 70)}, ["score"], y=y).columns == (Column(0, 70),)
    frame = pl.DataFrame({"score": [1.0]})
    assert as_schema({"score": (0, 70)}, ["age"], y=frame).target == Column(0, 70)
    with pytest.raises(InvalidInput, match="y is declared twice: 'target' and 'score'"):
        as_schema({"score": (0, 70), "target": (0, 70)}, ["age"], y=y)


def test_text_in_a_column_of_which_nothing_was_said_is_told_with_the_way_out() -> None:
    X = pl.DataFrame({"age": [1.0, 2.0], "sex": ["f", "m"]})
    for ranges in ({}, {"age": (0, 9)}):
        with pytest.raises(InvalidInput, match=r"holds 'f' in row 0.*ranges=\{'sex': \[\.\.\.\]\}"):
            as_schema(ranges, X.columns).coded(X)
