r"""S3 without privacy, and as published: Eq. (6)–(9) and Algorithm 1, letter by letter.

``OpenNode`` is the node without privacy: Gauss–Seidel order, exact q, a single-task start.
``PublishedServer`` is Algorithm 1's server: it keeps everybody's last gradient in S and applies all
of them on each arrival, P ← prox(P − αS). ``PublishedNode`` is Algorithm 1's node with its two
noises. Its guarantee does not hold (docs/privacy.md, D and D′):

1. Lemma 1 takes one step's change for the sensitivity of q, but q was never privatised, so what one
   example does to it adds up, s_k = (1 − αλ) s_{k−1} + 2αC₁C₂/n, and shifts every gradient.
2. The single-task start is computed from the data without noise.
3. Theorem 3.6 takes δ over the data, which is not differential privacy, and ε is of one message.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from tacit.engine import Message
from tacit.engine.arrivals import GRADIENT, Arrival, Released
from tacit.errors import InvalidInput
from tacit.learners.async_proximal.admission import Admission, IntArray
from tacit.learners.async_proximal.formulations import Formulation, MeanLoss, OwnPart
from tacit.learners.async_proximal.server import admitted, counted
from tacit.linear.losses import FloatArray
from tacit.linear.penalties import Penalty
from tacit.privacy.accounting import Pure
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms.clipping import as_rows, check_positive
from tacit.privacy.mechanisms.grid import snapped
from tacit.privacy.noise import knorm, system_generator

UNSOUND = (
    "as published: q was never privatised, so the sensitivity is not one step's; "
    "the single-task start has no noise; the total is the sum of what is claimed per message"
)


# --- the node without privacy --------------------------------------------------------------------


@dataclass(frozen=True)
class OpenNode:
    """One task without privacy; its state is q, (D,).

    ``own`` "exact" is Eq. (8), "single" one proximal step; ``order`` "gauss-seidel" sends the
    gradient at the new q, Eq. (9), "jacobi" at the old one, Eq. (6)–(7); ``alone`` starts at the
    single-task q, otherwise at zero.
    """

    task: MeanLoss
    formulation: Formulation
    releases: int
    step: float  # α, for a single step of q
    own: Literal["exact", "single"] = "exact"
    order: Literal["gauss-seidel", "jacobi"] = "gauss-seidel"
    alone: bool = True

    def __post_init__(self) -> None:
        if self.own not in ("exact", "single") or self.order not in ("gauss-seidel", "jacobi"):
            raise InvalidInput(
                "own is 'exact' or 'single' and order 'gauss-seidel' or 'jacobi', got "
                f"{self.own!r} and {self.order!r}"
            )

    def start(self) -> FloatArray:
        """q⁰."""
        zero = np.zeros(self.task.X.shape[1])
        return self._solver.best(zero, zero) if self.alone else zero

    def contribute(self, column: FloatArray, state: FloatArray) -> tuple[FloatArray, FloatArray]:
        """∇_p f(p, q) (D,), and the next q."""
        slope = self.task.gradient(column + state)
        q = self._moved(column, state, slope)
        return (slope, q) if self.order == "jacobi" else (self.task.gradient(column + q), q)

    def absorb(
        self, column: FloatArray, released: Released, state: FloatArray
    ) -> tuple[Message, FloatArray]:
        """The gradient as it is; q has moved already."""
        return {GRADIENT: released}, state

    def _moved(self, p: FloatArray, q: FloatArray, slope: FloatArray) -> FloatArray:
        if self.own == "exact":
            return self._solver.best(p, q)  # Eq. (8)
        return self.formulation.own_prox(q - self.step * slope, self.step)  # Eq. (6)

    @cached_property
    def _solver(self) -> OwnPart:
        return OwnPart(self.task, self.formulation)


# --- Algorithm 1's server ------------------------------------------------------------------------


@dataclass(frozen=True)
class PublishedState:
    """P, and everybody's last gradient."""

    P: FloatArray  # (d, T)
    S: FloatArray  # (d, T)
    handed: FloatArray  # (d, T)
    rounds: IntArray  # (T,)
    step: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class PublishedServer:
    """Algorithm 1: S|_t ← message, P ← prox_{α₂λr}(P − α₂S); level λ, step α₂."""

    penalty: Penalty
    level: float
    step: float
    dim: int
    n_nodes: int
    largest: float | FloatArray = math.inf

    def start(self) -> PublishedState:
        """S⁽⁰⁾ = P⁽⁰⁾ = 0."""
        zero = np.zeros((self.dim, self.n_nodes))
        return PublishedState(zero, zero, zero, np.zeros(self.n_nodes, dtype=np.int64))

    def arrive(self, state: PublishedState, arrivals: Sequence[Arrival]) -> PublishedState:
        """One prox for each message, in their order."""
        ages = np.zeros(self.n_nodes, dtype=np.int64)
        accepted, _, refused = admitted(self.door, arrivals, state.rounds, ages)
        if refused:
            state = replace(state, refused=counted(state.refused, refused))
        for node, _, gradient in accepted:
            S = state.S.copy()
            S[:, node] = gradient
            P = self.penalty.prox(state.P - self.step * S, self.step * self.level)
            state = self.refresh(replace(state, S=S, P=P, step=state.step + 1), node)
        return state

    def refresh(self, state: PublishedState, node: int) -> PublishedState:
        """A newer column."""
        handed, rounds = state.handed.copy(), state.rounds.copy()
        handed[:, node] = state.P[:, node]
        rounds[node] += 1
        return replace(state, handed=handed, rounds=rounds)

    def column(self, state: PublishedState, node: int) -> FloatArray:
        """(d,)."""
        return state.handed[:, node].copy()

    def round(self, state: PublishedState, node: int) -> int:
        """Its number."""
        return int(state.rounds[node])

    def shared(self, state: PublishedState) -> FloatArray:
        """P."""
        return state.P

    @cached_property
    def door(self) -> Admission:
        """What it takes in."""
        return Admission(self.n_nodes, self.dim, self.largest)


