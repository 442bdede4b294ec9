"""The smooth part of a multi-task objective: Σ_t c_t Σ_i ℓ(x_iᵀw_t; y_i), all tasks at once.

Models are rows here, (m, D). The squared loss needs its rows once when there are more rows than
columns: with G_t = c_t X_tᵀX_t and b_t = c_t X_tᵀy_t the gradient is G_t w_t − b_t. ``restricted``
is the same function of a smaller variable A, W = A Fᵀ, for a solver that works in a subspace.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tacit.linear.batched import Problems
from tacit.linear.losses import FloatArray, Loss, Squared

EXACT_BOUND = 64  # up to this width the largest eigenvalue is computed, above it is estimated
POWER_STEPS = 20
INTERCEPT_RIDGE = 0.01
"""On the last column of a logistic task: with one class only, no finite intercept is the best."""


@dataclass(frozen=True)
class Quadratic:
    """Σ_t ½ w_tᵀG_t w_t − b_tᵀw_t + constant."""

    G: FloatArray  # (m, D, D)
    b: FloatArray  # (m, D)
    constant: float

    def value(self, W: FloatArray) -> float:
        """The sum over all tasks."""
        return float((W * (0.5 * _times(self.G, W) - self.b)).sum()) + self.constant

    def gradient(self, W: FloatArray) -> FloatArray:
        """(m, D)."""
        return _times(self.G, W) - self.b

    def restricted(self, F: FloatArray) -> Quadratic:
        """The same as a function of A (m, r), W = A Fᵀ with F (D, r)."""
        m, width, _ = self.G.shape
        half = (self.G.reshape(m * width, width) @ F).reshape(m, width, -1)
        return Quadratic(np.matmul(F.T, half), self.b @ F, self.constant)

    def bounds(self) -> FloatArray:
        """(m,): the largest curvature of each task."""
        return largest_eigenvalues(self.G)


@dataclass(frozen=True)
class Rowwise:
    """The same for any loss, from the rows."""

    problems: Problems
    loss: Loss
    weights: FloatArray  # (N,), of the rows

    def value(self, W: FloatArray) -> float:
        """The sum over all tasks."""
        loss = self.weights @ self.loss.value(self._predicted(W), self.problems.y)
        return float(loss + 0.5 * self._ridge() @ W[:, -1] ** 2)

    def gradient(self, W: FloatArray) -> FloatArray:
        """(m, D)."""
        p = self.problems
        slope = self.weights * self.loss.slope(self._predicted(W), p.y)
        total = np.empty(W.shape)
        if _equal_sizes(p):
            X = p.X.reshape(p.n_tasks, -1, p.X.shape[1])
            total = np.asarray(np.matmul(slope.reshape(p.n_tasks, 1, -1), X)[:, 0])
        else:
            for t, (first, last) in enumerate(pairwise(p.offsets.tolist())):
                np.dot(slope[first:last], p.X[first:last], out=total[t])
        total[:, -1] += self._ridge() * W[:, -1]
        return total

    def restricted(self, F: FloatArray) -> Smooth:
        """The same as a function of A (m, r), W = A Fᵀ with F (D, r)."""
        p = self.problems
        small = Problems(p.X @ F, p.y, p.offsets)
        if isinstance(self.loss, Squared):
            return quadratic(small, self.weights)
        return Rowwise(small, self.loss, self.weights)

    def bounds(self) -> FloatArray:
        """(m,): of each XᵀX, times 1 (squared) or ¼ (logistic: ℓ'' ≤ ¼)."""
        most = 1.0 if isinstance(self.loss, Squared) else 0.25
        return most * largest_eigenvalues(_grams(self.problems, self.weights))

    def _ridge(self) -> FloatArray:
        """(m,): on the last column; tasks without rows have none."""
        if isinstance(self.loss, Squared):
            return np.zeros(self.problems.n_tasks)
        rows = np.maximum(self.problems.sizes, 1)
        return np.asarray(INTERCEPT_RIDGE * self.problems.sum_rows(self.weights) / rows)

    def _predicted(self, W: FloatArray) -> FloatArray:
        p = self.problems
        if _equal_sizes(p):
            X = p.X.reshape(p.n_tasks, -1, p.X.shape[1])
            return np.asarray(np.matmul(X, W[:, :, None]).reshape(-1))
        predicted = np.empty(len(p.y))
        for t, (first, last) in enumerate(pairwise(p.offsets.tolist())):
            np.dot(p.X[first:last], W[t], out=predicted[first:last])
        return predicted


Smooth = Quadratic | Rowwise


def smooth_part(problems: Problems, loss: Loss, weights: FloatArray | None = None) -> Smooth:
    """The smooth part for these rows; ``weights`` (m,) are the c_t, one each if None.

    >>> p = Problems(np.array([[1.0], [2.0]]), np.array([1.0, 1.0]), np.array([0, 2]))
    >>> smooth_part(p, Squared()).gradient(np.array([[1.0]]))  # 5·1 − 3
    array([[2.]])
    """
    c = np.ones(problems.n_tasks) if weights is None else weights
    rows = np.repeat(c, problems.sizes)
    if isinstance(loss, Squared) and len(problems.y) >= problems.X.shape[1] * problems.n_tasks:
        return quadratic(problems, rows)
    return Rowwise(problems, loss, rows)


def quadratic(problems: Problems, rows: FloatArray) -> Quadratic:
    """The squared loss by its Gram matrices; ``rows`` (N,) are the weights of the rows."""
    b = problems.sum_rows(problems.X * (rows * problems.y)[:, None])
    return Quadratic(_grams(problems, rows), b, 0.5 * float(rows @ problems.y**2))


def _equal_sizes(problems: Problems) -> bool:
    return bool(problems.sizes.min() == problems.sizes.max())


def _grams(problems: Problems, rows: FloatArray) -> FloatArray:
    """(m, D, D): Σ_i c x xᵀ of each task."""
    width = problems.X.shape[1]
    G = np.empty((problems.n_tasks, width, width))
    for t, (first, last) in enumerate(pairwise(problems.offsets.tolist())):
        X = problems.X[first:last]
        np.matmul(X.T * rows[first:last], X, out=G[t])
    return G


def largest_eigenvalues(G: FloatArray) -> FloatArray:
    """(m,): of each positive semi-definite matrix; by power iteration, 5% up, when it is wide."""
    if G.shape[1] <= EXACT_BOUND:
        return np.maximum(np.linalg.eigvalsh(G)[:, -1], 0.0) if G.size else np.zeros(len(G))
    v = np.einsum("mii->mi", G) + 1e-12
    for _ in range(POWER_STEPS):
        v = v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-300)
        v = _times(G, v)
    return np.asarray(1.05 * np.linalg.norm(v, axis=1))


def _times(G: FloatArray, W: FloatArray) -> FloatArray:
    return np.asarray(np.matmul(G, W[:, :, None])[:, :, 0])
