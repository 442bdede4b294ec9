"""Data frames: the task as one of their columns, categoricals, and several newcomers at once."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas
import polars
import pytest

from tacit import Budget, SharedPrior
from tacit.datasets import related_tasks
from tacit.errors import InvalidInput

DATA = related_tasks(20, rows=8, n_features=2, rng=np.random.default_rng(0))
RANGES = {"a": (-1, 1), "b": (-1, 1), "sex": ["f", "m"], "target": (-3, 3)}
COLUMNS = {
    "a": DATA.X[:, 0],
    "school": [f"{task:03d}" for task in DATA.task],
    "b": DATA.X[:, 1],
    "sex": np.where(DATA.X[:, 0] > 0, "f", "m"),
}
PANDAS = pandas.DataFrame(COLUMNS)
FRAMES = {
    "pandas": PANDAS,
    "categorical": PANDAS.astype({"sex": "category", "school": "category"}),
    "polars": polars.DataFrame(COLUMNS),
    "polars categorical": polars.DataFrame(COLUMNS).with_columns(
        polars.col("sex", "school").cast(polars.Categorical)
    ),
}


def learner() -> SharedPrior:
    return SharedPrior(ranges=RANGES, budget=Budget(1.0), noise="simulated", random_state=0)


@pytest.fixture(scope="module")
def apart() -> SharedPrior:
    """Fitted on a frame without the column, and labels beside it."""
    model = learner()
    model.fit(PANDAS[["a", "b", "sex"]], DATA.y, task=COLUMNS["school"])
    return model


@pytest.mark.parametrize("name", FRAMES)
def test_the_task_may_be_a_column_of_any_frame(name: str, apart: SharedPrior) -> None:
    frame = FRAMES[name]
    model: Any = learner().fit(frame, DATA.y, task="school")
    assert model.tasks_ == apart.tasks_
    assert model.tasks_[7] == "007"
    assert list(model.feature_names_in_) == ["a", "b", "sex"]
    assert np.array_equal(model.coef_, apart.coef_)
    expected = apart.predict(PANDAS[["a", "b", "sex"]], task=COLUMNS["school"])
    assert np.array_equal(model.predict(frame, task="school"), expected)
    assert model.score(frame, DATA.y, task="school") > 0.3


def test_several_tasks_join_at_once_as_one_by_one(apart: SharedPrior) -> None:
    both, single = pickle.loads(pickle.dumps(apart)), pickle.loads(pickle.dumps(apart))
    new = PANDAS[:16].assign(school=["x"] * 8 + ["y"] * 8)
    both.adapt(new, DATA.y[:16], task="school")
    for label, rows in (("x", slice(8)), ("y", slice(8, 16))):
        single.adapt(PANDAS[["a", "b", "sex"]][rows], DATA.y[rows], task=label)
    assert both.tasks_[-2:] == single.tasks_[-2:] == ("x", "y")
    assert np.array_equal(both.coef_, single.coef_)
    listed = pickle.loads(pickle.dumps(apart))
    listed.adapt(PANDAS[["a", "b", "sex"]][:16], DATA.y[:16], task=["x"] * 8 + ["y"] * 8)
    assert np.array_equal(listed.coef_, both.coef_)
    with pytest.raises(InvalidInput, match="took part in the fit"):
        both.adapt(new, DATA.y[:16], task="school")


def test_a_column_that_is_not_there_is_named() -> None:
    frame = polars.DataFrame({"school": ["a", "a", "b", "b"], "age": [1, 2, 3, 4], "size": [0] * 4})
    with pytest.raises(InvalidInput, match="task is 'scool', and X has no such column"):
        SharedPrior().fit(frame, [1.0, 2.0, 3.0, 4.0], task="scool")
    model = SharedPrior().fit(frame, [1.0, 2.0, 3.0, 4.0], task="school")
    with pytest.raises(InvalidInput, match="there is no size"):
        model.predict(frame.drop("size"), task="school")
