"""The schedule decides when, the halves what: order, staleness, faults, replay, trust."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tacit.arrays import FloatArray
from tacit.engine import Message, Released
from tacit.engine.arrivals import (
    GRADIENT,
    Arrival,
    Parties,
    Visit,
    moments,
    run_arrivals,
)
from tacit.engine.latencies import Constant, Faults, Latency, Pareto, Straggler, Uniform, visits
from tacit.errors import InvalidInput, UntrustedMessage
from tacit.privacy.mechanisms import GaussianSum
from tacit.privacy.release import Key, Mechanism, Release

LATENCIES: list[Latency] = [Constant(), Uniform(), Pareto(), Straggler(Pareto(1.2))]


def name(latency: Latency) -> str:
    return type(latency).__name__


@dataclass(frozen=True)
class Adding:
    """A server that adds messages to the columns, and counts what it gets twice."""

    n_nodes: int = 3

    def start(self) -> dict[str, Any]:
        return {"P": np.zeros((1, self.n_nodes)), "rounds": [0] * self.n_nodes, "refused": 0}

    def arrive(self, state: dict[str, Any], arrivals: Any) -> dict[str, Any]:
        state = {**state, "P": state["P"].copy(), "rounds": list(state["rounds"])}
        for arrival in arrivals:
            if arrival.round != state["rounds"][arrival.node]:
                state["refused"] += 1
                continue
            state["P"][:, arrival.node] += arrival.gradient + 0.1 * state["P"].sum()
            state["rounds"][arrival.node] += 1
        return state

    def refresh(self, state: dict[str, Any], node: int) -> dict[str, Any]:
        rounds = list(state["rounds"])
        rounds[node] += 1
        return {**state, "rounds": rounds}

    def column(self, state: dict[str, Any], node: int) -> FloatArray:
        return np.asarray(state["P"][:, node])

    def round(self, state: dict[str, Any], node: int) -> int:
        return int(state["rounds"][node])


@dataclass(frozen=True)
class Echo:
    """A node whose message is a function of its column, and whose state counts its messages."""

    number: int
    releases: int = 5
    mechanism: Mechanism | None = None

    def start(self) -> int:
        return 0

    def contribute(self, column: FloatArray, state: int) -> tuple[FloatArray, int]:
        return np.cos(column + self.number + state), state

    def absorb(self, column: FloatArray, released: Released, state: int) -> tuple[Message, int]:
        return {GRADIENT: released}, state + 1


@dataclass
class Stamped:
    """A door that makes Releases, and remembers what it was asked."""

    planned: list[Mechanism] = field(default_factory=list)
    asked: list[tuple[str, int]] = field(default_factory=list)

    def open(self, mechanisms: Sequence[Mechanism]) -> None:
        assert not self.asked
        self.planned += mechanisms

    def release(self, number: int, party: str, mechanism: Mechanism, contributions: Any) -> Release:
        self.asked.append((party, number))
        return Release(contributions, (Key("run", number, party),), secure=False)


def echoes(releases: int = 5) -> list[Echo]:
    return [Echo(number, releases) for number in range(3)]


# --- the schedule --------------------------------------------------------------------------------


@pytest.mark.parametrize("latency", LATENCIES, ids=name)
def test_everybody_sends_as_often_as_declared_and_time_never_runs_backwards(
    latency: Latency,
) -> None:
    found = list(visits(latency, [4, 0, 7], seed=3))
    assert Counter(t for visit in found for t in visit.arriving) == {0: 4, 2: 7}
    times = [visit.time for visit in found]
    assert times == sorted(times)


@pytest.mark.parametrize("latency", LATENCIES[1:], ids=name)
def test_a_seed_is_a_schedule(latency: Latency) -> None:
    first = list(visits(latency, [20] * 4, seed=1))
    assert list(visits(latency, [20] * 4, seed=1)) == first
    assert list(visits(latency, [20] * 4, seed=2)) != first


def test_a_node_travels_the_same_whatever_the_others_do() -> None:
    def times(releases: list[int]) -> list[float]:
        return [v.time for v in visits(Uniform(), releases, seed=5) if 0 in v.arriving]

    assert times([10, 10, 10]) == times([10, 3, 0])


def test_the_synchronous_schedule_waits_for_the_slowest() -> None:
    slow = Straggler(Constant(1.0), slow=(2,), factor=10)
    rounds = list(visits(slow, [4] * 3, seed=0, staleness=0))
    assert [visit.time for visit in rounds] == [10.0, 20.0, 30.0, 40.0]
    assert all(sorted(visit.arriving) == [0, 1, 2] for visit in rounds)
    free = list(visits(slow, [4] * 3, seed=0))
    assert [v.time for v in free if 0 in v.arriving] == [1.0, 2.0, 3.0, 4.0]


def ages(schedule: list[Visit], nodes: int) -> list[int]:
    """Steps between a node's column and its message, of every message."""
    handed, found, step = [0] * nodes, [], 0
    for visit in schedule:
        for t in visit.refreshed:
            handed[t] = step
        found += [step - handed[t] for t in visit.arriving]
        step += bool(visit.arriving)
        for t in visit.arriving:
            handed[t] = step
    return found


