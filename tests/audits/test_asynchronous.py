"""AsyncProximal's whole run: tight, consistent, and broken twins are found out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.arrays import FloatArray
from tacit.audits.asynchronous import (
    COLUMN,
    NODES,
    PAIR,
    RELEASES,
    asynchronous_audits,
    grouped_gradients,
    one_example,
)
from tacit.audits.cases import Asked, Settings
from tacit.audits.replays import Recorder, log_ratio
from tacit.learners.async_proximal import node as node_module
from tacit.learners.async_proximal.node import PrivateNode, example_gradients
from tacit.linear.losses import Squared
from tacit.privacy.accounting import Gaussian, gaussian_mu
from tacit.privacy.budget import Budget
from tacit.privacy.mechanisms import statistics, sum_sensitivity
from tacit.privacy.release import Declared

ALPHA = 1e-6
BUDGET = Budget(8.0)
CASES = {case.name: case for found in asynchronous_audits() for case in found.cases}
WHOLE = CASES["AsyncProximal, whole run"]
ALONE = CASES["AsyncProximal, row by row"]
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
    found = PAIR.claim(Asked(8.0, 1e-5, 10, 0.95, 0, None))
    assert isinstance(found.event, Gaussian)
    assert found.event.mu == pytest.approx(gaussian_mu(8.0, 1e-5), rel=1e-6)
    assert found.unit == "one example in one node's data"
    assert one_example(0).y.sum() == -one_example(1).y.sum()


@pytest.mark.parametrize("name", [name for name in CASES if not CASES[name].flawed])
def test_each_audit_is_consistent(name: str) -> None:
    samples = 2_000 if name == ALONE.name else 24
    result = CASES[name].audit(Settings(seed=0, samples=samples, confidence=1 - ALPHA))
    assert result.verdict == "consistent"


def test_rows_in_groups_are_refuted_and_row_by_row_is_tight() -> None:
    """Certified ε = 1; the sum moves by 4C, so μ is four times what was claimed."""
    found = CASES["AsyncProximal, rows in groups"].audit(Settings(seed=0))
    assert found.refuted
    assert not found.claim.proven
    assert found.epsilon_low > 4.0
    sound = ALONE.audit(Settings(seed=0))
    assert not sound.refuted
    assert 0.5 <= sound.epsilon_low <= 1.0


def test_a_node_that_takes_rows_in_groups_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: the same gradients, but for how predictions are added up."""
    X, y = np.random.default_rng(0).uniform(-1, 1, (9, 4)), np.zeros(9)
    w = np.arange(4.0)
    np.testing.assert_allclose(
        grouped_gradients(X, y, w, Squared()), example_gradients(X, y, w, Squared())
    )

    def grouped(rows: FloatArray, A: FloatArray) -> FloatArray:
        plain = grouped_gradients(
            np.ones_like(rows), np.zeros(len(rows)), A[0] * rows[0], Squared()
        )
        return 4 * plain[:, :1]

    monkeypatch.setattr(node_module, "products", grouped)
    sent = example_gradients(np.ones((5, 4)), np.zeros(5), COLUMN, Squared())
    np.testing.assert_array_equal(sent[:, 0], [0.25, 0.25, 0.25, 0.25, 0.0])
    assert ALONE.audit(Settings(seed=1, samples=2_000)).refuted


def test_the_original_stands_where_mutants_fall() -> None:
    assert not WHOLE.audit(MUTANT).refuted


def test_half_the_sensitivity_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "sum_sensitivity", lambda *given: sum_sensitivity(*given) / 2)
    assert WHOLE.audit(MUTANT).refuted


def test_a_node_that_hides_its_state_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flaw D: q steps from the gradient before the noise, and shifts every example's gradient."""

    def hidden(self: PrivateNode, column: FloatArray, state: Any) -> tuple[FloatArray, Any]:
        rows = sound(self, column, state)[0]
        return rows, Declared(state.value - 2.0 * rows.mean(axis=0))

    sound = PrivateNode.contribute
    monkeypatch.setattr(PrivateNode, "contribute", hidden)
    assert WHOLE.audit(MUTANT).refuted
