"""The event-driven engine: every party in one process, nobody waits for anybody.

*When* something happens is decided before anything is computed: a schedule (engine/latencies.py) is
a sequence of ``Visit``, drawn from latencies alone. So sending times cannot depend on data, and a
recorded order, played again, gives the same bits. *What* happens is decided by two halves that know
neither time nor transport:

::

    node t                                           server
    column, round k  ────────────────────────────────  column(state, t), round(state, t)
    contribute(column, state) → contribution, state
    its door, by its mechanism → released            a ledger run of its own; nothing in the twin
    absorb(column, released, state) → message, state
    message  ──── Edge (no Unprotected to an adversary) ────▶  arrive(state, arrivals) → state

A node makes a fixed number of releases, then stops; the others go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from tacit.arrays import FloatArray
from tacit.engine.protocol import Message, Progress, Released, Transcript, Unprotected
from tacit.engine.trust import Edge
from tacit.errors import InvalidInput
from tacit.linear.threads import one_blas_thread
from tacit.privacy.release import Mechanism

SERVER = "server"
GRADIENT = "gradient"  # the part of a node's message that the server reads

S = TypeVar("S")


class Arrival(NamedTuple):
    """A node's answer to the column that the server handed it in round ``round``."""

    node: int
    round: int
    gradient: FloatArray  # (d,), of the node's mean loss in p_t, if the node is honest


class ServerHalf(Protocol[S]):
    """Messages in, columns out: explicit state, no clock, no transport, no private data."""

    def start(self) -> S:
        """Before the first message: everybody has been handed a column that is a constant."""

    def arrive(self, state: S, arrivals: Sequence[Arrival]) -> S:
        """Takes in all messages that are waiting, and hands new columns to those it accepted.

        A message that is refused is counted by its reason and changes nothing else.
        """

    def refresh(self, state: S, node: int) -> S:
        """Hands the node a newer column under a new round; the earlier one is void."""

    def column(self, state: S, node: int) -> FloatArray:
        """(d,): what the node was handed last; the same bits however often it asks."""

    def round(self, state: S, node: int) -> int:
        """The number of that column, which the answer must name."""


class NodeHalf(Protocol):
    """One task: private data in, contributions out; explicit state, no clock, no I/O."""

    @property
    def releases(self) -> int:
        """How many messages it sends: known before the first."""

    @property
    def mechanism(self) -> Mechanism | None:
        """What all of them go through; None in the twin, whose messages cross trusted edges."""

    def start(self) -> Any:
        """The state before the first column."""

    def contribute(self, column: FloatArray, state: Any) -> tuple[FloatArray, Any]:
        """What the door gets, computed from the data at this column, and the state."""

    def absorb(self, column: FloatArray, released: Released, state: Any) -> tuple[Message, Any]:
        """The message, holding GRADIENT, and the next state: both from what was released.

        Nothing private may enter here: given the same releases the state is the same.
        """


class NodeDoor(Protocol):
    """The way out of a node (privacy.planning.Door): one ledger run, declared before it starts."""

    def open(self, mechanisms: Sequence[Mechanism]) -> None:
        """Declares all releases of the node; BudgetExceeded before any noise is drawn."""

    def release(
        self, number: int, party: str, mechanism: Mechanism, contributions: Any
    ) -> Released:
        """Release ``number`` (0, 1, …); asked again, the same bits again."""


class Visit(NamedTuple):
    """What reaches the server at one instant, and so in one step of it."""

    time: float
    arriving: tuple[int, ...]  # nodes whose next message is here
    repeated: tuple[int, ...] = ()  # nodes whose last message is here once more
    refreshed: tuple[int, ...] = ()  # nodes that ask for a newer column before they go on


@dataclass
class Moment:
    """Where everybody is after a visit."""

    time: float
    server: Any
    nodes: list[Any]  # the state of each node; private
    sent: list[int]  # messages of each node so far
    transcript: Transcript  # of them, where the server is not trusted
    arrivals: list[Arrival] = field(default_factory=list)  # the same as the server took them


@dataclass(frozen=True)
class Parties:
    """Who takes part: one server, one node per task, a door for each, and whom they trust."""

    server: ServerHalf[Any]
    nodes: Sequence[NodeHalf]
    doors: Sequence[NodeDoor] = ()  # one per node, where messages go through a mechanism
    server_trusted: bool = False


def moments(parties: Parties, schedule: Iterable[Visit]) -> Iterator[Moment]:
    """Runs a schedule; yields where everybody is after each visit.

    What a node will send is fixed before the first: its door is opened for all of it. The moment is
    the engine's own: copy what is to be kept.
    """
    for node, door in zip(parties.nodes, parties.doors, strict=False):
        if node.releases and node.mechanism is not None:
            door.open([node.mechanism] * node.releases)
    count = len(parties.nodes)
    states = [node.start() for node in parties.nodes]
    now = Moment(0.0, parties.server.start(), states, [0] * count, [])
    edges = [
        Edge(f"node {t}", SERVER, parties.server_trusted, now.transcript) for t in range(count)
    ]
    last: dict[int, Arrival] = {}
    for visit in schedule:
        now.time = visit.time
        for t in visit.refreshed:
            now.server = parties.server.refresh(now.server, t)
        repeated = [last[t] for t in visit.repeated if t in last]
        for t in visit.arriving:
            last[t] = _message(parties, edges[t], now, t)
            now.arrivals.append(last[t])
        arrivals = [*repeated, *(last[t] for t in visit.arriving)]
        if arrivals:
            now.server = parties.server.arrive(now.server, arrivals)
        yield now


def run_arrivals(parties: Parties, schedule: Iterable[Visit]) -> Moment:
    """Runs a schedule to its end."""
    with one_blas_thread():  # many small products: threads would only wait
        end = deque(moments(parties, schedule), maxlen=1)
    if not end:
        raise InvalidInput("the schedule has no visit: no node sends anything")
    return end[0]


def told(schedule: Iterable[Visit], parties: Parties, progress: Progress) -> Iterator[Visit]:
    """The schedule, while somebody is told how many messages have come, a hundred times at most."""
    done, of = 0, sum(node.releases for node in parties.nodes)
    for visit in schedule:
        yield visit
        before, done = done, done + len(visit.arriving)
        if progress is not None and 100 * done // of > 100 * before // of:
            progress("messages", done, of)


def _message(parties: Parties, edge: Edge, now: Moment, t: int) -> Arrival:
    """The next message of node t, across the edge."""
    node = parties.nodes[t]
    if now.sent[t] >= node.releases:
        raise InvalidInput(
            f"node {t} makes {node.releases} releases, and the schedule asks for one more"
        )
    column = parties.server.column(now.server, t)
    contribution, state = node.contribute(column, now.nodes[t])
    released: Released = Unprotected(contribution)
    if node.mechanism is not None:
        door = parties.doors[t]
        released = door.release(now.sent[t], edge.sender, node.mechanism, contribution)
    message, now.nodes[t] = node.absorb(column, released, state)
    now.sent[t] += 1
    gradient = np.asarray(_gradient(edge.send(message), edge).value)
    return Arrival(t, parties.server.round(now.server, t), gradient)


def _gradient(message: Message, edge: Edge) -> Any:
    if not isinstance(message, Mapping) or GRADIENT not in message:
        raise InvalidInput(f"a message from {edge.sender} must hold {GRADIENT!r}, got {message!r}")
    return message[GRADIENT]
