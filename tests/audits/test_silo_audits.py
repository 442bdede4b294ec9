"""People inside silos, the whole run: consistent, sharp enough, and broken twins are found out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.arrays import FloatArray
from tacit.audits.cases import Audit, Settings
from tacit.audits.replays import Pair, Recorder
from tacit.audits.silo_runs import NETWORKS, PAIRS, SILOS, silo_audits
from tacit.privacy.accounting import gaussian_mu
from tacit.privacy.budget import Budget
from tacit.privacy.mechanisms import block_moments
from tacit.silos import halves

BUDGET = Budget(8.0)
EVERY_PAIR = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
CHARGED = gaussian_mu(BUDGET.epsilon, BUDGET.delta)


def moved(pair: Pair) -> float:
    """μ by which the two candidates are told apart, from the sums of one run and its replay."""
    ledger = Recorder()
    for side in (0, 1):
        pair.fitted(side, BUDGET, 1, ledger, "run")
    steps = len(ledger.seen) // 2
    pairs = zip(ledger.seen[:steps], ledger.seen[steps:], strict=True)
    apart = [np.linalg.norm(a.sent.sum(0) - b.sent.sum(0)) / a.sigma for a, b in pairs]
    return float(np.linalg.norm(apart))


@EVERY_PAIR
def test_a_replay_sees_the_same_releases_and_spends_nothing(pair: Pair) -> None:
    ledger = Recorder()
    pair.fitted(0, BUDGET, 1, ledger, "run")
    spent, steps = ledger.spent(SILOS - 1), len(ledger.seen)
    pair.fitted(1, BUDGET, 99, ledger, "run")
    assert steps == 2 * SILOS
    assert ledger.spent(SILOS - 1) == spent
    for one, other in zip(ledger.seen[:steps], ledger.seen[steps:], strict=True):
        np.testing.assert_array_equal(one.value, other.value)


@EVERY_PAIR
def test_the_pair_moves_a_run_nearly_as_far_as_is_charged(pair: Pair) -> None:
    assert 0.85 * CHARGED < moved(pair) <= CHARGED * (1 + 1e-9)


@pytest.mark.parametrize("audit", silo_audits()[: len(PAIRS)], ids=lambda audit: audit.name)
def test_the_whole_run_is_consistent_with_its_claim(audit: Audit) -> None:
    assert audit.cases[0].audit(Settings(seed=0, samples=20)).verdict == "consistent"


def unclipped_number(column: FloatArray) -> FloatArray:
    return 10 * column[:, None]


def unclipped_residuals(*given: Any) -> FloatArray:
    f, y, base, largest, _ = given
    return np.asarray(20 * (y - f @ base) / largest)


@EVERY_PAIR
@pytest.mark.parametrize(
    ("module", "name", "broken"),
    [
        (block_moments, "_number", unclipped_number),
        (halves, "residuals", unclipped_residuals),
    ],
    ids=["cells", "residuals"],
)
def test_what_is_not_clipped_is_found_out_or_clipped_again(
    pair: Pair, module: Any, name: str, broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cells ten times too long break the claim. Residuals may be as long as they like: the sum of
    scores clips each person again."""
    monkeypatch.setattr(module, name, broken)
    assert (moved(pair) > 2 * CHARGED) == (name == "_number")


# --- with networks -------------------------------------------------------------------------------


def test_the_pair_moves_a_run_of_networks_as_far_as_is_charged() -> None:
    pytest.importorskip("torch")
    assert 0.99 * CHARGED < moved(NETWORKS) <= CHARGED * (1 + 1e-9)


def test_the_whole_run_of_networks_is_consistent_with_its_claim() -> None:
    pytest.importorskip("torch")
    assert not silo_audits()[-1].cases[0].audit(Settings(seed=0, samples=20)).refuted


def test_rows_of_networks_that_are_not_clipped_are_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from tacit.neural.silos import people_sums

    monkeypatch.setattr(people_sums, "_scales", lambda layers, weights, limit: weights)
    assert moved(NETWORKS) > 10 * CHARGED
    assert silo_audits()[-1].cases[0].audit(Settings(seed=0, samples=20)).refuted
