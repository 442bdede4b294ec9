"""Reports through the ledger, what is promised, and what is handed to a device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.errors import BudgetExceeded, InvalidInput, NotPure, UntrustedMessage
from tacit.privacy.accounting import Cost
from tacit.privacy.budget import Budget, Guarantee
from tacit.privacy.ledger import Ledger
from tacit.privacy.local import (
    MECHANISMS,
    Layer,
    LocalName,
    available,
    export_encoder,
    guarantee,
    local_mechanism,
    reported,
)
from tacit.privacy.mechanisms.local import LocalGaussian, LocalMechanism, PrivUnitG, SampledLaplace

BUDGET = Budget(2.0)
ROWS = np.arange(12.0).reshape(6, 2) / 20


def mechanism(name: LocalName = "privunit", reports: int = 1) -> LocalMechanism:
    return local_mechanism(name, 1.0, BUDGET, 2, reports=reports)


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("reports", [1, 3])
def test_all_reports_together_spend_the_budget_and_no_more(name: LocalName, reports: int) -> None:
    ledger, users = Ledger.in_memory(), ["ann"] * reports
    reported(mechanism(name, reports), ROWS[:reports], BUDGET, user=users, ledger=ledger)
    assert ledger.spent("ann").epsilon_at(1e-5) == pytest.approx(2.0, rel=1e-6)
    with pytest.raises(BudgetExceeded, match="ann"):
        reported(mechanism(name, reports), ROWS[:1], BUDGET, user=["ann"], ledger=ledger)


def test_repeats_in_one_batch_add_up_and_each_row_gets_its_own_report() -> None:
    ledger = Ledger.in_memory()
    exact = LocalGaussian(1.0, 0.4)
    users = ["bob", "ann", "bob", "cid", "bob", "ann"]
    out = reported(exact, ROWS, Budget(50.0), user=users, ledger=ledger)
    assert out.shape == ROWS.shape
    assert [round(ledger.spent(u).mu_squared / 0.16) for u in ("ann", "bob", "cid")] == [2, 3, 1]


def test_every_row_is_reported_in_its_own_place() -> None:
    nearly_exact = LocalGaussian(1.0, 1e6)
    users = ["bob", "ann", "bob", "cid", "bob", "ann"]
    out = reported(nearly_exact, ROWS, Budget(1e13, 0.5), user=users)
    np.testing.assert_allclose(out, ROWS, atol=1e-4)


def test_one_user_over_budget_stops_everybody_before_any_noise() -> None:
    ledger = Ledger.in_memory()
    reported(mechanism(), ROWS[:1], BUDGET, user=["ann"], ledger=ledger)
    with pytest.raises(BudgetExceeded, match="ann"):
        reported(
            mechanism(), ROWS, BUDGET, user=["bob", "cid", "dan", "eve", "ann", "fay"],
            ledger=ledger,
        )  # fmt: skip
    with pytest.raises(BudgetExceeded, match="bob"):  # twice in one batch; cid once
        reported(mechanism(), ROWS[:3], BUDGET, user=["bob", "cid", "bob"], ledger=ledger)
    assert ledger.spent("bob") == ledger.spent("cid") == Cost()
    assert sum(entry.kind == "spend" for entry in ledger.entries()) == 1


def test_rows_without_labels_are_people_who_report_once() -> None:
    ledger = Ledger.in_memory()
    for _ in range(2):
        assert reported(mechanism(), ROWS, BUDGET, ledger=ledger).shape == (6, 2)
    assert sum(entry.kind == "spend" for entry in ledger.entries()) == 2
    assert reported(mechanism(), ROWS[:0], BUDGET).shape == (0, 2)
    with pytest.raises(BudgetExceeded):
        reported(PrivUnitG(1.0, 3.0), ROWS, BUDGET)


def test_a_budget_buys_only_what_it_can() -> None:
    pure = Budget(1.0, 0.0)
    assert "gaussian" not in available(pure)
    assert available(Budget(1.0)) == MECHANISMS
    with pytest.raises(NotPure, match="pure mechanisms"):
        local_mechanism("gaussian", 1.0, pure, 2)
    with pytest.raises(InvalidInput, match="one of"):
        local_mechanism("wishart", 1.0, pure, 2)  # type: ignore[arg-type] # the point of the test
    with pytest.raises(InvalidInput, match="positive integer"):
        local_mechanism("knorm", 1.0, pure, 2, reports=0)
    with pytest.raises(InvalidInput, match="replace"):
        local_mechanism("knorm", 1.0, Budget(1.0, neighbours="zero-out"), 2)


def test_guarantees_say_what_holds_and_what_does_not() -> None:
    sound = guarantee(mechanism(), BUDGET, reports=1)
    assert (sound.epsilon, sound.delta, sound.proven, sound.secure_noise) == (2.0, 0.0, True, False)
    assert "floating point" in sound.reason
    assert any("rows given to fit" in item for item in sound.not_covered)
    assert guarantee(mechanism("laplace"), BUDGET).secure_noise
    assert guarantee(mechanism("gaussian"), BUDGET, reports=2).delta == 1e-5
    assert not guarantee(mechanism("laplace"), BUDGET, simulated=True).proven
    claimed = SampledLaplace(1.0, 2.0, as_published=True)
    assert not guarantee(claimed, BUDGET, claimed_only=claimed.reason).proven
    assert not guarantee(mechanism(), None).proven
    assert guarantee(None, BUDGET).epsilon == 0.0


def test_the_exported_folder_holds_encoder_script_and_certificate(tmp_path: Path) -> None:
    layers = [Layer(np.ones((2, 3)), np.zeros(2), "relu"), Layer(np.eye(2), np.ones(2))]
    domain = np.array([-np.inf, 0.0, 0.0]), np.array([np.inf, 1.0, 2.0])
    export_encoder(
        tmp_path / "new", layers, mechanism(), guarantee(mechanism(), BUDGET), domain=domain,
        feature_names=["a", "b", "c"],
    )  # fmt: skip
    content = json.loads((tmp_path / "new" / "encoder.json").read_text())
    assert content["domain"][1:] == [[0.0, 1.0], [0.0, 2.0]]
    assert [layer["activation"] for layer in content["layers"]] == ["relu", "identity"]
    assert content["mechanism"]["radius"] == 1.0
    certificate = json.loads((tmp_path / "new" / "certificate.json").read_text())
    promised = Guarantee.from_json(json.dumps(certificate["guarantee"]))
    assert promised == guarantee(mechanism(), BUDGET)


@pytest.mark.parametrize(("name", "exact"), [("laplace", True), ("gaussian", False)])
def test_the_certificate_is_about_the_noise_that_the_device_draws(
    name: LocalName, exact: bool, tmp_path: Path
) -> None:
    promised = guarantee(mechanism(name), BUDGET)
    assert promised.secure_noise  # in the library both are exact
    export_encoder(tmp_path, [Layer(np.eye(2), np.zeros(2))], mechanism(name), promised)
    written = json.loads((tmp_path / "certificate.json").read_text())["guarantee"]
    assert written["secure_noise"] == exact


def test_an_unproven_encoder_is_not_handed_out(tmp_path: Path) -> None:
    doubtful = guarantee(mechanism(), BUDGET, simulated=True)
    with pytest.raises(UntrustedMessage, match="nobody should report"):
        export_encoder(tmp_path, [Layer(np.eye(2), np.zeros(2))], mechanism(), doubtful)


@pytest.mark.parametrize("user", [None, list("abcdef")])
def test_no_report_leaves_but_through_a_ledger(
    user: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[int] = []
    door = Ledger.release

    def watched(self: Ledger, mechanism: Any, contributions: Any, **rest: Any) -> Any:
        passed.append(len(contributions))
        return door(self, mechanism, contributions, **rest)

    monkeypatch.setattr(Ledger, "release", watched)
    reported(mechanism(), ROWS, BUDGET, user=user)
    assert sum(passed) == len(ROWS)
