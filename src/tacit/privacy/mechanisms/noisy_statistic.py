"""Mechanism = statistic × noise: clip each row, sum, add noise that the clip norm justifies.

Secure (``rng=None``, and the noise has an exact sampler): the statistic is a vector of whole
numbers on the grid scale/R, so adding rounded noise is the same as rounding the continuous release.
That is post-processing; the event is exact. Otherwise everything is in floating point, and noise
without an exact sampler is snapped to the grid.
"""

from __future__ import annotations

from typing import Any, Generic

import numpy as np

from tacit.arrays import FloatArray, IntArray
from tacit.errors import InvalidInput
from tacit.json_converter import fields_to_json
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms.grid import grid, snapped
from tacit.privacy.mechanisms.noises import Noise, Revealed
from tacit.privacy.mechanisms.statistics import Sum
from tacit.privacy.noise import Rng, system_generator

Shares = FloatArray | None


def released(
    statistic: Sum, noise: Noise[Any], contributions: Any, rng: Rng, shares: Shares = None
) -> FloatArray:
    """The noisy statistic."""
    rows, clips = statistic.checked(contributions, shares)
    if rng is None and not noise.reason:
        # First, as it does not ask for the rows: a GPU that still computes them goes on meanwhile.
        rounded = noise.rounded(statistic.coordinates(rows.shape))
        counts = statistic.counts(rows, clips, noise.scale)
        return statistic.shaped(exactly_noised(counts, rounded, noise), rows.shape)
    drawn = noise.drawn(statistic.coordinates(rows.shape), rng or system_generator())
    noisy = statistic.total(rows, clips) + statistic.shaped(drawn, rows.shape)
    return snapped(noisy, noise.scale) if noise.reason else noisy


def exactly_noised(counts: IntArray, rounded: IntArray, noise: Noise[Any]) -> FloatArray:
    """Whole numbers of the grid plus rounded noise, in the units of the data. Noise that was
    drawn for another shape would be used twice."""
    if counts.shape != rounded.shape:
        raise InvalidInput(f"noise of shape {rounded.shape} was drawn for {counts.shape} numbers")
    return np.asarray((counts + rounded) * grid(noise.scale))


def parameters(mechanism: Any) -> dict[str, object]:
    """Name and parameters of a frozen dataclass, as JSON: it can be made again from them."""
    return {"name": type(mechanism).__name__, **fields_to_json(mechanism)}


class NoisyStatistic(Generic[Revealed]):
    """A frozen set of public parameters that makes a statistic and a noise. It is given no
    sensitivity: it clips. A row that is not finite contributes zero; no rows at all: the noise.
    Contributions are an array, or whatever rows the statistic knows.
    """

    @property
    def statistic(self) -> Sum:
        """What is released."""
        raise NotImplementedError

    @property
    def noise(self) -> Noise[Revealed]:
        """What is added."""
        raise NotImplementedError

    def event(self, neighbours: Neighbours) -> Revealed:
        """What one release reveals about one unit whose share is 1."""
        return self.noise.event(self.statistic.sensitivity(neighbours))

    def release(self, contributions: Any, rng: Rng, shares: Shares = None) -> FloatArray:
        """Clip each row, sum, add noise. Unit i, of share in [0, 1], reveals shares[i] · event."""
        return released(self.statistic, self.noise, contributions, rng, shares)

    def counts(self, contributions: Any, shares: Shares = None) -> IntArray:
        """The exact statistic before the noise, in steps of the grid: all a secure release sees."""
        rows, clips = self.statistic.checked(contributions, shares)
        return self.statistic.counts(rows, clips, self.noise.scale).ravel()

    def secure(self, rng: Rng) -> bool:
        """Does a release with this rng have exact noise from the operating system?"""
        return rng is None and not self.noise.reason

    def to_dict(self) -> dict[str, object]:
        """Name and parameters as JSON, for the ledger and the certificate."""
        return parameters(self)
