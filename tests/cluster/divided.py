"""Tasks of one table, and what their files must come to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest

from tacit.arrays import IntArray
from tacit.datasets import related_tasks
from tacit.privacy.mechanisms.noises import GaussianNoise

DATA = related_tasks(30, rng=np.random.default_rng(0))
NAMES = [f"x{j}" for j in range(DATA.X.shape[1])]
FRAME = polars.DataFrame(DATA.X, schema=NAMES).with_columns(
    person=polars.Series(DATA.task), score=polars.Series(DATA.y)
)

Write = Callable[..., str]


def written(place: Path, n_files: int, frame: Any = FRAME) -> str:
    """Divides the table by task, in no order, into so many files; the pattern of their names."""
    home = place / f"in_{n_files}"
    home.mkdir()
    labels = np.random.default_rng(n_files).permutation(frame["person"].unique().to_numpy())
    for i, some in enumerate(np.array_split(labels, n_files)):
        part = frame.filter(polars.col("person").is_in(some.tolist()))
        part.write_parquet(home / f"part-{i}.parquet")
    return str(home / "*.parquet")


def comparable(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Noise that follows from its scale and shape, so that two fits can be compared; the shapes
    that were drawn, in this process."""
    drawn: list[tuple[int, ...]] = []

    def rounded(self: GaussianNoise, shape: tuple[int, ...]) -> IntArray:
        drawn.append(shape)
        seed = abs(hash((self.scale, shape))) % 2**32
        return np.random.default_rng(seed).integers(-(2**27), 2**27, shape)

    monkeypatch.setattr(GaussianNoise, "rounded", rounded)
    return drawn


def models_in(folder: Path) -> Any:
    """All tasks' models, in the order of the tasks."""
    return polars.read_parquet(folder / "models" / "*.parquet").sort("person")


def require_same(one: Any, parted: Any, folder: Path) -> None:
    """The same bits, of what is shared and of every task's model."""
    found = models_in(folder)
    assert found["person"].to_list() == list(one.tasks_)
    np.testing.assert_array_equal(found.select(NAMES).to_numpy().T, one.coef_)
    np.testing.assert_array_equal(found["(intercept)"].to_numpy(), one.intercept_)
    for name, part in one.shared_.items():
        np.testing.assert_array_equal(parted.shared_[name].value, part.value)
    assert parted.guarantee_ == one.guarantee_
    np.testing.assert_equal(parted.history_, one.history_)
