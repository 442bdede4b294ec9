"""Tridiagonal forms against dense algebra, and each task as if it were alone."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.arrays import FloatArray
from tacit.linear.tridiagonal import Tridiagonal

SCALES = 10.0 ** np.arange(-3, 3.1, 1.5)


def drawn(m: int, r: int, rank: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """B of some rank, b that B explains in part, and weights of the scales."""
    rng = np.random.default_rng([m, r, rank])
    X = rng.normal(size=(m, rank, r))
    return X.transpose(0, 2, 1) @ X, rng.normal(size=(m, r)), rng.random((m, len(SCALES)))


@pytest.mark.parametrize(("r", "rank"), [(1, 1), (2, 2), (7, 9), (7, 3), (7, 0), (31, 30)])
def test_forms_are_those_of_dense_algebra(r: int, rank: int) -> None:
    B, b, weights = drawn(5, r, rank)
    form = Tridiagonal.of(B, b)
    explained, log_det = form.path(SCALES)
    solved = form.solved(SCALES, weights)
    for task in range(5):
        each = [np.linalg.solve(np.eye(r) / c + B[task], b[task]) for c in SCALES]
        np.testing.assert_allclose(explained[task], [b[task] @ x for x in each], rtol=1e-9)
        truth = [np.linalg.slogdet(np.eye(r) + c * B[task])[1] for c in SCALES]
        np.testing.assert_allclose(log_det[task], truth, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(solved[task], weights[task] @ each, rtol=1e-8, atol=1e-9)


def test_a_task_with_no_pull_is_not_moved_and_has_a_determinant() -> None:
    B, b, weights = drawn(3, 4, 6)
    form = Tridiagonal.of(B, 0 * b)
    explained, log_det = form.path(SCALES)
    assert not explained.any()
    assert not form.solved(SCALES, weights).any()
    truth = np.linalg.slogdet(np.eye(4) + SCALES[-1] * B)[1]
    np.testing.assert_allclose(log_det[:, -1], truth, rtol=1e-9)


@pytest.mark.parametrize("m", [2, 3, 8, 33])
def test_a_task_gets_the_same_bits_alone_and_beside_an_infinite_one(m: int) -> None:
    B, b, weights = drawn(m, 9, 12)
    b[-1] = np.inf
    with np.errstate(all="ignore"):
        form = Tridiagonal.of(B, b)
    alone = Tridiagonal.of(B[:1], b[:1])
    for together, by_itself in zip(form.path(SCALES), alone.path(SCALES), strict=True):
        np.testing.assert_array_equal(together[:1], by_itself)
    np.testing.assert_array_equal(
        form.solved(SCALES, weights)[:1], alone.solved(SCALES, weights[:1])
    )
