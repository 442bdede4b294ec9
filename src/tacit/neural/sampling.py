"""Who takes part in a round, and what the accountant may conclude from it.

A sampler draws the cohort and states the event of a release over such cohorts: the two cannot
disagree, since there is no other place to get either from.

===============  ===============================================  ==============================
sampler          cohort                                           event
===============  ===============================================  ==============================
``SecretCoins``  each client by its own coin of rate p            Poisson(p, z): amplified
``Fixed``        k of m, uniformly                                Visible(k/m, μ): the others can
                                                                  tell who took part, no secret
                                                                  coin is left (PRIVACY, row E)
``Everyone``     all m                                            Gaussian(μ)
===============  ===============================================  ==============================

z = σ/γ is the noise multiplier, γ the clip norm; μ = 1/z under zero-out, 2/z under replace.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from tacit.arrays import FloatArray, IntArray
from tacit.errors import InvalidInput
from tacit.privacy import accounting
from tacit.privacy.accounting import Event
from tacit.privacy.budget import Budget, Neighbours
from tacit.privacy.mechanisms import sum_sensitivity


@runtime_checkable
class Sampler(Protocol):
    """Draws cohorts, and says what a noisy sum over one reveals."""

    def cohort(self, clients: int, rng: np.random.Generator) -> IntArray:
        """The clients of one round, in increasing order; perhaps none."""

    def share(self, clients: int) -> float:
        """The expected share of clients in a cohort: the fixed denominator is share · m."""

    def event(self, clients: int, noise_multiplier: float, neighbours: Neighbours) -> Event:
        """What one round reveals about one client."""

    def passes(self, clients: int, slots: int) -> float:
        """E⌈K/slots⌉, K the size of a cohort: public, as the law of K is."""

    def __hash__(self) -> int:
        """Equal samplers draw alike."""


@dataclass(frozen=True)
class SecretCoins:
    """Each client takes part by its own coin, which only the trusted server ever sees.

    >>> SecretCoins(0.1).event(500, 2.0, "zero-out")
    Poisson(rate=0.1, noise_multiplier=2.0, neighbours='zero-out')
    """

    rate: float

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise InvalidInput(f"rate must be in (0, 1], got {self.rate}")

    def cohort(self, clients: int, rng: np.random.Generator) -> IntArray:
        """Perhaps nobody: the round is then noise alone, and is charged.

        A uniform number has 53 bits; the rate is rounded down to them, so the true rate is not
        above the one that is charged.
        """
        rate = math.floor(self.rate * 2.0**53) * 2.0**-53
        return np.flatnonzero(rng.random(clients) < rate).astype(np.int64)

    def share(self, clients: int) -> float:
        """p."""
        return self.rate

    def event(self, clients: int, noise_multiplier: float, neighbours: Neighbours) -> Event:
        """Amplified by the secret coin."""
        return accounting.Poisson(self.rate, noise_multiplier, neighbours)

    def passes(self, clients: int, slots: int) -> float:
        """E⌈K/c⌉ = Σ_j P(K > j·c), K ~ Bin(m, p).

        >>> round(SecretCoins(0.5).passes(2, 1), 9), round(SecretCoins(0.5).passes(2, 2), 9)
        (1.0, 0.75)
        """
        return float(_beyond(clients, self.rate)[::slots].sum())


@lru_cache(maxsize=16)
def _beyond(clients: int, rate: float) -> FloatArray:
    """(m,), P(K > k) for k = 0, ..., m − 1."""
    from scipy.stats import binom

    return np.asarray(binom.sf(np.arange(clients), clients, rate))


@dataclass(frozen=True)
class Fixed:
    """A cohort of fixed size, drawn independently of the data and of other rounds.

    >>> Fixed(50).event(500, 2.0, "zero-out")
    Visible(rate=0.1, mu=0.5)
    """

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InvalidInput(f"a cohort has at least 1 client, got {self.size}")

    def cohort(self, clients: int, rng: np.random.Generator) -> IntArray:
        """k of m without replacement."""
        self.share(clients)
        return np.sort(rng.choice(clients, self.size, replace=False)).astype(np.int64)

    def share(self, clients: int) -> float:
        """k/m."""
        if self.size > clients:
            raise InvalidInput(f"a cohort of {self.size} was asked of {clients} clients")
        return self.size / clients

    def event(self, clients: int, noise_multiplier: float, neighbours: Neighbours) -> Event:
        """Not amplified: m − 1 clients who count themselves know whether the last took part."""
        mu = sum_sensitivity(1.0, neighbours) / noise_multiplier
        return accounting.Visible(self.share(clients), mu)

    def passes(self, clients: int, slots: int) -> float:
        """⌈k/c⌉."""
        return float(-(-self.size // slots))


@dataclass(frozen=True)
class Everyone:
    """All clients in every round.

    >>> Everyone().event(500, 2.0, "replace")
    Gaussian(mu=1.0)
    """

    def cohort(self, clients: int, rng: np.random.Generator) -> IntArray:
        """0, ..., m − 1."""
        return np.arange(clients)

    def share(self, clients: int) -> float:
        """1."""
        return 1.0

    def event(self, clients: int, noise_multiplier: float, neighbours: Neighbours) -> Event:
        """The plain Gaussian."""
        return accounting.Gaussian(sum_sensitivity(1.0, neighbours) / noise_multiplier)

    def passes(self, clients: int, slots: int) -> float:
        """⌈m/c⌉."""
        return float(-(-clients // slots))


def chosen_sampler(
    sampling: Sampler | Literal["auto"], participation: float, budget: Budget | None
) -> Sampler:
    """As given; auto: secret coins for zero-out, everybody for replace and without a budget.

    >>> chosen_sampler("auto", 0.2, Budget(1.0, neighbours="zero-out"))
    SecretCoins(rate=0.2)
    >>> chosen_sampler("auto", 1.0, Budget(1.0, neighbours="zero-out"))  # no secret is in that coin
    Everyone()
    """
    if sampling != "auto":
        return sampling
    if budget is not None and budget.neighbours == "zero-out" and participation < 1:
        return SecretCoins(participation)
    return Everyone()
