"""S1 Algorithm 1 with a mapping and a learner that somebody brings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit import Budget, ModelProtected
from tacit.arrays import FloatArray
from tacit.datasets import low_rank_tasks
from tacit.datasets.generators import Generated
from tacit.errors import InvalidInput
from tacit.metrics import nmse

SIMULATED: dict[str, Any] = {"noise": "simulated", "random_state": 0, "fit_intercept": False}


def strongest(covariances: FloatArray) -> FloatArray:
    """Two directions of the last covariance."""
    return np.asarray(np.linalg.eigh(covariances[-1])[1][:, -2:])


def within(U: FloatArray, past: FloatArray, X: FloatArray, y: FloatArray) -> FloatArray:
    """Least squares there, with a ridge towards the last model."""
    A = X @ U
    held = past[-1] @ U
    return np.asarray(U @ np.linalg.solve(A.T @ A + 0.1 * np.eye(2), A.T @ y + 0.1 * held))


@pytest.fixture(scope="module")
def data() -> Generated:
    return low_rank_tasks(60, 10, 8, rank=2, test_rows=30, rng=np.random.default_rng(5))


def clipped(w: FloatArray, K: float) -> FloatArray:
    return np.asarray(w / max(1.0, float(np.linalg.norm(w)) / K))


@pytest.mark.parametrize("published", [True, False])
def test_it_is_algorithm_1(data: Generated, published: bool) -> None:
    """Steps 3, 6, 7 and 8 in loops, on the covariances that were released."""
    K, m = 3.0, 60
    model = ModelProtected(
        mapping=strongest, single_task=within, clip_norm=K, rounds=3, start="zeros",
        as_published=published, budget=Budget(3.0), **SIMULATED,
    ).fit(data.X, data.y, task=data.task)  # fmt: skip
    assert model.guarantee_.proven is False  # simulated noise
    W = np.zeros((m, 8))
    past: list[list[FloatArray]] = [[] for _ in range(m)]
    Sigmas: list[FloatArray] = []
    for line in model.history_:
        Sigmas.append(line["covariance"])
        M = strongest(np.stack(Sigmas))
        for i in range(m):
            past[i].append(clipped(W[i], K))
            rows = data.task == i
            W[i] = within(M, np.stack(past[i]), data.X[rows], data.y[rows])
    np.testing.assert_allclose(model.coef_.T, W, rtol=0, atol=1e-10)


def test_without_a_budget_nothing_is_noisy(data: Generated) -> None:
    twin = ModelProtected(mapping=strongest, single_task=within, rounds=3, fit_intercept=False)
    twin.fit(data.X, data.y, task=data.task)
    model = ModelProtected(
        mapping=strongest, single_task=within, rounds=3, clip_norm=100.0, budget=Budget(1e6),
        **SIMULATED,
    ).fit(data.X, data.y, task=data.task)  # fmt: skip
    off = np.linalg.norm(model.coef_ - twin.coef_) / np.linalg.norm(twin.coef_)
    assert off < 0.02
    predicted = twin.predict(data.X_test, task=data.task_test)
    assert nmse(data.y_test, predicted) < 0.3


def test_of_the_relations_of_tasks_each_is_given_its_own_row(data: Generated) -> None:
    seen = []

    def kept(row: FloatArray, past: FloatArray, X: FloatArray, y: FloatArray) -> FloatArray:
        seen.append(row.shape)
        return np.asarray(past[-1])

    model = ModelProtected(
        mapping=lambda covariances: covariances[-1], single_task=kept, covariance="tasks",
        clip_norm=1.0, rounds=1, budget=Budget(1.0), **SIMULATED,
    ).fit(data.X, data.y, task=data.task)  # fmt: skip
    assert set(seen) == {(60,)}
    assert np.isfinite(model.coef_).all()


def test_an_error_is_told_before_the_first_release_and_costs_one_model_after_it(
    data: Generated,
) -> None:
    def wrong(M: FloatArray, past: FloatArray, X: FloatArray, y: FloatArray) -> FloatArray:
        return np.zeros(3)

    given: dict[str, Any] = {"clip_norm": 1.0, "rounds": 2, "budget": Budget(1.0)}
    model = ModelProtected(mapping=strongest, single_task=wrong, **given)
    with pytest.raises(InvalidInput, match=r"shape \(8,\), got \(3,\)"):
        model.fit(data.X, data.y, task=data.task)
    first = data.y[data.task == 0]

    def late(M: FloatArray, past: FloatArray, X: FloatArray, y: FloatArray) -> FloatArray:
        if len(past) == 2 and np.array_equal(y, first):
            raise RuntimeError("a row of task 0 is odd")
        return np.asarray(past[-1])

    model = ModelProtected(mapping=strongest, single_task=late, fit_intercept=False, **given)
    model.fit(data.X, data.y, task=data.task)
    assert not model.coef_[:, 0].any()
    assert model.coef_[:, 1].any()


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"mapping": None}, "mapping"),
        ({"single_task": None}, "single_task"),
        ({"clip_norm": "auto"}, "clip_norm"),
    ],
)
def test_a_framework_needs_its_parts(wrong: Any, match: str, data: Generated) -> None:
    given: dict[str, Any] = {
        "mapping": strongest, "single_task": within, "clip_norm": 1.0, "budget": Budget(1.0),
    }  # fmt: skip
    with pytest.raises(InvalidInput, match=match):
        ModelProtected(**(given | wrong)).fit(data.X, data.y, task=data.task)


def test_a_newcomer_is_solved_under_what_was_released(data: Generated) -> None:
    model = ModelProtected(
        mapping=strongest, single_task=within, clip_norm=10.0, rounds=2, budget=Budget(1e6),
        **SIMULATED,
    ).fit(data.X, data.y, task=data.task)  # fmt: skip
    rows = data.task == 3
    model.adapt(data.X[rows], data.y[rows], task="new")
    np.testing.assert_allclose(model.coef_[:, -1], model.coef_[:, 3], atol=1e-8)
