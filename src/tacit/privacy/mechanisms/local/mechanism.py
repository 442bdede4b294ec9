"""What all local mechanisms share: one report a row, any two users, blocks that fit the cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit.arrays import FloatArray
from tacit.errors import InvalidInput
from tacit.privacy.accounting import Gaussian, Pure
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms.clipping import as_rows, check_positive
from tacit.privacy.mechanisms.grid import blocks
from tacit.privacy.mechanisms.noisy_statistic import Shares, parameters
from tacit.privacy.noise import Rng

_BLOCK = 2**17  # numbers at a time: a million rows need no copies


class LocalMechanism:
    """Each row of (n, dim) is one user's; each row of the release (n, dim) is that user's report.

    E[report | row] is the row, clipped in ℓ2 to ``radius`` where the noise is added; ``variance``
    is the rest.
    """

    radius: float
    pure: ClassVar[bool] = True
    proven: ClassVar[bool] = True
    reason: ClassVar[str] = ""  # why the event is not proven or the noise not exact
    exact_on_device: ClassVar[bool] = False  # does encode.py draw its noise in integers?

    def revealed(self) -> Gaussian | Pure:
        """What one report reveals about the user's vector."""
        raise NotImplementedError

    def reports(self, rows: FloatArray, rng: Rng) -> FloatArray:
        """Clip each row and report on it."""
        raise NotImplementedError

    def variance(self, dim: int) -> FloatArray:
        """(dim,), of each coordinate of a report about its clipped row; whatever the row is."""
        raise NotImplementedError

    def log_density(self, reports: FloatArray, row: FloatArray) -> FloatArray:
        """(n,), log density of each report (n, dim), given one user's row (dim,)."""
        raise NotImplementedError

    def require_width(self, dim: int) -> None:
        """Refuse rows of a length that is not declared."""

    def event(self, neighbours: Neighbours) -> Gaussian | Pure:
        """What one report reveals, between any two vectors of one user: that is replace."""
        if neighbours != "replace":
            raise InvalidInput(
                f"a local report hides which of any two vectors a user has: neighbours must be "
                f"'replace', got {neighbours!r}"
            )
        return self.revealed()

    def release(self, contributions: FloatArray, rng: Rng, shares: Shares = None) -> FloatArray:
        """One report a row; ``rng=None`` asks the operating system."""
        if shares is not None:
            raise InvalidInput("a local report costs each user the whole event; shares must be 1")
        rows = as_rows(contributions, vectors=True)
        self.require_width(rows.shape[1])
        out = np.empty(rows.shape)
        for given, into in zip(blocks(rows, _BLOCK), blocks(out, _BLOCK), strict=True):
            into[:] = self.reports(given, rng)
        return out

    def secure(self, rng: Rng) -> bool:
        """Does a release with this rng have exact noise from the operating system?"""
        return rng is None and not self.reason

    def to_dict(self) -> dict[str, object]:
        """Name and parameters as JSON."""
        return parameters(self)

    def on_device(self) -> dict[str, object]:
        """The same with the numbers that follow from them, for a device to draw with."""
        raise InvalidInput(f"no device can run {type(self).__name__}")

    def worst_direction(self, size: int) -> FloatArray:
        """(size,), of norm one: two users this way and that are the easiest to tell apart."""
        return np.asarray(np.eye(size)[0])


@dataclass(frozen=True)
class PureReport(LocalMechanism):
    """A report with an ε, on a vector of the ball of this radius."""

    radius: float
    epsilon: float

    def __post_init__(self) -> None:
        check_positive("radius", self.radius)
        check_positive("epsilon", self.epsilon)

    def revealed(self) -> Pure:
        """ε, by construction."""
        return Pure(self.epsilon)
