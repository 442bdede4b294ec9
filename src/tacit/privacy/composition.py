"""One run, whose events are fixed in advance: its ε at δ.

Where a run has one kind of event there may be a formula (Gaussians; participation that everybody
sees). Everything else is *one* privacy loss distribution (PLD), by dp-accounting, for all kinds
together: what a mixture of them reveals is the sum of independent losses, so no δ is shared out.
A zero-out pair is not symmetric: dp-accounting composes both orders and takes the worse at the end.

Three things keep the answer from overstating privacy:

* every distribution is discretised pessimistically (Connect the Dots: Doroshenko et al. 2022);
* δ is asked for less ``rounding``, which covers the FFT;
* the answer counts only inside a ``bracket`` that we compute and prove ourselves; outside of it,
  the bracket's upper end does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.stats import binom

from tacit.arrays import FloatArray, IntArray
from tacit.privacy.bracket import beyond, bracket, rounding
from tacit.privacy.budget import Neighbours
from tacit.privacy.events import (
    Approximate,
    Event,
    EventCounts,
    Gaussian,
    Poisson,
    Pure,
    Visible,
    counted,
)
from tacit.privacy.gaussian import ROUND_UP, gaussian_deltas, gaussian_epsilon, smallest

Curve = Callable[[FloatArray], FloatArray]
"""δ(x), at many x."""

FINE = 1e-4
"""Step of the grid of losses, in a run of usual size."""

_REACH = 9.0  # standard deviations of a release's noise: what lies beyond counts as infinite
_SHORT = 2**16  # losses of a whole run
_CUT_OFF = 1e-15  # of the probability of a longer one, counted as infinite
_LARGEST_LOSS = 600.0  # whose exponential is a number, and of which e^−l is more than nothing
_TINY = 1e-300  # for logarithms of what is then not used


def epsilon(events: Iterable[Event], delta: float) -> float:
    """ε at δ of one run whose events are fixed before it starts, rounded up.

    >>> round(epsilon([Gaussian(1 / 3.730632)], 1e-5), 4)
    1.0
    >>> round(epsilon([*[Poisson(0.1, 2.0)] * 100, Gaussian(0.3)], 1e-5), 3)
    2.653
    """
    return run_epsilon(counted(events), delta)


@lru_cache(maxsize=1024)
def run_epsilon(counts: EventCounts, delta: float) -> float:
    """``epsilon`` of counted events."""
    match counts:
        case ((Visible(rate, mu), rounds),):
            return visible_epsilon(delta, rate, mu, rounds)
    plain = plain_epsilon(counts, delta)
    exact = plain == 0 or all(isinstance(event, Gaussian) for event, _ in counts)
    if exact or beyond(counts) or delta <= 2 * rounding(counts):
        return plain
    low, high = bracket(counts, delta)
    found = composed_epsilon(counts, delta)
    return min(plain, found if low <= found <= high else high * ROUND_UP)


def plain_epsilon(counts: EventCounts, delta: float) -> float:
    """ε without amplification by sampling, pure parts added: Σε + ε_GDP(δ − Σδ; √Σμ²), n of each.

    Right for every run, exact for Gaussians, and cheap.

    >>> plain_epsilon(((Pure(0.1), 3), (Approximate(0.2, 1e-6), 1)), 1e-5)
    0.5
    """
    added, squared = [], []
    for event, count in counts:
        match event:
            case Pure() | Approximate():
                added.append(count * event.epsilon)
                delta -= count * event.delta
            case _:
                squared.append(count * event.mu**2)
    if delta < 0:
        return math.inf
    return math.fsum(added) + gaussian_epsilon(delta, math.sqrt(math.fsum(squared)))


# --- privacy loss distributions, by dp-accounting ------------------------------------------------


def composed_epsilon(counts: EventCounts, delta: float, *, coarser: float = 1.0) -> float:
    """ε at δ by the PLD of all events together; a coarser grid is faster, and never smaller."""
    return epsilon_at(loss_distribution(counts, coarser), delta - rounding(counts)) * ROUND_UP


def epsilon_at(losses: Any, delta: float) -> float:
    """The least ε ≥ 0 with δ(ε) ≤ δ in both orders: dp-accounting's own answer, whose search goes
    through 100,000 losses in Python."""
    return max(_order_epsilon(mass, delta) for mass in {losses._pmf_remove, losses._pmf_add})


def _order_epsilon(mass: Any, delta: float) -> float:
    """Above the loss l_k, δ(ε) = P(L > l_k) − e^ε Σ_{l > l_k} p(l)e^−l: it is δ at the ε to return
    if that lies between l_k and the next. Sums are made in dp-accounting's order."""
    dense = mass.to_dense_pmf()
    step, infinite, p = dense._discretization, dense._infinity_mass, dense._probs[::-1]
    losses = step * np.arange(dense._lower_loss + len(p) - 1, dense._lower_loss - 1, -1)
    if infinite > delta or losses[0] > _LARGEST_LOSS:
        return float(mass.get_epsilon_for_delta(delta))
    above = np.cumsum(np.append(infinite, p))  # of the first k losses, from the largest down
    weighted = np.cumsum(np.append(0.0, p * np.exp(-losses)))
    with np.errstate(divide="ignore", invalid="ignore"):
        reached = np.log((above - delta) / weighted)
    stops = (above > delta) & (weighted > 0) & (reached >= np.append(losses, -np.inf))
    k = int(np.argmax(stops)) if stops.any() else len(p)
    return 0.0 if above[k] <= weighted[k] + delta else float(reached[k])


