"""S1's protocol: what it chooses, and that it says what it costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit import Budget, LowRank, SingleTask
from tacit.datasets import low_rank_tasks, related_tasks
from tacit.experiments.protocol_s1 import (
    UNCOUNTED,
    combinations,
    cross_validated,
    dealt,
    error,
    mean_loss_rows,
    strategies,
    unit_rows,
)


def test_it_chooses_the_least_error_over_the_folds_and_says_it_is_uncounted() -> None:
    data = low_rank_tasks(30, 10, 6, rank=2, rng=np.random.default_rng(0))
    given: dict[str, Any] = {
        "budget": Budget(1e4, 1e-3), "as_published": True, "clip_norm": 60.0, "step": 1.0,
        "noise": "simulated", "random_state": 0, "fit_intercept": False,
    }  # fmt: skip
    grid = combinations({"rounds": [1, 8], "penalty": [0.3, 1e4]})
    found = cross_validated(
        lambda **chosen: LowRank(**given, **chosen), grid, data.X, data.y, data.task, scaled=True
    )
    assert found.parameters["penalty"] == 0.3  # 10⁴ makes every model zero
    assert found.error == min(each for _, each in found.tried)
    assert len(found.tried) == 4
    assert found.doubt == UNCOUNTED


def test_folds_spread_every_task() -> None:
    task = np.repeat([3, 1, 2], [10, 7, 2])
    fold = dealt(task, 5, np.random.default_rng(0))
    for label in (1, 2, 3):
        counts = np.bincount(fold[task == label], minlength=5)
        assert counts.max() - counts.min() <= 1


def test_rows_over_the_root_of_their_number_make_the_sum_a_mean() -> None:
    rng = np.random.default_rng(0)
    X, y, task = unit_rows(rng.normal(size=(9, 3))), rng.normal(size=9), np.repeat([0, 1], [2, 7])
    scaled, targets = mean_loss_rows(X, y, task)
    w = rng.normal(size=3)
    for label in (0, 1):
        rows = task == label
        assert ((scaled[rows] @ w - targets[rows]) ** 2).sum() == pytest.approx(
            ((X[rows] @ w - y[rows]) ** 2).mean()
        )
        assert np.linalg.eigvalsh(scaled[rows].T @ scaled[rows])[-1] <= 1 + 1e-12


def test_strategies_are_those_of_the_paper() -> None:
    found = strategies((0.0, 0.4), (0.9,))
    assert len(found) == 6
    assert {each["strong_convexity"] for each in found} == {0.0, 1e-3}
    some = combinations({"strategy": found, "rounds": [1, 2, 3]}, most=5)
    assert len(some) == 5
    assert all("strategy" not in each and "accelerated" in each for each in some)


def test_classes_are_scored_by_the_average_auc() -> None:
    data = related_tasks(10, 30, 3, loss="logistic", test_rows=40, rng=np.random.default_rng(0))
    model = SingleTask(loss="logistic").fit(data.X, data.y, task=data.task)
    found = error(model, data.X_test, data.y_test, data.task_test)
    assert 0 < found < 0.5
