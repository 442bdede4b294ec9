r"""Alternating directions (ADMM; Boyd et al. 2011) for squared losses: steps that know curvature.

.. math:: W ← \arg\min f(W) + \frac{ρ}{2}‖W − Z + U‖²,   Z ← \mathrm{prox}_{λΩ/ρ}(W + U),
    U ← U + W − Z

The first step is solved exactly for all tasks, by (G_t + ρI)⁻¹ of their Gram matrices, so that
tasks with few rows, or with rows that are nearly alike, do not slow it down as they do a gradient
method. An inverse takes a seventh of what eigenvectors take, and ρ seldom changes. After the second
step ρU is a subgradient of λΩ at Z; so ‖∇f(Z) + ρU‖ says how far Z is from the optimum, and ends
the iteration. ρ is balanced so that both constraints, W = Z and ∇f + ρU = 0, are met at about the
same pace, each relative to its size (Wohlberg 2017), and steps are mixed (``_Mixed``): on eighteen
generated problems, with two penalties at three levels each, that took a quarter to a third less
time than plain steps from a ρ of twice the size. The constants below were chosen there.
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
EVEN = 0.4  # the ratio of their paces at which fewest steps were needed
MEMORY = 5  # steps that are mixed
LONGER = 2.0  # how much longer a mixed step may be
ALIKE = 1e-10  # of their products: steps in one direction are not told apart
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
        self.weight = 0.5 * float(np.median(found[found > 0])) if (found > 0).any() else 1.0

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
    """Z with ‖∇f(Z) + ρU‖ ≤ stop, from ρ = weight.

    One variable, V = Z + U, has both. With W next to Z − U that is ‖(G + ρI)(Z − W)‖, at least
    ρ‖Z − W‖: so the gradient is asked for only where that is small enough.
    """
    U = -gradient(start) / weight
    V = start + U - prox(U, 1 / weight)  # of all subgradients at zero the nearest: Moreau
    before, ahead, stretch = start, _Mixed(), 1.0
    for step in range(1, most + 1):
        Z = prox(V, 1 / weight)
        U = V - Z
        move = nearest(Z - U, weight) - Z
        apart = float(np.linalg.norm(move))
        if weight * apart * stretch <= stop:
            left = float(np.linalg.norm(gradient(Z) + weight * U))
            if left <= stop or apart == 0:  # nothing moves any more: the rest is rounding
                break
            stretch = left / (weight * apart)
        V = ahead.after(V, OVER * move) if step <= STEADY else V + OVER * move
        if step % LOOK == 0 and step <= STEADY:
            factor = _balanced(apart, float(np.linalg.norm(Z - before)), Z, U)
            if factor != 1:
                weight, V, ahead, stretch = weight * factor, Z + U / factor, _Mixed(), 1.0
        before = Z
    return Z


class _Mixed:
    """Anderson's mixing of the last steps (Fu, Zhang and Boyd 2020): where they would have led
    together, had they been one linear map. A move much longer than the shortest so far is followed
    by plain ones, which never become longer."""

    def __init__(self) -> None:
        self._last: tuple[FloatArray, FloatArray] | None = None
        self._forget()
        self._shortest = np.inf

    def _forget(self) -> None:
        self._changes: list[tuple[FloatArray, FloatArray]] = []  # of the move, and of where it ends
        self._products = np.zeros((0, 0))  # of the moves' changes with each other

    def after(self, V: FloatArray, move: FloatArray) -> FloatArray:
        """From where to step next; the plain step ends at V + move."""
        end, length = V + move, float(np.linalg.norm(move))
        if self._last is not None:
            self._learn(move - self._last[0], end - self._last[1])
        self._last, self._shortest = (move, end), min(self._shortest, length)
        if length > LONGER * self._shortest or not self._products.any():
            self._forget()
            return end
        alike = ALIKE * np.trace(self._products) * np.eye(len(self._products))
        along = [np.vdot(change, move) for change, _ in self._changes]
        shares = np.linalg.solve(self._products + alike, along)
        mixed = end.copy()
        for share, (_, change) in zip(shares, self._changes, strict=True):
            mixed -= share * change
        return mixed

    def _learn(self, move: FloatArray, end: FloatArray) -> None:
        self._changes = [*self._changes, (move, end)][-MEMORY:]
        count = len(self._changes)
        products = np.empty((count, count))
        products[:-1, :-1] = self._products[1 - count :, 1 - count :] if count > 1 else 0
        products[-1] = products[:, -1] = [np.vdot(move, change) for change, _ in self._changes]
        self._products = products


def _balanced(apart: float, moved: float, Z: FloatArray, U: FloatArray) -> float:
    """By what to multiply ρ: more where W and Z differ more, relatively, than Z moves."""
    apart /= max(float(np.linalg.norm(Z)), 1e-300)
    moved /= max(float(np.linalg.norm(U)), 1e-300)
    ratio = max(apart, 1e-300) / max(moved, 1e-300) / EVEN
    if 1 / APART <= ratio <= APART:
        return 1.0
    return float(np.clip(np.sqrt(ratio), 1 / FARTHEST, FARTHEST))
