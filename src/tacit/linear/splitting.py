r"""Alternating directions (ADMM; Boyd et al. 2011) for squared losses: steps that know curvature.

.. math:: W ← \arg\min f(W) + \frac{ρ}{2}‖W − Z + U‖²,   Z ← \mathrm{prox}_{λΩ/ρ}(W + U),
    U ← U + W − Z

The first step is solved exactly for all tasks, in the eigenbases of their Gram matrices and for
whatever ρ, so tasks with few rows, or with rows that are nearly alike, do not slow it down as they
do a gradient method. After the second ρU is a subgradient of λΩ at Z; so ‖∇f(Z) + ρU‖ says how far
Z is from the optimum, and ends the iteration. ρ is balanced so that both constraints, W = Z and
∇f + ρU = 0, are met at the same pace, each relative to its size (Wohlberg 2017).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tacit.arrays import FloatArray
from tacit.linear.row_algebra import each_times, times_each

OVER = 1.6  # relaxation: beyond W, away from the last Z
LOOK = 5  # steps from one look at the residuals to the next
APART = 3.0  # by how much their paces may differ
STEADY = 2_000  # steps after which ρ stays
RANK = 1e-13  # directions with less of a task's largest eigenvalue do not exist


@dataclass(frozen=True)
class Eigenbases:
    """Σ_t ½ w_tᵀG_t w_t − b_tᵀw_t with G_t = V_t diag(values) V_tᵀ."""

    V: FloatArray  # (m, D, r), orthonormal or zero columns
    values: FloatArray  # (m, r)
    b: FloatArray  # (m, D)

    def gradient(self, W: FloatArray) -> FloatArray:
        """(m, D)."""
        return each_times(self.V, self.values * times_each(W, self.V)) - self.b

    def nearest(self, point: FloatArray, weight: float) -> FloatArray:
        """argmin f(W) + ½ weight ‖W − point‖², (m, D)."""
        right = self.b + weight * point
        shrunk = weight / (self.values + weight) - 1
        return (right + each_times(self.V, shrunk * times_each(right, self.V))) / weight

    @property
    def typical(self) -> float:
        """A curvature to start from: the middle one of all that are not zero."""
        found = self.values[self.values > 0]
        return float(np.median(found)) if found.size else 1.0


def eigenbases(G: FloatArray, b: FloatArray) -> Eigenbases:
    """Of Gram matrices (m, D, D)."""
    values, V = np.linalg.eigh(G)
    return Eigenbases(V, _positive(values), b)


def eigenbases_of_rows(X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """V (m, D, r) and values (m, r) of XᵀX for rows X (m, n, D), r = min(n, D)."""
    if X.shape[1] >= X.shape[2]:
        values, V = np.linalg.eigh(X.transpose(0, 2, 1) @ X)
        return V, _positive(values)
    values, U = np.linalg.eigh(X @ X.transpose(0, 2, 1))
    values = _positive(values)
    scale = np.divide(1.0, np.sqrt(values), out=np.zeros_like(values), where=values > 0)
    return X.transpose(0, 2, 1) @ (U * scale[:, None, :]), values


def _positive(values: FloatArray) -> FloatArray:
    floor = RANK * values.max(axis=1, keepdims=True, initial=0.0)
    return np.where(values > floor, values, 0.0)


def alternating(
    nearest: Callable[[FloatArray, float], FloatArray],
    gradient: Callable[[FloatArray], FloatArray],
    prox: Callable[[FloatArray, float], FloatArray],
    start: FloatArray,
    *,
    weight: float,
    stop: float,
    most: int,
) -> FloatArray:
    """Z after ‖∇f(Z) + ρU‖ ≤ stop, from ρ = weight."""
    Z, U = start, -gradient(start) / weight
    for step in range(1, most + 1):
        W = nearest(Z - U, weight)
        ahead = OVER * W + (1 - OVER) * Z
        old, Z = Z, prox(ahead + U, 1 / weight)
        U = U + ahead - Z
        if step % LOOK:
            continue
        if float(np.linalg.norm(gradient(Z) + weight * U)) <= stop:
            break
        if step <= STEADY:
            factor = _balanced(W, Z, old, U)
            weight, U = weight * factor, U / factor
    return Z


def _balanced(W: FloatArray, Z: FloatArray, old: FloatArray, U: FloatArray) -> float:
    """By what to multiply ρ: more where W and Z differ more, relatively, than Z moves."""
    apart = float(np.linalg.norm(W - Z)) / max(float(np.linalg.norm(W)), 1e-300)
    moves = float(np.linalg.norm(Z - old)) / max(float(np.linalg.norm(U)), 1e-300)
    if apart > APART * moves:
        return 2.0
    return 0.5 if moves > APART * apart else 1.0
