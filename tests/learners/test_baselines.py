"""The baselines: DP-MTRL and DP-AGGR by their limits and their sensitivity."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tacit import AveragedModel, Budget, SingleTask, TaskRelationship
from tacit.arrays import FloatArray
from tacit.datasets import related_tasks
from tacit.datasets.generators import Generated
from tacit.errors import InvalidInput
from tacit.learners.model_protected.output_perturbation import OutputPerturbation, example_budget
from tacit.learners.model_protected.task_relationship import AUTO_PENALTY, LEAST_RELATION, relations
from tacit.metrics import nmse
from tacit.privacy.accounting import gaussian_delta, kov_epsilon
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


def test_rounds_without_noise_are_steps_of_each_column(data: Generated) -> None:
    """Difference 1: w_i given the others' released columns, in loops."""
    model = TaskRelationship(budget=Budget(1e8), clip_norm=4.0, rounds=4, fit_intercept=False)
    model.fit(data.X, data.y, task=data.task)
    W = np.zeros((30, 4))
    for _ in range(4):
        hold, pull = relations(W)
        new = np.zeros_like(W)
        for i in range(30):
            X, y = data.X[data.task == i], data.y[data.task == i]
            H = X.T @ X / len(y) + (AUTO_PENALTY * (1 + hold[i])) * np.eye(4)
            new[i] = np.linalg.solve(H, X.T @ y / len(y) - AUTO_PENALTY * pull[i])
        W = new
    np.testing.assert_allclose(model.coef_.T, W, atol=0.02)


def objective(data: Generated, W: FloatArray, penalty: float, coupling: float) -> float:
    """MTRL's, with the best Ω: (λ₂/2) tr(WΩ^{−1}Wᵀ) = (λ₂/2m)‖W‖_*²."""
    loss = sum(
        ((data.X[data.task == i] @ w - data.y[data.task == i]) ** 2).mean() / 2
        for i, w in enumerate(W)
    )
    nuclear = np.linalg.svd(W, compute_uv=False).sum()
    return float(loss + penalty / 2 * (W**2).sum() + coupling / (2 * len(W)) * nuclear**2)


def alternated(data: Generated, W: FloatArray, penalty: float, coupling: float) -> FloatArray:
    """Zhang and Yeung's closed form for all columns, given the relationship of W: dense."""
    m, d = W.shape
    U, sizes, _ = np.linalg.svd(W)
    root = (U[:, : len(sizes)] * sizes) @ U[:, : len(sizes)].T
    Omega = m * root / np.trace(root) if W.any() else np.eye(m)
    S = Omega @ np.linalg.inv(penalty * Omega + coupling * np.eye(m))
    G, b = np.zeros((m * d, m * d)), np.zeros(m * d)
    for i in range(m):
        X, y = data.X[data.task == i], data.y[data.task == i]
        at = slice(i * d, (i + 1) * d)
        G[at, at], b[at] = X.T @ X / len(y), X.T @ y / len(y)
    big = np.kron(S, np.eye(d))
    return np.linalg.solve(np.eye(m * d) + big @ G, big @ b).reshape(m, d)


def test_the_twin_is_the_optimum() -> None:
    """−∇ of the smooth part is a subgradient of (λ₂/2m)‖·‖_*²; alternation does not get below it.

    (From the second round on it does not leave the span of the first round's columns.)
    """
    data = related_tasks(8, (6, 30), 3, spread=0.5, rng=np.random.default_rng(1))
    given: dict[str, Any] = {"penalty": 0.05, "coupling": 0.2}
    model = TaskRelationship(clip_norm=100.0, fit_intercept=False, **given)
    W = model.fit(data.X, data.y, task=data.task).coef_.T
    V = -0.05 * W
    for i in range(8):
        X, y = data.X[data.task == i], data.y[data.task == i]
        V[i] -= X.T @ (X @ W[i] - y) / len(y)
    nuclear = np.linalg.svd(W, compute_uv=False).sum()
    level = 0.2 / 8 * nuclear
    assert np.linalg.norm(V, 2) <= level * (1 + 1e-4)
    assert (V * W).sum() == pytest.approx(level * nuclear, rel=1e-4)
    found = np.zeros((8, 3))
    for _ in range(50):
        found = alternated(data, found, **given)
    assert objective(data, W, **given) < objective(data, found, **given)


def test_penalties_of_the_twin_are_chosen_by_held_out_rows() -> None:
    data = related_tasks(40, 8, 6, spread=0.1, test_rows=30, rng=np.random.default_rng(2))
    chosen = score(TaskRelationship(fit_intercept=False), data)
    assert chosen < 0.8 * score(SingleTask(fit_intercept=False), data)
    for penalty, coupling in ((1e-4, 1e-4), (1.0, 1.0)):
        fixed = TaskRelationship(penalty=penalty, coupling=coupling, fit_intercept=False)
        assert chosen < score(fixed, data)


# --- both, as S1 ran them -----------------------------------------------------------------------


