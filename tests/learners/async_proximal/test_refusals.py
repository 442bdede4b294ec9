"""What the server refuses: with a reason, counted, never applied."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tacit.engine.arrivals import Arrival
from tacit.errors import InvalidInput
from tacit.learners.async_proximal.server import Refusal, Server, ServerState
from tacit.learners.async_proximal.updates import Descent
from tacit.linear.penalties import TraceNorm


def server(**more: Any) -> Server:
    return Server(Descent(TraceNorm(), 0.1, 1.0), 2, 3, **{"largest": 5.0, **more})


def underway(half: Server) -> ServerState:
    """Node 0 was heard three times, the others never."""
    state = half.start()
    for k in range(3):
        state = half.arrive(state, [Arrival(0, k, np.array([1.0, -1.0]))])
    return state


def same(a: ServerState, b: ServerState) -> bool:
    """Up to what was refused."""
    return a.step == b.step and all(
        np.array_equal(x, y)
        for x, y in ((a.kept.V, b.kept.V), (a.handed, b.handed), (a.rounds, b.rounds))
    )


GOOD = np.array([1.0, 1.0])
BAD: list[tuple[Refusal, Arrival]] = [
    (Refusal.UNKNOWN_NODE, Arrival(3, 0, GOOD)),
    (Refusal.UNKNOWN_NODE, Arrival(-1, 0, GOOD)),
    (Refusal.UNKNOWN_NODE, Arrival("0", 0, GOOD)),  # type: ignore[arg-type] # hostile
    (Refusal.WRONG_SHAPE, Arrival(1, 0, np.ones(3))),
    (Refusal.WRONG_SHAPE, Arrival(1, 0, np.ones((2, 1)))),
    (Refusal.WRONG_SHAPE, Arrival(1, 0, np.float64(1.0))),  # type: ignore[arg-type] # hostile
    (Refusal.WRONG_SHAPE, Arrival(1, 0, [1.0, 1.0])),  # type: ignore[arg-type] # hostile
    (Refusal.NOT_FINITE, Arrival(1, 0, np.array([math.nan, 1.0]))),
    (Refusal.NOT_FINITE, Arrival(1, 0, np.array([math.inf, 1.0]))),
    (Refusal.NOT_FINITE, Arrival(1, 0, np.array([1j, 1.0]))),
    (Refusal.NOT_FINITE, Arrival(1, 0, np.array(["1", "2"]))),
    (Refusal.NOT_FINITE, Arrival(1, 0, np.array([None, 1.0]))),
    (Refusal.TOO_LARGE, Arrival(1, 0, np.array([3.0, 4.0 + 1e-9]))),
    (Refusal.TOO_LARGE, Arrival(1, 0, np.array([1e200, 1e200]))),
    (Refusal.ANSWERED, Arrival(0, 2, GOOD)),
    (Refusal.LONG_PAST, Arrival(0, 1, GOOD)),
    (Refusal.LONG_PAST, Arrival(0, -5, GOOD)),
    (Refusal.NOT_ASKED, Arrival(0, 4, GOOD)),
    (Refusal.NOT_ASKED, Arrival(1, 1, GOOD)),
]


@pytest.mark.parametrize(("reason", "arrival"), BAD, ids=range(len(BAD)))
def test_a_bad_message_is_refused_counted_and_never_applied(
    reason: Refusal, arrival: Arrival
) -> None:
    half = server()
    before = underway(half)
    after = half.arrive(before, [arrival])
    assert after.refused == {reason: 1}
    assert same(before, after)
    twice = half.arrive(after, [arrival, Arrival(2, 0, GOOD), arrival])
    assert twice.refused == {reason: 3}
    assert same(half.arrive(before, [Arrival(2, 0, GOOD)]), twice)  # the good one got through


def test_every_reason_has_a_test() -> None:
    assert {reason for reason, _ in BAD} == set(Refusal)


def test_a_node_whose_message_was_refused_can_still_send_a_good_one() -> None:
    half = server()
    state = half.arrive(half.start(), [Arrival(1, 0, np.array([math.nan, 0.0]))])
    state = half.arrive(state, [Arrival(1, 0, GOOD)])
    assert half.round(state, 1) == 1
    assert state.refused == {Refusal.NOT_FINITE: 1}


def test_of_two_messages_of_one_node_in_one_step_the_first_counts() -> None:
    half = server()
    both = half.arrive(half.start(), [Arrival(1, 0, GOOD), Arrival(1, 0, -GOOD)])
    assert same(half.arrive(half.start(), [Arrival(1, 0, GOOD)]), both)
    assert both.refused == {Refusal.ANSWERED: 1}


def test_a_message_at_the_bound_is_accepted_and_bounds_may_differ_by_node() -> None:
    half = server(largest=np.array([5.0, 1.0, math.inf]))
    state = half.start()
    assert not half.arrive(state, [Arrival(0, 0, np.array([3.0, 4.0]))]).refused
    assert half.arrive(state, [Arrival(1, 0, GOOD)]).refused == {Refusal.TOO_LARGE: 1}
    assert not half.arrive(state, [Arrival(2, 0, 1e9 * GOOD)]).refused


def test_a_column_that_was_replaced_cannot_be_answered() -> None:
    half = server()
    state = half.refresh(half.start(), 1)
    assert half.arrive(state, [Arrival(1, 0, GOOD)]).refused == {Refusal.ANSWERED: 1}
    assert not half.arrive(state, [Arrival(1, 1, GOOD)]).refused


@pytest.mark.parametrize("largest", [0.0, -1.0, math.nan, np.ones(2)])
def test_a_bound_that_makes_no_sense_is_refused(largest: Any) -> None:
    with pytest.raises(InvalidInput, match="largest"):
        server(largest=largest)
