"""The bounds are valid (coverage), sharp, and corrected; broken twins of them are not."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tacit.arrays import FloatArray
from tacit.errors import InvalidInput
from tacit.privacy.accounting import Approximate, Gaussian, Pure, gaussian_mu
from tacit.privacy.auditing import (
    Claim,
    Counts,
    Side,
    above,
    audit,
    audit_exact,
    audit_one_run,
    below,
    bound,
    classifier,
    epsilon_between,
    lower,
    mu_between,
    one_run_epsilon,
    one_run_p_value,
    upper,
)
from tacit.privacy.auditing.regions import best_threshold

ALPHA = 1e-6


def laplace(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
    return np.asarray(side + rng.laplace(size=n))


def gaussian(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
    return np.asarray(side + rng.standard_normal(n))


def too_many(exceeding: int, audits: int, share: float) -> bool:
    """Is the share of bounds that exceed the truth larger than stated, at level ALPHA?"""
    return bool(stats.binomtest(exceeding, audits, share, alternative="greater").pvalue < ALPHA)


# --- one proportion ------------------------------------------------------------------------------


@pytest.mark.parametrize(("hits", "trials"), [(1, 10), (5, 10), (9, 10), (952, 10_000)])
def test_clopper_pearson_is_where_the_tail_is_the_error(hits: int, trials: int) -> None:
    low, high = float(lower(hits, trials, 0.025)), float(upper(hits, trials, 0.025))
    assert stats.binom.sf(hits - 1, trials, low) == pytest.approx(0.025)
    assert stats.binom.cdf(hits, trials, high) == pytest.approx(0.025)


def test_no_hit_and_nothing_but_hits() -> None:
    assert float(lower(0, 100, 0.025)) == 0.0
    assert float(upper(100, 100, 0.025)) == 1.0
    assert float(upper(0, 100, 0.025)) == pytest.approx(1 - 0.025 ** (1 / 100))
    assert float(lower(100, 100, 0.025)) == pytest.approx(0.025 ** (1 / 100))


def test_proportions_agree_with_scipy() -> None:
    found = stats.binomtest(37, 200).proportion_ci(0.95, method="exact")
    assert float(lower(37, 200, 0.025)) == pytest.approx(found.low)
    assert float(upper(37, 200, 0.025)) == pytest.approx(found.high)


# --- two proportions -----------------------------------------------------------------------------


def test_the_number_of_the_specification() -> None:
    found = bound(Claim(Pure(0.1)), Counts(952, 10_000), Counts(0, 10_000), 0.05)
    assert found.epsilon == pytest.approx(5.49, abs=0.005)


def test_delta_is_taken_off_first() -> None:
    assert float(epsilon_between(0.5, 0.1, 0.1)) == pytest.approx(math.log(4))
    assert float(epsilon_between(0.05, 0.01, 0.05)) == 0.0


def test_what_lies_outside_the_event_counts_too() -> None:
    # P(not S) is 0.02 on the first side and 0.5 on the second.
    assert float(epsilon_between(0.98, 0.5)) == pytest.approx(math.log(0.5 / 0.02))


def test_a_stratum_dilutes_delta_only() -> None:
    assert float(epsilon_between(0.5, 0.1, 0.0, 0.1)) == pytest.approx(math.log(5))
    diluted = float(epsilon_between(0.5, 0.1, 1e-2, 0.1))
    assert diluted == pytest.approx(math.log((0.05 - 0.01) / 0.01))


def test_mu_of_two_normals_is_their_distance() -> None:
    for threshold in (-0.5, 0.0, 0.7):
        p, q = stats.norm.sf(threshold - 1.3), stats.norm.sf(threshold)
        assert float(mu_between(p, q)) == pytest.approx(1.3)


def test_counts_that_cannot_be_are_refused() -> None:
    for hits, trials in ((-1, 10), (11, 10), (0, 0)):
        with pytest.raises(InvalidInput, match="hits"):
            Counts(hits, trials)


# --- coverage of the bound itself ----------------------------------------------------------------

AUDITS, TRIALS = 1_000, 1_000


def test_coverage_of_a_fixed_event() -> None:
    """The event at which Laplace noise reaches its ε exactly: the bound has no slack to hide in."""
    rng = np.random.default_rng(0)
    p, q = 0.5, 0.5 * math.exp(-1)
    hits = rng.binomial(TRIALS, p, AUDITS), rng.binomial(TRIALS, q, AUDITS)
    found = epsilon_between(lower(hits[0], TRIALS, 0.025), upper(hits[1], TRIALS, 0.025))
    assert not too_many(int((found > 1).sum()), AUDITS, 0.05)
    assert np.median(found) > 0.7
    naive = epsilon_between(hits[0] / TRIALS, hits[1] / TRIALS)  # the broken twin: no limits
    assert too_many(int((naive > 1).sum()), AUDITS, 0.05)


def test_coverage_of_mu() -> None:
    rng = np.random.default_rng(1)
    p, q = stats.norm.cdf(0.5), stats.norm.cdf(-0.5)
    hits = rng.binomial(TRIALS, p, AUDITS), rng.binomial(TRIALS, q, AUDITS)
    found = mu_between(lower(hits[0], TRIALS, 0.025), upper(hits[1], TRIALS, 0.025))
    assert not too_many(int((found > 1).sum()), AUDITS, 0.05)
    naive = mu_between(hits[0] / TRIALS, hits[1] / TRIALS)
    assert too_many(int((naive > 1).sum()), AUDITS, 0.05)


def test_coverage_at_a_low_confidence() -> None:
    """At 50% the two limits are wrong together nearly as often as stated, and not more."""
    rng = np.random.default_rng(2)
    p, q = 0.5, 0.5 * math.exp(-1)
    hits = rng.binomial(TRIALS, p, AUDITS), rng.binomial(TRIALS, q, AUDITS)
    found = epsilon_between(lower(hits[0], TRIALS, 0.25), upper(hits[1], TRIALS, 0.25))
    assert not too_many(int((found > 1).sum()), AUDITS, 0.5)


def test_coverage_of_whole_audits_with_a_searched_event() -> None:
    found = [audit(laplace, Pure(1.0), samples=400, seed=seed) for seed in range(AUDITS)]
    assert not too_many(sum(one.refuted for one in found), AUDITS, 0.05)


def test_an_event_searched_on_the_counted_draws_is_no_bound() -> None:
    """The broken twin: the bins that happen to hold more of one side, where both are the same."""
    rng, n = np.random.default_rng(3), 200
    bins = rng.multinomial(n, np.full(30, 1 / 30), size=(2, AUDITS))  # (sides, audits, bins)
    chosen = bins[0] > bins[1]
    hits = (bins * chosen).sum(axis=-1)
    found = epsilon_between(lower(hits[0], n, 0.025), upper(hits[1], n, 0.025))
    assert too_many(int((found > 0).sum()), AUDITS, 0.05)
    fresh = rng.multinomial(n, np.full(30, 1 / 30), size=(2, AUDITS))  # counted on others: valid
    hits = (fresh * chosen).sum(axis=-1)
    found = epsilon_between(lower(hits[0], n, 0.025), upper(hits[1], n, 0.025))
    assert not too_many(int((found > 0).sum()), AUDITS, 0.05)


def test_coverage_of_one_run() -> None:
    """Randomised response reaches the bound exactly: each guess is right with e^ε/(1 + e^ε)."""
    rng = np.random.default_rng(4)
    correct = rng.binomial(100, 1 / (1 + math.exp(-1)), AUDITS)
    bounds = {v: one_run_epsilon(100, 100, int(v), 0.0) for v in np.unique(correct)}
    assert not too_many(sum(bounds[v] > 1 for v in correct), AUDITS, 0.05)
    assert max(bounds.values()) > 0.8


# --- multiplicity --------------------------------------------------------------------------------


def test_several_events_share_the_error() -> None:
    one = audit(laplace, Pure(1.0), events=above(1.0, 1), seed=0, samples=1000)
    two = audit(laplace, Pure(1.0), events=[above(1.0, 1), above(9.0, 1)], seed=0, samples=1000)
    assert two.epsilon_low < one.epsilon_low
    same = audit(laplace, Pure(1.0), events=above(1.0, 1), seed=0, samples=1000, confidence=0.975)
    assert two.epsilon_low == same.epsilon_low
    assert "corrected" in two.event


def test_both_directions_share_the_error() -> None:
    both = audit(laplace, Pure(1.0), events=above(1.0, None), seed=0, samples=1000)
    one = audit(laplace, Pure(1.0), events=above(1.0, 1), seed=0, samples=1000, confidence=0.975)
    assert both.epsilon_low == one.epsilon_low
    wrong_way = audit(laplace, Pure(1.0), events=below(0.0, 1), seed=0, samples=1000)
    assert wrong_way.epsilon_low == 0.0


# --- searching -----------------------------------------------------------------------------------


def test_the_search_finds_either_side() -> None:
    rng = np.random.default_rng(0)
    low, high = rng.laplace(size=5000), 1 + rng.laplace(size=5000)
    assert best_threshold(Claim(Pure(1.0)), low, high, 0.05).under == 1
    assert best_threshold(Claim(Pure(1.0)), high, low, 0.05).under == 0


def test_luck_in_the_tails_is_not_chosen() -> None:
    """With nothing to find, the search keeps to thresholds that have something to count."""
    rng = np.random.default_rng(1)
    first, second = 0.1 * rng.laplace(size=(2, 50_000))
    second += 0.02
    chosen = best_threshold(Claim(Pure(0.2)), first, second, 0.05)
    assert 0.2 < float(np.mean(chosen.holds(second))) < 0.8


def test_a_search_beats_half_of_the_truth() -> None:
    assert audit(laplace, Pure(1.0), seed=0).epsilon_low > 0.85


def test_a_classifier_finds_a_shift_in_one_of_many_features() -> None:
    def draw(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
        values = rng.standard_normal((n, 8))
        values[:, 3] += 1.0 * side
        return values

    found = audit(draw, Gaussian(1.0), seed=0, samples=20_000)
    assert 0.8 < (found.mu_low or 0) <= 1.0


def test_a_classifier_sees_a_difference_in_variance() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal((2000, 1)), 3 * rng.standard_normal((2000, 1))
    score = classifier(first, second)
    assert np.mean(score(first)) > np.mean(score(second))


def test_fixed_events_refuse_features() -> None:
    with pytest.raises(InvalidInput, match="features"):
        audit(lambda side, rng, n: rng.standard_normal((n, 2)), Pure(1.0), events=above(0.0))


# --- sharpness -----------------------------------------------------------------------------------


def test_sharp_on_laplace() -> None:
    found = audit(laplace, Pure(1.0), events=above(1.0, 1), samples=10_000, seed=1)
    assert 0.9 < found.epsilon_low <= 1.0


def test_sharp_on_a_gaussian_in_the_mu_form() -> None:
    mu = gaussian_mu(1.0, 1e-5)

    def draw(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
        return np.asarray(mu * side + rng.standard_normal(n))

    found = audit(draw, Gaussian(mu), events=above(mu / 2, 1), samples=10_000, seed=1)
    assert 0.7 <= found.epsilon_low <= 1.0
    assert not found.refuted


def test_a_factor_of_two_is_caught() -> None:
    def halved(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
        return np.asarray(side + 0.5 * rng.laplace(size=n))

    assert audit(halved, Pure(1.0), samples=4000, seed=0).refuted
    assert not audit(laplace, Pure(1.0), samples=4000, seed=0).refuted


def test_mu_refutes_a_claim_of_mu_and_no_claim_of_epsilon() -> None:
    of_mu = audit(gaussian, Gaussian(0.5), events=above(0.5, 1), seed=0)
    assert of_mu.refuted
    assert of_mu.mu_low is not None
    assert of_mu.verdict.startswith("REFUTED: the claim μ=0.5 is false, at least 0.9")
    of_epsilon = audit(gaussian, Approximate(5.0, 1e-5), events=above(0.5, 1), seed=0)
    assert of_epsilon.mu_low is None
    assert not of_epsilon.refuted


# --- the result ----------------------------------------------------------------------------------


def test_the_verdict_is_a_sentence() -> None:
    found = audit(laplace, Pure(0.1), events=above(1.0, 1), samples=10_000, seed=0)
    assert found.verdict.startswith("REFUTED: the claim ε=0.1 is false, at least 0.9")
    assert found.verdict.endswith(" with 95% confidence")
    assert audit(laplace, Pure(2.0), events=above(1.0, 1), seed=0).verdict == "consistent"


def test_a_claim_is_rounded_up_and_a_bound_down() -> None:
    found = audit(laplace, Pure(0.100001), events=above(1.0, 1), samples=10_000, seed=0)
    exact = replace(found, epsilon_low=0.98765, mu_low=1.23456)
    assert "claim ε=0.101 is false, at least 0.987" in exact.verdict
    assert str(exact.claim).startswith("ε = 0.1001")
    assert any("ε ≥ 0.9876 (μ ≥ 1.234)" in line for line in exact.lines())


def test_a_result_is_json_and_says_the_claim_in_full() -> None:
    claim = Claim(Approximate(1.0, 1e-3), unit="a task", adversary="all others", proven=False)
    found = audit(laplace, claim, seed=0, samples=100)
    kept = json.loads(json.dumps(found.to_dict()))
    assert kept["claim"]["delta"] == 1e-3
    assert "claimed, not proven" in kept["claim"]["text"]
    assert kept["counts"][0]["trials"] == 50
    assert sum(kept["histogram"]["first"]) == 50
    assert "histogram" not in repr(found)
    assert all(word in "\n".join(found.lines()) for word in ("a task", "all others", "seed"))


def test_a_seed_repeats_an_audit_and_secure_noise_has_none() -> None:
    first, second = (audit(laplace, Pure(1.0), seed=5, samples=100) for _ in "ab")
    assert first == second
    drawn = audit(laplace, Pure(1.0), samples=100)
    assert drawn.seed is not None
    assert audit(laplace, Pure(1.0), samples=100, seed=drawn.seed) == drawn
    assert audit(laplace, Pure(1.0), samples=100, reproducible=False).seed is None


def test_progress_ends_at_the_total() -> None:
    seen: list[tuple[int, int]] = []
    audit(laplace, Pure(1.0), samples=1001, seed=0, progress=lambda *now: seen.append(now))
    assert seen[-1] == (2002, 2002)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_constant_and_infinite_statistics_are_audited() -> None:
    constant = audit(lambda side, rng, n: np.zeros(n), Pure(1.0), samples=100, seed=0)
    assert constant.epsilon_low == 0.0
    perfect = audit(
        lambda side, rng, n: np.full(n, np.inf if side else -np.inf),
        Pure(1.0),
        samples=2000,
        seed=0,
    )
    assert perfect.refuted


def test_an_exact_ratio_needs_no_draws() -> None:
    found = audit_exact(1.5, Claim(Pure(1.0)), pair="p", statistic="s")
    assert found.refuted
    assert found.verdict == "REFUTED: the claim ε=1 is false, at least 1.5 exactly"
    assert not audit_exact(1.0, Claim(Pure(1.0)), pair="p", statistic="s").refuted


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"samples": 19}, "samples"),
        ({"confidence": 1.0}, "confidence"),
        ({"stratum": 0.0}, "stratum"),
    ],
)
def test_bad_settings_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        audit(laplace, Pure(1.0), **wrong)


def test_bad_draws_are_refused() -> None:
    for draw in (
        lambda side, rng, n: np.zeros(n + 1),
        lambda side, rng, n: np.full(n, np.nan),
        lambda side, rng, n: np.zeros((n, 1, 1)),
    ):
        with pytest.raises(InvalidInput, match="must return"):
            audit(draw, Pure(1.0), samples=40)


def test_a_stratum_cannot_refute_mu() -> None:
    with pytest.raises(InvalidInput, match="stratum"):
        audit(gaussian, Gaussian(1.0), stratum=0.5)


# --- one run -------------------------------------------------------------------------------------


def test_one_run_p_value_is_a_binomial_tail_without_delta() -> None:
    for v in (0, 3, 10):
        expected = stats.binom.sf(v - 1, 10, 1 / (1 + math.exp(-0.5)))
        assert one_run_p_value(20, 10, v, 0.5, 0.0) == pytest.approx(expected)


def test_one_run_p_value_pays_for_delta() -> None:
    free = one_run_p_value(1000, 100, 80, 0.5, 0.0)
    paid = one_run_p_value(1000, 100, 80, 0.5, 1e-5)
    assert free < paid < free + 2 * 1000 * 1e-5


def test_guesses_without_knowledge_refute_nothing() -> None:
    rng = np.random.default_rng(0)
    coins = rng.random(400) < 0.5
    found = audit_one_run(rng.standard_normal(400), coins, Claim(Pure(0.1)), guesses=200)
    assert found.epsilon_low == 0.0


def test_one_run_finds_randomised_response() -> None:
    rng = np.random.default_rng(1)
    coins = rng.random(2000) < 0.5
    truth = rng.random(2000) < 1 / (1 + math.exp(-2))
    scores = np.where(coins == truth, 1.0, -1.0) + 1e-3 * rng.standard_normal(2000)
    found = audit_one_run(scores, coins, Claim(Pure(2.0)), guesses=2000)
    assert 1.7 < found.epsilon_low <= 2.0


def test_one_run_refuses_more_guesses_than_canaries() -> None:
    with pytest.raises(InvalidInput, match="guesses"):
        audit_one_run(np.zeros(3), np.zeros(3, dtype=bool), Claim(Pure(1.0)), guesses=4)
    with pytest.raises(InvalidInput, match="<="):
        one_run_p_value(3, 4, 2, 1.0, 0.0)
