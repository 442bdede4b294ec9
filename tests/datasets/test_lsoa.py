"""LSOA II as S1 prepares it, on a file made for these tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tacit import datasets
from tacit.errors import DataUnavailable, InvalidInput

MADE = """age,smokes,married,eats,walks
70,1,0,1,2
,2,1,0,
80,,1,1,1
74,1,0,,1
"""


@pytest.fixture
def made(tmp_path: Path) -> Path:
    file = tmp_path / "lsoa2.csv"
    file.write_text(MADE)
    return file


def test_each_target_is_a_task_of_those_who_answered(made: Path) -> None:
    data = datasets.read_lsoa2(made, ["eats", "walks"])
    assert np.bincount(data.task).tolist() == [3, 3]
    assert data.y.tolist() == [1, 0, 1, 1, 0, 0]  # of walks the answer 2 is the larger one


def test_missing_features_are_coded_as_in_the_paper(made: Path) -> None:
    data = datasets.read_lsoa2(made, ["eats", "walks"])
    assert data.feature_names == ("age", "smokes=1", "smokes=2", "married")
    first_task = data.X[data.task == 0]
    mean_age = (70 + 80 + 74) / 3
    expected = np.array([[70, 1, 0, 0], [mean_age, 0, 1, 1], [80, 0, 0, 1]])
    np.testing.assert_allclose(first_task, expected)


def test_a_missing_file_says_where_it_is_to_be_had(tmp_path: Path) -> None:
    with pytest.raises(DataUnavailable, match=r"to be had from https://www\.cdc\.gov.*checksum"):
        datasets.read_lsoa2(tmp_path / "none.csv", ["eats"])


@pytest.mark.parametrize(
    ("content", "targets", "told"),
    [
        (MADE, ["sleeps"], "has no column"),
        (MADE, [], "has no column"),
        (MADE, ["age"], "must have two answers, has 3"),
        ("a,b\nyes,1\nno,0\n", ["b"], "'a' holds text"),
        ("b\n1\n0\n", ["b"], "no feature"),
        ("a,b\n,1\n,0\n", ["b"], "no answer at all|holds text"),
    ],
)
def test_what_cannot_be_used_is_told(
    tmp_path: Path, content: str, targets: list[str], told: str
) -> None:
    file = tmp_path / "lsoa2.csv"
    file.write_text(content)
    with pytest.raises(InvalidInput, match=told):
        datasets.read_lsoa2(file, targets)
