"""Accounting against published and independently computed numbers, and against itself."""

from __future__ import annotations

import itertools
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld, rdp
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import InvalidInput
from tacit.privacy.accounting import (
    Approximate,
    Cost,
    Event,
    Gaussian,
    Poisson,
    Pure,
    Visible,
    cost,
    dominating,
    epsilon,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    geometric_schedule,
    kov_epsilon,
    per_report_epsilon,
    poisson_epsilon,
    poisson_noise_multiplier,
    power_schedule,
    pure_epsilon,
    pure_schedule,
    remaining_mu,
    visible_delta,
    visible_epsilon,
)
from tacit.privacy.budget import Budget

DELTA = 5.41752e-4  # S1's 1/(m ln m) at m = 320

epsilons = st.floats(1e-3, 20.0)
deltas = st.floats(1e-9, 0.1)
mus = st.floats(1e-2, 10.0)


# --- Gaussian ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "sigma"),
    [
        ((0.1, 1e-5), 30.749566),
        ((0.5, 1e-5), 7.031827),
        ((1.0, 1e-5), 3.730632),
        ((1.0, 1e-6), 4.224679),
        ((2.0, 1e-5), 1.993812),
        ((8.0, 1e-5), 0.600229),
        ((10.0, 1e-5), 0.499889),
        ((0.1, DELTA), 19.386257),
        ((1.0, DELTA), 2.744835),
        ((10.0, DELTA), 0.419700),
    ],
)
def test_sigma_of_the_analytic_gaussian(budget: tuple[float, float], sigma: float) -> None:
    assert 1 / gaussian_mu(*budget) == pytest.approx(sigma, abs=6e-7)


def test_delta_of_mu_one_at_epsilon_one() -> None:
    assert gaussian_delta(1.0, 1.0) == pytest.approx(0.126936738, abs=5e-10)


@given(deltas, mus)
def test_gaussian_epsilon_inverts_gaussian_delta(delta: float, mu: float) -> None:
    found = gaussian_epsilon(delta, mu)
    assert gaussian_delta(found, mu) <= delta
    if found > 0:
        assert gaussian_delta(found * (1 - 1e-9) - 1e-10, mu) > delta


@given(epsilons, deltas)
def test_gaussian_mu_is_the_largest_that_fits(epsilon: float, delta: float) -> None:
    mu = gaussian_mu(epsilon, delta)
    assert gaussian_delta(epsilon, mu) <= delta < gaussian_delta(epsilon, mu * (1 + 1e-7))


def test_no_mu_and_infinite_mu_are_the_limits() -> None:
    assert gaussian_epsilon(1e-5, 0.0) == gaussian_delta(1.0, 0.0) == 0.0
    assert gaussian_delta(1.0, math.inf) == 1.0
    assert gaussian_epsilon(0.0, 1.0) == math.inf
    with pytest.raises(InvalidInput, match="delta = 0"):
        gaussian_mu(1.0, 0.0)


@pytest.mark.parametrize(("mu", "delta"), [(0.2, 1e-3), (1.0, 1e-6), (3.0, 1e-5)])
def test_gaussian_agrees_with_the_privacy_loss_distribution(mu: float, delta: float) -> None:
    accountant = pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(dp_accounting.GaussianDpEvent(1 / mu))
    assert gaussian_epsilon(delta, mu) == pytest.approx(accountant.get_epsilon(delta), abs=1e-3)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """ε of ρ-zCDP: inf over α > 1 of the Rényi bound (Canonne, Kamath, Steinke 2020, Prop. 12).

    ε = min_α ρα + log(1/(αδ))/(α−1) + log(1−1/α). A Gaussian with μ has ρ = μ²/2.
    """
    if rho == 0:
        return 0.0
    alphas = 1 + np.exp(np.linspace(math.log(1e-4), math.log(1e6), 20_001))
    bounds = rho * alphas - np.log(alphas * delta) / (alphas - 1) + np.log1p(-1 / alphas)
    return max(0.0, float(bounds.min()))


@given(mus, deltas)
@settings(max_examples=50)
def test_zcdp_is_never_below_the_exact_gaussian(mu: float, delta: float) -> None:
    assert zcdp_epsilon(mu**2 / 2, delta) >= gaussian_epsilon(delta, mu) * (1 - 1e-9)


