"""S4's Laplace reports with the sensitivity of the samples, for reproduction."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np

from tacit.errors import InvalidInput
from tacit.privacy.accounting import Pure
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms.local.rows import any_two_users, each_block, whole_reports
from tacit.privacy.mechanisms.rows import check_positive
from tacit.privacy.noise import FloatArray

_BLOCK = 64  # rows against all others at a time


def sample_sensitivity(rows: FloatArray) -> float:
    """Δ̂₁ = max ‖φ − φ'‖₁ over all pairs of rows, exactly.

    In few dimensions it is the largest range over the sign vectors u: max_u (max uᵀφ − min uᵀφ).
    In many, rows far from the mean come first, and by the triangle inequality most pairs need not
    be looked at: ‖φ − φ'‖₁ ≤ ‖φ − μ‖₁ + ‖φ' − μ‖₁.

    >>> sample_sensitivity(np.array([[0.0, 0.0], [1.0, -2.0], [0.5, 0.5]]))
    3.0
    """
    size = rows.shape[1]
    if size > 10:
        return _largest_distance(rows)
    signs = 1.0 - 2 * ((np.arange(2 ** (size - 1))[:, None] >> np.arange(size)) & 1)
    return float(max(np.ptp(rows @ sign) for sign in signs))


def _largest_distance(rows: FloatArray) -> float:
    from scipy.spatial.distance import cdist

    lengths = np.abs(rows - rows.mean(axis=0)).sum(axis=1)
    order = np.argsort(-lengths)
    rows, lengths, best = rows[order], lengths[order], 0.0
    for start in range(0, len(rows), _BLOCK):
        reach = np.searchsorted(-lengths, lengths[start] - best)  # of lengths > best − this one's
        if reach <= start:
            break
        block = cdist(rows[start : start + _BLOCK], rows[:reach], "cityblock")
        best = max(best, float(block.max()))
    return best


@dataclass(frozen=True)
class SampledLaplace:
    """Rows plus Laplace noise of scale Δ̂/ε, Δ̂ = max ‖φ − φ'‖₁ over the rows given to fit.

    Nothing is clipped: whoever lies outside those rows has more than ε (docs/privacy.md, F).

    >>> SampledLaplace(2.0, 1.0, as_published=True).variance(1)
    array([8.])
    """

    sensitivity: float
    epsilon: float
    as_published: bool = False
    pure: ClassVar[bool] = True
    proven: ClassVar[bool] = False
    reason: ClassVar[str] = (
        "the sensitivity was measured on the rows given to fit, and the next user is none of them"
    )

    def __post_init__(self) -> None:
        check_positive("sensitivity", self.sensitivity)
        check_positive("epsilon", self.epsilon)
        if not self.as_published:
            raise InvalidInput(f"{self.reason}. as_published=True reproduces the paper")

    @property
    def radius(self) -> float:
        """None: nothing is clipped."""
        return math.inf

    @property
    def scale(self) -> float:
        """Δ̂/ε."""
        return self.sensitivity / self.epsilon

    def event(self, neighbours: Neighbours) -> Pure:
        """The paper's claim. It is no proof."""
        any_two_users(neighbours)
        return Pure(self.epsilon)

    def release(
        self,
        contributions: FloatArray,
        rng: np.random.Generator | None,
        shares: FloatArray | None = None,
    ) -> FloatArray:
        """One report a row; of a simulation only."""
        whole_reports(shares)
        if rng is None:
            raise InvalidInput(f"{self.reason}: it runs with noise='simulated' only")
        scale = self.scale
        return each_block(
            contributions,
            self.radius,
            lambda rows: np.asarray(rows + rng.laplace(scale=scale, size=rows.shape)),
        )

    def secure(self, rng: np.random.Generator | None) -> bool:
        """Never: it is simulated only."""
        return False

    def values(self, shape: tuple[int, ...]) -> int:
        """One a number."""
        return math.prod(shape)

    def to_dict(self) -> dict[str, object]:
        """Name and parameters."""
        return {"name": type(self).__name__} | asdict(self)

    def variance(self, dim: int) -> FloatArray:
        """2(Δ̂/ε)²."""
        return np.full(dim, 2 * self.scale**2)

    def log_density(self, reports: FloatArray, row: FloatArray) -> FloatArray:
        """Σ_i −|y_i − φ_i|ε/Δ̂ − log(2Δ̂/ε)."""
        distance = np.abs(reports - row) / self.scale
        return np.asarray(-(distance + math.log(2 * self.scale)).sum(axis=-1))
