r"""Thousands of small linear problems at once, each along a whole penalty path.

Task t has rows X_t (n_t, d) and targets y_t. For every penalty λ of the path

.. math:: \hat w_t(λ) = \arg\min_w Σ_i ℓ(x_iᵀw; y_i) + (λ/2) (w − μ)ᵀ S^{-1} (w − μ)

with any prior mean μ and covariance S = F Fᵀ. With Z = XF and w = μ + Fu this is a plain ridge in
u. Leave-one-out predictions come along: with a_i = z_iᵀ H^{-1} z_i, H the Hessian at the optimum,

.. math:: η_{−i} = η_i + ℓ'(η_i) a_i / (1 − ℓ''(η_i) a_i),

exact for the squared loss and the standard approximation (one Newton step) for the logistic.

Tasks of similar size are padded to one (b, n, d) block; a block is a handful of BLAS and LAPACK
calls. Squared loss: one eigendecomposition of the smaller of ZᵀZ and ZZᵀ serves the whole path.
Memory is linear in the data: blocks are cut to BLOCK_VALUES numbers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from tacit.linear.losses import FloatArray, Loss, Squared
from tacit.linear.threads import one_blas_thread

BLOCK_VALUES = 1 << 21
"""Most numbers in one padded block (16 MiB of float64)."""

PADDING = 1.25
"""Tasks share a block when their sizes differ by at most this factor."""

CHUNK = 4096
CHUNK_ROWS = 1 << 17
"""Tasks, and rows, whose whole paths are held at once where only one model of each is wanted."""

NEWTON_STEPS = 30
NEWTON_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Problems:
    """Ragged tasks: rows of task t are offsets[t]:offsets[t+1].

    >>> p = Problems(np.ones((3, 1)), np.arange(3.0), np.array([0, 1, 3]))
    >>> p.sizes
    array([1, 2])
    """

    X: FloatArray  # (N, d)
    y: FloatArray  # (N,)
    offsets: np.ndarray[tuple[int], np.dtype[np.int64]]  # (m + 1,)

    @property
    def sizes(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Rows of each task, (m,)."""
        return np.diff(self.offsets)

    @property
    def n_tasks(self) -> int:
        """m."""
        return len(self.offsets) - 1

    def chunks(self, most: int = CHUNK, most_rows: int = CHUNK_ROWS) -> Iterator[Problems]:
        """The tasks, so many at a time that their paths fit in memory; at least one.

        >>> p = Problems(np.ones((5, 1)), np.ones(5), np.array([0, 1, 4, 5]))
        >>> [part.n_tasks for part in p.chunks(most_rows=2)]
        [1, 1, 1]
        """
        start = 0
        while start < self.n_tasks:
            within = np.searchsorted(self.offsets, self.offsets[start] + most_rows, side="right")
            stop = min(self.n_tasks, start + most, max(start + 1, int(within) - 1))
            offsets = self.offsets[start : stop + 1]
            rows = slice(offsets[0], offsets[-1])
            yield Problems(self.X[rows], self.y[rows], offsets - offsets[0])
            start = stop

    def sum_rows(self, values: FloatArray) -> FloatArray:
        """Sums over the rows of each task: (N, ...) → (m, ...); an empty task sums to zero."""
        sums = np.zeros((self.n_tasks, *values.shape[1:]))
        some = self.sizes > 0
        if some.any():
            sums[some] = np.add.reduceat(values, self.offsets[:-1][some], axis=0)
        return sums


@dataclass(frozen=True)
class Path:
    """Solutions along the penalty path."""

    penalties: FloatArray  # (L,)
    coef: FloatArray  # (m, L, d)
    held_out: FloatArray  # (N, L), the prediction for each row by the model fitted without it


@dataclass(frozen=True)
class _Block:
    tasks: np.ndarray[tuple[int], np.dtype[np.int64]]  # (b,)
    rows: np.ndarray[tuple[int, int], np.dtype[np.int64]]  # (b, n), row numbers; padding repeats 0
    real: np.ndarray[tuple[int, int], np.dtype[np.bool_]]  # (b, n), False where padded


