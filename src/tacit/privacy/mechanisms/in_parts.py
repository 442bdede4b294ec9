"""A sum that was made in parts, each where its rows are; the noise is drawn once, at the door.

Every part clips its rows and cuts them onto the public grid by the same mechanism, and adds them up
in whole numbers (``counts``). Whole numbers add exactly in any order, so the sum of the parts is
the sum over all rows, bit for bit, however they are divided; and one more rounded noise on it is
the release that the mechanism would have made of all rows at once: the same event.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.arrays import FloatArray, IntArray
from tacit.errors import InvalidInput
from tacit.privacy.mechanisms.grid import grid, grid_steps, snapped
from tacit.privacy.mechanisms.noises import Shape
from tacit.privacy.mechanisms.noisy_statistic import NoisyStatistic, Shares, exactly_noised
from tacit.privacy.mechanisms.wrapping import Wrapping
from tacit.privacy.noise import Rng, system_generator


@dataclass(frozen=True, eq=False)
class Part:
    """What some units add, clipped and on the grid."""

    counts: IntArray  # in coordinates of the statistic
    shape: Shape  # (units, ...), of their rows

    def __add__(self, other: Part) -> Part:
        """Of both together."""
        units = self.shape[0] + other.shape[0]
        return Part(self.counts + other.counts, (units, *self.shape[1:]))

    def __len__(self) -> int:
        return self.shape[0]


def why_whole(mechanism: object) -> str:
    """Why what it releases cannot be made in parts; "" where it can.

    >>> from tacit.privacy.mechanisms import GaussianSum, GramGaussian
    >>> why_whole(GaussianSum(1.0, 3.0)), why_whole(GramGaussian(1.0, 3.0, units=9))
    ('', 'is no sum over tasks, which could be made in parts')
    """
    if not (isinstance(mechanism, NoisyStatistic) and mechanism.statistic.adds):
        return "is no sum over tasks, which could be made in parts"
    if mechanism.noise.norm == "nuclear":
        return "is for the nuclear norm, in which the grid of parts may add to the sensitivity"
    return ""


@dataclass(frozen=True)
class InParts(Wrapping[NoisyStatistic[Any]]):
    """A mechanism whose rows come as the sum of their parts."""

    def __post_init__(self) -> None:
        if reason := why_whole(self.of):
            raise InvalidInput(
                f"{type(self.of).__name__} {reason}: use another learner, or Gaussian noise, or "
                "fit in one process"
            )

    def part(self, rows: Any, shares: Shares) -> Part:
        """Of some units, with their own shares."""
        checked, clips = self.of.statistic.checked(rows, shares)
        counts = self.of.statistic.counts(checked, clips, self.of.noise.scale)
        return Part(counts, checked.shape)

    def release(self, contributions: Part, rng: Rng, shares: Shares = None) -> FloatArray:
        """The sum, in which the shares are already, plus noise."""
        statistic, noise, counts = self.of.statistic, self.of.noise, contributions.counts
        grid_steps(noise.scale, statistic.bound, len(contributions))  # all parts together fit
        if self.secure(rng):
            noised = exactly_noised(counts, noise.rounded(counts.shape), noise)
            return statistic.shaped(noised, contributions.shape)
        drawn = noise.drawn(counts.shape, rng or system_generator())
        noisy = statistic.shaped(counts * grid(noise.scale) + drawn, contributions.shape)
        return snapped(noisy, noise.scale) if noise.reason else np.asarray(noisy)
