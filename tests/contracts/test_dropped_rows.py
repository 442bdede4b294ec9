"""Rows that are dropped at home: no learner ends for them, and a task with none left stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit import (
    AsyncProximal,
    AveragedModel,
    Budget,
    Column,
    Decomposed,
    GroupSparse,
    LowRank,
    MeanRegularized,
    Pooled,
    SharedPrior,
    SingleTask,
    TaskRelationship,
)
from tacit.errors import InvalidInput, MissingValues

TASK_LEVEL: list[Any] = [
    MeanRegularized,
    SharedPrior,
    LowRank,
    GroupSparse,
    Decomposed,
    TaskRelationship,
    AveragedModel,
]
LEARNERS = [SingleTask, Pooled, *TASK_LEVEL]
RANGES = {
    0: Column(-1, 1, missing="drop"),
    1: Column(-1, 1, missing="drop"),
    "target": Column(-2, 2, missing="drop"),
}
RNG = np.random.default_rng(5)
TASK = np.repeat(["a", "b", "c", "gone"], 6)
X = RNG.uniform(-1, 1, (24, 2))
Y = X @ [1.0, -0.5] + 0.1 * RNG.normal(size=24)
SPOILT = X.copy()
SPOILT[TASK == "gone", 0] = np.nan
SPOILT[TASK == "gone", 1] = np.inf


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_task_with_no_row_left_stays_and_gets_a_finite_model(learner: Any, loss: str) -> None:
    ranges = RANGES if loss == "squared" else {k: v for k, v in RANGES.items() if k != "target"}
    y = Y if loss == "squared" else (Y > 0).astype(int)
    private = {"budget": Budget(1.0)} if learner in TASK_LEVEL else {}
    model = learner(loss=loss, ranges=ranges, **private).fit(SPOILT, y, task=TASK)
    assert model.tasks_ == ("a", "b", "c", "gone")
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.predict(X, task=TASK).astype(float)).all()
    if private:
        assert model.guarantee_.proven, model.guarantee_.reason
        assert len(model.ledger_.costs(("gone",))) == 1


@pytest.mark.parametrize("learner", LEARNERS)
def test_all_rows_may_be_dropped(learner: Any) -> None:
    private = {"budget": Budget(1.0)} if learner in TASK_LEVEL else {}
    model = learner(ranges=RANGES, **private).fit(np.full_like(X, np.nan), Y, task=TASK)
    assert np.isfinite(model.predict(X, task=TASK)).all()


@pytest.mark.parametrize("learner", [SingleTask])
def test_what_is_left_gives_the_model_of_what_was_kept(learner: Any) -> None:
    spoilt, kept = X.copy(), np.ones(24, dtype=bool)
    kept[[1, 8]] = False
    spoilt[~kept] = np.nan
    model = learner(ranges=RANGES).fit(spoilt, Y, task=TASK)
    other = learner(ranges=RANGES).fit(X[kept], Y[kept], task=TASK[kept])
    np.testing.assert_array_equal(model.coef_, other.coef_)


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_row_that_would_be_dropped_has_no_prediction(learner: Any) -> None:
    model = learner(ranges=RANGES).fit(X, Y, task=TASK)
    with pytest.raises(MissingValues, match="6 missing values"):
        model.predict(SPOILT, task=TASK)


def test_where_one_example_is_protected_the_number_of_rows_stays() -> None:
    with pytest.raises(InvalidInput, match="number of rows depend on the data"):
        AsyncProximal(budget=Budget(1.0), ranges=RANGES).fit(X, Y, task=TASK)
    filled = {**RANGES, 0: Column(-1, 1, missing=0), 1: (-1, 1), "target": (-2, 2)}
    assert AsyncProximal(budget=Budget(1.0), ranges=filled).fit(X, Y, task=TASK).guarantee_.proven
