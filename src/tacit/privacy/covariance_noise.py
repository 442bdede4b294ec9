"""Which mechanism releases a covariance, how large its noise is, and what each round may spend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from tacit.errors import InvalidInput
from tacit.privacy.accounting import Cost, geometric_schedule, kov_epsilon, power_schedule
from tacit.privacy.accounting import scaled_schedule as scaled
from tacit.privacy.budget import Budget, Neighbours
from tacit.privacy.mechanisms import (
    DiagonalGaussian,
    GramGaussian,
    PublishedWishart,
    SymmetricGaussian,
    TwoSidedWishart,
)
from tacit.privacy.mechanisms.nested import DiagonalLaplace, PublishedNoise
from tacit.privacy.noise import FloatArray

Kind = Literal["full", "diagonal", "tasks"]
"""What is released: WWᵀ, its diagonal, or WᵀW."""

Sound = SymmetricGaussian | DiagonalGaussian | GramGaussian | TwoSidedWishart | DiagonalLaplace
Published = PublishedWishart | PublishedNoise

PURE_NAME = {"full": "wishart", "diagonal": "laplace", "tasks": ""}


def sound_mechanism(
    kind: Kind, name: str, clip_norm: float, amount: float, neighbours: Neighbours, units: int
) -> Sound:
    """The mechanism whose release is μ-GDP (name "gaussian"), or (ε, 0)-DP, with amount = μ or ε.

    >>> sound_mechanism("full", "gaussian", 1.0, 0.5, "zero-out", 10)
    SymmetricGaussian(clip_norm=1.0, sigma=2.0)
    """
    if name == "gaussian":
        if kind == "tasks":
            return GramGaussian.for_mu(clip_norm, units, amount, neighbours)
        gaussian = SymmetricGaussian if kind == "full" else DiagonalGaussian
        return gaussian.for_mu(clip_norm, amount, neighbours)
    if not name or name != PURE_NAME[kind]:
        known = ("gaussian", PURE_NAME[kind]) if PURE_NAME[kind] else ("gaussian",)
        raise InvalidInput(f"mechanism must be one of {known} here, got {name!r}")
    if kind == "full":
        return TwoSidedWishart.for_epsilon(clip_norm, amount, neighbours)
    return DiagonalLaplace.for_epsilon(clip_norm, amount, neighbours)


def published_mechanism(
    kind: Kind, clip_norm: float, epsilon: float, version: Literal["last", "first"]
) -> Published:
    """S1's noise as printed; not private. The first version has s = 2K where the last has K²."""
    if kind != "tasks" and version == "last":
        return PublishedWishart(clip_norm, epsilon, as_published=True)
    sensitivity = 2 * clip_norm if version == "first" else clip_norm**2
    side: Literal["features", "tasks"] = "tasks" if kind == "tasks" else "features"
    return PublishedNoise(clip_norm, epsilon, sensitivity, side, as_published=True)


def noise_edge(mechanism: Sound | Published, dim: int, units: int) -> float:
    """About the largest eigenvalue (or entry of a diagonal) of the noise; 0 if it is positive.

    A symmetric Gaussian matrix with variance σ²/2 off the diagonal has its spectrum within
    ±√2 σ√d (Wigner); for the difference of two Wishart matrices σ²/2 is 2(d+1)v².

    >>> round(noise_edge(SymmetricGaussian(1.0, 3.0), 8, 100), 9)
    12.0
    """
    match mechanism:
        case SymmetricGaussian(sigma=sigma):
            return math.sqrt(2 * dim) * sigma
        case GramGaussian(sigma=sigma):
            return math.sqrt(2 * units) * sigma
        case DiagonalGaussian(sigma=sigma):
            return math.sqrt(2 * math.log(max(dim, 2))) * sigma
        case TwoSidedWishart(scale=scale):
            return math.sqrt(8 * dim * (dim + 1)) * scale
        case DiagonalLaplace(scale=scale):
            return math.log(2 * dim) * scale
    return 0.0


# --- budget allocation: S1 §4.5 ------------------------------------------------------------------

Schedule = Literal["auto"] | tuple[str, float] | Sequence[float]


def schedule_weights(
    schedule: Schedule, rounds: int, *, accelerated: bool, strong_convexity: float
) -> FloatArray:
    """a_t of each round: ("power", α) is t^α, ("geometric", Q) is Q^−t, or any T weights.

    "auto" is Theorem 6, with L = 1 + μ: α = 0 or (accelerated) 2/5 for a convex loss; for a
    μ-strongly convex one Q = (1 − μ/L)^{2/5} or (accelerated) (1 − √(μ/L))^{1/5}.

    >>> schedule_weights("auto", 3, accelerated=False, strong_convexity=0.0)
    array([1., 1., 1.])
    """
    if isinstance(schedule, str):
        if schedule != "auto":
            raise InvalidInput(f"schedule must be 'auto', a pair or weights, got {schedule!r}")
        schedule = recommended(accelerated, strong_convexity)
    if len(schedule) == 2 and schedule[0] == "power":
        return power_schedule(rounds, float(schedule[1]))
    if len(schedule) == 2 and schedule[0] == "geometric":
        return geometric_schedule(rounds, float(schedule[1]))
    weights = np.asarray(schedule, dtype=np.float64)
    if weights.shape != (rounds,):
        raise InvalidInput(f"schedule has {weights.size} weights for {rounds} rounds")
    return weights


def recommended(accelerated: bool, strong_convexity: float) -> tuple[str, float]:
    """Theorem 6's schedule."""
    if strong_convexity == 0:
        return ("power", 0.4 if accelerated else 0.0)
    ratio = strong_convexity / (1 + strong_convexity)
    if accelerated:
        return ("geometric", (1 - math.sqrt(ratio)) ** 0.2)
    return ("geometric", (1 - ratio) ** 0.4)


def pure_amounts(weights: FloatArray, left: Cost) -> FloatArray:
    """ε_t = a_t ε₀ with the largest ε₀ whose optimal composition fits what is left."""
    return scaled(weights, Budget(left.epsilon, left.delta), pure=True)


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
