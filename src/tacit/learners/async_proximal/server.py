"""The server half: what it takes in, what it hands out, and whose turn it is.

How messages move P is its ``Update`` (updates.py). Here is what all servers do alike: a message is
checked, counted if it is refused, applied if it is not, and answered with a new column.

A node may be broken or hostile. What is refused is never applied, and the node that sent it keeps
the column it has, so that a good message can still answer it. Everything that is checked is public:
it is said of a message, and after the noise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np

from tacit.arrays import FloatArray, IntArray
from tacit.engine.arrivals import Arrival
from tacit.engine.protocol import Released, Unprotected, combined
from tacit.errors import InvalidInput
from tacit.learners.async_proximal.updates import Update
from tacit.privacy.release import Declared, Release

RECENT = 1  # rounds; an answer to an earlier one is long past


class Refusal(StrEnum):
    """Why a message is not taken in."""

    UNKNOWN_NODE = "unknown node"
    WRONG_SHAPE = "wrong shape"
    NOT_FINITE = "not finite"
    TOO_LARGE = "too large"
    ANSWERED = "answered already"  # replayed or doubled
    LONG_PAST = "of a round long past"
    NOT_ASKED = "of a round to come"


def refusal(arrival: Arrival, rounds: IntArray, dim: int, bounds: FloatArray) -> Refusal | None:
    """Why the message is refused; None if it is not.

    ``rounds`` (T,) are those of the columns that nodes hold, ``bounds`` (T,) the largest norms.

    >>> rounds, bounds = np.array([3, 0]), np.array([5.0, 5.0])
    >>> refusal(Arrival(0, 3, np.array([2.0])), rounds, 1, bounds)
    >>> refusal(Arrival(0, 2, np.array([2.0])), rounds, 1, bounds)
    <Refusal.ANSWERED: 'answered already'>
    """
    node, round_, gradient = arrival
    if not isinstance(node, int | np.integer) or not 0 <= node < len(rounds):
        return Refusal.UNKNOWN_NODE
    behind = int(rounds[node]) - round_
    if behind < 0:
        return Refusal.NOT_ASKED
    if behind > 0:
        return Refusal.ANSWERED if behind <= RECENT else Refusal.LONG_PAST
    if not isinstance(gradient, np.ndarray) or gradient.shape != (dim,):
        return Refusal.WRONG_SHAPE
    if gradient.dtype.kind not in "fiu":
        return Refusal.NOT_FINITE
    size = math.hypot(*gradient.tolist())  # neither overflows nor warns
    if not math.isfinite(size):
        return Refusal.NOT_FINITE
    return Refusal.TOO_LARGE if size > bounds[node] else None


@dataclass(frozen=True)
class ServerState:
    """All that a server knows; a function of messages and constants."""

    kept: Any  # by the update, of all messages so far
    handed: FloatArray  # (d, T), the column that each node was handed last
    rounds: IntArray  # (T,), the number of that column
    step: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)  # by reason


@dataclass(frozen=True)
class Server:
    """Messages in, columns of P out.

    ``largest`` bounds the norm of an honest message, one for all or (T,): declared. Of a private
    node it is C plus the 1 − 10⁻⁹ quantile of the norm of its noise.

    >>> from tacit.learners.async_proximal.updates import Descent
    >>> from tacit.linear.penalties import GroupNorm
    >>> server = Server(Descent(GroupNorm(), level=1.0, step=1.0), dim=2, n_nodes=3)
    >>> state = server.arrive(server.start(), [Arrival(1, 0, np.array([-3.0, 0.5]))])
    >>> server.column(state, 1), server.round(state, 1)
    (array([ 2., -0.]), 1)
    """

    update: Update
    dim: int
    n_nodes: int
    largest: float | FloatArray = math.inf

    def __post_init__(self) -> None:
        bounds = np.asarray(self.largest, dtype=np.float64)
        if not (self.dim > 0 and self.n_nodes > 0):
            raise InvalidInput(f"expected a feature and a node, got {self.dim}, {self.n_nodes}")
        if bounds.shape not in ((), (self.n_nodes,)) or not (bounds > 0).all():
            raise InvalidInput(
                f"largest must be one positive number or {self.n_nodes}, got {self.largest!r}"
            )

    @cached_property
    def _bounds(self) -> FloatArray:
        return np.broadcast_to(np.asarray(self.largest, dtype=np.float64), (self.n_nodes,))

    def start(self) -> ServerState:
        """P = 0: everybody holds the zero column, of round 0."""
        kept = self.update.start(self.dim, self.n_nodes)
        handed = np.zeros((self.dim, self.n_nodes), order="F")
        return ServerState(kept, handed, np.zeros(self.n_nodes, dtype=np.int64))

    def arrive(self, state: ServerState, arrivals: Sequence[Arrival]) -> ServerState:
        """One step for all that wait, or for each; every node that is heard gets its new column."""
        accepted, refused = self._admitted(arrivals, state.rounds)
        if refused:
            state = replace(state, refused=Counter(state.refused) + Counter(refused))
        for queued in self._queues(accepted):
            kept = self.update.moved(state.kept, state.handed, queued)
            nodes = [arrival.node for arrival in queued]
            state = self._handed(state, nodes, kept, state.step + 1)
        return state

    def refresh(self, state: ServerState, node: int) -> ServerState:
        """A newer column for a node that was away."""
        return self._handed(state, [node], state.kept, state.step)

    def column(self, state: ServerState, node: int) -> FloatArray:
        """(d,): what the node was handed last."""
        return state.handed[:, node].copy()

    def round(self, state: ServerState, node: int) -> int:
        """Its number."""
        return int(state.rounds[node])

    def shared(self, state: ServerState) -> FloatArray:
        """(d, T): all of P, for the end of a run."""
        return self.update.columns(state.kept, list(range(self.n_nodes)))

    def after(
        self, messages: Sequence[Release | Declared | Unprotected], arrivals: Sequence[Arrival]
    ) -> Released:
        """(d, T): all of P, as what it is made of all messages; ``arrivals`` are the same messages
        as they were taken in, nobody refreshed."""

        def shared(*gradients: FloatArray) -> FloatArray:
            pairs = zip(arrivals, gradients, strict=True)
            again = [arrival._replace(gradient=gradient) for arrival, gradient in pairs]
            return self.shared(self.arrive(self.start(), again))

        return combined(shared, *messages)

    def _admitted(
        self, arrivals: Sequence[Arrival], rounds: IntArray
    ) -> tuple[list[Arrival], list[Refusal]]:
        """The messages to apply, and the reasons to refuse others.

        The second message of a node in one step answers a column that has been answered.
        """
        accepted, refused, rounds = [], [], rounds.copy()
        for arrival in arrivals:
            reason = refusal(arrival, rounds, self.dim, self._bounds)
            if reason is None:
                accepted.append(arrival)
                rounds[arrival.node] += 1
            else:
                refused.append(reason)
        return accepted, refused

    def _queues(self, accepted: list[Arrival]) -> list[list[Arrival]]:
        if self.update.one_by_one:
            return [[arrival] for arrival in accepted]
        return [accepted] if accepted else []

    def _handed(self, state: ServerState, nodes: list[int], kept: Any, step: int) -> ServerState:
        """The state after that, with a new column for these nodes."""
        handed, rounds = state.handed.copy(order="F"), state.rounds.copy()
        handed[:, nodes] = self.update.columns(kept, nodes)
        rounds[nodes] += 1
        return ServerState(kept, handed, rounds, step, state.refused)
