"""Declared columns become cells and coordinates, and models come back without loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.errors import InvalidInput
from tacit.silos.coding import Coding, coding_of
from tacit.silos.silo_plan import blocks_for
from tacit.tasks import Column, as_schema

KINDS: dict[str, Any] = {
    "number": (0, 10),
    "two": ["x", "y"],
    "three": ["p", "q", "r"],
    "two, or missing": Column(categories=("u", "v"), missing="category"),
    "one": ["only"],
    "three, or missing": Column(categories=(1, 2, 3), missing="category"),
    "one, or missing": Column(categories=("only",), missing="category"),
}
VALUES: dict[str, list[Any]] = {
    "number": [0.0, 2.5, 9.0],
    "two": ["x", "y"],
    "three": ["p", "q", "r"],
    "two, or missing": ["u", "v", None],
    "one": ["only"],
    "three, or missing": [1, 2, 3, None],
    "one, or missing": ["only", None],
}
SCHEMA = as_schema(KINDS | {"target": (0, 1)}, list(KINDS))


def coded(rows: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    table = [[VALUES[name][rng.integers(len(VALUES[name]))] for name in KINDS] for _ in range(rows)]
    return SCHEMA.transform(table)


def test_levels_count_a_missing_category() -> None:
    assert coding_of(SCHEMA).levels == (0, 2, 3, 3, 1, 4, 2)


def test_a_model_of_coordinates_predicts_the_same_from_the_columns() -> None:
    coding, X = coding_of(SCHEMA), coded(200)
    cells = np.column_stack([coding.cells(X), np.zeros(len(X))])
    f = blocks_for(coding.levels).coordinates(cells)[:, :-1]
    beta = np.random.default_rng(1).normal(size=(3, f.shape[1]))
    models = coding.models(beta)
    np.testing.assert_allclose(X @ models[:, :-1].T + models[:, -1], f @ beta.T, atol=1e-12)


def test_a_covariance_comes_back_as_that_of_the_models() -> None:
    coding = coding_of(SCHEMA)
    rng = np.random.default_rng(2)
    half = rng.normal(size=(1 + len(coding.to_rows[1]), 3))
    models = coding.models(half.T)
    np.testing.assert_allclose(coding.covariance(half @ half.T), models.T @ models, atol=1e-12)


def test_every_level_has_its_own_cell() -> None:
    coding = Coding((KINDS["three, or missing"],))
    X = as_schema({"a": KINDS["three, or missing"]}, ["a"]).transform([[1], [2], [3], [None]])
    np.testing.assert_array_equal(coding.cells(X)[:, 0], [0, 1, 2, 3])


@pytest.mark.parametrize("ranges", [{}, {"a": (0, 1)}, {"target": (0, 1)}])
def test_a_missing_range_is_named(ranges: dict[str, Any]) -> None:
    absent = "target" if "a" in ranges else "a"
    with pytest.raises(InvalidInput, match=f"'{absent}' has no declared range"):
        coding_of(as_schema(ranges, ["a"]))
