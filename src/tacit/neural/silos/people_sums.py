r"""The mechanism of a silo: clipped gradients of its people, summed, with Gaussian noise.

Row i adds w_i · clip(g_i, C), its gradient g_i in factors (row_gradients.py), w_i ≤ 1/k for one of
k rows of a person. So a person adds no more than a mean of vectors no longer than C, and is no
longer than C, however many rows name them: Δ = 2C (replace), C (zero-out).

**In floating point.** Let C′ = (1 − η)C be the norm that rows are clipped to.

1. ‖g_i‖² = Σ ‖left‖² (‖right‖² + 1) over layers, from factors that are exact in double precision,
   each norm added up in a tree of rows scaled near 1, and no norm squared again: off by less than
   ``rounding_slack``, by which the limit is below C′. A row with a factor longer than FAR adds
   nothing: so for C ≥ 2⁻⁴⁹⁹ quotients C/‖g_i‖ are normal numbers, and what underflows, below 2⁻¹⁰⁷⁴
   of a left factor, is below 2⁻⁸²⁴ of a sum.
2. The sum is one of matrix products in double precision, of BLOCK rows each, in whatever order a
   library adds. Of at most N = MOST_ROWS rows an entry is off by e·Σ|terms|, e = (BLOCK + N/BLOCK
   + 3)·2⁻⁵³ to first order (Higham, 2002, §3.1), so that the whole vector is off by at most
   e·Σ w_i C′ ≤ e·N·C, for each of two neighbours.
3. Cutting toward zero onto a grid g moves two vectors of D coordinates apart by g√D at most.

With η = 3eN + g√D/C all three together stay below Δ under either relation, and the noise, rounded
to the same grid, makes the release exact (noisy_statistic.py). η is public, and below 2⁻²⁰ beside
the grid's part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.arrays import FloatArray, IntArray
from tacit.errors import InvalidInput
from tacit.neural.sampling import Sampler
from tacit.neural.silos.row_gradients import Factors, LayerRows
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms import NoisyStatistic
from tacit.privacy.mechanisms.clipping import (
    check_positive,
    down_to_one,
    rounding_slack,
    tree_norms,
)
from tacit.privacy.mechanisms.grid import cut, grid, grid_steps
from tacit.privacy.mechanisms.noises import GaussianNoise, Shape
from tacit.privacy.mechanisms.statistics import Sum

MOST_ROWS = 2**18
"""Rows of a silo in one release."""

BLOCK = 2**11
"""Rows at a time while summing."""

FAR = 2.0**250
"""The longest factor of a gradient that is summed."""

_ROUNDING = 3 * (BLOCK + MOST_ROWS / BLOCK + 3) * 2.0**-53 * MOST_ROWS


@dataclass(frozen=True, eq=False)
class PeopleRows:
    """What a silo's people would contribute: at home, before clipping."""

    factors: Factors
    weights: FloatArray  # (n,): those of a person add up to 1 at most

    def __len__(self) -> int:
        return len(self.weights)

    def __getitem__(self, place: int, /) -> FloatArray:
        return PeopleRows([layer[place : place + 1] for layer in self.factors], np.ones(1)).summed()

    @property
    def shape(self) -> Shape:
        """(n, d)."""
        return len(self), sum(layer.size for layer in self.factors)

    def summed(self, limit: float = math.inf) -> FloatArray:
        """(d,), in doubles: Σ of the rows, each scaled to a norm of at most ``limit``."""
        blocks = range(0, max(1, len(self)), BLOCK)
        sums = (self._summed(slice(start, start + BLOCK), limit) for start in blocks)
        return np.asarray(reduce(torch.add, sums).cpu().numpy())

    def _summed(self, some: slice, limit: float) -> Tensor:
        layers = [layer[some] for layer in self.factors]
        scales = torch.from_numpy(_scales(layers, self.weights[some], limit))
        return torch.cat([part for layer in layers for part in _weighted(layer, scales)])


