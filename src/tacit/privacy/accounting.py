"""Accounting: events are data, functions turn them into (ε, δ).

An event says what one release reveals about one unit, under one neighbour relation:

=====================  =====================================================================
``Gaussian(mu)``       μ-GDP: indistinguishable like N(0, 1) and N(μ, 1), μ = Δ/σ
``Pure(epsilon)``      (ε, 0)-DP
``Approximate(ε, δ)``  anything else that is (ε, δ)-DP
``Poisson(q, z)``      a Gaussian sum over a Poisson sample of rate q with secret coins; z = σ/C
``Visible(q, mu)``     a Gaussian sum in which the unit takes part with probability q, seen by all
=====================  =====================================================================

Inside a run, whose events are fixed in advance, ``epsilon`` composes them as tightly as we can
prove. Across runs, whose parameters may depend on earlier outputs, only ``Cost`` is added:
squared μ (a Gaussian-DP filter: Smith and Thakurta 2022) and plain (ε, δ).

Numbers are rounded so that privacy is never overstated: ε upwards, μ downwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr
from scipy.stats import binom

from tacit.errors import InvalidInput
from tacit.privacy.budget import Budget, Neighbours

Losses = np.ndarray[Any, np.dtype[np.float64]]

ROUND_UP = 1 + 1e-9
"""Relative slack on every solved ε, above the tolerance of the solver."""


@dataclass(frozen=True)
class Gaussian:
    """μ-Gaussian DP, μ = Δ/σ for the neighbours of the run."""

    mu: float


@dataclass(frozen=True)
class Pure:
    """(ε, 0)-DP."""

    epsilon: float


@dataclass(frozen=True)
class Approximate:
    """(ε, δ)-DP."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class Poisson:
    """A Gaussian sum over a Poisson sample; noise_multiplier is σ/C, C the clip norm (never 2C)."""

    rate: float
    noise_multiplier: float
    neighbours: Neighbours = "zero-out"


@dataclass(frozen=True)
class Visible:
    """A Gaussian sum in which the unit takes part with probability rate, and all others see it."""

    rate: float
    mu: float


Event = Gaussian | Pure | Approximate | Poisson | Visible


# --- Gaussian DP, exact ------------------------------------------------------------------------


def gaussian_delta(epsilon: float, mu: float) -> float:
    """δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2), exactly (Balle and Wang 2018, Theorem 8).

    >>> round(gaussian_delta(1.0, 1.0), 9)
    0.126936738
    """
    if mu == 0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    first = float(log_ndtr(-epsilon / mu + mu / 2))
    second = epsilon + float(log_ndtr(-epsilon / mu - mu / 2))
    return math.exp(first) * -math.expm1(min(second - first, 0.0))


