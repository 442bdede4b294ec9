"""Joining never costs: every learner with a home, where tasks have nothing to gain from each other.

STATED is the most that the average error of three runs may exceed that of single-task learning, as
a share: what a task pays for looking at priors that turn out useless. Of two classes it is the
share of rows that are wrong. The baselines of S1 hand out releases themselves and have no home;
they, and mutants of every learner that trust what is shared blindly, show that these cases can
tell. Networks: test_joining_networks.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from tacit import (
    AsyncProximal,
    AveragedModel,
    Budget,
    Decomposed,
    GroupSparse,
    LowRank,
    MeanRegularized,
    SharedPrior,
    SingleTask,
)
from tacit.arrays import FloatArray
from tacit.datasets import low_rank_tasks, related_tasks
from tacit.datasets.generators import Generated
from tacit.engine import Message
from tacit.estimator import Home
from tacit.tasks import Column

STATED = 0.02
TINY_SILOS = 0.1
"""The same, for silos of one or two people each: nobody's rows can tell what a prior is worth."""

LEARNERS: list[Any] = [
    SharedPrior,
    MeanRegularized,
    LowRank,
    GroupSparse,
    Decomposed,
    AsyncProximal,
]

SEEN_BY_ALL: list[Any] = [
    AsyncProximal,
    partial(SharedPrior, unit="example"),
    partial(MeanRegularized, unit="example"),
]


@dataclass(frozen=True)
class Case:
    data: Generated
    epsilon: float
    ranges: dict[Any, Any]


def unrelated(epsilon: float) -> Case:
    """Every task has a model of its own, and enough rows to find it."""
    data = low_rank_tasks(
        60, rows=25, n_features=5, rank=5, test_rows=40, rng=np.random.default_rng(1)
    )
    most = float(np.abs(data.y).max())
    return Case(data, epsilon, dict.fromkeys(range(5), (-1.0, 1.0)) | {"target": (-most, most)})


def related(tasks: int, rows: Any, epsilon: float) -> Case:
    data = related_tasks(tasks, rows, 5, test_rows=40, rng=np.random.default_rng(0))
    return Case(data, epsilon, dict(data.ranges))


CASES: dict[str, Callable[[], Case]] = {
    "unrelated tasks": lambda: unrelated(1.0),
    "unrelated tasks in noise": lambda: unrelated(0.01),
    "related tasks in noise": lambda: related(80, (5, 15), 0.01),
    "one task": lambda: related(1, 20, 1.0),
    "tiny tasks": lambda: related(60, (1, 2), 0.1),
}


def error(model: Any, data: Generated, *, at_home: bool = True) -> float:
    """On rows that nobody has seen; where models are for anybody to see, of what stays at home."""
    model.fit(data.X, data.y, task=data.task)
    public = isinstance(model, AsyncProximal) or getattr(model, "unit", "task") == "example"
    predict = model.predict_at_home if public and at_home else model.predict
    return float(np.mean((data.y_test - predict(data.X_test, task=data.task_test)) ** 2))


def errors(learner: Any, case: Case, *, at_home: bool = True) -> tuple[float, float]:
    """The average error of three runs, and single-task learning's."""
    runs = [
        learner(budget=Budget(case.epsilon), ranges=case.ranges, noise="simulated", random_state=i)
        for i in range(3)
    ]
    joined = np.mean([error(model, case.data, at_home=at_home) for model in runs])
    loss: Any = getattr(runs[0], "loss", "squared")
    return float(joined), error(SingleTask(loss=loss, ranges=case.ranges), case.data)


def cost(learner: Any, case: Case, *, at_home: bool = True) -> float:
    """As a share of single-task learning's, less one."""
    joined, single = errors(learner, case, at_home=at_home)
    return joined / single - 1


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("learner", LEARNERS)
def test_joining_never_costs(learner: Any, name: str) -> None:
    assert cost(learner, CASES[name]()) <= STATED


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("learner", [SharedPrior, MeanRegularized])
def test_joining_never_costs_silos_that_hide_their_people(learner: Any, name: str) -> None:
    stated = TINY_SILOS if name == "tiny tasks" else STATED
    assert cost(partial(learner, unit="example"), CASES[name]()) <= stated


def of_classes(case: Case) -> Case:
    """Is a row above zero?"""
    data = case.data
    y, y_test = (np.where(told > 0, 1.0, -1.0) for told in (data.y, data.y_test))
    ranges = case.ranges | {"target": Column(categories=(-1, 1))}
    return replace(case, data=replace(data, y=y, y_test=y_test), ranges=ranges)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("learner", LEARNERS[:-1])
def test_joining_never_costs_in_rows_that_are_wrong(learner: Any, name: str) -> None:
    """A squared difference of −1 and 1 is four times a wrong row."""
    joined, single = errors(partial(learner, loss="logistic"), of_classes(CASES[name]()))
    assert (joined - single) / 4 <= STATED


@pytest.mark.parametrize("epsilon", [10.0, 30.0, 50.0])
def test_a_shared_prior_costs_nothing_where_little_noise_makes_it_convincing(
    epsilon: float,
) -> None:
    """Directions that stand out of a sample of 60 tasks by chance cost 5%, once."""
    assert cost(SharedPrior, unrelated(epsilon)) <= STATED


@pytest.mark.parametrize("learner", [SharedPrior, MeanRegularized])
def test_trusting_what_is_shared_blindly_costs(
    learner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blind(self: Any, home: Home, shared: Message) -> FloatArray:
        return np.tile(self._shared_model(shared), (home.problems.n_tasks, 1))

    monkeypatch.setattr(learner, "_at_home", blind)
    assert cost(learner, unrelated(1.0)) > 10 * STATED


@pytest.mark.parametrize("learner", [LowRank, GroupSparse, Decomposed])
def test_following_the_shared_covariance_blindly_costs(learner: Any) -> None:
    """As the paper has it: what the rounds end with, and no choice at home."""
    assert cost(partial(learner, refit=False), unrelated(1.0)) > 5 * STATED


@pytest.mark.parametrize("learner", SEEN_BY_ALL)
def test_models_that_anybody_may_see_cost(learner: Any) -> None:
    assert cost(learner, unrelated(1.0), at_home=False) > 10 * STATED


def test_a_learner_without_a_home_costs() -> None:
    assert cost(AveragedModel, unrelated(1.0)) > 10 * STATED


def test_with_hardly_any_noise_it_is_the_twin() -> None:
    """Not so of S1's learners, which stop after few rounds at any budget."""
    for case in (related(80, (5, 15), 1e4), unrelated(1e4)):
        twin = error(SharedPrior(ranges=case.ranges), case.data)
        alone = error(SingleTask(ranges=case.ranges), case.data)
        assert cost(SharedPrior, case) == pytest.approx(twin / alone - 1, abs=0.01)