@pytest.mark.parametrize("latency", [Pareto(1.1), Straggler(Uniform())], ids=name)
@pytest.mark.parametrize("staleness", [0, 1, 5, 40])
def test_no_view_is_older_than_the_bound(latency: Latency, staleness: int) -> None:
    nodes = 8
    bounded = list(visits(latency, [30] * nodes, seed=7, staleness=staleness))
    assert max(ages(bounded, nodes)) <= staleness
    assert Counter(t for v in bounded for t in v.arriving) == dict.fromkeys(range(nodes), 30)
    assert max(ages(list(visits(latency, [30] * nodes, seed=7)), nodes)) > 40


def test_what_arrives_while_the_server_is_busy_goes_into_one_step() -> None:
    busy = list(visits(Uniform(), [50] * 10, seed=2, service=0.005))
    assert max(len(visit.arriving) for visit in busy) > 1
    times = np.array([visit.time for visit in busy])
    assert np.diff(times).min() >= 0.005 - 1e-12


def test_a_heavy_tail_is_heavy_and_a_uniform_one_is_not() -> None:
    rng = np.random.default_rng(0)
    heavy, light = Pareto().draw(0, 100_000, rng), Uniform().draw(0, 100_000, rng)
    assert light.min() >= 0
    assert light.max() <= 0.015
    assert heavy.min() >= 0.0025
    assert np.mean(heavy > 0.25) == pytest.approx(100**-1.5, rel=0.5)  # (least/x)^shape


# --- faults --------------------------------------------------------------------------------------


def test_lost_messages_come_later_and_no_fewer() -> None:
    calm = list(visits(Constant(), [20] * 2, seed=0))
    rough = list(visits(Constant(), [20] * 2, seed=0, faults=Faults(lost=0.3)))
    assert Counter(t for v in rough for t in v.arriving) == {0: 20, 1: 20}
    assert rough[-1].time > calm[-1].time + 0.1


def test_a_doubled_message_is_the_same_message_and_the_server_may_refuse_it() -> None:
    schedule = list(visits(Uniform(), [5] * 3, seed=0, faults=Faults(repeated=0.5)))
    doubled = sum(len(visit.repeated) for visit in schedule)
    assert doubled > 0
    end = run_arrivals(Parties(Adding(), echoes(), server_trusted=True), schedule)
    clean = [visit._replace(repeated=()) for visit in schedule if visit.arriving]
    alone = run_arrivals(Parties(Adding(), echoes(), server_trusted=True), clean)
    assert end.server["refused"] == doubled
    np.testing.assert_array_equal(end.server["P"], alone.server["P"])
    assert end.sent == [5, 5, 5]


def test_the_others_go_on_without_a_node_that_is_dead() -> None:
    gone = Faults(outages={1: [(0.035, math.inf)]})
    schedule = list(visits(Constant(), [10] * 3, seed=0, faults=gone, staleness=2))
    assert Counter(t for v in schedule for t in v.arriving) == {0: 10, 1: 3, 2: 10}


def test_a_node_that_returns_asks_for_a_newer_column_and_finishes() -> None:
    away = Faults(outages={1: [(0.035, 0.2)]})
    schedule = list(visits(Constant(), [10] * 3, seed=0, faults=away, staleness=2))
    assert [visit.time for visit in schedule if 1 in visit.refreshed] == [0.2]
    assert Counter(t for v in schedule for t in v.arriving) == {0: 10, 1: 10, 2: 10}
    assert max(ages(schedule, 3)) <= 2
    end = run_arrivals(Parties(Adding(), echoes(10), server_trusted=True), schedule)
    assert end.server["refused"] == 0


