"""Across runs, whose parameters may depend on earlier outputs: what can still be added."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tacit.privacy.budget import Budget
from tacit.privacy.events import Approximate, Event, Gaussian, Pure
from tacit.privacy.gaussian import gaussian_delta, gaussian_epsilon, gaussian_mu


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
        case Pure() | Approximate():
            return Cost(epsilon=event.epsilon, delta=event.delta)
    return None


def remaining_mu(budget: Budget, spent: Cost) -> float:
    """The largest μ that one more Gaussian run may have on top of what was spent; 0 if none.

    What a calibrated run leaves by rounding is nothing.
    """
    epsilon_left, delta_left = budget.epsilon - spent.epsilon, budget.delta - spent.delta
    if epsilon_left <= 0 or delta_left <= 0:
        return 0.0
    whole = gaussian_mu(epsilon_left, delta_left) ** 2
    squared = whole - spent.mu_squared
    return math.sqrt(squared) if squared > 1e-12 * whole else 0.0
