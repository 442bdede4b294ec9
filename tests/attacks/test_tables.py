"""Tables and declarations that somebody made to harm: too wide, nested, binary, formulas."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest

import tacit
from tacit.cli.declarations import MOST_TOLD, read_declarations
from tacit.cli.predict import without_formulas
from tacit.errors import InvalidInput
from tacit.json_converter import from_json, to_json
from tacit.tasks import Column, Schema, as_schema
from tacit.tasks.columns import MOST_COLUMNS
from tacit.tasks.tables import as_table

MANY = 100_000


def nested(depth: int, leaf: object = "a") -> Any:
    for _ in range(depth):
        leaf = (leaf,)
    return leaf


# --- too wide ------------------------------------------------------------------------------------


def test_too_many_categories_are_refused_by_name_before_anything_is_spent_or_coded() -> None:
    """100,000 of them asked for 74.5 GiB."""
    plans = tuple(f"k{i}" for i in range(MANY))
    X, ledger = np.array([["k1"], ["k2"]] * 4, dtype=object), tacit.Ledger.in_memory()
    learner = tacit.MeanRegularized(
        budget=tacit.Budget(1.0), ledger=ledger, ranges={"x0": Column(categories=plans)}
    )
    before = len(ledger.entries())
    with pytest.raises(InvalidInput, match="'x0' alone becomes 100,000; expected at most 10,000"):
        learner.fit(X, np.arange(8.0), [0, 0, 0, 0, 1, 1, 1, 1])
    assert len(ledger.entries()) == before


def test_too_many_columns_are_refused_and_as_many_as_are_allowed_are_not() -> None:
    names = [f"c{i}" for i in range(MOST_COLUMNS + 1)]
    with pytest.raises(InvalidInput, match="10,001 columns to learn from; expected at most"):
        as_schema(None, names)
    assert len(as_schema(None, names[1:]).columns) == MOST_COLUMNS
    with pytest.raises(InvalidInput, match="100,000 columns to learn from"):
        tacit.MeanRegularized().fit(np.zeros((2, MANY)), [0.0, 1.0], ["a", "b"])


def test_a_schema_that_somebody_sent_is_held_to_the_same_bound() -> None:
    sent = to_json(as_schema({"x0": ["a", "b"]}, ["x0"]))
    sent["columns"][0]["categories"] = [f"k{i}" for i in range(MANY)]
    with pytest.raises(InvalidInput, match="'x0' alone becomes 100,000"):
        from_json(Schema, sent, "schema")


def test_of_very_many_problems_the_first_are_told(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text('[columns.y]\ntype = "unbounded"\n')
    names = ["task", "y", *(f"c{i}" for i in range(MANY))]
    with pytest.raises(InvalidInput, match=r"and more$") as error:
        read_declarations(tmp_path / "r.toml").schema(names, "task", ["y"])
    assert str(error.value).count("is not there") == MOST_TOLD


def test_one_name_twice_among_very_many_is_found_at_once() -> None:
    frame = polars.DataFrame(np.zeros((1, 3)), schema=["a", "b", "c"])
    names = [*(f"c{i}" for i in range(MANY)), "twice", "twice"]
    with pytest.raises(InvalidInput, match="column 'twice' occurs twice"):
        as_table(np.zeros((1, MANY + 2)), names)
    assert as_table(frame).arranged_as(("c", "a", "b")).names == ("c", "a", "b")


# --- labels --------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [9, 990, 2_000, 20_000])
def test_a_label_that_nests_is_refused_wherever_it_is_given(depth: int) -> None:
    X, y = np.eye(8), np.arange(8.0)
    model = tacit.SingleTask().fit(X, y, [0, 0, 0, 0, 1, 1, 1, 1])
    for labels in ([nested(depth)] * 8, [nested(depth), *"bbbbbbb"], [nested(depth, i) for i in y]):
        with pytest.raises(InvalidInput):
            tacit.SingleTask().fit(X, y, labels)
        with pytest.raises(InvalidInput):
            model.predict(X, labels)
        with pytest.raises(InvalidInput):
            model.adapt(X, y, labels[0])


# --- formulas ------------------------------------------------------------------------------------

FORMULAS = ("=cmd|'/c calc'!A0", "+1+1|x", "-2+3+cmd", "@SUM(A1)", "\t=1+1", " =1+1", "＝1+1")
HARMLESS = ("-7", "+7.5", "-1e5", "a=b", "school", "1-2", "é", "", "'=1")


def test_what_a_spreadsheet_would_compute_begins_with_an_apostrophe() -> None:
    values = [*FORMULAS, *HARMLESS]
    frame = polars.DataFrame({"=school": values, "prediction": np.arange(len(values))})
    frame = frame.with_columns(kind=polars.col("=school").cast(polars.Categorical))
    read = list(csv.DictReader(io.StringIO(without_formulas(frame).write_csv())))
    assert list(read[0]) == ["'=school", "prediction", "kind"]
    for name in ("'=school", "kind"):
        assert [row[name] for row in read] == [*(f"'{text}" for text in FORMULAS), *HARMLESS]
    assert [int(row["prediction"]) for row in read] == list(range(len(values)))
    assert not any(re.match(r"\s*[=@]", cell) for row in read for cell in row.values())


def test_negative_predictions_stay_numbers() -> None:
    frame = polars.DataFrame({"prediction": [-1.5, 2.0, None]})
    assert without_formulas(frame).equals(frame)
