r"""How a message moves P: three updates, for messages with noise, without noise, and as published.

Each keeps something of all messages so far and makes columns of P of it; a server (server.py) does
the rest. Node t was handed p̂_t, a column of an earlier P, and answers the gradient g_t there.

**Averaging: under noise.** S3's server steps from its last P on each message. Under noise that
forgets: the prox only ever sees one message's noise, so either the level is high enough for one
message and swallows every signal, or the noise of all messages passes it, one after the other.
Regularised dual averaging (Xiao, JMLR 2010, Eq. 8) keeps the sum of all gradients. With c_t of K_t
messages from node t,

.. math:: v_t ← v_t − α_t g̃_t,   φ_t = c_t/K_t,   φ = \frac{1}{T} Σ_t φ_t,
    P = \mathrm{prox}_{φΛr}\big(v_t · \min(φ/φ_t, 2)\big),

which is argmin ⟨Σ α g̃, P⟩ + φΛ r(P) + ½‖P‖² when all are equally far: the same minimum in the
limit, but the level grows with what was added up, and holds the noise of all messages against it.
A node that is ahead or behind counts by its mean gradient for the time that is common to all;
without that, the level would grow while a node that is done has nothing to add. A node that dies
early is stretched twofold at most: its mean is noisier than planned.

**Descent: without noise, whatever the delay.** S3 Eq. (7) and (9), with the matrix V before the
prox as the state, so that an arrival moves one column of it: backward–forward instead of
forward–backward splitting, as in Baytas, Yan, Jain, Zhou, "Asynchronous Multi-task Learning" (ICDM
2016), with a step that sees the drift. Let f_t be convex with L-Lipschitz gradient and α ≤ 1/L;
P = prox_{αλr}(V). Node t's own column of V has not moved meanwhile: nobody else moves it. The
server sets

.. math:: v_t⁺ = v_t + η (v_t° − v_t),   v_t° = p̂_t − α ∇f_t(p̂_t).

At η = 1 without delay this is proximal gradient descent, one column at a time. What it descends:
with ψ_t(p) = ½‖p‖² − αf_t(p), convex and 1-smooth, ψ_t* is 1-strongly convex. With E(V) = ½‖V‖² −
(Moreau envelope of αλr)(V), convex, ∇E = prox. Toland's dual of the objective, up to the factor α,
is

.. math:: D(V) = Σ_t ψ_t*(v_t) − E(V),

with the same infimum, and stationary where v_t = p_t − α∇f_t(p_t): at the optimum. E is convex, so
−E(V⁺) ≤ −E(V) − ⟨P, V⁺ − V⟩. As p̂_t = ∇ψ_t*(v_t°), strong convexity at v_t° and along the segment
from v_t to v_t° gives, with δ = v_t° − v_t and the drift p̂_t − p_t,

.. math:: D(V⁺) − D(V) ≤ η⟨p̂_t − p_t, δ⟩ − ½η(2 − η)‖δ‖²,   0 ≤ η ≤ 1.        (1)

Columns that move in the same step add up in (1): ψ* is separable and the bound on E is joint. So
any number of queued arrivals may go into one step. The server knows all of (1): p̂_t (it handed it
out), p_t, δ. The η in [0, 1] that minimises the right-hand side is 1 − ⟨p̂_t − p_t, δ⟩/‖δ‖², cut to
[0, 1], and then D falls by ½η²‖δ‖² at least: at every arrival, in every order, whatever the delay.
If delays are bounded the residuals vanish: Σ‖ηδ‖² < ∞, so what P moves within a window → 0, so the
drift → 0; where ‖δ‖ ≥ c > 0 infinitely often, η → 1 there and ‖ηδ‖ ≥ c/2, a contradiction.

*And q.* With q solved exactly (8), f_t(p) = min_q loss(p + q) + τg(q), which is convex, and L of
the loss serves: its gradient is that of the loss at the minimiser. If p and q step from one
gradient at one point, ψ_t(p, q) = ½‖p‖² + ½‖q‖² − α·loss(p + q) is convex for α ≤ 1/(2L), the pair
(v_t, u_t) is one block, and (1) holds of it if q moves by the same η. Where q steps along the
gradient of τ‖q‖² too, Eq. (6), that belongs to the loss: α ≤ 1/(2L + 2τ).

**LastGradients: Algorithm 1.** S3's own server, which applies everybody's last gradient once more
on each arrival.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from tacit.arrays import FloatArray, IntArray
from tacit.engine.arrivals import Arrival
from tacit.errors import InvalidInput
from tacit.linear.penalties import Penalty
from tacit.linear.prox_columns import Chosen, ProxColumns

STRETCH = 2.0


class Update(Protocol):
    """What is kept of messages, and the columns of P that follow from it."""

    @property
    def one_by_one(self) -> bool:
        """Whether messages that wait together are still taken one after the other."""

    def start(self, dim: int, n_nodes: int) -> Any:
        """Before the first message."""

    def moved(self, kept: Any, handed: FloatArray, arrivals: Sequence[Arrival]) -> Any:
        """After these; ``handed`` (d, T) are the columns that they answer."""

    def columns(self, kept: Any, nodes: list[int]) -> FloatArray:
        """(d, k): those of P."""


# --- under noise ---------------------------------------------------------------------------------


class MessageSums(NamedTuple):
    """V (d, T), and the number of messages of each node, c (T,)."""

    V: FloatArray
    counts: IntArray


@dataclass(frozen=True)
class Averaging:
    """v_t ← v_t − α_t·message, P = prox(V) at a level that grows with the messages.

    ``penalty`` None: P stays zero, nothing is shared.

    >>> from tacit.linear.penalties import GroupNorm
    >>> update = Averaging(GroupNorm(), 2.0, (1.0,), (2,))
    >>> message = Arrival(0, 0, np.array([-3.0, 0.5]))
    >>> update.columns(update.moved(update.start(2, 1), np.zeros((2, 1)), [message]), [0]) + 0.0
    array([[2.],
           [0.]])
    """

    penalty: Penalty | None
    level: float  # Λ, of P at the end
    steps: tuple[float, ...]  # (T,), α_t
    releases: tuple[int, ...]  # (T,), K_t
    one_by_one: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _require(self.level, *self.steps)

    def start(self, dim: int, n_nodes: int) -> MessageSums:
        return MessageSums(np.zeros((dim, n_nodes)), np.zeros(n_nodes, dtype=np.int64))

    def moved(
        self, kept: MessageSums, handed: FloatArray, arrivals: Sequence[Arrival]
    ) -> MessageSums:
        V, counts = kept.V.copy(), kept.counts.copy()
        for node, _, gradient in arrivals:
            V[:, node] -= self.steps[node] * gradient
            counts[node] += 1
        return MessageSums(V, counts)

    def columns(self, kept: MessageSums, nodes: list[int]) -> FloatArray:
        if self.penalty is None:
            return np.zeros((len(kept.V), len(nodes)))
        own = kept.counts / np.maximum(self.releases, 1)  # φ_t
        speaking = sum(count > 0 for count in self.releases)
        common = float(own.sum()) / max(speaking, 1)  # φ
        stretch = np.divide(common, own, out=np.zeros_like(own), where=own > 0)
        V = kept.V * np.minimum(stretch, STRETCH)
        prox = self.penalty.columns(self.level * common)
        return prox.columns(prox.kept(V), V, nodes)


# --- without noise -------------------------------------------------------------------------------


class BeforeProx(NamedTuple):
    """V (d, T), and what makes the columns of its prox cheap."""

    V: FloatArray
    beside: Any


@dataclass(frozen=True)
class Descent:
    """v_t ← v_t + η (p̂_t − α·message − v_t), P = prox_{αλr}(V)."""

    penalty: Penalty
    level: float  # λ
    step: float  # α
    one_by_one: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _require(self.level, self.step)

    @cached_property
    def _prox(self) -> ProxColumns:
        return self.penalty.columns(self.step * self.level)

    def start(self, dim: int, n_nodes: int) -> BeforeProx:
        V = np.zeros((dim, n_nodes), order="F")
        return BeforeProx(V, self._prox.kept(V))

    def moved(
        self, kept: BeforeProx, handed: FloatArray, arrivals: Sequence[Arrival]
    ) -> BeforeProx:
        nodes = _slice_if_one([arrival.node for arrival in arrivals])
        old, answered = kept.V[:, nodes], handed[:, nodes]
        drift = answered - self._prox.columns(kept.beside, kept.V, nodes)
        move = answered - old  # (d, k), and with the gradients it is δ
        for k, arrival in enumerate(arrivals):
            move[:, k] -= self.step * arrival.gradient
            move[:, k] *= relaxation(drift[:, k], move[:, k])
        V = kept.V.copy(order="F")
        V[:, nodes] += move
        return BeforeProx(V, self._prox.moved(kept.beside, V, old, nodes))

    def columns(self, kept: BeforeProx, nodes: list[int]) -> FloatArray:
        return self._prox.columns(kept.beside, kept.V, _slice_if_one(nodes))


def relaxation(drift: FloatArray, move: FloatArray) -> float:
    """η in [0, 1] from p̂_t − p_t and δ, both (d,): what the server can see to be safe, by (1).

    >>> relaxation(np.array([0.0]), np.array([2.0])), relaxation(np.array([0.5]), np.array([2.0]))
    (1.0, 0.75)
    """
    square = float(move @ move)
    return 1.0 if square == 0 else min(1.0, max(0.0, 1 - float(drift @ move) / square))


def largest_step(curvature: float, *, joint: bool = False) -> float:
    """α ≤ 1/L, or 1/(2L) where p and q step from one gradient (Hessian [[H, H], [H, H]]).

    ``curvature`` is L: the largest eigenvalue of X_tᵀX_t/n_t over all nodes for the squared loss, a
    quarter of it for the logistic; of private nodes a declared bound, max‖x‖² or a quarter of it.
    """
    if not 0 < curvature < math.inf:
        raise InvalidInput(f"the largest curvature must be positive and finite, got {curvature}")
    return 1 / (2 * curvature) if joint else 1 / curvature


def curvature_with_own(curvature: float, own_level: float) -> float:
    """L of p ↦ min_q f(p + q) + τ‖q‖²: 1/(1/L + 1/(2τ)), which is small where q is nearly free.

    The conjugate of an infimal convolution is the sum of the conjugates, f* + ‖·‖²/(4τ), whose
    strong convexity is 1/L + 1/(2τ).

    >>> curvature_with_own(1.0, 0.5)
    0.5
    """
    return 1 / (1 / curvature + 1 / (2 * own_level))


def _slice_if_one(nodes: list[int]) -> Chosen:
    return slice(nodes[0], nodes[0] + 1) if len(nodes) == 1 else nodes


# --- as published --------------------------------------------------------------------------------


class Gradients(NamedTuple):
    """P (d, T), and everybody's last gradient, S (d, T)."""

    P: FloatArray
    S: FloatArray


@dataclass(frozen=True)
class LastGradients:
    """Algorithm 1: S|_t ← message, P ← prox_{α₂λr}(P − α₂S); one prox for each message."""

    penalty: Penalty
    level: float  # λ
    step: float  # α₂
    one_by_one: ClassVar[bool] = True

    def start(self, dim: int, n_nodes: int) -> Gradients:
        """S⁽⁰⁾ = P⁽⁰⁾ = 0."""
        zero = np.zeros((dim, n_nodes))
        return Gradients(zero, zero)

    def moved(self, kept: Gradients, handed: FloatArray, arrivals: Sequence[Arrival]) -> Gradients:
        P, S = kept.P, kept.S.copy()
        for node, _, gradient in arrivals:
            S[:, node] = gradient
            P = self.penalty.prox(P - self.step * S, self.step * self.level)
        return Gradients(P, S)

    def columns(self, kept: Gradients, nodes: list[int]) -> FloatArray:
        return np.asarray(kept.P[:, nodes])


def _require(level: float, *steps: float) -> None:
    if not (level >= 0 and steps and min(steps) > 0):
        raise InvalidInput(f"expected a level ≥ 0 and positive steps, got {level}, {steps}")
