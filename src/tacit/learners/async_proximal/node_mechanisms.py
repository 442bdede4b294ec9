"""Sums over the examples of a node, or of all nodes, as the ledger knows them.

The unit is one example: contributions are (n, D), one row per example. A ledger run knows nodes,
not examples, so the share of a node is the share of each of its rows (``PooledSum``), and the
coins of a Poisson sample are thrown here, where nobody sees them (``Sampled``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.arrays import FloatArray
from tacit.errors import InvalidInput
from tacit.privacy.accounting import Poisson
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms import GaussianSum, KNormSum
from tacit.privacy.mechanisms.clipping import as_rows
from tacit.privacy.mechanisms.noisy_statistic import Shares
from tacit.privacy.mechanisms.wrapping import Wrapping
from tacit.privacy.noise import Rng, words_of

_WORDS = 2.0**64


@dataclass(frozen=True)
class Around(Wrapping[GaussianSum | KNormSum]):
    """A noisy sum over rows that are chosen, or clipped, in a way of its own."""

    def to_dict(self) -> dict[str, object]:
        """Name and parameters."""
        return {"name": type(self).__name__, "of": self.of.to_dict()}


@dataclass(frozen=True)
class Sampled(Around):
    """A Gaussian sum over a Poisson sample: each row takes part by a secret coin of its own.

    The coin is a uniform 64-bit word below rate·2⁶⁴, rounded down: the true rate is not above the
    one that is charged. σ/C is the event's multiplier, whatever the neighbours (docs/privacy.md).

    >>> Sampled(GaussianSum(clip_norm=1.0, sigma=4.0), rate=0.1).event("zero-out")
    Poisson(rate=0.1, noise_multiplier=4.0, neighbours='zero-out')
    """

    of: GaussianSum
    rate: float

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise InvalidInput(f"sampling_rate must be in (0, 1), got {self.rate!r}")

    def event(self, neighbours: Neighbours) -> Poisson:
        """One Poisson-sampled Gaussian sum."""
        return Poisson(self.rate, self.of.sigma / self.of.clip_norm, neighbours)

    def release(self, contributions: FloatArray, rng: Rng, shares: Shares = None) -> FloatArray:
        """The noisy sum of the rows whose coin fell; of the others zero is added, so that nothing
        but the sum, a refusal of too many rows neither, depends on how many there were."""
        rows = as_rows(contributions, vectors=True)
        taken = words_of(rng).words(len(rows)) < np.uint64(int(self.rate * _WORDS))
        return self.of.release(np.where(taken[:, None], rows, 0.0), rng, shares)

    def to_dict(self) -> dict[str, object]:
        """Name and parameters."""
        return super().to_dict() | {"rate": self.rate}


@dataclass(frozen=True)
class PooledSum(Around):
    """One sum over the rows of all nodes, for a server that is trusted: the share of a node is the
    share of each of its rows. ``sizes``, the rows of each node, stay out of the record.

    >>> PooledSum(GaussianSum(1.0, 4.0), (2, 1)).event("replace")
    Gaussian(mu=0.5)
    """

    sizes: tuple[int, ...]

    def release(self, contributions: FloatArray, rng: Rng, shares: Shares = None) -> FloatArray:
        """The noisy sum; the rows of node t are clipped to C·shares[t]."""
        rows = None if shares is None else np.repeat(np.asarray(shares), self.sizes)
        return self.of.release(contributions, rng, rows)