# --- sampling ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "multiplier", "rounds", "delta", "by_pld", "by_rdp"),
    [
        (0.01, 1.0, 1000, 1e-5, 1.82824, 2.10137),
        (0.1, 2.0, 100, 1e-5, 2.33740, 2.58057),
        (0.02, 0.8, 500, 1e-6, 5.44031, 6.16455),
        (0.3125, 1.0, 100, 5.4175e-4, 18.82320, 21.628),
        (1.0, 4.0, 50, 1e-5, 8.59587, 9.23496),
    ],
)
def test_poisson_sampling_add_remove(
    rate: float, multiplier: float, rounds: int, delta: float, by_pld: float, by_rdp: float
) -> None:
    found = poisson_epsilon(rate, multiplier, rounds, delta)
    assert found == pytest.approx(by_pld, abs=1e-5)
    places = 5e-4 if by_rdp == 21.628 else 1e-5  # the digits that were published
    other = rdp.RdpAccountant()
    gaussian = dp_accounting.GaussianDpEvent(multiplier)
    other.compose(dp_accounting.PoissonSampledDpEvent(rate, gaussian), rounds)
    assert other.get_epsilon(delta) == pytest.approx(by_rdp, abs=places)
    assert found <= other.get_epsilon(delta)


@pytest.mark.parametrize(
    ("rate", "multiplier", "rounds", "by_pld"),
    [(0.1, 2.0, 100, 4.36810), (0.01, 1.0, 1000, 2.84345)],
)
def test_poisson_sampling_replace(
    rate: float, multiplier: float, rounds: int, by_pld: float
) -> None:
    found = poisson_epsilon(rate, multiplier, rounds, 1e-5, "replace")
    assert found == pytest.approx(by_pld, abs=1e-5)


def test_noise_calibrated_to_a_budget_under_poisson_sampling() -> None:
    budget = Budget(1.0, 1e-5, neighbours="zero-out")
    found = poisson_noise_multiplier(0.1, 100, budget)
    assert found == pytest.approx(3.94175, rel=1e-4)
    assert poisson_epsilon(0.1, found, 100, 1e-5) <= 1.0
    assert poisson_epsilon(0.1, found * (1 - 1.01e-4), 100, 1e-5) > 1.0


def test_visible_participation_of_fixed_size() -> None:
    assert visible_epsilon(1e-5, 0.1, 1 / 2, 100) == pytest.approx(9.034, abs=5e-4)


@given(st.floats(0.05, 2.0), st.integers(1, 50), st.floats(0.0, 5.0))
def test_visible_at_rate_one_is_the_gaussian(mu: float, rounds: int, at: float) -> None:
    exact = gaussian_delta(at, mu * math.sqrt(rounds))
    assert visible_delta(at, 1.0, mu, rounds) == pytest.approx(exact, rel=1e-9, abs=1e-300)


def test_visible_participation_costs_more_than_secret_coins_and_less_than_all() -> None:
    secret = poisson_epsilon(0.1, 2.0, 100, 1e-5)
    visible = visible_epsilon(1e-5, 0.1, 1 / 2, 100)
    assert secret < visible < gaussian_epsilon(1e-5, 10 / 2)


# --- pure ----------------------------------------------------------------------------------------


def test_composition_of_pure_releases() -> None:
    assert pure_epsilon([0.1] * 50, DELTA) == pytest.approx(2.154917, abs=1e-6)
    assert kov_epsilon([0.1] * 50, DELTA) == pytest.approx(2.9286, abs=5e-5)


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=6), deltas)
@settings(max_examples=15, deadline=None)
def test_optimal_composition_lies_below_the_published_bound_and_the_sum(
    parts: list[float], delta: float
) -> None:
    best = pure_epsilon(parts, delta)
    assert best <= kov_epsilon(parts, delta) * (1 + 1e-6)
    assert best <= math.fsum(parts) * (1 + 1e-12)
    assert kov_epsilon(parts, delta) <= math.fsum(parts)
    assert pure_epsilon(parts, 0.0) == pytest.approx(math.fsum(parts), rel=1e-12)


@pytest.mark.parametrize("at", [0.1, 0.5, 1.2])
@pytest.mark.parametrize(
    "parts",
    [[0.1, 0.17, 0.23, 0.31, 0.4, 0.44], [0.2] * 8, [0.5, 0.5, 0.5, 1.3]],
    ids=["unequal", "equal", "mixed"],
)
def test_optimal_composition_is_that_of_every_outcome(parts: list[float], at: float) -> None:
    exact = 0.0
    for signs in itertools.product([1, -1], repeat=len(parts)):
        loss = math.fsum(s * e for s, e in zip(signs, parts, strict=True))
        chance = math.prod(1 / (1 + math.exp(-s * e)) for s, e in zip(signs, parts, strict=True))
        exact += chance * max(0.0, -math.expm1(at - loss))
    assert at <= pure_epsilon(parts, exact) == pytest.approx(at, rel=1e-5)


def test_unequal_parts_tend_to_equal_ones() -> None:
    equal = pure_epsilon([0.1] * 20, 1e-5)
    gaps = [pure_epsilon([*[0.1] * 19, 0.1 * (1 - h)], 1e-5) for h in (0.2, 0.02, 1e-9)]
    errors = [equal - gap for gap in gaps]
    assert errors[0] > errors[1] > abs(errors[2])
    assert errors[2] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(("reports", "factor"), [(1, 1.0), (50, 1.94)])
