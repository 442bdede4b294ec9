"""S4 in formulas: the whitened data of Section 4.1, Proposition 4, and the losses of Fig. 3.

Everything is about h, the whitened and turned data: Cov(h) = I, and the task's loss is
Σ λ_i (ĥ_i − h_i)².
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.arrays import FloatArray

RELATIVE_RANK = 1e-10
"""Directions whose variance (or whose λ) is below this share of the largest one do not exist."""


@dataclass(frozen=True, eq=False)
class Spectrum:
    """x − μ = ``colour`` h and h = ``whiten`` (x − μ), k ≤ n the rank of the covariance."""

    mean: FloatArray  # (n,), μ
    whiten: FloatArray  # (k, n), QᵀL⁻¹
    colour: FloatArray  # (n, k), LQ
    eigenvalues: FloatArray  # (k,), λ, largest first

    @property
    def relevant(self) -> int:
        """How many λ are not zero."""
        largest = float(self.eigenvalues.max(initial=0.0))
        return int((self.eigenvalues > RELATIVE_RANK * largest).sum())


def spectrum(mean: FloatArray, covariance: FloatArray, K: FloatArray) -> Spectrum:
    """Σ = LLᵀ, P = KL, PᵀP = QΛQᵀ (S4 Section 4.1).

    L comes from an eigendecomposition instead of Cholesky's: a singular Σ (constant or repeated
    columns, fewer rows than columns) then only has fewer directions. The loss depends on LLᵀ only.

    >>> found = spectrum(np.zeros(2), np.diag([4.0, 0.0]), np.eye(2))
    >>> found.eigenvalues, found.whiten.shape
    (array([4.]), (1, 2))
    """
    units = np.sqrt(np.diag(covariance))  # the rank must not depend on the units of columns
    units = np.where(units > 0, units, 1.0)
    variances, V = np.linalg.eigh(covariance / np.outer(units, units))
    kept = variances > RELATIVE_RANK * float(variances.max(initial=0.0))
    L = units[:, None] * V[:, kept] * np.sqrt(variances[kept])
    inverse = (V[:, kept] / np.sqrt(variances[kept])).T / units
    P = K @ L
    eigenvalues, Q = np.linalg.eigh(P.T @ P)
    order = np.argsort(eigenvalues)[::-1]
    Q = Q[:, order]
    return Spectrum(
        mean,
        Q.T @ inverse,
        L @ Q,
        np.maximum(eigenvalues[order], 0.0),
    )


def water_filling(eigenvalues: FloatArray, level: float) -> FloatArray:
    """σ_i², i ≤ Z', with Σσ_i² = M = 1, Eq. (11) and (12); ``level`` is 8r²/ε².

    σ_i² = √λ_i/Σ√λ · (1 + Z' level) − level, Z' the largest with σ_Z'² > 0. It minimises Eq. (9)
    for every noise that is proportional to M: level is σ_w²/M, whatever the mechanism.

    >>> water_filling(np.array([4.0, 1.0, 1.0]), 0.125)
    array([0.5625 , 0.21875, 0.21875])
    >>> water_filling(np.array([4.0, 1.0, 1.0]), 10.0)
    array([1.])
    """
    roots = np.sqrt(eigenvalues[eigenvalues > 0])
    for size in range(len(roots), 0, -1):
        squares = roots[:size] / roots[:size].sum() * (1 + size * level) - level
        if squares[-1] > 0:
            return np.asarray(squares)
    return np.zeros(0)


# --- what is lost where the data fill a ball (Assumption 1), with Laplace noise ------------------


def task_aware_loss(eigenvalues: FloatArray, radius: float, epsilon: float) -> float:
    """L(r; λ, ε) = level/(1 + Z' level) (Σ_{i ≤ Z'} √λ_i)² + Σ_{i > Z'} λ_i, Eq. (13).

    >>> round(task_aware_loss(np.array([4.0, 1.0]), radius=1.0, epsilon=8.0), 3)
    0.9
    """
    level = 8 * radius**2 / epsilon**2
    size = len(water_filling(eigenvalues, level))
    rest = float(eigenvalues[size:].sum())
    return level / (1 + size * level) * float(np.sqrt(eigenvalues[:size]).sum()) ** 2 + rest


def privacy_agnostic_loss(
    eigenvalues: FloatArray, size: int, radius: float, epsilon: float
) -> float:
    """Z·level/(1 + Z·level) Σ_{i ≤ Z} λ_i + Σ_{i > Z} λ_i: a fixed Z, equal σ_i, Eq. (59)."""
    noise = size * 8 * radius**2 / epsilon**2
    kept, rest = float(eigenvalues[:size].sum()), float(eigenvalues[size:].sum())
    return noise / (1 + noise) * kept + rest


def task_agnostic_loss(eigenvalues: FloatArray, radius: float, epsilon: float) -> float:
    """n·level/(1 + n·level) Σλ_i: all n coordinates, where L = I, Eq. (58)."""
    return privacy_agnostic_loss(eigenvalues, len(eigenvalues), radius, epsilon)
