"""One canonical text per task: what it is, what shares it, and what has none."""

from __future__ import annotations

import datetime
import enum
import math
import subprocess
import sys
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import InvalidInput
from tacit.tasks import TaskSet, canonical_label, task_codes

UTC = datetime.UTC


class Ward(enum.StrEnum):
    NORTH = "north"


class Floor(enum.IntEnum):
    FIRST = 1


class Colour(enum.Enum):
    RED = 1


class Text(str):
    """Text by another name."""


def numbered(labels: Any) -> dict[str, list[int]]:
    """The rows of each account."""
    found, codes = task_codes(labels, len(labels))
    return {
        canonical_label(found[i]): np.flatnonzero(codes == i).tolist() for i in range(len(found))
    }


# One task, one text


def test_a_new_school_called_a7_opens_no_account_for_school_7() -> None:
    before = pl.DataFrame({"school": [6, 7, 8]})["school"]
    after = pl.DataFrame({"school": ["6", "7", "8", "A7"]})["school"]
    assert set(numbered(before)) == {"6", "7", "8"}
    assert set(numbered(after)) == {"6", "7", "8", "A7"}


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (
            (
                1,
                1.0,
                "1",
                "1.0",
                "\ufeff1",
                "1\0",
                "\u200e1\u200f",
                " 1\t",
                np.int8(1),
                np.float32(1),
                Decimal(1),
                Decimal("1.00"),
                "1",
            ),
            "1",
        ),
        ((0, -0.0, Decimal("-0"), Decimal("0E+3")), "0"),
        ((1000, 1e3, Decimal("1E+3")), "1000"),
        ((2**70, float(2**70), Decimal(2**70), str(2**70)), str(2**70)),
        ((1.5, Decimal("1.50"), np.float64(1.5), "1.5"), "1.5"),
        ((1e-7, Decimal("1E-7")), "0.0000001"),
        ((-2, -2.0, "-2"), "-2"),
        ((True, np.True_, "true"), "true"),
        ((False, "false"), "false"),
        (
            ("caf\u00e9", "cafe\u0301", " caf\u00e9 ", Text("caf\u00e9"), np.str_("caf\u00e9")),
            "caf\u00e9",
        ),
        ((Ward.NORTH, "north"), "north"),
        ((Floor.FIRST, 1), "1"),
        ((("a", 1), ("a", 1.0), (" a", "1"), ("a", Floor.FIRST)), '["a","1"]'),
        (((("a", True),), ('["a","true"]',)), '["[\\"a\\",\\"true\\"]"]'),
        (((),), "[]"),
    ],
)
def test_labels_of_one_task_have_one_text(labels: tuple[Any, ...], text: str) -> None:
    assert {canonical_label(label) for label in labels} == {text}


def test_a_day_and_its_midnight_are_one_task_and_so_is_one_moment_in_two_time_zones() -> None:
    day, midnight = datetime.date(2020, 1, 2), datetime.datetime(2020, 1, 2)
    stored = [np.datetime64("2020-01-02", unit) for unit in ("D", "s", "ns")]
    for label in (day, midnight, pd.Timestamp(midnight), *stored):
        assert canonical_label(label) == "2020-01-02"
    noon = datetime.datetime(2020, 1, 2, 12, tzinfo=UTC)
    east = noon.astimezone(datetime.timezone(datetime.timedelta(hours=2)))
    assert canonical_label(noon) == canonical_label(east) == "2020-01-02T12:00:00+00:00"
    assert canonical_label(noon.replace(tzinfo=None)) == "2020-01-02T12:00:00"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("007", "7"),
        ("007", 7),
        ("a", "A"),
        (1, "01.0"),
        (1.1, "1.10"),
        (1, True),
        (1, 1.5),
        ("a", ("a",)),
        (0.1, 0.2),
    ],
)
def test_text_that_differs_stays_different(one: Any, other: Any) -> None:
    assert canonical_label(one) != canonical_label(other)


SCALARS = st.one_of(
    st.text().filter(str.strip),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(-(10**300), 10**300, allow_nan=False),
    st.dates(),
    st.datetimes(),
)
LABELS = st.one_of(SCALARS, st.lists(SCALARS, max_size=3).map(tuple))


@given(LABELS)
def test_a_canonical_text_is_the_label_of_the_same_task(label: Any) -> None:
    text = canonical_label(label)
    assert text == text.strip() != ""
    assert canonical_label(text) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_text_of_a_number_is_that_number_without_an_exponent(number: float) -> None:
    text = canonical_label(number)
    assert float(text) == number
    assert not set(text) - set("-.0123456789")


def deep(levels: int) -> Any:
    return "a" if levels == 0 else (deep(levels - 1),)


@pytest.mark.parametrize(
    "label",
    [
        None,
        float("nan"),
        math.inf,
        Decimal("NaN"),
        Decimal("sNaN"),
        Decimal("-Infinity"),
        Decimal("1E+999999999"),
        Decimal("1E-999999999"),
        pytest.param(10**5000, id="very long"),
        pd.NaT,
        np.datetime64("NaT"),
        "",
        " \t\n",
        "\ud800",
        b"a",
        1j,
        frozenset("ab"),
        Colour.RED,
        object(),
        datetime.timedelta(1),
        datetime.datetime.min.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
        ("a", None),
        ("a", ""),
        deep(9),
    ],
)
def test_what_has_no_declared_text_is_refused_with_its_type(label: Any) -> None:
    with pytest.raises(InvalidInput, match=r"of type .*expected text") as error:
        canonical_label(label)
    part = label[-1] if isinstance(label, tuple) and len(label) > 1 else label
    assert f"of type {type(part).__name__}" in str(error.value)


