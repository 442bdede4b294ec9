"""Tables on the command line: each cell is read on its own, whatever stands beside it."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.cli.cells import cells, task_texts
from tacit.cli.fit_input import read_data
from tacit.cli.loading import label_named
from tacit.cli.undeclared import ColumnOptions
from tacit.errors import InvalidInput
from tacit.tasks import Column, TaskSet, read_table
from tacit.tasks.labels import category
from tacit.tasks.table_files import FileTable, Written

if TYPE_CHECKING:
    from tests.cli.conftest import Command, Desk

RANGES = """
[columns.age]
type = "number"
low = 0
high = 100
[columns.ward]
type = "categories"
categories = ["01", "1", "2"]
[columns.smokes]
type = "categories"
categories = [0, 1]
[columns.ill]
type = "categories"
categories = [false, true]
"""
DROP = (
    RANGES.replace("[columns", 'missing = "drop"\n[columns').split("\n", 2)[2]
    + 'missing = "drop"\n'
)
HEADER = "school,age,ward,smokes,ill"


def read(table: Path, ranges: str = RANGES) -> TaskSet:
    """The tasks of a table, as `tacit fit` reads them."""
    file = table.with_name("ranges.toml")
    file.write_text(ranges)
    request: Any = SimpleNamespace(
        table=table,
        ranges=file,
        task="school",
        target=["ill"],
        learner="auto",
        loss="auto",
        person=None,
        protect="task",
        rows_are_public=False,
        columns=ColumnOptions(),
        written=Written(),
    )
    return read_data(request).tasks


def csv(folder: Path, *rows: str) -> Path:
    table = folder / "t.csv"
    table.write_text("\n".join([HEADER, *rows]) + "\n")
    return table


def by_label(tasks: TaskSet) -> dict[Any, Any]:
    return {label: np.column_stack(tasks.task(i)).tolist() for i, label in enumerate(tasks.labels)}


# The task column is text


def test_codes_keep_their_zeros_and_numbers_have_one_text(tmp_path: Path) -> None:
    row = "5,1,0,true"
    assert read(csv(tmp_path, f"007,{row}", f"7,{row}", f" 8 ,{row}")).labels == ("007", "7", "8")


@pytest.mark.parametrize(
    "schools",
    [
        pl.Series([8, 7, 7], dtype=pl.Int8),
        pl.Series([8.0, 7.0, 7.0]),
        pl.Series(["8", "7", "7"], dtype=pl.Categorical),
        pl.Series(["8", "7", " 7"]).str.strip_chars(),
        pl.Series([Decimal("8.00"), Decimal("7.00"), Decimal("7.00")]),
    ],
)
def test_parquet_gives_the_tasks_of_the_csv(schools: pl.Series, tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {"school": schools, "age": [1, 2, 3], "ward": [1, 2, 1], "smokes": [True, False, True]}
    ).with_columns(ill=pl.Series([1.0, 0.0, 1.0]))
    frame.write_parquet(tmp_path / "t.parquet")
    table = csv(tmp_path, "8,1,1,1.0,1", "7,2,2,0,false", "7,3.0,1,1,TRUE")
    assert by_label(read(tmp_path / "t.parquet")) == by_label(read(table))
    assert read(table).labels == ("7", "8")


def test_one_more_school_called_a7_changes_no_label_and_no_row(tmp_path: Path) -> None:
    rows = ["6,50,01,0,true", "7,20,1,1,false"]
    before = by_label(read(csv(tmp_path, *rows)))
    after = by_label(read(csv(tmp_path, *rows, "A7,30,2,0,true")))
    assert after.pop("A7")
    assert after == before


@pytest.mark.parametrize(
    ("series", "texts"),
    [
        (pl.Series([True, False]), ["true", "false"]),
        (pl.Series([datetime.date(2020, 1, 2)]), ["2020-01-02"]),
        (pl.Series([datetime.datetime(2020, 1, 2)]), ["2020-01-02"]),
        (pl.Series([2.5, 3.0]), ["2.5", "3"]),
        (pl.Series([2**62 + 1]), [str(2**62 + 1)]),
    ],
)
def test_a_task_column_of_any_type_becomes_text(series: pl.Series, texts: list[str]) -> None:
    assert task_texts(series).tolist() == texts


@pytest.mark.parametrize(
    ("series", "message"),
    [
        (pl.Series("school", ["a", None]), "1 missing value"),
        (pl.Series("school", [b"a"]), "column 'school' holds Binary"),
        (pl.Series("school", [{"a": 1}]), "column 'school' holds Struct"),
        (pl.Series("school", [[1]]), "column 'school' holds List"),
        (pl.Series("school", ["a", "a "]), "'a' and 'a ', which are one task"),
    ],
)
def test_a_task_column_without_texts_is_refused(series: pl.Series, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        task_texts(series)


def test_a_task_is_named_on_the_command_line_by_its_text() -> None:
    labels = (7, "007", ("a", 1))
    meant = {"7": 7, " 7": 7, "7.0": 7, "007": "007", '["a","1"]': ("a", 1)}
    assert {text: label_named(text, labels) for text in meant} == meant
    for other in ("7.00", "07", "8"):
        with pytest.raises(InvalidInput, match="is not one of the 3 fitted tasks"):
            label_named(other, labels)


# Every cell on its own


def test_a_bad_cell_of_one_task_does_not_touch_the_others(tmp_path: Path) -> None:
    good = ["a,50,01,0,true", "a,1e1,2,1,false", "b,7,1,1.0,1"]
    spoilt = ["c,n/a,01,0,true", "c,50,99,0,true", "c,50,1,maybe,true", "c,50,1,1,perhaps"]
    alone = by_label(read(csv(tmp_path, *good), DROP))
    for bad in (*spoilt, "c,,1,1,true", "c,50,,1,true", "c,50,1,,true", "c,50,1,1,"):
        tasks = by_label(read(csv(tmp_path, *good, bad), DROP))
        assert tasks.pop("c") == []
        assert tasks == alone


def test_without_the_rule_a_bad_cell_is_named(tmp_path: Path) -> None:
    row = "a,50,01,0,true"
    for bad, said in [
        ("a,n/a,01,0,true", "column 'age' holds 'n/a' in row 3"),
        ("a,,01,0,true", "column 'age' has 1 empty cell.*\n?.*missing = \"drop\" drops them"),
        ("a,50,99,0,true", r"column 'ward' holds '99' in row 3.*\(1 such rows\)"),
        ("a,50,1,2,true", "column 'smokes' holds '2' in row 3"),
        ("a,50,1,1,perhaps", "column 'ill' holds 'perhaps' in row 3"),
    ]:
        with pytest.raises(InvalidInput, match=said):
            read(csv(tmp_path, row, bad))


def test_a_task_with_one_row_keeps_it_for_learning(tmp_path: Path) -> None:
    row = "50,01,0,true"
    tasks = read(csv(tmp_path, f"lonely,{row}", *[f"many,{row}"] * 5))
    train, test = tasks.split(0.8, np.random.default_rng(0))
    assert (train.sizes.tolist(), test.sizes.tolist()) == ([1, 4], [0, 1])


NUMBERS = st.one_of(
    st.floats().map(repr),
    st.integers().map(str),
    st.decimals().map(str),
    st.text(st.sampled_from("0123456789.eE+-_ infaty"), max_size=9),
)


@given(NUMBERS)
def test_a_number_has_the_same_bits_beside_any_neighbour(text: str) -> None:
    """Polars reads a column of numbers, Python one that holds anything else."""
    from tacit.tasks.numeric_cells import readable_numbers

    if not text.strip():
        return
    alone, beside = (
        readable_numbers(cells(FileTable(pl.DataFrame({"x": texts})), "x", Column()), "x")
        for texts in ([text], [text, "n/a"])
    )
    both_none = math.isnan(alone[0]) and math.isnan(beside[0])
    assert both_none or alone[0].tobytes() == beside[0].tobytes()


@pytest.mark.parametrize(
    ("cell", "categories", "meant"),
    [
        ("1", (0, 1), 1),
        ("1.0", (0, 1), 1),
        (" 1 ", (0, 1), 1),
        ("true", (0, 1), 1),
        ("True", (False, True), True),
        ("0", (False, True), False),
        ("01", ("1", "2"), "01"),
        ("1", ("1", 1), "1"),
        (1, ("1", "2"), "1"),
        (1.0, ("1", "2"), "1"),
        (True, ("true", "false"), "true"),
        (None, ("a",), None),
        (b"a", ("a",), b"a"),
        ("nan", (0, 1), "nan"),
        ("", (0, 1), ""),
    ],
)
def test_a_cell_is_the_category_that_it_writes(cell: Any, categories: Any, meant: Any) -> None:
    found = category(cell, categories)
    assert (found, type(found)) in [(meant, type(meant)), (meant, type(cell))]


def test_a_csv_is_read_as_text_and_blank_cells_are_missing(tmp_path: Path) -> None:
    table = csv(tmp_path, '1,"",   ,"a ",')
    frame = read_table(table)
    assert set(frame.dtypes) == {pl.String}
    assert frame.row(0) == ("1", None, None, "a ", None)


def test_a_fit_drops_what_was_declared_to_be_dropped_and_says_how_much(
    desk: Desk, command: Command
) -> None:
    with desk.table.open("a") as file:
        file.write("gone,,f,40\ngone,9,x,40\ns00,n/a,f,40\nlonely,9,f,40\n")
    declared = desk.ranges.read_text().replace("high = 19", 'high = 19\nmissing = "drop"')
    desk.ranges.write_text(declared.replace('"m"]', '"m"]\nmissing = "drop"'))
    done = command(*desk.fit())
    assert done.code == 0, done.err
    assert "3 rows were dropped, their cells empty or undeclared; 1 tasks have no row" in done.err
    assert "dropped" not in done.out
    desk.table.write_text(
        "".join(desk.table.read_text().splitlines(keepends=True)[:-4]) + "s00,n/a,f,40\n"
    )
    assert "undeclared; 0" not in command(*desk.fit("other", dataset="other")).err
    new = desk.path / "new.csv"
    new.write_text("school,age,sex\ngone,9,f\nlonely,9,f\n")
    said = command("predict", desk.path / "model", new)
    assert [line.split(",")[0] for line in said.out.splitlines()] == ["school", "gone", "lonely"]


def test_parquet_with_numbers_is_predicted_by_a_model_of_a_csv(
    desk: Desk, command: Command
) -> None:
    desk.table.write_text(desk.table.read_text().replace("s0", "").replace("s1", "1"))
    assert command(*desk.fit()).code == 0
    rows = {"school": [3.0, 11.0], "age": [10, 11], "sex": ["f", "m"]}
    pl.DataFrame(rows).write_parquet(desk.path / "new.parquet")
    pl.DataFrame(rows | {"school": ["3", "11"]}).write_csv(desk.path / "new.csv")
    said = [
        command("predict", desk.path / "model", desk.path / f) for f in ("new.parquet", "new.csv")
    ]
    numbers = [[line.split(",")[1] for line in each.out.splitlines()] for each in said]
    assert numbers[0] == numbers[1]
    assert len(numbers[0]) == 3
