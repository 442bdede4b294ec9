"""A federated round is what its sampler says; the three mistakes are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("torch")

import torch

from tacit.audits import federated, isolated_rounds
from tacit.audits.cases import Case, Settings
from tacit.audits.isolation import moved
from tacit.audits.named import every_audit
from tacit.neural.cohort import CohortSum, Updates
from tacit.neural.sampling import Everyone

ALPHA = 1e-6
CASES = {case.name: case for audit in federated.federated_audits() for case in audit.cases}


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
        (federated.POISSON, federated.AMPLIFIED),
        (federated.FIXED, federated.VISIBLE),
        (federated.BIT, federated.ONCE),
        (federated.BIT_APART, federated.TWICE),
    ]:
        counted = federated.claimed_epsilon(subject.claimed, federated.DELTA)
        assert counted == pytest.approx(stated, abs=1e-3)


@pytest.mark.parametrize(
    "subject",
    [federated.POISSON, federated.FIXED, federated.BIT, federated.RELATED, federated.UNCOVERED],
)
def test_the_statistic_has_the_law_that_the_threshold_assumes(subject: federated.Subject) -> None:
    rng = np.random.default_rng(1)
    without = federated.statistics(subject, 1, rng, 500)
    assert stats.kstest(without, stats.norm.cdf).pvalue > ALPHA
    with_target = federated.statistics(subject, 0, rng, 500)
    rate = federated.RATE if subject.sampler == federated.SECRET else 1.0

    def law(x: np.ndarray[tuple[int], np.dtype[np.float64]]) -> object:
        return rate * stats.norm.cdf(x - subject.mu) + (1 - rate) * stats.norm.cdf(x)

    assert stats.kstest(with_target, law).pvalue > ALPHA


def test_the_audit_has_a_name() -> None:
    assert "CohortSum" in {audit.name for audit in every_audit()}
    assert "isolated-rounds" in {audit.name for audit in every_audit()}


def test_batches_by_the_longest_client_moved_the_sum_far_beyond_the_claim() -> None:
    mechanism = CohortSum(1.0, 1.0, Everyone(), isolated_rounds.CLIENTS)
    moves = [
        moved(mechanism, *(isolated_rounds.trained(order, side) for side in (0, 1)))
        for order in (isolated_rounds.by_the_longest, isolated_rounds.by_its_own)
    ]
    assert moves[0] > 30
    assert moves[1] <= 2


def test_an_attack_sees_a_contribution_that_is_not_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def unclipped(self: Updates, clip_norm: float) -> Any:
        yield self.values.double(), torch.ones(len(self.values), dtype=torch.bool), self.weights

    monkeypatch.setattr(Updates, "clipped", unclipped)
    case = CASES["isolation, FederatedMTL, everybody"]
    assert case.audit(Settings()).refuted


def test_an_attack_sees_the_old_order_of_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["isolation, batches by the client's own length"]
    monkeypatch.setattr("tacit.neural.clients.batches", isolated_rounds.by_the_longest)
    assert case.audit(Settings(seed=0, samples=100)).refuted
