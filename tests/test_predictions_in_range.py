"""What is predicted lies within the declared range of its target, as the rows of a fit do."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars
import pytest

from tacit import AsyncProximal, MeanRegularized, Pooled, SharedPrior, SingleTask
from tacit.metrics import nmse
from tacit.tasks import TaskSet

LOW, HIGH = 0.0, 10.0
RANGES = {0: (0.0, 100.0), "target": (LOW, HIGH)}
X, TASK = np.array([[0.0], [1.0], [2.0], [3.0]] * 2), np.repeat(["a", "b"], 4)
Y = np.array([1.0, 3.0, 5.0, 7.0] * 2)
FAR = np.array([[50.0], [100.0]])  # where the line of these rows leaves the range


@pytest.mark.parametrize("kind", [SingleTask, Pooled, SharedPrior, MeanRegularized])
def test_nothing_beyond_the_range_is_predicted(kind: Any) -> None:
    model = kind(ranges=RANGES).fit(X, Y, task=TASK)
    assert (model.intercept_ + FAR @ model.coef_ > HIGH).all()
    np.testing.assert_array_equal(model.predict(FAR, task=["a", "b"]), HIGH)
    inside = model.predict(X, task=TASK)
    columns = np.repeat([0, 1], 4)
    line = model.intercept_[columns] + X[:, 0] * model.coef_[0, columns]
    np.testing.assert_allclose(inside, np.clip(line, LOW, HIGH))


def test_without_a_declared_range_a_line_goes_on() -> None:
    model = SingleTask().fit(X, Y, task=TASK)
    assert (model.predict(FAR, task=["a", "b"]) > 50).all()


def test_each_of_several_targets_has_its_own_range() -> None:
    ranges = {0: (0.0, 100.0), "score": (LOW, HIGH)}
    several = polars.DataFrame({"score": Y, "other": 2 * Y})
    model = SingleTask(ranges=ranges).fit(X, several, task=TASK)
    found = model.predict(FAR, task=["a", "b"])
    np.testing.assert_array_equal(found[:, 0], HIGH)
    assert (found[:, 1] > 2 * HIGH).all()


def test_scores_of_a_page_are_those_of_predictions() -> None:
    model = SingleTask(ranges=RANGES).fit(X, Y, task=TASK)
    held_out = TaskSet.from_arrays(
        FAR, np.array([9.0, 9.5]), np.array(["a", "b"]), schema=model._schema
    )
    np.testing.assert_array_equal(model.scores_of(held_out), 1.0)


def test_nodes_that_trust_nobody_predict_within_it_too() -> None:
    model = AsyncProximal(ranges=RANGES, budget=None).fit(X, Y, task=TASK)
    found = model.predict(np.vstack([X, FAR]), task=[*TASK, "a", "b"])
    assert ((found >= LOW) & (found <= HIGH)).all()
    assert nmse(Y, found[:8]) < 2
