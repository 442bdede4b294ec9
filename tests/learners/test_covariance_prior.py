"""CovariancePrior by its limits, its denoising, and what it releases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit import Budget, CovariancePrior, SingleTask
from tacit.datasets import group_sparse_tasks, low_rank_tasks, related_tasks
from tacit.datasets.generators import Generated
from tacit.errors import InvalidInput
from tacit.learners.covariance_prior import _kept_directions, structure_of
from tacit.metrics import nmse_per_task


def score(model: Any, data: Generated) -> float:
    model.fit(data.X, data.y, task=data.task)
    predicted = model.predict(data.X_test, task=data.task_test)
    return nmse_per_task(data.y_test, predicted, data.task_test)


@pytest.fixture(scope="module")
def low_rank() -> Generated:
    return low_rank_tasks(
        150, rows=12, n_features=12, rank=2, test_rows=20, rng=np.random.default_rng(0)
    )


def test_a_low_rank_structure_is_found_and_helps(low_rank: Generated) -> None:
    alone = score(SingleTask(fit_intercept=False), low_rank)
    twin = CovariancePrior(fit_intercept=False)
    assert score(twin, low_rank) < 0.4 * alone
    values = np.linalg.eigvalsh(twin.shared_["shape"].value)
    assert values[-2:].sum() > 0.9 * values.sum()
    private = CovariancePrior(budget=Budget(3.0), fit_intercept=False)
    assert score(private, low_rank) < 0.7 * alone


def test_the_diagonal_form_finds_the_active_features() -> None:
    data = group_sparse_tasks(
        150, rows=12, n_features=12, active=3, test_rows=20, rng=np.random.default_rng(1)
    )
    model = CovariancePrior(budget=Budget(2.0), structure="diagonal", fit_intercept=False)
    assert score(model, data) < 0.7 * score(SingleTask(fit_intercept=False), data)
    assert set(np.argsort(np.diag(model.shared_["shape"].value))[-3:]) == {0, 1, 2}


def test_high_noise_degrades_to_single_task_learning_and_not_below(low_rank: Generated) -> None:
    alone = score(SingleTask(fit_intercept=False), low_rank)
    runs = [
        score(CovariancePrior(budget=Budget(0.02), fit_intercept=False), low_rank) for _ in range(5)
    ]
    assert np.mean(runs) <= 1.01 * alone


def test_more_budget_comes_to_the_twin(low_rank: Generated) -> None:
    twin = score(CovariancePrior(rounds=1, fit_intercept=False), low_rank)
    private = score(CovariancePrior(budget=Budget(1e5), fit_intercept=False), low_rank)
    assert private == pytest.approx(twin, rel=0.1)


def test_noise_alone_shows_no_structure() -> None:
    rng = np.random.default_rng(2)
    found = 0
    for _ in range(200):
        noise = rng.normal(size=(30, 30))
        shape, rest = structure_of((noise + noise.T) / 2 * 7.0, 7.0)
        assert (shape == 0).all() == (rest == 1.0)
        found += bool(shape.any())
    assert found <= 20


def test_a_spike_is_read_back_at_its_true_size() -> None:
    rng = np.random.default_rng(3)
    d, sigma, theta = 60, 1.0, 12.0
    v = rng.normal(size=d)
    v /= np.linalg.norm(v)
    read, naive = [], []
    for _ in range(50):
        noise = rng.normal(size=(d, d))
        moment = theta * np.outer(v, v) + (noise + noise.T) / 2 * sigma
        read.append(np.trace(_kept_directions(moment, sigma)))
        naive.append(np.linalg.eigvalsh(moment)[-1])
    s2 = d * sigma**2 / 2
    assert np.mean(read) == pytest.approx(theta * (1 - s2 / theta**2), rel=0.1)  # θc²
    assert np.mean(naive) == pytest.approx(theta + s2 / theta, rel=0.1)  # what noise makes of it


def test_the_shape_has_average_variance_one() -> None:
    shape, rest = structure_of(np.diag([9.0, 1.0, 0.0]), 0.0)
    assert np.trace(shape) / 3 + rest == pytest.approx(1.0)
    assert structure_of(np.zeros((3, 3)), 1.0)[1] == 1.0


def test_the_scale_of_the_target_does_not_matter(low_rank: Generated) -> None:
    models = [
        CovariancePrior(budget=Budget(2.0), noise="simulated", random_state=0).fit(
            low_rank.X, factor * low_rank.y, task=low_rank.task
        )
        for factor in (1.0, 1000.0)
    ]
    np.testing.assert_allclose(models[1].coef_, 1000 * models[0].coef_, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("clip_norm", [1e-6, 1e6])
def test_clip_norms_far_off_give_a_finite_model(low_rank: Generated, clip_norm: float) -> None:
    model = CovariancePrior(budget=Budget(1.0), clip_norm=clip_norm)
    model.fit(low_rank.X, low_rank.y, task=low_rank.task)
    assert np.isfinite(model.coef_).all()


def test_more_features_than_tasks_and_two_rounds_and_logistic_loss() -> None:
    data = related_tasks(5, 6, 9, loss="logistic", rng=np.random.default_rng(4))
    model = CovariancePrior(loss="logistic", budget=Budget(1.0), rounds=2)
    model.fit(data.X, data.y, task=data.task)
    assert np.isfinite(model.coef_).all()
    assert len(model.history_) == 3


def test_wrong_structure_and_rounds_are_refused(low_rank: Generated) -> None:
    for wrong in ({"structure": "banded"}, {"rounds": 0, "budget": Budget(1.0)}):
        with pytest.raises(InvalidInput):
            CovariancePrior(**wrong).fit(low_rank.X, low_rank.y, task=low_rank.task)
