"""Several rows of each unit in one release: a model for each class, or for each of several targets.

**Sensitivity.** A unit has k rows, and the same statistic of each is released, all of them as one
vector. Replacing the unit changes all of them at once, by a₁, …, a_k with ‖a_j‖₂ ≤ Δ₁, the
sensitivity of one. So

    ‖(a₁, …, a_k)‖₂² = Σ ‖a_j‖₂² ≤ k Δ₁²,    Δ = √k Δ₁,

reached where every one of them changes by Δ₁. Each is clipped, and cut onto the grid, by itself, so
that Δ₁ holds of it exactly, and Δ of all. Clipping each to C is clipping to C/√k under noise σ/√k:
only the ratio counts. (One clip of the whole row at √k C has the same Δ where rows are summed; of
outer products it has √k times more, as ‖w‖⁴ may then be k²C⁴: so each has its own.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np

from tacit.arrays import FloatArray, IntArray
from tacit.errors import InvalidInput
from tacit.privacy.accounting import Gaussian
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms import noises
from tacit.privacy.mechanisms.clipping import as_rows
from tacit.privacy.mechanisms.noises import Noise, Shape
from tacit.privacy.mechanisms.noisy_statistic import NoisyStatistic
from tacit.privacy.mechanisms.products import (
    GaussianSum,
    SymmetricGaussian,
    VoteSum,
    WithGaussianNoise,
)
from tacit.privacy.mechanisms.statistics import Sum

Kind = Literal["GaussianSum", "VoteSum", "SymmetricGaussian"]
KINDS: dict[str, type[WithGaussianNoise]] = {
    kind.__name__: kind for kind in (GaussianSum, VoteSum, SymmetricGaussian)
}


@dataclass(frozen=True)
class EachPart(Sum):
    """The same statistic of ``count`` rows of each unit (units, count, ...): (count, ...)."""

    part: Sum = field(kw_only=True)
    count: int = field(kw_only=True)

    def sensitivity(self, neighbours: Neighbours) -> float:
        """√k Δ₁."""
        return math.sqrt(self.count) * self.part.sensitivity(neighbours)

    @property
    def bound(self) -> float:
        """That of one."""
        return self.part.bound

    def checked(
        self, contributions: FloatArray, shares: FloatArray | None
    ) -> tuple[FloatArray, FloatArray]:
        """As many rows of each unit as declared."""
        rows = as_rows(contributions, vectors=False)
        if rows.ndim != 3 or rows.shape[1] != self.count:
            raise InvalidInput(
                f"contributions must have shape (units, {self.count}, dim), got {rows.shape}"
            )
        return rows, self.part.checked(rows[:, 0], shares)[1]

    def total(self, rows: FloatArray, clips: FloatArray) -> FloatArray:
        """The statistic of the first rows, of the second, ..."""
        return np.stack([self.part.total(each, clips) for each in _each(rows)])

    def counts(self, rows: FloatArray, clips: FloatArray, scale: float) -> IntArray:
        """In the same order, one behind the other."""
        return np.concatenate([self.part.counts(each, clips, scale) for each in _each(rows)])

    def coordinates(self, shape: Shape) -> Shape:
        """Of all of them."""
        return (self.count * math.prod(self.part.coordinates(_of_one(shape))),)

    def shaped(self, coordinates: FloatArray, shape: Shape) -> FloatArray:
        """Each in its own form."""
        parts = coordinates.reshape(self.count, -1)
        return np.stack([self.part.shaped(part, _of_one(shape)) for part in parts])


def _each(rows: FloatArray) -> Iterator[FloatArray]:
    return (np.ascontiguousarray(rows[:, j]) for j in range(rows.shape[1]))


def _of_one(shape: Shape) -> Shape:
    return (shape[0], *shape[2:])


@dataclass(frozen=True)
class SideBySide(NoisyStatistic[Gaussian]):
    """``count`` rows of each unit (m, count, d) in one release, each as ``kind`` releases one.

    >>> SideBySide("GaussianSum", clip_norm=1.0, sigma=8.0, count=4).event("replace")
    Gaussian(mu=0.5)
    """

    kind: Kind
    clip_norm: float
    sigma: float
    count: int
    law: ClassVar[type[Noise[Any]]] = noises.GaussianNoise

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidInput(f"{self.kind!r} is not released side by side")
        if not isinstance(self.count, int) or self.count < 1:
            raise InvalidInput(f"count must be a whole number of at least 1, got {self.count!r}")
        _ = self.part  # checks the others

    @classmethod
    def of(cls, part: Any, count: int) -> Self:
        """So many of the same; InvalidInput if it is none that can be."""
        name: Any = type(part).__name__
        if KINDS.get(name) is not type(part):
            raise InvalidInput(f"{name} is not released side by side")
        return cls(name, part.clip_norm, part.sigma, count)

    @property
    def part(self) -> WithGaussianNoise:
        """One of them."""
        return KINDS[self.kind](self.clip_norm, self.sigma)

    @property
    def statistic(self) -> Sum:
        """Of all of them."""
        one = self.part.statistic
        return EachPart(one.clip_norm, one.norm, part=one, count=self.count)

    @property
    def noise(self) -> Noise[Gaussian]:
        """N(0, σ² I)."""
        return self.part.noise
