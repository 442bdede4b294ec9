"""Batched small problems against one solve at a time, and leave-one-out by leaving one out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.linear_model import RidgeCV

from tacit.arrays import FloatArray
from tacit.linear.batched import MEAN_RIDGE, Problems, factor, shared_mean, solve_path
from tacit.linear.losses import Logistic, Loss, Squared
from tacit.linear.problems import of_each_chunk
from tacit.linear.single_task_fits import PENALTIES, best_alone, own_path


def ragged(sizes: list[int], d: int, seed: int, loss: Loss) -> Problems:
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    X = rng.normal(size=(n, d))
    y = rng.normal(size=n)
    target = np.where(y > 0, 1.0, -1.0) if loss.name == "logistic" else y
    return Problems(X, target, np.concatenate([[0], np.cumsum(sizes)]))


def one_by_one(
    X: FloatArray, y: FloatArray, penalty: float, mean: FloatArray, S: FloatArray
) -> FloatArray:
    precision = penalty * np.linalg.inv(S)
    return np.asarray(np.linalg.solve(X.T @ X + precision, X.T @ y + precision @ mean))


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=7),
    d=st.integers(1, 6),
    seed=st.integers(0, 10**6),
)
def test_batched_ridge_is_ridge_one_task_at_a_time(sizes: list[int], d: int, seed: int) -> None:
    problems = ragged(sizes, d, seed, Squared())
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=d)
    root = rng.normal(size=(d, d))
    S = root @ root.T + 0.1 * np.eye(d)
    penalties = np.array([0.3, 7.0])
    path = solve_path(problems, penalties, mean=mean, covariance=S)
    for t, (a, b) in enumerate(zip(problems.offsets[:-1], problems.offsets[1:], strict=True)):
        X, y = problems.X[a:b], problems.y[a:b]
        for j, penalty in enumerate(penalties):
            np.testing.assert_allclose(
                path.coef[t, j], one_by_one(X, y, penalty, mean, S), rtol=1e-6, atol=1e-8
            )
            for i in range(b - a):
                keep = np.arange(b - a) != i
                without = one_by_one(X[keep], y[keep], penalty, mean, S)
                assert path.held_out[a + i, j] == pytest.approx(X[i] @ without, rel=1e-5, abs=1e-7)


def test_a_broken_leave_one_out_would_be_seen() -> None:
    problems = ragged([6], 3, 0, Squared())
    path = solve_path(problems, np.array([1.0]))
    fitted = problems.X @ path.coef[0, 0]
    assert np.abs(fitted - path.held_out[:, 0]).min() > 1e-3


def test_batched_logistic_meets_its_optimality_condition() -> None:
    problems = ragged([1, 5, 40, 41], 4, 3, Logistic())
    penalties = np.array([0.05, 1.0, 30.0])
    mean = np.array([0.5, -0.2, 0.0, 1.0])
    path = solve_path(problems, penalties, loss=Logistic(), mean=mean)
    for t, (a, b) in enumerate(zip(problems.offsets[:-1], problems.offsets[1:], strict=True)):
        X, y = problems.X[a:b], problems.y[a:b]
        for j, penalty in enumerate(penalties):
            w = path.coef[t, j]
            gradient = X.T @ Logistic().slope(X @ w, y) + penalty * (w - mean)
            np.testing.assert_allclose(gradient, 0, atol=1e-7)


def test_logistic_leave_one_out_is_close_to_leaving_one_out() -> None:
    problems = ragged([60], 3, 5, Logistic())
    path = solve_path(problems, np.array([2.0]), loss=Logistic())
    exact = np.empty(60)
    for i in range(60):
        keep = np.arange(60) != i
        rest = Problems(problems.X[keep], problems.y[keep], np.array([0, 59]))
        exact[i] = problems.X[i] @ solve_path(rest, np.array([2.0]), loss=Logistic()).coef[0, 0]
    assert np.abs(exact - path.held_out[:, 0]).max() < 0.01
    assert np.abs(exact - problems.X @ path.coef[0, 0]).max() > 0.05


def test_separable_rows_and_one_class_stay_finite() -> None:
    X = np.array([[1.0, 1.0], [2.0, 1.0], [3.0, 1.0]])
    problems = Problems(X, np.ones(3), np.array([0, 3]))
    path = own_path(problems, Logistic())
    assert np.isfinite(path.coef).all()
    assert np.isfinite(path.held_out).all()


@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=["squared", "logistic"])
def test_shared_mean_is_the_joint_optimum(loss: Loss) -> None:
    problems = ragged([3, 8, 5], 2, 1, loss)
    penalty, ridge = 1.5, MEAN_RIDGE

    def objective(flat: FloatArray) -> float:
        mu, W = flat[:2], flat[2:].reshape(3, 2)
        index = np.repeat(np.arange(3), problems.sizes)
        eta = np.einsum("nd,nd->n", problems.X, W[index])
        total = loss.value(eta, problems.y).sum()
        return float(total + penalty / 2 * ((W - mu) ** 2).sum() + ridge / 2 * (mu**2).sum())

    best = minimize(objective, np.zeros(8), method="BFGS", options={"gtol": 1e-8})
    mu = shared_mean(problems, penalty, loss=loss)
    np.testing.assert_allclose(mu, best.x[:2], atol=2e-4)
    np.testing.assert_allclose(mu, best.x[2:].reshape(3, 2).mean(0), atol=2e-3)


def test_best_alone_chooses_like_ridgecv() -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(40, 5))
    X /= np.sqrt((X**2).mean())
    y = X @ rng.normal(size=5) + 3 + rng.normal(size=40)
    reference = RidgeCV(alphas=PENALTIES).fit(X, y)
    model = best_alone(Problems(np.hstack([X, np.ones((40, 1))]), y, np.array([0, 40])), Squared())
    np.testing.assert_allclose(model[0, :-1], reference.coef_, atol=1e-4)
    assert model[0, -1] == pytest.approx(reference.intercept_, abs=1e-4)


def test_scaling_the_features_by_a_power_of_two_changes_no_bit_of_a_task_alone() -> None:
    problems = ragged([9, 4], 3, 8, Squared())
    X = np.hstack([problems.X, np.ones((13, 1))])
    scaled = np.hstack([1024 * problems.X, np.ones((13, 1))])
    small = best_alone(Problems(X, problems.y, problems.offsets), Squared())
    large = best_alone(Problems(scaled, problems.y, problems.offsets), Squared())
    np.testing.assert_array_equal(large[:, :-1] * 1024, small[:, :-1])


def test_factor_reproduces_any_covariance() -> None:
    root = np.random.default_rng(0).normal(size=(4, 2))
    S = root @ root.T
    F = factor(S, 4)
    np.testing.assert_allclose(F @ F.T, S, atol=1e-12)


def test_sums_over_rows_treat_an_empty_task_as_zero() -> None:
    problems = Problems(np.ones((2, 1)), np.ones(2), np.array([0, 1, 1, 2]))
    np.testing.assert_array_equal(problems.sum_rows(np.array([5.0, 7.0])), [5.0, 0.0, 7.0])


def test_a_logistic_task_does_not_see_the_tasks_beside_it() -> None:
    problems = ragged([12, 12, 12], 3, 6, Logistic())
    harder = problems.y.copy()
    harder[:12] = np.where(problems.X[:12, 0] > 0, 1.0, -1.0)  # separable: many more steps
    penalties = np.array([1e-3, 1.0])
    one = solve_path(problems, penalties, loss=Logistic())
    other = solve_path(Problems(problems.X, harder, problems.offsets), penalties, loss=Logistic())
    assert not np.allclose(one.coef[0], other.coef[0])
    np.testing.assert_array_equal(one.coef[1:], other.coef[1:])
    np.testing.assert_array_equal(one.held_out[12:], other.held_out[12:])


def test_of_no_tasks_nothing_is_made() -> None:
    none = Problems(np.zeros((0, 3)), np.zeros(0), np.array([0]))
    assert of_each_chunk(none, lambda problems: best_alone(problems, Squared())).shape == (0, 3)
