"""Joining never costs: every learner with a home, where tasks have nothing to gain from each other.

STATED is the most that the average error of three runs may exceed that of single-task learning, as
a share: what a task pays for looking at priors that turn out useless. The baselines of S1 hand out
releases themselves and have no home; they, and mutants that trust what is shared blindly, show that
these cases can tell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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

STATED = 0.02
LEARNERS: list[Any] = [
    SharedPrior,
    MeanRegularized,
    LowRank,
    GroupSparse,
    Decomposed,
    AsyncProximal,
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


def error(model: Any, data: Generated) -> float:
    model.fit(data.X, data.y, task=data.task)
    predict = model.predict_at_home if isinstance(model, AsyncProximal) else model.predict
    return float(np.mean((data.y_test - predict(data.X_test, task=data.task_test)) ** 2))


def cost(learner: Any, case: Case) -> float:
    """The average error of three runs, as a share of single-task learning's, less one."""
    runs = [
        learner(budget=Budget(case.epsilon), ranges=case.ranges, noise="simulated", random_state=i)
        for i in range(3)
    ]
    joined = np.mean([error(model, case.data) for model in runs])
    return float(joined / error(SingleTask(ranges=case.ranges), case.data)) - 1


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("learner", LEARNERS)
def test_joining_never_costs(learner: Any, name: str) -> None:
    assert cost(learner, CASES[name]()) <= STATED


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


def test_a_learner_without_a_home_costs() -> None:
    assert cost(AveragedModel, unrelated(1.0)) > 10 * STATED


def test_with_hardly_any_noise_it_is_the_twin() -> None:
    """Not so of S1's learners, which stop after few rounds at any budget."""
    for case in (related(80, (5, 15), 1e4), unrelated(1e4)):
        twin = error(SharedPrior(ranges=case.ranges), case.data)
        alone = error(SingleTask(ranges=case.ranges), case.data)
        assert cost(SharedPrior, case) == pytest.approx(twin / alone - 1, abs=0.01)
