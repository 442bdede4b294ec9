"""A federated round is what its sampler says; the three mistakes are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("torch")

from tacit.audits import cohort_sums, round_isolation
from tacit.audits.cases import Case, Settings
from tacit.audits.named import every_audit
from tacit.audits.task_isolation import moved
from tacit.neural.cohort import CohortSum, Updates
from tacit.neural.sampling import Everyone

ALPHA = 1e-6
CASES = {case.name: case for audit in cohort_sums.cohort_sum_audits() for case in audit.cases}


FEWER = {"CohortSum, update and bit as two events": 6_000}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_each_round_is_what_it_says_and_each_mistake_is_refuted(case: Case) -> None:
    fewer = 800 if "relation" in case.name else FEWER.get(case.name, 1_000)
    fewer = 100 if case.name.startswith("isolation") else fewer
    confidence = 0.95 if case.flawed else 1 - ALPHA
    result = case.audit(Settings(seed=0, samples=fewer, confidence=confidence))
    assert case.as_expected(result), result.lines()
    assert result.claim.proven == (not case.flawed)


def test_the_stated_epsilons_are_the_accountants() -> None:
    for subject, stated in [
        (cohort_sums.POISSON, cohort_sums.AMPLIFIED),
        (cohort_sums.FIXED, cohort_sums.VISIBLE),
        (cohort_sums.BIT, cohort_sums.ONCE),
        (cohort_sums.BIT_APART, cohort_sums.TWICE),
    ]:
        counted = cohort_sums.claimed_epsilon(subject.claimed, cohort_sums.DELTA)
        assert counted == pytest.approx(stated, abs=1e-3)


@pytest.mark.parametrize(
    "subject",
    [
        cohort_sums.POISSON,
        cohort_sums.FIXED,
        cohort_sums.BIT,
        cohort_sums.RELATED,
        cohort_sums.UNCOVERED,
    ],
)
def test_the_statistic_has_the_law_that_the_threshold_assumes(
    subject: cohort_sums.AuditedRound,
) -> None:
    rng = np.random.default_rng(1)
    without = cohort_sums.statistics(subject, 1, rng, 500)
    assert stats.kstest(without, stats.norm.cdf).pvalue > ALPHA
    with_target = cohort_sums.statistics(subject, 0, rng, 500)
    rate = cohort_sums.RATE if subject.sampler == cohort_sums.SECRET else 1.0

    def law(x: np.ndarray[tuple[int], np.dtype[np.float64]]) -> object:
        return rate * stats.norm.cdf(x - subject.mu) + (1 - rate) * stats.norm.cdf(x)

    assert stats.kstest(with_target, law).pvalue > ALPHA


def test_the_audit_has_a_name() -> None:
    assert "CohortSum" in {audit.name for audit in every_audit()}
    assert "isolated-rounds" in {audit.name for audit in every_audit()}


def test_batches_by_the_longest_client_moved_the_sum_far_beyond_the_claim() -> None:
    mechanism = CohortSum(1.0, 1.0, Everyone(), round_isolation.CLIENTS)
    moves = [
        moved(mechanism, *(round_isolation.trained(order, side) for side in (0, 1)))
        for order in (round_isolation.by_the_longest, round_isolation.by_its_own)
    ]
    assert moves[0] > 30
    assert moves[1] <= 2


def test_an_attack_sees_a_contribution_that_is_not_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def unclipped(self: Updates, clip_norm: float) -> Any:
        yield self.values.double(), np.ones(len(self), dtype=bool), self.weights

    monkeypatch.setattr(Updates, "clipped", unclipped)
    case = CASES["isolation, FederatedMTL, everybody"]
    assert case.audit(Settings()).refuted


def test_an_attack_sees_the_old_order_of_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["isolation, batches by the client's own length"]
    monkeypatch.setattr("tacit.neural.clients.batches", round_isolation.by_the_longest)
    assert case.audit(Settings(seed=0, samples=100)).refuted
