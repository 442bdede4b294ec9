"""The baselines: DP-MTRL and DP-AGGR by their limits and their sensitivity."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tacit import AveragedModel, Budget, SingleTask, TaskRelationship
from tacit.datasets import related_tasks
from tacit.datasets.generators import Generated
from tacit.errors import InvalidInput
from tacit.learners.task_relationship import LEAST_RELATION, OPEN_ROUNDS, example_budget, relations
from tacit.metrics import nmse
from tacit.privacy.accounting import gaussian_delta
from tacit.privacy.mechanisms import EachRow, GaussianSum

BASELINES: list[Any] = [TaskRelationship, AveragedModel]


@pytest.fixture(scope="module")
def data() -> Generated:
    return related_tasks(30, (6, 15), 4, test_rows=30, rng=np.random.default_rng(0))


def score(model: Any, data: Generated) -> float:
    model.fit(data.X, data.y, task=data.task)
    return nmse(data.y_test, model.predict(data.X_test, task=data.task_test))


# --- DP-AGGR ------------------------------------------------------------------------------------


def test_the_average_is_the_average_of_what_tasks_learn_alone(data: Generated) -> None:
    alone = SingleTask().fit(data.X, data.y, task=data.task)
    for budget in (None, Budget(1e6)):
        model = AveragedModel(budget=budget, clip_norm=50.0).fit(data.X, data.y, task=data.task)
        expected = np.tile(alone.coef_.mean(axis=1, keepdims=True), 30)
        np.testing.assert_allclose(model.coef_, expected, atol=0.02)


def test_each_task_fits_its_own_intercept(data: Generated) -> None:
    task_offsets = 10.0 * data.task
    model = AveragedModel().fit(data.X, data.y + task_offsets, task=data.task)
    residual = data.y + task_offsets - model.predict(data.X, task=data.task)
    for i in range(30):
        assert abs(residual[data.task == i].mean()) < 1e-3


def test_a_clip_norm_bounds_the_average(data: Generated) -> None:
    model = AveragedModel(budget=Budget(1e6), clip_norm=0.01).fit(data.X, data.y, task=data.task)
    assert np.linalg.norm(model.shared_["mean"].value) <= 0.0101


# --- DP-MTRL ------------------------------------------------------------------------------------


def test_relations_are_those_of_the_written_out_matrix() -> None:
    W = np.random.default_rng(0).normal(size=(6, 3))
    values, U = np.linalg.eigh(W @ W.T)
    root = (U * np.sqrt(np.maximum(values, 0))) @ U.T
    inverse = np.linalg.inv(6 * root / np.trace(root) + LEAST_RELATION * np.eye(6))
    hold, pull = relations(W)
    np.testing.assert_allclose(hold, np.diag(inverse), rtol=1e-5)
    np.testing.assert_allclose(pull, inverse @ W - np.diag(inverse)[:, None] * W, rtol=1e-5)


def test_no_models_have_no_relations() -> None:
    hold, pull = relations(np.zeros((5, 3)))
    np.testing.assert_allclose(hold, 1 / LEAST_RELATION)
    assert not pull.any()


def test_rounds_without_noise_are_the_twin(data: Generated) -> None:
    twin = TaskRelationship(clip_norm=3.0).fit(data.X, data.y, task=data.task)
    model = TaskRelationship(budget=Budget(1e8), clip_norm=3.0, rounds=OPEN_ROUNDS + 1)
    model.fit(data.X, data.y, task=data.task)
    np.testing.assert_allclose(model.coef_, twin.coef_, atol=0.02)


def test_the_twin_is_stationary_in_its_objective() -> None:
    """Each column solves the objective given the others, at the relationship of its models."""
    data = related_tasks(8, 30, 3, spread=0.1, rng=np.random.default_rng(1))
    model = TaskRelationship(penalty=0.1, coupling=1e-3, clip_norm=100.0, fit_intercept=False)
    model.fit(data.X, data.y, task=data.task)
    W = model.coef_.T
    hold, pull = relations(W)
    for i in range(8):
        X, y = data.X[data.task == i], data.y[data.task == i]
        slope = X.T @ (X @ W[i] - y) / 30 + 0.1 * W[i] + 1e-3 * (hold[i] * W[i] + pull[i])
        assert np.abs(slope).max() < 1e-3


def test_group_privacy_is_proposition_3() -> None:
    budget = Budget(2.0, 1e-4)
    each = example_budget(budget, 40)
    assert each.epsilon * 40 == pytest.approx(2.0)
    assert 40 * math.exp(40 * each.epsilon) * each.delta == pytest.approx(1e-4)
    with pytest.raises(InvalidInput, match="max_rows"):
        example_budget(budget, 0)


def test_group_privacy_of_gaussian_noise_is_the_clip() -> None:
    """n examples of sensitivity 2L/(nλ) are one task of sensitivity 2L/λ = 2K, exactly."""
    lipschitz, penalty, n, sigma = 0.3, 0.1, 25, 4.0
    example_mu = 2 * lipschitz / (n * penalty) / sigma
    task = GaussianSum(lipschitz / penalty, sigma).event("replace")
    assert task.mu == pytest.approx(n * example_mu)
    assert gaussian_delta(1.0, task.mu) > gaussian_delta(1.0, example_mu)


def test_one_task_changes_one_row_by_at_most_two_clips() -> None:
    mechanism = EachRow(GaussianSum.for_mu(3.0, 0.5, "replace"))
    one, other = np.zeros((4, 2)), np.zeros((4, 2))
    one[2], other[2] = [100.0, 0.0], [-100.0, 0.0]
    change = mechanism.release(one, np.random.default_rng(0)) - mechanism.release(
        other, np.random.default_rng(0)
    )
    assert np.linalg.norm(change) == pytest.approx(6.0, rel=1e-6)
    assert not change[[0, 1, 3]].any()
    event = mechanism.event("replace")
    assert np.linalg.norm(change) / mechanism.row.noise.scale == pytest.approx(event.mu, rel=1e-6)


def test_columns_that_are_all_noise_are_not_used(data: Generated) -> None:
    model = TaskRelationship(budget=Budget(0.01), noise="simulated", random_state=0)
    model.fit(data.X, data.y, task=data.task)
    alone = SingleTask().fit(data.X, data.y, task=data.task)
    assert np.linalg.norm(model.coef_) < 0.1 * np.linalg.norm(alone.coef_)


def test_a_declared_number_of_rows_is_used_instead_of_the_tasks_own(data: Generated) -> None:
    model = TaskRelationship(max_rows=1000, clip_norm=100.0).fit(data.X, data.y, task=data.task)
    other = TaskRelationship(clip_norm=100.0).fit(data.X, data.y, task=data.task)
    assert np.linalg.norm(model.coef_) < 0.5 * np.linalg.norm(other.coef_)


# --- both ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", BASELINES)
@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("budget", [None, Budget(2.0)], ids=["open", "private"])
def test_bad_input_gives_a_finite_model(learner: Any, loss: Any, budget: Any) -> None:
    rng = np.random.default_rng(0)
    ranges = {"target": [-1, 1]} if loss == "logistic" else None
    for m, d, n in ((2, 6, 3), (1, 2, 5), (4, 3, 1)):
        X, task = rng.normal(size=(m * n, d)), np.repeat(np.arange(m), n)
        for y in (np.sign(X[:, 0]), np.ones(m * n)):
            model = learner(loss=loss, budget=budget, ranges=ranges).fit(X, y, task=task)
            assert np.isfinite(model.coef_).all()
            assert np.isfinite(model.intercept_).all()


@pytest.mark.parametrize("learner", BASELINES)
def test_a_useless_clip_norm_is_refused(learner: Any, data: Generated) -> None:
    with pytest.raises(InvalidInput, match="clip_norm"):
        learner(budget=Budget(1.0), clip_norm=0.0).fit(data.X, data.y, task=data.task)


def test_the_twins_learn(data: Generated) -> None:
    constant = nmse(data.y_test, np.full_like(data.y_test, data.y.mean()))
    for learner in BASELINES:
        assert score(learner(), data) < 0.9 * constant
