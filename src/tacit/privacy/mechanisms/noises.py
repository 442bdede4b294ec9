"""Noises: each owns its law, what a sensitivity reveals under it, and whether it is drawn exactly.

=======================  ==========================  =============  ==================  ======
noise                    density                     norm of Δ      reveals             exact
=======================  ==========================  =============  ==================  ======
``GaussianNoise``        ∝ exp(−‖b‖₂²/2σ²)           ℓ2             Gaussian(Δ/σ)       yes
``LaplaceNoise``         ∝ exp(−‖b‖₁/s)              ℓ1             Pure(Δ/s)           yes
``KNormNoise``           ∝ exp(−‖b‖₂/s)              ℓ2             Pure(Δ/s)           no
``TwoSidedWishartNoise`` E₁ − E₂                     nuclear        Pure(Δ/2s)          no
``WishartNoise``         E: not private              nuclear        Pure, a claim       no
=======================  ==========================  =============  ==================  ======

Noise is drawn in the coordinates of the statistic: for a symmetric matrix those of svec.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, TypeVar

import numpy as np
from scipy.special import gammaln

from tacit.arrays import FloatArray, IntArray
from tacit.privacy.accounting import Gaussian, Pure
from tacit.privacy.float_laws import knorm, wishart
from tacit.privacy.mechanisms.clipping import check_positive
from tacit.privacy.mechanisms.grid import svec, triangle_side
from tacit.privacy.noise import SecureSource, rounded_gaussian, rounded_laplace

Shape = tuple[int, ...]
Revealed = TypeVar("Revealed", Gaussian, Pure)
"""The kind of event."""

Norm = Literal["l1", "l2", "nuclear"]
"""Of the difference of two statistics; for a matrix ℓ2 is Frobenius."""

FLOAT_NOISE = (
    "the noise has no exact sampler: it is drawn in floating point and the release snapped to a "
    "public grid; how far that is from its law is not derived, so that δ = 0 holds of the ideal "
    "mechanism only"
)

ONE_SIDED = (
    "one-sided Wishart noise is not differentially private: its support depends on the data, "
    "so with probability 1 − exp(−ε) a release proves that a task did not take part; ε is "
    "claimed, not proven"
)


@dataclass(frozen=True)
class Noise(Generic[Revealed]):
    """A law with a scale."""

    scale: float
    norm: ClassVar[Norm] = "l2"
    pure: ClassVar[bool] = True  # may be used with delta = 0, which is claimed only if exact too
    proven: ClassVar[bool] = True  # False: the event is only what a paper claims
    reason: ClassVar[str] = ""  # why it is not proven or not exact
    slope: ClassVar[float] = 1.0  # the density falls by exp(−1/(slope · scale)) a unit of norm

    @classmethod
    def scale_for(cls, sensitivity: float, amount: float) -> float:
        """The scale at which this sensitivity reveals μ (Gaussian) or ε = amount."""
        check_positive("epsilon" if cls.pure else "mu", amount)
        return sensitivity / (cls.slope * amount)

    def amount(self, sensitivity: float) -> float:
        """μ or ε of a release whose statistic has this sensitivity."""
        return sensitivity / (self.slope * self.scale)

    def event(self, sensitivity: float) -> Revealed:
        """The same, as an event."""
        raise NotImplementedError

    def drawn(self, shape: Shape, rng: np.random.Generator) -> FloatArray:
        """In floating point; each vector along the last axis by itself."""
        raise NotImplementedError

    def rounded(self, shape: Shape) -> IntArray:
        """Exactly, by the operating system, in steps of the grid."""
        raise NotImplementedError(self.reason)

    def largest_entry(self, size: int) -> float:
        """About the largest of so many numbers."""
        raise NotImplementedError

    def largest_eigenvalue(self, side: int) -> float:
        """About that of a symmetric matrix of noise; 0 where it is positive."""
        raise NotImplementedError


@dataclass(frozen=True)
class GaussianNoise(Noise[Gaussian]):
    """N(0, σ² I): μ = Δ₂/σ."""

    pure: ClassVar[bool] = False

    def event(self, sensitivity: float) -> Gaussian:
        """μ = Δ/σ."""
        return Gaussian(self.amount(sensitivity))

    def drawn(self, shape: Shape, rng: np.random.Generator) -> FloatArray:
        """In floating point."""
        return self.scale * rng.standard_normal(shape)

    def rounded(self, shape: Shape) -> IntArray:
        """Exactly."""
        return rounded_gaussian(shape, SecureSource())

    def variance(self, dim: int) -> float:
        """σ²."""
        return self.scale**2

    def log_density(self, noise: FloatArray) -> FloatArray:
        """Σ −b²/2σ² − log(σ√2π)."""
        constant = math.log(self.scale * math.sqrt(2 * math.pi))
        return np.asarray(-((noise / self.scale) ** 2 / 2 + constant).sum(axis=-1))

    def largest_entry(self, size: int) -> float:
        """σ√(2 log n)."""
        return math.sqrt(2 * math.log(max(size, 2))) * self.scale

    def largest_eigenvalue(self, side: int) -> float:
        """√2 σ√d: the variance is σ²/2 off the diagonal (Wigner)."""
        return math.sqrt(2 * side) * self.scale


@dataclass(frozen=True)
class PureNoise(Noise[Pure]):
    """A law under which densities at two statistics differ by exp(Δ/(slope · scale)) at most."""

    def event(self, sensitivity: float) -> Pure:
        """ε."""
        return Pure(self.amount(sensitivity))


@dataclass(frozen=True)
class LaplaceNoise(PureNoise):
    """Independent Laplace noise: the densities at two sums differ by exp(Σ|difference|/s)."""

    norm: ClassVar[Norm] = "l1"

    def drawn(self, shape: Shape, rng: np.random.Generator) -> FloatArray:
        """In floating point."""
        return rng.laplace(scale=self.scale, size=shape)

    def rounded(self, shape: Shape) -> IntArray:
        """Exactly."""
        return rounded_laplace(shape, SecureSource())

    def variance(self, dim: int) -> float:
        """2s²."""
        return 2 * self.scale**2

    def log_density(self, noise: FloatArray) -> FloatArray:
        """Σ −|b|/s − log 2s."""
        return np.asarray(-(np.abs(noise) / self.scale + math.log(2 * self.scale)).sum(axis=-1))

    def largest_entry(self, size: int) -> float:
        """s log 2n."""
        return math.log(2 * size) * self.scale


@dataclass(frozen=True)
class KNormNoise(PureNoise):
    """Density ∝ exp(−‖b‖₂/s): by the triangle inequality exp(‖difference‖₂/s) at most.

    The radius is Gamma(n, s), so a coordinate's variance is E[R²]/n = s²(n + 1).
    """

    reason: ClassVar[str] = FLOAT_NOISE

    def drawn(self, shape: Shape, rng: np.random.Generator) -> FloatArray:
        """In floating point."""
        return self.scale * knorm(shape, rng)

    def variance(self, dim: int) -> float:
        """s²(n + 1)."""
        return self.scale**2 * (dim + 1)

    def log_density(self, noise: FloatArray) -> FloatArray:
        """−‖b‖/s − log(sⁿ Γ(n) · area of the unit sphere)."""
        dim = noise.shape[-1]
        area = math.log(2) + dim / 2 * math.log(math.pi) - gammaln(dim / 2)
        constant = dim * math.log(self.scale) + gammaln(dim) + area
        return np.asarray(-np.linalg.norm(noise, axis=-1) / self.scale - constant)


@dataclass(frozen=True)
class WishartNoise(PureNoise):
    """E ~ W_d(d+1, vI): S1 as published; positive definite, and so not private (``ONE_SIDED``)."""

    norm: ClassVar[Norm] = "nuclear"
    slope: ClassVar[float] = 2.0
    proven: ClassVar[bool] = False
    reason: ClassVar[str] = ONE_SIDED

    def drawn(self, shape: Shape, rng: np.random.Generator) -> FloatArray:
        """The svec of E."""
        return svec(self.scale * self.matrix(triangle_side(*shape), rng))

    def matrix(self, side: int, rng: np.random.Generator) -> FloatArray:
        """E/v."""
        return wishart(side, rng)

    def largest_eigenvalue(self, side: int) -> float:
        """0: it is positive."""
        return 0.0


@dataclass(frozen=True)
class TwoSidedWishartNoise(WishartNoise):
    """E₁ − E₂, both W_d(d+1, vI): |log ratio| ≤ ‖Δ‖_*/(2v); the proof is at ``TwoSidedWishart``."""

    proven: ClassVar[bool] = True
    reason: ClassVar[str] = FLOAT_NOISE

    def matrix(self, side: int, rng: np.random.Generator) -> FloatArray:
        """(E₁ − E₂)/v."""
        return wishart(side, rng) - wishart(side, rng)

    def largest_eigenvalue(self, side: int) -> float:
        """As of a Gaussian matrix with σ²/2 = 2(d+1)v²."""
        return math.sqrt(8 * side * (side + 1)) * self.scale
