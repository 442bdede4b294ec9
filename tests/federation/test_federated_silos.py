"""Silos that trust nobody, over a network: releases of their own ledgers, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
