"""The mechanism of a round: clipped updates of a cohort, mixed, summed, with Gaussian noise.

Sums are made where the updates are (on a GPU), in double precision and, for secure noise, in whole
numbers of a public grid; d numbers come back, not m·d. Clipping and grid are those of every
mechanism (privacy/mechanisms), done there by PyTorch: a clipped row has a norm of at most γ in
exact arithmetic, cutting toward zero does not raise it, and every operation until the sum is
elementwise. So what an update adds has no bit that depends on the updates beside it, on where it
stands among them, or on threads and blocks; and the sum is one of whole numbers, exact in any
order.

**Adaptive clipping** (Andrew et al., 2021): each client adds a bit, +½ if its update was not
clipped and −½ if it was. Bit and update share one coin, so they are one release: with noise σ on
both and the bit scaled by s, a client moves the sum by at most √((γ·reach)² + (s/2)²). We take
s = 2σ/z_bit with σ = z_update·γ·reach, so that σ over that is z with 1/z² = 1/z_update² + 1/z_bit²
(docs/privacy.md). Under replace a bit can move by 1, twice ½, as an update by 2γ: z stays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.arrays import BoolArray, FloatArray, IntArray
from tacit.errors import InvalidInput
from tacit.neural.sampling import Sampler
from tacit.privacy.accounting import Event, Gaussian
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms import NoisyStatistic, sum_sensitivity
from tacit.privacy.mechanisms.clipping import check_positive, clipped, rounding_slack
from tacit.privacy.mechanisms.grid import cut, grid_steps
from tacit.privacy.mechanisms.noises import GaussianNoise, Shape
from tacit.privacy.mechanisms.statistics import Sum

BLOCK = {"cpu": 2**20, "cuda": 2**25}
"""Numbers at a time while summing: what stays in a cache, and what keeps a GPU busy."""


@dataclass(frozen=True, eq=False)
class Updates:
    """What a cohort would contribute: on the trusted side, before clipping."""

    values: Tensor  # (k, d)
    weights: FloatArray  # (R, k), the cohort's columns of B

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, place: int, /) -> FloatArray:
        return np.asarray(self.values[place].cpu().numpy())

    def of(self, values: FloatArray) -> Updates:
        """Other updates (k, d) of the same cohort."""
        return Updates(torch.from_numpy(values).to(self.values), self.weights)

    def only(self, i: int) -> Updates:
        """Of one member of the cohort."""
        return Updates(self.values[i : i + 1], self.weights[:, i : i + 1])

    @property
    def shape(self) -> Shape:
        """(k, R, d): what each member adds to."""
        return len(self), len(self.weights), self.values.shape[1]

    def clipped(self, clip_norm: float) -> Iterator[tuple[Tensor, BoolArray, FloatArray]]:
        """Block by block: rows of norm ≤ γ (doubles), whether each was shorter, its weights.

        An update that is not finite contributes zero, and counts as clipped.
        """
        # Slack for all R·d numbers that a client moves: reach is a computed norm too.
        limit = clip_norm * (1 - rounding_slack(self.values.shape[1] * len(self.weights)))
        block = BLOCK["cuda" if self.values.is_cuda else "cpu"]
        step = max(1, block // max(1, self.values.shape[1]))
        for start in range(0, len(self), step):
            part = slice(start, start + step)
            rows, unclipped = clipped(self.values[part].double(), limit, xp=torch)
            yield rows, unclipped, self.weights[:, part]


@dataclass(frozen=True)
class MixedSum(Sum):
    """B Δ of clipped updates Δ and, where there are bits, their sum times a scale."""

    clients: int = 1
    reach: float = 1.0
    bit_scale: float = 0.0  # s; 0: no bits

    def sensitivity(self, neighbours: Neighbours) -> float:
        """√((γ·reach)² + (s/2)²), and twice that under replace."""
        most = math.hypot(self.clip_norm * self.reach, self.bit_scale / 2)
        return sum_sensitivity(most, neighbours)

    def checked(self, contributions: Any, shares: FloatArray | None) -> tuple[Any, Any]:
        """Updates, all of them clipped alike."""
        if shares is not None:
            raise NotImplementedError("clients of one run have equal budgets")
        return contributions, self.clip_norm

    def total(self, rows: Any, clips: Any) -> FloatArray:
        """In floats."""
        return self.shaped(self._summed(rows, 1.0, torch.float64), rows.shape)

    def counts(self, rows: Any, clips: Any, scale: float) -> IntArray:
        """(R · d [+ 1],): exactly, in steps of the grid."""
        bound = self.clip_norm * float(np.max(np.abs(rows.weights), initial=1.0))
        # All clients, not this cohort: a refusal must not tell how many took part.
        steps = grid_steps(scale, bound + self.bit_scale, self.clients)
        return np.asarray(self._summed(rows, steps, torch.int64))

    def _summed(self, updates: Updates, steps: float, kind: torch.dtype) -> Any:
        """(R · d [+ 1],), floats, or whole numbers of grid steps."""

        def scaled(rows: Any, by: Any, xp: Any = np) -> Any:
            return cut(rows, by, xp) if kind == torch.int64 else rows * by

        device = updates.values.device
        total, bits = torch.zeros(updates.shape[1:], dtype=kind, device=device), 0
        for rows, unclipped, weights in updates.clipped(self.clip_norm):
            for r in np.flatnonzero(np.any(weights, axis=1)):
                among = torch.as_tensor(np.flatnonzero(weights[r]), device=device)
                factor = torch.as_tensor(weights[r][weights[r] != 0] * steps, device=device)
                total[r] += scaled(rows[among], factor[:, None], torch).sum(0)
            bits += scaled(self.bit_scale * (unclipped - 0.5), steps).sum()
        whole = total.flatten().cpu().numpy()
        return np.append(whole, bits) if self.bit_scale else whole

    def coordinates(self, shape: Shape) -> Shape:
        """(R · d [+ 1],)."""
        return (math.prod(shape[1:]) + bool(self.bit_scale),)

    def shaped(self, coordinates: FloatArray, shape: Shape) -> FloatArray:
        """(R, d), or (R · d + 1,) with the sum of bits last, in bits."""
        if not self.bit_scale:
            return np.asarray(coordinates.reshape(shape[1:]))
        return np.append(coordinates[:-1], coordinates[-1] / self.bit_scale)


@dataclass(frozen=True)
class CohortSum(NoisyStatistic[Any]):
    """Σ over a cohort of mixed, clipped updates (and bits), plus N(0, σ²)."""

    clip_norm: float  # γ
    noise_multiplier: float  # z of update and bit together: what the accountant gets
    sampler: Sampler
    clients: int
    reach: float = 1.0
    bit_multiplier: float | None = None  # z_bit; None: no bit

    def __post_init__(self) -> None:
        for name in ("clip_norm", "noise_multiplier", "reach"):
            check_positive(name, getattr(self, name))
        if self.bit_multiplier is not None and self.bit_multiplier <= self.noise_multiplier:
            raise InvalidInput(
                f"bit_multiplier must exceed noise_multiplier = {self.noise_multiplier:g} (a part "
                f"of the budget goes to the bit), got {self.bit_multiplier:g}"
            )

    @property
    def update_multiplier(self) -> float:
        """z_update: 1/z² = 1/z_update² + 1/z_bit²."""
        if self.bit_multiplier is None:
            return self.noise_multiplier
        return 1 / math.sqrt(self.noise_multiplier**-2 - self.bit_multiplier**-2)

    @property
    def sigma(self) -> float:
        """σ = z_update · γ · reach."""
        return self.update_multiplier * self.clip_norm * self.reach

    @property
    def bit_scale(self) -> float:
        """s = 2σ/z_bit."""
        return 0.0 if self.bit_multiplier is None else 2 * self.sigma / self.bit_multiplier

    @property
    def statistic(self) -> MixedSum:
        """What is released."""
        return MixedSum(
            self.clip_norm, clients=self.clients, reach=self.reach, bit_scale=self.bit_scale
        )

    @property
    def noise(self) -> GaussianNoise:
        """N(0, σ²)."""
        return GaussianNoise(self.sigma)

    def event(self, neighbours: Neighbours) -> Any:
        """What the sampler makes of it."""
        return self.sampler.event(self.clients, self.noise_multiplier, neighbours)

    def at(self, clip_norm: float) -> CohortSum:
        """With another clip norm, and noise in proportion: the same event."""
        return replace(self, clip_norm=clip_norm)

    def to_dict(self) -> dict[str, object]:
        """Name and parameters: never who took part."""
        return {
            "name": type(self).__name__,
            "clip_norm": self.clip_norm,
            "noise_multiplier": self.noise_multiplier,
            "bit_multiplier": self.bit_multiplier,
            "reach": self.reach,
            "clients": self.clients,
            "sampler": repr(self.sampler),
        }


@dataclass(frozen=True)
class PlainSum:
    """B Δ as it is, in the non-private twin: nothing is clipped, and nothing added."""

    def event(self, neighbours: Neighbours) -> Event:
        """Everything: no budget allows it."""
        return Gaussian(math.inf)

    def release(
        self, contributions: Updates, rng: np.random.Generator | None, shares: Any = None
    ) -> FloatArray:
        """(R, d); an update that is not finite contributes zero."""
        values = contributions.values.double()
        finite = torch.isfinite(values).all(dim=1)
        weights = torch.from_numpy(contributions.weights).to(values)
        return np.asarray((weights @ torch.where(finite[:, None], values, 0.0)).cpu().numpy())

    def secure(self, rng: np.random.Generator | None) -> bool:
        """There is no noise."""
        return False

    def to_dict(self) -> dict[str, object]:
        """It has no parameters."""
        return {"name": type(self).__name__}

    def at(self, clip_norm: float) -> PlainSum:
        """It has no clip norm."""
        return self