def test_a_tuple_may_nest_eight_deep() -> None:
    assert canonical_label(deep(8)).count("a") == 1


def test_the_text_does_not_depend_on_the_process() -> None:
    code = "from tacit.tasks import canonical_label as text; print(text(('north', 1, True)))"
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2)
    }
    assert said == {'["north","1","true"]\n'}


# Two ways of writing one task, in one fit


@pytest.mark.parametrize(
    "labels",
    [
        [1, "1"],
        ["a", " a"],
        ["caf\u00e9", "cafe\u0301"],
        [("x", 1), ("x", "1")],
        [2.5, "2.5"],
        [datetime.date(2020, 1, 2), "2020-01-02"],
        [("a",), '["a"]'],
        pd.Series(["a", "a "]),
        np.array(["a", "a "]),
        pl.Series(["a", "a "]),
    ],
)
def test_two_ways_of_writing_one_task_are_refused_by_name(labels: Any) -> None:
    with pytest.raises(InvalidInput) as error:
        task_codes(labels, 2)
    for label in list(labels):
        assert repr(str(label) if isinstance(label, str) else label) in str(error.value)


@pytest.mark.parametrize("labels", [[True, 1], [0, 2, False], [(1,), (True,)], [1.0, 2, True]])
def test_two_tasks_that_python_takes_for_equal_are_refused(labels: Any) -> None:
    with pytest.raises(InvalidInput, match="equal in Python"):
        task_codes(labels, len(labels))


@pytest.mark.parametrize(
    ("labels", "accounts"),
    [
        ([1, 1.0, Decimal(1), Floor.FIRST, np.int64(1)], {"1": [0, 1, 2, 3, 4]}),
        ([Ward.NORTH, "north"], {"north": [0, 1]}),
        ([True, False, 2], {"true": [0], "false": [1], "2": [2]}),
        ([2**53, 2**53 + 1, 0.5], {str(2**53): [0], str(2**53 + 1): [1], "0.5": [2]}),
        (["7", "007"], {"7": [0], "007": [1]}),
    ],
)
def test_rows_follow_the_canonical_text(labels: Any, accounts: dict[str, list[int]]) -> None:
    assert numbered(labels) == accounts


@pytest.mark.parametrize("label", [frozenset("a"), b"a", Colour.RED, math.inf, "", 1j])
def test_a_fit_refuses_a_label_without_a_text(label: Any) -> None:
    with pytest.raises(InvalidInput, match="expected text"):
        TaskSet.from_arrays([[0.0], [1.0]], [0, 1], task=["ok", label])


def test_labels_stay_as_they_were_given() -> None:
    assert TaskSet.from_arrays([[0.0], [1.0]], [0, 1], task=[" b", "a "]).labels == (" b", "a ")
    assert TaskSet.from_arrays([[0.0]], [0], task=[Decimal("1.0")]).labels == (Decimal(1),)


@pytest.mark.parametrize(
    ("label", "written"),
    [
        (-0.0, ["-0.0", "0"]),
        (1e22, ["1e+22"]),
        (1.2345678901234568e17, ["1.2345678901234568e+17"]),
        (1e-7, ["1e-07"]),
        (
            datetime.datetime(2020, 1, 2),
            ["2020-01-02 00:00:00", "2020-01-02T00:00:00.000000", "2020-01-02"],
        ),
        (datetime.datetime(2020, 1, 2, 3), ["2020-01-02 03:00:00", "2020-01-02T03:00:00.000000"]),
        (
            datetime.datetime(2020, 1, 2, tzinfo=UTC),
            [
                "2020-01-02 01:00:00+01:00",
                "2020-01-02T01:00:00.000000+0100",
                "2020-01-02T00:00:00Z",
            ],
        ),
    ],
)
def test_what_a_program_writes_of_a_label_is_the_same_account(label: Any, written: Any) -> None:
    """A workbook's day was another task than a data frame's, and so a second budget."""
    assert {canonical_label(text) for text in written} == {canonical_label(label)}


@pytest.mark.parametrize("text", ["1e5", "1e22", "2E4", "1e+999", "2020-13-01 00:00", "-0"])
def test_what_no_program_writes_of_a_number_or_time_stays_text(text: str) -> None:
    assert canonical_label(text) == text


def test_an_hour_with_its_time_zone_is_one_account_in_every_frame() -> None:
    """polars hands numpy the hour without its zone: another label, and so a second budget."""
    zone = ZoneInfo("Europe/Berlin")
    hours = [datetime.datetime(2020, 1, 2, hour, tzinfo=zone) for hour in (1, 3)]
    expected = {"2020-01-02T00:00:00+00:00", "2020-01-02T02:00:00+00:00"}
    for column in (hours, pl.Series(hours), pd.Series(hours)):
        labels, _ = task_codes(column, 2)
        assert {*map(canonical_label, labels)} == expected