def test_as_published_dp_mtrl_is_the_closed_form_with_measured_noise(data: Generated) -> None:
    """Given the columns released before, to 1e-10; the noise by a fixed event, at 1e-6."""
    n, lam, rounds = 15, 0.2, 3
    model = TaskRelationship(
        budget=Budget(50.0, 1e-3), as_published=True, rounds=rounds, penalty=lam, coupling=0.3,
        max_rows=n, fit_intercept=False, noise="simulated", random_state=0,
    ).fit(data.X, data.y, task=data.task)  # fmt: skip
    sent = [message["models"].value for _, _, message in model.transcript_]
    for t in range(rounds):
        W = alternated(data, sent[t], lam, 0.3)
        noise = sent[t + 1] - W
        epsilon = model.history_[t]["mechanism"]["epsilon"]
        sensitivity = np.zeros(30)
        for i in range(30):
            X, y = data.X[data.task == i], data.y[data.task == i]
            sensitivity[i] = 2 * np.abs(X @ W[i] - y).max() / (len(y) * lam)  # S1 §5.1
        rng = np.random.default_rng(0)  # the run's: the same noise, drawn again
        for _ in range(t):
            rng.standard_normal((30, 4)), rng.gamma(4, size=30)
        directions = rng.standard_normal((30, 4))
        radius = rng.gamma(4, size=30) * sensitivity / epsilon
        drawn = directions / np.linalg.norm(directions, axis=1, keepdims=True) * radius[:, None]
        np.testing.assert_allclose(noise, drawn, rtol=0, atol=1e-10)
    np.testing.assert_allclose(model.coef_.T, sent[-1], rtol=0, atol=1e-10)
    spent = [line["mechanism"]["epsilon"] for line in model.history_]
    assert kov_epsilon(spent, 1e-3 / (n * math.exp(50.0))) == pytest.approx(50.0 / n)
    assert not model.guarantee_.proven
    assert "claimed" in model.guarantee_.reason
    assert model.guarantee_.epsilon == pytest.approx(50.0)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_as_published_dp_aggr_is_the_average_with_measured_noise(loss: Any) -> None:
    data = related_tasks(12, (6, 15), 4, loss=loss, rng=np.random.default_rng(3))
    n, lam = 15, 0.3
    model = AveragedModel(
        loss=loss, budget=Budget(20.0, 1e-3), as_published=True, penalty=lam, max_rows=n,
        fit_intercept=False, noise="simulated", random_state=0,
    ).fit(data.X, data.y, task=data.task)  # fmt: skip
    W, sensitivity = np.zeros((12, 4)), np.zeros(12)
    for i in range(12):
        X, y = data.X[data.task == i], data.y[data.task == i]
        w = np.zeros(4)
        for _ in range(60):  # Newton
            eta = X @ w
            slope = eta - y if loss == "squared" else -y / (1 + np.exp(y * eta))
            curve = np.ones(len(y)) if loss == "squared" else slope**2 * np.exp(y * eta)
            H = X.T @ (X * curve[:, None]) / len(y) + lam * np.eye(4)
            w = w - np.linalg.solve(H, X.T @ slope / len(y) + lam * w)
        W[i], sensitivity[i] = w, 2 * np.abs(slope).max() / (len(y) * lam)
    rng = np.random.default_rng(0)
    direction = rng.standard_normal(4)
    radius = rng.gamma(4) * sensitivity.max() * n / 20.0
    expected = W.mean(axis=0) + radius * direction / np.linalg.norm(direction)
    np.testing.assert_allclose(model.coef_, np.tile(expected[:, None], 12), rtol=0, atol=1e-10)
    assert not model.guarantee_.proven


@pytest.mark.parametrize("learner", BASELINES)
def test_as_published_needs_its_numbers(learner: Any, data: Generated) -> None:
    with pytest.raises(InvalidInput, match="max_rows"):
        learner(budget=Budget(1.0), as_published=True).fit(data.X, data.y, task=data.task)


def test_the_published_noise_grows_as_the_sensitivity() -> None:
    """The radius is Gamma(d, s/ε): its mean over 4,000 rows within 6 standard errors."""
    rows = np.column_stack([np.zeros((4000, 3)), np.full(4000, 2.0)])
    noisy = OutputPerturbation(0.5, (1.0, 0.0)).release(rows, np.random.default_rng(0))
    radii = np.linalg.norm(noisy, axis=1)
    assert abs(radii.mean() - 12.0) < 6 * math.sqrt(3) * 4 / math.sqrt(4000)


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
    given: dict[str, Any] = {"budget": Budget(1e8), "clip_norm": 100.0}
    model = TaskRelationship(max_rows=1000, **given).fit(data.X, data.y, task=data.task)
    other = TaskRelationship(**given).fit(data.X, data.y, task=data.task)
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


def test_a_coupling_too_small_to_count_leaves_the_twin_where_it_was() -> None:
    """At its level, that of W itself, rounding decides whether W(level) is smaller than W(0)."""
    for seed in range(5):
        data = related_tasks(4, 6, 3, rng=np.random.default_rng(seed))
        given: dict[str, Any] = {"penalty": 1e-3, "fit_intercept": False}
        fits = [TaskRelationship(coupling=each, **given) for each in (1e-31, 0.0)]
        one, other = (fit.fit(data.X, data.y, task=data.task).coef_ for fit in fits)
        np.testing.assert_allclose(one, other, atol=1e-6)
