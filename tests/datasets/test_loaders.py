"""Loaders check what they read, say what to do when they cannot, and never download."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit import datasets
from tacit.errors import DataUnavailable
from tacit.tasks import TaskSet, as_schema

LOADERS = [getattr(datasets, name) for name in datasets.__all__ if name.startswith("load_")]

needs_data = pytest.mark.skipif(
    not os.environ.get("TACIT_DATA"), reason="TACIT_DATA does not name the folder of data files"
)


@pytest.mark.parametrize("load", LOADERS)
def test_without_a_folder_the_error_says_what_to_set(
    load: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TACIT_DATA", raising=False)
    with pytest.raises(DataUnavailable, match=r"set the environment variable TACIT_DATA.*path="):
        load()


@pytest.mark.parametrize("load", LOADERS)
def test_a_missing_file_is_named(load: Any, tmp_path: Path) -> None:
    with pytest.raises(DataUnavailable, match=r"\.npz cannot be read .*set the environment"):
        load(tmp_path)


def test_another_file_of_that_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "landmine.npz", X=np.zeros((2, 9)))
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    with pytest.raises(DataUnavailable, match=r"its SHA-256 is .* expected SHA-256 603ea5ac"):
        datasets.load_landmine()
    with pytest.raises(DataUnavailable, match="SHA-256"):
        datasets.load_landmine(path=tmp_path / "landmine.npz")


@needs_data
def test_school_has_139_schools_and_no_constant_column() -> None:
    school = datasets.load_school()
    assert school.X.shape == (15362, 27)
    assert len(np.unique(school.task)) == 139
    assert (school.X.min(axis=0) < school.X.max(axis=0)).all()
    assert school.train_splits.sum(axis=1).tolist() == [11472] * 10
    assert "bias" not in school.feature_names
    assert school.y.mean() == pytest.approx(20.60, abs=0.005)


@needs_data
def test_the_public_ranges_of_school_clip_nothing() -> None:
    school = datasets.load_school()
    schema = as_schema(school.ranges, school.feature_names)
    tasks = TaskSet.from_arrays(school.X, school.y, school.task, schema=schema)
    assert tasks.sizes.min() == 22
    assert tasks.sizes.max() == 251
    np.testing.assert_allclose(tasks.X * schema.scale + schema.offset, school.X[tasks.order])
    np.testing.assert_allclose(schema.inverse_target(tasks.y), school.y[tasks.order])
    percent = [
        name for name, half in zip(school.feature_names, schema.scale, strict=True) if half == 50
    ]
    assert percent == ["pct_free_school_meals", "pct_VR1_band"]


@needs_data
def test_landmine_has_29_binary_tasks() -> None:
    mines = datasets.load_landmine()
    assert mines.X.shape == (14820, 9)
    schema = as_schema(mines.ranges, mines.feature_names)
    tasks = TaskSet.from_arrays(mines.X, mines.y, mines.task, schema=schema)
    assert tasks.classes == (0, 1)
    assert tasks.n_tasks == 29
    assert (tasks.y == 1).sum() == 904


@needs_data
def test_har_has_30_people_and_six_activities() -> None:
    har = datasets.load_har()
    assert har.X.shape == (10299, 186)
    assert len(har.feature_names) == 186
    assert len(np.unique(har.task)) == 30
    assert len(har.class_names) == len(np.unique(har.y)) == 6
    assert har.official_test_subject.sum() == 2947


@needs_data
def test_household_power_has_1417_whole_days() -> None:
    load = datasets.load_household_power()
    assert load.X.shape == load.n_minutes.shape == (1417, 24)
    assert load.X.mean() == pytest.approx(1.092, abs=0.0005)
    assert (load.date.min(), load.date.max()) == (20061217, 20101125)


@needs_data
def test_real_estate_has_414_sales() -> None:
    sales = datasets.load_real_estate()
    assert sales.X.shape == (414, 6)
    assert sales.y.max() == 117.5
    assert len(sales.feature_names) == 6
    assert sales.target_name.startswith("Y")


@needs_data
def test_no_mnist_writer_is_in_both_parts() -> None:
    digits = datasets.load_mnist_by_writer()
    assert digits.train.X.shape == (60000, 28, 28)
    assert digits.test.X.shape == (10000, 28, 28)
    train, test = set(digits.train.task.tolist()), set(digits.test.task.tolist())
    assert (len(train), len(test), train & test) == (539, 297, set())


@needs_data
def test_femnist_has_206_writers_and_62_classes() -> None:
    characters = datasets.load_femnist_writers()
    assert characters.X.shape == (6237, 28, 28)
    assert len(np.unique(characters.task)) == 206
    assert len(np.unique(characters.y)) == 62
    assert characters.X.max() <= characters.pixel.high
