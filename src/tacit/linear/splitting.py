r"""Alternating directions (ADMM; Boyd et al. 2011) for squared losses: steps that know curvature.

.. math:: W ← \arg\min f(W) + \frac{ρ}{2}‖W − Z + U‖²,   Z ← \mathrm{prox}_{λΩ/ρ}(W + U),
    U ← U + W − Z

The first step is solved exactly for all tasks, by (G_t + ρI)⁻¹ of their Gram matrices, so that
tasks with few rows, or with rows that are nearly alike, do not slow it down as they do a gradient
method. An inverse takes a seventh of what eigenvectors take, and ρ seldom changes. After the second
step ρU is a subgradient of λΩ at Z; so ‖∇f(Z) + ρU‖ says how far Z is from the optimum, and ends
the iteration. ρ is balanced so that both constraints, W = Z and ∇f + ρU = 0, are met at about the
same pace, each relative to its size (Wohlberg 2017).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tacit.arrays import FloatArray, IntArray
from tacit.linear.row_algebra import each_times, times_each

OVER = 1.6  # relaxation: beyond W, away from the last Z
LOOK = 5  # steps from one look at the residuals to the next
APART = 10.0  # by how much their paces may differ: another ρ costs as much as some steps
FARTHEST = 8.0  # that ρ is moved at once
STEADY = 2_000  # steps after which ρ stays


class Curved(Protocol):
    """Gram matrices G_t of some tasks."""

    def inverses(self, weight: float) -> FloatArray:
        """What ``nearest`` needs for this weight."""

    def nearest(self, right: FloatArray, weight: float, inverses: FloatArray) -> FloatArray:
        """(G_t + weight I)⁻¹ of each row of ``right``."""

    def times(self, W: FloatArray) -> FloatArray:
        """G_t w_t."""

    @property
    def typical(self) -> FloatArray:
        """(b,): the mean of each task's curvatures that are not zero."""


@dataclass(frozen=True)
class Grams:
    """As they are: G (b, D, D), or one for all (1, D, D)."""

    G: FloatArray

    def inverses(self, weight: float) -> FloatArray:
        return np.asarray(np.linalg.inv(self.G + weight * np.eye(self.G.shape[1])), np.float64)

    def nearest(self, right: FloatArray, weight: float, inverses: FloatArray) -> FloatArray:
        return each_times(inverses, right)

    def times(self, W: FloatArray) -> FloatArray:
        return each_times(self.G, W)

    @property
    def typical(self) -> FloatArray:
        return np.asarray(np.trace(self.G, axis1=1, axis2=2) / self.G.shape[1])


class FewRows:
    """XᵀX of rows X (b, n, D), fewer than columns: (XᵀX + ρI)⁻¹ = (I − Xᵀ(XXᵀ + ρI)⁻¹X)/ρ."""

    def __init__(self, X: FloatArray) -> None:
        self._X = X
        self._between = Grams(X @ X.transpose(0, 2, 1))  # (b, n, n)

    def inverses(self, weight: float) -> FloatArray:
        return self._between.inverses(weight)

    def nearest(self, right: FloatArray, weight: float, inverses: FloatArray) -> FloatArray:
        seen = each_times(inverses, each_times(self._X, right))
        return np.asarray((right - times_each(seen, self._X)) / weight)

    def times(self, W: FloatArray) -> FloatArray:
        return times_each(each_times(self._X, W), self._X)

    @property
    def typical(self) -> FloatArray:
        return self._between.typical


@dataclass
class Curvatures:
    """Σ_t ½ w_tᵀG_t w_t − b_tᵀw_t, and the inverses for the weight that was used last."""

    parts: Sequence[tuple[IntArray | slice, Curved]]  # which tasks, and theirs
    b: FloatArray  # (m, D)
    weight: float = 0.0
    _inverses: list[FloatArray] = field(default_factory=list)

    def __post_init__(self) -> None:
        """A weight to start from: of all tasks that have any curvature the middle one."""
        found = np.concatenate([np.zeros(0), *(part.typical for _, part in self.parts)])
        self.weight = float(np.median(found[found > 0])) if (found > 0).any() else 1.0

    def gradient(self, W: FloatArray) -> FloatArray:
        """(m, D)."""
        slope = -self.b
        for tasks, part in self.parts:
            slope[tasks] += part.times(W[tasks])
        return slope

    def nearest(self, point: FloatArray, weight: float) -> FloatArray:
        """argmin f(W) + ½ weight ‖W − point‖², (m, D)."""
        if weight != self.weight or not self._inverses:
            self.weight = weight
            self._inverses = [part.inverses(weight) for _, part in self.parts]
        right, found = self.b + weight * point, np.empty_like(self.b)
        for (tasks, part), inverses in zip(self.parts, self._inverses, strict=True):
            found[tasks] = part.nearest(right[tasks], weight, inverses)
        return found


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
    ratio = max(apart, 1e-300) / max(moves, 1e-300)
    if 1 / APART <= ratio <= APART:
        return 1.0
    return float(np.clip(np.sqrt(ratio), 1 / FARTHEST, FARTHEST))
