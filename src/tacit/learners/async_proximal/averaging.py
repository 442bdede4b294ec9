r"""The server half of a private run: it averages the noisy gradients before it thresholds them.

S3's server steps from its last P on each message. Under noise that forgets: the prox only ever sees
one message's noise, so either the level is high enough for one message and swallows every signal,
or the noise of all messages passes it, one after the other. Regularised dual averaging (Xiao, JMLR
2010, Eq. 8) keeps the sum of all gradients. With c_t of K_t messages from node t,

.. math:: v_t ← v_t − α_t g̃_t,   φ_t = c_t/K_t,   φ = \frac{1}{T} Σ_t φ_t,
    P = \mathrm{prox}_{φΛr}\big(v_t · \min(φ/φ_t, 2)\big),

which is argmin ⟨Σ α g̃, P⟩ + φΛ r(P) + ½‖P‖² when all are equally far: the same minimum in the
limit, but the level grows with what was added up, and holds the noise of all messages against it.
A node that is ahead or behind counts by its mean gradient for the time that is common to all;
without that, the level would grow while a node that is done has nothing to add. A node that dies
early is stretched twofold at most: its mean is noisier than planned.

Without noise use server.py, which needs no number of messages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit.engine.arrivals import Arrival
from tacit.errors import InvalidInput
from tacit.learners.async_proximal.admission import Admission
from tacit.learners.async_proximal.columns import columns_of
from tacit.learners.async_proximal.server import ServerState, admitted, counted
from tacit.linear.losses import FloatArray
from tacit.linear.penalties import Penalty

STRETCH = 2.0


@dataclass(frozen=True)
class AveragingServer:
    """v_t ← v_t − α_t·message, P = prox(V) at a level that grows with the messages.

    ``penalty`` None: P stays zero, nothing is shared. ServerState.kept is c, (T,).

    >>> from tacit.linear.penalties import GroupNorm
    >>> server = AveragingServer(GroupNorm(), 2.0, (1.0,), (2,), dim=2)
    >>> state = server.arrive(server.start(), [Arrival(0, 0, np.array([-3.0, 0.5]))])
    >>> server.column(state, 0) + 0.0, state.kept
    (array([2., 0.]), array([1]))
    """

    penalty: Penalty | None
    level: float  # Λ, of P at the end
    steps: tuple[float, ...]  # (T,), α_t
    releases: tuple[int, ...]  # (T,), K_t
    dim: int
    largest: float | FloatArray = math.inf

    def __post_init__(self) -> None:
        if not (self.level >= 0 and self.steps and min(self.steps) > 0 and self.dim > 0):
            raise InvalidInput(
                "expected level ≥ 0, a positive step for each node and a feature, got "
                f"{self.level}, {self.steps}, {self.dim}"
            )
        door = Admission(len(self.steps), self.dim, self.largest)
        object.__setattr__(self, "_door", door)

    def start(self) -> ServerState:
        """P = 0: everybody holds the zero column, of round 0."""
        V = np.zeros((self.dim, len(self.steps)))
        numbers = np.zeros(len(self.steps), dtype=np.int64)
        return ServerState(V, numbers, V, numbers, numbers)

    def arrive(self, state: ServerState, arrivals: Sequence[Arrival]) -> ServerState:
        """All that wait move their columns; every node that is heard gets its new one."""
        door: Admission = self._door  # type: ignore[attr-defined] # set in __post_init__
        accepted, _, refused = admitted(door, arrivals, state.rounds, state.step - state.since)
        if refused:
            state = replace(state, refused=counted(state.refused, refused))
        if not accepted:
            return state
        V, counts = state.V.copy(), state.kept.copy()
        for arrival in accepted:
            V[:, arrival.node] -= self.steps[arrival.node] * arrival.gradient
            counts[arrival.node] += 1
        state = replace(state, V=V, kept=counts, step=state.step + 1)
        return self._handed(state, [arrival.node for arrival in accepted])

    def refresh(self, state: ServerState, node: int) -> ServerState:
        """A newer column for a node that was away."""
        return self._handed(state, [node])

    def column(self, state: ServerState, node: int) -> FloatArray:
        """(d,): what the node was handed last."""
        return np.asarray(state.handed[:, node])

    def round(self, state: ServerState, node: int) -> int:
        """Its number."""
        return int(state.rounds[node])

    def shared(self, state: ServerState) -> FloatArray:
        """(d, T): all of P, for the end of a run."""
        return self._columns(state, list(range(len(self.steps))))

    def _columns(self, state: ServerState, nodes: list[int]) -> FloatArray:
        if self.penalty is None:
            return np.zeros((self.dim, len(nodes)))
        own = state.kept / np.maximum(self.releases, 1)  # φ_t
        speaking = sum(count > 0 for count in self.releases)
        common = float(own.sum()) / max(speaking, 1)  # φ
        stretch = np.divide(common, own, out=np.zeros_like(own), where=own > 0)
        V = state.V * np.minimum(stretch, STRETCH)
        coupling = columns_of(self.penalty, self.level * common)
        kept: Any = coupling.kept(V)
        return coupling.columns(kept, V, nodes)

    def _handed(self, state: ServerState, nodes: list[int]) -> ServerState:
        handed, rounds, since = state.handed.copy(), state.rounds.copy(), state.since.copy()
        handed[:, nodes] = self._columns(state, nodes)
        rounds[nodes] += 1
        since[nodes] = state.step
        return replace(state, handed=handed, rounds=rounds, since=since)
