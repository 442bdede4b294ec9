"""What rounds cost: the noise that a budget asks for, and the rounds that it allows."""

from __future__ import annotations

import math

import pytest

from tacit.errors import BudgetExceeded, NotPure
from tacit.neural.round_costs import epsilon_after, multiplier, rounds_that_fit
from tacit.neural.sampling import Everyone, Fixed, SecretCoins
from tacit.privacy.accounting import Cost, Gaussian, Visible, gaussian_mu
from tacit.privacy.budget import Budget

M = 4


def test_the_multiplier_is_the_smallest_that_fits() -> None:
    budget = Budget(2.0, 1e-5)
    z = multiplier(Everyone(), M, 10, budget)
    assert z == pytest.approx(2 * math.sqrt(10) / gaussian_mu(2.0, 1e-5), rel=1e-4)
    visible = multiplier(Fixed(2), M, 10, budget)
    assert epsilon_after(Fixed(2), M, visible, 10, 1e-5, "replace") <= 2.0
    assert epsilon_after(Fixed(2), M, 0.99 * visible, 10, 1e-5, "replace") > 2.0


def test_poisson_is_calibrated_to_the_known_answer() -> None:
    """rate .1, T = 100, (1, 1e-5): 3.94175, bracketed instead of searched."""
    within = epsilon_after(SecretCoins(0.1), 100, 3.9418, 100, 1e-5, "zero-out")
    beyond = epsilon_after(SecretCoins(0.1), 100, 3.9410, 100, 1e-5, "zero-out")
    assert within <= 1.0 < beyond


def test_rounds_stop_before_the_one_that_would_overspend() -> None:
    budget = Budget(3.0, 1e-5, neighbours="zero-out")
    fits = rounds_that_fit(Everyone(), M, 5.0, 100, budget)
    assert 0 < fits < 100
    assert epsilon_after(Everyone(), M, 5.0, fits, 1e-5, "zero-out") <= 3.0
    assert epsilon_after(Everyone(), M, 5.0, fits + 1, 1e-5, "zero-out") > 3.0
    assert rounds_that_fit(Everyone(), M, 5.0, 3, budget) == 3


def test_not_even_one_round_is_a_refusal() -> None:
    with pytest.raises(BudgetExceeded, match="every client"):
        rounds_that_fit(Everyone(), M, 0.1, 5, Budget(0.5))


def test_gaussian_rounds_use_up_exactly_the_budget_of_the_run() -> None:
    budget = Budget(2.0, 1e-5)
    z = multiplier(Everyone(), M, 10, budget)
    spent = Cost(mu_squared=10 * (2 / z) ** 2)
    assert spent.epsilon_at(1e-5) == pytest.approx(2.0, rel=1e-6)
    assert spent.within(budget)
    assert rounds_that_fit(Everyone(), M, z * 1.0001, 100, budget) == 10
    assert rounds_that_fit(Everyone(), M, z * 0.9999, 100, budget) == 9


def test_a_gaussian_sum_cannot_be_pure() -> None:
    with pytest.raises(NotPure, match="delta = 0"):
        multiplier(Everyone(), M, 3, Budget(1.0, 0.0))


def test_epsilon_grows_with_the_rounds() -> None:
    assert epsilon_after(Fixed(2), M, 1.0, 0, 1e-5, "zero-out") == 0.0
    curve = [epsilon_after(Fixed(2), M, 1.0, t, 1e-5, "zero-out") for t in (1, 2, 5)]
    assert curve == sorted(curve)
    assert Fixed(2).event(M, 1.0, "zero-out") == Visible(0.5, 1.0)
    assert Everyone().event(M, 1.0, "zero-out") == Gaussian(1.0)
