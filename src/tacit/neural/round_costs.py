"""What rounds cost: the noise with which all of them fit, and how many fit with a given noise."""

from __future__ import annotations

import math
from dataclasses import replace

from tacit.errors import BudgetExceeded, NotPure
from tacit.neural.pmtl import FederatedPlan
from tacit.neural.sampling import Sampler
from tacit.privacy import accounting
from tacit.privacy.accounting import Gaussian
from tacit.privacy.budget import Budget, Neighbours
from tacit.privacy.mechanisms.clipping import check_positive


def within_budget(plan: FederatedPlan, rounds: int, budget: Budget) -> tuple[FederatedPlan, int]:
    """The plan with which all rounds fit; or, where its noise is given, the rounds that fit."""
    z = plan.noise_multiplier
    if z is not None:
        check_positive("noise_multiplier", z)
        return plan, rounds_that_fit(plan.sampler, plan.clients, z, rounds, budget)
    found = multiplier(plan.sampler, plan.clients, rounds, budget)
    return replace(plan, noise_multiplier=found), rounds


def multiplier(sampler: Sampler, clients: int, rounds: int, budget: Budget) -> float:
    """The smallest z with which all rounds fit into the run's budget.

    >>> from tacit.neural.sampling import Everyone
    >>> round(multiplier(Everyone(), 10, 4, Budget(1.0, 1e-5, neighbours="zero-out")), 5)
    7.46126
    """
    _require_delta(budget)
    one = sampler.event(clients, 1.0, budget.neighbours)
    if isinstance(one, Gaussian):  # μ = one.mu/z, exactly
        return one.mu * math.sqrt(rounds) / accounting.gaussian_mu(budget.epsilon, budget.delta)
    return accounting.noise_multiplier(
        lambda z: sampler.event(clients, z, budget.neighbours), rounds, budget
    )


def _require_delta(budget: Budget) -> None:
    if budget.delta == 0:
        raise NotPure("delta = 0 with Gaussian releases; rounds of models have no pure mechanism")


def rounds_that_fit(sampler: Sampler, clients: int, z: float, rounds: int, budget: Budget) -> int:
    """How many of ``rounds`` rounds with multiplier z fit: the run stops before the next one.

    BudgetExceeded if not even one does.
    """
    _require_delta(budget)
    event = sampler.event(clients, z, budget.neighbours)
    if isinstance(event, Gaussian):
        mu = accounting.gaussian_mu(budget.epsilon, budget.delta)
        most = min(rounds, int((mu / event.mu) ** 2))
    else:
        most = _searched(sampler, clients, z, rounds, budget)
    if most == 0 < rounds:
        asked = accounting.epsilon([event], budget.delta)
        raise BudgetExceeded("every client", budget.epsilon, asked, budget)
    return most


def _searched(sampler: Sampler, clients: int, z: float, rounds: int, budget: Budget) -> int:
    """The most rounds that fit into the budget, by bisection."""

    def asked(number: int) -> float:
        return epsilon_after(sampler, clients, z, number, budget.delta, budget.neighbours)

    low, high = 0, rounds
    while low < high:
        middle = (low + high + 1) // 2
        if asked(middle) <= budget.epsilon:
            low = middle
        else:
            high = middle - 1
    return low


def epsilon_of(plan: FederatedPlan, rounds: int, budget: Budget | None) -> float:
    """ε of the plan's first rounds at the budget's δ; infinite without noise."""
    z = plan.noise_multiplier
    if budget is None or z is None:
        return math.inf
    return epsilon_after(plan.sampler, plan.clients, z, rounds, budget.delta, budget.neighbours)


def epsilon_after(
    sampler: Sampler, clients: int, z: float, rounds: int, delta: float, neighbours: Neighbours
) -> float:
    """ε at δ of the first ``rounds`` rounds (S2 Fig. 2).

    >>> from tacit.neural.sampling import Everyone
    >>> round(epsilon_after(Everyone(), 10, 4.0, 50, 1e-5, "zero-out"), 5)
    8.59587
    """
    if rounds == 0:
        return 0.0
    return accounting.epsilon([sampler.event(clients, z, neighbours)] * rounds, delta)
