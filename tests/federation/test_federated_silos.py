"""Silos that trust nobody, over a network: releases of their own ledgers, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tacit
from tacit import Budget, folder
from tacit.certificate.checks import checked
from tacit.errors import InvalidInput, Refused
from tacit.federation.coordinator import coordinate
from tacit.federation.site import COULD_NOT
from tacit.federation.wire import packed, unpacked
from tacit.privacy.ledger import Ledger
from tacit.privacy.node_runs import node_run
from tacit.privacy.release import Key

Answer = Callable[[bytes], bytes]
Make = Callable[..., Any]
PEOPLE = {str(label): 12 for label in range(6)}


@pytest.fixture
def learner() -> str:
    return "SharedPrior"


@pytest.fixture
def silos(federation: Make, learner: str) -> Any:
    return federation(learner, unit="example", noise="secure", people=PEOPLE)


def spends(file: Any) -> list[tuple[str, int]]:
    """(silo, round) of each, as a ledger has them."""
    with Ledger(file) as ledger:
        found = [entry.payload for entry in ledger.entries() if entry.kind == "spend"]
    return sorted((each["party"], each["round"]) for each in found)


def sent(home: Any, place: int) -> Any:
    """What a silo released in both rounds, as the ledger there has it."""
    with Ledger(home / folder.LEDGER) as ledger:
        keys = [Key(node_run("trial", place), number, f"silo {place}") for number in (0, 1)]
        found = [ledger.released(key) for key in keys]
        return np.concatenate([np.ravel(each.value) for each in found if each is not None])


@pytest.mark.parametrize("learner", ["SharedPrior", "MeanRegularized"])
def test_silos_learn_what_their_releases_give_and_each_ledger_has_its_own(
    silos: Any, learner: str
) -> None:
    coordinate(silos.place, silos.channel())
    whole = silos.replayed()
    _, arrays, _ = folder.read(silos.place / "model")
    for name, part in whole.shared_.items():
        assert np.array_equal(arrays[f"shared.{name}"], np.asarray(part.value)), name
    every = []
    for name, home in silos.homes.items():
        own = getattr(tacit, learner).load(home / "private")
        places = silos.terms.places[name]
        assert np.array_equal(own._models, whole._models[places])
        assert np.array_equal(own._home_models, whole._home_models[places])
        mine = spends(home / folder.LEDGER)
        assert {party for party, _ in mine} == {f"silo {place}" for place in places}
        every += mine
        for place in places:
            assert checked(silos.site(name).hand_outs.of(place), silos.terms.coordinator).ok
    assert sorted(every) == spends(silos.place / folder.LEDGER)  # what was sent was spent, once
    for name, home in silos.homes.items():
        for place in silos.terms.places[name]:
            assert np.array_equal(sent(home, place), sent(silos.place, place))  # as it was drawn
    model = getattr(tacit, learner).load(silos.place / "model")
    assert model.guarantee_.proven
    assert "the coordinator and all other silos" in model.guarantee_.adversary
    assert any("one of 72 people may leak" in sentence for sentence in model.guarantee_.not_covered)


def test_a_silo_that_is_away_ends_the_run_which_goes_on_when_it_is_back(silos: Any) -> None:
    def fault(site: str, request: bytes, answer: Answer) -> Sequence[bytes]:
        about = unpacked(request)[0]
        away = site == "at west" and about["kind"] == "release" and about["number"] == 1
        return [] if away else [answer(request)]

    with pytest.raises(Refused, match="west: not heard in round 1"):
        coordinate(silos.place, silos.channel(fault=fault))
    before = spends(silos.homes["north"] / folder.LEDGER)
    assert [number for _, number in before] == [0, 1]
    again = silos.channel()
    coordinate(silos.place, again)
    assert spends(silos.homes["north"] / folder.LEDGER) == before
    asked = [unpacked(request)[0] for site, request in again.sent if site == "at north"]
    assert not any(about["kind"] == "release" for about in asked)  # what is on the ledger
    silos.replayed()


def test_no_request_makes_a_silo_spend_more(silos: Any) -> None:
    coordinate(silos.place, silos.channel())
    site, before = silos.site("north"), spends(silos.homes["north"] / folder.LEDGER)
    about = {"kind": "release", "terms": silos.terms.digest}
    width = len(silos.terms.schema.feature_names) + 1

    def refused(number: Any, **arrays: Any) -> str:
        return str(unpacked(site.answer(packed(about | {"number": number}, arrays)))[0]["refused"])

    assert "with other numbers" in refused(0, **{"0/base": np.ones(width)})
    assert "tells another" in refused(1, **{"0/base": np.zeros(width)})
    assert "release 2 of 2" in refused(2, **{"2/base": np.zeros(width)})
    assert spends(silos.homes["north"] / folder.LEDGER) == before


def test_a_silo_without_budget_left_sends_nothing(silos: Any) -> None:
    with Ledger(silos.homes["north"] / folder.LEDGER, cap=Budget(1.0)) as own:
        own.open_run("before", [silos.terms.sites["north"].tasks[0]], Budget(1.0), [])
    with pytest.raises(Refused, match="north: not heard"):
        coordinate(silos.place, silos.channel())
    assert spends(silos.homes["north"] / folder.LEDGER) == []
    assert any(COULD_NOT in line["why"] for line in silos.journal("refused"))


def test_how_many_people_there_are_is_declared_and_true(federation: Make) -> None:
    there = federation("SharedPrior", unit="example", noise="secure")
    with pytest.raises(InvalidInput, match="declare people="):
        coordinate(there.place, there.channel())


# --- networks ------------------------------------------------------------------------------------

NETWORK: dict[str, Any] = {"model": {"hidden": [4]}, "loss": "squared", "rounds": 2}
NETWORK |= {"people": PEOPLE, "finetune": "mean", "finetune_steps": 2}


@pytest.mark.parametrize(
    "parameters",
    [{}, {"method": "mtl"}, {"method": "fedavg", "sampling": "auto", "participation": 0.5}],
    ids=["everybody", "apart", "samples"],
)
def test_networks_of_silos_are_those_of_their_releases(
    federation: Make, parameters: dict[str, Any]
) -> None:
    """Public models are a function of releases; what a silo makes of them, of its own coins."""
    pytest.importorskip("torch")
    from tacit.federation.own_clients import COINS, keep_coins
    from tacit.federation.records import Records

    given = {"unit": "example", "noise": "secure", "seconds": 60.0}
    budget = Budget(8.0, neighbours="zero-out" if "sampling" in parameters else "replace")
    there = federation("neural.FederatedMTL", budget=budget, **given, **NETWORK, **parameters)
    coordinate(there.place, there.channel())
    _, arrays, _ = folder.read(there.place / "model")
    every = []
    for name, home in there.homes.items():
        with Ledger(there.place / folder.LEDGER) as ledger:
            whole = there.terms.model(ledger)
            keep_coins(whole, Records.at(home, there.terms).secret(COINS))
            whole.fit_tasks(there.everything, there.terms.schema)
        for part, released in whole.shared_.items():
            assert np.array_equal(arrays[f"shared.{part}"], released.value), part
        places = there.terms.places[name]
        _, own, _ = folder.read(home / "private")
        assert np.array_equal(own["models"], whole._models.models[places].numpy())
        assert np.array_equal(own["home"], whole._home_models[places].numpy())
        assert not np.array_equal(own["home"], own["models"])
        every += spends(home / folder.LEDGER)
        for place in places:
            assert np.array_equal(sent(home, place), sent(there.place, place))
            assert checked(there.site(name).hand_outs.of(place), there.terms.coordinator).ok
    assert sorted(every) == spends(there.place / folder.LEDGER)
    assert len(every) == 6 * 2


def test_networks_of_silos_hold_to_their_own_ledgers(federation: Make) -> None:
    pytest.importorskip("torch")
    there = federation("neural.FederatedMTL", unit="example", noise="secure", **NETWORK)
    with Ledger(there.homes["north"] / folder.LEDGER, cap=Budget(1.0)) as own:
        own.open_run("before", [there.terms.sites["north"].tasks[0]], Budget(1.0), [])
    with pytest.raises(Refused, match="north: not heard"):
        coordinate(there.place, there.channel())
    assert spends(there.homes["north"] / folder.LEDGER) == []


def test_a_coordinator_cannot_choose_a_silos_secret_coins(federation: Make) -> None:
    """Told that every round is the first, a silo would draw the same people in each and be charged
    for independent samples: δ = .065 where 1e-5 was certified, at ε = 2 after 30 rounds."""
    pytest.importorskip("torch")
    given = {"unit": "example", "noise": "secure", "method": "fedavg", "participation": 0.5}
    budget = Budget(8.0, neighbours="zero-out")
    there = federation("neural.FederatedMTL", budget=budget, **given, **NETWORK)
    there.site("north").answer(packed({"kind": "agree", "terms": there.terms.to_dict()}))
    about = {"kind": "release", "terms": there.terms.digest, "number": 1}
    model = np.zeros((1, 1), dtype=np.float32)
    for told in (0, 1.5, -1, [1]):
        arrays = {"1/round": np.asarray(told), "1/centres": model, "1/models": model}
        said, _ = unpacked(there.site("north").answer(packed(about, arrays)))
        assert "and tells another" in str(said["refused"])
    assert not (there.homes["north"] / folder.LEDGER).exists()


def test_networks_of_silos_refuse_rows_whose_number_would_tell(federation: Make) -> None:
    """Of people who may be absent, or whose rows are dropped for what they hold."""
    pytest.importorskip("torch")
    given = {"unit": "example", "noise": "secure", **NETWORK}
    there = federation("neural.FederatedMTL", budget=Budget(8.0, neighbours="zero-out"), **given)
    with pytest.raises(InvalidInput, match="would change which others are held out"):
        replace(there.terms, holdout=0.2).model()
    columns = [replace(column, missing="drop") for column in there.terms.schema.columns]
    drops = replace(there.terms.schema, columns=tuple(columns))
    with pytest.raises(InvalidInput, match='missing="drop"'):
        there.terms.model(Ledger.in_memory()).fit_tasks(there.everything, drops)
