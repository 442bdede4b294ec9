"""MeanRegularized by its limits, and its private half by its own parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit import Budget, MeanRegularized, Pooled, SingleTask, TaskSet
from tacit.datasets import related_tasks
from tacit.datasets.generators import Generated
from tacit.errors import UnknownTask
from tacit.estimator import Home
from tacit.estimator.open_scale import scale_votes
from tacit.learners.mean_regularized.curator import MOST_ROUNDS, public_rounds
from tacit.learners.mean_regularized.participant import directions, step_votes
from tacit.linear.batched import Problems, shared_mean, solve_path
from tacit.linear.losses import Logistic, Squared
from tacit.linear.model_averaging import default_penalty
from tacit.metrics import nmse


def score(model: Any, data: Generated) -> float:
    model.fit(data.X, data.y, task=data.task)
    return nmse(data.y_test, model.predict(data.X_test, task=data.task_test))


CASES: dict[str, dict[str, Any]] = {
    "few rows": {"n_tasks": 65, "rows": (1, 10), "n_features": 4},
    "one row each": {"n_tasks": 400, "rows": 1, "n_features": 6},
    "identical tasks": {"n_tasks": 100, "rows": (5, 40), "n_features": 12, "spread": 0.0},
    "many rows": {"n_tasks": 100, "rows": 200, "n_features": 4},
    "wide": {"n_tasks": 139, "rows": (7, 40), "n_features": 28, "spread": 0.3},
    "unrelated": {"n_tasks": 80, "rows": (5, 30), "n_features": 8, "spread": 8.0},
    "noisy": {"n_tasks": 150, "rows": (2, 30), "n_features": 10, "noise": 2.0},
}


@pytest.fixture(params=CASES, scope="module")
def case(request: Any) -> Generated:
    return related_tasks(**CASES[request.param], test_rows=40, rng=np.random.default_rng(5))


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "undeclared"])
def test_the_twin_is_never_much_worse_than_alone_or_pooled(case: Generated, declared: bool) -> None:
    ranges = case.ranges if declared else None
    twin = score(MeanRegularized(ranges=ranges), case)
    best = min(score(SingleTask(ranges=ranges), case), score(Pooled(ranges=ranges), case))
    assert twin <= 1.02 * best


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize("declared", [True, False], ids=["declared", "undeclared"])
def test_joining_is_never_much_worse_than_staying_alone(
    case: Generated, epsilon: float, declared: bool
) -> None:
    ranges = case.ranges if declared else None
    alone = score(SingleTask(ranges=ranges), case)
    budget = Budget(epsilon, 1e-3)
    runs = [
        score(
            MeanRegularized(budget=budget, ranges=ranges, noise="simulated", random_state=seed),
            case,
        )
        for seed in range(5)
    ]
    assert np.mean(runs) <= 1.01 * alone


def test_units_do_not_matter_when_nothing_was_declared() -> None:
    data = related_tasks(100, (4, 20), 5, test_rows=20, rng=np.random.default_rng(3))
    budget = Budget(3.0)
    small = MeanRegularized(budget=budget, noise="simulated", random_state=0)
    small.fit(data.X, data.y, task=data.task)
    large = MeanRegularized(budget=budget, noise="simulated", random_state=0)
    large.fit(data.X * 64, data.y * 1024, task=data.task)
    np.testing.assert_allclose(large.coef_, small.coef_ * 1024 / 64, rtol=1e-6)


def test_without_noise_the_private_run_comes_to_the_twin() -> None:
    data = related_tasks(60, (5, 20), 5, test_rows=50, rng=np.random.default_rng(9))
    budget = Budget(1e6, 1e-5)
    private = MeanRegularized(budget=budget, rounds=30, ranges=data.ranges)
    twin = MeanRegularized(ranges=data.ranges)
    assert score(private, data) == pytest.approx(score(twin, data), rel=0.02)


def test_one_task_stays_by_itself() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 3))
    y = X @ [1.0, -1.0, 0.5] + 0.1 * rng.normal(size=60)
    model = MeanRegularized(budget=Budget(1.0)).fit(X, y)
    alone = SingleTask().fit(X, y)
    assert np.abs(model.coef_ - alone.coef_).max() < 0.1


def test_a_small_budget_releases_only_the_vote_and_a_large_one_more_rounds() -> None:
    assert public_rounds(0.06, 139, 28) == 0
    assert public_rounds(0.4, 139, 28) == 1
    assert public_rounds(2.5, 139, 28) > 1
    assert public_rounds(100.0, 10**5, 5) == MOST_ROUNDS


def test_the_plan_depends_on_public_numbers_alone() -> None:
    plans = []
    for seed in (0, 1):
        data = related_tasks(50, (2, 9), 3, rng=np.random.default_rng(seed))
        budget = Budget(1.0)
        model = MeanRegularized(budget=budget, ranges=data.ranges).fit(data.X, data.y, data.task)
        plans.append([line["mechanism"] for line in model.history_])
    assert plans[0] == plans[1]


@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=["squared", "logistic"])
def test_the_step_votes_point_to_the_best_step(loss: Any) -> None:
    data = related_tasks(200, 20, 4, loss=loss.name, rng=np.random.default_rng(4))
    X = np.hstack([data.X, np.ones((len(data.y), 1))])
    problems = Problems(X, data.y, np.arange(0, 4001, 20))
    mean = np.zeros(5)
    along = shared_mean(problems, 3.0, loss=loss)
    along /= np.linalg.norm(along)
    votes = step_votes(problems, loss, mean, along, 0.5)
    np.testing.assert_allclose(np.linalg.norm(votes, axis=1), 1)

    def held_out(a: float) -> float:
        path = solve_path(
            problems, np.array([default_penalty(5)]), loss=loss, mean=mean + a * along
        )
        return float(loss.value(path.held_out[:, 0], problems.y).sum())

    total = votes.sum(0)
    found = 0.5 * total[0] / total[1]
    grid = np.linspace(0, 6, 121)
    best = grid[np.argmin([held_out(a) for a in grid])]
    assert found == pytest.approx(best, rel=0.35)


def test_contributions_have_norm_at_most_one() -> None:
    data = related_tasks(30, (1, 6), 3, rng=np.random.default_rng(6))
    X = np.hstack([data.X, np.ones((len(data.y), 1))])
    sizes = np.bincount(data.task)
    problems = Problems(X, data.y, np.concatenate([[0], np.cumsum(sizes)]))
    home = Home(problems, Squared(), np.zeros(3, dtype=bool), False)
    rows = scale_votes(home)
    assert np.linalg.norm(rows, axis=1).max() <= 1 + 1e-12
    rows = directions(problems, Squared(), np.zeros(4), None)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1)


def test_votes_on_scales_are_summed_at_the_sensitivity_of_votes() -> None:
    data = related_tasks(80, (2, 6), 3, rng=np.random.default_rng(6))
    model = MeanRegularized(budget=Budget(2.0), rounds=1).fit(data.X, data.y, task=data.task)
    scale, direction = model.history_[:2]
    assert (scale["mechanism"]["name"], direction["mechanism"]["name"]) == (
        "VoteSum",
        "GaussianSum",
    )
    for line, sensitivity in ((scale, np.sqrt(2)), (direction, 2.0)):
        spent = line["mechanism"]["sigma"] * line["event"]["mu"]
        assert spent == pytest.approx(sensitivity)


@pytest.mark.parametrize(("delta", "said"), [(1e-5, False), (1 / 20, True)])
def test_a_delta_near_one_over_m_is_told(delta: float, said: bool) -> None:
    data = related_tasks(20, 8, 3, rng=np.random.default_rng(0))
    model = MeanRegularized(budget=Budget(1.0, delta), ranges=data.ranges)
    model.fit(data.X, data.y, task=data.task)
    assert any("not well below 1/20" in part for part in model.guarantee_.not_covered) is said


def test_tasks_that_are_already_scaled_give_the_same_model_and_scores() -> None:
    data = related_tasks(6, 8, 3, rng=np.random.default_rng(0))
    whole = MeanRegularized(ranges=data.ranges).fit(data.X, data.y, task=data.task)
    again = MeanRegularized(ranges=data.ranges)
    schema, tasks = again._declare(data.X, data.y, data.task)
    again.fit_tasks(tasks, schema)
    assert np.array_equal(whole.coef_, again.coef_)
    scores = schema.inverse_target(again.scores_of(tasks))
    order = np.argsort(data.task, kind="stable")
    assert np.allclose(scores, whole.predict(data.X, task=data.task)[order])
    other = TaskSet.from_arrays(data.X, data.y, data.task + 100, schema=schema)
    with pytest.raises(UnknownTask):
        again.scores_of(other)
