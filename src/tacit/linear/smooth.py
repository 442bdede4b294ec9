"""The smooth part of a multi-task objective: Σ_t c_t Σ_i ℓ(x_iᵀw_t; y_i), all tasks at once.

Models are rows here, (m, D). The squared loss needs its rows once when there are more rows than
columns: with G_t = c_t X_tᵀX_t and b_t = c_t X_tᵀy_t the gradient is G_t w_t − b_t. ``restricted``
is the same function of a smaller variable A, W = A Fᵀ, for a solver that works in a subspace.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit.arrays import FloatArray, IntArray
from tacit.linear.losses import Loss
from tacit.linear.problems import Block, Problems, blocks, each_block, each_matrix
from tacit.linear.row_algebra import each_times, row_norms, times_each
from tacit.linear.splitting import Curvatures, Curved, FewRows, Grams
from tacit.linear.threads import one_blas_thread

EXACT_BOUND = 64  # up to this width the largest eigenvalue is computed, above it is estimated
POWER_STEPS = 20
INTERCEPT_RIDGE = 0.01
"""On the last column of a logistic task: with one class only, no finite intercept is the best."""


@dataclass(frozen=True)
class Quadratic:
    """Σ_t ½ w_tᵀG_t w_t − b_tᵀw_t + constant."""

    G: FloatArray  # (m, D, D), or one for all (1, D, D)
    b: FloatArray  # (m, D)
    constant: float

    def value(self, W: FloatArray) -> float:
        """The sum over all tasks."""
        return float((W * (0.5 * each_times(self.G, W) - self.b)).sum()) + self.constant

    def gradient(self, W: FloatArray) -> FloatArray:
        """(m, D)."""
        return each_times(self.G, W) - self.b

    def restricted(self, F: FloatArray) -> Quadratic:
        """The same as a function of A (m, r), W = A Fᵀ with F (D, r)."""
        m, width, _ = self.G.shape
        half = (self.G.reshape(m * width, width) @ F).reshape(m, width, -1)
        return Quadratic(np.matmul(F.T, half), self.b @ F, self.constant)

    def bounds(self) -> FloatArray:
        """(m,): the largest curvature of each task."""
        return largest_eigenvalues(self.G)

    @cached_property
    def curvatures(self) -> Curvatures:
        """What a solver needs that steps along them."""
        return Curvatures([(slice(None), Grams(self.G))], self.b)


@dataclass(frozen=True)
class Rowwise:
    """The same for any loss, from the rows."""

    problems: Problems
    loss: Loss
    weights: FloatArray  # (N,), of the rows
    together: bool = False  # solved together: what a task gets may follow where its rows lie

    def value(self, W: FloatArray) -> float:
        """The sum over all tasks."""
        loss = sum(
            float((weights * self.loss.value(each_times(X, W[tasks]), y)).sum())
            for tasks, X, y, weights in self._padded
        )
        return float(loss + 0.5 * self._ridge() @ W[:, -1] ** 2)

    def gradient(self, W: FloatArray) -> FloatArray:
        """(m, D)."""
        total = np.empty(W.shape)
        for tasks, X, y, weights in self._padded:
            slope = weights * self.loss.slope(each_times(X, W[tasks]), y)
            total[tasks] = times_each(slope, X)
        total[:, -1] += self._ridge() * W[:, -1]
        return total

    def restricted(self, F: FloatArray) -> Smooth:
        """The same as a function of A (m, r), W = A Fᵀ with F (D, r)."""
        p = self.problems
        small = Problems(p.X @ F, p.y, p.offsets)
        if self.loss.quadratic:
            return quadratic(small, self.weights)
        return Rowwise(small, self.loss, self.weights, self.together)

    def bounds(self) -> FloatArray:
        """(m,): of each XᵀX, times the largest ℓ''."""
        return self.loss.most_curvature * largest_eigenvalues(_grams(self.problems, self.weights))

    @cached_property
    def curvatures(self) -> Curvatures | None:
        """The same where the loss is quadratic, from the rows: they may be fewer than columns."""
        if not self.loss.quadratic:
            return None
        parts = [
            (tasks, _curved(X if (weights == 1).all() else X * np.sqrt(weights)[:, :, None]))
            for tasks, X, _, weights in self._padded
        ]
        zero = np.zeros((self.problems.n_tasks, self.problems.X.shape[1]))
        return Curvatures(parts, -self.gradient(zero))

    def _ridge(self) -> FloatArray:
        """(m,): on the last column; tasks without rows have none."""
        if self.loss.quadratic:
            return np.zeros(self.problems.n_tasks)
        rows = np.maximum(self.problems.sizes, 1)
        return np.asarray(INTERCEPT_RIDGE * self.problems.sum_rows(self.weights) / rows)

    @cached_property
    def _padded(self) -> list[tuple[IntArray, FloatArray, FloatArray, FloatArray]]:
        """Of every block the tasks, their rows (b, n, D), targets and weights (b, n): zero where
        padded."""
        p, kept = self.problems, Block.seen if self.together else Block.padded
        return [
            (block.tasks, kept(block, p.X), kept(block, p.y), kept(block, self.weights))
            for block in blocks(p)
        ]


def _curved(X: FloatArray) -> Curved:
    """Of rows (b, n, D)."""
    if X.shape[1] < X.shape[2]:
        return FewRows(X)
    return Grams(X.transpose(0, 2, 1) @ X)


Smooth = Quadratic | Rowwise


def smooth_part(problems: Problems, loss: Loss) -> Smooth:
    """The smooth part for these rows, all c_t = 1, of a problem that tasks solve together: what is
    isolated must not ask whether others have the same rows.

    >>> from tacit.linear.losses import Squared
    >>> p = Problems(np.array([[1.0], [2.0]]), np.array([1.0, 1.0]), np.array([0, 2]))
    >>> smooth_part(p, Squared()).gradient(np.array([[1.0]]))  # 5·1 − 3
    array([[2.]])
    """
    rows = np.ones(len(problems.y))
    if not loss.quadratic or len(problems.y) < problems.X.shape[1] * problems.n_tasks:
        return Rowwise(problems, loss, rows, together=True)
    X = _common_rows(problems)
    if X is None:
        return quadratic(problems, rows)
    with one_blas_thread():
        b = problems.y.reshape(-1, len(X)) @ X
        return Quadratic((X.T @ X)[None], b, 0.5 * float(problems.y @ problems.y))


def _common_rows(problems: Problems) -> FloatArray | None:
    """(n, D): the rows of all tasks, if all have the same ones."""
    X, m, n = problems.X, problems.n_tasks, int(problems.sizes.max(initial=0))
    if m < 2 or problems.sizes.min() < n or not np.array_equal(X[:n], X[n : 2 * n]):
        return None
    return X[:n] if bool((X.reshape(m, n, -1) == X[:n]).all()) else None


def quadratic(problems: Problems, rows: FloatArray) -> Quadratic:
    """The squared loss by its Gram matrices; ``rows`` (N,) are the weights of the rows."""
    b = problems.sum_rows(problems.X * (rows * problems.y)[:, None])
    return Quadratic(_grams(problems, rows), b, 0.5 * float(rows @ problems.y**2))


def _grams(problems: Problems, rows: FloatArray) -> FloatArray:
    """(m, D, D): Σ_i c x xᵀ of each task."""
    width = problems.X.shape[1]
    G = np.empty((problems.n_tasks, width, width))

    def work(block: Block) -> None:
        X = block.padded(problems.X)
        G[block.tasks] = X.transpose(0, 2, 1) @ (X * block.padded(rows)[:, :, None])

    each_block(problems, work)
    return G


def largest_eigenvalues(G: FloatArray) -> FloatArray:
    """(m,): of each positive semi-definite matrix; by power iteration, 5% up, when it is wide."""
    if G.shape[1] <= EXACT_BOUND:
        if not G.size:
            return np.zeros(len(G))
        return np.maximum(each_matrix(np.linalg.eigvalsh, G)[:, -1], 0.0)
    v = np.einsum("mii->mi", G) + 1e-12
    for _ in range(POWER_STEPS):
        v = each_times(G, v / np.maximum(row_norms(v), 1e-300)[:, None])
    return np.asarray(1.05 * row_norms(v))
