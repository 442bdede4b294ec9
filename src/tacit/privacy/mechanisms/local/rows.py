"""What all local mechanisms share: one report a row, any two users, blocks that fit the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol

import numpy as np

from tacit.errors import InvalidInput
from tacit.privacy.accounting import Gaussian, Pure
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms.rows import as_rows, clip_rows
from tacit.privacy.noise import RESOLUTION, FloatArray, IntArray

_BLOCK = 2**17  # numbers at a time
_MOST = 2.0**62  # half of what an int64 holds; the noise needs 2^30


class LocalMechanism(Protocol):
    """Each row of (n, dim) is one user's; each row of the release (n, dim) is that user's report.

    E[report | row] is the row, clipped in ℓ2 to ``radius``; ``variance`` is the rest.
    """

    pure: ClassVar[bool]
    proven: ClassVar[bool]
    reason: ClassVar[str]

    @property
    def radius(self) -> float:
        """The declared bound: rows are clipped to it where the noise is added."""
        ...

    def event(self, neighbours: Neighbours) -> Gaussian | Pure:
        """What one report reveals about the user's vector."""
        ...

    def release(
        self,
        contributions: FloatArray,
        rng: np.random.Generator | None,
        shares: FloatArray | None = None,
    ) -> FloatArray:
        """All reports; ``rng=None`` asks the operating system."""
        ...

    def secure(self, rng: np.random.Generator | None) -> bool:
        """Does a release with this rng have exact noise from the operating system?"""
        ...

    def values(self, shape: tuple[int, ...]) -> int:
        """Noise values of one release of contributions of this shape."""
        ...

    def to_dict(self) -> dict[str, object]:
        """Name and parameters as JSON."""
        ...

    def variance(self, dim: int) -> FloatArray:
        """(dim,), of each coordinate of a report about its clipped row; whatever the row is."""
        ...

    def log_density(self, reports: FloatArray, row: FloatArray) -> FloatArray:
        """(n,), log density of each report (n, dim), given one user's row (dim,)."""
        ...


def any_two_users(neighbours: Neighbours) -> None:
    """Local guarantees hold between any two vectors of one user: that is replace."""
    if neighbours != "replace":
        raise InvalidInput(
            f"a local report hides which of any two vectors a user has: neighbours must be "
            f"'replace', got {neighbours!r}"
        )


def whole_reports(shares: FloatArray | None) -> None:
    """A local mechanism has one event for everybody."""
    if shares is not None:
        raise InvalidInput("a local report costs each user the whole event; shares must be 1")


def each_block(
    contributions: FloatArray, radius: float, report: Callable[[FloatArray], FloatArray]
) -> FloatArray:
    """report(rows clipped to the radius), block by block: a million rows need no copies."""
    rows = as_rows(contributions, vectors=True)
    out = np.empty(rows.shape)
    step = max(1, _BLOCK // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        block = slice(start, start + step)
        out[block] = report(clip_rows(rows[block], radius))
    return out


def grid_steps(rows: FloatArray, scale: float) -> IntArray:
    """Each coordinate cut toward zero onto the grid of noise of this scale, in grid steps.

    Cutting lowers every |coordinate|, so a row stays inside every ball and ellipsoid with these
    axes.

    >>> grid_steps(np.array([[1.0, -0.5]]), 1.0) / RESOLUTION
    array([[ 1. , -0.5]])
    """
    steps = rows * (RESOLUTION / scale)
    if not np.all(np.abs(steps) <= _MOST):
        raise InvalidInput(f"noise of scale {scale:g} is too small for secure reports")
    return np.asarray(steps.astype(np.int64))
