"""Names and tables that are no text: refused in one line, before anything is spent."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import polars
import pytest
from harness import answer
from harness_files import OPTIONS, RANGES, pupils

import tacit
from tacit.errors import InvalidInput

HALF = "\udcff"
"""A byte that is no UTF-8, as a command line hands it on."""


@pytest.mark.parametrize(
    "odd",
    [("--ledger", f"{HALF}.sqlite"), ("--attest", HALF), ("--dataset", HALF), ("--task", HALF)],
)
def test_an_argument_that_is_no_text_stops_before_anything_is_spent(
    odd: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "pupils.csv").write_text(pupils(random.Random(0)))
    (tmp_path / "ranges.toml").write_text(RANGES)
    name, value = odd
    given = str(tmp_path / value) if name == "--ledger" else value
    places = ("--ranges", tmp_path / "ranges.toml", "--out", tmp_path / "model")
    said = answer("fit", tmp_path / "pupils.csv", *OPTIONS, *places, name, given)
    assert (said.code, said.problem) == (2, "")
    assert not (tmp_path / "model").exists()


def test_a_table_whose_name_is_no_text_is_refused(tmp_path: Path) -> None:
    odd = tmp_path / f"{HALF}.csv"
    odd.write_text(pupils(random.Random(0)))
    asked = ("--task", "school", "--target", "score", "--epsilon", "1", "--out", tmp_path / "m")
    ranges = ("--range", "score=0:100")
    said = answer("fit", odd, *asked, *ranges)
    assert (said.code, said.problem) == (2, "")
    assert not (tmp_path / "m").exists()


def test_integers_that_numpy_has_not_are_refused() -> None:
    wide = polars.DataFrame({"a": polars.Series([10**30] * 4, dtype=polars.Int128)})
    with pytest.raises(InvalidInput, match="cannot be read as an array"):
        tacit.MeanRegularized().fit(wide, np.arange(4.0), task=["a", "a", "b", "b"])