@lru_cache(maxsize=64)
def loss_distribution(counts: EventCounts, coarser: float = 1.0) -> Any:
    """The PLD of a run, pessimistic, with both orders of its neighbours."""
    step = _step(counts, coarser)
    total, *others = [_repeated(_losses(e, step), n) for e, n in _merged(counts)]
    for other in others:
        total = total.compose(other)
    return total


def _repeated(losses: Any, count: int) -> Any:
    """Those of ``count`` equal releases. Where all of them fit nothing is cut off: to look where
    one could takes dp-accounting longer."""
    fits = losses._pmf_remove.size * count <= _SHORT
    return losses.self_compose(count, tail_mass_truncation=0.0 if fits else _CUT_OFF)


def _merged(counts: EventCounts) -> EventCounts:
    """All Gaussians as one: μ² adds up."""
    squared = math.fsum(n * e.mu**2 for e, n in counts if isinstance(e, Gaussian))
    rest = tuple((e, n) for e, n in counts if not isinstance(e, Gaussian))
    return (*rest, (Gaussian(math.sqrt(squared)), 1)) if squared else rest


def _step(counts: EventCounts, coarser: float) -> float:
    """The step of the grid: FINE, finer for a small run, coarser for one that would not fit.

    Any step is right. Equal pure events have losses that are multiples of their ε: no error at all.
    """
    pures = {event.epsilon for event, _ in counts if isinstance(event, Pure)}
    if len(pures) == len(counts) == 1:
        return pures.pop()
    squared = math.fsum(count * variance(event) for event, count in counts)
    widest = max(_widest(event) for event, _ in counts)
    usual = min(FINE, math.sqrt(squared) / 2000)
    return max(coarser * usual, widest / 1.5e5, (squared / 2 + 8 * math.sqrt(squared)) / 2e6)


def variance(event: Event) -> float:
    """Of an event's loss, roughly."""
    match event:
        case Pure(epsilon) | Approximate(epsilon, _):
            return epsilon * epsilon
        case Gaussian(mu):
            return mu * mu
    squared, q = event.mu**2, event.rate
    return min(q * squared * (1 + squared / 4), q * q * math.expm1(min(squared, 100.0)))


def _widest(event: Event) -> float:
    """An event's largest loss, roughly."""
    if isinstance(event, Pure | Approximate):
        return event.epsilon
    return event.mu**2 / 2 + 10 * event.mu


def _losses(event: Event, step: float) -> Any:
    """The PLD of one event."""
    match event:
        case Gaussian() | Visible():
            return _seen(event.rate, event.mu, step)
        case Pure() | Approximate():
            return _two_losses(event.epsilon, event.delta, step)
    return _replaced(event, step) if event.neighbours == "replace" else _zeroed(event, step)


def _replaced(event: Poisson, step: float) -> Any:
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_gaussian_mechanism(
        event.noise_multiplier,
        sampling_prob=event.rate,
        value_discretization_interval=step,
        neighboring_relation=NeighboringRelation.REPLACE_ONE,  # doubles the sensitivity inside
    )


