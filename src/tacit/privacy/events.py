"""Events: what one release reveals about one unit, under one neighbour relation.

=====================  =====================================================================
``Gaussian(mu)``       μ-GDP: indistinguishable like N(0, 1) and N(μ, 1), μ = Δ/σ
``Pure(epsilon)``      (ε, 0)-DP
``Approximate(ε, δ)``  anything else that is (ε, δ)-DP
``Poisson(q, z)``      a Gaussian sum over a Poisson sample of rate q with secret coins; z = σ/C
``Visible(q, mu)``     a Gaussian sum in which the unit takes part with probability q, seen by all
=====================  =====================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from tacit.errors import InvalidInput
from tacit.privacy.budget import Neighbours


@dataclass(frozen=True)
class Gaussian:
    """μ-Gaussian DP, μ = Δ/σ for the neighbours of the run."""

    mu: float
    rate: ClassVar[float] = 1.0  # every unit takes part, as all others know


@dataclass(frozen=True)
class Pure:
    """(ε, 0)-DP."""

    epsilon: float
    delta: ClassVar[float] = 0.0


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

    @property
    def mu(self) -> float:
        """Δ/σ of the sum without sampling: 2C/σ (replace), C/σ (zero-out).

        The sampled sum is never worse: its two laws are mixtures, with the same weights, of pairs
        that a Gaussian with this μ dominates, and δ(ε) is jointly convex in the pair.
        """
        return (2.0 if self.neighbours == "replace" else 1.0) / self.noise_multiplier


@dataclass(frozen=True)
class Visible:
    """A Gaussian sum in which the unit takes part with probability rate, and all others see it."""

    rate: float
    mu: float


Event = Gaussian | Pure | Approximate | Poisson | Visible

EventCounts = tuple[tuple[Event, int], ...]
"""Different events and how often each occurs, in an order of their own."""


def counted(events: Iterable[Event]) -> EventCounts:
    """The events of a run, whatever their order; those that reveal nothing are left out.

    >>> counted([Pure(0.1), Gaussian(0.2), Pure(0.1), Gaussian(0.0)])
    ((Gaussian(mu=0.2), 1), (Pure(epsilon=0.1), 2))
    """
    found = Counter(event for event in events if not _nothing(event))
    if len({event.neighbours for event in found if isinstance(event, Poisson)}) > 1:
        raise InvalidInput("Poisson events of one run must have the same neighbours")
    return tuple(sorted(found.items(), key=repr))


def _nothing(event: Event) -> bool:
    if isinstance(event, Pure | Approximate):
        return event.epsilon == event.delta == 0
    return event.rate == 0 or event.mu == 0
