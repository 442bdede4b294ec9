"""Noisy covariances with Wishart noise: the two-sided one is pure DP, the published one is not DP.

Published: Liang et al., Model-Protected Multi-Task Learning, Algorithms 1–4 (S1).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np

from tacit.errors import InvalidInput
from tacit.privacy.accounting import Pure
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms.rows import (
    as_rows,
    by_neighbours,
    check_positive,
    clip_rows,
    shared_clips,
    snapped,
)
from tacit.privacy.mechanisms.sums import FLOAT_NOISE
from tacit.privacy.noise import FloatArray, system_generator, wishart


def nuclear_sensitivity(clip_norm: float, neighbours: Neighbours) -> float:
    """Of Σ wwᵀ in nuclear norm: ‖wwᵀ − vvᵀ‖_* ≤ ‖w‖² + ‖v‖² ≤ 2K² (replace), ‖w‖² ≤ K² (zero-out).

    Orthogonal w, v of norm K reach it: the eigenvalues are K² and −K².

    >>> nuclear_sensitivity(2.0, "replace"), nuclear_sensitivity(2.0, "zero-out")
    (8.0, 4.0)
    """
    square = clip_norm**2
    return by_neighbours(neighbours, replace=2 * square, zero_out=square)


@dataclass(frozen=True)
class TwoSidedWishart:
    """WWᵀ + E₁ − E₂, E₁, E₂ independent W_d(d+1, vI), ‖w‖₂ ≤ K: ε = ‖Δ‖_*/(2v).

    W_d(d+1, vI) has density ∝ exp(−tr E/2v) on E ⪰ 0: the power of det E is (d+1) − d − 1 = 0. So
    M = E₁ − E₂ has the density

        f(M) ∝ ∫_{E ⪰ 0, E ⪰ −M} exp(−(2 tr E + tr M)/2v) dE,    E = E₂.

    M → M + wwᵀ enlarges the domain and multiplies the integrand by exp(−‖w‖²/2v), so
    f(M + wwᵀ) ≥ exp(−‖w‖²/2v) f(M). Substituting E → E − wwᵀ there leaves the domain
    {E ⪰ wwᵀ, E ⪰ −M}, a part of f(M)'s, and multiplies by exp((2 − 1)‖w‖²/2v), so
    f(M + wwᵀ) ≤ exp(‖w‖²/2v) f(M). A difference of rank more is a sum of ±wwᵀ with Σ‖w‖² = ‖Δ‖_*.
    At d = 1 this is Laplace noise of scale 2v.

    Entry variances: 2(d+1)v² off the diagonal, 4(d+1)v² on it.

    >>> TwoSidedWishart(clip_norm=1.0, scale=2.0).event("replace")
    Pure(epsilon=0.5)
    """

    clip_norm: float
    scale: float
    pure: ClassVar[bool] = True
    proven: ClassVar[bool] = True
    reason: ClassVar[str] = FLOAT_NOISE

    def __post_init__(self) -> None:
        check_positive("clip_norm", self.clip_norm)
        check_positive("scale", self.scale)

    @classmethod
    def for_epsilon(
        cls, clip_norm: float, epsilon: float, neighbours: Neighbours
    ) -> TwoSidedWishart:
        """The noise that makes the release (ε, 0)-DP."""
        check_positive("epsilon", epsilon)
        return cls(clip_norm, nuclear_sensitivity(clip_norm, neighbours) / (2 * epsilon))

    def event(self, neighbours: Neighbours) -> Pure:
        """ε = K²/v (replace), K²/(2v) (zero-out)."""
        return Pure(nuclear_sensitivity(self.clip_norm, neighbours) / (2 * self.scale))

    def release(
        self,
        contributions: FloatArray,
        rng: np.random.Generator | None,
        shares: FloatArray | None = None,
    ) -> FloatArray:
        """The noisy covariance, on the grid; unit i is clipped to K·√shares[i]."""
        rows = as_rows(contributions, vectors=True)
        W = clip_rows(rows, shared_clips(self.clip_norm, len(rows), shares, 0.5))
        rng = rng or system_generator()
        noise = wishart(W.shape[1], rng) - wishart(W.shape[1], rng)
        return snapped(W.T @ W + self.scale * noise, self.scale)

    def secure(self, rng: np.random.Generator | None) -> bool:
        """Never: see reason."""
        return False

    def values(self, shape: tuple[int, ...]) -> int:
        """Noise values of one release of contributions (m, d)."""
        return 2 * shape[1] * (shape[1] + 1)

    def to_dict(self) -> dict[str, object]:
        """Name and parameters."""
        return {"name": type(self).__name__} | asdict(self)


@dataclass(frozen=True)
class PublishedWishart:
    """WWᵀ + E, E ~ W_d(d+1, K²/(2ε) I): S1 as published, *claimed* (ε, 0)-DP, and not.

    For reproduction only. The release S has S ⪰ WWᵀ always, so its support tells who took part:
    without the unit it falls outside the support of the run with it with probability 1 − e^−ε.

    >>> PublishedWishart(clip_norm=1.0, epsilon=0.1, as_published=True).proven
    False
    """

    clip_norm: float
    epsilon: float
    as_published: bool = False
    pure: ClassVar[bool] = True  # as claimed
    proven: ClassVar[bool] = False
    reason: ClassVar[str] = (
        "one-sided Wishart noise is not differentially private: its support depends on the data, "
        "so with probability 1 − exp(−ε) a release proves that a task did not take part; ε is "
        "claimed, not proven"
    )

    def __post_init__(self) -> None:
        check_positive("clip_norm", self.clip_norm)
        check_positive("epsilon", self.epsilon)
        if not self.as_published:
            raise InvalidInput(
                f"{self.reason}. Use SymmetricGaussian, or TwoSidedWishart for delta = 0; "
                "as_published=True reproduces the paper"
            )

    def event(self, neighbours: Neighbours) -> Pure:
        """The paper's claim, for either relation. It is no proof."""
        return Pure(by_neighbours(neighbours, replace=self.epsilon, zero_out=self.epsilon))

    def release(
        self,
        contributions: FloatArray,
        rng: np.random.Generator | None,
        shares: FloatArray | None = None,
    ) -> FloatArray:
        """The noisy covariance, on the grid; unit i is clipped to K·√shares[i]."""
        rows = as_rows(contributions, vectors=True)
        W = clip_rows(rows, shared_clips(self.clip_norm, len(rows), shares, 0.5))
        scale = self.clip_norm**2 / (2 * self.epsilon)
        return snapped(W.T @ W + scale * wishart(W.shape[1], rng or system_generator()), scale)

    def secure(self, rng: np.random.Generator | None) -> bool:
        """Never: see reason."""
        return False

    def values(self, shape: tuple[int, ...]) -> int:
        """Noise values of one release of contributions (m, d)."""
        return shape[1] * (shape[1] + 1)

    def to_dict(self) -> dict[str, object]:
        """Name and parameters."""
        return {"name": type(self).__name__} | asdict(self)
