"""Nodes that trust nobody: each spends from its own ledger, the server acts on every arrival."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tacit import AsyncProximal, Budget, folder
from tacit.certificate.checks import checked
from tacit.engine.arrivals import Visit, run_arrivals
from tacit.errors import InvalidInput
from tacit.federation.coordinator import coordinate
from tacit.federation.wire import packed, unpacked
from tacit.privacy.ledger import Ledger

Answer = Callable[[bytes], bytes]
Make = Callable[..., Any]
RELEASES = 4


@pytest.fixture
def nodes(federation: Make) -> Any:
    rows = {str(label): 12 for label in range(6)}
    return federation("AsyncProximal", noise="secure", releases=RELEASES, rows=rows)


def recorded(there: Any) -> list[tuple[int, int]]:
    """(node, number) in the order in which the server took them in."""
    with Ledger(there.place / folder.LEDGER) as ledger:
        outputs = [e.payload for e in ledger.entries() if e.kind == "output"]
    return [(int(each["party"].split()[1]), each["round"]) for each in outputs]


def require_replay(there: Any) -> AsyncProximal:
    """One process with all rows, the recorded releases and their order, has the same models; the
    nodes' own ledgers hold what the server's repeats."""
    visits = [Visit(float(i), (node,)) for i, (node, _) in enumerate(recorded(there))]
    copy = there.place.parent / "copy.sqlite"
    shutil.copy(there.place / folder.LEDGER, copy)
    with Ledger(copy) as ledger:
        whole = there.terms.model(ledger)
        whole._engine = lambda parties, _: run_arrivals(parties, visits)
        before = len(ledger.entries())
        whole.fit_tasks(there.everything, there.terms.schema)
        assert len(ledger.entries()) == before
        assert isinstance(whole, AsyncProximal)
        for name, home in there.homes.items():
            with Ledger(home / folder.LEDGER) as own:
                for place in there.terms.places[name]:
                    label = there.terms.labels[place]
                    assert own.statement([label]).epsilon == ledger.statement([label]).epsilon
    _, arrays, _ = folder.read(there.place / "model")
    for name, part in whole.shared_.items():
        assert np.array_equal(arrays[f"shared.{name}"], np.asarray(part.value)), name
    for name, home in there.homes.items():
        own_model = AsyncProximal.load(home / "private")
        places = there.terms.places[name]
        assert np.array_equal(own_model._models, whole._models[places])
        assert np.array_equal(own_model._home_models, whole._home_models[places])
        for place in places:
            assert checked(there.site(name).hand_outs.of(place), there.terms.coordinator).ok
    return whole


def test_a_run_is_what_its_recorded_arrivals_give(nodes: Any) -> None:
    coordinate(nodes.place, nodes.channel())
    whole = require_replay(nodes)
    assert sorted(recorded(nodes)) == [(t, k) for t in range(6) for k in range(RELEASES)]
    assert whole.guarantee_.proven
    certified = AsyncProximal.load(nodes.place / "model").guarantee_.not_covered
    assert any("one of 72 examples may leak" in sentence for sentence in certified)
    assert whole.guarantee_.unit == "one example in one node's data"
    assert whole.guarantee_.epsilon == pytest.approx(8.0, rel=1e-6)


def test_the_server_asks_each_node_for_one_message_at_a_time(nodes: Any) -> None:
    channel = nodes.channel()
    coordinate(nodes.place, channel)
    steps = [unpacked(request)[0] for _, request in channel.sent]
    asked = [(s["place"], s["number"]) for s in steps if s["kind"] == "step"]
    for place in range(6):
        assert [number for p, number in asked if p == place] == list(range(RELEASES))


def test_what_a_node_sends_is_what_its_own_ledger_released(nodes: Any) -> None:
    seen: dict[tuple[int, int], Any] = {}

    def fault(site: str, request: bytes, answer: Answer) -> Sequence[bytes]:
        said, found = unpacked(request)[0], answer(request)
        if said["kind"] == "step":
            seen[said["place"], said["number"]] = unpacked(found)[1]["rows"]
        return [found]

    coordinate(nodes.place, nodes.channel(fault=fault))
    from tacit.privacy.node_runs import node_run
    from tacit.privacy.release import Key

    for name, home in nodes.homes.items():
        with Ledger(home / folder.LEDGER) as own:
            spends = [entry for entry in own.entries() if entry.kind == "spend"]
            assert len(spends) == RELEASES * len(nodes.terms.places[name])
            for place in nodes.terms.places[name]:
                for number in range(RELEASES):
                    key = Key(node_run("trial", place), number, f"node {place}")
                    released = own.released(key)
                    assert released is not None
                    assert np.array_equal(released.value, seen[place, number])


def test_a_node_that_never_answers_holds_nobody_up(nodes: Any) -> None:
    def fault(site: str, request: bytes, answer: Answer) -> Sequence[bytes]:
        said = unpacked(request)[0]
        return [] if said["kind"] == "step" and said["place"] == 3 else [answer(request)]

    coordinate(nodes.place, nodes.channel(fault=fault))
    assert {node for node, _ in recorded(nodes)} == {0, 1, 2, 4, 5}
    assert [line["node"] for line in nodes.journal("given up")] == [3]


def test_a_lost_a_doubled_and_a_false_answer_change_nothing(nodes: Any) -> None:
    lost = iter([True, False] * 100)

    def fault(site: str, request: bytes, answer: Answer) -> Sequence[bytes]:
        said, found = unpacked(request)[0], answer(request)
        if said["kind"] != "step":
            return [found]
        if said["place"] == 1 and next(lost):
            return []
        if said["place"] == 2 and said["number"] == 1 and b"seen" not in marks:
            marks.add(b"seen")
            return [packed(unpacked(found)[0], {"rows": np.full(4, np.nan)})]
        return [found, found]

    marks: set[bytes] = set()
    coordinate(nodes.place, nodes.channel(fault=fault))
    require_replay(nodes)
    assert sorted(recorded(nodes)) == [(t, k) for t in range(6) for k in range(RELEASES)]


class Killed(BaseException):
    """As if by kill -9."""


def test_a_server_that_dies_goes_on_from_what_arrived(
    nodes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    persist, left = Ledger._persist, {"of the server": 7}

    def dying(self: Ledger, *given: Any) -> Any:
        if self.path == (nodes.place / folder.LEDGER).resolve():
            left["of the server"] -= 1
            if left["of the server"] == 0:
                raise Killed
        return persist(self, *given)

    monkeypatch.setattr(Ledger, "_persist", dying)
    with pytest.raises(Killed):
        coordinate(nodes.place, nodes.channel())
    monkeypatch.setattr(Ledger, "_persist", persist)
    coordinate(nodes.place, nodes.channel())
    require_replay(nodes)
    assert sorted(recorded(nodes)) == [(t, k) for t in range(6) for k in range(RELEASES)]


def test_no_request_makes_a_node_spend_more_or_answer_twice(nodes: Any) -> None:
    coordinate(nodes.place, nodes.channel())
    site, ledger = nodes.site("north"), nodes.homes["north"] / folder.LEDGER
    (place,) = nodes.terms.places["north"]
    about = {"kind": "step", "terms": nodes.terms.digest, "place": place}
    zero = {"column": np.zeros(4)}
    with Ledger(ledger) as own:
        before = len(own.entries())

    def refused(description: dict[str, Any], arrays: Any = zero) -> str:
        said, rows = unpacked(site.answer(packed(description, arrays)))
        assert not rows
        return str(said["refused"])

    assert "release 4 of 4" in refused(about | {"number": RELEASES})
    assert "with other numbers" in refused(about | {"number": 0}, {"column": np.ones(4)})
    assert "which is not here" in refused(about | {"place": 5, "number": 0})
    assert "no column of 4" in refused(about | {"number": 0}, {"column": np.ones(5)})
    assert "names a place, a number" in refused(about | {"number": 0.0})
    again = [site.answer(packed(about | {"number": 0}, zero)) for _ in range(2)]
    assert again[0] == again[1]
    assert "rows" in unpacked(again[0])[1]
    with Ledger(ledger) as own:
        assert len(own.entries()) == before


def test_a_node_without_budget_left_sends_nothing(nodes: Any) -> None:
    with Ledger(nodes.homes["north"] / folder.LEDGER, cap=Budget(1.0)) as own:
        own.open_run("before", [nodes.terms.sites["north"].tasks[0]], Budget(1.0), [])
    coordinate(nodes.place, nodes.channel())
    (place,) = nodes.terms.places["north"]
    assert {node for node, _ in recorded(nodes)} == set(range(6)) - {place}


def test_seeded_noise_and_a_trusted_server_stay_in_one_process(federation: Make) -> None:
    there = federation("AsyncProximal", noise="secure", releases=1, server="trusted")
    with pytest.raises(InvalidInput, match="one process only"):
        coordinate(there.place, there.channel())


@pytest.mark.parametrize(
    ("learner", "neighbours", "holdout", "refused"),
    [
        ("AsyncProximal", "zero-out", 0.2, True),
        ("AsyncProximal", "zero-out", 0.0, False),
        ("AsyncProximal", "replace", 0.2, False),
        ("MeanRegularized", "zero-out", 0.2, False),  # all rows of a task are absent, or none
    ],
)
def test_nothing_is_held_out_where_an_example_may_be_absent(
    federation: Make, learner: str, neighbours: Any, holdout: float, refused: bool
) -> None:
    """One row fewer would deal all others anew, and the sum of gradients move by many."""
    agreed = federation(learner, noise="secure", budget=Budget(8.0, neighbours=neighbours)).terms
    terms = replace(agreed, holdout=holdout)
    with pytest.raises(InvalidInput, match="holdout = 0") if refused else nullcontext():
        terms.model()


def test_sums_alone_are_for_rounds(federation: Make) -> None:
    rows = {str(label): 12 for label in range(6)}
    there = federation("AsyncProximal", noise="secure", releases=1, rows=rows, fewest=4)
    with pytest.raises(InvalidInput, match="send releases alone"):
        coordinate(there.place, there.channel())
