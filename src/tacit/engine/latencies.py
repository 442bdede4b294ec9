"""When messages arrive: latencies, losses, deaths and returns, on a simulated clock.

A schedule is drawn from latencies and faults alone, before any half runs: no sending time can
depend on data. One trip of a node is from the column it was handed to its message at the server.
Each node draws from a generator of its own, so the same seed gives the same trips whoever waits.

**Bounded staleness.** The age of a node's view is the number of steps that the server has taken
since it handed out the column. With ``staleness=τ`` no message is older than τ when it is used: a
message that would age another's view beyond τ waits at the server until that other one is there,
and all that wait go into one step. τ = 0 is the synchronous schedule: everybody waits for the
slowest. A node that is dead holds nobody up; it asks for a newer column when it returns.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, Protocol, runtime_checkable

import numpy as np

from tacit.arrays import FloatArray
from tacit.engine.arrivals import Visit
from tacit.errors import InvalidInput
from tacit.parameters import Between, Checked, NonNegative, Positive

MILLISECOND = 1e-3
_BLOCK = 256  # trips drawn at a time

Instant = Annotated[float, Between(0, math.inf)]


# --- how long a trip takes -----------------------------------------------------------------------


@runtime_checkable
class Latency(Protocol):
    """Seconds of a trip: a distribution, never a measurement of work done on data."""

    def draw(self, node: int, size: int, rng: np.random.Generator) -> FloatArray:
        """(size,), positive."""


@dataclass(frozen=True)
class Constant(Checked):
    """Every trip takes the same time.

    >>> Constant(0.01).draw(0, 2, np.random.default_rng(0))
    array([0.01, 0.01])
    """

    seconds: NonNegative = 10 * MILLISECOND

    def draw(self, node: int, size: int, rng: np.random.Generator) -> FloatArray:
        return np.full(size, self.seconds)


@dataclass(frozen=True)
class Uniform(Checked):
    """Between low and high; S3 §4.1 has 0 to 15 ms."""

    low: NonNegative = 0.0
    high: NonNegative = 15 * MILLISECOND

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low > self.high:
            raise InvalidInput(f"low must be at most high, got {self.low} and {self.high}")

    def draw(self, node: int, size: int, rng: np.random.Generator) -> FloatArray:
        return rng.uniform(self.low, self.high, size)


@dataclass(frozen=True)
class Pareto(Checked):
    """Heavy-tailed: P(trip > x) = (least/x)^shape; shape ≤ 2 has no variance, ≤ 1 no mean."""

    shape: Positive = 1.5
    least: NonNegative = 2.5 * MILLISECOND

    def draw(self, node: int, size: int, rng: np.random.Generator) -> FloatArray:
        return np.asarray(self.least * (1 + rng.pareto(self.shape, size)))


@dataclass(frozen=True)
class Straggler(Checked):
    """Some nodes are slower than the others by a factor.

    >>> Straggler(Constant(1.0), slow=(1,), factor=10).draw(1, 1, np.random.default_rng(0))
    array([10.])
    """

    usual: Latency
    slow: Sequence[int] = (0,)
    factor: Positive = 10.0

    def draw(self, node: int, size: int, rng: np.random.Generator) -> FloatArray:
        trips = self.usual.draw(node, size, rng)
        return trips * self.factor if node in self.slow else trips


# --- what goes wrong on the way ------------------------------------------------------------------


@dataclass(frozen=True)
class Faults(Checked):
    """Messages that are lost or doubled, and nodes that die.

    A lost message is sent again, the same bytes, after ``timeout``. A doubled one arrives a second
    time after another trip. A node that dies on a trip has sent nothing; if it returns, it asks for
    a newer column and goes on.
    """

    lost: Annotated[float, Between(0, 0.999999)] = 0.0
    repeated: Annotated[float, Between(0, 1)] = 0.0
    timeout: NonNegative = 100 * MILLISECOND
    outages: Mapping[int, Sequence[tuple[Instant, Instant]]] = field(default_factory=dict)
    """For each node when it dies and when it returns (math.inf: never), in order."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for node, spans in self.outages.items():
            times = [time for span in spans for time in span]
            if times != sorted(times):
                raise InvalidInput(f"the outages of node {node} are not in order: {spans}")

    def outage(self, node: int, start: float, end: float) -> tuple[float, float] | None:
        """The first outage that touches the trip from start to end."""
        for dies, returns in self.outages.get(node, ()):
            if dies < end and start < returns:
                return dies, returns
        return None


NO_FAULTS = Faults()


