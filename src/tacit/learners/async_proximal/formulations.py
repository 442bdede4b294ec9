r"""The multi-task problems of S3 §3.1, and what a node and a reference solver need of them.

.. math:: \min_{P,Q} Σ_t f_t(p_t + q_t) + λ r(P) + τ Σ_t g(q_t)        (2)

with the mean loss of node t, f_t(w) = (1/n_t) Σ_i ℓ(x_iᵀw; y_i).

====================  ==========================  =======================  ========================
``penalty=``          P                           Q                        from
====================  ==========================  =======================  ========================
``dirty``             ℓ2,1: few features          ℓ1: single entries       Jalali et al. 2010,
``dirty-max``         ℓ1,∞, as they have it       ℓ1                       the dirty model
``trace``             trace norm: few directions  squared                  Ando and Zhang 2005,
                                                                           alternating structure
``robust-features``   ℓ2,1                        ℓ2 of a column: a task   Gong et al. 2012
``robust-tasks``      trace norm                  ℓ2 of a column           Chen et al. 2011
``group``             ℓ2,1                        squared
====================  ==========================  =======================  ========================

``trace`` is what S3 runs, where g = ½‖q‖² and so τ is twice ours. A large τ gives Eq. (1).

Penalties are values and proximal operators (linear/penalties.py); those of Q see each column by
itself, so every node applies its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from tacit.arrays import FloatArray
from tacit.errors import InvalidInput
from tacit.linear.batched import Problems
from tacit.linear.losses import Loss
from tacit.linear.penalties import (
    ColumnNorm,
    GroupNorm,
    L1Norm,
    Penalty,
    RowMaxNorm,
    SquaredNorm,
    TraceNorm,
)
from tacit.linear.proximal import accelerated

EXACT = 1e-10  # accuracy of q in Eq. (8), relative to the gradient at zero

Named = Literal["trace", "group", "dirty", "dirty-max", "robust-features", "robust-tasks"]

FORMULATIONS: dict[Named, tuple[Penalty, Penalty]] = {
    "trace": (TraceNorm(), SquaredNorm()),
    "group": (GroupNorm(), SquaredNorm()),
    "dirty": (GroupNorm(), L1Norm()),
    "dirty-max": (RowMaxNorm(), L1Norm()),
    "robust-features": (GroupNorm(), ColumnNorm()),
    "robust-tasks": (TraceNorm(), ColumnNorm()),
}
"""r of P and g of Q."""


@dataclass(frozen=True)
class Formulation:
    """λ r(P) + τ g(Q)."""

    shared: Penalty  # r
    shared_level: float  # λ
    own: Penalty  # g
    own_level: float  # τ

    def __post_init__(self) -> None:
        if not self.own.separable:
            raise InvalidInput(
                f"the penalty of Q must see each column by itself, got {type(self.own).__name__}"
            )
        if not (self.shared_level >= 0 and self.own_level >= 0):
            raise InvalidInput(f"levels must be ≥ 0, got {self.shared_level}, {self.own_level}")

    def own_prox(self, q: FloatArray, step: float) -> FloatArray:
        """(D,): prox of step·τ·g, at one node."""
        return self.own.prox(q[:, None], step * self.own_level)[:, 0]

    def own_moved(self, q: FloatArray, slope: FloatArray, step: float) -> FloatArray:
        """(D,): Eq. (6), where the loss has this slope; a proximal step where g has no gradient."""
        if self.own.is_ridge:
            return q - step * (slope + 2 * self.own_level * q)
        return self.own_prox(q - step * slope, step)

    def objective(self, tasks: Sequence[MeanLoss], P: FloatArray, Q: FloatArray) -> float:
        """Eq. (2) at P and Q, (D, T)."""
        losses = sum(task.value(w) for task, w in zip(tasks, (P + Q).T, strict=True))
        return (
            losses + self.shared_level * self.shared.value(P) + self.own_level * self.own.value(Q)
        )


# --- one node's loss -----------------------------------------------------------------------------


@dataclass(frozen=True)
class MeanLoss:
    """f_t(w) = (1/n) Σ_i ℓ(x_iᵀw; y_i).

    >>> from tacit.linear.losses import Squared
    >>> f = MeanLoss(np.array([[1.0], [2.0]]), np.array([1.0, 1.0]), Squared())
    >>> f.gradient(np.array([1.0])), f.curvature  # (5·1 − 3)/2 and 5/2
    (array([1.]), 2.5)
    """

    X: FloatArray  # (n, D)
    y: FloatArray
    loss: Loss

    def value(self, w: FloatArray) -> float:
        """At w (D,); 0 without rows."""
        return float(self.loss.value(self.X @ w, self.y).sum()) / max(len(self.y), 1)

    def gradient(self, w: FloatArray) -> FloatArray:
        """(D,)."""
        return np.asarray((self.loss.slope(self.X @ w, self.y) @ self.X) / max(len(self.y), 1))

    @cached_property
    def hessian(self) -> FloatArray:
        """(D, D): XᵀX/n times the largest ℓ″: exact for a squared loss, a bound for others."""
        return np.asarray(self.loss.most_curvature * (self.X.T @ self.X) / max(len(self.y), 1))

    @cached_property
    def curvature(self) -> float:
        """L: the largest eigenvalue of the Hessian, at most."""
        return float(np.linalg.eigvalsh(self.hessian)[-1])


def mean_losses(problems: Problems, loss: Loss) -> list[MeanLoss]:
    """One per task."""
    spans = zip(problems.offsets[:-1], problems.offsets[1:], strict=True)
    return [MeanLoss(problems.X[a:b], problems.y[a:b], loss) for a, b in spans]


@dataclass(frozen=True)
class OwnPart:
    """Eq. (8): q(p) = argmin_q f_t(p + q) + τ g(q) of one node."""

    task: MeanLoss
    formulation: Formulation

    def __post_init__(self) -> None:
        if self.formulation.own_level == 0:
            raise InvalidInput("an exact q needs own_level > 0: else it has no unique minimiser")

    def best(self, p: FloatArray, start: FloatArray) -> FloatArray:
        """(D,); ``start`` is where an iterative solver begins."""
        if self.formulation.own.is_ridge and self.task.loss.quadratic:
            return np.asarray(cho_solve(self._factor, -self.task.gradient(p), check_finite=False))
        if self.task.curvature == 0:
            return np.zeros_like(p)
        size = float(np.linalg.norm(self.task.gradient(p)))
        return accelerated(
            lambda q: self.task.gradient(p + q),
            self.formulation.own_prox,
            start,
            1 / self.task.curvature,
            stop=EXACT * max(size, 1e-300),
        )

    @cached_property
    def _factor(self) -> tuple[FloatArray, bool]:
        """Of H + 2τI: f(p + q) + τ‖q‖² is least where (H + 2τI) q = −∇f(p)."""
        ridge = 2 * self.formulation.own_level * np.eye(self.task.X.shape[1])
        factor, lower = cho_factor(self.task.hessian + ridge)
        return factor, bool(lower)


# --- everybody together --------------------------------------------------------------------------


def synchronous_optimum(
    tasks: Sequence[MeanLoss], formulation: Formulation, *, tolerance: float = 1e-11
) -> tuple[FloatArray, FloatArray]:
    """P and Q, (D, T), of Eq. (2), by accelerated proximal gradient with everybody in step."""
    width, step = tasks[0].X.shape[1], 1 / (2 * max(task.curvature for task in tasks))

    def gradient(Z: FloatArray) -> FloatArray:  # (T, 2D), p and q of each task
        W = Z[:, :width] + Z[:, width:]
        slope = np.stack([task.gradient(w) for task, w in zip(tasks, W, strict=True)])
        return np.hstack([slope, slope])

    def prox(Z: FloatArray, step: float) -> FloatArray:
        P = formulation.shared.prox(Z[:, :width].T, step * formulation.shared_level).T
        Q = [formulation.own_prox(q, step) for q in Z[:, width:]]
        return np.hstack([P, np.stack(Q)])

    start = np.zeros((len(tasks), 2 * width))
    stop = tolerance * max(float(np.linalg.norm(gradient(start))), 1e-300)
    Z = accelerated(gradient, prox, start, step, stop=stop, most=200_000)
    return Z[:, :width].T, Z[:, width:].T
