"""Whole runs: a replay sees what the other candidate would have sent, and costs nothing."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest

from tacit.audits.cases import Asked, Settings
from tacit.audits.linear_learners import ADAPTIVE, OPPOSITE, canary_tasks, learner_audits
from tacit.audits.replays import (
    Recorder,
    log_ratio,
    run_log_ratio,
    transcript,
    transcript_features,
)
from tacit.errors import InvalidInput
from tacit.privacy.accounting import Gaussian, gaussian_mu
from tacit.privacy.budget import Budget
from tacit.privacy.ledger import Key
from tacit.privacy.mechanisms import LaplaceSum, SymmetricGaussian
from tacit.privacy.runs import RunTerms

ALPHA = 1e-6
BUDGET = Budget(8.0)
CASES = {case.name: case for found in learner_audits() for case in found.cases}


def test_a_replay_returns_the_same_releases_and_spends_nothing() -> None:
    ledger = Recorder()
    first = OPPOSITE.fitted(0, BUDGET, 1, ledger, "run")
    spent, steps = ledger.spent(0), len(ledger.seen)
    second = OPPOSITE.fitted(1, BUDGET, 99, ledger, "run")
    assert ledger.spent(0) == spent
    assert len(ledger.seen) == 2 * steps
    for one, other in zip(ledger.seen[:steps], ledger.seen[steps:], strict=True):
        np.testing.assert_array_equal(one.value, other.value)
        np.testing.assert_array_equal(one.sent[:-1], other.sent[:-1])  # only the target differs
    np.testing.assert_array_equal(transcript_features(first), transcript_features(second))


def test_transcripts_of_different_lengths_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run may share more or fewer numbers than another, by what it released."""
    lengths = cycle([3, 5, 2])
    monkeypatch.setattr(
        "tacit.audits.replays.transcript_features", lambda _: np.ones(next(lengths))
    )
    result = transcript(OPPOSITE, Asked(8.0, 1e-5, 40, 0.975, 1, None))
    assert not result.refuted


def test_the_pair_turns_the_targets_pull_round() -> None:
    ledger = Recorder()
    OPPOSITE.fitted(0, BUDGET, 1, ledger, "run")
    steps = len(ledger.seen)
    OPPOSITE.fitted(1, BUDGET, 1, ledger, "run")
    moved = [
        np.linalg.norm(a.sent[-1] - b.sent[-1])
        for a, b in zip(ledger.seen[:steps], ledger.seen[steps:], strict=True)
    ]
    assert max(moved) == pytest.approx(2.0, abs=1e-6)  # the most that a clip norm of 1 allows


def test_the_audited_run_of_the_shared_prior_has_a_round_that_releases_decide() -> None:
    """Its replay sends in the coordinates of the run that it replays, by the same releases."""
    ledger = Recorder()
    for side in (0, 1):
        ADAPTIVE.fitted(side, BUDGET, 1, ledger, "run")
    matrices = [each for each, _, _ in ledger.noted if isinstance(each, SymmetricGaussian)]
    assert len(matrices) == 2 * 2  # two rounds of directions, and their replay
    assert ledger.spent(0).mu_squared == pytest.approx(gaussian_mu(8.0, BUDGET.delta) ** 2)
    steps = len(ledger.seen) // 2
    for one, other in zip(ledger.seen[:steps], ledger.seen[steps:], strict=True):
        np.testing.assert_array_equal(one.sent[:-1], other.sent[:-1])


def test_the_claim_is_the_learners_own_guarantee() -> None:
    ledger = Recorder()
    model = OPPOSITE.fitted(0, BUDGET, 1, ledger, "run")
    assert model.guarantee_.epsilon == pytest.approx(8.0, rel=1e-4)
    mu = gaussian_mu(8.0, BUDGET.delta)
    assert ledger.spent(0).mu_squared == pytest.approx(mu**2, rel=1e-6)


def test_the_log_ratio_of_a_run_is_positive_on_average_under_its_own_data() -> None:
    ratios = [run_log_ratio(OPPOSITE, 0, BUDGET, seed) for seed in range(12)]
    assert np.mean(ratios) > 0
    ledger = Recorder()
    OPPOSITE.fitted(0, BUDGET, 1, ledger, "run")
    assert log_ratio(ledger.seen, ledger.seen) == 0.0


@pytest.mark.parametrize("name", CASES)
def test_each_audit_of_the_learner_is_consistent(name: str) -> None:
    samples = 100 if name.endswith("one run") else 24
    result = CASES[name].audit(Settings(seed=0, samples=samples, confidence=1 - ALPHA))
    assert result.verdict == "consistent"
    assert isinstance(result.claim.event, Gaussian)


def test_one_run_finds_something_in_a_single_fit() -> None:
    result = CASES["MeanRegularized, one run"].audit(Settings(seed=0))
    assert 1.0 < result.epsilon_low < 8.0


def test_canaries_are_apart() -> None:
    coins = np.array([True, False, True])
    data = canary_tasks(coins)
    np.testing.assert_array_equal(data.X @ data.X.T != 0, np.tile(np.eye(3) != 0, (2, 2)))
    np.testing.assert_array_equal(data.y[:3], [1.0, -1.0, 1.0])


def test_the_recorder_knows_gaussian_releases_only() -> None:
    ledger = Recorder()
    mechanism = LaplaceSum(1.0, 1.0)
    ledger.open_run("run", ["a"], Budget(4.0), [mechanism.event("replace")], RunTerms(secure=False))
    ledger.release(mechanism, np.ones((1, 2)), key=Key("run", 0, "c"), rng=np.random.default_rng(0))
    with pytest.raises(InvalidInput, match="not known"):
        _ = ledger.seen
