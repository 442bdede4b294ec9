"""Whole runs: what is charged, what is resumed, what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from tacit.errors import BudgetExceeded, InvalidInput, LedgerError, NotPure
from tacit.neural import mixing
from tacit.neural.checkpoint import read_checkpoint, write_checkpoint
from tacit.neural.clients import Examples
from tacit.neural.cohort import CohortSum
from tacit.neural.coins import Coins
from tacit.neural.local import LocalWork, Trainer
from tacit.neural.rounds import Adaptive, Plan, State, begin
from tacit.neural.sampling import Everyone, Fixed, Poisson, Sampler
from tacit.neural.stacked import Stacked
from tacit.neural.training import (
    SERVER,
    Door,
    affordable,
    epsilon_after,
    multiplier,
    resumed,
    train,
)
from tacit.privacy.accounting import Cost, Gaussian, Visible, gaussian_mu
from tacit.privacy.budget import Budget
from tacit.privacy.ledger import Key, Ledger

M, ROUNDS = 4, 5
LABELS = tuple(range(M))
ZERO_OUT = Budget(50.0, 1e-5, neighbours="zero-out")


def trainer() -> Trainer:
    torch.manual_seed(0)
    module = nn.Linear(3, 2)
    data = Examples(torch.randn(20, 3), torch.randint(2, (20,)), np.arange(0, 21, 5))
    return Trainer(Stacked(module, data.X[:2]), LocalWork(2, 5, 0.1, pull=0.1), data)


def plan(sampler: Sampler, z: float | None = 1.0, adaptive: Adaptive | None = None) -> Plan:
    return Plan(mixing.mean(M), sampler, M, z, "mtl", adaptive)


def opened(p: Plan, ledger: Ledger, rounds: int = ROUNDS, budget: Budget = ZERO_OUT) -> Door:
    event = p.mechanism(1.0).event(budget.neighbours)
    ledger.open_run("run", LABELS, budget, [event] * rounds)
    return Door(ledger, "run", None)


def run(p: Plan, door: Door | None, state: State | None = None, **more: Any) -> tuple[State, Any]:
    t = trainer()
    state = state or begin(p, t.stacked.start(), 1.0)
    after = more.get("after", lambda state: None)
    return train(p, state, t, ROUNDS, Coins(bytes([more.get("seed", 0)] * 32)), door, after)


# --- the accountant receives what the sampler did ------------------------------------------------


@pytest.mark.parametrize(
    ("sampler", "kind"),
    [(Poisson(0.5), "Poisson"), (Fixed(2), "Visible"), (Everyone(), "Gaussian")],
)
def test_swapping_the_sampler_swaps_the_event_on_the_ledger(sampler: Sampler, kind: str) -> None:
    p, ledger = plan(sampler), Ledger.in_memory()
    run(p, opened(p, ledger))
    spends = [entry.payload for entry in ledger.entries() if entry.kind == "spend"]
    assert [s["event"]["kind"] for s in spends] == [kind] * ROUNDS
    assert {s["mechanism"]["sampler"] for s in spends} == {repr(sampler)}


def test_another_sampler_than_planned_is_stopped_before_noise() -> None:
    ledger = Ledger.in_memory()
    door = opened(plan(Poisson(0.5)), ledger)
    with pytest.raises(LedgerError, match="not in the plan"):
        run(plan(Fixed(2)), door)
    assert {entry.kind for entry in ledger.entries()} == {"ledger", "run"}


def test_the_adaptive_clip_costs_no_event_of_its_own() -> None:
    p, ledger = plan(Everyone(), adaptive=Adaptive()), Ledger.in_memory()
    state, _ = run(p, opened(p, ledger))
    spends = [entry.payload for entry in ledger.entries() if entry.kind == "spend"]
    clips = [s["mechanism"]["clip_norm"] for s in spends]
    assert len(spends) == ROUNDS
    assert ledger.spent(0).mu_squared == pytest.approx(ROUNDS * 1.0)
    assert clips[0] == 1.0
    assert len({*clips, state.clip_norm}) == ROUNDS + 1


class Nobody(Poisson):
    """Coins that all fell on the other side."""

    def cohort(self, clients: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return np.zeros(0, dtype=np.int64)


def test_rounds_in_which_nobody_is_sampled_are_charged_as_any_other() -> None:
    spent = []
    for sampler in (Nobody(0.5), Poisson(0.5)):
        p, ledger = plan(sampler), Ledger.in_memory()
        state, releases = run(p, opened(p, ledger))
        spent.append(ledger.statement([0]).epsilon)
        assert len(releases) == ROUNDS
        assert state.round == ROUNDS
    assert spent[0] == spent[1]
    assert spent[0] > 0


def test_an_unprotected_run_has_no_releases() -> None:
    state, releases = run(plan(Everyone(), None), None)
    assert state.round == ROUNDS
    assert releases == []


# --- resuming ------------------------------------------------------------------------------------


class Killed(Exception):
    """Between two rounds."""


def killed_at(number: int, saved: dict[int, State]) -> Any:
    def after(state: State) -> None:
        saved[state.round] = state
        if state.round == number:
            raise Killed

    return after


def test_a_killed_run_resumes_with_the_ledgers_outputs_and_spends_once(tmp_path: Path) -> None:
    p = plan(Poisson(0.5))
    saved: dict[int, State] = {}
    with Ledger(tmp_path / "ledger.sqlite") as ledger, pytest.raises(Killed):
        run(p, opened(p, ledger), after=killed_at(4, saved))
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        door, t = opened(p, ledger), trainer()
        after_four = len(ledger.entries())
        start = begin(p, t.stacked.start(), 1.0)
        state, earlier = resumed(p, start, saved[2], door)  # an older checkpoint
        torch.testing.assert_close(state.centres, saved[2].centres)
        met: dict[int, State] = {}
        state, releases = run(p, door, state, seed=99, after=lambda s: met.update({s.round: s}))
        torch.testing.assert_close(met[3].centres, saved[3].centres)
        torch.testing.assert_close(met[4].centres, saved[4].centres)
        assert torch.equal(met[4].models, saved[2].models)  # type: ignore[arg-type] # mtl keeps models
        assert len(ledger.entries()) == after_four + 2  # round 4 alone: spend and output
        assert [r.source[0] for r in (*earlier, *releases)] == [
            Key("run", number, SERVER) for number in range(ROUNDS)
        ]
        assert ledger.verify().ok
        once = ledger.spent(0)
    whole = Ledger.in_memory()
    run(p, opened(p, whole))
    assert whole.spent(0) == once


def test_a_crash_between_spend_and_output_draws_again_and_spends_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    p, ledger = plan(Everyone()), Ledger.in_memory()
    door = opened(p, ledger)

    def crash(*_: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(CohortSum, "release", crash)
        with pytest.raises(Killed):
            run(p, door)
    assert ledger.spent(0).mu_squared == pytest.approx(1.0)
    run(p, door, seed=5)
    assert ledger.spent(0).mu_squared == pytest.approx(ROUNDS * 1.0)


def test_a_checkpoint_whose_rounds_were_not_released_is_refused() -> None:
    p, t = plan(Everyone()), trainer()
    start = begin(p, t.stacked.start(), 1.0)
    unprotected, _ = run(plan(Everyone(), None), None)
    with pytest.raises(InvalidInput, match="round 0 is not on the ledger"):
        resumed(p, start, unprotected, opened(p, Ledger.in_memory()))


def test_centres_that_are_not_the_ledgers_are_refused() -> None:
    p, t, ledger = plan(Everyone()), trainer(), Ledger.in_memory()
    door = opened(p, ledger)
    state, _ = run(p, door)
    start = begin(p, t.stacked.start() + 1.0, 1.0)  # another module
    with pytest.raises(InvalidInput, match="does not follow from this module"):
        resumed(p, start, state, door)


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    p = plan(Everyone())
    state, _ = run(p, opened(p, Ledger.in_memory()))
    write_checkpoint(tmp_path / "state", state, "the run")
    back, name = read_checkpoint(tmp_path / "state", state)
    assert name == "the run"
    assert (back.round, back.clip_norm) == (state.round, state.clip_norm)
    assert torch.equal(back.centres, state.centres)
    assert torch.equal(back.models, state.models)  # type: ignore[arg-type] # mtl keeps models
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    like = begin(plan(Everyone()), torch.zeros(3), 1.0)
    write_checkpoint(tmp_path / "other", begin(plan(Everyone()), torch.zeros(5), 1.0), "run")
    with pytest.raises(InvalidInput, match=r"\(1, 5\).*this run has.*\(1, 3\)"):
        read_checkpoint(tmp_path / "other", like)
    (tmp_path / "text").write_text("hello")
    for name in ("text", "absent"):
        with pytest.raises(InvalidInput, match="is not a checkpoint"):
            read_checkpoint(tmp_path / name, like)


# --- budgets -------------------------------------------------------------------------------------


def test_the_multiplier_is_the_smallest_that_fits() -> None:
    budget = Budget(2.0, 1e-5)
    z = multiplier(Everyone(), M, 10, budget)
    assert z == pytest.approx(2 * math.sqrt(10) / gaussian_mu(2.0, 1e-5), rel=1e-4)
    visible = multiplier(Fixed(2), M, 10, budget)
    assert epsilon_after(Fixed(2), M, visible, 10, 1e-5, "replace") <= 2.0
    assert epsilon_after(Fixed(2), M, 0.99 * visible, 10, 1e-5, "replace") > 2.0


def test_poisson_is_calibrated_to_the_known_answer() -> None:
    """rate .1, T = 100, (1, 1e-5): 3.94175, bracketed instead of searched."""
    within = epsilon_after(Poisson(0.1), 100, 3.9418, 100, 1e-5, "zero-out")
    beyond = epsilon_after(Poisson(0.1), 100, 3.9410, 100, 1e-5, "zero-out")
    assert within <= 1.0 < beyond


def test_rounds_stop_before_the_one_that_would_overspend() -> None:
    budget = Budget(3.0, 1e-5, neighbours="zero-out")
    fits = affordable(Everyone(), M, 5.0, 100, budget)
    assert 0 < fits < 100
    assert epsilon_after(Everyone(), M, 5.0, fits, 1e-5, "zero-out") <= 3.0
    assert epsilon_after(Everyone(), M, 5.0, fits + 1, 1e-5, "zero-out") > 3.0
    assert affordable(Everyone(), M, 5.0, 3, budget) == 3


def test_not_even_one_round_is_a_refusal() -> None:
    with pytest.raises(BudgetExceeded, match="every client"):
        affordable(Everyone(), M, 0.1, 5, Budget(0.5))


def test_gaussian_rounds_use_up_exactly_the_budget_of_the_run() -> None:
    budget = Budget(2.0, 1e-5)
    z = multiplier(Everyone(), M, 10, budget)
    spent = Cost(mu_squared=10 * (2 / z) ** 2)
    assert spent.epsilon_at(1e-5) == pytest.approx(2.0, rel=1e-6)
    assert spent.within(budget)
    assert affordable(Everyone(), M, z * 1.0001, 100, budget) == 10
    assert affordable(Everyone(), M, z * 0.9999, 100, budget) == 9


def test_a_gaussian_sum_cannot_be_pure() -> None:
    with pytest.raises(NotPure, match="delta = 0"):
        multiplier(Everyone(), M, 3, Budget(1.0, 0.0))


def test_epsilon_grows_with_the_rounds() -> None:
    assert epsilon_after(Fixed(2), M, 1.0, 0, 1e-5, "zero-out") == 0.0
    curve = [epsilon_after(Fixed(2), M, 1.0, t, 1e-5, "zero-out") for t in (1, 2, 5)]
    assert curve == sorted(curve)
    assert Fixed(2).event(M, 1.0, "zero-out") == Visible(0.5, 1.0)
    assert Everyone().event(M, 1.0, "zero-out") == Gaussian(1.0)
