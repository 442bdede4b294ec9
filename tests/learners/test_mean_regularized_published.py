"""S2 as printed: Algorithm 1 in loops, objective (1) at its optimum, Theorems 1, 3 and 5."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tacit import Budget, MeanRegularized
from tacit.arrays import FloatArray
from tacit.datasets import related_tasks
from tacit.datasets.generators import Generated
from tacit.errors import InvalidInput
from tacit.estimator import Home
from tacit.learners.mean_regularized.algorithm_1 import Inputs, TaskLearners, theorem_1_sigma
from tacit.learners.mean_regularized.bounds import nonconvex_bound, strongly_convex_bound
from tacit.linear.losses import Squared
from tacit.linear.problems import Problems
from tacit.linear.task_relations import Omega
from tacit.privacy.accounting import Poisson, epsilon, gaussian_delta, poisson_noise_multiplier

M, D = 12, 4
RING = np.roll(np.eye(M), 1, axis=0) + np.roll(np.eye(M), -1, axis=0)
RANDOM = np.random.default_rng(9).normal(size=(M, M))
RELATIONS: dict[str, Any] = {
    "mean": None,
    "the paper's": Omega((np.eye(M) - 1 / M) @ (np.eye(M) - 1 / M)),
    "ring": Omega.laplacian(RING),
    "cliques": Omega.laplacian(np.kron(np.eye(3), 1 - np.eye(4))),
    "any": Omega(RANDOM @ RANDOM.T / M),
}
INPUTS: dict[str, Any] = {
    "as_published": True, "rounds": 7, "local_steps": 3, "penalty": 2.0, "step": 0.02,
    "clip_norm": 0.3, "noise": "simulated", "random_state": 5, "fit_intercept": False,
}  # fmt: skip


def drawn(loss: Any = "squared") -> Generated:
    return related_tasks(M, (5, 12), D, loss=loss, rng=np.random.default_rng(0))


def slope(loss: str, X: FloatArray, y: FloatArray, w: FloatArray) -> FloatArray:
    residual = X @ w - y if loss == "squared" else -y / (1 + np.exp(y * (X @ w)))
    return np.asarray(X.T @ residual)


def algorithm_1(
    data: Generated, loss: str, means: FloatArray, cohorts: list[Any], lam: float, eta: float,
    gamma: float, E: int,
) -> tuple[list[FloatArray], list[FloatArray]]:  # fmt: skip
    """Lines 2–14 given the broadcast means (T + 1, D): the models, and line 8 without its noise."""
    w = [np.zeros(D) for _ in range(M)]
    aggregated = []
    for t, S in enumerate(cohorts):  # lines 2, 3
        total = np.zeros(D)
        for k in S:  # line 4
            X, y = data.X[data.task == k], data.y[data.task == k]
            new = w[k].copy()
            for _ in range(E):  # lines 11–14
                new = new - eta * (slope(loss, X, y, new) + lam * (new - means[t]))
            g = new - w[k]  # line 6
            total += g * min(1.0, gamma / float(np.linalg.norm(g)))
            w[k] = new
        aggregated.append(means[t] + total / len(S))  # line 8
    return w, aggregated


@pytest.mark.parametrize("cohort", [None, 5])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("calibration", ["theorem 1", "amplified"])
def test_it_is_algorithm_1(cohort: Any, loss: Any, calibration: Any) -> None:
    data = drawn(loss)
    model = MeanRegularized(
        loss=loss, budget=Budget(8.0), cohort=cohort, calibration=calibration, **INPUTS
    ).fit(data.X, data.y, task=data.task)
    means = model.shared_["centres"].value[:, 0, :-1]  # without an intercept the last is zero
    q = cohort or M
    inputs = Inputs(7, 3, 2.0, 0.02, 0.3, q, Omega.mean(M), False)
    cohorts = [inputs.chosen((5, 1), t) for t in range(7)]
    w, aggregated = algorithm_1(data, loss, means, cohorts, 2.0, 0.02, 0.3, 3)
    np.testing.assert_allclose(model.coef_.T, w, rtol=0, atol=1e-10)
    if calibration == "theorem 1":
        sigma = 4 * 0.3 * math.sqrt(7 * math.log(1e5)) / (M * 8.0)
    else:
        budget = Budget(8.0, neighbours="zero-out")
        sigma = 0.3 / q * poisson_noise_multiplier(q / M, 7, budget)
    rng = np.random.default_rng(5)
    for t in range(7):
        noise = sigma * rng.standard_normal(D + 1)[:-1]
        np.testing.assert_allclose(means[t + 1], aggregated[t] + noise, rtol=0, atol=1e-10)
    assert all(len(S) == q for S in cohorts)
    assert cohort is None or any(list(cohorts[0]) != list(S) for S in cohorts)


def test_a_cohort_makes_the_broadcast_longer_than_the_mean_of_the_models() -> None:
    """Line 8 divides by |S_t| = q where objective (2) has m: w̃ is m/q times the mean."""
    data, q = drawn(), 4
    given = INPUTS | {"clip_norm": 100.0, "cohort": q}
    model = MeanRegularized(budget=Budget(1e9), **given).fit(data.X, data.y, task=data.task)
    last = model.shared_["centres"].value[-1, 0, :-1]
    np.testing.assert_allclose(last, M / q * model.coef_.mean(axis=1), rtol=0, atol=1e-5)


def test_with_everybody_theorem_1_holds_and_the_ledger_says_how_far() -> None:
    data = drawn()
    model = MeanRegularized(budget=Budget(2.0), **(INPUTS | {"noise": "secure"}))
    promised = model.fit(data.X, data.y, task=data.task).guarantee_
    assert promised.proven
    assert promised.epsilon < 1.5  # of 2
    for epsilon_ in (0.1, 1.0, 8.0, 20.0):
        for delta in (1e-3, 1e-6):
            if epsilon_ <= 2 * math.log(1 / delta):
                sigma = theorem_1_sigma(1.0, 9, 50, epsilon_, delta)
                assert gaussian_delta(epsilon_, 2 * 3 / (50 * sigma)) <= delta  # replace


@pytest.mark.parametrize("calibration", ["theorem 1", "amplified"])
def test_a_cohort_is_a_claim_only(calibration: Any) -> None:
    data = drawn()
    model = MeanRegularized(budget=Budget(8.0), cohort=5, calibration=calibration, **INPUTS).fit(
        data.X, data.y, task=data.task
    )
    promised = model.guarantee_
    assert not promised.proven
    assert "count themselves" in promised.reason
    assert promised.epsilon == pytest.approx(8.0)
    assert promised.delta == pytest.approx(1e-5)


def test_the_amplified_claim_is_that_of_a_poisson_sample() -> None:
    z = poisson_noise_multiplier(5 / M, 7, Budget(8.0, neighbours="zero-out"))
    assert epsilon([Poisson(5 / M, z)] * 7, 1e-5) == pytest.approx(8.0, rel=1e-3)


# --- objective (1) -------------------------------------------------------------------------------


def optimum(data: Generated, Omega_: FloatArray, lam: float) -> FloatArray:
    """(m, d): the linear system of objective (1) with the squared loss, written out."""
    H, b = lam * np.kron(Omega_, np.eye(D)), np.zeros(M * D)
    for k in range(M):
        X, y = data.X[data.task == k], data.y[data.task == k]
        at = slice(k * D, (k + 1) * D)
        H[at, at] += X.T @ X
        b[at] = X.T @ y
    return np.linalg.solve(H, b).reshape(M, D)


@pytest.mark.parametrize("name", RELATIONS)
def test_the_twin_is_the_optimum_of_objective_1(name: str) -> None:
    data, relation = drawn(), RELATIONS[name]
    model = MeanRegularized(penalty=3.0, relation=relation, fit_intercept=False)
    model.fit(data.X, data.y, task=data.task)
    omega = relation or RELATIONS["the paper's"]
    np.testing.assert_allclose(model.coef_.T, optimum(data, omega.matrix, 3.0), atol=1e-8)


@pytest.mark.parametrize("name", RELATIONS)
def test_algorithm_1_without_noise_comes_to_the_optimum_of_objective_1(name: str) -> None:
    """Nothing clipped, everybody in every round: Σ_k B_rk Δ_k moves the broadcasts."""
    data, relation = drawn(), RELATIONS[name]
    omega = relation or RELATIONS["the paper's"]
    curvature = max(float(np.linalg.norm(data.X[data.task == k], 2)) ** 2 for k in range(M))
    inputs = Inputs(1, 5, 3.0, 0.5 / curvature, 1.0, M, omega, True)
    order = np.argsort(data.task, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(data.task))])
    problems = Problems(data.X[order], data.y[order], offsets)
    learners = TaskLearners(
        Home(problems, Squared(), np.zeros(D, dtype=bool), False), inputs, (0,), np.arange(M)
    )
    models, centres = np.zeros((M, D)), np.zeros((len(omega.broadcasts[0]), D))
    for t in range(1500):
        after = learners.updated(models, centres, t)
        centres, models = centres + omega.broadcasts[0] @ (after - models), after
    np.testing.assert_allclose(models, optimum(data, omega.matrix, 3.0), atol=1e-5)


def test_the_twin_of_a_logistic_loss_is_stationary() -> None:
    data, omega = drawn("logistic"), Omega.laplacian(RING)
    model = MeanRegularized(loss="logistic", penalty=0.7, relation=omega, fit_intercept=False)
    W = model.fit(data.X, data.y, task=data.task).coef_.T
    for k in range(M):
        X, y = data.X[data.task == k], data.y[data.task == k]
        total = slope("logistic", X, y, W[k]) + 0.7 * omega.matrix[k] @ W
        assert np.abs(total).max() < 1e-7


def test_one_task_is_held_to_itself() -> None:
    data = related_tasks(1, 20, D, rng=np.random.default_rng(0))
    given = INPUTS | {"rounds": 300, "clip_norm": 50.0}
    model = MeanRegularized(budget=Budget(20.0), **given).fit(data.X, data.y, task=data.task)
    twin = MeanRegularized(penalty=2.0, fit_intercept=False).fit(data.X, data.y, task=data.task)
    least = np.linalg.lstsq(data.X, data.y, rcond=None)[0]
    np.testing.assert_allclose(twin.coef_[:, 0], least, atol=1e-8)
    assert np.isfinite(model.coef_).all()


def test_equal_rows_of_the_mixing_are_one_broadcast() -> None:
    rows, listens = Omega.mean(M).broadcasts
    assert rows.shape == (1, M)
    assert not listens.any()
    rows, listens = RELATIONS["cliques"].broadcasts
    assert rows.shape == (3, M)
    assert listens.tolist() == [listens[0]] * 4 + [listens[4]] * 4 + [listens[8]] * 4


def test_a_round_never_raises_the_objective() -> None:
    """The mixing's majoriser, whatever Ω: exact solves around c = BW."""
    rng = np.random.default_rng(0)
    data, omega = drawn(), RELATIONS["any"]
    W = rng.normal(size=(M, D))

    def value(W: FloatArray) -> float:
        lost = sum(
            ((data.X[data.task == k] @ W[k] - data.y[data.task == k]) ** 2).sum() / 2
            for k in range(M)
        )
        return float(lost + 4.0 * omega.penalty(W))

    before = value(W)
    for _ in range(30):
        centres, pull = omega.mixing @ W, 4.0 * omega.scale
        for k in range(M):
            X, y = data.X[data.task == k], data.y[data.task == k]
            H = X.T @ X + pull * np.eye(D)
            W[k] = np.linalg.solve(H, X.T @ y + pull * centres[k])
        assert value(W) <= before + 1e-9
        before = value(W)


