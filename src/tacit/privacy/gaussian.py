"""Gaussian DP, exactly: μ-GDP is what N(0, 1) and N(μ, 1) reveal.

Numbers are rounded so that privacy is never overstated: ε upwards, μ downwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import log_ndtr

from tacit.arrays import FloatArray
from tacit.errors import InvalidInput

ROUND_UP = 1 + 1e-9
"""Relative slack on every solved number, above the tolerance of the solver."""


def gaussian_delta(epsilon: float, mu: float) -> float:
    """δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2), exactly (Balle and Wang 2018, Theorem 8).

    >>> round(gaussian_delta(1.0, 1.0), 9)
    0.126936738
    """
    return float(gaussian_deltas(epsilon, mu))


def gaussian_deltas(epsilon: ArrayLike, mu: ArrayLike) -> FloatArray:
    """``gaussian_delta`` of arrays, broadcast; 0 where μ = 0, 1 where it is infinite."""
    at, mu = np.broadcast_arrays(np.asarray(epsilon, np.float64), np.asarray(mu, np.float64))
    usual = np.where((mu > 0) & np.isfinite(mu), mu, 1.0)
    first = log_ndtr(-at / usual + usual / 2)
    second = at + log_ndtr(-at / usual - usual / 2)
    delta = np.exp(first) * -np.expm1(np.minimum(second - first, 0.0))
    return np.asarray(np.where(mu > 0, np.where(np.isfinite(mu), delta, 1.0), 0.0))


def gaussian_epsilon(delta: float, mu: float) -> float:
    """The smallest ε with gaussian_delta(ε, μ) ≤ δ."""
    if mu == 0 or gaussian_delta(0.0, mu) <= delta:
        return 0.0
    if delta <= 0 or math.isinf(mu):
        return math.inf
    return smallest(lambda epsilon: gaussian_delta(epsilon, mu) <= delta)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest μ with gaussian_delta(ε, μ) ≤ δ.

    >>> round(1 / gaussian_mu(1.0, 1e-5), 6)
    3.730632
    """
    if delta <= 0:
        raise InvalidInput(
            "a Gaussian release cannot have delta = 0; pure mechanisms are LaplaceSum and, in "
            "floating point, KNormSum and TwoSidedWishart"
        )
    root = brentq(
        lambda log_mu: gaussian_delta(epsilon, math.exp(log_mu)) - delta, -40.0, 25.0, xtol=1e-13
    )
    return math.exp(float(root)) / ROUND_UP


def smallest(holds: Callable[[float], bool], *, tolerance: float = 1e-12) -> float:
    """The smallest x > 0 where a monotone condition holds, rounded up, infinity if it is above 10⁹;
    bisection on x.

    >>> round(smallest(lambda x: x * x >= 2), 9)
    1.414213562
    """
    low, high = 0.0, 1.0
    while not holds(high):
        low, high = high, 2 * high
        if high > 1e9:
            return math.inf
    while high - low > tolerance * max(1.0, high):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
