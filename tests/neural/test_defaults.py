"""FederatedMTL as it comes: joining brings something or costs nothing, whatever the clients are."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tacit import Budget
from tacit.errors import NoiseWarning
from tacit.estimator.progress import on_terminal
from tacit.neural import FederatedMTL
from tacit.neural.client_choice import WAYS
from tacit.neural.round_schedule import COOLED
from tacit.privacy.ledger import Ledger

CLIENTS, ROWS, FEATURES, CLASSES = 60, 12, 6, 3
Rows = tuple[Any, Any, Any]


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {"own": 40, "shared": 20, "open": 20, "half": 20, "loose": 40}
    monkeypatch.setattr("tacit.neural.client_choice.STEPS", few)
    monkeypatch.setattr("tacit.neural.round_schedule.MOST", 40)


def drawn(rows: int, related: bool, seed: int, clients: int = CLIENTS) -> Rows:
    """Clients that follow one linear rule, or each a rule of its own."""
    truth = np.random.default_rng(1).normal(size=(CLIENTS, CLASSES, FEATURES))
    rules = truth[:1] if related else truth
    X = np.random.default_rng(seed).normal(size=(clients, rows, FEATURES))
    y = np.einsum("krf,kcf->krc", X, np.broadcast_to(rules, truth.shape)[:clients]).argmax(2)
    return X.reshape(-1, FEATURES), y.ravel(), np.repeat(np.arange(clients), rows)


def zero_out(epsilon: float) -> Budget:
    return Budget(epsilon, 1e-5, neighbours="zero-out")


def fitted(budget: Budget | None, rows: Rows, **settings: Any) -> FederatedMTL:
    torch.manual_seed(0)
    chosen: dict[str, Any] = {"noise": "simulated", "random_state": 0, "classes": [0, 1, 2]}
    model = FederatedMTL(nn.Linear(FEATURES, CLASSES), budget=budget, **chosen | settings)
    X, y, task = rows
    return model.fit(X, y, task)


def alone(rows: Rows) -> FederatedMTL:
    with pytest.warns(NoiseWarning, match="every client trains alone"):
        return fitted(zero_out(0.001), rows)


def accuracy(model: FederatedMTL, related: bool) -> float:
    X, y, task = drawn(100, related, seed=7)
    return model.score(X, y, task)


def test_related_clients_gain_by_joining() -> None:
    rows = drawn(ROWS, related=True, seed=0)
    joined, own = fitted(zero_out(4.0), rows), alone(rows)
    assert joined.guarantee_.epsilon == pytest.approx(4.0)
    assert accuracy(joined, related=True) > accuracy(own, related=True) + 0.1
    brought = joined.private_home_
    assert brought["own"] < CLIENTS / 4
    assert brought["taken_loss"] < brought["own_loss"]


def test_a_terminal_is_told_at_the_end_what_joining_brought(
    capsys: pytest.CaptureFixture[str],
) -> None:
    X, y, task = drawn(ROWS, related=True, seed=0)
    torch.manual_seed(0)
    model = FederatedMTL(
        nn.Linear(FEATURES, CLASSES), budget=zero_out(4.0), noise="simulated", random_state=0
    )
    model.fit(X, y, task, progress=on_terminal)
    brought = model.private_home_
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"{CLIENTS - brought['own']:.0f} of {CLIENTS} clients take home what")
    assert f"{brought['taken_errors']:.3f}"[1:] in said
    fitted(zero_out(4.0), (X, y, task))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_unrelated_clients_lose_little_by_joining(epsilon: float) -> None:
    """A home that trusts the shared model blindly loses more than a quarter here."""
    rows = drawn(2 * ROWS, related=False, seed=0)
    joined, own = fitted(zero_out(epsilon), rows), alone(rows)
    blind = fitted(zero_out(epsilon), rows, finetune=None)
    assert accuracy(joined, related=False) > accuracy(own, related=False) - 0.03
    assert accuracy(blind, related=False) < accuracy(own, related=False) - 0.25


def test_where_noise_would_win_nothing_is_spent_and_everybody_trains_alone() -> None:
    ledger = Ledger.in_memory()
    with pytest.warns(NoiseWarning, match="no round is run, nothing is spent"):
        found = fitted(zero_out(0.01), drawn(ROWS, related=True, seed=0), ledger=ledger)
    assert found.rounds_ == 0
    assert found.guarantee_.epsilon == 0.0
    assert found.history_ == []
    assert found.private_home_ == dict.fromkeys(WAYS, 0) | {"own": CLIENTS}


def test_a_generous_budget_gives_what_no_privacy_gives() -> None:
    rows = drawn(ROWS, related=True, seed=0)
    private, twin = fitted(zero_out(1e4), rows), fitted(None, rows)
    assert accuracy(private, related=True) == pytest.approx(accuracy(twin, related=True), abs=0.02)


def test_one_client_has_nobody_to_join() -> None:
    X, y, task = drawn(ROWS, related=True, seed=0, clients=1)
    with pytest.warns(NoiseWarning):
        private = fitted(zero_out(1.0), (X, y, task))
    assert private.rounds_ == 0
    assert fitted(None, (X, y, task)).predict(X, task=task).shape == y.shape


def test_rounds_can_be_asked_for_against_the_rule() -> None:
    with pytest.warns(NoiseWarning, match="more clients"):
        found = fitted(zero_out(0.01), drawn(ROWS, related=True, seed=0), rounds=3)
    assert found.rounds_ == 3
    assert len(found.history_) == 3


def test_clip_norms_cool_down_unless_one_is_chosen() -> None:
    rows = drawn(ROWS, related=True, seed=0)
    cooled, chosen = (
        [step["mechanism"]["clip_norm"] for step in fitted(zero_out(8.0), rows, **more).history_]
        for more in ({"finetune": None}, {"finetune": None, "clip_norm": 0.7})
    )
    assert cooled[-1] / cooled[0] == pytest.approx(COOLED)
    assert set(chosen) == {0.7}


def test_a_newcomer_weighs_the_shared_model_too() -> None:
    """One like the others takes it home, and is better for it; so is one that is like nobody, who
    does not."""
    joined = fitted(zero_out(8.0), drawn(ROWS, related=True, seed=0))
    X, y, _ = drawn(ROWS, related=True, seed=3, clients=1)
    fresh_X, fresh_y, _ = drawn(200, related=True, seed=4, clients=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        joined.adapt(X, y, "like them").adapt(X, (y + 1) % CLASSES, "like nobody")
    assert joined.score(fresh_X, fresh_y, ["like them"] * 200) > 0.8
    assert joined.score(fresh_X, (fresh_y + 1) % CLASSES, ["like nobody"] * 200) > 0.5


def test_a_cooled_run_resumes_where_it_ended(tmp_path: Path) -> None:
    """Clip norms and centres are made again from the ledger, and nothing is spent twice."""
    rows, ledger = drawn(ROWS, related=True, seed=0), tmp_path / "ledger.sqlite"
    again: dict[str, Any] = {"ledger": ledger, "checkpoint": tmp_path / "state", "finetune": None}
    first, second = (fitted(zero_out(8.0), rows, **again) for _ in range(2))
    np.testing.assert_array_equal(first.shared_["centres"].value, second.shared_["centres"].value)
    assert first.guarantee_.epsilon == second.guarantee_.epsilon
    assert first.history_ == second.history_
