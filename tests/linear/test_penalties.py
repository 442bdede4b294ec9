"""A proximal operator by optimality, non-expansiveness and Moreau's identity."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tacit.arrays import FloatArray
from tacit.linear.penalties import (
    ColumnNorm,
    GroupNorm,
    L1Norm,
    Penalty,
    RowMaxNorm,
    SquaredNorm,
    TraceNorm,
    spectrum,
)

NORMS: list[Penalty] = [TraceNorm(), GroupNorm(), L1Norm(), ColumnNorm(), RowMaxNorm()]
ALL: list[Penalty] = [*NORMS, SquaredNorm()]
SHAPES = [(5, 12), (7, 3), (1, 4), (4, 1)]

# The projection onto the unit ball of the dual norm, written down independently of the prox.
PROJECTIONS: dict[type, Callable[[FloatArray], FloatArray]] = {
    TraceNorm: lambda V: _spectral_projection(V),
    GroupNorm: lambda V: V / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), 1),
    L1Norm: lambda V: np.clip(V, -1, 1),
    ColumnNorm: lambda V: V / np.maximum(np.linalg.norm(V, axis=0), 1),
    RowMaxNorm: lambda V: np.stack([_l1_projection(row) for row in V]),
}


def _l1_projection(v: FloatArray) -> FloatArray:
    """Onto the unit ℓ1 ball, by bisection."""
    if np.abs(v).sum() <= 1:
        return v
    low, high = 0.0, float(np.abs(v).max())
    for _ in range(200):
        middle = (low + high) / 2
        total = np.maximum(np.abs(v) - middle, 0).sum()
        low, high = (middle, high) if total > 1 else (low, middle)
    return np.asarray(np.sign(v) * np.maximum(np.abs(v) - high, 0))


def _spectral_projection(V: FloatArray) -> FloatArray:
    U, sizes, Qt = np.linalg.svd(V, full_matrices=False)
    return np.asarray((U * np.minimum(sizes, 1)) @ Qt)


def name(penalty: Penalty) -> str:
    return type(penalty).__name__


@pytest.mark.parametrize("penalty", ALL, ids=name)
@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_near_the_prox_has_a_smaller_objective(
    penalty: Penalty, shape: tuple[int, int]
) -> None:
    rng = np.random.default_rng(0)
    V = 2 * rng.normal(size=shape)
    W = penalty.prox(V, 0.7)

    def objective(W: FloatArray) -> float:
        return 0.5 * float(((W - V) ** 2).sum()) + 0.7 * penalty.value(W)

    best = objective(W)
    for scale in (1.0, 1e-2, 1e-4):
        for _ in range(30):
            assert objective(W + scale * rng.normal(size=shape)) >= best - 1e-12
    assert objective(np.zeros(shape)) >= best - 1e-12
    assert objective(V) >= best - 1e-12


@pytest.mark.parametrize("penalty", ALL, ids=name)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_prox_is_firmly_non_expansive(penalty: Penalty, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        A, B = rng.normal(size=shape), rng.normal(size=shape)
        moved = penalty.prox(A, 0.4) - penalty.prox(B, 0.4)
        assert (moved**2).sum() <= (moved * (A - B)).sum() + 1e-12


@pytest.mark.parametrize("penalty", NORMS, ids=name)
@pytest.mark.parametrize("shape", SHAPES)
def test_moreau_prox_and_dual_projection_add_up(penalty: Penalty, shape: tuple[int, int]) -> None:
    V = 3 * np.random.default_rng(2).normal(size=shape)
    level = 1.3
    projected = level * PROJECTIONS[type(penalty)](V / level)
    np.testing.assert_allclose(penalty.prox(V, level) + projected, V, atol=1e-10)


@pytest.mark.parametrize("penalty", NORMS, ids=name)
def test_a_norm_is_homogeneous_and_a_large_level_gives_zero(penalty: Penalty) -> None:
    V = np.random.default_rng(3).normal(size=(4, 6))
    assert penalty.value(-2 * V) == pytest.approx(2 * penalty.value(V))
    assert not penalty.prox(V, 1e3).any()
    assert not penalty.prox(np.zeros((4, 6)), 0.5).any()
    np.testing.assert_allclose(penalty.prox(V, 0.0), V, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_small_side_gives_the_singular_values(shape: tuple[int, int]) -> None:
    W = np.random.default_rng(4).normal(size=shape)
    sizes, U = spectrum(W)
    np.testing.assert_allclose(np.sort(sizes)[::-1], np.linalg.svd(W, compute_uv=False), rtol=1e-9)
    np.testing.assert_allclose(U.T @ U, np.eye(len(sizes)), atol=1e-12)


def test_the_basis_spans_what_is_used_and_no_more() -> None:
    rng = np.random.default_rng(5)
    low = rng.normal(size=(6, 2)) @ rng.normal(size=(2, 9))
    U = TraceNorm().basis(low)
    assert U.shape == (6, 2)
    np.testing.assert_allclose(U @ (U.T @ low), low, atol=1e-9)
    sparse = np.zeros((6, 9))
    sparse[[1, 4]] = rng.normal(size=(2, 9)) * [[1.0], [5.0]]
    np.testing.assert_array_equal(GroupNorm().basis(sparse), np.eye(6)[:, [4, 1]])


@pytest.mark.parametrize("penalty", ALL, ids=name)
def test_a_separable_penalty_sees_each_column_by_itself_and_no_other_does(
    penalty: Penalty,
) -> None:
    V = np.random.default_rng(6).normal(size=(4, 6))
    alone = np.hstack([penalty.prox(V[:, [t]], 0.9) for t in range(6)])
    assert np.allclose(alone, penalty.prox(V, 0.9)) == penalty.separable


@pytest.mark.parametrize("penalty", NORMS, ids=name)
def test_at_the_size_of_noise_little_of_it_is_left_and_at_a_quarter_much(penalty: Penalty) -> None:
    """Columns of different deviations; what stays is a small share of the noise."""
    rng, deviations = np.random.default_rng(7), np.array([1.0, 0.5, 2.0, 1.0, 1.5, 1.0])
    noise = deviations * rng.normal(size=(100, 8, 6))
    level = penalty.noise_size(deviations, 8)
    left = [
        [np.linalg.norm(penalty.prox(V, share * level)) / np.linalg.norm(V) for V in noise]
        for share in (1.0, 0.25)
    ]
    assert np.mean(left[0]) < 0.1
    assert np.mean(left[1]) > 0.3


def test_only_the_squared_norm_is_a_ridge() -> None:
    assert [type(penalty) for penalty in ALL if penalty.is_ridge] == [SquaredNorm]
