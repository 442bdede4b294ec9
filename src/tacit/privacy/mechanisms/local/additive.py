"""Reports with added noise: Laplace after an ℓ2 clip, ℓ2 K-norm, Gaussian.

Let h, h' be any two vectors in the ball of radius r, so ‖h − h'‖₂ ≤ 2r. ``clip_rows`` keeps them
2^−40 inside it, which covers the rounding of every scale below.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np
from scipy.special import gammaln

from tacit.errors import InvalidInput
from tacit.privacy.accounting import Gaussian, Pure
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms.local.rows import any_two_users, each_block, grid_steps, whole_reports
from tacit.privacy.mechanisms.rows import check_positive, grid, snapped
from tacit.privacy.mechanisms.sums import FLOAT_NOISE
from tacit.privacy.noise import (
    FloatArray,
    SecureSource,
    rounded_gaussian,
    rounded_laplace,
    system_generator,
)


@dataclass(frozen=True)
class LocalLaplace:
    """h clipped to the ball, σ∘h plus Laplace noise of scale b = 2r‖σ‖₂/ε, divided by σ again.

    By Cauchy–Schwarz ‖σ∘h − σ∘h'‖₁ ≤ ‖σ‖₂ ‖h − h'‖₂ ≤ 2r‖σ‖₂ = Δ₁ (S4 Proposition 3; reached at
    h = −h' = rσ/‖σ‖), so ε = Δ₁/b. A coordinate's variance is 2b²/σ_i² = 8r²‖σ‖²/(ε²σ_i²);
    8r²Z/ε² with equal weights. Secure: σ∘h is cut onto the grid b/R toward zero, which keeps h in
    the ball, and gets rounded Laplace noise: the continuous report, rounded.

    >>> LocalLaplace(1.0, 2.0, (3.0, 4.0)).scale, LocalLaplace(1.0, 2.0, (1.0,)).variance(1)
    (5.0, array([2.]))
    """

    radius: float
    epsilon: float
    weights: tuple[float, ...]  # σ, one a coordinate
    pure: ClassVar[bool] = True
    proven: ClassVar[bool] = True
    reason: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_positive("radius", self.radius)
        check_positive("epsilon", self.epsilon)
        for weight in self.weights:
            check_positive("a weight", weight)

    @property
    def scale(self) -> float:
        """b = 2r‖σ‖₂/ε."""
        return 2 * self.radius * math.hypot(*self.weights) / self.epsilon

    def event(self, neighbours: Neighbours) -> Pure:
        """Δ₁/b = ε."""
        any_two_users(neighbours)
        return Pure(self.epsilon)

    def release(
        self,
        contributions: FloatArray,
        rng: np.random.Generator | None,
        shares: FloatArray | None = None,
    ) -> FloatArray:
        """One report a row."""
        whole_reports(shares)
        self._require_width(np.shape(contributions)[-1])
        weights, scale = np.asarray(self.weights), self.scale

        def report(rows: FloatArray) -> FloatArray:
            if rng is not None:
                return np.asarray(rows + rng.laplace(size=rows.shape) * (scale / weights))
            steps = grid_steps(rows * weights, scale)
            steps += rounded_laplace(steps.shape, SecureSource())
            return np.asarray(steps * grid(scale) / weights)

        return each_block(contributions, self.radius, report)

    def _require_width(self, dim: int) -> None:
        if dim != len(self.weights):
            raise InvalidInput(f"rows have {dim} coordinates, the weights {len(self.weights)}")

    def secure(self, rng: np.random.Generator | None) -> bool:
        """Is the noise exact and from the operating system?"""
        return rng is None

    def values(self, shape: tuple[int, ...]) -> int:
        """One a number."""
        return math.prod(shape)

    def to_dict(self) -> dict[str, object]:
        """Name and parameters."""
        return {"name": type(self).__name__} | asdict(self) | {"weights": list(self.weights)}

    def variance(self, dim: int) -> FloatArray:
        """2(b/σ_i)²."""
        self._require_width(dim)
        return np.asarray(2 * (self.scale / np.asarray(self.weights)) ** 2)

    def log_density(self, reports: FloatArray, row: FloatArray) -> FloatArray:
        """Σ_i −|y_i − h_i|σ_i/b − log(2b/σ_i)."""
        scales = self.scale / np.asarray(self.weights)
        return np.asarray(-(np.abs(reports - row) / scales + np.log(2 * scales)).sum(axis=-1))


@dataclass(frozen=True)
class LocalKNorm:
    """h clipped to the ball, plus noise of density ∝ exp(−‖b‖₂/s), s = 2r/ε.

    By the triangle inequality densities differ by exp(‖h − h'‖₂/s) ≤ e^ε. The radius of the noise
    is Gamma(Z, s), so a coordinate's variance is E[R²]/Z = s²(Z + 1) = 4r²(Z + 1)/ε².

    >>> LocalKNorm(1.0, 2.0).variance(3)
    array([4., 4., 4.])
    """

    radius: float
    epsilon: float
    pure: ClassVar[bool] = True
    proven: ClassVar[bool] = True
    reason: ClassVar[str] = FLOAT_NOISE

    def __post_init__(self) -> None:
        check_positive("radius", self.radius)
        check_positive("epsilon", self.epsilon)

    @property
    def scale(self) -> float:
        """s = 2r/ε."""
        return 2 * self.radius / self.epsilon

    def event(self, neighbours: Neighbours) -> Pure:
        """2r/s = ε."""
        any_two_users(neighbours)
        return Pure(self.epsilon)

    def release(
        self,
        contributions: FloatArray,
        rng: np.random.Generator | None,
        shares: FloatArray | None = None,
    ) -> FloatArray:
        """One report a row, on the grid."""
        whole_reports(shares)
        source = rng or system_generator()

        def report(rows: FloatArray) -> FloatArray:
            noise = source.standard_normal(rows.shape)
            length = np.sqrt(np.einsum("ij,ij->i", noise, noise))
            noise *= (self.scale * source.gamma(rows.shape[1], size=len(rows)) / length)[:, None]
            noise += rows
            return snapped(noise, self.scale)

        return each_block(contributions, self.radius, report)

    def secure(self, rng: np.random.Generator | None) -> bool:
        """Never: see reason."""
        return False

    def values(self, shape: tuple[int, ...]) -> int:
        """A direction and a radius a row."""
        return shape[0] * (math.prod(shape[1:]) + 1)

    def to_dict(self) -> dict[str, object]:
        """Name and parameters."""
        return {"name": type(self).__name__} | asdict(self)

    def variance(self, dim: int) -> FloatArray:
        """s²(Z + 1)."""
        return np.full(dim, self.scale**2 * (dim + 1))

    def log_density(self, reports: FloatArray, row: FloatArray) -> FloatArray:
        """−‖y − h‖/s − log(s^Z Γ(Z) · area of the unit sphere)."""
        dim = len(row)
        area = math.log(2) + dim / 2 * math.log(math.pi) - gammaln(dim / 2)
        constant = dim * math.log(self.scale) + gammaln(dim) + area
        return np.asarray(-np.linalg.norm(reports - row, axis=-1) / self.scale - constant)


@dataclass(frozen=True)
class LocalGaussian:
    """h clipped to the ball, plus N(0, σ² I), σ = 2r/μ: approximate local DP.

    >>> LocalGaussian(1.0, 0.5).event("replace"), LocalGaussian(1.0, 0.5).variance(1)
    (Gaussian(mu=0.5), array([16.]))
    """

    radius: float
    mu: float
    pure: ClassVar[bool] = False
    proven: ClassVar[bool] = True
    reason: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_positive("radius", self.radius)
        check_positive("mu", self.mu)

    @property
    def sigma(self) -> float:
        """2r/μ."""
        return 2 * self.radius / self.mu

    def event(self, neighbours: Neighbours) -> Gaussian:
        """2r/σ = μ."""
        any_two_users(neighbours)
        return Gaussian(self.mu)

    def release(
        self,
        contributions: FloatArray,
        rng: np.random.Generator | None,
        shares: FloatArray | None = None,
    ) -> FloatArray:
        """One report a row."""
        whole_reports(shares)

        def report(rows: FloatArray) -> FloatArray:
            if rng is not None:
                return np.asarray(rows + self.sigma * rng.standard_normal(rows.shape))
            steps = grid_steps(rows, self.sigma)
            steps += rounded_gaussian(steps.shape, SecureSource())
            return np.asarray(steps * grid(self.sigma))

        return each_block(contributions, self.radius, report)

    def secure(self, rng: np.random.Generator | None) -> bool:
        """Is the noise exact and from the operating system?"""
        return rng is None

    def values(self, shape: tuple[int, ...]) -> int:
        """One a number."""
        return math.prod(shape)

    def to_dict(self) -> dict[str, object]:
        """Name and parameters."""
        return {"name": type(self).__name__} | asdict(self)

    def variance(self, dim: int) -> FloatArray:
        """σ²."""
        return np.full(dim, self.sigma**2)

    def log_density(self, reports: FloatArray, row: FloatArray) -> FloatArray:
        """Σ_i −(y_i − h_i)²/2σ² − log(σ√2π)."""
        z = (reports - row) / self.sigma
        constant = math.log(self.sigma * math.sqrt(2 * math.pi))
        return np.asarray(-(z**2 / 2 + constant).sum(axis=-1))