# --- the schedule --------------------------------------------------------------------------------


def visits(
    latency: Latency,
    releases: Sequence[int],
    *,
    seed: int,
    faults: Faults = NO_FAULTS,
    staleness: int | None = None,
    service: float = 0.0,
) -> Iterator[Visit]:
    """Who reaches the server when; node t sends releases[t] messages.

    ``service`` is how long one step keeps the server busy: what arrives meanwhile goes into one
    step. Keep the list to play the same order again.

    >>> [visit.arriving for visit in visits(Constant(1.0), [1, 2], seed=0)]
    [(0, 1), (1,)]
    >>> slow = Straggler(Constant(1.0), slow=(0,), factor=2.5)
    >>> [(v.time, v.arriving) for v in visits(slow, [1, 3], seed=0)]
    [(1.0, (1,)), (2.0, (1,)), (2.5, (0,)), (3.0, (1,))]
    """
    if staleness is not None and staleness < 0:
        raise InvalidInput(f"staleness is a number of steps ≥ 0 or None, got {staleness}")
    return _Clock(latency, releases, seed, faults, staleness, service).visits()


Kind = Literal["arrives", "again", "dies", "returns"]


class _Clock:
    """A heap of events; what waits at the server; whose view has which age."""

    def __init__(
        self,
        latency: Latency,
        releases: Sequence[int],
        seed: int,
        faults: Faults,
        staleness: int | None,
        service: float,
    ) -> None:
        self.latency, self.faults, self.service = latency, faults, service
        self.most_steps = math.inf if staleness is None else staleness
        self.left = list(releases)
        self.rngs = [
            np.random.default_rng(child)
            for child in np.random.SeedSequence(seed).spawn(len(releases))
        ]
        self.drawn: list[list[float]] = [[] for _ in releases]
        self.events: list[tuple[float, int, Kind, int]] = []
        self.count = 0  # of events ever made: ties keep their order
        self.step, self.free = 0, 0.0
        self.travelling: dict[int, int] = {}  # node → the step at which it was handed its column
        self.waiting: list[int] = []

    def visits(self) -> Iterator[Visit]:
        for node in range(len(self.left)):
            self._set_out(node, 0.0)
        while self.events:
            time = max(self.events[0][0], self.free)
            repeated, refreshed = self._collect(time)
            arriving = tuple(self.waiting) if self._may_step() else ()
            if arriving:
                self.step, self.free = self.step + 1, time + self.service
                self.waiting.clear()
            if arriving or repeated or refreshed:
                yield Visit(time, arriving, repeated, refreshed)
            for node in (*refreshed, *arriving):
                self._set_out(node, max(time, self.free))

    def _collect(self, time: float) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Everything until now: messages wait, those delivered again and those who return."""
        repeated, refreshed = [], []
        while self.events and self.events[0][0] <= time:
            _, _, kind, node = heapq.heappop(self.events)
            if kind == "again":
                repeated.append(node)
            elif kind == "returns":
                refreshed.append(node)
            elif kind == "dies":
                self.travelling.pop(node, None)
            else:
                self.travelling.pop(node)
                self.waiting.append(node)
                self.left[node] -= 1
        return tuple(repeated), tuple(refreshed)

    def _may_step(self) -> bool:
        """Would one more step leave every view that is still out young enough?"""
        oldest = min(self.travelling.values(), default=math.inf)
        return bool(self.waiting) and self.step + 1 - oldest <= self.most_steps

    def _set_out(self, node: int, start: float) -> None:
        """The node has a column; push what becomes of its trip."""
        if self.left[node] <= 0:
            return
        rng = self.rngs[node]
        end = start + self._trip(node)
        while self.faults.lost and rng.random() < self.faults.lost:
            end += self.faults.timeout + self._trip(node)
        self.travelling[node] = self.step
        outage = self.faults.outage(node, start, end)
        if outage is not None:
            self._push(max(start, outage[0]), "dies", node)
            if outage[1] < math.inf:
                self._push(outage[1], "returns", node)
            return
        self._push(end, "arrives", node)
        if self.faults.repeated and rng.random() < self.faults.repeated:
            self._push(end + self._trip(node), "again", node)

    def _trip(self, node: int) -> float:
        if not self.drawn[node]:
            self.drawn[node] = self.latency.draw(node, _BLOCK, self.rngs[node]).tolist()[::-1]
        return self.drawn[node].pop()

    def _push(self, time: float, kind: Kind, node: int) -> None:
        heapq.heappush(self.events, (time, self.count, kind, node))
        self.count += 1
