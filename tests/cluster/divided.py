"""Tasks of one table, and what their files must come to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars

from tacit.datasets import related_tasks

DATA = related_tasks(30, rng=np.random.default_rng(0))
NAMES = [f"x{j}" for j in range(DATA.X.shape[1])]
FRAME = polars.DataFrame(DATA.X, schema=NAMES).with_columns(
    person=polars.Series(DATA.task), score=polars.Series(DATA.y)
)

Write = Callable[..., str]


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