@pytest.mark.parametrize("wrong", [np.ones((2, 3)), np.array([[1.0, 2.0], [0.0, 1.0]]), -np.eye(2)])
def test_omega_is_symmetric_without_negative_eigenvalues(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="Ω must"):
        Omega(wrong)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"as_published": True, "budget": Budget(1.0)}, "rounds, clip_norm, penalty, step"),
        ({"budget": Budget(1.0), "penalty": 1.0}, "λ and Ω of the twin"),
        ({"relation": Omega.mean(M)}, "give penalty"),
        ({"relation": Omega.mean(3), "penalty": 1.0}, "relates 3 tasks"),
        ({"relation": np.eye(M), "penalty": 1.0}, "an Omega or None"),
        ({**INPUTS, "budget": Budget(1.0), "cohort": 99}, "cohort of 99"),
    ],
)
def test_what_means_nothing_is_refused(given: Any, match: str) -> None:
    data = drawn()
    with pytest.raises(InvalidInput, match=match):
        MeanRegularized(**given).fit(data.X, data.y, task=data.task)


@pytest.mark.parametrize("budget", [None, Budget(20.0)])
def test_a_newcomer_is_held_to_the_last_broadcast(budget: Any, tmp_path: Any) -> None:
    data = drawn()
    given = INPUTS if budget is not None else {"penalty": 2.0}
    model = MeanRegularized(budget=budget, **given).fit(data.X, data.y, task=data.task)
    model.adapt(data.X[:6], data.y[:6], task="new")
    assert np.isfinite(model.coef_).all()
    again = MeanRegularized.load(model.save(tmp_path / "model"))
    np.testing.assert_allclose(again.coef_, model.coef_)


