"""Tasks drawn from a known truth: y = x·w_t + b_t + noise, one column w_t of W per task.

`low_rank_tasks` and `group_sparse_tasks` are the simulations of Liang et al., Model-Protected
Multi-Task Learning, section 5.4.

Differs from the paper in
  1. the covariance of the low-rank simulation is shown there only as a picture; here W = BA with
     rank 5, scaled so that an entry of W has standard deviation 20.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tacit.arrays import FloatArray, IntArray
from tacit.errors import InvalidInput
from tacit.tasks import Column

_ENTRY_SCALE = 20.0  # standard deviation of an entry of a low-rank W
_SPARSE_LOW, _SPARSE_HIGH = 1.0, 50.0  # |entry| of a group-sparse W
_TARGET_DEVIATIONS = 6.0  # the declared range of y, in standard deviations of the generator


@dataclass(frozen=True, eq=False, repr=False)
class Generated:
    """Generated tasks, the truth behind them, and what may be declared about them.

    The ranges follow from the generator's parameters alone, never from the drawn values: a
    target outside them (it is Gaussian) is clipped by a schema.
    """

    X: FloatArray  # (N, d)
    y: FloatArray  # (N,), or -1 and +1
    task: IntArray  # (N,)
    coef: FloatArray  # (d, m), the true W
    intercept: FloatArray  # (m,)
    ranges: dict[str | int, Column]
    X_test: FloatArray  # (m * test_rows, d)
    y_test: FloatArray
    task_test: IntArray


Loss = Literal["squared", "logistic"]


def related_tasks(
    n_tasks: int = 100,
    rows: int | tuple[int, int] = (5, 25),
    n_features: int = 10,
    *,
    spread: float = 0.5,
    noise: float = 0.5,
    loss: Loss = "squared",
    test_rows: int = 0,
    rng: np.random.Generator,
) -> Generated:
    """Tasks around a common model: w_t = w_0 + spread · n_t / √d, with |w_0| = 1.

    n_t is standard normal, b_t = spread · N(0, 1) / √d, and x is uniform on [-1, 1]^d. A task
    has between rows[0] and rows[1] rows. With loss="squared", y = x·w_t + b_t + noise · N(0, 1);
    with "logistic", y = +1 with probability 1 / (1 + exp(-(x·w_t + b_t) / noise)), else -1.

    >>> data = related_tasks(3, rows=4, n_features=2, rng=np.random.default_rng(0))
    >>> data.X.shape, data.coef.shape, data.task
    ((12, 2), (2, 3), array([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]))
    """
    low, high = (rows, rows) if isinstance(rows, int) else rows
    _require_counts(n_tasks=n_tasks, rows=low, n_features=n_features)
    _require_scales(spread=spread, noise=noise, test_rows=test_rows)
    if high < low or loss not in ("squared", "logistic"):
        raise InvalidInput(f"expected rows (low, high) and a known loss, got {rows!r}, {loss!r}")
    common = _unit_rows(rng.standard_normal((1, n_features)))[0]
    share = spread / math.sqrt(n_features)
    W = common[:, None] + share * rng.standard_normal((n_features, n_tasks))
    b = share * rng.standard_normal(n_tasks)
    sizes = rng.integers(low, high, n_tasks, endpoint=True)
    deviation = math.sqrt((1 + spread**2) / 3 + share**2 + noise**2)  # a uniform x has E[x²] = 1/3
    target = Column(categories=(-1, 1)) if loss == "logistic" else _around_zero(deviation)

    def draw(sizes: IntArray) -> tuple[FloatArray, FloatArray, IntArray]:
        task = np.repeat(np.arange(n_tasks), sizes)
        X = rng.uniform(-1.0, 1.0, (len(task), n_features))
        signal = np.einsum("nd,nd->n", X, W.T[task]) + b[task]
        return X, _responses(signal, noise, loss, rng), task

    test = np.full(n_tasks, test_rows)
    return _generated(draw(sizes), draw(test), W, b, target)


def low_rank_tasks(
    n_tasks: int = 320,
    rows: int | tuple[int, int] = 30,
    n_features: int = 30,
    *,
    rank: int = 5,
    test_rows: int = 270,
    rng: np.random.Generator,
) -> Generated:
    """Tasks whose models span few directions: W = B A · 20 / √rank.

    B is (d, rank) and A is (rank, m), both standard normal; |x| = 1; unit noise; no intercept. A
    task has between rows[0] and rows[1] rows.

    >>> data = low_rank_tasks(8, rows=4, n_features=6, rank=2, rng=np.random.default_rng(0))
    >>> int(np.linalg.matrix_rank(data.coef))
    2
    """
    low, high = (rows, rows) if isinstance(rows, int) else rows
    _require_counts(n_tasks=n_tasks, rows=low, n_features=n_features, rank=rank)
    if high < low:
        raise InvalidInput(f"expected rows (low, high), got {rows!r}")
    sizes = rng.integers(low, high, n_tasks, endpoint=True) if low < high else low
    B = rng.standard_normal((n_features, rank))
    A = rng.standard_normal((rank, n_tasks))
    W = B @ A * (_ENTRY_SCALE / math.sqrt(rank))
    return _on_the_sphere(W, sizes, test_rows, _ENTRY_SCALE, rng)


def adni_shaped_tasks(*, test_rows: int = 0, rng: np.random.Generator) -> Generated:
    """Tasks of the shape of S3's ADNI data (Table 1), which are not public: 20 tasks of 15 to 27
    rows and 248 features, more unknowns than rows, on models of rank 3 (S3 section 4.1).

    >>> data = adni_shaped_tasks(rng=np.random.default_rng(0))
    >>> data.coef.shape, int(np.bincount(data.task).min()), int(np.bincount(data.task).max())
    ((248, 20), 15, 27)
    """
    return low_rank_tasks(20, (15, 27), 248, rank=3, test_rows=test_rows, rng=rng)


def group_sparse_tasks(
    n_tasks: int = 320,
    rows: int = 30,
    n_features: int = 30,
    *,
    active: int = 4,
    test_rows: int = 270,
    rng: np.random.Generator,
) -> Generated:
    """Tasks that use the same few features: the first `active` rows of W are nonzero.

    Their entries are uniform on [-50, -1] ∪ [1, 50]; |x| = 1; unit noise; no intercept.

    >>> data = group_sparse_tasks(8, rows=4, n_features=6, rng=np.random.default_rng(0))
    >>> (data.coef != 0).all(axis=1)
    array([ True,  True,  True,  True, False, False])
    """
    _require_counts(n_tasks=n_tasks, rows=rows, n_features=n_features, active=active)
    if active > n_features:
        raise InvalidInput(f"{active} active features, but there are only {n_features}")
    W = np.zeros((n_features, n_tasks))
    size = rng.uniform(_SPARSE_LOW, _SPARSE_HIGH, (active, n_tasks))
    W[:active] = size * rng.choice([-1.0, 1.0], (active, n_tasks))
    square = (_SPARSE_LOW**2 + _SPARSE_LOW * _SPARSE_HIGH + _SPARSE_HIGH**2) / 3  # E[entry²]
    return _on_the_sphere(W, rows, test_rows, math.sqrt(active * square / n_features), rng)


def _on_the_sphere(
    W: FloatArray, rows: int | IntArray, test_rows: int, deviation: float, rng: np.random.Generator
) -> Generated:
    """y = x·w_t + N(0, 1) with |x| = 1; `deviation` is that of x·w_t."""
    _require_scales(test_rows=test_rows)
    d, m = W.shape

    def draw(count: int | IntArray) -> tuple[FloatArray, FloatArray, IntArray]:
        task = np.repeat(np.arange(m), count)
        X = _unit_rows(rng.standard_normal((len(task), d)))
        signal = np.einsum("nd,nd->n", X, W.T[task])
        return X, _responses(signal, 1.0, "squared", rng), task

    target = _around_zero(math.hypot(deviation, 1.0))
    return _generated(draw(rows), draw(test_rows), W, np.zeros(m), target)


def _generated(
    train: tuple[FloatArray, FloatArray, IntArray],
    test: tuple[FloatArray, FloatArray, IntArray],
    W: FloatArray,
    b: FloatArray,
    target: Column,
) -> Generated:
    ranges: dict[str | int, Column] = {j: Column(-1.0, 1.0) for j in range(len(W))}
    return Generated(*train, W, b, ranges | {"target": target}, *test)


def _responses(
    signal: FloatArray, noise: float, loss: Loss, rng: np.random.Generator
) -> FloatArray:
    if loss == "squared":
        return signal + noise * rng.standard_normal(len(signal))
    # the logistic distribution function is the logistic model
    return np.where(signal + noise * rng.logistic(size=len(signal)) > 0, 1.0, -1.0)


def _unit_rows(X: FloatArray) -> FloatArray:
    norms: FloatArray = np.linalg.norm(X, axis=1, keepdims=True)
    return X / norms


def _around_zero(deviation: float) -> Column:
    return Column(-_TARGET_DEVIATIONS * deviation, _TARGET_DEVIATIONS * deviation)


def _require_counts(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise InvalidInput(f"{name} must be at least 1, got {count}")


def _require_scales(**scales: float) -> None:
    for name, scale in scales.items():
        if not 0 <= scale < math.inf:
            raise InvalidInput(f"{name} must be finite and not negative, got {scale}")
