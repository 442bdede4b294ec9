r"""S3's own node: Eq. (6)–(9) without privacy, and Algorithm 1, letter by letter.

With its noises the guarantee does not hold (docs/privacy.md, D and D′):

1. Lemma 1 takes one step's change for the sensitivity of q, but q was never privatised, so what one
   example does to it adds up, s_k = (1 − αλ) s_{k−1} + 2αC₁C₂/n, and shifts every gradient.
2. The single-task start is computed from the data without noise.
3. Theorem 3.6 takes δ over the data, which is not differential privacy, and ε is of one message.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from tacit.arrays import FloatArray
from tacit.engine import Message, Released
from tacit.engine.arrivals import GRADIENT
from tacit.learners.async_proximal.formulations import Formulation, MeanLoss, OwnPart
from tacit.privacy.accounting import Pure
from tacit.privacy.budget import Neighbours
from tacit.privacy.float_laws import knorm
from tacit.privacy.mechanisms.clipping import as_rows, check_positive
from tacit.privacy.mechanisms.grid import snapped
from tacit.privacy.mechanisms.noisy_statistic import parameters
from tacit.privacy.noise import system_generator

UNSOUND = (
    "as published: q was never privatised, so the sensitivity is not one step's; "
    "the single-task start has no noise; the total is the sum of what is claimed per message"
)


class PaperNodeState(NamedTuple):
    """q⁽ᵏ⁾ and k."""

    q: FloatArray
    number: int


@dataclass(frozen=True)
class FirstNoise:
    """Eq. (12): z₁ of density ∝ exp(−ε₁‖z‖/S₁), ``scale`` S₁/ε₁. ``seed`` None: of the system."""

    scale: float
    seed: int | None = None

    def draw(self, width: int, number: int) -> FloatArray:
        """(D,), for message ``number``."""
        given = None if self.seed is None else np.random.default_rng([self.seed, number])
        return self.scale * knorm(width, given or system_generator())


@dataclass(frozen=True)
class PaperNode:
    """One task: q by a step of its own, then the gradient at p + q + z₁; z₂ is the mechanism's.

    ``own``, ``order`` and ``start_at`` are those of printed.py. Without noises nothing protects it.
    """

    task: MeanLoss
    formulation: Formulation
    releases: int
    step: float  # α₁
    start_at: FloatArray  # q⁽⁰⁾
    own: Literal["single", "exact"] = "single"
    order: Literal["gauss-seidel", "jacobi"] = "gauss-seidel"
    first: FirstNoise | None = None
    mechanism: PublishedNoise | None = None

    def start(self) -> PaperNodeState:
        """q⁽⁰⁾."""
        return PaperNodeState(self.start_at, 0)

    def contribute(
        self, column: FloatArray, state: PaperNodeState
    ) -> tuple[FloatArray, PaperNodeState]:
        """∇_t⁽ᵏ⁾ before z₂, one row where a mechanism takes rows; and q⁽ᵏ⁾."""
        q, number = state
        moved = self._moved(column, q)  # line 9
        at = column + (q if self.order == "jacobi" else moved)
        if self.first is not None:
            at = at + self.first.draw(len(q), number)  # line 11
        slope, state = self.task.gradient(at), PaperNodeState(moved, number + 1)
        return slope if self.mechanism is None else slope[None], state

    def absorb(
        self, column: FloatArray, released: Released, state: PaperNodeState
    ) -> tuple[Message, PaperNodeState]:
        """The message; q has moved already, and that is the flaw."""
        return {GRADIENT: released}, state

    def _moved(self, p: FloatArray, q: FloatArray) -> FloatArray:
        if self.own == "exact":
            return self._solver.best(p, q)  # Eq. (8)
        return self.formulation.own_moved(q, self.task.gradient(p + q), self.step)  # Eq. (6)

    @cached_property
    def _solver(self) -> OwnPart:
        return OwnPart(self.task, self.formulation)


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

    def to_dict(self) -> dict[str, object]:
        """Name and parameters."""
        return parameters(self)