# --- Theorems 3 and 5 ----------------------------------------------------------------------------


def test_theorem_3_grows_with_noise_and_falls_with_tasks() -> None:
    given: dict[str, Any] = {
        "share": 0.5, "smoothness": 2.0, "penalty": 0.1, "dim": 10, "n_tasks": 100,
    }  # fmt: skip
    quiet, loud = (nonconvex_bound([1.0] * 50, sigma=s, **given) for s in (0.0, 0.3))
    assert loud - quiet == pytest.approx(10 * 0.09)
    assert quiet == pytest.approx(1 / 5000 + 2.35)
    with pytest.raises(InvalidInput):
        nonconvex_bound([], sigma=0.0, **given)


def test_theorem_5_comes_to_its_constant() -> None:
    given: dict[str, Any] = {
        "largest_loss": 0.2, "step": 0.1, "share": 0.5, "margin": 1.0, "strong_convexity": 0.6,
        "smoothness": 3.0, "penalty": 0.4, "dim": 7,
    }  # fmt: skip
    rest = 0.2 / 0.05  # Corollary 6
    assert strongly_convex_bound(9.0, 10**4, sigma=0.0, **given) == pytest.approx(rest)
    first = strongly_convex_bound(9.0, 0, sigma=0.1, **given)
    assert first == pytest.approx(9.0)
    noisy = strongly_convex_bound(9.0, 10**4, sigma=0.1, **given)
    assert noisy == pytest.approx((0.2 + 3.4 * 7 * 0.01) / 0.05)
    with pytest.raises(InvalidInput, match="0, 1"):
        strongly_convex_bound(9.0, 1, sigma=0.1, **(given | {"step": 100.0}))
