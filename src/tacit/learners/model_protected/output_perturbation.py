"""Noise on whole models, as S1 §5.1 ran its two baselines, DP-MTRL and DP-AGGR: not private.

Both protect an example: a model that minimises (1/n) Σ_j ℓ_j(w) + (λ/2)‖w‖² moves by at most
s = 2L/(nλ) when one of n examples changes (Chaudhuri, Monteleoni, Sarwate 2011), and noise of
density ∝ exp(−ε‖b‖/s) hides that. S1 makes tasks of examples by group privacy (Proposition 3).

What is wrong with it: L is measured on the data, at the fitted model, and so is n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.arrays import FloatArray
from tacit.errors import InvalidInput
from tacit.linear.batched import solve_path
from tacit.linear.losses import Loss
from tacit.linear.problems import Problems
from tacit.linear.row_algebra import or_zero
from tacit.linear.single_task_fits import INTERCEPT_VARIANCE
from tacit.privacy.accounting import Approximate
from tacit.privacy.budget import Budget, Neighbours
from tacit.privacy.float_laws import knorm
from tacit.privacy.mechanisms.noisy_statistic import parameters
from tacit.privacy.noise import Rng, system_generator

MEASURED = (
    "as S1 ran it: Lipschitz constants are measured on the data at the fitted models, and the "
    "number of rows of each task divides its noise; ε is claimed, not proven"
)


def example_budget(budget: Budget, max_rows: int) -> Budget:
    """What every single example may spend so that a whole task spends ``budget``: S1 Proposition 3.

    (ε/n, δ/(n e^ε)) for examples is (ε, δ) for n of them.

    >>> example_budget(Budget(1.0, 1e-5), 100).epsilon
    0.01
    >>> example_budget(Budget(1000.0, 1e-5), 100).delta
    0.0
    """
    if max_rows < 1:
        raise InvalidInput(f"max_rows must be at least 1, got {max_rows}")
    delta = budget.delta * math.exp(-budget.epsilon) / max_rows
    return Budget(budget.epsilon / max_rows, delta, neighbours=budget.neighbours)


@dataclass(frozen=True)
class OutputPerturbation:
    """Models (m, d) + noise of density ∝ exp(−ε‖b‖/s_i), or their average + noise of the largest s.

    A contribution is a model with its s_i behind it. ``epsilon`` is an example's; the event is what
    the paper claims for a task.

    >>> noisy = OutputPerturbation(0.5, (1.0, 1e-5))
    >>> noisy.release(np.array([[3.0, 4.0, 0.0]]), np.random.default_rng(0))
    array([[3., 4.]])
    """

    epsilon: float
    claim: tuple[float, float]  # ε and δ of this release, for a whole task
    averaged: bool = False

    def event(self, neighbours: Neighbours) -> Approximate:
        """The claim, for either relation. It is no proof."""
        return Approximate(*self.claim)

    def release(self, contributions: Any, rng: Rng, shares: FloatArray | None = None) -> FloatArray:
        """Whoever has a smaller budget is not noised more: S1 knows one budget for all."""
        models, sensitivities = contributions[:, :-1], contributions[:, -1]
        rng = rng or system_generator()
        if self.averaged:
            noise = knorm(models.shape[1], rng) * sensitivities.max(initial=0.0)
            return np.asarray(models.mean(axis=0) + noise / self.epsilon)
        return np.asarray(models + knorm(models.shape, rng) * sensitivities[:, None] / self.epsilon)

    def secure(self, rng: Rng) -> bool:
        """Never."""
        return False

    def to_dict(self) -> dict[str, object]:
        """For the record."""
        return parameters(self)


def with_sensitivities(
    problems: Problems, loss: Loss, models: FloatArray, penalty: float
) -> FloatArray:
    """(m, d + 1): models (m, d) and s_i = 2L_i/(n_i λ), L_i = max_j |ℓ'(x_jᵀw_i; y_j)|."""
    predicted = np.empty(len(problems.y))
    for i, (first, last) in enumerate(zip(problems.offsets, problems.offsets[1:], strict=False)):
        predicted[first:last] = problems.X[first:last, :-1] @ models[i]
    steepness = np.zeros(problems.n_tasks)
    np.maximum.at(steepness, problems.task, np.abs(loss.slope(predicted, problems.y)))
    sensitivities = 2 * steepness / (np.maximum(problems.sizes, 1) * penalty)
    return or_zero(np.column_stack([models, sensitivities]), problems.speak(loss))


def mean_ridge(problems: Problems, loss: Loss, penalty: float) -> FloatArray:
    """(m, d): each task's argmin of (1/n) Σ_j ℓ_j(w) + (λ/2)‖w‖², its intercept free."""
    variances = np.append(np.ones(problems.X.shape[1] - 1), INTERCEPT_VARIANCE)
    models = np.zeros((problems.n_tasks, problems.X.shape[1]))
    for rows in np.unique(problems.sizes):
        chosen = np.flatnonzero(problems.sizes == rows)
        path = solve_path(
            problems.select(chosen), np.array([rows * penalty]), loss=loss, covariance=variances
        )
        models[chosen] = path.coef[:, 0]
    return models[:, :-1]