def _scales(layers: Factors, weights: FloatArray, limit: float) -> FloatArray:
    """(n,): what each row is multiplied by; 0 of one that is too long to sum, or not finite."""
    norms, near = np.zeros(len(weights)), np.ones(len(weights), dtype=bool)
    with np.errstate(over="ignore", invalid="ignore"):
        for layer in layers:
            left, right = _norms(layer.left), _norms(layer.right)
            near &= (left <= FAR) & (right <= FAR)
            norms = np.hypot(norms, left * np.hypot(right, float(layer.bias)))
    scaled = weights * np.divide(limit, norms, out=np.ones_like(norms), where=norms > limit)
    return np.where(near, scaled, 0.0)


def _norms(rows: Tensor | None) -> FloatArray | float:
    if rows is None:
        return 0.0
    doubles = rows.cpu().numpy().astype(np.float64)
    down = down_to_one(np.abs(doubles).max(axis=1, initial=0.0))
    return np.asarray(tree_norms(doubles * down[:, None]) / down)


def _weighted(layer: LayerRows, scales: Tensor) -> Iterator[Tensor]:
    """Σ over rows of scale · left ⊗ right, and of scale · left; of those that have a scale."""
    on = scales != 0
    if not on.all():
        layer, scales = layer[on.to(layer.left.device)], scales[on]
    left = layer.left.double() * scales.to(layer.left.device)[:, None]
    if layer.right is not None:
        yield (left.mT @ layer.right.double()).flatten()
    if layer.bias:
        yield left.sum(0)


@dataclass(frozen=True)
class SumOverPeople(Sum):
    """Σ over rows of w · clip(g, C)."""

    def checked(self, contributions: Any, shares: FloatArray | None) -> tuple[Any, Any]:
        """Rows of one silo, not more than rounding is accounted for."""
        if shares is not None:
            raise InvalidInput("everybody in a silo has the same share: it is in the noise")
        require_few(len(contributions))
        return contributions, self.clip_norm

    def total(self, rows: Any, clips: Any) -> FloatArray:
        """(d,), in floats."""
        return np.asarray(rows.summed(self._limit(rows.shape[1], 0.0)))

    def counts(self, rows: Any, clips: Any, scale: float) -> IntArray:
        """(d,): in steps of the grid."""
        steps = grid_steps(scale, self.clip_norm, MOST_ROWS)
        return np.asarray(cut(rows.summed(self._limit(rows.shape[1], grid(scale))), steps))

    def _limit(self, dim: int, step: float) -> float:
        """C′, and below it by what a norm may be off."""
        eta = _ROUNDING + step * math.sqrt(dim) / self.clip_norm
        return self.clip_norm * max(0.0, 1 - eta) * (1 - rounding_slack(dim))


def require_few(rows: int) -> None:
    """InvalidInput if a silo has more rows than its sums are exact for."""
    if rows > MOST_ROWS:
        raise InvalidInput(f"a silo may have {MOST_ROWS:,} rows, and one has {rows:,}")


@dataclass(frozen=True)
class PeopleSum(NoisyStatistic[Any]):
    """A silo's release: the sum over a sample of its people, plus N(0, σ²), σ = z·C."""

    clip_norm: float  # C
    noise_multiplier: float  # z
    sampler: Sampler
    people: int

    def __post_init__(self) -> None:
        for name in ("clip_norm", "noise_multiplier"):
            check_positive(name, getattr(self, name))

    @property
    def sigma(self) -> float:
        """σ."""
        return self.noise_multiplier * self.clip_norm

    @property
    def statistic(self) -> SumOverPeople:
        """What is released."""
        return SumOverPeople(self.clip_norm)

    @property
    def noise(self) -> GaussianNoise:
        """N(0, σ²)."""
        return GaussianNoise(self.sigma)

    def event(self, neighbours: Neighbours) -> Any:
        """What the sampler makes of it."""
        return self.sampler.event(self.people, self.noise_multiplier, neighbours)

    def to_dict(self) -> dict[str, object]:
        """Name and parameters: never who took part."""
        return {
            "name": type(self).__name__,
            "clip_norm": self.clip_norm,
            "noise_multiplier": self.noise_multiplier,
            "people": self.people,
            "sampler": repr(self.sampler),
        }
