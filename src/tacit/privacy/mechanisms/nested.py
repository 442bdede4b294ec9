"""Mechanisms made of others: noise on each row, the pure diagonal; S1's other noises."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import ClassVar, Literal

import numpy as np

from tacit.errors import InvalidInput
from tacit.privacy.accounting import Gaussian, Pure
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms.rows import as_rows, check_positive, clip_rows, shared_clips, snapped
from tacit.privacy.mechanisms.sums import GaussianSum, KNormSum, LaplaceSum
from tacit.privacy.mechanisms.wishart import PublishedWishart
from tacit.privacy.noise import FloatArray, IntArray, system_generator, wishart


@dataclass(frozen=True)
class EachRow:
    """Every unit's row by itself, clipped and noised: (m, d) in, (m, d) out.

    One unit changes its own row only, so the release of all rows has the sensitivity of one: 2C
    under replace, C under zero-out. It is the sum of the rows e_i ⊗ x_i, never written out.

    >>> EachRow(GaussianSum(clip_norm=1.0, sigma=4.0)).event("replace")
    Gaussian(mu=0.5)
    """

    row: GaussianSum | KNormSum

    def event(self, neighbours: Neighbours) -> Gaussian | Pure:
        """That of one row."""
        return self.row.event(neighbours)

    def release(
        self,
        contributions: FloatArray,
        rng: np.random.Generator | None,
        shares: FloatArray | None = None,
    ) -> FloatArray:
        """All noisy rows; unit i is clipped to C·shares[i]."""
        rows = as_rows(contributions, vectors=True)
        parts = np.ones(len(rows)) if shares is None else np.asarray(shares)
        noisy = [self.row.release(rows[[i]], rng, parts[[i]]) for i in range(len(rows))]
        return np.array(noisy).reshape(rows.shape)

    def counts(self, contributions: FloatArray) -> IntArray:
        """All rows before the noise, in steps of the grid, one behind the other."""
        assert isinstance(self.row, GaussianSum)  # K-norm noise is not added on the grid
        return np.concatenate([self.row.counts(row[None]) for row in as_rows(contributions)])

    def secure(self, rng: np.random.Generator | None) -> bool:
        """Is the noise exact and from the operating system?"""
        return self.row.secure(rng)

    def to_dict(self) -> dict[str, object]:
        """Name and parameters."""
        return {"name": type(self).__name__, "row": self.row.to_dict()}


@dataclass(frozen=True)
class DiagonalLaplace:
    """The diagonal of Σ wwᵀ, ‖w‖₂ ≤ K, with Laplace noise: the sum of w∘w, ‖w∘w‖₁ = ‖w‖₂² ≤ K².

    >>> DiagonalLaplace(clip_norm=2.0, scale=8.0).event("replace")
    Pure(epsilon=1.0)
    """

    clip_norm: float
    scale: float

    @classmethod
    def for_epsilon(
        cls, clip_norm: float, epsilon: float, neighbours: Neighbours
    ) -> DiagonalLaplace:
        """The noise that makes the release (ε, 0)-DP."""
        return cls(clip_norm, LaplaceSum.for_epsilon(clip_norm**2, epsilon, neighbours).scale)

    @property
    def squares(self) -> LaplaceSum:
        """The sum that it is."""
        return LaplaceSum(self.clip_norm**2, self.scale)

    def event(self, neighbours: Neighbours) -> Pure:
        """ε = 2K²/b (replace), K²/b (zero-out)."""
        return self.squares.event(neighbours)

    def release(
        self,
        contributions: FloatArray,
        rng: np.random.Generator | None,
        shares: FloatArray | None = None,
    ) -> FloatArray:
        """The noisy diagonal (d,); unit i is clipped to K·√shares[i]."""
        rows = clip_rows(as_rows(contributions, vectors=True), self.clip_norm)
        return self.squares.release(rows**2, rng, shares)

    def secure(self, rng: np.random.Generator | None) -> bool:
        """Is the noise exact and from the operating system?"""
        return self.squares.secure(rng)

    def to_dict(self) -> dict[str, object]:
        """Name and parameters."""
        return {"name": type(self).__name__} | asdict(self)


@dataclass(frozen=True)
class PublishedNoise:
    """S1's other published noises: WᵀW + W_m(m+1, K²/2ε), and the first version's scale s/2ε.

    ``sensitivity`` is the scale's numerator. The first version computes a vector of sensitivities
    s_i = max |‖w_i‖² − ‖w_i'‖²|, which with norm clipping is K² for every task, prints 2K for it
    (Algorithms 2 and 3), and uses max_i s_i. One-sided Wishart noise is not private at any scale.

    >>> noise = PublishedNoise(1.0, 0.1, sensitivity=2.0, side="tasks", as_published=True)
    >>> noise.release(np.eye(3)[:2], np.random.default_rng(0)).shape
    (2, 2)
    """

    clip_norm: float
    epsilon: float
    sensitivity: float
    side: Literal["features", "tasks"] = "features"
    as_published: bool = False
    reason: ClassVar[str] = PublishedWishart.reason

    def __post_init__(self) -> None:
        for name in ("clip_norm", "epsilon", "sensitivity"):
            check_positive(name, getattr(self, name))
        if not self.as_published:
            raise InvalidInput(f"{self.reason}. as_published=True reproduces the paper")

    def event(self, neighbours: Neighbours) -> Pure:
        """The paper's claim. It is no proof."""
        return Pure(self.epsilon)

    def release(
        self,
        contributions: FloatArray,
        rng: np.random.Generator | None,
        shares: FloatArray | None = None,
    ) -> FloatArray:
        """The noisy covariance, on the grid."""
        rows = as_rows(contributions, vectors=True)
        W = clip_rows(rows, shared_clips(self.clip_norm, len(rows), shares, 0.5))
        covariance = W.T @ W if self.side == "features" else W @ W.T
        scale = self.sensitivity / (2 * self.epsilon)
        noise = wishart(len(covariance), rng or system_generator())
        return snapped(covariance + scale * noise, scale)

    def secure(self, rng: np.random.Generator | None) -> bool:
        """Never: the noise is drawn in floating point."""
        return False

    def to_dict(self) -> dict[str, object]:
        """Name and parameters."""
        return {"name": type(self).__name__} | asdict(self)
