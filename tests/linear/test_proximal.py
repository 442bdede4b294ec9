"""The solvers by optimality conditions, and against a simple proximal loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.arrays import FloatArray
from tacit.linear.batched import Problems
from tacit.linear.joint_optima import joined, open_decomposed, open_optimum
from tacit.linear.losses import Logistic, Loss, Squared
from tacit.linear.penalties import (
    ColumnNorm,
    GroupNorm,
    L1Norm,
    Penalty,
    SquaredNorm,
    TraceNorm,
)
from tacit.linear.proximal import (
    accelerated_alone,
    decomposed_optimum,
    folds,
    held_out,
    highest_level,
    lasso_alone,
    optimum,
    penalised_prox,
    without,
)
from tacit.linear.single_task_fits import best_alone
from tacit.linear.smooth import Quadratic, Rowwise, quadratic, smooth_part
from tacit.linear.standardised import standardised, with_own_intercepts

LOSSES: list[Loss] = [Squared(), Logistic()]


def dual(penalty: Penalty, V: FloatArray) -> float:
    if isinstance(penalty, TraceNorm):
        return float(np.linalg.norm(V, 2))
    if isinstance(penalty, L1Norm):
        return float(np.abs(V).max())
    return float(np.linalg.norm(V, axis=1 if isinstance(penalty, GroupNorm) else 0).max())


def ragged(
    loss: Loss, m: int = 30, d: int = 8, seed: int = 0, rows: tuple[int, int] = (3, 25)
) -> Problems:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(*rows, m)
    X = np.column_stack([rng.normal(size=(sizes.sum(), d)), np.ones(sizes.sum())])
    W = np.column_stack([rng.normal(size=(m, 2)) @ rng.normal(size=(2, d)), rng.normal(size=m)])
    eta = np.einsum("nd,nd->n", X, np.repeat(W, sizes, axis=0))
    y = eta + 0.5 * rng.normal(size=len(eta))
    return Problems(X, np.sign(y) if loss.name == "logistic" else y, np.append(0, sizes.cumsum()))


@pytest.mark.parametrize("loss", LOSSES, ids=["squared", "logistic"])
@pytest.mark.parametrize("penalty", [TraceNorm(), GroupNorm(), L1Norm(), ColumnNorm()])
@pytest.mark.parametrize("share", [0.5, 0.05])
def test_the_optimum_meets_its_optimality_conditions(
    loss: Loss, penalty: Penalty, share: float
) -> None:
    problems = ragged(loss)
    smooth = smooth_part(problems, loss)
    zero = np.zeros((30, 9))
    level = share * highest_level(smooth, penalty, zero)
    W = optimum(smooth, penalty, level, start=zero, tolerance=1e-9)
    slope = smooth.gradient(W)
    scale = float(np.linalg.norm(smooth.gradient(zero)))
    assert np.abs(slope[:, -1]).max() <= 1e-7 * scale  # the intercept is free
    V = -slope[:, :-1].T
    assert dual(penalty, V) <= level * (1 + 1e-6)
    aligned = float((V * W[:, :-1].T).sum())
    assert aligned == pytest.approx(level * penalty.value(W[:, :-1].T), rel=1e-6)


@pytest.mark.parametrize("penalty", [TraceNorm(), GroupNorm()])
def test_the_optimum_is_that_of_a_long_simple_loop(penalty: Penalty) -> None:
    problems = ragged(Squared(), m=40, d=12)
    smooth = smooth_part(problems, Squared())
    zero = np.zeros((40, 13))
    level = 0.1 * highest_level(smooth, penalty, zero)
    step = 1 / float(smooth.bounds().max())
    prox = penalised_prox(penalty, level)
    slow = zero
    for _ in range(20_000):
        slow = prox(slow - step * smooth.gradient(slow), step)
    fast = optimum(smooth, penalty, level, start=zero)

    def value(W: FloatArray) -> float:
        return smooth.value(W) + level * penalty.value(W[:, :-1].T)

    assert value(fast) <= value(slow) * (1 + 1e-6)
    assert value(slow) <= value(fast) * (1 + 1e-6)


def test_above_the_highest_level_the_solution_is_zero_and_below_it_is_not() -> None:
    problems = ragged(Squared())
    smooth = smooth_part(problems, Squared())
    zero = np.zeros((30, 9))
    own = standardised(problems, Squared(), scaled=False)
    top = highest_level(smooth_part(own.problems, Squared()), TraceNorm(), zero)
    for share, empty in ((1.01, True), (0.97, False)):
        W = optimum(smooth_part(own.problems, Squared()), TraceNorm(), share * top, start=zero)
        assert (np.abs(W[:, :-1]).max() < 1e-9) == empty
    assert smooth.value(zero) > 0


@pytest.mark.parametrize("shared", [TraceNorm(), GroupNorm()])
@pytest.mark.parametrize("own", [L1Norm(), ColumnNorm(), SquaredNorm()])
def test_the_decomposed_optimum_meets_both_conditions(shared: Penalty, own: Penalty) -> None:
    problems = ragged(Squared(), m=12, d=4)
    smooth = smooth_part(problems, Squared())
    zero = np.zeros((12, 5))
    first = 0.2 * highest_level(smooth, shared, zero)
    second = 1.0 if isinstance(own, SquaredNorm) else 0.5 * highest_level(smooth, own, zero)
    P, Q = decomposed_optimum(smooth, shared, own, (first, second), start=zero, tolerance=1e-9)
    V = -smooth.gradient(P + Q)[:, :-1].T
    assert not Q[:, -1].any()
    assert dual(shared, V) <= first * (1 + 1e-5)
    assert float((V * P[:, :-1].T).sum()) == pytest.approx(
        first * shared.value(P[:, :-1].T), rel=1e-5
    )
    if isinstance(own, SquaredNorm):
        np.testing.assert_allclose(V, 2 * second * Q[:, :-1].T, atol=1e-5 * np.abs(V).max())
    else:
        assert dual(own, V) <= second * (1 + 1e-5)
        assert float((V * Q[:, :-1].T).sum()) == pytest.approx(
            second * own.value(Q[:, :-1].T), rel=1e-5, abs=1e-8
        )


@pytest.mark.parametrize("loss", LOSSES, ids=["squared", "logistic"])
def test_a_task_that_joins_the_optimum_finds_its_own_column_again(loss: Loss) -> None:
    problems = ragged(loss, m=20, d=5)
    found = open_optimum(problems, loss, TraceNorm(), 3.0)
    again = joined(problems, loss, found, None)
    assert np.abs(again - found.models).max() <= 2e-3 * np.abs(found.models).max()


def test_a_task_that_joins_a_decomposed_optimum_finds_its_own_column_again() -> None:
    problems = ragged(Squared(), m=20, d=5)
    found = open_decomposed(problems, Squared(), TraceNorm(), L1Norm(), (3.0, 1.0))
    again = joined(problems, Squared(), found, L1Norm())
    assert np.abs(again - found.models).max() <= 0.05 * np.abs(found.models).max()


def test_gram_matrices_and_rows_are_the_same_function() -> None:
    problems = ragged(Squared(), m=6, d=3, rows=(5, 9))
    weights = np.repeat(np.linspace(0.5, 2, 6), problems.sizes)
    W = np.random.default_rng(1).normal(size=(6, 4))
    gram, rows = quadratic(problems, weights), Rowwise(problems, Squared(), weights)
    assert isinstance(smooth_part(problems, Squared()), Quadratic)
    assert gram.value(W) == pytest.approx(rows.value(W))
    np.testing.assert_allclose(gram.gradient(W), rows.gradient(W), atol=1e-10)
    np.testing.assert_allclose(gram.bounds(), rows.bounds(), rtol=1e-9)
    F = np.random.default_rng(2).normal(size=(4, 2))
    A = np.random.default_rng(3).normal(size=(6, 2))
    for smooth in (gram, rows):
        assert smooth.restricted(F).value(A) == pytest.approx(smooth.value(A @ F.T))
        np.testing.assert_allclose(smooth.restricted(F).gradient(A), smooth.gradient(A @ F.T) @ F)


@pytest.mark.parametrize("loss", LOSSES, ids=["squared", "logistic"])
def test_own_units_go_in_and_out_and_have_curvature_one(loss: Loss) -> None:
    problems = ragged(loss)
    for scaled in (True, False):
        own = standardised(problems, loss, scaled=scaled)
        models = best_alone(problems, loss)
        back = own.from_smooth(own.inwards(models))
        np.testing.assert_allclose(back[:, :-1], models[:, :-1], atol=1e-9)
        np.testing.assert_allclose(own.smooth.bounds(), 1, rtol=1e-6)
        if loss.name == "logistic":
            np.testing.assert_allclose(back, models, atol=1e-9)


def test_own_intercepts_are_the_best_for_given_coefficients() -> None:
    problems = ragged(Squared(), m=5, d=3)
    coef = np.random.default_rng(0).normal(size=(5, 3))
    found = with_own_intercepts(problems, Squared(), coef)
    residual = problems.y - np.einsum(
        "nd,nd->n", problems.X, np.repeat(found, problems.sizes, axis=0)
    )
    np.testing.assert_allclose(problems.sum_rows(residual), 0, atol=1e-4)
    np.testing.assert_allclose(found[:, :-1], coef)


def test_folds_follow_the_rows_and_not_their_order() -> None:
    problems = ragged(Squared(), m=4, d=3)
    fold = folds(problems, 3)
    for first, last in zip(problems.offsets[:-1], problems.offsets[1:], strict=True):
        assert np.bincount(fold[first:last], minlength=3).max() <= -(-(last - first) // 3)
    order = np.concatenate(
        [
            first + np.random.default_rng(int(first)).permutation(last - first)
            for first, last in zip(problems.offsets[:-1], problems.offsets[1:], strict=True)
        ]
    )
    mixed = Problems(problems.X[order], problems.y[order], problems.offsets)
    np.testing.assert_array_equal(folds(mixed, 3), fold[order])


def test_held_out_rows_are_not_used() -> None:
    problems = ragged(Squared(), m=4, d=3)
    seen: list[int] = []

    def fit(part: Problems) -> FloatArray:
        seen.append(len(part.y))
        return np.full((4, 1, 4), float(len(part.y)))

    predicted = held_out(problems, fit, 3)
    assert sum(len(problems.y) - n for n in seen) == len(problems.y)
    assert predicted.shape == (len(problems.y), 1)
    assert without(problems, np.ones(len(problems.y), dtype=bool)).sizes.tolist() == [0] * 4


def test_a_task_is_not_changed_by_another_ones_iteration() -> None:
    problems = ragged(Squared(), m=6, d=4)
    loud = Problems(problems.X, problems.y.copy(), problems.offsets)
    loud.y[: problems.sizes[0]] *= 1e3
    one, other = (lasso_alone(each, Squared()) for each in (problems, loud))
    np.testing.assert_array_equal(one[1:], other[1:])
    assert not np.allclose(one[0], other[0])


def test_lasso_finds_the_few_features() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(60, 12)), np.ones(60)])
    y = 3 * X[:, 0] - 2 * X[:, 5] + 1 + 0.1 * rng.normal(size=60)
    (w,) = lasso_alone(Problems(X, y, np.array([0, 60])), Squared())
    assert w[[0, 5, -1]] == pytest.approx([3, -2, 1], abs=0.15)
    assert np.abs(np.delete(w, [0, 5, 12])).max() < 0.1


def test_accelerated_alone_reaches_each_optimum() -> None:
    problems = ragged(Squared(), m=5, d=3)
    own = standardised(problems, Squared(), scaled=True)
    level = np.linspace(0.01, 0.1, 5)
    prox = penalised_prox(L1Norm(), level)
    W = accelerated_alone(own.smooth.gradient, prox, np.zeros((5, 4)), 1.0, 3000)
    slope = own.smooth.gradient(W)[:, :-1]
    assert (np.abs(slope) <= level[:, None] * (1 + 1e-6)).all()


@pytest.mark.parametrize("penalty", [TraceNorm(), GroupNorm()])
def test_degenerate_problems_have_a_finite_optimum(penalty: Any) -> None:
    X = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    for y in ([0.0, 0.0], [1.0, 1.0], [1.0, -1.0]):
        problems = Problems(X, np.array(y), np.array([0, 2]))
        found = open_optimum(problems, Squared(), penalty, None)
        assert np.isfinite(found.models).all()
        assert found.models[0, -1] == pytest.approx(np.mean(y))
