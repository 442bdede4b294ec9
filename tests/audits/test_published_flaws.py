"""Every published flaw is refuted at its setting, and its repair stands."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from tacit.arrays import FloatArray
from tacit.audits import hidden_state, low_bits, measured_bounds, output_noise, participation
from tacit.audits.cases import Audit, Case, Settings
from tacit.audits.published_flaws import published_flaws
from tacit.audits.single_releases import smallest_eigenvalue
from tacit.audits.wishart import wishart_noise
from tacit.privacy.accounting import Pure, pure_epsilon
from tacit.privacy.auditing import AuditResult, Side, audit

ALPHA = 1e-6
HALL = {found.name: found for found in published_flaws()}
CASES = {case.name: case for found in published_flaws() for case in found.cases}

# The numbers of docs/audits.md, or a little less: the seed decides the last digit.
AT_LEAST = {
    "A, as published": 5.3,
    "A′, as published": 6.5,
    "C, as published": 9.0,
    "D, as published, 50 rounds": 3.5,
    "D, as published, 200 rounds": 6.9,
    "E, as published": 5.6,
    "F, as published, Gaussian data": 1.08,
    "F, as published, heavy-tailed data": 2.5,
    "G, floating-point Laplace": 10.0,
    "G, floating-point Gaussian": 8.6,
}


def found(name: str, settings: Settings | None = None) -> AuditResult:
    return CASES[name].audit(settings or Settings(seed=0))


@pytest.mark.parametrize("name", AT_LEAST)
def test_each_published_form_is_refuted(name: str) -> None:
    result = found(name)
    assert result.verdict.startswith("REFUTED")
    assert not result.claim.proven
    assert result.epsilon_low >= AT_LEAST[name]
    assert CASES[name].as_expected(result)


def test_every_flawed_case_has_a_number_to_reach() -> None:
    assert {case.name for case in CASES.values() if case.flawed} == set(AT_LEAST)


@pytest.mark.parametrize("flaw", HALL.values(), ids=HALL.keys())
def test_each_flaw_has_a_repair(flaw: Audit) -> None:
    assert flaw.published
    assert any(not case.flawed for case in flaw.cases)


REPAIRED = [case for case in CASES.values() if not case.flawed]


@pytest.mark.parametrize("case", REPAIRED, ids=lambda case: case.name)
def test_each_repaired_form_stands(case: Case) -> None:
    slow = case.name.startswith("A")  # real releases, one at a time
    settings = Settings(seed=0, confidence=1 - ALPHA, samples=2000 if slow else None)
    result = case.audit(settings)
    assert result.verdict == "consistent"
    assert result.claim.proven


# --- the derivations -----------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [1, 5])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_wishart_noise_leaves_the_support_as_derived(dim: int, epsilon: float) -> None:
    """P(λ_min(E − wwᵀ) < 0) = 1 − e^−ε whatever d."""
    noise = wishart_noise(20_000, dim, epsilon, np.random.default_rng(0))
    moved = noise.copy()
    moved[:, 0, 0] -= 1.0
    hits = int((smallest_eigenvalue(moved) < 0).sum())
    assert stats.binomtest(hits, 20_000, -math.expm1(-epsilon)).pvalue > ALPHA
    assert smallest_eigenvalue(noise).min() > 0


def test_a_classifier_on_raw_entries_does_not_see_what_the_eigenvalue_sees() -> None:
    """Statistics must know the likelihood."""

    def entries(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
        S = wishart_noise(n, 5, 0.1, rng)
        S[:, 0, 0] += 1.0 - side
        return S[:, *np.triu_indices(5)]

    blunt = audit(entries, Pure(0.1), samples=10_000, seed=0)
    assert blunt.epsilon_low < 1.0
    assert found("A, as published").epsilon_low > 5.0


def test_the_inverted_noise_reaches_the_epsilon_derived_and_never_more() -> None:
    """4K²/ε = 40 at ε = 0.1; found at 95% confidence within what so many draws can show."""
    derived = 4 * output_noise.CLIP**2 / 0.1
    assert 5.0 < found("C, as published").epsilon_low < derived


def test_hidden_state_adds_up_to_what_lemma_1_forgets() -> None:
    """The two q of an actual run of Algorithm 1 differ by s_k, not by S₁."""
    q = {}
    for target in hidden_state.TARGET:
        value = np.zeros(1)
        drift = hidden_state.STEP * (hidden_state.EXAMPLES - 1) / hidden_state.EXAMPLES
        for k in range(50):
            value = value - hidden_state.STEP * hidden_state.gradient(value - k * drift, target)
        q[target] = float(value[0])
    assert abs(q[1.0] - q[-1.0]) == pytest.approx(hidden_state.accumulated(50))
    assert hidden_state.accumulated(50) == pytest.approx(50 * hidden_state.accumulated(1))
    limit = 2 * hidden_state.STEP / hidden_state.EXAMPLES / 0.1
    assert hidden_state.accumulated(10_000, decay=0.1) == pytest.approx(limit)


def test_even_one_message_exceeds_everything_before_it_composed() -> None:
    """The last message alone beats 0.2, and what 50 such messages would compose to at δ = 0 is 10:
    the flaw is not a matter of composition."""
    assert found("D, as published, 50 rounds").epsilon_low > 15 * 0.2
    assert pure_epsilon([0.2] * 50, 0.0) == pytest.approx(10.0)


def test_amplification_and_truth_are_the_known_answers() -> None:
    assert participation.amplified_epsilon(1e-3) == pytest.approx(3.717, abs=1e-3)
    assert participation.true_epsilon(1e-3) == pytest.approx(5.998, abs=1e-3)
    result = found("E, as published")
    assert result.epsilon_low > participation.amplified_epsilon(1e-3)
    assert "in a stratum of probability 0.1" in result.event


def test_the_others_number_tells_who_took_part() -> None:
    """k − 1 of the others: the target was drawn. Under Poisson their number says nothing."""
    rng = np.random.default_rng(0)
    n, k, m = 50_000, participation.COHORT, participation.TASKS
    others = rng.hypergeometric(m - 1, 1, k, size=n)
    took_part = k - others
    assert set(np.unique(took_part)) == {0, 1}
    assert stats.binomtest(int(took_part.sum()), n, k / m).pvalue > ALPHA


def test_the_next_user_is_outside_by_the_range() -> None:
    sample = np.array([-1.0, 2.0])
    assert measured_bounds.excess(sample, np.array([0.0])) == 1.0
    assert measured_bounds.excess(sample, np.array([5.0])) == 2.0
    assert measured_bounds.excess(sample, np.array([-4.0])) == 2.0


# --- low bits ------------------------------------------------------------------------------------


def test_lowest_bit_is_the_finest_grid_that_holds_a_number() -> None:
    rng = np.random.default_rng(0)
    y = rng.random(1000) / 4
    bit = low_bits.lowest_bit(y)
    assert np.all(np.ldexp(y, -bit.astype(int)) % 2 == 1)
    tiny = np.array([5e-324, 2.0**-1022])
    assert low_bits.lowest_bit(tiny).tolist() == [-1074.0, -1022.0]


def test_the_event_is_that_of_the_specification() -> None:
    y = np.random.default_rng(1).laplace(size=5000)
    by_definition = (y > 0) & (y < 0.25) & (np.mod(y * 2.0**53, 1.0) != 0)
    assert np.array_equal(low_bits.LOW_BITS.holds(low_bits.lowest_bit(y)), by_definition)


def test_releases_side_by_side_are_what_a_release_is() -> None:
    from tacit.privacy.mechanisms import LaplaceSum

    many = low_bits.releases(LaplaceSum, 2.0, 1.0, np.random.default_rng(0), 20_000)
    assert stats.kstest(many, stats.laplace(loc=1.0, scale=2.0).cdf).pvalue > ALPHA
    secure = low_bits.releases(LaplaceSum, 2.0, 1.0, None, 20_000)
    assert stats.kstest(secure, stats.laplace(loc=1.0, scale=2.0).cdf).pvalue > ALPHA


def test_opendp_survives_the_same_test() -> None:
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l1_distance(T=float)
    release = dp.m.make_laplace(*space, scale=1.0)

    def draw(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
        return low_bits.lowest_bit(np.asarray(release([float(side)] * n)))

    result = audit(
        draw,
        Pure(1.0),
        samples=5_000,
        events=low_bits.LOW_BITS,
        confidence=1 - ALPHA,
        reproducible=False,
    )
    assert not result.refuted
    assert result.counts[0].hits > 0
    assert result.counts[1].hits > 0


def test_settings_reach_the_claim() -> None:
    result = found("A, as published", Settings(epsilon=1.0, delta=1e-3, samples=2000, seed=1))
    assert (result.claim.epsilon, result.claim.delta) == (1.0, 1e-3)
    assert result.counts[0].trials == 2000
    assert result.counts[1].hits / 2000 == pytest.approx(-math.expm1(-1.0), abs=0.05)
    assert math.isfinite(result.epsilon_low)