@pytest.mark.parametrize(
    "faults", [{"lost": 1.0}, {"repeated": 2.0}, {"timeout": -1.0}, {"outages": {0: [(2.0, 1.0)]}}]
)
def test_faults_that_make_no_sense_are_refused(faults: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Faults(**faults)


def test_a_negative_bound_is_refused() -> None:
    with pytest.raises(InvalidInput, match="staleness"):
        visits(Constant(), [1], seed=0, staleness=-1)


# --- running it ----------------------------------------------------------------------------------


@pytest.mark.parametrize("latency", LATENCIES, ids=name)
def test_a_recorded_order_played_again_gives_the_same_bits(latency: Latency) -> None:
    faults = Faults(lost=0.1, repeated=0.2, outages={1: [(0.01, 0.02)]})
    schedule = list(visits(latency, [5] * 3, seed=4, faults=faults))
    first = run_arrivals(Parties(Adding(), echoes(), server_trusted=True), schedule)
    record = json.dumps(schedule)
    again = run_arrivals(
        Parties(Adding(), echoes(), server_trusted=True),
        [Visit(*visit) for visit in json.loads(record)],
    )
    assert first.server["P"].tobytes() == again.server["P"].tobytes()
    assert first.nodes == again.nodes == [5, 5, 5]
    other = run_arrivals(Parties(Adding(), echoes(), server_trusted=True), schedule[::-1])
    assert other.server["P"].tobytes() != first.server["P"].tobytes()


def test_a_node_answers_the_column_that_it_was_handed_and_not_a_later_one() -> None:
    seen: list[tuple[int, FloatArray]] = []

    class Watching(Adding):
        def arrive(self, state: dict[str, Any], arrivals: Any) -> dict[str, Any]:
            seen.extend((a.node, a.gradient) for a in arrivals)
            return super().arrive(state, arrivals)

    schedule = [Visit(1.0, (0,)), Visit(2.0, (1,)), Visit(3.0, (0,))]
    run_arrivals(Parties(Watching(), echoes(), server_trusted=True), schedule)
    first = np.cos(np.zeros(1))
    assert [node for node, _ in seen] == [0, 1, 0]
    np.testing.assert_array_equal(seen[2][1], np.cos(first + 0 + 1))  # its own column, moved once


def test_nothing_unprotected_reaches_a_server_that_is_not_trusted() -> None:
    arrived: list[Arrival] = []

    class Watching(Adding):
        def arrive(self, state: dict[str, Any], arrivals: Any) -> dict[str, Any]:
            arrived.extend(arrivals)
            return super().arrive(state, arrivals)

    with pytest.raises(UntrustedMessage, match="node 0 to server is a Unprotected"):
        run_arrivals(Parties(Watching(), echoes()), visits(Constant(), [1] * 3, seed=0))
    assert not arrived


def test_releases_cross_and_are_written_down() -> None:
    doors = [Stamped() for _ in range(3)]
    mechanism = GaussianSum(1.0, 4.0)
    nodes = [Echo(number, 2, mechanism) for number in range(3)]
    end = run_arrivals(Parties(Adding(), nodes, doors), visits(Uniform(), [2] * 3, seed=0))
    for t, door in enumerate(doors):
        assert door.planned == [mechanism] * 2  # before the first is asked for
        assert door.asked == [(f"node {t}", 0), (f"node {t}", 1)]
    assert len(end.transcript) == 6
    assert all(sender.startswith("node ") and to == "server" for sender, to, _ in end.transcript)


def test_a_node_that_sends_nothing_opens_no_door() -> None:
    doors = [Stamped() for _ in range(3)]
    nodes = [Echo(t, 2 * (t != 1), GaussianSum(1.0, 4.0)) for t in range(3)]
    run_arrivals(Parties(Adding(), nodes, doors), visits(Uniform(), [2, 0, 2], seed=0))
    assert [len(door.planned) for door in doors] == [2, 0, 2]


def test_a_node_sends_no_more_than_it_declared() -> None:
    with pytest.raises(InvalidInput, match="node 1 makes 2 releases"):
        run_arrivals(
            Parties(Adding(), echoes(2), server_trusted=True),
            visits(Constant(), [2, 3, 2], seed=0),
        )


def test_a_message_without_a_gradient_is_refused() -> None:
    class Mute(Echo):
        def absorb(self, column: FloatArray, released: Released, state: int) -> tuple[Message, int]:
            return {}, state

    with pytest.raises(InvalidInput, match="must hold 'gradient'"):
        run_arrivals(Parties(Adding(), [Mute(0)] * 3, server_trusted=True), [Visit(0.0, (0,))])


def test_an_empty_schedule_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no visit"):
        run_arrivals(Parties(Adding(), echoes()), visits(Constant(), [0] * 3, seed=0))


def test_moments_show_everybody_after_each_visit() -> None:
    parties = Parties(Adding(), echoes(2), server_trusted=True)
    sent = [sum(now.sent) for now in moments(parties, visits(Uniform(), [2] * 3, seed=0))]
    assert sent == [1, 2, 3, 4, 5, 6]


def test_the_twin_has_no_door_and_leaves_no_transcript() -> None:
    parties = Parties(Adding(), echoes(1), server_trusted=True)
    assert not run_arrivals(parties, visits(Uniform(), [1] * 3, seed=0)).transcript
