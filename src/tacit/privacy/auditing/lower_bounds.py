"""Lower bounds on ε and μ that are valid: formulas of counts, no simulation.

Let S be an event, p = P(S) under one neighbour and q = P(S) under the other. Every claim is a
statement about all such pairs:

* (ε, δ)-DP:  p ≤ e^ε q + δ,  so  ε ≥ ln((p − δ)/q);
* μ-GDP:      a test that rejects on S has errors q and 1 − p, which lie above the trade-off curve
  of N(0, 1) against N(μ, 1), so  μ ≥ Φ⁻¹(p) − Φ⁻¹(q).

We know p and q only from hits in independent trials. ``lower`` and ``upper`` are one-sided
Clopper–Pearson limits, each wrong with probability at most ``error/2``, so that p ≥ p_low and
q ≤ q_high hold together with probability at least 1 − error, for every number of trials. All bounds
below follow from these two inequalities, whichever of them is largest: no further correction.

The event must not depend on the trials that are counted: fixed in advance, or chosen on others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betaincinv, ndtri
from scipy.stats import binom

from tacit.errors import InvalidInput


@dataclass(frozen=True)
class Counts:
    """How often the event happened."""

    hits: int
    trials: int

    def __post_init__(self) -> None:
        if not 0 <= self.hits <= self.trials or self.trials < 1:
            raise InvalidInput(f"needs 0 <= hits <= trials, got {self.hits} of {self.trials}")


def check_confidence(confidence: float) -> None:
    """Refuse a confidence that is none."""
    if not 0 < confidence < 1:
        raise InvalidInput(f"confidence must be in (0, 1), got {confidence!r}")


# --- a proportion --------------------------------------------------------------------------------


def lower(hits: Any, trials: Any, error: float) -> Any:
    """The proportion is at least this, except with probability ``error`` (Clopper, Pearson 1934).

    The p at which so many hits or more have probability ``error``; 0 without a hit.

    >>> round(float(lower(10, 10, 0.025)), 6), float(lower(0, 10, 0.025))
    (0.691503, 0.0)
    """
    k, n = np.asarray(hits, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    return np.where(k > 0, betaincinv(np.maximum(k, 1), n - k + 1, error), 0.0)


def upper(hits: Any, trials: Any, error: float) -> Any:
    """The proportion is at most this, except with probability ``error``.

    >>> round(float(upper(0, 10_000, 0.025)), 8), round(1 - 0.025 ** (1 / 10_000), 8)
    (0.00036882, 0.00036882)
    """
    k, n = np.asarray(hits, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    return np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 1), 1 - error), 1.0)


# --- two proportions -----------------------------------------------------------------------------


def epsilon_between(p_low: Any, q_high: Any, delta: float = 0.0, stratum: float = 1.0) -> Any:
    """The largest ε that p ≥ p_low and q ≤ q_high imply at δ; not below 0.

    The event itself gives ln((p − δ)/q); outside it, where the other side is likelier,
    ln((1 − q − δ)/(1 − p)). ``stratum`` is the probability, known exactly and equal on both sides,
    of the part of the world in which the trials were made: p and q are multiplied by it.

    >>> float(epsilon_between(0.5, 0.25))
    0.6931471805599453
    >>> float(epsilon_between(0.25, 0.5))
    0.0
    """
    p, q = np.asarray(p_low) * stratum, np.asarray(q_high) * stratum
    inside, outside = np.maximum(p - delta, 0), np.maximum(stratum - q - delta, 0)
    with np.errstate(divide="ignore"):
        found = np.maximum(np.log(inside) - np.log(q), np.log(outside) - np.log(stratum - p))
    return np.maximum(found, 0.0)


def mu_between(p_low: Any, q_high: Any) -> Any:
    """The largest μ that p ≥ p_low and q ≤ q_high imply: Φ⁻¹(p_low) − Φ⁻¹(q_high); not below 0.

    In the words of a test of q's side: Φ⁻¹(1 − α) − Φ⁻¹(β), α = q_high, β = 1 − p_low. It refutes a
    claim of μ-GDP, and says nothing about an ε that was proven in another way.

    >>> round(float(mu_between(0.6914624612740131, 0.3085375387259869)), 9)
    1.0
    """
    return np.maximum(ndtri(p_low) - ndtri(q_high), 0.0)


# --- one run -------------------------------------------------------------------------------------


def one_run_p_value(
    canaries: int, guesses: int, correct: int, epsilon: float, delta: float
) -> float:
    """P(at least so many correct guesses) of an (ε, δ)-DP run, bounded from above.

    Steinke, Nasr, Jagielski, "Privacy Auditing with One (1) Training Run", NeurIPS 2023, Theorem
    5.2: each canary is included (or replaced) by its own fair coin, and ``guesses`` of the coins
    are guessed from the output. With W ~ Binomial(guesses, e^ε/(1 + e^ε)),

        P(correct ≥ v) ≤ P(W ≥ v) + 2 m δ max_{1 ≤ i ≤ v} P(v − i ≤ W < v)/i.

    >>> one_run_p_value(10, 10, 10, 0.0, 0.0) == 2.0**-10
    True
    """
    if not 0 <= correct <= guesses <= canaries:
        raise InvalidInput(f"needs 0 <= {correct} <= {guesses} <= {canaries}")
    right = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(correct - 1, guesses, right))
    if delta == 0 or correct == 0:
        return min(1.0, tail)
    below = np.cumsum(binom.pmf(np.arange(correct - 1, -1, -1), guesses, right))
    worst = float(np.max(below / np.arange(1, correct + 1)))
    return min(1.0, tail + 2 * canaries * delta * worst)


def one_run_epsilon(
    canaries: int, guesses: int, correct: int, delta: float, confidence: float = 0.95
) -> float:
    """The largest ε that so many correct guesses refute with this confidence; 0 if none.

    >>> p = float(lower(90, 100, 0.05))  # with δ = 0 it is the logit of the Clopper–Pearson limit
    >>> round(one_run_epsilon(100, 100, 90, 0.0), 2), round(math.log(p / (1 - p)), 2)
    (1.63, 1.63)
    """
    check_confidence(confidence)
    error = 1 - confidence

    def refuted(epsilon: float) -> bool:
        return one_run_p_value(canaries, guesses, correct, epsilon, delta) < error

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high) and high < 64:
        low, high = high, 2 * high
    for _ in range(50):  # rounded down
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
