"""Columns of a prox that were kept up to date equal the full prox, and do not drift."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from tacit.arrays import FloatArray
from tacit.linear import prox_columns
from tacit.linear.penalties import (
    ColumnNorm,
    GroupNorm,
    L1Norm,
    Penalty,
    RowMaxNorm,
    SquaredNorm,
    TraceNorm,
)

PENALTIES: list[Penalty] = [
    TraceNorm(),
    GroupNorm(),
    L1Norm(),
    ColumnNorm(),
    SquaredNorm(),
    RowMaxNorm(),
]
SHAPES = [(5, 9), (9, 5), (6, 6), (1, 4), (4, 1), (50, 60)]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads only wait for each other on matrices of this size."""
    with threadpool_limits(1, user_api="blas"):
        yield


def name(penalty: Penalty) -> str:
    return type(penalty).__name__


def literal_prox(penalty: Penalty, V: FloatArray, level: float) -> FloatArray:
    """The trace norm by numpy.linalg.svd and reconstruction; the others from penalties.py."""
    if not isinstance(penalty, TraceNorm):
        return penalty.prox(V, level)
    U, sizes, Qt = np.linalg.svd(V, full_matrices=False)
    return np.asarray((U * np.maximum(sizes - level, 0)) @ Qt)


@pytest.mark.parametrize("penalty", PENALTIES, ids=name)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("queued", [1, 3])
def test_a_column_that_was_kept_up_to_date_is_that_of_the_full_prox(
    penalty: Penalty, shape: tuple[int, int], queued: int
) -> None:
    rng = np.random.default_rng(0)
    level = 0.7 * math.sqrt(max(shape))
    prox, V = penalty.columns(level), np.zeros(shape, order="F")
    kept = prox.kept(V)
    for _ in range(20):
        nodes = rng.choice(shape[1], min(queued, shape[1]), replace=False).tolist()
        old, V = V[:, nodes], V.copy(order="F")
        V[:, nodes] += rng.normal(size=(shape[0], len(nodes)))
        kept = prox.moved(kept, V, old, nodes)
        expected = literal_prox(penalty, V, level)
        np.testing.assert_allclose(prox.columns(kept, V, nodes), expected[:, nodes], atol=1e-10)
    np.testing.assert_allclose(prox.columns(kept, V, slice(None)), expected, atol=1e-10)


@pytest.mark.parametrize("level", [1.0, 120.0])  # nearly all directions stay, or five of them
@pytest.mark.parametrize("queued", [1, 16])
def test_at_full_size_the_columns_are_those_of_a_full_svd(queued: int, level: float) -> None:
    rng = np.random.default_rng(0)
    V = rng.normal(size=(100, 5)) @ rng.normal(size=(5, 1000)) + rng.normal(size=(100, 1000))
    prox = TraceNorm().columns(level)
    kept = prox.kept(V)
    for _ in range(10):
        nodes = rng.choice(1000, queued, replace=False).tolist()
        old, V = V[:, nodes], V.copy(order="F")
        V[:, nodes] = rng.normal(size=(100, queued))
        kept = prox.moved(kept, V, old, nodes)
    expected = literal_prox(TraceNorm(), V, level)
    assert np.abs(prox.columns(kept, V, slice(None)) - expected).max() < 1e-10


@pytest.mark.parametrize("penalty", [TraceNorm(), GroupNorm()], ids=name)
def test_what_is_kept_does_not_drift(penalty: Penalty, monkeypatch: pytest.MonkeyPatch) -> None:
    def error() -> float:
        rng = np.random.default_rng(1)
        prox, V = penalty.columns(1e-3), 1e4 * rng.normal(size=(4, 6))
        kept = prox.kept(V)
        for k in range(300):
            t = k % 6
            old, V = V[:, [t]], V.copy()
            V[:, t] = rng.normal(size=4) * (1e4 if k < 200 else 1e-2)
            kept = prox.moved(kept, V, old, [t])
        exact = literal_prox(penalty, V, 1e-3)
        return float(np.abs(prox.columns(kept, V, slice(None)) - exact).max())

    monkeypatch.setattr(prox_columns, "REFRESH", 50)
    assert error() < 1e-8
    monkeypatch.setattr(prox_columns, "REFRESH", 10_000)
    assert error() > 1e-8  # and without computing afresh it does drift
