"""FederatedMTL where people inside silos are protected: promise, releases, and what stays home."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn

from tacit import Budget, Ledger
from tacit.certificate import checked
from tacit.cli.verify import judged
from tacit.engine import Step
from tacit.errors import BudgetExceeded, InvalidInput, NoiseWarning, NotPure, PrivacyWarning
from tacit.neural import FederatedMTL
from tacit.neural.client_training import LocalWork, Trainer
from tacit.neural.clients import Examples
from tacit.neural.sampling import Everyone, Fixed, SecretCoins
from tacit.neural.secret_streams import Coins
from tacit.neural.silos.dp_sgd import MeanOfSilos, People, SiloRounds, SilosAtHome
from tacit.neural.silos.row_gradients import RowGradients
from tacit.neural.stacked import Stacked
from tacit.privacy.node_runs import node_run
from tacit.privacy.release import Declared, Key, Release
from tacit.privacy.signing import signer_in

SILOS, ROWS, D = 5, 12, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(SILOS * ROWS, D))
Y = (X[:, 0] > 0).astype(int)
TASK = np.repeat([f"clinic {k}" for k in range(SILOS)], ROWS)


def made(**settings: Any) -> FederatedMTL:
    torch.manual_seed(0)
    chosen: dict[str, Any] = {
        "unit": "example",
        "method": "fedavg",
        "rounds": 3,
        "finetune": None,
        "classes": [0, 1],
        "noise": "simulated",
        "random_state": 0,
        "budget": Budget(8.0),
    }
    return FederatedMTL(nn.Linear(D, 2), **chosen | settings)


def fitted(**settings: Any) -> FederatedMTL:
    return made(**settings).fit(X, Y, TASK)


def test_samples_of_a_fixed_size_are_refused() -> None:
    # A declared number of people would amplify what the true number does not.
    with pytest.raises(InvalidInput, match=r"Everyone\(\) or SecretCoins\(rate\) inside silos"):
        fitted(sampling=Fixed(ROWS), people=1000 * ROWS)


# --- what is promised ----------------------------------------------------------------------------


def test_the_guarantee_is_of_people_against_everybody_outside() -> None:
    found = fitted(noise="secure", random_state=None).guarantee_
    assert found.epsilon == pytest.approx(8.0, rel=1e-6)
    assert (found.proven, found.secure_noise, found.neighbours) == (True, True, "replace")
    assert found.unit == "one row in one silo's data, taken as one person"
    assert found.adversary.startswith("everybody outside the silo: the coordinator")
    assert any("predict_at_home" in sentence for sentence in found.not_covered)
    assert found.not_covered[-1].startswith(f"delta: one of {len(Y)} people may leak")


def test_every_silo_spends_from_a_run_of_its_own() -> None:
    ledger = Ledger.in_memory()
    model = fitted(ledger=ledger)
    assert model.run_ is not None
    spends = [e.payload["run"] for e in ledger.entries() if e.kind == "spend"]
    assert sorted(set(spends)) == sorted(node_run(model.run_, j) for j in range(SILOS))
    assert all(spends.count(run) == 3 for run in spends)
    assert {line["count"] for line in model.history_} == {3}


@pytest.mark.parametrize("method", ["fedavg", "mtl"])
def test_only_releases_cross_to_others(method: str) -> None:
    model = fitted(method=method)
    sent = [message for sender, _, message in model.transcript_ if sender.startswith("silo")]
    assert len(sent) == 3 * SILOS
    assert all(isinstance(part, Release) for message in sent for part in message.values())
    assert all(isinstance(part, Release) for part in model.shared_.values())


def test_samples_of_people_are_charged_by_their_coins() -> None:
    budget = Budget(2.0, neighbours="zero-out")
    model = fitted(budget=budget, people=ROWS, participation=0.25, noise="secure")
    assert model.guarantee_.epsilon == pytest.approx(2.0, rel=1e-3)
    assert model.guarantee_.epsilon <= 2.0
    assert {line["event"]["kind"] for line in model.history_} == {"Poisson"}
    assert model.guarantee_.proven
    assert not fitted(budget=budget, people=ROWS, participation=0.25).guarantee_.proven


@pytest.mark.parametrize(
    "settings", [{}, {"sampling": SecretCoins(0.5)}], ids=["everybody", "sample"]
)
def test_what_a_silo_hands_out_is_sound(settings: dict[str, Any], tmp_path: Path) -> None:
    if settings:
        settings |= {"budget": Budget(8.0, neighbours="zero-out"), "people": ROWS}
    model = fitted(ledger=tmp_path / "l.sqlite", noise="secure", **settings)
    key = signer_in(tmp_path / "l.sqlite.signing").fingerprint
    model.export("clinic 1", tmp_path / "one")
    model.save(tmp_path / "public", public=True)
    assert [checked(tmp_path / name, key).problems for name in ("one", "public")] == [(), ()]
    kind, judgement = judged(tmp_path / "one", key)
    assert (kind, judgement.ok) == ("hand-out", True)


def test_where_noise_outweighs_what_is_learned_nothing_is_spent_and_that_is_said() -> None:
    with pytest.warns(NoiseWarning, match="no round is run, nothing is spent"):
        model = fitted(method="auto", rounds=None, budget=Budget(0.01), finetune="auto")
    assert (model.rounds_, model.guarantee_.epsilon) == (0, 0.0)
    assert model.private_home_["own"] == SILOS


# --- budgets -------------------------------------------------------------------------------------


def test_a_silo_that_has_spent_stops_and_the_others_go_on() -> None:
    ledger = Ledger.in_memory(cap=Budget(8.0))
    made(ledger=ledger).fit(X[:ROWS], Y[:ROWS], TASK[:ROWS])
    with pytest.raises(BudgetExceeded):
        fitted(ledger=ledger)
    each = {f"clinic {k}": Budget(5.0) for k in range(SILOS)}
    model = fitted(ledger=ledger, budget=each, method="mtl")
    senders = {sender for sender, _, _ in model.transcript_}
    assert senders == {"coordinator", *(f"silo {j}" for j in range(1, SILOS))}
    mean = np.asarray(model.shared_["centres"].value)[0]
    np.testing.assert_array_equal(model._models.models[0].numpy(), mean)
    assert model.predict_at_home(X, TASK).shape == Y.shape


def test_a_stricter_silo_spends_less_and_counts_less() -> None:
    ledger = Ledger.in_memory()
    budgets = {f"clinic {k}": Budget(1.0 if k == 3 else 8.0) for k in range(SILOS)}
    fitted(ledger=ledger, budget=budgets)
    spent = [ledger.statement([label]).epsilon for label in budgets]
    assert spent[3] == pytest.approx(1.0, rel=1e-6)
    assert spent[0] == pytest.approx(8.0, rel=1e-6)


def test_a_run_fitted_again_releases_the_same_and_spends_nothing() -> None:
    ledger = Ledger.in_memory()
    once = fitted(ledger=ledger, run="a run", finetune="auto")
    again = fitted(ledger=ledger, run="a run", finetune="auto")
    assert sum(e.kind == "spend" for e in ledger.entries()) == 3 * SILOS
    np.testing.assert_array_equal(once.shared_["centres"].value, again.shared_["centres"].value)
    np.testing.assert_array_equal(once.predict_at_home(X, TASK), again.predict_at_home(X, TASK))


# --- whose rows ----------------------------------------------------------------------------------


def test_rows_that_name_their_person_count_once() -> None:
    three = np.repeat(np.arange(len(Y)), 3)
    whose = [f"patient {i}" for i in three]
    once, thrice = fitted(), made().fit(X[three], Y[three], TASK[three], person=whose)
    assert thrice.guarantee_.unit == "one person in one silo's data, with all rows that name them"
    np.testing.assert_allclose(
        thrice.shared_["centres"].value, once.shared_["centres"].value, atol=1e-5
    )


def test_a_persons_rows_are_drawn_together() -> None:
    person = np.array([4, 4, 9, 4, 9, 1])
    examples = Examples(torch.zeros(6, 1), torch.zeros(6), np.array([0, 6]))
    people = People.of(examples, person)
    assert people.counts.tolist() == [3]
    rows, weights = people.sampled(0, np.array([1]))  # the second by their numbers: 4
    assert rows.tolist() == [0, 1, 3]
    np.testing.assert_allclose(weights, 1 / 3)


def test_with_a_declared_number_of_rows_nobody_counts_more_than_once() -> None:
    examples = Examples(torch.zeros(6, 1), torch.zeros(6), np.array([0, 6]))
    people = People.of(examples, np.array([4, 4, 9, 4, 9, 1]), rows_each=2)
    totals = [people.sampled(0, np.array([k]))[1].sum() for k in range(3)]  # of 1, 4 and 9
    np.testing.assert_allclose(totals, [0.5, 1.0, 1.0])
    once = made(rows_per_person=3).fit(X, Y, TASK, person=np.arange(len(Y)))
    far, near = (m.shared_["centres"].value for m in (fitted(), once))
    assert not np.allclose(far, near)
    assert once.guarantee_.epsilon == pytest.approx(8.0, rel=1e-6)


def test_a_column_of_a_frame_may_say_whose_row_each_is() -> None:
    frame = pl.DataFrame(X, schema=["a", "b", "c"])
    whose = [f"patient {i}" for i in np.arange(len(Y)) // 2]
    named = frame.with_columns(clinic=pl.Series(TASK), patient=pl.Series(whose))
    one = made().fit(named, Y, "clinic", person="patient")
    two = made().fit(frame, Y, TASK, person=whose)
    assert one.feature_names_in_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(one.shared_["centres"].value, two.shared_["centres"].value)


def test_a_person_in_several_silos_is_warned_of() -> None:
    whose = np.arange(len(Y))
    whose[-1] = 0
    with pytest.warns(PrivacyWarning, match=r"1 names of people .* more than 1 .* not cover$"):
        made().fit(X, Y, TASK, person=whose)


# --- the recursion -------------------------------------------------------------------------------


def released(values: Any) -> Release:
    return Release(np.asarray(values, dtype=np.float64), (Key("run", 0, "silo"),), secure=True)


def plan(pull: float | None, multipliers: Any = (1.0, 1.0)) -> SiloRounds:
    people, z = np.array([10, 30]), np.array(multipliers)
    return SiloRounds((0, 1), people, z, SecretCoins(0.5), 1.0, np.array([0.1, 0.1]), pull)


def test_a_mean_moves_by_all_and_a_model_by_its_own() -> None:
    releases = [released([5.0, 0.0]), released([0.0, 15.0])]  # g = (1, 0) and (0, 1)
    start = np.zeros(2, dtype=np.float32)
    mean = MeanOfSilos(plan(None), start)
    shared = mean.absorb("gradients", mean.start(), releases)
    np.testing.assert_allclose(shared["centres"].value, [[-0.025, -0.075]])
    apart = MeanOfSilos(plan(0.0), start)
    shared = apart.absorb("gradients", apart.start(), releases)
    np.testing.assert_allclose(shared["models"].value, [[-0.1, 0.0], [0.0, -0.1]])
    np.testing.assert_allclose(shared["centres"].value, [[-0.025, -0.075]])
    pulled = MeanOfSilos(plan(10.0), start)  # η λ = 1: after a step everybody is where the mean was
    first = pulled.absorb("gradients", pulled.start(), releases)
    quiet = [released([0.0, 0.0])] * 2
    second = pulled.absorb("gradients", first, quiet)
    np.testing.assert_allclose(second["models"].value, np.repeat(first["centres"].value, 2, 0))
    assert int(second["round"].value) == 2


def test_noisier_silos_count_less_in_the_mean() -> None:
    np.testing.assert_allclose(plan(None).weights, [0.25, 0.75])
    np.testing.assert_allclose(plan(None, (1.0, 10.0)).weights, [10 / 10.3, 0.3 / 10.3])


def test_with_hardly_any_noise_a_round_is_a_step_down_the_mean_loss() -> None:
    model = fitted(budget=Budget(1e7), rounds=1, clip_norm=5.0, learning_rate=0.5)
    torch.manual_seed(0)
    module = nn.Linear(D, 2)
    outputs = module(torch.from_numpy(X).float())
    nn.functional.cross_entropy(outputs, torch.from_numpy(Y)).backward()  # type: ignore[no-untyped-call] # torch's
    wanted = torch.cat(
        [(p - 0.5 * p.grad).flatten() for p in module.parameters() if p.grad is not None]
    )
    np.testing.assert_allclose(
        model.shared_["centres"].value[0], wanted.detach().numpy(), atol=2e-4
    )


def test_a_silos_message_is_the_same_alone_and_among_others() -> None:
    """Bit for bit, by the ledger: the same coins and noise, whoever else is fitted."""
    from tacit.neural.silos.dp_sgd import People

    torch.manual_seed(0)
    module, rows = (
        nn.Sequential(nn.Linear(D, 9), nn.Tanh(), nn.Linear(9, 2)),
        torch.from_numpy(X).float(),
    )
    examples = Examples(rows, torch.from_numpy(Y), np.arange(0, len(Y) + 1, ROWS))
    trainer = Trainer(Stacked(module, rows[:2]), LocalWork(1, 4, 0.1), examples)
    all_silos = tuple(range(SILOS))
    agreed = SiloRounds(
        all_silos, np.full(SILOS, ROWS), np.ones(SILOS), SecretCoins(0.7), 0.5, np.ones(1), 0.1
    )
    people = People.of(examples, None)
    home = SilosAtHome(agreed, RowGradients.of(trainer)[0], people, Coins(bytes(32)), all_silos)
    models = trainer.stacked.start().numpy() + RNG.normal(size=(SILOS, trainer.stacked.size))
    shared = {"round": Declared(0), "models": Declared(models.astype(np.float32))}
    mechanism = agreed.mechanism(0)
    step = Step("gradients", mechanism)
    together = list(home.contribute(step, shared, None)[0])
    for j in (3, 0, 4):
        (alone,) = home.select([j]).contribute(step, shared, None)[0]
        np.testing.assert_array_equal(mechanism.counts(alone), mechanism.counts(together[j]))


# --- at home, and afterwards ---------------------------------------------------------------------


def test_what_is_public_and_what_stays_home_come_back_from_a_folder(tmp_path: Path) -> None:
    model = fitted(finetune="auto", noise="secure")
    model.save(tmp_path / "all")
    back = FederatedMTL.load(tmp_path / "all", nn.Linear(D, 2))
    np.testing.assert_array_equal(back.predict(X, TASK), model.predict(X, TASK))
    np.testing.assert_array_equal(back.predict_at_home(X, TASK), model.predict_at_home(X, TASK))
    assert not np.array_equal(model.predict(X, TASK), model.predict_at_home(X, TASK))
    model.save(tmp_path / "public", public=True)
    assert FederatedMTL.load(tmp_path / "public", nn.Linear(D, 2)).tasks_ == ()


def test_a_newcomer_shows_nothing_of_its_rows() -> None:
    model = fitted(finetune="auto").adapt(X[:ROWS], 1 - Y[:ROWS], "a new clinic")
    named = ["a new clinic"] * ROWS
    shown = model.predict(X[:ROWS], named)
    np.testing.assert_array_equal(shown, model.predict(X[:ROWS], named, unknown="shared"))
    assert np.mean(model.predict_at_home(X[:ROWS], named) == 1 - Y[:ROWS]) > 0.8


def test_without_a_budget_nothing_is_kept_from_anybody() -> None:
    model = fitted(budget=None, rounds=2)
    assert model.guarantee_.epsilon == np.inf
    np.testing.assert_array_equal(model.predict(X, TASK), model.predict_at_home(X, TASK))


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"adaptive_clip": None, "relation": [0] * SILOS}, "relation means nothing where people"),
        ({"local_steps": 3}, "local_steps means nothing where people"),
        ({"noise_multiplier": 2.0}, "noise_multiplier means nothing where people"),
        ({"budget": Budget(1.0, neighbours="zero-out")}, "declare one with people="),
        ({"people": {"clinic 0": 3}}, "people declares no number for node 'clinic 1'"),
        ({"people": 0.5}, "people must be an integer"),
        (
            {"finetune": "auto", "finetune_steps": 3},
            "finetune_steps means nothing with finetune='auto'",
        ),
        ({"rows_per_person": 2}, "rows_per_person means nothing where no person is named"),
        ({"finetune_pull": 0.3}, "finetune_pull means nothing with finetune=None"),
    ],
)
def test_what_would_be_ignored_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        fitted(**settings)


def test_bad_input_is_refused_before_anything_is_spent() -> None:
    ledger = Ledger.in_memory()
    with pytest.raises(InvalidInput, match="person names 3 rows"):
        made(ledger=ledger).fit(X, Y, TASK, person=[1, 2, 3])
    with pytest.raises(InvalidInput, match="fit with unit='example'"):
        made(ledger=ledger, unit="task").fit(X, Y, TASK, person=TASK)
    with pytest.raises(InvalidInput, match="watch="):
        made(ledger=ledger).fit(X, Y, TASK, watch=(X, Y, TASK))
    with pytest.raises(InvalidInput, match=r"takes \(\d+,\); rows of shape \(1,\) give it \(1,\)"):
        made(ledger=ledger).fit(X[:, :1], Y, TASK)
    with pytest.raises(NotPure):
        fitted(ledger=ledger, budget=Budget(1.0, 0.0))
    assert not [e for e in ledger.entries() if e.kind == "spend"]


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's, of attention
def test_a_module_without_gradients_of_single_rows_is_refused() -> None:
    attention = nn.TransformerEncoderLayer(1, 1, 2, dropout=0.1, batch_first=True)
    layers = nn.Unflatten(1, (D, 1)), attention, nn.Flatten(), nn.Linear(D, 2)
    with pytest.raises(InvalidInput, match="the gradient of each row by itself"):
        made().set_params(model=nn.Sequential(*layers)).fit(X, Y, TASK)


def test_a_delta_that_allows_somebody_to_be_revealed_is_warned_of() -> None:
    with pytest.warns(PrivacyWarning, match="not below one over the number of people, 60"):
        fitted(budget=Budget(8.0, 0.05))


def test_a_silo_with_one_person_and_huge_rows_stays_within_its_noise() -> None:
    """Its sum is clipped: whatever the row is, the mean moves by no more than noise and C."""
    wild = X.copy()
    wild[0] = 1e30
    task = np.array(["alone", *TASK[1:]])
    model = made(sampling=Everyone()).fit(wild, Y, task)
    assert np.isfinite(model.shared_["centres"].value).all()
    assert model.guarantee_.epsilon == pytest.approx(8.0, rel=1e-6)


def test_a_declared_size_that_is_wrong_is_refused_where_it_is_public() -> None:
    ledger = Ledger.in_memory()
    assert fitted(people=ROWS).guarantee_ == fitted().guarantee_
    with pytest.raises(InvalidInput, match=f"'clinic 0' has {ROWS} people, and people= says 40"):
        fitted(people=40, ledger=ledger)
    assert not [e for e in ledger.entries() if e.kind in ("run", "spend")]


def test_a_declared_size_that_is_wrong_changes_the_divisor_and_nothing_else() -> None:
    budget = Budget(4.0, neighbours="zero-out")
    right, wrong = (fitted(budget=budget, people=n, rounds=1) for n in (ROWS, 10 * ROWS))
    assert wrong.ledger_ is not None
    assert right.guarantee_.epsilon == wrong.guarantee_.epsilon
    assert f"one of {10 * ROWS * SILOS} people" in wrong.guarantee_.not_covered[-1]  # not of 60
    recorded = [e.payload for e in wrong.ledger_.entries() if e.kind == "spend"]
    assert {spend["mechanism"]["people"] for spend in recorded} == {10 * ROWS}
    torch.manual_seed(0)
    start = torch.cat([p.detach().flatten() for p in nn.Linear(D, 2).parameters()]).numpy()
    near, far = (np.asarray(m.shared_["centres"].value)[0] - start for m in (right, wrong))
    np.testing.assert_allclose(near, 10 * far, rtol=1e-3, atol=1e-6)