def gaussian_epsilon(delta: float, mu: float) -> float:
    """The smallest ε with gaussian_delta(ε, μ) ≤ δ."""
    if mu == 0 or gaussian_delta(0.0, mu) <= delta:
        return 0.0
    if delta <= 0:
        return math.inf
    return _smallest(lambda epsilon: gaussian_delta(epsilon, mu) <= delta)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest μ with gaussian_delta(ε, μ) ≤ δ.

    >>> round(1 / gaussian_mu(1.0, 1e-5), 6)
    3.730632
    """
    if delta <= 0:
        raise InvalidInput(
            "a Gaussian release cannot have delta = 0; pure mechanisms are LaplaceSum, KNormSum "
            "and TwoSidedWishart"
        )
    root = brentq(
        lambda log_mu: gaussian_delta(epsilon, math.exp(log_mu)) - delta, -40.0, 25.0, xtol=1e-13
    )
    return math.exp(float(root)) / ROUND_UP


# --- Poisson sampling, by dp-accounting --------------------------------------------------------


def _accountant(neighbours: Neighbours, kind: str) -> Any:
    import dp_accounting
    from dp_accounting import pld, rdp

    # Zero-out is add/remove in dp-accounting's words. REPLACE_ONE doubles the sensitivity inside
    # the PLD accountant; the RDP accountant does not, so it may not be used for it.
    relation = (
        dp_accounting.NeighboringRelation.REPLACE_ONE
        if neighbours == "replace"
        else dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    )
    if kind == "rdp" and neighbours == "replace":
        raise InvalidInput(
            "RDP for Poisson sampling holds for zero-out neighbours only; use PLD for replace"
        )
    return pld.PLDAccountant(relation) if kind == "pld" else rdp.RdpAccountant()


@lru_cache(maxsize=512)
def poisson_epsilon(
    rate: float,
    noise_multiplier: float,
    rounds: int,
    delta: float,
    neighbours: Neighbours = "zero-out",
    kind: str = "pld",
) -> float:
    """ε of ``rounds`` Poisson-sampled Gaussian sums, noise_multiplier = σ/C, by PLD or RDP.

    Replace assumes that the antipodal pair dominates, which is not proven (see docs/privacy.md).
    """
    import dp_accounting

    step = dp_accounting.PoissonSampledDpEvent(
        rate, dp_accounting.GaussianDpEvent(noise_multiplier)
    )
    accountant = _accountant(neighbours, kind)
    accountant.compose(step, rounds)
    return float(accountant.get_epsilon(delta))


def poisson_noise_multiplier(
    rate: float, rounds: int, budget: Budget, *, upper: float = 1e4
) -> float:
    """The smallest σ/C whose ``rounds`` Poisson-sampled sums stay within the budget."""
    return noise_multiplier(
        lambda multiplier: Poisson(rate, multiplier, budget.neighbours), rounds, budget, upper=upper
    )


def noise_multiplier(
    event: Callable[[float], Event], rounds: int, budget: Budget, *, upper: float = 1e4
) -> float:
    """The smallest σ/C with which ``rounds`` events event(σ/C) stay within the budget."""

    def within(multiplier: float) -> bool:
        return epsilon([event(multiplier)] * rounds, budget.delta) <= budget.epsilon

    return _smallest(within, start=0.3, upper=upper, tolerance=1e-5)


# --- participation that everybody sees ---------------------------------------------------------


def visible_delta(epsilon: float, rate: float, mu: float, rounds: int) -> float:
    """δ(ε) = Σ_j Bin(j; T, q) δ_GDP(ε; √j μ): the binomial mixture (docs/privacy.md, E).

    The cohort is drawn independently of the data, and everybody learns whether the unit took part:
    given j participations the release is √j μ-GDP, and j has the same law on both sides.
    """
    counts = np.arange(rounds + 1)
    weights = binom.pmf(counts, rounds, rate)
    deltas = [gaussian_delta(epsilon, math.sqrt(j) * mu) for j in counts]
    return float(weights @ np.asarray(deltas))


def visible_epsilon(delta: float, rate: float, mu: float, rounds: int) -> float:
    """The smallest ε with visible_delta(ε, ...) ≤ δ."""
    return _smallest(lambda epsilon: visible_delta(epsilon, rate, mu, rounds) <= delta)


# --- pure mechanisms ---------------------------------------------------------------------------


def kov_epsilon(epsilons: Sequence[float], delta: float) -> float:
    """The composition bound of S1 Definition 7 (Kairouz, Oh, Viswanath 2017, Theorem 3.5).

    >>> round(kov_epsilon([0.1] * 50, 5.41752e-4), 4)
    2.9286
    """
    total = math.fsum(epsilons)
    if delta <= 0:
        return total
    squares = math.fsum(e * e for e in epsilons)
    drift = math.fsum(e * math.tanh(e / 2) for e in epsilons)  # (e^ε − 1) ε / (e^ε + 1)
    return min(
        total,
        drift + math.sqrt(2 * squares * math.log(math.e + math.sqrt(squares) / delta)),
        drift + math.sqrt(2 * squares * math.log(1 / delta)),
    )


def pure_losses(epsilons: Sequence[float], *, resolution: int = 2000) -> tuple[Losses, Losses]:
    """Values and probabilities of the privacy loss that dominates (ε_i, 0)-DP mechanisms together.

    Randomised response dominates every pure mechanism: its privacy loss is ±ε_i, + with
    probability e^{ε_i}/(1+e^{ε_i}) (Kairouz, Oh, Viswanath 2017). Losses are added on a grid of
    step max ε_i / resolution, each ε_i rounded up to it; with equal ε_i the grid is exact.
    """
    equal = len(set(epsilons)) == 1
    step = epsilons[0] if equal else max(epsilons) / resolution
    sizes = [math.ceil(e / step - 1e-12) for e in epsilons]
    reach = sum(sizes)
    probability = np.zeros(2 * reach + 1)  # of the loss (i − reach)·step
    probability[reach] = 1.0
    for size in sizes:
        plus = 1 / (1 + math.exp(-size * step))
        shifted = np.zeros_like(probability)
        shifted[size:] += plus * probability[: len(probability) - size]
        shifted[: len(probability) - size] += (1 - plus) * probability[size:]
        probability = shifted
    return np.asarray(step * np.arange(-reach, reach + 1)), probability


def pure_delta(epsilon: float, epsilons: Sequence[float]) -> float:
    """δ(ε) = E[(1 − e^{ε − loss})₊] of the optimal composition of (ε_i, 0)-DP mechanisms."""
    return _excess(epsilon, *pure_losses(epsilons))


def pure_epsilon(epsilons: Sequence[float], delta: float) -> float:
    """The smallest ε of the optimal composition at δ.

    >>> round(pure_epsilon([0.1] * 50, 5.41752e-4), 6)
    2.154917
    """
    total = math.fsum(epsilons)
    if delta <= 0 or total == 0:
        return total
    losses = pure_losses([e for e in epsilons if e > 0])
    return min(total, _smallest(lambda epsilon: _excess(epsilon, *losses) <= delta))


def _excess(epsilon: float, losses: Losses, probability: Losses) -> float:
    return float(probability @ -np.expm1(np.minimum(epsilon - losses, 0.0)))


# --- zero-concentrated DP ----------------------------------------------------------------------


def zcdp_epsilon(rho: float, delta: float) -> float:
    """ε of ρ-zCDP: inf over α > 1 of the Rényi bound (Canonne, Kamath, Steinke 2020, Prop. 12).

    ε = min_α ρα + log(1/(αδ))/(α−1) + log(1−1/α). A Gaussian with μ has ρ = μ²/2.
    """
    if rho == 0:
        return 0.0
    alphas = 1 + np.exp(np.linspace(math.log(1e-4), math.log(1e6), 20_001))
    bounds = rho * alphas - np.log(alphas * delta) / (alphas - 1) + np.log1p(-1 / alphas)
    return max(0.0, float(bounds.min()))


# --- one run: events fixed in advance ----------------------------------------------------------


def epsilon(events: Iterable[Event], delta: float) -> float:
    """ε at δ of one run whose events are fixed before it starts.

    Each kind is composed exactly (Gaussian, pure) or by its own accountant; kinds are added by
    basic composition, δ shared equally among those that need it.

    >>> round(epsilon([Gaussian(1 / 3.730632)], 1e-5), 4)
    1.0
    """
    kinds: dict[type, list[Any]] = {}
    for event in events:
        kinds.setdefault(type(event), []).append(event)
    approximate: list[Approximate] = kinds.pop(Approximate, [])
    total = math.fsum(event.epsilon for event in approximate)
    delta -= math.fsum(event.delta for event in approximate)
    if delta < 0:
        return math.inf
    sharing = max(1, len(kinds))
    return total + math.fsum(
        _ONE_KIND[kind](found, delta / sharing) for kind, found in kinds.items()
    )


def _gaussian_kind(events: list[Gaussian], delta: float) -> float:
    return gaussian_epsilon(delta, math.sqrt(math.fsum(event.mu**2 for event in events)))


def _pure_kind(events: list[Pure], delta: float) -> float:
    return pure_epsilon([event.epsilon for event in events], delta)


def _poisson_kind(events: list[Poisson], delta: float) -> float:
    counted = {event: events.count(event) for event in events}
    return math.fsum(
        poisson_epsilon(e.rate, e.noise_multiplier, n, delta / len(counted), e.neighbours)
        for e, n in counted.items()
    )


def _visible_kind(events: list[Visible], delta: float) -> float:
    counted = {event: events.count(event) for event in events}
    return math.fsum(
        visible_epsilon(delta / len(counted), e.rate, e.mu, n) for e, n in counted.items()
    )


_ONE_KIND: dict[type, Callable[[list[Any], float], float]] = {
    Gaussian: _gaussian_kind,
    Pure: _pure_kind,
    Poisson: _poisson_kind,
    Visible: _visible_kind,
}


# --- across runs: what can be added when parameters are chosen adaptively ------------------------


@dataclass(frozen=True)
class Cost:
    """What adds up, whoever chose the parameters and when: Σμ², Σε and Σδ.

    >>> Cost(0.04) + Cost(0.05, 0.1)
    Cost(mu_squared=0.09, epsilon=0.1, delta=0.0)
    """

    mu_squared: float = 0.0
    epsilon: float = 0.0
    delta: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.mu_squared + other.mu_squared,
            self.epsilon + other.epsilon,
            self.delta + other.delta,
        )

    def epsilon_at(self, delta: float) -> float:
        """ε of everything together at δ: Σε + ε_GDP(δ − Σδ; μ)."""
        if self.delta > delta:
            return math.inf
        return self.epsilon + gaussian_epsilon(delta - self.delta, math.sqrt(self.mu_squared))

    def within(self, budget: Budget) -> bool:
        """Does everything together stay within the budget?"""
        if self.delta > budget.delta or self.epsilon > budget.epsilon:
            return False
        left = gaussian_delta(budget.epsilon - self.epsilon, math.sqrt(self.mu_squared))
        return left <= budget.delta - self.delta


def cost(event: Event) -> Cost | None:
    """The cost of an event by itself, or None if it only adds up inside a planned run."""
    match event:
        case Gaussian(mu):
            return Cost(mu_squared=mu * mu)
        case Pure(epsilon=spent):
            return Cost(epsilon=spent)
        case Approximate(spent, delta):
            return Cost(epsilon=spent, delta=delta)
    return None


def remaining_mu(budget: Budget, spent: Cost) -> float:
    """The largest μ that one more Gaussian run may have on top of what was spent; 0 if none."""
    epsilon_left, delta_left = budget.epsilon - spent.epsilon, budget.delta - spent.delta
    if epsilon_left <= 0 or delta_left <= 0:
        return 0.0
    squared = gaussian_mu(epsilon_left, delta_left) ** 2 - spent.mu_squared
    return math.sqrt(squared) if squared > 0 else 0.0


# --- schedules ---------------------------------------------------------------------------------


def power_schedule(rounds: int, alpha: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """a_t = t^α, t = 1..T (S1 §4.5, convex case)."""
    return np.arange(1, rounds + 1, dtype=np.float64) ** alpha


def geometric_schedule(rounds: int, base: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """a_t = Q^−t, t = 1..T (S1 §4.5, strongly convex case), 0 < Q < 1."""
    return base ** -np.arange(1, rounds + 1, dtype=np.float64)


def scaled_schedule(
    weights: Sequence[float] | np.ndarray[Any, np.dtype[np.float64]],
    budget: Budget,
    *,
    pure: bool = False,
    spent: Cost | None = None,
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The largest base budget that fits, times a_t: μ_t (Gaussian) or ε_t (pure) for each round.

    Gaussian: μ_t = a_t · μ/‖a‖, exactly. Pure: ε_t = a_t ε₀ with the largest ε₀ whose optimal
    composition at δ stays within ε (basic composition when δ = 0).

    >>> scaled_schedule([1.0, 1.0], Budget(1.0, 0.0), pure=True)
    array([0.5, 0.5])
    """
    a = np.asarray(weights, dtype=np.float64)
    if a.ndim != 1 or a.size == 0 or not np.all(np.isfinite(a)) or np.any(a < 0) or not a.any():
        raise InvalidInput(f"a schedule needs non-negative finite weights, not all zero; got {a}")
    spent = spent or Cost()
    if not pure:
        return np.asarray(a * remaining_mu(budget, spent) / np.linalg.norm(a))
    left, delta = budget.epsilon - spent.epsilon, max(0.0, budget.delta - spent.delta)
    basic = left / float(a.sum())
    if delta == 0 or a.size == 1:
        return np.asarray(a * basic)
    excess = _largest(lambda x: pure_epsilon(list(a * x), delta) <= left, start=basic)
    return np.asarray(a * excess)


def _smallest(
    holds: Callable[[float], bool],
    *,
    start: float = 1.0,
    upper: float = 1e9,
    tolerance: float = 1e-12,
) -> float:
    """The smallest x > 0 where a monotone condition holds, rounded up; bisection on x."""
    low, high = 0.0, start
    while not holds(high):
        low, high = high, 2 * high
        if high > upper:
            return math.inf
    while high - low > tolerance * max(1.0, high):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _largest(holds: Callable[[float], bool], *, start: float, tolerance: float = 1e-9) -> float:
    """The largest x where a monotone condition holds, rounded down; start must hold."""
    low, high = start, 2 * start
    while holds(high):
        low, high = high, 2 * high
    while high - low > tolerance * high:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