def _blocks(problems: Problems) -> Iterator[_Block]:
    """Tasks ordered by size, cut where the padding or the memory would exceed its bound."""
    sizes, width = problems.sizes, max(1, problems.X.shape[1])
    order = np.argsort(sizes, kind="stable")
    start = 0
    while start < len(order):
        smallest = max(1, int(sizes[order[start]]))
        stop = int(np.searchsorted(sizes[order], np.floor(smallest * PADDING), side="right"))
        rows_each = max(1, int(sizes[order[min(stop, len(order)) - 1]]))
        most = max(1, BLOCK_VALUES // (rows_each * max(width, rows_each)))
        stop = max(start + 1, min(stop, start + most))
        tasks = order[start:stop]
        longest = max(1, int(sizes[tasks].max()))
        real = np.arange(longest) < sizes[tasks][:, None]
        rows = np.where(real, problems.offsets[tasks][:, None] + np.arange(longest), 0)
        yield _Block(tasks, rows, real)
        start = stop


def _each_block(problems: Problems, work: Callable[[_Block], None]) -> None:
    """Runs the blocks on all cores; LAPACK on small matrices gains nothing from its own threads."""
    blocks = list(_blocks(problems))
    if len(blocks) == 1:  # finding the thread pools takes longer than a small block
        work(blocks[0])
        return
    with one_blas_thread(), ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(work, blocks):
            pass


def factor(covariance: FloatArray | None, d: int) -> FloatArray:
    """F (d, d) with S = F Fᵀ, from a matrix, a vector of variances, or None for the identity.

    >>> factor(np.array([4.0, 9.0]), 2)
    array([[2., 0.],
           [0., 3.]])
    """
    if covariance is None:
        return np.eye(d)
    if covariance.ndim == 1:
        return np.diag(np.sqrt(covariance))
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def solve_path(
    problems: Problems,
    penalties: FloatArray,
    *,
    loss: Loss | None = None,
    mean: FloatArray | None = None,
    covariance: FloatArray | None = None,
) -> Path:
    """All tasks, all penalties, with leave-one-out predictions (see the module's formulas).

    ``mean`` is (d,) or one row per task (m, d); ``covariance`` as in ``factor``.

    >>> p = Problems(np.array([[1.0], [1.0]]), np.array([1.0, 3.0]), np.array([0, 2]))
    >>> solve_path(p, np.array([2.0])).coef.ravel()  # 4 / (2 + 2)
    array([1.])
    """
    loss = loss or Squared()
    n_rows, d = problems.X.shape
    m, n_penalties = problems.n_tasks, len(penalties)
    means = np.zeros((m, d)) if mean is None else np.broadcast_to(mean, (m, d))
    F = factor(covariance, d)
    coef, held_out = np.empty((m, n_penalties, d)), np.empty((n_rows, n_penalties))
    solve = _ridge_block if isinstance(loss, Squared) else _newton_block

    def work(block: _Block) -> None:
        X = problems.X[block.rows] * block.real[:, :, None]
        y = problems.y[block.rows] * block.real
        base = np.einsum("bnd,bd->bn", X, means[block.tasks])
        Z = X if covariance is None else X @ F
        u, eta = solve(Z, y, base, block.real, penalties, loss)
        coef[block.tasks] = means[block.tasks][:, None] + (u if covariance is None else u @ F.T)
        held_out[block.rows[block.real]] = eta[block.real]

    _each_block(problems, work)
    return Path(np.asarray(penalties), coef, held_out)


def _ridge_block(
    Z: FloatArray,
    y: FloatArray,
    base: FloatArray,
    real: np.ndarray[tuple[int, int], np.dtype[np.bool_]],
    penalties: FloatArray,
    loss: Loss,
) -> tuple[FloatArray, FloatArray]:
    """u (b, L, d) and leave-one-out predictions (b, n, L) from one eigendecomposition."""
    n, d = Z.shape[1:]
    residual = (y - base) * real
    Zt = Z.transpose(0, 2, 1)
    if n < d:  # ZZᵀ = QΛQᵀ: u = Zᵀ Q (Λ+λ)^{-1} Qᵀ r
        values, Q = np.linalg.eigh(Z @ Zt)
        values = np.maximum(values, 0.0)
        inverse = 1 / (values[:, :, None] + penalties)
        projected = np.einsum("bnk,bn->bk", Q, residual)
        dual = Q @ (projected[:, :, None] * inverse)  # (b, n, L)
        u = Zt @ dual
        leverage = (Q * Q) @ (values[:, :, None] * inverse)
        error = penalties * dual  # r − Zu
    else:  # ZᵀZ = VΛVᵀ: u = V (Λ+λ)^{-1} VᵀZᵀ r
        values, V = np.linalg.eigh(Zt @ Z)
        values = np.maximum(values, 0.0)
        inverse = 1 / (values[:, :, None] + penalties)
        ZV = Z @ V
        projected = np.einsum("bnk,bn->bk", ZV, residual)
        scores = projected[:, :, None] * inverse  # (b, d, L)
        u = V @ scores
        leverage = (ZV * ZV) @ inverse
        error = residual[:, :, None] - ZV @ scores
    held_out_error = error / np.maximum(1 - leverage, 1e-12)
    return u.transpose(0, 2, 1), (y[:, :, None] - held_out_error)


def _newton_block(
    Z: FloatArray,
    y: FloatArray,
    base: FloatArray,
    real: np.ndarray[tuple[int, int], np.dtype[np.bool_]],
    penalties: FloatArray,
    loss: Loss,
) -> tuple[FloatArray, FloatArray]:
    """The same for a smooth loss: damped Newton from the largest penalty down, warm-started."""
    b, n, d = Z.shape
    u = np.empty((b, len(penalties), d))
    held_out = np.empty((b, n, len(penalties)))
    current = np.zeros((b, d))
    for index in np.argsort(penalties)[::-1]:
        penalty = float(penalties[index])
        current, eta, H = _newton(Z, y, base, real, penalty, loss, current)
        a = np.einsum("bnd,bdn->bn", Z, np.linalg.solve(H, Z.transpose(0, 2, 1)))
        curvature = loss.curvature(eta, y)
        u[:, index] = current
        held_out[:, :, index] = eta + loss.slope(eta, y) * a / np.maximum(1 - curvature * a, 1e-12)
    return u, held_out


def _newton(
    Z: FloatArray,
    y: FloatArray,
    base: FloatArray,
    real: np.ndarray[tuple[int, int], np.dtype[np.bool_]],
    penalty: float,
    loss: Loss,
    start: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Minimises Σ ℓ + (λ/2)‖u‖² for every task of the block; a step is halved until it descends.

    A task stops by its own step alone: what it gets must not depend on the tasks beside it.
    """
    Zt = Z.transpose(0, 2, 1)
    ridge = penalty * np.eye(Z.shape[2])

    def predict(u: FloatArray) -> FloatArray:
        return np.asarray(base + np.einsum("bnd,bd->bn", Z, u))

    def objective(u: FloatArray, eta: FloatArray) -> FloatArray:
        return np.asarray((loss.value(eta, y) * real).sum(1) + penalty / 2 * (u * u).sum(1))

    u, eta = start, predict(start)
    value = objective(u, eta)
    done = np.zeros(len(u), dtype=bool)
    for _ in range(NEWTON_STEPS):
        gradient = np.einsum("bnd,bn->bd", Z, loss.slope(eta, y) * real) + penalty * u
        H = Zt @ (Z * (loss.curvature(eta, y) * real)[:, :, None]) + ridge
        step = np.linalg.solve(H, gradient[:, :, None])[:, :, 0]
        size = np.ones(len(u))
        for _ in range(30):
            trial = u - size[:, None] * step
            trial_eta = predict(trial)
            trial_value = objective(trial, trial_eta)
            worse = trial_value > value + 1e-12 * np.abs(value)
            if not worse.any():
                break
            size[worse] /= 2
        u = np.where(done[:, None], u, trial)
        eta, value = np.where(done[:, None], eta, trial_eta), np.where(done, value, trial_value)
        done |= np.abs(step).max(axis=1) <= NEWTON_TOLERANCE * (1 + np.abs(u).max(axis=1))
        if done.all():
            break
    H = Zt @ (Z * (loss.curvature(eta, y) * real)[:, :, None]) + ridge
    return u, eta, H


def shared_mean(
    problems: Problems, penalty: float, *, loss: Loss | None = None, ridge: float = 1e-6
) -> FloatArray:
    r"""The μ (d,) of the mean-regularised optimum, S2 Eq. (2), exactly.

    .. math:: \min_{μ, W} Σ_t [Σ_i ℓ(x_iᵀw_t; y_i) + (λ/2)‖w_t − μ‖²] + (r/2)‖μ‖²

    At the optimum μ is the mean of the w_t (up to r, which only picks one when several fit). For
    the squared loss, eliminating W leaves generalised least squares:
    Σ_t λ(G_t+λ)^{-1}G_t μ = Σ_t λ(G_t+λ)^{-1}X_tᵀy_t. Other losses: the same on working responses,
    which is Newton's method on the joint problem.
    """
    loss = loss or Squared()
    d = problems.X.shape[1]
    mu, W = np.zeros(d), np.zeros((problems.n_tasks, d))
    index = np.repeat(np.arange(problems.n_tasks), problems.sizes)
    for _ in range(1 if isinstance(loss, Squared) else NEWTON_STEPS):
        eta = np.einsum("nd,nd->n", problems.X, W[index])
        weights = np.maximum(loss.curvature(eta, problems.y), 1e-8)
        working = eta - loss.slope(eta, problems.y) / weights
        previous = mu
        mu, W = _least_squares_mean(problems, working, weights, penalty, ridge)
        if np.linalg.norm(mu - previous) <= 1e-10 * (1 + np.linalg.norm(mu)):
            break
    return mu


def _least_squares_mean(
    problems: Problems, working: FloatArray, weights: FloatArray, penalty: float, ridge: float
) -> tuple[FloatArray, FloatArray]:
    m, d = problems.n_tasks, problems.X.shape[1]
    to_mean, to_task = np.empty((m, d, d)), np.empty((m, d))  # (G+λ)^{-1}G and (G+λ)^{-1}Xᵀz

    def work(block: _Block) -> None:
        scale = np.sqrt(weights[block.rows]) * block.real
        X = problems.X[block.rows] * scale[:, :, None]
        z = working[block.rows] * scale
        G = X.transpose(0, 2, 1) @ X
        right = np.concatenate([G, np.einsum("bnd,bn->bd", X, z)[:, :, None]], axis=2)
        solved = np.linalg.solve(G + penalty * np.eye(d), right)
        to_mean[block.tasks], to_task[block.tasks] = solved[:, :, :d], solved[:, :, d]

    _each_block(problems, work)
    left = penalty * to_mean.sum(0) + ridge * np.eye(d)
    mu = np.linalg.solve(left, penalty * to_task.sum(0))
    return mu, mu + to_task - to_mean @ mu
