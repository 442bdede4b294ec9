"""How much noise a run needs: the inverse of ``composition``, rounded towards more noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from tacit.arrays import FloatArray
from tacit.privacy.bracket import beyond
from tacit.privacy.budget import Budget
from tacit.privacy.composition import (
    composed_epsilon,
    plain_epsilon,
    pure_epsilon,
    run_epsilon,
    variance,
)
from tacit.privacy.events import Event, EventCounts, Gaussian, Poisson, counted
from tacit.privacy.gaussian import gaussian_mu, smallest

_COARSER = (30.0, 4.0)  # than the grid of the answer; ε comes out larger by 1e-3, and by 3e-5
_SMALLEST = 0.05  # σ/C that is worth looking for: e^200 and more hide nothing


# --- noise for equal rounds ----------------------------------------------------------------------


@lru_cache(maxsize=256)
def poisson_noise_multiplier(rate: float, rounds: int, budget: Budget) -> float:
    """The smallest σ/C whose ``rounds`` Poisson-sampled sums stay within the budget."""
    return noise_multiplier(lambda z: Poisson(rate, z, budget.neighbours), rounds, budget)


def noise_multiplier(event: Callable[[float], Event], rounds: int, budget: Budget) -> float:
    """The smallest σ/C with which ``rounds`` events event(σ/C) stay within the budget.

    At most 1e-4 of it above, never below. Without sampling there is a formula. Elsewhere the limit
    of many rounds says where to begin, coarse grids, whose ε is never smaller, come close in cheap
    steps, and the fine one has the last word.
    """

    def counts(multiplier: float) -> EventCounts:
        return counted([event(multiplier)] * rounds)

    def on_grid(coarser: float) -> Callable[[float], float]:
        def value(multiplier: float) -> float:
            found = counts(multiplier)
            if beyond(found):
                return plain_epsilon(found, delta)
            return composed_epsilon(found, delta, coarser=coarser)

        return value

    def exact(multiplier: float) -> float:
        return run_epsilon(counts(multiplier), delta)

    limit, delta = budget.epsilon, budget.delta
    if delta == 0 or isinstance(event(1.0), Gaussian):  # infinite if δ = 0
        return smallest(lambda z: plain_epsilon(counts(z), delta) <= limit)
    guess = _as_one_gaussian(event, rounds, gaussian_mu(limit, delta))
    rough, near_exact = map(on_grid, _COARSER)
    near = least(rough, limit, guess, tolerance=1e-3, floor=_SMALLEST)
    slope = _steepness((near, rough(near)), (1.01 * near, rough(1.01 * near))) or 1.0
    ahead = (near_exact(near) / limit) ** (1 / slope) * (1 + 2.5e-5)
    guess = max(near * min(ahead, 4.0), _SMALLEST)
    return least(exact, limit, guess, tolerance=1e-4, floor=_SMALLEST, slope=slope)


def _as_one_gaussian(event: Callable[[float], Event], rounds: int, mu: float) -> float:
    """σ/C with which the losses of so many events vary as much as that of one μ-GDP release."""
    return max(
        smallest(lambda z: rounds * variance(event(z)) <= mu * mu, tolerance=1e-3), _SMALLEST
    )


def least(
    value: Callable[[float], float],
    limit: float,
    guess: float,
    *,
    tolerance: float,
    floor: float = 0.0,
    slope: float = 1.0,
) -> float:
    """The least x ≥ floor with value(x) ≤ limit, at most ``tolerance`` of it above, never below.

    ``value`` falls, almost like x^−slope: its logarithm is near a line in log x, so that a secant
    finds the root. It ends where the limit is met, and by half the tolerance, as the slope has it,
    or bracketed by all of it.

    >>> round(least(lambda x: 1 / (x * x), 4.0, 3.0, tolerance=1e-6), 5)
    0.5
    """
    low, high = 0.0, math.inf
    seen: tuple[float, float] | None = None
    while high > max(low * (1 + tolerance), floor):
        found = value(guess)
        slope = _steepness(seen, (guess, found)) or slope
        seen = (guess, found)
        fits = found <= limit
        low, high = (low, guess) if fits else (guess, high)
        if fits and found >= limit * (1 - slope * tolerance / 2):
            break
        ahead = guess * min(max((found / limit) ** (1 / slope), 0.25), 4.0)
        guess = ahead * (1 + tolerance / 4)
        if not low < guess < high:
            guess = math.sqrt(low * high)
        guess = max(guess, floor)
    return high


def _steepness(a: tuple[float, float] | None, b: tuple[float, float]) -> float | None:
    """−d log value / d log x between two points; None where that is no positive number."""
    if a is None or not 0 < min(a[1], b[1]) <= max(a[1], b[1]) < math.inf or a[0] == b[0]:
        return None
    slope = math.log(a[1] / b[1]) / math.log(b[0] / a[0])
    return slope if slope > 0.05 else None


# --- schedules of unequal rounds -----------------------------------------------------------------


def power_schedule(rounds: int, alpha: float) -> FloatArray:
    """a_t = t^α, t = 1..T (S1 §4.5, convex case)."""
    return np.asarray(np.arange(1, rounds + 1, dtype=np.float64) ** alpha)


def geometric_schedule(rounds: int, base: float) -> FloatArray:
    """a_t = Q^−t, t = 1..T (S1 §4.5, strongly convex case), 0 < Q < 1."""
    return np.asarray(base ** -np.arange(1, rounds + 1, dtype=np.float64))


def pure_schedule(weights: Sequence[float] | FloatArray, budget: Budget) -> FloatArray:
    """ε_t = a_t ε₀ with the largest ε₀ whose optimal composition at δ stays within ε.

    Basic composition when δ = 0. Weights are not negative, and not all zero.

    >>> pure_schedule([1.0, 1.0], Budget(1.0, 0.0))
    array([0.5, 0.5])
    """
    a = np.asarray(weights, dtype=np.float64)
    return np.asarray(a * _pure_base(tuple(a.tolist()), budget.epsilon, budget.delta))


@lru_cache(maxsize=256)
def _pure_base(weights: tuple[float, ...], left: float, delta: float) -> float:
    """The largest ε₀ with which (a_t ε₀, 0)-DP releases are (left, δ)-DP together."""
    basic = left / math.fsum(weights)
    if delta == 0 or len(weights) == 1 or left <= 0:
        return basic
    inverse = least(
        lambda x: pure_epsilon([a / x for a in weights], delta), left, 1 / basic, tolerance=1e-6
    )
    return max(basic, 1 / inverse)


def per_report_epsilon(reports: int, budget: Budget) -> float:
    """The ε of each of so many pure reports of one person, with which all are within the budget.

    Their optimal composition at δ; ε/k each when δ = 0.

    >>> per_report_epsilon(4, Budget(1.0, 0.0)), round(per_report_epsilon(50, Budget(1.0)), 4)
    (0.25, 0.0388)
    """
    return float(pure_schedule(np.ones(reports), budget)[0])
