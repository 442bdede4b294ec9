"""A bracket of our own around the ε of a run, by nothing but distribution functions and one FFT.

Under the first of two neighbours let L be the privacy loss log(p/q) of a release. Then

    δ(ε) = E[(1 − e^{ε − L})₊],

and the losses of a run's releases add up, independently. The expectation only grows with L, so

* every loss rounded **up** to a grid of step h gives a δ that is too large: an upper bound on ε;
* every loss rounded **down** is the one rounded up less h, so the run's is less by nh at most for n
  releases: ε lies above that upper bound less nh.

Losses and their distribution functions P(L ≤ l), in both orders of the neighbours:

* a Gaussian: L ~ N(μ²/2, μ²), either order;
* one seen by all: that with probability q, else 0;
* (ε, δ): infinite with probability δ, else ±ε, + with probability 1/(1 + e^−ε) (randomised
  response dominates: Kairouz, Oh, Viswanath 2017);
* Poisson, zero-out: with c = e^{−1/2z²}, L(x) = log(1 − q + q c e^{x/z²}) grows with x, the noisy
  sum, of law (1−q)N(0, z²) + qN(1, z²) against N(0, z²); in the other order −L(x), x ~ N(0, z²);
* Poisson, replace: L(x) = log (1 − q + q c e^{x/z²})/(1 − q + q c e^{−x/z²}), an odd function with
  the inverse x(l) = z² (l/2 + asinh((1 − q) sinh(l/2)/(q c))); either order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import fft
from scipy.special import ndtr

from tacit.arrays import FloatArray
from tacit.privacy.events import Approximate, Event, EventCounts, Gaussian, Poisson, Pure, Visible

_REACH = 8.6
_CUT = 1e-17  # ≥ P(|N(0, 1)| > _REACH): of a release, beyond each end of its grid
_POINTS = 2**18  # of the grid of a run; it must hold many more than there are releases
_CELLS = 2**13  # of a release, to see how far the run's losses reach
_NARROW = 1e-6  # the least width of a release's losses that a grid is made for
_LARGEST = 600.0  # a loss whose exponential is a number; beyond it we say nothing


class _Losses(NamedTuple):
    """The losses of one release: P(L ≤ l | L < ∞), its ends, and P(L = ∞)."""

    below: Callable[[FloatArray], FloatArray]
    low: float
    high: float
    infinite: float = 0.0


def bracket(counts: EventCounts, delta: float) -> tuple[float, float]:
    """(low, high): the ε of the run at δ lies between them.

    >>> low, high = bracket(((Gaussian(1.0), 1),), 0.126936738)  # δ of ε = 1, exactly
    >>> low <= 1.0 <= high, high - low < 0.001
    (True, True)
    """
    if 4 * sum(count for _, count in counts) > _POINTS or beyond(counts):
        return 0.0, math.inf
    asymmetric = any(isinstance(e, Poisson) and e.neighbours == "zero-out" for e, _ in counts)
    with np.errstate(divide="ignore"):  # log 0 is −∞, as it should be
        orders = [_one_order(counts, delta, added) for added in {False, asymmetric}]
    return max(low for low, _ in orders), max(high for _, high in orders)


def rounding(counts: EventCounts) -> float:
    """Slack on every δ of the run that came out of an FFT.

    The n-th power of a spectrum multiplies its relative error, a few times 2^−53, by n. Measured
    against sums without FFT: below 2e-16 a release; this is more than five times that.

    >>> rounding(((Pure(0.1), 1000),))
    2e-12
    """
    return 1e-12 + 1e-15 * sum(count for _, count in counts)


def _one_order(counts: EventCounts, delta: float, added: bool) -> tuple[float, float]:
    parts = [(_losses(event, added), count) for event, count in counts]
    releases = sum(count for _, count in parts)
    start, step = _window(parts, releases)
    if (start + _POINTS) * step > _LARGEST:
        return 0.0, math.inf
    spectrum: FloatArray = np.ones(1)
    first = 0
    for losses, count in parts:
        index, probability = _rounded_up(losses, step)
        spectrum = spectrum * _power(fft.rfft(probability, _POINTS), count)
        first += index * count
    found = np.roll(fft.irfft(spectrum, _POINTS), first - start)  # [i]: the loss (start + i)·step
    finite = math.prod((1 - losses.infinite) ** count for losses, count in parts)
    slack = rounding(counts) + 2 * releases * _CUT
    deltas = [(delta + off - (1 - finite)) / finite for off in (-slack, slack)]
    high, low = _epsilons(start, step, found, deltas)
    return max(0.0, low - (releases + 1) * step), high


def beyond(counts: EventCounts) -> bool:
    """Has some release losses whose exponentials are no numbers?"""
    return any(
        event.epsilon > _LARGEST
        if isinstance(event, Pure | Approximate)
        else event.mu**2 / 2 + _REACH * event.mu > _LARGEST
        for event, _ in counts
    )


def _losses(event: Event, added: bool) -> _Losses:
    match event:
        case Gaussian() | Visible():
            return _seen(event.rate, event.mu)
        case Pure() | Approximate():
            return _two_values(event.epsilon, event.delta)
    if event.neighbours == "replace":
        return _replaced(event)
    return _added(event) if added else _removed(event)


def _seen(rate: float, mu: float) -> _Losses:
    def below(loss: FloatArray) -> FloatArray:
        return np.asarray(rate * ndtr(loss / mu - mu / 2) + (1 - rate) * (loss >= 0))

    low, high = mu * mu / 2 - _REACH * mu, mu * mu / 2 + _REACH * mu
    return _Losses(below, low if rate == 1 else min(0.0, low), high)


def _two_values(epsilon: float, infinite: float) -> _Losses:
    minus = 1 / (1 + math.exp(epsilon))

    def below(loss: FloatArray) -> FloatArray:
        return np.asarray(minus * (loss >= -epsilon) + (1 - minus) * (loss >= epsilon))

    return _Losses(below, -epsilon, epsilon, infinite)


def _removed(event: Poisson) -> _Losses:
    q, z = event.rate, event.noise_multiplier

    def below(loss: FloatArray) -> FloatArray:
        x = _sum_at(loss, event)
        return np.asarray((1 - q) * ndtr(x / z) + q * ndtr((x - 1) / z))

    return _Losses(below, _loss_at(-_REACH * z, event), _loss_at(1 + _REACH * z, event))


def _added(event: Poisson) -> _Losses:
    z = event.noise_multiplier

    def below(loss: FloatArray) -> FloatArray:
        return np.asarray(ndtr(-_sum_at(-loss, event) / z))

    return _Losses(below, -_loss_at(_REACH * z, event), -_loss_at(-_REACH * z, event))


def _replaced(event: Poisson) -> _Losses:
    q, z = event.rate, event.noise_multiplier
    ratio = (1 - q) / q * math.exp(1 / (2 * z * z))

    def below(loss: FloatArray) -> FloatArray:
        x = z * z * (loss / 2 + np.arcsinh(ratio * np.sinh(loss / 2)))
        return np.asarray((1 - q) * ndtr(x / z) + q * ndtr((x - 1) / z))

    reach = 1 + _REACH * z
    high = _loss_at(reach, event) - _loss_at(-reach, event)
    return _Losses(below, -high, high)


def _loss_at(x: float, event: Poisson) -> float:
    """L(x) = log(1 − q + q c e^{x/z²})."""
    z = event.noise_multiplier
    return float(np.logaddexp(np.log1p(-event.rate), math.log(event.rate) + (x - 0.5) / (z * z)))


def _sum_at(loss: FloatArray, event: Poisson) -> FloatArray:
    """The x with L(x) = loss; −∞ where every x has more."""
    q, z = event.rate, event.noise_multiplier
    return np.asarray(z * z * np.log(np.maximum(np.expm1(loss) + q, 0.0) / q) + 0.5)


def _rounded_up(losses: _Losses, step: float) -> tuple[int, FloatArray]:
    """The first index, and the probability of each multiple of step; the lower end is cut up."""
    first, last = math.floor(losses.low / step), math.ceil(losses.high / step) + 1
    below = losses.below(np.asarray(step * np.arange(first, last + 1)))
    return first, np.diff(below, prepend=0.0)


def _window(parts: Sequence[tuple[_Losses, int]], releases: int) -> tuple[int, float]:
    """Start and step of a grid that holds the sum of all losses, but for e^−40 at each end.

    Chernoff: P(ΣL ≥ b) ≤ e^−40 for b = (Σ log E e^{tL} + 40)/t, whatever t > 0 is; −ΣL likewise.
    Rounding up moves the sum by another step a release.
    """
    widest = max(_width(losses) for losses, _ in parts)
    cells = [(*_cells(losses), count) for losses, count in parts]
    orders = np.geomspace(0.1, 1000.0, 25) / widest
    most = [min((_log_moment(cells, sign * t) + 40) / t for t in orders) for sign in (-1.0, 1.0)]
    step = max(most[0] + most[1], widest) / (_POINTS - 2 * releases - 4)
    return math.floor(-most[0] / step), step


def _width(losses: _Losses) -> float:
    return max(losses.high - losses.low, _NARROW)


def _cells(losses: _Losses) -> tuple[FloatArray, FloatArray]:
    """The edges of coarse cells, and their probabilities."""
    width = _width(losses) / _CELLS
    first, probability = _rounded_up(losses, width)
    edges = np.asarray(width * (np.arange(len(probability) + 1) + first - 1))
    return edges, np.maximum(probability, 0.0)


def _log_moment(cells: Sequence[tuple[FloatArray, FloatArray, int]], t: float) -> float:
    """Σ log E e^{tL}, each loss moved to the end of its cell where that is more."""
    moments = []
    for edges, probability, count in cells:
        ends = t * (edges[1:] if t > 0 else edges[:-1])
        ends, weights = ends[probability > 0], probability[probability > 0]
        most = ends.max()
        moments.append(count * (most + math.log(weights @ np.exp(ends - most))))
    return math.fsum(moments)


def _epsilons(
    start: int, step: float, probability: FloatArray, deltas: Sequence[float]
) -> list[float]:
    """For each δ the least ε ≥ 0 of the grid with Σ p(l) (1 − e^{ε − l})₊ ≤ δ."""
    first = max(0, 1 - start)  # losses that are not positive add nothing
    losses = step * np.arange(start + first, start + len(probability))
    if not losses.size:
        return [math.inf if delta < 0 else 0.0 for delta in deltas]
    above = np.cumsum(probability[first:][::-1])[::-1]
    weighted = np.cumsum((probability[first:] * np.exp(-losses))[::-1])[::-1]
    there = above - np.exp(losses) * weighted

    def least(delta: float) -> float:
        if delta < 0:
            return math.inf
        if above[0] - weighted[0] <= delta:
            return 0.0
        within = there <= delta
        return float(losses[np.argmax(within)] if within.any() else losses[-1])

    return [least(delta) for delta in deltas]


def _power(spectrum: FloatArray, count: int) -> FloatArray:
    """spectrum^count, by squaring: NumPy's own takes logarithms of every number."""
    found: FloatArray = np.ones(1)
    while True:
        if count & 1:
            found = found * spectrum
        count >>= 1
        if not count:
            return found
        spectrum = spectrum * spectrum