def _zeroed(event: Poisson, step: float) -> Any:
    """P = (1 − q)N(0, 1) + qN(μ, 1) against Q = N(0, 1), in both orders, by the curve of N(μ, 1).

    For every set S, P(S) − e^x Q(S) = q (N_μ(S) − e^y Q(S)) with e^y = (e^x − 1 + q)/q, and
    Q(S) − e^x P(S) = a (Q(S) − e^y N_μ(S)) with a = 1 − (1 − q)e^x, e^y = q e^x/a. The largest of
    either is q, or a, times δ_GDP(y; μ); where e^y or a would be negative it is 1 − e^x, or 0.

    (dp-accounting has the same curves, point by point in Python.)
    """
    q, mu = event.rate, event.mu
    if q == 1:
        return _seen(q, mu, step)

    def removed(at: FloatArray) -> FloatArray:
        ratio = (np.expm1(at) + q) / q
        inner = np.log(np.maximum(ratio, _TINY))
        return np.where(ratio > 0, q * gaussian_deltas(inner, mu), _nothing(at))

    def added(at: FloatArray) -> FloatArray:
        a = np.maximum(1 - (1 - q) * np.exp(at), 0.0)
        inner = at + math.log(q) - np.log(np.maximum(a, _TINY))
        return np.asarray(a * gaussian_deltas(inner, mu))

    reach = mu * mu / 2 + _REACH * mu
    low, high = (math.log1p(q * math.expm1(end)) for end in (-reach, reach))
    return _connected(
        step, (_between(low, high, step), removed), (_between(-high, -low, step), added)
    )


def _between(low: float, high: float, step: float) -> IntArray:
    """The multiples of step around [low, high]."""
    return np.arange(math.floor(low / step), math.ceil(high / step) + 1)


def _seen(rate: float, mu: float, step: float) -> Any:
    """A Gaussian with probability rate, else nothing: curves mix, as everybody sees which."""

    def curve(at: FloatArray) -> FloatArray:
        return np.asarray(rate * gaussian_deltas(at, mu) + (1 - rate) * _nothing(at))

    reach = mu * mu / 2 + _REACH * mu
    return _connected(step, (_between(-reach, reach, step), curve))


def _two_losses(epsilon: float, delta: float, step: float) -> Any:
    """Infinite with probability δ, else randomised response, which dominates every (ε, 0)-DP
    mechanism: its δ(x) is 0 above ε, (e^ε − e^x)/(1 + e^ε) between ±ε, and 1 − e^x below."""

    def curve(at: FloatArray) -> FloatArray:
        between = -np.expm1(at - epsilon) / (1 + math.exp(-epsilon))
        return np.asarray(delta + (1 - delta) * np.maximum(between, _nothing(at)))

    ends = (epsilon / step, -epsilon / step)
    points = {math.floor(end) for end in ends} | {math.ceil(end) for end in ends}
    return _connected(step, (np.array(sorted(points)), curve))


def _nothing(at: FloatArray) -> FloatArray:
    """δ(x) = (1 − e^x)₊ of a release that reveals nothing."""
    return np.maximum(-np.expm1(at), 0.0)


def _connected(step: float, *orders: tuple[IntArray, Curve]) -> Any:
    """The PLD on these multiples of step that lies above a curve δ(x) and touches it; of each order
    of the neighbours, if they differ."""
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    masses = [
        pld_pmf.create_pmf_pessimistic_connect_dots(step, points, curve(np.asarray(points * step)))
        for points, curve in orders
    ]
    return privacy_loss_distribution.PrivacyLossDistribution(*masses)


# --- one kind of event ---------------------------------------------------------------------------


def poisson_epsilon(
    rate: float,
    noise_multiplier: float,
    rounds: int,
    delta: float,
    neighbours: Neighbours = "zero-out",
) -> float:
    """ε of ``rounds`` Poisson-sampled Gaussian sums, noise_multiplier = σ/C.

    Replace assumes that the antipodal pair dominates, which is not proven (see docs/privacy.md).
    """
    return epsilon([Poisson(rate, noise_multiplier, neighbours)] * rounds, delta)


def pure_epsilon(epsilons: Sequence[float], delta: float) -> float:
    """ε of the optimal composition of (ε_i, 0)-DP releases at δ.

    >>> round(pure_epsilon([0.1] * 50, 5.41752e-4), 6)
    2.154917
    """
    return epsilon(map(Pure, epsilons), delta)


def visible_delta(epsilon: float, rate: float, mu: float, rounds: int) -> float:
    """δ(ε) = Σ_j Bin(j; T, q) δ_GDP(ε; √j μ): the binomial mixture (docs/privacy.md, E).

    The cohort is drawn independently of the data, and everybody learns whether the unit took part:
    given j participations the release is √j μ-GDP, and j has the same law on both sides.
    """
    counts = np.arange(rounds + 1)
    weights = binom.pmf(counts, rounds, rate)
    return float(weights @ gaussian_deltas(epsilon, np.sqrt(counts) * mu))


def visible_epsilon(delta: float, rate: float, mu: float, rounds: int) -> float:
    """The smallest ε with visible_delta(ε, ...) ≤ δ."""
    if delta <= 0:
        return math.inf
    return smallest(lambda epsilon: visible_delta(epsilon, rate, mu, rounds) <= delta)


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
