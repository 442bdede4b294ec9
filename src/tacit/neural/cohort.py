"""The mechanism of a round: clipped updates of a cohort, mixed, summed, with Gaussian noise.

**Isolation.** Until the sum, every operation is elementwise, in double precision, each rounded by
itself (IEEE): norms too, which add halves of a row to each other. So what an update adds to the sum
has no bit that depends on the updates beside it, on where it stands among them, or on threads and
blocks; and the sum is one of whole numbers, exact in any order. (A library's norm of rows may
choose its order of addition by how many rows there are.)

Sums are made where the updates are (on a GPU), in double precision and, for secure noise, in whole
numbers of a public grid; d numbers come back, not m·d. Clipping and grid are those of
privacy/mechanisms, and the derivation there holds here: a clipped row has a norm of at most γ in
exact arithmetic, and cutting toward zero does not raise it.

**Adaptive clipping** (Andrew et al., 2021): each client adds a bit, +½ if its update was not
clipped and −½ if it was. Bit and update share one coin, so they are one release: with noise σ on
both and the bit scaled by s, a client moves the sum by at most √((γ·reach)² + (s/2)²). We take
s = 2σ/z_bit with σ = z_update·γ·reach, so that σ over that is z with 1/z² = 1/z_update² + 1/z_bit²
(docs/privacy.md). Under replace a bit can move by 1, twice ½, as an update by 2γ: z stays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from tacit.arrays import FloatArray, IntArray
from tacit.errors import InvalidInput
from tacit.neural.sampling import Sampler
from tacit.privacy.accounting import Event
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms.clipping import check_positive, rounding_slack
from tacit.privacy.mechanisms.grid import grid, grid_steps
from tacit.privacy.noise import SecureSource, rounded_gaussian

BLOCK = {"cpu": 2**20, "cuda": 2**25}
"""Numbers at a time while summing: what stays in a cache, and what keeps a GPU busy."""


@dataclass(frozen=True, eq=False)
class Updates:
    """What a cohort would contribute: on the trusted side, before clipping."""

    values: Tensor  # (k, d)
    weights: FloatArray  # (R, k), the cohort's columns of B

    def only(self, i: int) -> Updates:
        """Of one member of the cohort."""
        return Updates(self.values[i : i + 1], self.weights[:, i : i + 1])

    def clipped(self, clip_norm: float) -> Iterator[tuple[Tensor, Tensor, FloatArray]]:
        """Block by block: rows of norm ≤ γ (doubles), whether each was shorter, its weights.

        An update that is not finite contributes zero, and counts as clipped.
        """
        # Slack for all R·d numbers that a client moves: reach is a computed norm too.
        limit = clip_norm * (1 - rounding_slack(self.values.shape[1] * len(self.weights)))
        block = BLOCK["cuda" if self.values.is_cuda else "cpu"]
        step = max(1, block // max(1, self.values.shape[1]))
        for start in range(0, len(self.values), step):
            rows = self.values[start : start + step].double()
            norms = row_norms(rows)
            finite = torch.isfinite(norms)
            rows = torch.where(finite[:, None], rows, 0.0)
            factor = torch.where(finite & (norms > limit), limit / norms, 1.0)
            unclipped = finite & (norms <= limit)
            yield rows * factor[:, None], unclipped, self.weights[:, start : start + step]


def row_norms(rows: Tensor) -> Tensor:
    """(k,), ‖row‖₂ of rows (k, d), halves added to halves until one column is left.

    ⌈log₂ d⌉ + 2 roundings at most, well within ``rounding_slack``.

    >>> row_norms(torch.tensor([[3.0, 0.0, 4.0], [0.0, 0.0, 0.0]], dtype=torch.float64)).tolist()
    [5.0, 0.0]
    """
    squares, width = rows.square(), rows.shape[1]
    while width > 1:
        half = (width + 1) // 2
        squares[:, : width - half] += squares[:, half:width]
        width = half
    return squares[:, 0].sqrt()


@dataclass(frozen=True)
class CohortSum:
    """Σ over a cohort of mixed, clipped updates (and bits), plus N(0, σ²)."""

    clip_norm: float  # γ
    noise_multiplier: float  # z of update and bit together: what the accountant gets
    sampler: Sampler
    clients: int
    reach: float = 1.0
    bit_multiplier: float | None = None  # z_bit; None: no bit
    pure: ClassVar[bool] = False
    proven: ClassVar[bool] = True
    reason: ClassVar[str] = ""

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

    def event(self, neighbours: Neighbours) -> Event:
        """What the sampler makes of it."""
        return self.sampler.event(self.clients, self.noise_multiplier, neighbours)

    def release(
        self, contributions: Any, rng: np.random.Generator | None, shares: Any = None
    ) -> FloatArray:
        """(R, d), or (R · d + 1,) with the noisy sum of bits last, in bits."""
        if shares is not None:
            raise NotImplementedError("clients of one run have equal budgets")
        total = self._total(contributions, secure=rng is None)
        if rng is not None:
            noisy = total + self.sigma * rng.standard_normal(total.shape)
        else:
            noisy = (total + rounded_gaussian(total.shape, SecureSource())) * grid(self.sigma)
        if self.bit_multiplier is None:
            return np.asarray(noisy.reshape(len(contributions.weights), -1))
        noisy[-1] /= self.bit_scale
        return np.asarray(noisy)

    def counts(self, contributions: Updates) -> IntArray:
        """(R · d [+ 1],): the exact sum before a secure release's noise, in grid steps."""
        return np.asarray(self._total(contributions, secure=True))

    def _total(self, updates: Updates, *, secure: bool) -> Any:
        """(R · d [+ 1],), floats, or whole numbers of grid steps."""
        rows, size = len(updates.weights), updates.values.shape[1]
        kind = torch.int64 if secure else torch.float64
        bound = self.clip_norm * float(np.max(np.abs(updates.weights), initial=1.0))
        # All clients, not this cohort: a refusal must not tell how many took part.
        steps = grid_steps(self.sigma, bound + self.bit_scale, self.clients) if secure else 1.0
        device = updates.values.device
        total = torch.zeros(rows, size, dtype=kind, device=device)
        bits = torch.zeros((), dtype=kind, device=device)
        for clipped, unclipped, weights in updates.clipped(self.clip_norm):
            for r in np.flatnonzero(np.any(weights, axis=1)):
                among = torch.as_tensor(np.flatnonzero(weights[r]), device=device)
                factor = torch.as_tensor(weights[r][weights[r] != 0] * steps, device=device)
                total[r] += (clipped[among] * factor[:, None]).to(kind).sum(0)  # cuts toward zero
            bit = self.bit_scale * (unclipped.double() - 0.5)
            bits = bits + (bit * steps).to(kind).sum()
        whole = [total.flatten()] if self.bit_multiplier is None else [total.flatten(), bits[None]]
        return torch.cat(whole).cpu().numpy()

    def secure(self, rng: np.random.Generator | None) -> bool:
        """Is the noise exact and from the operating system?"""
        return rng is None

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
