"""AsyncProximal's whole run: tight, consistent, and broken twins are found out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.audits.asynchronous import (
    NODES,
    PAIR,
    RELEASES,
    asynchronous_audits,
    claim,
    one_example,
)
from tacit.audits.cases import Asked, Settings
from tacit.audits.learners import Recorder, log_ratio
from tacit.learners.async_proximal.node import PrivateNode
from tacit.linear.losses import FloatArray
from tacit.privacy.accounting import Gaussian, gaussian_mu
from tacit.privacy.budget import Budget
from tacit.privacy.mechanisms import sums

ALPHA = 1e-6
BUDGET = Budget(8.0)
CASES = {case.name: case for found in asynchronous_audits() for case in found.cases}
WHOLE = CASES["AsyncProximal, whole run"]
MUTANT = Settings(seed=1, samples=40)


def test_a_replay_sees_the_same_messages_and_spends_nothing() -> None:
    ledger = Recorder()
    first = PAIR.fitted(0, BUDGET, 1, ledger, "run")
    spent, steps = ledger.spent(NODES - 1), len(ledger.seen)
    second = PAIR.fitted(1, BUDGET, 99, ledger, "run")
    assert steps == NODES * RELEASES
    assert ledger.spent(NODES - 1) == spent
    for one, other in zip(ledger.seen[:steps], ledger.seen[steps:], strict=True):
        np.testing.assert_array_equal(one.value, other.value)
        np.testing.assert_array_equal(one.sent[:-1], other.sent[:-1])  # only the example differs
    for name in ("P", "Q"):
        np.testing.assert_array_equal(first.shared_[name].value, second.shared_[name].value)


def test_the_pair_turns_one_gradient_round_in_every_message() -> None:
    ledger = Recorder()
    PAIR.fitted(0, BUDGET, 1, ledger, "run")
    PAIR.fitted(1, BUDGET, 1, ledger, "run")
    steps = len(ledger.seen) // 2
    moved = [
        np.linalg.norm(one.sent[-1] - other.sent[-1]) * gaussian_mu(8.0, 1e-5) / one.sigma
        for one, other in zip(ledger.seen[:steps], ledger.seen[steps:], strict=True)
    ]
    of_the_node = sorted(moved)[-RELEASES:]  # the other node sends the same
    whole = gaussian_mu(8.0, 1e-5) ** 2
    assert np.square(of_the_node).sum() == pytest.approx(whole**2, rel=1e-6)
    assert log_ratio(ledger.seen[:steps], ledger.seen[:steps]) == 0.0


def test_the_claim_is_what_the_guarantee_says() -> None:
    found = claim(Asked(8.0, 1e-5, 10, 0.95, 0, None))
    assert isinstance(found.event, Gaussian)
    assert found.event.mu == pytest.approx(gaussian_mu(8.0, 1e-5), rel=1e-6)
    assert found.unit == "one example in one node's data"
    assert one_example(0).y.sum() == -one_example(1).y.sum()


@pytest.mark.parametrize("name", CASES)
def test_each_audit_is_consistent(name: str) -> None:
    result = CASES[name].audit(Settings(seed=0, samples=24, confidence=1 - ALPHA))
    assert result.verdict == "consistent"


def test_the_original_stands_where_mutants_fall() -> None:
    assert not WHOLE.audit(MUTANT).refuted


def test_half_the_sensitivity_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    original = sums.sum_sensitivity
    monkeypatch.setattr(sums, "sum_sensitivity", lambda *given: original(*given) / 2)
    assert WHOLE.audit(MUTANT).refuted


def test_a_node_that_hides_its_state_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flaw D: q steps from the gradient before the noise, and shifts every example's gradient."""

    def hidden(self: PrivateNode, column: FloatArray, state: Any) -> tuple[FloatArray, Any]:
        rows = sound(self, column, state)[0]
        return rows, state - 2.0 * rows.mean(axis=0)

    sound = PrivateNode.contribute
    monkeypatch.setattr(PrivateNode, "contribute", hidden)
    assert WHOLE.audit(MUTANT).refuted
