"""Alternating directions: the exact step of a squared loss, and how few of them are needed."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.arrays import FloatArray
from tacit.linear.losses import Logistic, Squared
from tacit.linear.penalties import GroupNorm, Penalty, TraceNorm
from tacit.linear.problems import Problems
from tacit.linear.proximal import highest_level, penalised_prox
from tacit.linear.smooth import Quadratic, Rowwise, quadratic, smooth_part
from tacit.linear.splitting import _Mixed, alternating


def ragged(sizes: list[int], d: int, seed: int = 0) -> Problems:
    rng, total = np.random.default_rng(seed), sum(sizes)
    X = np.column_stack([rng.normal(size=(total, d)), np.ones(total)])
    return Problems(X, rng.normal(size=total), np.append(0, np.cumsum(sizes)))


@pytest.mark.parametrize("sizes", [[3, 9, 4], [40, 7, 30], [1, 1, 0]])
@pytest.mark.parametrize("weight", [1e-3, 2.0, 1e4])
def test_the_nearest_point_is_where_the_gradient_vanishes(sizes: list[int], weight: float) -> None:
    problems = ragged(sizes, 6)
    rows = np.random.default_rng(1).uniform(0.5, 2.0, len(problems.y))
    for smooth in (quadratic(problems, rows), Rowwise(problems, Squared(), rows)):
        bases = smooth.curvatures
        assert bases is not None
        point = np.random.default_rng(2).normal(size=(3, 7))
        W = bases.nearest(point, weight)
        size = np.abs(smooth.gradient(point)).max() + weight
        np.testing.assert_allclose(
            smooth.gradient(W) + weight * (W - point), 0 * W, atol=1e-9 * size
        )
        np.testing.assert_allclose(bases.gradient(W), smooth.gradient(W), atol=1e-10 * size)


@pytest.mark.parametrize("spoilt", [False, True])
def test_tasks_with_the_same_rows_have_one_gram_matrix(spoilt: bool) -> None:
    own = np.random.default_rng(0).normal(size=(9, 4))
    X = np.tile(own, (3, 1))
    X[20, 1] += spoilt  # of the third task: the first two alone do not decide it
    problems = Problems(X, np.random.default_rng(1).normal(size=27), np.arange(4) * 9)
    joint, each = smooth_part(problems, Squared()), quadratic(problems, np.ones(27))
    assert isinstance(joint, Quadratic)
    assert len(joint.G) == (3 if spoilt else 1)
    W, point = np.random.default_rng(2).normal(size=(2, 3, 4))
    assert joint.value(W) == pytest.approx(each.value(W))
    np.testing.assert_allclose(joint.gradient(W), each.gradient(W), atol=1e-12)
    ours, theirs = (smooth.curvatures.nearest(point, 2.0) for smooth in (joint, each))
    np.testing.assert_allclose(ours, theirs, atol=1e-12)
    small = np.eye(4)[:, :2]
    ours, theirs = (smooth.restricted(small).gradient(W[:, :2]) for smooth in (joint, each))
    np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_only_a_quadratic_loss_has_curvatures() -> None:
    assert smooth_part(ragged([5, 5], 2), Logistic()).curvatures is None


@pytest.mark.parametrize("penalty", [TraceNorm(), GroupNorm()])
@pytest.mark.parametrize("share", [0.1, 1e-3])
def test_rows_that_are_nearly_alike_cost_few_steps(penalty: Penalty, share: float) -> None:
    """Condition 10⁶: proximal gradient steps would be counted in tens of thousands."""
    rng, m, d, n = np.random.default_rng(0), 30, 12, 60
    X = (rng.normal(size=(m * n, 1)) + 1e-3 * rng.normal(size=(m * n, d))) * np.geomspace(1, 3, d)
    y = X @ rng.normal(size=d) + 0.01 * rng.normal(size=m * n)
    problems = Problems(np.column_stack([X, np.zeros(m * n)]), y, np.arange(0, m * n + 1, n))
    smooth, zero = smooth_part(problems, Squared()), np.zeros((m, d + 1))
    assert isinstance(smooth, Quadratic)
    level, bases = share * highest_level(smooth, penalty, zero), smooth.curvatures
    steps = []

    def nearest(point: FloatArray, weight: float) -> FloatArray:
        steps.append(weight)
        return bases.nearest(point, weight)

    stop = 1e-7 * float(np.linalg.norm(smooth.gradient(zero)))
    prox = penalised_prox(penalty, level)
    W = alternating(
        nearest,
        bases.gradient,
        prox,
        zero,
        weight=bases.weight,
        stop=stop,
        most=20_000,
    )
    assert len(steps) < 1500
    length = 1 / float(smooth.bounds().max())
    ahead = prox(W - length * smooth.gradient(W), length)
    assert np.linalg.norm(ahead - W) <= stop * length


def test_it_ends_where_nothing_moves_any_more() -> None:
    """There a stop below rounding divided by a step of nothing."""
    slope, right = 2 / 7, 0.5

    def nearest(point: FloatArray, weight: float) -> FloatArray:
        return (right + weight * point) / (slope + weight)

    W = alternating(
        nearest,
        lambda W: slope * W - right,
        lambda V, _: V,
        np.zeros((1, 1)),
        weight=1.0,
        stop=0.0,
        most=1_000,
    )
    np.testing.assert_allclose(W, right / slope, rtol=1e-12)


def test_it_starts_where_it_ended() -> None:
    problems = ragged([40, 30, 50], 6)
    smooth, zero = smooth_part(problems, Squared()), np.zeros((3, 7))
    bases = smooth.curvatures
    assert bases is not None
    prox = penalised_prox(TraceNorm(), 0.1 * highest_level(smooth, TraceNorm(), zero))
    stop = 1e-9 * float(np.linalg.norm(smooth.gradient(zero)))
    first: list[float] = []
    again: list[float] = []

    def run(start: FloatArray, steps: list[float]) -> FloatArray:
        def nearest(point: FloatArray, weight: float) -> FloatArray:
            steps.append(weight)
            return bases.nearest(point, weight)

        return alternating(
            nearest,
            bases.gradient,
            prox,
            start,
            weight=bases.weight,
            stop=stop,
            most=20_000,
        )

    found = run(zero, first)
    np.testing.assert_allclose(run(found, again), found, atol=1e-7)
    assert len(again) < len(first) / 2


def test_mixed_steps_of_a_linear_map_end_where_it_stands_still() -> None:
    """Five of them span all four directions; plain steps would take thousands."""
    slow, still = np.diag([0.999, 0.99, -0.9, 0.5]), np.array([[1.0, -2.0, 3.0, 4.0]])
    V, mixed = np.zeros((1, 4)), _Mixed()
    for _ in range(12):
        V = mixed.after(V, (still - V) @ (np.eye(4) - slow))
    np.testing.assert_allclose(V, still, atol=1e-3)


def test_after_a_long_move_steps_are_plain() -> None:
    mixed = _Mixed()
    for length in (1.0, 0.5):
        mixed.after(np.zeros((1, 2)), np.array([[length, 0.1]]))
    for move in (np.array([[7.0, 1.0]]), np.array([[6.0, 2.0]])):
        np.testing.assert_array_equal(mixed.after(np.ones((1, 2)), move), 1 + move)


def test_nothing_to_mix_is_a_plain_step() -> None:
    mixed, move = _Mixed(), np.zeros((2, 3))
    for _ in range(3):
        np.testing.assert_array_equal(mixed.after(np.ones((2, 3)), move), np.ones((2, 3)))


@pytest.mark.parametrize("sizes", [[3, 3, 3], [3, 9, 3], [4, 9, 3], [5, 0, 5]])
def test_rows_are_seen_where_they_lie(sizes: list[int]) -> None:
    """Tasks that solve together need no copy; what they compute is the same."""
    problems = ragged(sizes, 12)
    ones, W = np.ones(len(problems.y)), np.random.default_rng(2).normal(size=(3, 13))
    own, joint = (Rowwise(problems, Squared(), ones, together=t) for t in (False, True))
    np.testing.assert_allclose(joint.gradient(W), own.gradient(W), atol=1e-12)
    assert joint.value(W) == pytest.approx(own.value(W))
    point = np.random.default_rng(3).normal(size=(3, 13))
    ours, theirs = (s.curvatures.nearest(point, 2.0) for s in (joint, own))  # type: ignore[union-attr]
    np.testing.assert_allclose(ours, theirs, atol=1e-12)
