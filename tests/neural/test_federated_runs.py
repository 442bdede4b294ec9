"""Whole runs by the engine: what is charged, what is resumed, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from tacit.engine import CURATOR, Outcome, Unprotected, run_rounds
from tacit.errors import InvalidInput, LedgerError
from tacit.neural import FederatedMTL, mixing
from tacit.neural.checkpoint import Checkpoint, named_run, read_checkpoint, write_checkpoint
from tacit.neural.client_training import LocalWork, Trainer
from tacit.neural.clients import Examples
from tacit.neural.cohort import CohortSum
from tacit.neural.pmtl import Adaptive, FederatedClients, FederatedPlan, FederatedServer
from tacit.neural.sampling import Everyone, Fixed, Sampler, SecretCoins
from tacit.neural.secret_streams import Coins
from tacit.neural.stacked import Stacked
from tacit.privacy.budget import Budget
from tacit.privacy.ledger import Key, Ledger
from tacit.privacy.planning import Door, open_door
from tacit.privacy.release import Release

M, ROUNDS = 4, 5
LABELS = tuple(range(M))
ZERO_OUT = Budget(50.0, 1e-5, neighbours="zero-out")


def trainer() -> Trainer:
    torch.manual_seed(0)
    module = nn.Linear(3, 2)
    data = Examples(torch.randn(20, 3), torch.randint(2, (20,)), np.arange(0, 21, 5))
    return Trainer(Stacked(module, data.X[:2]), LocalWork(2, 5, 0.1, pull=0.1), data)


def plan(
    sampler: Sampler, z: float | None = 1.0, adaptive: Adaptive | None = None
) -> FederatedPlan:
    return FederatedPlan(mixing.mean(M), sampler, M, z, "mtl", adaptive)


def door(ledger: Ledger) -> Door:
    return open_door(ledger, "run", LABELS, ZERO_OUT, None, pure=False, by_plan=True)


def begun(p: FederatedPlan, t: Trainer) -> Checkpoint:
    w = t.stacked.start()
    return Checkpoint.of(p.begin(w, 1.0), p.own_models(w))


def run(
    p: FederatedPlan,
    through: Door | None,
    saved: Checkpoint | None = None,
    seed: int = 0,
    after: Any = None,
) -> Outcome:
    t = trainer()
    models = (saved or begun(p, t)).models
    clients = FederatedClients(p, t, Coins(bytes([seed] * 32)), models)
    server = FederatedServer(p, ROUNDS, p.begin(t.stacked.start(), 1.0))
    return run_rounds(clients, server, through, after=after)


# --- the accountant receives what the sampler did ------------------------------------------------


@pytest.mark.parametrize(
    ("sampler", "kind"),
    [(SecretCoins(0.5), "Poisson"), (Fixed(2), "Visible"), (Everyone(), "Gaussian")],
)
def test_swapping_the_sampler_swaps_the_event_on_the_ledger(sampler: Sampler, kind: str) -> None:
    p, ledger = plan(sampler), Ledger.in_memory()
    run(p, door(ledger))
    spends = [entry.payload for entry in ledger.entries() if entry.kind == "spend"]
    assert [s["event"]["kind"] for s in spends] == [kind] * ROUNDS
    assert {s["mechanism"]["sampler"] for s in spends} == {repr(sampler)}


def test_another_sampler_than_planned_is_stopped_before_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger, drawn = Ledger.in_memory(), plan(Fixed(2)).mechanism(1.0)
    monkeypatch.setattr(CohortSum, "at", lambda *_: drawn)
    with pytest.raises(LedgerError, match="not in the plan"):
        run(plan(SecretCoins(0.5)), door(ledger))
    assert {entry.kind for entry in ledger.entries()} == {"ledger", "run"}


def test_the_adaptive_clip_costs_no_event_of_its_own() -> None:
    p, ledger = plan(Everyone(), adaptive=Adaptive()), Ledger.in_memory()
    outcome = run(p, door(ledger))
    spends = [entry.payload for entry in ledger.entries() if entry.kind == "spend"]
    clips = [s["mechanism"]["clip_norm"] for s in spends]
    assert len(spends) == ROUNDS
    assert ledger.spent(0).mu_squared == pytest.approx(ROUNDS * 1.0)
    assert clips[0] == 1.0
    last = outcome.shared["clip_norm"]
    assert isinstance(last, Release)  # a function of releases
    assert len({*clips, float(last.value)}) == ROUNDS + 1


class Nobody(SecretCoins):
    """Coins that all fell on the other side."""

    def cohort(self, clients: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return np.zeros(0, dtype=np.int64)


def test_rounds_in_which_nobody_is_sampled_are_charged_as_any_other() -> None:
    spent = []
    for sampler in (Nobody(0.5), SecretCoins(0.5)):
        p, ledger = plan(sampler), Ledger.in_memory()
        centres = run(p, door(ledger)).shared["centres"]
        spent.append(ledger.statement([0]).epsilon)
        assert isinstance(centres, Release)
        assert len(centres.source) == ROUNDS
    assert spent[0] == spent[1]
    assert spent[0] > 0


def test_what_is_broadcast_is_a_release_of_all_rounds_so_far() -> None:
    outcome = run(plan(Everyone()), door(Ledger.in_memory()))
    centres = [message["centres"] for _, _, message in outcome.transcript]
    assert len(centres) == ROUNDS + 1
    assert not isinstance(centres[0], Release)  # the public start
    for number, each in enumerate(centres[1:], start=1):
        assert isinstance(each, Release)
        assert each.source == tuple(Key("run", n, CURATOR) for n in range(number))
        assert each.secure


def test_an_unprotected_run_has_no_releases() -> None:
    outcome = run(plan(Everyone(), None), None)
    assert int(outcome.shared["round"].value) == ROUNDS
    assert isinstance(outcome.shared["centres"], Unprotected)
    assert outcome.transcript == []


# --- resuming ------------------------------------------------------------------------------------


class Killed(Exception):
    """Between two rounds."""


def killed_at(number: int, saved: dict[int, Checkpoint]) -> Any:
    def after(shared: Any, models: Any) -> None:
        state = Checkpoint.of(shared, models)
        saved[state.round] = state
        if state.round == number:
            raise Killed

    return after


def test_a_killed_run_resumes_with_the_ledgers_outputs_and_spends_once(tmp_path: Path) -> None:
    p = plan(SecretCoins(0.5))
    saved: dict[int, Checkpoint] = {}
    with Ledger(tmp_path / "ledger.sqlite") as ledger, pytest.raises(Killed):
        run(p, door(ledger), after=killed_at(4, saved))
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        after_four = len(ledger.entries())
        met: dict[int, Checkpoint] = {}
        saved[2].require_released(door(ledger))  # an older checkpoint
        outcome = run(p, door(ledger), saved[2], 99, killed_at(-1, met))
        for number in (1, 2, 3, 4):
            assert torch.equal(met[number].centres, saved[number].centres)
            assert met[number].models is None  # nobody trained: the checkpoint's models stay
        saved[2].require_following(outcome.transcript[2][2])
        assert len(ledger.entries()) == after_four + 2  # round 4 alone: spend and output
        centres = outcome.shared["centres"]
        assert isinstance(centres, Release)
        assert centres.source == tuple(Key("run", number, CURATOR) for number in range(ROUNDS))
        assert ledger.verify().ok
        once = ledger.spent(0)
    whole = Ledger.in_memory()
    run(p, door(whole))
    assert whole.spent(0) == once


def test_a_crash_between_spend_and_output_draws_again_and_spends_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    p, ledger = plan(Everyone()), Ledger.in_memory()

    def crash(*_: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(CohortSum, "release", crash)
        with pytest.raises(Killed):
            run(p, door(ledger))
    assert ledger.spent(0).mu_squared == pytest.approx(1.0)
    run(p, door(ledger), seed=5)
    assert ledger.spent(0).mu_squared == pytest.approx(ROUNDS * 1.0)


def test_a_checkpoint_whose_rounds_were_not_released_is_refused() -> None:
    outcome = run(plan(Everyone(), None), None)
    state = Checkpoint.of(outcome.shared, outcome.state)
    with pytest.raises(InvalidInput, match="round 0 is not on the ledger"):
        state.require_released(door(Ledger.in_memory()))


def test_centres_that_are_not_the_ledgers_are_refused() -> None:
    p, t = plan(Everyone()), trainer()
    outcome = run(p, door(Ledger.in_memory()))
    state = Checkpoint.of(outcome.shared, outcome.state)
    state.require_following(outcome.shared)
    with pytest.raises(InvalidInput, match="does not follow from this module"):
        state.require_following(p.begin(t.stacked.start() + 1.0, 1.0))  # another module


def test_a_release_that_is_on_the_ledger_by_another_mechanism_is_refused() -> None:
    ledger = Ledger.in_memory()
    run(plan(Everyone()), door(ledger))
    other = plan(Everyone(), adaptive=Adaptive())  # the same events
    with pytest.raises(LedgerError, match="another mechanism"):
        run(other, door(ledger))


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    p = plan(Everyone())
    outcome = run(p, door(Ledger.in_memory()))
    state = Checkpoint.of(outcome.shared, outcome.state)
    write_checkpoint(tmp_path / "state", state, "the run")
    back, name = read_checkpoint(tmp_path / "state", state)
    assert name == "the run"
    assert (back.round, back.clip_norm) == (state.round, state.clip_norm)
    assert torch.equal(back.centres, state.centres)
    assert torch.equal(back.models, state.models)  # type: ignore[arg-type] # mtl keeps models
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    like = Checkpoint(0, torch.zeros(1, 3), 1.0, torch.zeros(M, 3))
    write_checkpoint(
        tmp_path / "other", Checkpoint(0, torch.zeros(1, 5), 1.0, torch.zeros(M, 5)), "run"
    )
    with pytest.raises(InvalidInput, match=r"\(1, 5\).*this run has.*\(1, 3\)"):
        read_checkpoint(tmp_path / "other", like)
    (tmp_path / "text").write_text("hello")
    for name in ("text", "absent"):
        with pytest.raises(InvalidInput, match="is not a checkpoint"):
            read_checkpoint(tmp_path / name, like)


def test_a_run_has_the_name_that_was_asked_for_unless_a_checkpoint_names_it(tmp_path: Path) -> None:
    assert named_run(None, None) is None
    assert named_run(None, "mine") == "mine"
    assert named_run(tmp_path / "absent", "mine") == "mine"
    (tmp_path / "text").write_text("hello")
    with pytest.raises(InvalidInput, match="text is not a checkpoint"):
        named_run(tmp_path / "text", None)


def test_a_fit_is_not_resumed_with_other_parameters_than_it_began_with(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y, task = rng.normal(size=(20, 3)), np.arange(20) % 2, np.repeat(range(M), 5)

    def killed(_: str, done: int, of: int) -> None:
        if done == 2:
            raise Killed

    def fitted(seed: int, progress: Any = None) -> FederatedMTL:
        torch.manual_seed(seed)
        model = FederatedMTL(
            nn.Linear(3, 2), method="mtl", rounds=3, budget=ZERO_OUT, sampling=Everyone(),
            ledger=tmp_path / "ledger.sqlite", checkpoint=tmp_path / "state", checkpoint_every=1,
            clip_norm=1.0, finetune=None,
        )  # fmt: skip
        return model.fit(X, y, task, progress=progress)

    with pytest.raises(Killed):
        fitted(0, killed)
    with pytest.raises(InvalidInput, match="does not follow from this module"):
        fitted(1)
    assert len(fitted(0).history_) == 3
