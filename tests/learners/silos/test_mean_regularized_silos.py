"""MeanRegularized where people inside silos are protected: S2's objective, from releases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit import Budget, MeanRegularized, SharedPrior
from tacit.datasets import related_tasks
from tacit.datasets.generators import Generated
from tacit.errors import InvalidInput


@pytest.fixture(scope="module")
def data() -> Generated:
    return related_tasks(20, (30, 60), 3, rng=np.random.default_rng(2))


def silos(data: Generated, epsilon: float, learner: Any = MeanRegularized, **more: Any) -> Any:
    model = learner(
        unit="example",
        budget=Budget(epsilon),
        ranges=data.ranges,
        noise="simulated",
        random_state=0,
        **more,
    )
    return model.fit(data.X, data.y, task=data.task)


def test_silos_release_the_same_moments_whoever_learns_from_them(data: Generated) -> None:
    both = [silos(data, 3.0, each) for each in (MeanRegularized, SharedPrior)]
    mine, theirs = (np.asarray(model.shared_["moments"].value) for model in both)
    np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("penalty", [10.0, 100.0])
def test_with_much_budget_it_is_the_optimum_of_the_papers_objective(
    data: Generated, penalty: float
) -> None:
    """Clipped residuals set it apart, which no budget undoes; models at another λ are farther."""
    found = silos(data, 1e6, penalty=penalty).coef_

    def apart(level: float) -> float:
        optimum = MeanRegularized(penalty=level, ranges=data.ranges)
        return float(np.abs(found - optimum.fit(data.X, data.y, task=data.task).coef_).mean())

    assert apart(penalty) < 0.5 * min(apart(penalty / 10), apart(10 * penalty))


def test_of_classes_too() -> None:
    rng = np.random.default_rng(3)
    task, X = np.repeat(np.arange(40), 150), rng.uniform(-1, 1, (6000, 2))
    eta = X @ np.array([0.8, -0.5]) + rng.normal(size=40)[task] * 0.5
    y = (rng.random(6000) < 1 / (1 + np.exp(-eta))).astype(int)
    given: dict[str, Any] = {"ranges": {0: (-1, 1), 1: (-1, 1), "target": [0, 1]}}
    model = MeanRegularized(
        "logistic",
        Budget(1e6),
        unit="example",
        penalty=10.0,
        noise="simulated",
        random_state=0,
        **given,
    ).fit(X, y, task=task)

    def apart(level: float) -> float:
        optimum = MeanRegularized("logistic", penalty=level, **given).fit(X, y, task=task)
        return float(np.abs(model.coef_ - optimum.coef_).mean())

    assert apart(10.0) < 0.5 * min(apart(1.0), apart(100.0))


def test_one_variance_is_found_for_all_coordinates(data: Generated) -> None:
    spread = np.diagonal(np.asarray(silos(data, 1e6).shared_["covariance"].value))
    np.testing.assert_allclose(spread, spread[0], rtol=0.05)
    by_column = silos(data, 1e6, SharedPrior).shared_["covariance"].value
    assert np.ptp(np.diagonal(np.asarray(by_column))) > 0.2 * spread[0]


@pytest.mark.parametrize(
    "given",
    [{"rounds": 2}, {"clip_norm": 1.0}, {"as_published": True}, {"step": 0.1}, {"cohort": 5}],
    ids=lambda given: next(iter(given)),
)
def test_parameters_of_rounds_among_tasks_are_refused(data: Generated, given: Any) -> None:
    with pytest.raises(InvalidInput, match="means nothing where people inside silos"):
        silos(data, 1.0, **given)
