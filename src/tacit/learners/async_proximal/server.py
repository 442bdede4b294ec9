"""The server half: P = prox(V), one column of V a message.

S3 Eq. (7) and (9), with the matrix before the prox as the state, so that an arrival moves one
column of it: backward–forward instead of forward–backward splitting, as in Baytas, Yan, Jain, Zhou,
"Asynchronous Multi-task Learning" (ICDM 2016), with steps that see the drift (steps.py). S3's own
server, which applies everybody's last gradient once more on each arrival, is in published.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from tacit.engine.arrivals import Arrival
from tacit.errors import InvalidInput
from tacit.learners.async_proximal.admission import TOO_OLD, Admission, IntArray
from tacit.learners.async_proximal.columns import Columns, chosen, columns_of
from tacit.learners.async_proximal.steps import DESCENT, StepRule
from tacit.linear.losses import FloatArray
from tacit.linear.penalties import Penalty


@dataclass(frozen=True)
class ServerState:
    """All that the server knows; a function of messages and constants."""

    V: FloatArray  # (d, T), the matrix before the prox
    kept: Any  # beside V, for the columns of its prox
    handed: FloatArray  # (d, T), the column that each node was handed last
    rounds: IntArray  # (T,), the number of that column
    since: IntArray  # (T,), the step at which it was handed
    step: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)  # by reason


@dataclass(frozen=True)
class Server:
    """v_t ← v_t + η (p̂_t − α·message − v_t), and p_t back.

    ``level`` is λ and ``step`` α, so the prox is that of αλ·r. ``largest`` bounds the norm of an
    honest message (admission.py).

    >>> from tacit.linear.penalties import GroupNorm
    >>> server = Server(GroupNorm(), level=1.0, step=1.0, dim=2, n_nodes=3)
    >>> state = server.arrive(server.start(), [Arrival(1, 0, np.array([-3.0, 0.5]))])
    >>> server.column(state, 1), server.round(state, 1)
    (array([ 2., -0.]), 1)
    """

    penalty: Penalty
    level: float
    step: float
    dim: int
    n_nodes: int
    largest: float | FloatArray = math.inf
    rule: StepRule = DESCENT

    def __post_init__(self) -> None:
        if not (self.step > 0 and self.level >= 0 and self.dim > 0 and self.n_nodes > 0):
            raise InvalidInput(
                "expected step > 0, level ≥ 0, and at least one feature and node, got "
                f"{self.step}, {self.level}, {self.dim}, {self.n_nodes}"
            )

    def start(self) -> ServerState:
        """P = 0: everybody holds the zero column, of round 0."""
        V = np.zeros((self.dim, self.n_nodes), order="F")
        numbers = np.zeros(self.n_nodes, dtype=np.int64)
        return ServerState(V, self.coupling.kept(V), V, numbers, numbers)

    def arrive(self, state: ServerState, arrivals: Sequence[Arrival]) -> ServerState:
        """One step for all that wait; every node that is heard gets its new column."""
        ages = state.step - state.since
        accepted, late, refused = admitted(self.door, arrivals, state.rounds, ages)
        if refused:
            state = replace(state, refused=counted(state.refused, refused))
        moved = self._moved(state, accepted) if accepted else {}
        return self._handed(state, [*(a.node for a in accepted), *late], moved)

    def refresh(self, state: ServerState, node: int) -> ServerState:
        """A newer column for a node that was away."""
        return self._handed(state, [node], {})

    def column(self, state: ServerState, node: int) -> FloatArray:
        """(d,): what the node was handed last."""
        return state.handed[:, node].copy()

    def round(self, state: ServerState, node: int) -> int:
        """Its number."""
        return int(state.rounds[node])

    def shared(self, state: ServerState) -> FloatArray:
        """(d, T): all of P = prox(V), for the end of a run."""
        return self.coupling.columns(state.kept, state.V, slice(None))

    @cached_property
    def coupling(self) -> Columns:
        """The columns of the prox of αλ·r."""
        return columns_of(self.penalty, self.step * self.level)

    @cached_property
    def door(self) -> Admission:
        """What it takes in."""
        return Admission(self.n_nodes, self.dim, self.largest, self.rule.staleness)

    def _moved(self, state: ServerState, accepted: list[Arrival]) -> dict[str, Any]:
        """What the messages change."""
        nodes = chosen([arrival.node for arrival in accepted])
        old, handed = state.V[:, nodes], state.handed[:, nodes]
        drift = handed - self.coupling.columns(state.kept, state.V, nodes)
        move = handed - old  # (d, k), and with the gradients it is δ
        for k, arrival in enumerate(accepted):
            move[:, k] -= self.step * arrival.gradient
            move[:, k] *= self.rule.relaxation(drift[:, k], move[:, k])
        V = state.V.copy(order="F")
        V[:, nodes] += move
        kept = self.coupling.moved(state.kept, V, old, nodes)
        return {"V": V, "kept": kept, "step": state.step + 1}

    def _handed(self, state: ServerState, heard: list[int], moved: dict[str, Any]) -> ServerState:
        """The state after that, with a new column for everybody who was heard."""
        if not heard:
            return state
        V, kept = moved.get("V", state.V), moved.get("kept", state.kept)
        nodes, handed = chosen(heard), state.handed.copy(order="F")
        rounds, since = state.rounds.copy(), state.since.copy()
        handed[:, nodes] = self.coupling.columns(kept, V, nodes)
        rounds[nodes] += 1
        step = moved.get("step", state.step)
        since[nodes] = step
        return ServerState(V, kept, handed, rounds, since, step, state.refused)


def admitted(
    door: Admission, arrivals: Sequence[Arrival], rounds: IntArray, ages: IntArray
) -> tuple[list[Arrival], list[int], list[str]]:
    """The messages to apply, the nodes whose view was too old, and all reasons to refuse.

    The second message of a node in one step answers a column that has been answered.
    """
    accepted, late, refused = [], [], []
    rounds = rounds.copy()
    for arrival in arrivals:
        reason = door.refusal(arrival, rounds, ages)
        if reason is None:
            accepted.append(arrival)
        else:
            refused.append(reason)
            if reason == TOO_OLD:
                late.append(arrival.node)
        if reason in (None, TOO_OLD):
            rounds[arrival.node] += 1
    return accepted, late, refused


def counted(before: Mapping[str, int], reasons: list[str]) -> dict[str, int]:
    """One more of each.

    >>> counted({"too large": 1}, ["too large", "not finite"])
    {'too large': 2, 'not finite': 1}
    """
    total = dict(before)
    for reason in reasons:
        total[reason] = total.get(reason, 0) + 1
    return total
