"""Reports with added noise: Laplace after an ℓ2 clip, ℓ2 K-norm, Gaussian; and S4's, as published.

Let h, h' be any two vectors in the ball of radius r, so ‖h − h'‖₂ ≤ 2r. ``clip_rows`` keeps them
2^−40 inside it, which covers the rounding of every scale below.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from tacit.arrays import FloatArray
from tacit.errors import InvalidInput
from tacit.privacy.accounting import Gaussian, Pure
from tacit.privacy.mechanisms.clipping import check_positive
from tacit.privacy.mechanisms.local.mechanism import LocalMechanism, PureReport
from tacit.privacy.mechanisms.noises import FLOAT_NOISE, GaussianNoise, KNormNoise, LaplaceNoise
from tacit.privacy.mechanisms.noisy_statistic import released
from tacit.privacy.mechanisms.statistics import EachRowApart, WeightedRows
from tacit.privacy.noise import Rng


class AdditiveReport(LocalMechanism):
    """The row, clipped to the ball, plus noise."""

    @property
    def noise(self) -> GaussianNoise | LaplaceNoise | KNormNoise:
        """What is added."""
        raise NotImplementedError

    @property
    def scale(self) -> float:
        """Of the noise."""
        return self.noise.scale

    def reports(self, rows: FloatArray, rng: Rng) -> FloatArray:
        """Noise of its own for each row."""
        return released(EachRowApart(self.radius), self.noise, rows, rng)

    def variance(self, dim: int) -> FloatArray:
        """That of the noise."""
        return np.full(dim, self.noise.variance(dim))

    def log_density(self, reports: FloatArray, row: FloatArray) -> FloatArray:
        """That of the noise."""
        return self.noise.log_density(reports - row)

    def on_device(self) -> dict[str, object]:
        """With the scale of the noise."""
        return self.to_dict() | {"scale": self.scale}


@dataclass(frozen=True)
class LocalLaplace(PureReport, AdditiveReport):
    """h clipped to the ball, σ∘h plus Laplace noise of scale b = 2r‖σ‖₂/ε, divided by σ again.

    By Cauchy–Schwarz ‖σ∘h − σ∘h'‖₁ ≤ ‖σ‖₂ ‖h − h'‖₂ ≤ 2r‖σ‖₂ = Δ₁ (S4 Proposition 3; reached at
    h = −h' = rσ/‖σ‖), so ε = Δ₁/b. A coordinate's variance is 2b²/σ_i² = 8r²‖σ‖²/(ε²σ_i²);
    8r²Z/ε² with equal weights. Secure: σ∘h is cut onto the grid b/R toward zero, which keeps h in
    the ball, and gets rounded Laplace noise: the continuous report, rounded.

    >>> LocalLaplace(1.0, 2.0, (3.0, 4.0)).scale, LocalLaplace(1.0, 2.0, (1.0,)).variance(1)
    (5.0, array([2.]))
    """

    weights: tuple[float, ...]  # σ, one a coordinate
    exact_on_device: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for weight in self.weights:
            check_positive("a weight", weight)

    @property
    def noise(self) -> LaplaceNoise:
        """Of scale b = 2r‖σ‖₂/ε."""
        return LaplaceNoise(2 * self.radius * math.hypot(*self.weights) / self.epsilon)

    def require_width(self, dim: int) -> None:
        """One coordinate a weight."""
        if dim != len(self.weights):
            raise InvalidInput(f"rows have {dim} coordinates, the weights {len(self.weights)}")

    def reports(self, rows: FloatArray, rng: Rng) -> FloatArray:
        """(σ∘h + noise)/σ."""
        return released(WeightedRows(self.radius, weights=self.weights), self.noise, rows, rng)

    def variance(self, dim: int) -> FloatArray:
        """2(b/σ_i)²."""
        self.require_width(dim)
        return np.asarray(super().variance(dim) / np.square(self.weights))

    def log_density(self, reports: FloatArray, row: FloatArray) -> FloatArray:
        """Σ_i −|y_i − h_i|σ_i/b − log(2b/σ_i)."""
        weights = np.asarray(self.weights)
        density = self.noise.log_density((reports - row) * weights)
        return np.asarray(density + np.log(weights).sum())

    def worst_direction(self, size: int) -> FloatArray:
        """σ/‖σ‖ (S4 Proposition 3)."""
        weights = np.asarray(self.weights)
        return np.asarray(weights / np.linalg.norm(weights))


class LocalKNorm(PureReport, AdditiveReport):
    """h clipped to the ball, plus noise of density ∝ exp(−‖b‖₂/s), s = 2r/ε.

    By the triangle inequality densities differ by exp(‖h − h'‖₂/s) ≤ e^ε. A coordinate's variance
    is s²(Z + 1) = 4r²(Z + 1)/ε².

    >>> LocalKNorm(1.0, 2.0).variance(3)
    array([4., 4., 4.])
    """

    reason: ClassVar[str] = FLOAT_NOISE

    @property
    def noise(self) -> KNormNoise:
        """Of scale s = 2r/ε."""
        return KNormNoise(2 * self.radius / self.epsilon)


@dataclass(frozen=True)
class LocalGaussian(AdditiveReport):
    """h clipped to the ball, plus N(0, σ² I), σ = 2r/μ: approximate local DP.

    >>> LocalGaussian(1.0, 0.5).event("replace"), LocalGaussian(1.0, 0.5).variance(1)
    (Gaussian(mu=0.5), array([16.]))
    """

    radius: float
    mu: float
    pure: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_positive("radius", self.radius)
        check_positive("mu", self.mu)

    @property
    def noise(self) -> GaussianNoise:
        """Of scale σ = 2r/μ."""
        return GaussianNoise(2 * self.radius / self.mu)

    @property
    def sigma(self) -> float:
        """2r/μ."""
        return self.scale

    def revealed(self) -> Gaussian:
        """2r/σ = μ."""
        return Gaussian(self.mu)


@dataclass(frozen=True)
class SampledLaplace(AdditiveReport):
    """S4 as published: rows plus Laplace noise of scale Δ̂/ε, Δ̂ = max ‖φ − φ'‖₁ over the rows
    given to fit (``sample_sensitivity``).

    Nothing is clipped: whoever lies outside those rows has more than ε (docs/privacy.md, F).

    >>> SampledLaplace(2.0, 1.0, as_published=True).variance(1)
    array([8.])
    """

    sensitivity: float
    epsilon: float
    as_published: bool = False
    radius: float = field(default=math.inf, init=False, repr=False)
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
    def noise(self) -> LaplaceNoise:
        """Of scale Δ̂/ε."""
        return LaplaceNoise(self.sensitivity / self.epsilon)

    def revealed(self) -> Pure:
        """The paper's claim. It is no proof."""
        return Pure(self.epsilon)

    def reports(self, rows: FloatArray, rng: Rng) -> FloatArray:
        """Of a simulation only."""
        if rng is None:
            raise InvalidInput(f"{self.reason}: it runs with noise='simulated' only")
        return super().reports(rows, rng)

    def on_device(self) -> dict[str, object]:
        """Of no device."""
        return LocalMechanism.on_device(self)

    def worst_direction(self, size: int) -> FloatArray:
        """A diagonal: there ‖·‖₁ is largest."""
        return np.full(size, size**-0.5)
