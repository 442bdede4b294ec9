"""Which mechanism releases a covariance, and what each round may spend on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np

from tacit.arrays import FloatArray
from tacit.errors import InvalidInput
from tacit.parameters import Between, NonNegative
from tacit.privacy.accounting import (
    Cost,
    Pure,
    geometric_schedule,
    kov_epsilon,
    power_schedule,
    pure_schedule,
)
from tacit.privacy.budget import Budget, Neighbours
from tacit.privacy.mechanisms import (
    DiagonalGaussian,
    DiagonalLaplace,
    EachRow,
    GramGaussian,
    KNormSum,
    NoisyStatistic,
    PublishedWishart,
    SymmetricGaussian,
    TwoSidedWishart,
)

Kind = Literal["full", "diagonal", "tasks"]
"""What is released: WWᵀ, its diagonal, or WᵀW."""

Maker = Callable[[float, float, Neighbours], NoisyStatistic[Any]]
"""From the clip norm, and the μ or ε of one release."""


def sound_mechanism(
    kind: Kind, name: str, clip_norm: float, amount: float, neighbours: Neighbours, units: int
) -> NoisyStatistic[Any]:
    """The mechanism whose release is μ-GDP (name "gaussian"), or (ε, 0)-DP, with amount = μ or ε.

    >>> sound_mechanism("full", "gaussian", 1.0, 0.5, "zero-out", 10)
    SymmetricGaussian(clip_norm=1.0, sigma=2.0)
    """
    every: dict[Kind, dict[str, Maker]] = {
        "full": {"gaussian": SymmetricGaussian.for_mu, "wishart": TwoSidedWishart.for_epsilon},
        "diagonal": {"gaussian": DiagonalGaussian.for_mu, "laplace": DiagonalLaplace.for_epsilon},
        "tasks": {"gaussian": partial(GramGaussian.for_mu, units=units)},
    }
    if name not in every[kind]:
        raise InvalidInput(f"mechanism must be one of {tuple(every[kind])} here, got {name!r}")
    return every[kind][name](clip_norm, amount, neighbours)


def published_mechanism(
    kind: Kind,
    clip_norm: float,
    epsilon: float,
    version: Literal["last", "first"],
    *,
    clipped: bool = True,
) -> PublishedWishart:
    """S1's noise as printed; not private. The first version has s = 2K where the last has K².

    ``clipped`` False: Algorithm 5, step 5 takes the noisy models as they are.
    """
    return PublishedWishart(
        clip_norm,
        epsilon,
        as_published=True,
        sensitivity=2 * clip_norm if version == "first" else None,
        side="tasks" if kind == "tasks" else "features",
        clipped=clipped,
    )


# --- budget allocation: S1 §4.5 ------------------------------------------------------------------

Exponent = Annotated[float, Between(-100, 100)]
Schedule = Literal["auto"] | tuple[Literal["power", "geometric"], Exponent] | Sequence[NonNegative]


def is_weights(schedule: Schedule) -> bool:
    """Whether it names each round's weight, and so their number.

    >>> is_weights([1.0, 3.0]), is_weights(("power", 0.4)), is_weights("auto")
    (True, False, False)
    """
    return not (isinstance(schedule, str) or len(schedule) == 0 or isinstance(schedule[0], str))


def schedule_weights(
    schedule: Schedule, rounds: int, accelerated: bool, ratio: float, *, delta: float
) -> FloatArray:
    """a_t of each round: ("power", α) is t^α, ("geometric", Q) is Q^−t, or any T weights.

    "auto" is what S1 recommends for steps with or without acceleration, ratio = μ/L.

    >>> schedule_weights("auto", 3, False, 0.0, delta=1e-5)
    array([1., 1., 1.])
    """
    if isinstance(schedule, str):
        schedule = recommended(accelerated, ratio, delta=delta)
    if len(schedule) == 2 and schedule[0] == "power":
        weights = power_schedule(rounds, float(schedule[1]))
    elif len(schedule) == 2 and schedule[0] == "geometric":
        weights = geometric_schedule(rounds, float(schedule[1]))
    else:
        weights = np.asarray(schedule, dtype=np.float64)
    if weights.shape != (rounds,):
        raise InvalidInput(f"schedule has {weights.size} weights for {rounds} rounds")
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise InvalidInput(
            f"a schedule needs non-negative finite weights, not all zero; got {weights}"
        )
    return weights


def recommended(
    accelerated: bool, ratio: float, *, delta: float
) -> tuple[Literal["power", "geometric"], float]:
    """Theorem 6's schedule, or Theorem 11's where δ = 0 and all ε_t add up; ratio = μ/L.

    The minima of the bounds in α and Q (bounds.py):

    ===============  ===========  ============  =================  ====================
    δ                convex       accelerated   strongly convex    accelerated
    ===============  ===========  ============  =================  ====================
    > 0 (Thm. 6)     α = 0        α = 2/5       (1 − μ/L)^{2/5}    (1 − √(μ/L))^{1/5}
    = 0 (Thm. 11)    α = 0        α = 2/3       (1 − μ/L)^{2/3}    (1 − √(μ/L))^{1/3}
    ===============  ===========  ============  =================  ====================

    >>> recommended(True, 0.0, delta=1e-5), recommended(True, 0.0, delta=0.0)[1] == 2 / 3
    (('power', 0.4), True)
    """
    power = 2 / 3 if delta == 0 else 2 / 5
    if ratio == 0:
        return ("power", power if accelerated else 0.0)
    if accelerated:
        return ("geometric", (1 - math.sqrt(ratio)) ** (power / 2))
    return ("geometric", (1 - ratio) ** power)


def pure_amounts(weights: FloatArray, left: Cost) -> FloatArray:
    """ε_t = a_t ε₀ with the largest ε₀ whose optimal composition fits what is left."""
    return pure_schedule(weights, Budget(left.epsilon, left.delta))


def published_amounts(weights: FloatArray, left: Cost) -> FloatArray:
    """ε_t = a_t ε₀ with the largest ε₀ whose bound of S1 Definition 7 is at most ε.

    >>> round(float(published_amounts(np.ones(50), Cost(epsilon=2.9286, delta=5.41752e-4))[0]), 4)
    0.1
    """
    low, high = 0.0, left.epsilon / float(weights.max())
    for _ in range(200):
        middle = (low + high) / 2
        fits = kov_epsilon(list(weights * middle), left.delta) <= left.epsilon
        low, high = (middle, high) if fits else (low, middle)
    return np.asarray(weights * low)


# --- Algorithm 5: noise of each task's own -------------------------------------------------------


@dataclass(frozen=True)
class InvertedRows(EachRow):
    """Step 4 as printed: density ∝ exp(−(2K/ε)‖b‖), *claimed* ε; the truth is 4K²/ε.

    >>> InvertedRows.claiming(3.0, 0.5).row.event("replace"), 4 * 3.0**2 / 0.5
    (Pure(epsilon=72.0), 72.0)
    """

    epsilon: float

    @classmethod
    def claiming(cls, clip_norm: float, epsilon: float) -> InvertedRows:
        """Of scale ε/(2K)."""
        return cls(KNormSum(clip_norm, epsilon / (2 * clip_norm)), epsilon)

    def event(self, neighbours: Neighbours) -> Pure:
        """The paper's claim, for either relation. It is no proof."""
        return Pure(self.epsilon)

    def to_dict(self) -> dict[str, object]:
        """With what is claimed."""
        return super().to_dict() | {"epsilon": self.epsilon}


def noises_at_home(
    clip_norm: float, budget: Budget | None, rounds: int, *, published: bool
) -> list[EachRow | None]:
    """Steps 4 and 5: b of density ∝ exp(−‖b‖₂/s), s = 2K/ε, on each model, round by round."""
    if budget is None:
        return [None] * rounds
    left = Cost(epsilon=budget.epsilon, delta=budget.delta)
    amounts = (published_amounts if published else pure_amounts)(np.ones(rounds), left)  # step 2
    if published:
        return [InvertedRows.claiming(clip_norm, float(a)) for a in amounts]
    sound = [KNormSum.for_epsilon(clip_norm, float(a), budget.neighbours) for a in amounts]
    return [EachRow(each) for each in sound]