# --- Algorithm 1's node --------------------------------------------------------------------------


class PublishedNodeState(NamedTuple):
    """q⁽ᵏ⁾ and k."""

    q: FloatArray
    number: int


@dataclass(frozen=True)
class PublishedNode:
    """Algorithm 1, the task node: q by an exact gradient step, then the gradient at p + q + z₁.

    z₂ is the door's part (``PublishedNoise``). ``row_norm`` C₁ bounds ‖x‖, ``slope_bound`` C₂ the
    slope |ℓ′| (Theorem 3.6, in our units: C₁C₃ + 1). ``seed`` None: z₁ from the operating system.
    """

    task: MeanLoss
    releases: int
    step: float  # α₁
    own_level: float  # λ of (λ/2)‖q‖²
    row_norm: float
    slope_bound: float
    epsilon: float  # ε₁, of one message
    start_at: FloatArray  # q⁽⁰⁾, by a single-task learner
    seed: int | None = None

    @property
    def sensitivity(self) -> float:
        """S₁ = 2α₁C₁C₂/n (Lemma 1, which is wrong)."""
        return 2 * self.step * self.row_norm * self.slope_bound / max(len(self.task.y), 1)

    def start(self) -> PublishedNodeState:
        """q⁽⁰⁾."""
        return PublishedNodeState(self.start_at, 0)

    def contribute(
        self, column: FloatArray, state: PublishedNodeState
    ) -> tuple[FloatArray, PublishedNodeState]:
        """(1, D): ∇_t⁽ᵏ⁾ before z₂, and q⁽ᵏ⁾."""
        q, number = state
        slope = self.task.gradient(column + q) + self.own_level * q
        q = q - self.step * slope  # line 9
        z = self._first_noise(number)  # lines 10–11
        return self.task.gradient(column + q + z)[None], PublishedNodeState(q, number + 1)

    def absorb(
        self, column: FloatArray, released: Released, state: PublishedNodeState
    ) -> tuple[Message, PublishedNodeState]:
        """The message; q has moved already, and that is the flaw."""
        return {GRADIENT: released}, state

    def _first_noise(self, number: int) -> FloatArray:
        """z₁ of density ∝ exp(−ε₁‖z‖/S₁), Eq. (12)."""
        rng = (
            system_generator() if self.seed is None else np.random.default_rng([self.seed, number])
        )
        return self.sensitivity / self.epsilon * knorm(self.task.X.shape[1], rng)


@dataclass(frozen=True)
class PublishedNoise:
    """Algorithm 1, line 13: the gradient plus z₂ of density ∝ exp(−ε₂‖z‖/S₂), S₂ = 2C₁C₂/n.

    It clips nothing; the event is what Theorem 3.5 claims for one message, ε₁ + ε₂.

    >>> PublishedNoise(sensitivity=0.1, epsilon_1=0.1, epsilon_2=0.2).event("replace")
    Pure(epsilon=0.30000000000000004)
    """

    sensitivity: float  # S₂
    epsilon_1: float
    epsilon_2: float
    pure: ClassVar[bool] = True
    proven: ClassVar[bool] = False
    reason: ClassVar[str] = UNSOUND

    def __post_init__(self) -> None:
        check_positive("sensitivity", self.sensitivity)
        check_positive("epsilon_1", self.epsilon_1)
        check_positive("epsilon_2", self.epsilon_2)

    def event(self, neighbours: Neighbours) -> Pure:
        """What is claimed."""
        return Pure(self.epsilon_1 + self.epsilon_2)

    def release(
        self,
        contributions: FloatArray,
        rng: np.random.Generator | None,
        shares: FloatArray | None = None,
    ) -> FloatArray:
        """The one row plus z₂."""
        (row,) = as_rows(contributions, vectors=True)
        scale = self.sensitivity / self.epsilon_2
        return snapped(row + scale * knorm(len(row), rng or system_generator()), scale)

    def secure(self, rng: np.random.Generator | None) -> bool:
        """Never: floating-point noise."""
        return False

    def values(self, shape: tuple[int, ...]) -> int:
        """Noise values of one release: a direction and a radius."""
        return shape[-1] + 1

    def to_dict(self) -> dict[str, object]:
        """Name and parameters."""
        return {"name": type(self).__name__} | asdict(self)
