"""Reports through the ledger, what is promised, and what is handed to a device."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest

import tacit
from tacit.encoders import encode
from tacit.encoders.device import export_encoder
from tacit.encoders.domain import Domain
from tacit.encoders.mechanism_choice import MECHANISMS, LocalName, available, local_mechanism
from tacit.encoders.networks import Layer
from tacit.encoders.reports import ONCE, guarantee, reported
from tacit.errors import BudgetExceeded, InvalidInput, LedgerError, NotPure, UntrustedMessage
from tacit.json_converter import from_json
from tacit.privacy.accounting import Cost, Pure, pure_epsilon
from tacit.privacy.budget import Budget, Guarantee
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms.local import LocalGaussian, LocalMechanism, PrivUnitG, SampledLaplace
from tacit.privacy.not_covered import DELTA

BUDGET = Budget(2.0)
ROWS = np.arange(12.0).reshape(6, 2) / 20


def mechanism(name: LocalName = "privunit", reports: int = 1) -> LocalMechanism:
    return local_mechanism(name, 1.0, BUDGET, 2, reports=reports)


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("reports", [1, 3])
def test_all_reports_together_spend_the_budget_and_no_more(name: LocalName, reports: int) -> None:
    ledger, users = Ledger.in_memory(), ["ann"] * reports
    every = partial(reported, mechanism(name, reports), reports=reports, ledger=ledger)
    every(ROWS[:reports], BUDGET, user=users)
    assert ledger.spent("ann").epsilon_at(1e-5) == pytest.approx(2.0, rel=1e-4)
    with pytest.raises(BudgetExceeded, match="ann"):
        every(ROWS[:1], BUDGET, user=["ann"])


@pytest.mark.parametrize("name", ["laplace", "knorm", "privunit", "staircase"])
def test_many_pure_reports_are_composed_optimally_where_there_is_a_delta(name: LocalName) -> None:
    """At k = 50 and ε = 1 each report has 1.94 times ε/k; without δ it has ε/k."""
    budget = Budget(1.0)
    each = local_mechanism(name, 1.0, budget, 1, reports=50).event("replace")
    assert isinstance(each, Pure)
    assert each.epsilon == pytest.approx(1.94 / 50, rel=2e-3)
    assert pure_epsilon([each.epsilon] * 50, budget.delta) <= 1.0
    added = local_mechanism(name, 1.0, Budget(1.0, 0.0), 1, reports=50).event("replace")
    assert isinstance(added, Pure)
    assert added.epsilon == pytest.approx(1 / 50)


def test_fifty_reports_in_batches_spend_the_budget_and_the_next_is_refused() -> None:
    """Ten at a time: what they cost together does not depend on the batches."""
    budget, ledger = Budget(1.0), Ledger.in_memory()
    found = local_mechanism("laplace", 1.0, budget, 2, reports=50)
    for _ in range(5):
        rows, ten = np.zeros((10, 2)), ["ann"] * 10
        reported(found, rows, budget, reports=50, user=ten, ledger=ledger)
    assert ledger.spent("ann").epsilon_at(1e-5) == pytest.approx(1.0, rel=1e-4)
    with pytest.raises(BudgetExceeded, match="ann"):
        reported(found, ROWS[:1], budget, reports=50, user=["ann"], ledger=ledger)


def test_repeats_in_one_batch_add_up_and_each_row_gets_its_own_report() -> None:
    ledger = Ledger.in_memory()
    exact = LocalGaussian(1.0, 0.4)
    users = ["bob", "ann", "bob", "cid", "bob", "ann"]
    out = reported(exact, ROWS, Budget(50.0), user=users, ledger=ledger)
    assert out.shape == ROWS.shape
    assert [round(ledger.spent(u).mu_squared / 0.16) for u in ("ann", "bob", "cid")] == [2, 3, 1]


def test_every_row_is_reported_in_its_own_place() -> None:
    nearly_exact = LocalGaussian(1.0, 1e4)  # ε is about μ²/2
    users = ["bob", "ann", "bob", "cid", "bob", "ann"]
    out = reported(nearly_exact, ROWS, Budget(5e8, 0.5), user=users)
    np.testing.assert_allclose(out, ROWS, atol=2e-3)


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
    entries = ledger.entries()
    assert sum(entry.kind == "spend" for entry in entries) == 2
    labels = [entry.payload["tasks"] for entry in entries if entry.kind == "run"]
    assert [label.split(": ")[1] for (label,) in labels] == [ONCE] * 2  # on record, in words
    assert reported(mechanism(), ROWS[:0], BUDGET).shape == (0, 2)
    with pytest.raises(BudgetExceeded):
        reported(PrivUnitG(1.0, 3.0), ROWS, BUDGET)


def test_a_budget_buys_only_what_it_can() -> None:
    pure = Budget(1.0, 0.0)
    assert "gaussian" not in available(pure)
    with pytest.raises(NotPure, match="pure mechanisms"):
        local_mechanism("gaussian", 1.0, pure, 2)
    zeroed = Budget(1.0, neighbours="zero-out")
    wrong: dict[str, dict[str, Any]] = {
        "mechanism must be 'auto', 'laplace'": {"budget": pure, "mechanism": "wishart"},
        "reports must be an integer from 1": {"budget": pure, "reports": 0},
        "'replace'": {"budget": zeroed, "mechanism": "knorm"},
    }
    for said, given in wrong.items():
        with pytest.raises(InvalidInput, match=said):
            tacit.TaskAwareEncoder(**given).fit(ROWS)


def test_guarantees_say_what_holds_and_what_does_not() -> None:
    sound = guarantee(mechanism(), BUDGET, reports=1)
    assert any("rows given to fit" in item for item in sound.not_covered)
    assert any("user=None" in item and ONCE in item for item in sound.not_covered)
    assert any("preprocessing" in item for item in sound.not_covered)
    assert guarantee(mechanism("gaussian"), BUDGET, reports=2).delta == 1e-5
    assert not guarantee(mechanism("laplace"), BUDGET, simulated=True).proven
    claimed = SampledLaplace(1.0, 2.0, as_published=True)
    assert not guarantee(claimed, BUDGET).proven
    assert "next user" in guarantee(claimed, BUDGET).reason
    assert not guarantee(mechanism(), None).proven
    assert guarantee(None, BUDGET).epsilon == 0.0


def test_what_delta_allows_is_said_of_a_user_and_of_no_number_of_units() -> None:
    for reports in (1, 3):
        said = [s for s in guarantee(mechanism("gaussian"), BUDGET, reports=reports).not_covered
                if s.startswith(DELTA)]  # fmt: skip
        assert said == ["delta: a user's vector may leak whole with a chance of up to one in "
                        "100,000, in all that they report"]  # fmt: skip
    pure = guarantee(mechanism("laplace"), Budget(2.0, 0.0))
    assert not any(s.startswith(DELTA) for s in pure.not_covered)


def test_no_delta_of_zero_is_claimed_of_noise_drawn_in_floating_point() -> None:
    """K-norm noise has no exact sampler; of the others each says so itself."""
    drawn = local_mechanism("knorm", 1.0, BUDGET, 1)
    assert not drawn.secure(None)
    stated = guarantee(drawn, BUDGET)
    assert (stated.delta, stated.proven, stated.secure_noise) == (1e-5, True, False)
    assert "floating point" in stated.reason
    doubted = guarantee(drawn, Budget(2.0, 0.0))
    assert not doubted.proven
    assert "not claimed" in doubted.reason


def test_what_a_budget_without_delta_can_state_is_pure_and_drawn_exactly() -> None:
    pure = Budget(2.0, 0.0)
    found = [local_mechanism(name, 1.0, pure, 1) for name in available(pure)]
    assert "LocalLaplace" in {type(each).__name__ for each in found}
    for each in found:
        assert each.pure
        assert each.secure(None)
        assert (guarantee(each, pure).delta, guarantee(each, pure).proven) == (0.0, True)
    assert set(available(BUDGET)) == set(get_args(LocalName))
    assert "privunit" not in available(Budget(501.0))  # beyond what it can draw
    assert "privunit" in available(Budget(501.0), reports=2)


def test_exact_pure_noise_has_a_delta_of_zero_until_reports_are_composed() -> None:
    once = guarantee(mechanism("laplace"), BUDGET)
    assert (once.delta, once.proven, once.secure_noise) == (0.0, True, True)
    added = guarantee(mechanism("laplace"), Budget(2.0, 0.0), reports=3)
    assert (added.delta, added.proven) == (0.0, True)
    assert added.accountant == "ε a report, added"
    composed = guarantee(mechanism("laplace", 3), BUDGET, reports=3)
    assert (composed.delta, composed.proven) == (1e-5, True)
    assert "optimal composition" in composed.accountant


def test_a_device_draws_every_stair(monkeypatch: pytest.MonkeyPatch) -> None:
    """One uniform number of 53 bits reaches 36/ε stairs at most; coins, thrown one by one, all."""
    coins = iter([0.0] * 7 + [0.9, 0.1, 0.5])
    fake = SimpleNamespace(
        random=lambda: next(coins), choice=lambda pair: pair[1], uniform=lambda a, b: (a + b) / 2
    )
    monkeypatch.setattr(encode, "COINS", fake)
    assert encode.staircase(10.0, 0.25, 0.5, 2.0) == pytest.approx(2.0 * (7 + 0.125))


def test_the_exported_folder_holds_encoder_script_and_certificate(tmp_path: Path) -> None:
    layers = [Layer(np.ones((2, 3)), np.zeros(2), "relu"), Layer(np.eye(2), np.ones(2))]
    domain = Domain(np.array([-np.inf, 0.0, 0.0]), np.array([np.inf, 1.0, 2.0]))
    promised = guarantee(mechanism("laplace"), BUDGET)
    export_encoder(
        tmp_path / "new", layers, mechanism("laplace"), promised, domain=domain,
        feature_names=["a", "b", "c"],
    )  # fmt: skip
    content = json.loads((tmp_path / "new" / "encoder.json").read_text())
    assert content["domain"][1:] == [[0.0, 1.0], [0.0, 2.0]]
    assert [layer["activation"] for layer in content["layers"]] == ["relu", "identity"]
    assert content["mechanism"]["radius"] == 1.0
    certificate = json.loads((tmp_path / "new" / "certificate.json").read_text())
    written = from_json(Guarantee, certificate["guarantee"], "guarantee")
    assert replace(written, reason=promised.reason) == promised
    assert "exact discrete Laplace noise" in written.reason


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_certificate_is_about_the_noise_that_the_device_draws(
    name: LocalName, tmp_path: Path
) -> None:
    """encode.py draws Laplace noise exactly, and all the others in floating point."""
    exported = partial(export_encoder, tmp_path, [Layer(np.eye(2), np.zeros(2))], mechanism(name))
    exported(guarantee(mechanism(name), BUDGET), delta=BUDGET.delta)
    written = json.loads((tmp_path / "certificate.json").read_text())["guarantee"]
    exact = name == "laplace"
    assert written["secure_noise"] == exact
    assert written["delta"] == (0.0 if exact else 1e-5)
    assert written["proven"]
    if name not in ("laplace", "gaussian"):
        promised = guarantee(mechanism(name), Budget(2.0, 0.0))
        with pytest.raises(UntrustedMessage, match="delta > 0, or mechanism='laplace'"):
            exported(promised)


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


def test_an_encoder_that_came_from_another_process_counts_nobody() -> None:
    """Its ledger stayed behind: 500 reports of one user were accepted, each as the first."""
    X = np.random.default_rng(0).standard_normal((50, 3))
    encoder = tacit.TaskAwareEncoder(Budget(1.0, 0.0)).fit(X, target=[[1.0, 0.0, 0.0]])
    again = pickle.loads(pickle.dumps(encoder))
    with pytest.raises(LedgerError, match="stayed behind"):
        again.transform(X[:1], user=["ann"])
    again.transform(X[:1])
    for twin in (copy.copy(encoder), copy.deepcopy(encoder)):
        assert twin.ledger_ is encoder.ledger_


def test_a_ledger_with_another_cap_is_refused() -> None:
    X = np.random.default_rng(0).standard_normal((50, 3))
    ledger = tacit.Ledger.in_memory(cap=Budget(4.0, 0.0))
    encoder = tacit.TaskAwareEncoder(Budget(1.0, 0.0), ledger=ledger).fit(X, target=[[1.0, 0, 0]])
    with pytest.raises(LedgerError, match="is promised"):
        encoder.transform(X[:1], user=["ann"])
