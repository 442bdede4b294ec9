"""One loss distribution for a whole run, our own bracket around it, and runs as Gaussian costs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import InvalidInput
from tacit.privacy import calibration, composition
from tacit.privacy.accounting import (
    Approximate,
    Cost,
    Event,
    Gaussian,
    Poisson,
    Pure,
    Visible,
    dominating,
    epsilon,
    gaussian_delta,
    gaussian_epsilon,
    noise_multiplier,
    poisson_epsilon,
    pure_schedule,
    visible_delta,
    visible_epsilon,
)
from tacit.privacy.bracket import bracket, rounding
from tacit.privacy.budget import Budget
from tacit.privacy.calibration import least
from tacit.privacy.composition import loss_distribution
from tacit.privacy.events import counted

RUNS: dict[str, list[Event]] = {
    "poisson": [Poisson(0.1, 2.0)] * 100,
    "rare": [Poisson(0.01, 1.0)] * 1000,
    "replace": [Poisson(0.1, 2.0, "replace")] * 100,
    "visible": [Visible(0.1, 0.5)] * 100,
    "pure": [Pure(0.1)] * 50,
    "approximate": [Approximate(0.1, 1e-7)] * 20,
    "all kinds": [
        *[Poisson(0.1, 2.0)] * 50,
        *[Visible(0.2, 0.3)] * 10,
        Gaussian(0.3),
        Pure(0.2),
        Approximate(0.1, 1e-7),
    ],
}

parts: st.SearchStrategy[Event] = st.one_of(
    st.builds(Poisson, st.floats(0.001, 1.0), st.floats(0.6, 5.0)),
    st.builds(Visible, st.floats(0.01, 1.0), st.floats(0.05, 1.0)),
    st.builds(Gaussian, st.floats(0.05, 1.0)),
    st.builds(Pure, st.floats(0.01, 1.0)),
)


# --- kinds together ------------------------------------------------------------------------------


def test_a_pure_and_a_gaussian_release_are_their_losses_added() -> None:
    """δ(ε) = p δ_GDP(ε − ε₀; μ) + (1 − p) δ_GDP(ε + ε₀; μ), p = 1/(1 + e^−ε₀): no δ is split."""
    plus = 1 / (1 + math.exp(-0.5))
    for at in (0.8, 2.0, 3.5):
        exact = plus * gaussian_delta(at - 0.5, 0.7) + (1 - plus) * gaussian_delta(at + 0.5, 0.7)
        found = epsilon([Pure(0.5), Gaussian(0.7)], exact)
        assert at <= found == pytest.approx(at, rel=1e-5)


@pytest.mark.parametrize("other", [Poisson(1.0, 2.0), Visible(1.0, 0.5)], ids=str)
def test_a_gaussian_under_another_name_adds_up_with_a_gaussian(other: Event) -> None:
    exact = gaussian_epsilon(1e-5, math.hypot(0.5, 0.3))
    assert exact <= epsilon([other, Gaussian(0.3)], 1e-5) * (1 + 1e-12)
    assert epsilon([other, Gaussian(0.3)], 1e-5) == pytest.approx(exact, rel=1e-5)


def test_replace_counts_twice_in_a_mixture_too() -> None:
    both = epsilon([Poisson(1.0, 2.0, "replace"), Gaussian(0.3)], 1e-5)
    assert both == pytest.approx(gaussian_epsilon(1e-5, math.hypot(1.0, 0.3)), rel=1e-5)


def test_the_worse_order_of_two_neighbours_counts() -> None:
    """Of a rarely sampled release one order is far worse; what is added keeps it so."""
    events: list[Event] = [Poisson(0.01, 0.5), Gaussian(0.2)]
    orders = loss_distribution(counted(events))
    remove, add = (
        pld.PrivacyLossDistribution(part).get_epsilon_for_delta(1e-5)
        for part in (orders._pmf_remove, orders._pmf_add)
    )
    assert max(remove, add) > 1.5 * min(remove, add)
    assert epsilon(events, 1e-5) == pytest.approx(max(remove, add), rel=1e-6)


def test_poisson_events_with_other_neighbours_do_not_mix() -> None:
    with pytest.raises(InvalidInput, match="same neighbours"):
        epsilon([Poisson(0.1, 2.0), Poisson(0.1, 2.0, "replace")], 1e-5)


def test_without_delta_only_pure_releases_have_an_epsilon() -> None:
    assert epsilon([Pure(0.1), Pure(0.2)], 0.0) == pytest.approx(0.3)
    assert visible_epsilon(0.0, 0.1, 0.5, 10) == math.inf
    others: list[Event] = [Gaussian(0.1), Poisson(0.1, 2.0), Visible(0.1, 0.5)]
    for event in (*others, Approximate(0.1, 1e-9)):
        assert epsilon([event, Pure(0.1)], 0.0) == math.inf


def test_events_that_reveal_nothing_cost_nothing() -> None:
    null: list[Event] = [Gaussian(0.0), Pure(0.0), Approximate(0.0, 0.0)]
    null += [Poisson(0.0, 1.0), Visible(0.3, 0.0)]
    assert epsilon(null, 0.0) == epsilon([], 1e-5) == 0.0
    assert epsilon([*null, Gaussian(0.3)], 1e-5) == gaussian_epsilon(1e-5, 0.3)


def test_a_delta_within_the_rounding_of_the_transform_gets_no_amplification() -> None:
    assert poisson_epsilon(0.1, 2.0, 1, 1e-12) == gaussian_epsilon(1e-12, 0.5)


def test_sampling_that_hardly_ever_happens_is_cheap_and_a_huge_run_is_finite() -> None:
    assert poisson_epsilon(1e-7, 0.5, 10, 1e-5) == 0.0
    huge = poisson_epsilon(0.1, 0.1, 100, 1e-5)
    assert 500 < huge <= gaussian_epsilon(1e-5, 100.0)


def test_losses_too_large_for_a_grid_are_added_plainly() -> None:
    assert epsilon([Pure(1e5), Pure(1e6)], 1e-5) == 1.1e6
    assert epsilon([Poisson(0.1, 1e-3)], 1e-5) == gaussian_epsilon(1e-5, 1e3)
    assert dominating([Poisson(0.1, 1e-3)] * 4, 1e-5) == (2e3, 0.0)
    assert dominating([Pure(1e5)], 1e-5)[0] == math.inf


# --- our own bracket -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNS)
def test_the_accountant_answers_inside_our_bracket(name: str) -> None:
    counts = counted(RUNS[name])
    low, high = bracket(counts, 1e-5)
    assert low <= epsilon(RUNS[name], 1e-5) <= high
    assert high - low <= 0.03 * high


@given(st.lists(parts, min_size=1, max_size=3), st.integers(1, 30), st.floats(1e-8, 1e-2))
@settings(max_examples=12, deadline=None)
def test_the_bracket_holds_for_any_run(events: list[Event], times: int, delta: float) -> None:
    low, high = bracket(counted(events * times), delta)
    assert low <= epsilon(events * times, delta) <= high * (1 + 1e-9)


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_an_accountant_outside_the_bracket_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    right = composition.composed_epsilon
    composition.run_epsilon.cache_clear()
    monkeypatch.setattr(composition, "composed_epsilon", lambda *a: factor * right(*a))
    try:
        found = epsilon(RUNS["poisson"], 1e-5)
    finally:
        composition.run_epsilon.cache_clear()
    assert 2.3374 <= found <= 2.3374 * 1.01


def test_the_bracket_of_gaussians_holds_the_formula() -> None:
    for mu in (0.01, 0.5, 3.0):
        low, high = bracket(((Gaussian(mu), 1),), 1e-5)
        assert low <= gaussian_epsilon(1e-5, mu) <= high <= low + 1e-3 * mu


def test_what_is_too_large_for_the_grid_has_no_bracket() -> None:
    for counts in (((Pure(700.0), 1),), ((Gaussian(40.0), 1),), ((Gaussian(0.01), 10**6),)):
        assert bracket(counts, 1e-5) == (0.0, math.inf)
    assert bracket(((Gaussian(30.0), 4),), 1e-5) == (0.0, math.inf)


def test_the_slack_covers_the_rounding_of_the_transform() -> None:
    """The same distribution, convolved without FFT: sums of positive numbers."""
    for rate, multiplier, rounds in [(0.1, 2.0, 64), (0.01, 1.0, 1024)]:
        one = pld.from_gaussian_mechanism(
            multiplier, sampling_prob=rate, value_discretization_interval=0.01
        )
        found = one.self_compose(rounds)
        for before, after in ((one._pmf_remove, found._pmf_remove), (one._pmf_add, found._pmf_add)):
            start, mass, infinite = _doubled(before.to_dense_pmf(), rounds)
            losses = 0.01 * (start + np.arange(len(mass)))
            for at in (0.0, 1.0, 3.0):
                exact = infinite + mass @ np.maximum(-np.expm1(at - losses), 0.0)
                error = abs(after.get_delta_for_epsilon(at) - exact)
                assert error < rounding(((Poisson(rate, multiplier), rounds),)) / 3


def test_delta_is_asked_for_less_the_slack() -> None:
    counts = counted(RUNS["rare"])
    found = composition.composed_epsilon(counts, 1e-9)
    assert found >= loss_distribution(counts).get_epsilon_for_delta(1e-9 - rounding(counts))
    assert found > loss_distribution(counts).get_epsilon_for_delta(1e-9) * (1 + 1e-6)


def _doubled(dense: Any, rounds: int) -> tuple[int, np.ndarray, float]:
    start, mass = dense._lower_loss, dense._probs
    for _ in range(rounds.bit_length() - 1):
        mass = np.convolve(mass, mass)
        kept = np.flatnonzero(mass > 1e-30)
        start, mass = 2 * start + kept[0], mass[kept[0] : kept[-1] + 1]
    return start, mass, -math.expm1(rounds * math.log1p(-dense._infinity_mass))


# --- a run as a Gaussian -------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("delta", [5e-6, 1.2e-5])
def test_a_run_is_dominated_everywhere_and_by_no_smaller_mu(name: str, delta: float) -> None:
    mu, delta0 = dominating(RUNS[name], delta)
    fine = loss_distribution(counted(RUNS[name]))
    at = np.unique(np.concatenate([np.linspace(0.0, 12.0, 20_011), np.geomspace(1e-6, 30, 2000)]))
    run = np.asarray(fine.get_delta_for_epsilon(at))

    def bound(mu: float) -> np.ndarray:
        return np.array([(1 - delta0) * gaussian_delta(e, mu) + delta0 for e in at])

    assert np.all(run <= bound(mu) * (1 + 1e-12))
    assert np.any(run > bound(mu * 0.99))


@given(st.floats(0.0, 20.0))
@settings(deadline=None)
def test_a_run_that_everybody_sees_is_dominated_by_its_formula(at: float) -> None:
    mu, delta0 = dominating(RUNS["visible"], 1e-5)
    bound = (1 - delta0) * gaussian_delta(at, mu) + delta0
    assert visible_delta(at, 0.1, 0.5, 100) <= bound * (1 + 1e-12)


def test_a_pure_release_is_dominated_where_its_curve_has_its_corner() -> None:
    """Randomised response of ε touches G_μ at its corner: 2Φ(μ/2) − 1 = tanh(ε/2)."""
    mu, _ = dominating([Pure(1.0)], 1e-9)
    assert gaussian_delta(0.0, mu) == pytest.approx(math.tanh(0.5), rel=1e-3)


def test_gaussians_dominate_themselves_and_cost_no_delta() -> None:
    mu, lost = dominating([Gaussian(0.3), Gaussian(0.4)], 1e-5)
    assert mu == pytest.approx(0.5)
    assert lost == 0
    assert dominating([], 1e-5) == (0.0, 0.0)


def test_what_a_run_may_reveal_for_certain_is_part_of_its_delta0() -> None:
    mu, delta0 = dominating([*RUNS["poisson"], Approximate(0.1, 2e-6)], 1e-5)
    assert 2e-6 < delta0 < 1e-5
    assert Cost(mu * mu, 0.0, delta0).epsilon_at(1e-5) < 2.6
    assert dominating([*RUNS["poisson"], Approximate(0.1, 2e-5)], 1e-5)[0] == math.inf
    assert dominating(RUNS["poisson"], 1e-14)[0] == math.inf


def test_without_a_delta0_the_tail_of_a_sampled_gaussian_is_the_unsampled_one() -> None:
    costs = [dominating(RUNS["poisson"], delta)[0] for delta in (1e-6, 1e-8, 1e-10)]
    assert costs[0] < costs[1] < costs[2] < 5.0


# --- how much noise ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "rounds", "budget"),
    [
        (0.1, 100, Budget(1.0, 1e-5, neighbours="zero-out")),
        (0.01, 1000, Budget(2.0, 1e-6, neighbours="zero-out")),
        (0.5, 10, Budget(8.0, 1e-5)),
    ],
    ids=str,
)
def test_noise_is_calibrated_in_few_evaluations(
    monkeypatch: pytest.MonkeyPatch, rate: float, rounds: int, budget: Budget
) -> None:
    asked: list[float] = []

    def counting(counts: Any, delta: float) -> float:
        asked.append(composition.run_epsilon(counts, delta))
        return asked[-1]

    monkeypatch.setattr(calibration, "run_epsilon", counting)

    def event(multiplier: float) -> Poisson:
        return Poisson(rate, multiplier, budget.neighbours)

    found = noise_multiplier(event, rounds, budget)
    assert len(asked) <= 4
    assert epsilon([event(found)] * rounds, budget.delta) <= budget.epsilon
    assert epsilon([event(found * (1 - 1.01e-4))] * rounds, budget.delta) > budget.epsilon


def test_noise_for_gaussian_rounds_is_exact_and_for_nothing_is_the_least() -> None:
    budget = Budget(1.0)
    found = noise_multiplier(lambda z: Gaussian(1 / z), 4, budget)
    assert gaussian_epsilon(1e-5, 2 / found) == pytest.approx(1.0, rel=1e-9)
    assert gaussian_epsilon(1e-5, 2 / found) <= 1.0
    seen = noise_multiplier(lambda z: Visible(0.1, 1 / z), 100, budget)
    assert visible_epsilon(1e-5, 0.1, 1 / seen, 100) <= 1.0
    assert noise_multiplier(lambda z: Poisson(1e-7, z), 10, budget) == 0.05
    assert noise_multiplier(lambda z: Gaussian(1 / z), 4, Budget(1.0, 0.0)) == math.inf


@pytest.mark.parametrize("epsilon", [400.0, 1000.0])
def test_budgets_that_hide_nothing_are_calibrated_too(epsilon: float) -> None:
    found = noise_multiplier(lambda z: Poisson(0.1, z), 1, Budget(epsilon))
    assert composition.run_epsilon(((Poisson(0.1, found), 1),), 1e-5) <= epsilon


@given(st.floats(0.3, 6.0), st.floats(-3.0, 3.0), st.floats(-2.0, 2.0))
def test_the_least_argument_is_found_whatever_the_power(
    power: float, log_root: float, log_guess: float
) -> None:
    root = math.exp(log_root)
    found = least(lambda x: x**-power, root**-power, math.exp(log_guess), tolerance=1e-6)
    assert root * (1 - 1e-12) <= found <= root * (1 + 1.01e-6)


def test_a_pure_schedule_is_never_below_plain_addition() -> None:
    for weights in ([1.0, 1.0], [1.0, 0.0], [3.0, 1.0, 1.0]):
        found = pure_schedule(weights, Budget(2.0))
        assert np.all(found >= 2.0 * np.array(weights) / sum(weights) * (1 - 1e-12))


@pytest.mark.parametrize(("rate", "multiplier"), [(0.2, 3.0), (0.01, 1.0), (0.9, 5.0), (1.0, 2.0)])
def test_curves_of_samples_are_those_of_dp_accounting(rate: float, multiplier: float) -> None:
    step, at = 1e-3, np.linspace(-1.0, 3.0, 41)
    ours = composition._losses(Poisson(rate, multiplier), step)
    theirs = pld.from_gaussian_mechanism(
        multiplier, sampling_prob=rate, value_discretization_interval=step
    )
    for order in ("_pmf_remove", "_pmf_add"):  # the public curve is the worse of the two
        found, expected = (
            getattr(each, order).get_delta_for_epsilon(at) for each in (ours, theirs)
        )
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11)
