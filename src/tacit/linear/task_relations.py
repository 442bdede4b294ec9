r"""S2's objective (1): tasks that are held to each other by any fixed Ω.

.. math:: \min_W Σ_k Σ_i l_k(x_i, w_k) + \frac{λ}{2} tr(W Ω Wᵀ)

Ω ⪰ 0 is (m, m): the paper's (I − 11ᵀ/m)² holds all to their mean, the Laplacian of a graph of tasks
holds neighbours to each other, Σ_{j~k} ½‖w_j − w_k‖².

**The mixing.** With s = λ_max(Ω) the penalty lies below (λs/2)‖W − B W^t‖² + const., B = I − Ω/s,
and touches it at W^t: the difference is (λ/2) tr((W − W^t)(sI − Ω)(W − W^t)ᵀ) ≥ 0. So a round in
which every task minimises its loss + (λs/2)‖w_k − c_k‖², c_k = Σ_j B_kj w_j, never raises the
objective, and rests only at its optimum. For the paper's Ω, s = 1 and B = 11ᵀ/m: Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse.linalg import LinearOperator, cg

from tacit.arrays import FloatArray, IntArray
from tacit.errors import InvalidInput
from tacit.linear.losses import Loss
from tacit.linear.problems import Problems
from tacit.linear.row_algebra import each_times, row_sums
from tacit.linear.smooth import quadratic

DIGITS = 12  # rows of B that agree to so many are one broadcast
NEWTON_STEPS = 50
TOLERANCE = 1e-12


@dataclass(frozen=True, eq=False)
class Omega:
    """A fixed relation of tasks: symmetric, without negative eigenvalues.

    >>> Omega.mean(4).scale, Omega.laplacian([[0, 1], [1, 0]]).matrix.tolist()
    (1.0, [[1.0, -1.0], [-1.0, 1.0]])
    """

    matrix: FloatArray  # (m, m)

    def __post_init__(self) -> None:
        given = np.asarray(self.matrix, dtype=np.float64)
        if given.ndim != 2 or given.shape[0] != given.shape[1] or not np.isfinite(given).all():
            raise InvalidInput(f"Ω must be a square matrix of numbers, got shape {given.shape}")
        if np.abs(given - given.T).max(initial=0.0) > 1e-9 * np.abs(given).max(initial=0.0):
            raise InvalidInput("Ω must be symmetric")
        least = float(np.linalg.eigvalsh(given)[0])
        object.__setattr__(self, "matrix", given)
        if least < -1e-9 * self.scale:
            raise InvalidInput(f"Ω must have no negative eigenvalue, the least is {least:g}")

    @classmethod
    def mean(cls, n_tasks: int) -> Omega:
        """(I − 11ᵀ/m)²: objective (2)."""
        return cls(np.eye(n_tasks) - 1 / n_tasks)

    @classmethod
    def laplacian(cls, adjacency: ArrayLike) -> Omega:
        """D − A of a graph whose edges (m, m) have weights that are not negative."""
        A = np.asarray(adjacency, dtype=np.float64)
        if A.ndim != 2 or (A < 0).any():
            raise InvalidInput("the weights of a graph's edges are a matrix without negative ones")
        return cls(np.diag(A.sum(axis=1)) - A)

    @cached_property
    def scale(self) -> float:
        """s = λ_max(Ω); 1 where nothing is related."""
        largest = float(round(np.linalg.eigvalsh(self.matrix)[-1], DIGITS))
        return largest if largest > 0 else 1.0

    @cached_property
    def mixing(self) -> FloatArray:
        """B = I − Ω/s (m, m)."""
        return np.eye(len(self.matrix)) - self.matrix / self.scale

    @cached_property
    def broadcasts(self) -> tuple[FloatArray, IntArray]:
        """The different rows of B (R, m), and which of them each task listens to (m,)."""
        rows, listens = np.unique(self.mixing.round(DIGITS), axis=0, return_inverse=True)
        return rows, listens.reshape(-1).astype(np.int64)

    def penalty(self, W: FloatArray) -> float:
        """½ tr(WΩWᵀ) of models in rows (m, D)."""
        return float((W * (self.matrix @ W)).sum() / 2)


def related_by(problems: Problems, loss: Loss, omega: Omega, penalty: float) -> FloatArray:
    """(m, D): the optimum of objective (1), all columns held; Newton's method, each step by CG."""
    if len(omega.matrix) != problems.n_tasks:
        raise InvalidInput(f"Ω relates {len(omega.matrix)} tasks, the data have {problems.n_tasks}")
    W = np.zeros((problems.n_tasks, problems.X.shape[1]))
    value = _value(problems, loss, omega, penalty, W)
    for _ in range(NEWTON_STEPS):
        step = _newton_step(problems, loss, omega, penalty, W)
        size = 1.0
        while (new := _value(problems, loss, omega, penalty, W - size * step)) > value and size > 0:
            size /= 2
        W, value = W - size * step, new
        if np.abs(size * step).max(initial=0.0) <= 1e-10 * (1 + np.abs(W).max(initial=0.0)):
            break
    return W


def _predicted(problems: Problems, W: FloatArray) -> FloatArray:
    return row_sums(problems.X * W[problems.task])


def _value(problems: Problems, loss: Loss, omega: Omega, penalty: float, W: FloatArray) -> float:
    lost = float(loss.value(_predicted(problems, W), problems.y).sum())
    return lost + penalty * omega.penalty(W)


def _newton_step(
    problems: Problems, loss: Loss, omega: Omega, penalty: float, W: FloatArray
) -> FloatArray:
    """(m, D): (H + λΩ)^{−1} of the gradient, H the tasks' own Hessians."""
    eta = _predicted(problems, W)
    slope = problems.sum_rows(problems.X * loss.slope(eta, problems.y)[:, None])
    slope += penalty * omega.matrix @ W
    H = quadratic(problems, loss.curvature(eta, problems.y)).G
    own = penalty * np.diag(omega.matrix)[:, None, None] * np.eye(W.shape[1])
    inverse = np.asarray(np.linalg.pinv(H + own), dtype=np.float64)

    def times(flat: FloatArray) -> FloatArray:
        V = flat.reshape(W.shape)
        return (each_times(H, V) + penalty * omega.matrix @ V).ravel()

    def nearly(flat: FloatArray) -> FloatArray:
        return each_times(inverse, flat.reshape(W.shape)).ravel()

    operators = (LinearOperator((W.size, W.size), matvec=each) for each in (times, nearly))
    A, M = operators
    return np.asarray(cg(A, slope.ravel(), rtol=TOLERANCE, M=M)[0].reshape(W.shape))