def test_reports_of_one_person_share_a_budget_by_optimal_composition(
    reports: int, factor: float
) -> None:
    each = per_report_epsilon(reports, Budget(1.0))
    assert each * reports == pytest.approx(factor, abs=5e-3)
    assert pure_epsilon([each] * reports, 1e-5) <= 1.0
    assert per_report_epsilon(reports, Budget(1.0, 0.0)) == 1.0 / reports


# --- kinds together, and across runs --------------------------------------------------------------

EVENTS: list[Event] = [
    Gaussian(0.3),
    Pure(0.2),
    Approximate(0.1, 1e-7),
    Visible(0.2, 0.3),
    Poisson(0.1, 4.0),
]


@pytest.mark.parametrize("pair", list(itertools.combinations(EVENTS, 2)), ids=str)
def test_two_kinds_together_cost_at_least_each(pair: tuple[Event, Event]) -> None:
    together = epsilon(pair, 1e-5)
    assert together >= max(epsilon([event], 1e-5) for event in pair)
    assert together == epsilon(reversed(pair), 1e-5)


SAMPLED = [Poisson(0.1, 2.0)] * 100


def test_runs_declared_together_are_one_loss_distribution() -> None:
    assert epsilon([*SAMPLED, *SAMPLED], 1e-5) == pytest.approx(3.36, abs=5e-3)
    assert epsilon([*SAMPLED, Gaussian(0.3)], 1e-5) == pytest.approx(2.65, abs=5e-3)


def test_runs_chosen_one_after_another_cost_little_more() -> None:
    mu, lost = dominating(SAMPLED, 1e-5, runs=2)
    two = Cost(mu * mu, 0.0, lost) + Cost(mu * mu, 0.0, lost)
    assert two.epsilon_at(1e-5) == pytest.approx(3.48, abs=5e-3)
    mu, lost = dominating(SAMPLED, 1e-5)
    after = Cost(mu * mu, 0.0, lost) + Cost(0.3**2)
    assert after.epsilon_at(1e-5) == pytest.approx(2.68, abs=5e-3)


def test_nothing_costs_nothing_and_too_much_delta_is_infinite() -> None:
    assert epsilon([], 1e-5) == 0.0
    assert epsilon([Approximate(0.1, 1e-4)], 1e-5) == math.inf
    assert Cost(delta=1e-4).epsilon_at(1e-5) == math.inf


@given(st.lists(st.floats(0.0, 1.0), max_size=5), st.lists(st.floats(0.0, 1.0), max_size=5))
def test_costs_add(gaussians: list[float], pures: list[float]) -> None:
    parts = [cost(Gaussian(mu)) for mu in gaussians] + [cost(Pure(e)) for e in pures]
    total = sum((part for part in parts if part is not None), Cost())
    assert total.mu_squared == pytest.approx(math.fsum(mu * mu for mu in gaussians))
    assert total.epsilon == pytest.approx(math.fsum(pures))
    basic = math.fsum(pures) + gaussian_epsilon(1e-5, math.sqrt(total.mu_squared))
    assert total.epsilon_at(1e-5) == pytest.approx(basic)
    run: list[Event] = [*map(Gaussian, gaussians)]
    assert total.epsilon_at(1e-5) >= epsilon(run, 1e-5) * (1 - 1e-9)


@given(mus, epsilons, deltas, st.floats(0.0, 1.0))
def test_within_agrees_with_epsilon_at(mu: float, limit: float, delta: float, e: float) -> None:
    total = Cost(mu * mu, e)
    at = total.epsilon_at(delta)
    if abs(at - limit) > 1e-8 * limit:
        assert total.within(Budget(limit, delta)) == (at <= limit)


def test_sampled_events_have_no_cost_of_their_own() -> None:
    assert cost(Poisson(0.1, 1.0)) is cost(Visible(0.1, 1.0)) is None
    assert cost(Approximate(0.1, 1e-6)) == Cost(0.0, 0.1, 1e-6)


@given(st.floats(0.0, 0.3), st.floats(0.0, 1.5))
def test_what_remains_fits_and_nothing_more(mu: float, spent: float) -> None:
    budget, before = Budget(1.0), Cost(mu * mu, spent)
    more = remaining_mu(budget, before)
    if more:
        assert (before + Cost(more**2)).within(budget)
        assert not (before + Cost((more * 1.0001) ** 2 + 1e-8)).within(budget)
    else:
        assert not (before + Cost(1e-8)).within(budget)


# --- schedules -----------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [power_schedule(50, 0.0), geometric_schedule(2, 0.8)], ids=len)
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_pure_schedules_spend_the_budget_and_no_more(weights: np.ndarray, delta: float) -> None:
    found = pure_schedule(weights, Budget(1.0, delta))
    np.testing.assert_allclose(found / found[0], weights / weights[0])
    spent = pure_epsilon(list(found), delta)
    assert spent <= 1.0 + 1e-12
    assert spent == pytest.approx(1.0, rel=1e-3 if delta else 1e-12)
