r"""S3's own nodes: without privacy, Eq. (6)–(9), and as published, Algorithm 1, letter by letter.

``OpenNode`` is the node without privacy: Gauss–Seidel or Jacobi order, exact or single-step q, a
single-task start. ``PublishedNode`` is Algorithm 1's node with its two noises; its server has the
update ``LastGradients``. Its guarantee does not hold (docs/privacy.md, D and D′):

1. Lemma 1 takes one step's change for the sensitivity of q, but q was never privatised, so what one
   example does to it adds up, s_k = (1 − αλ) s_{k−1} + 2αC₁C₂/n, and shifts every gradient.
2. The single-task start is computed from the data without noise.
3. Theorem 3.6 takes δ over the data, which is not differential privacy, and ε is of one message.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from tacit.arrays import FloatArray
from tacit.engine import Message, Released
from tacit.engine.arrivals import GRADIENT
from tacit.errors import InvalidInput
from tacit.learners.async_proximal.formulations import (
    Formulation,
    MeanLoss,
    OwnPart,
    mean_losses,
)
from tacit.learners.async_proximal.plan import MOST_RELEASES, Setting, allowances
from tacit.learners.async_proximal.updates import LastGradients
from tacit.linear.batched import Problems
from tacit.linear.penalties import Penalty
from tacit.linear.single_task_fits import best_alone
from tacit.privacy.accounting import Pure
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms.clipping import as_rows, check_positive
from tacit.privacy.mechanisms.grid import snapped
from tacit.privacy.mechanisms.noisy_statistic import parameters
from tacit.privacy.noise import knorm, system_generator
from tacit.privacy.planning import Door

UNSOUND = (
    "as published: q was never privatised, so the sensitivity is not one step's; "
    "the single-task start has no noise; the total is the sum of what is claimed per message"
)
LEVEL = {"squared": 1e-5, "logistic": 1e-3}  # λ, S3 §4.1


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
    mechanism: ClassVar[None] = None

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


# --- Algorithm 1's node --------------------------------------------------------------------------


class PublishedNodeState(NamedTuple):
    """q⁽ᵏ⁾ and k."""

    q: FloatArray
    number: int


@dataclass(frozen=True)
class PublishedNode:
    """Algorithm 1, the task node: q by an exact gradient step, then the gradient at p + q + z₁.

    z₂ is its mechanism's. ``row_norm`` C₁ bounds ‖x‖, ``slope_bound`` C₂ the slope |ℓ′| (Theorem
    3.6, in our units: C₁C₃ + 1). ``seed`` None: z₁ from the operating system.
    """

    task: MeanLoss
    releases: int
    step: float  # α₁
    own_level: float  # λ of (λ/2)‖q‖²
    row_norm: float
    slope_bound: float
    epsilon: float  # ε₁ = ε₂, of one message
    start_at: FloatArray  # q⁽⁰⁾, by a single-task learner
    seed: int | None = None

    @property
    def sensitivity(self) -> float:
        """S₁ = 2α₁C₁C₂/n (Lemma 1, which is wrong)."""
        return 2 * self.step * self.row_norm * self.slope_bound / max(len(self.task.y), 1)

    @property
    def mechanism(self) -> PublishedNoise:
        """Adds z₂, with S₂ = 2C₁C₂/n."""
        sensitivity = 2 * self.row_norm * self.slope_bound / max(len(self.task.y), 1)
        return PublishedNoise(sensitivity, self.epsilon, self.epsilon)

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
        given = None if self.seed is None else np.random.default_rng([self.seed, number])
        rng = given or system_generator()
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


def published_update(penalty: Penalty, setting: Setting) -> LastGradients:
    """The server's, at the paper's λ."""
    return LastGradients(penalty, LEVEL[setting.loss.name], _step(setting))


def published_nodes(problems: Problems, setting: Setting, door: Door) -> list[PublishedNode]:
    """At their budgets by basic composition, half of each message's for either noise."""
    row_norm, loss = math.sqrt(setting.width), setting.loss
    slope = 1.0 if loss.name == "logistic" else row_norm + 1.0  # Theorem 3.6 with C₃ = 1
    messages = setting.releases or MOST_RELEASES
    tasks, starts = mean_losses(problems, loss), best_alone(problems, loss)
    given = zip(tasks, starts, allowances(door, setting), door.budgets, strict=True)
    return [
        PublishedNode(
            task,
            releases=0 if budget is None else messages,
            step=_step(setting),
            own_level=LEVEL[loss.name],
            row_norm=row_norm,
            slope_bound=slope,
            epsilon=allowed.rest.epsilon / messages / 2,
            start_at=start,
            seed=None if door.rng is None else int(door.rng.integers(2**32)),
        )
        for task, start, allowed, budget in given
    ]


def _step(setting: Setting) -> float:
    return 1 / (setting.curvature * math.sqrt(setting.width) ** 2)
