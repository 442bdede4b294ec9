"""Mechanisms = statistic × noise: clip each row, sum, add noise that the clip norm justifies.

Secure (``rng=None``, and the noise has an exact sampler): the statistic is a vector of whole
numbers on the grid scale/R, so adding rounded noise is the same as rounding the continuous release.
That is post-processing; the event is exact. Otherwise everything is in floating point, and noise
without an exact sampler is snapped to the grid.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Generic, Literal, Self

import numpy as np

from tacit.errors import InvalidInput
from tacit.privacy.accounting import Gaussian, Pure
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms.clipping import by_neighbours, check_positive
from tacit.privacy.mechanisms.grid import snapped
from tacit.privacy.mechanisms.noises import (
    GaussianNoise,
    KNormNoise,
    LaplaceNoise,
    Noise,
    PureNoise,
    Revealed,
    TwoSidedWishartNoise,
    WishartNoise,
)
from tacit.privacy.mechanisms.statistics import (
    Covariance,
    Diagonal,
    EachRowApart,
    Gram,
    Sum,
    Votes,
)
from tacit.privacy.noise import FloatArray, IntArray, system_generator


def released(
    statistic: Sum,
    noise: Noise[Any],
    contributions: FloatArray,
    rng: np.random.Generator | None,
    shares: FloatArray | None = None,
) -> FloatArray:
    """The noisy statistic. ``rng=None`` asks the operating system; a generator is a simulation."""
    rows = statistic.rows(contributions)
    clips = statistic.clips(len(rows), shares)
    if rng is None and not noise.reason:
        counts = statistic.counts(rows, clips, noise.scale)
        return statistic.shaped(noise.on_grid(counts), rows.shape)
    drawn = noise.drawn(statistic.coordinates(rows.shape), rng or system_generator())
    noisy = statistic.total(rows, clips) + statistic.shaped(drawn, rows.shape)
    return snapped(noisy, noise.scale) if noise.reason else noisy


def parameters(mechanism: Any) -> dict[str, object]:
    """Name and parameters of a frozen dataclass, as JSON: it can be made again from them."""
    given = {each.name: getattr(mechanism, each.name) for each in fields(mechanism) if each.init}
    return {"name": type(mechanism).__name__} | given


class NoisyStatistic(Generic[Revealed]):
    """A frozen set of public parameters that makes a statistic and a noise. It is given no
    sensitivity: it clips. A row that is not finite contributes zero; no rows at all: the noise.
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

    def release(
        self,
        contributions: FloatArray,
        rng: np.random.Generator | None,
        shares: FloatArray | None = None,
    ) -> FloatArray:
        """Clip each row, sum, add noise. Unit i, of share in [0, 1], reveals shares[i] · event."""
        return released(self.statistic, self.noise, contributions, rng, shares)

    def counts(self, contributions: FloatArray, shares: FloatArray | None = None) -> IntArray:
        """The exact statistic before the noise, in steps of the grid: all a secure release sees."""
        rows = self.statistic.rows(contributions)
        clips = self.statistic.clips(len(rows), shares)
        return self.statistic.counts(rows, clips, self.noise.scale).ravel()

    def secure(self, rng: np.random.Generator | None) -> bool:
        """Does a release with this rng have exact noise from the operating system?"""
        return rng is None and not self.noise.reason

    def to_dict(self) -> dict[str, object]:
        """Name and parameters as JSON, for the ledger and the certificate."""
        return parameters(self)


@dataclass(frozen=True)
class WithGaussianNoise(NoisyStatistic[Gaussian]):
    """A statistic plus N(0, σ² I): μ-GDP with μ = Δ/σ."""

    clip_norm: float
    sigma: float
    kind: ClassVar[type[Sum]]
    law: ClassVar[type[GaussianNoise]] = GaussianNoise

    def __post_init__(self) -> None:
        check_positive("clip_norm", self.clip_norm)
        check_positive("sigma", self.sigma)

    @classmethod
    def for_mu(cls, clip_norm: float, mu: float, neighbours: Neighbours) -> Self:
        """The noise that makes the release μ-GDP."""
        check_positive("mu", mu)
        sensitivity = cls(clip_norm, 1.0).statistic.sensitivity(neighbours)
        return cls(clip_norm, cls.law.for_amount(sensitivity, mu))

    @property
    def statistic(self) -> Sum:
        """Of rows clipped to clip_norm."""
        return self.kind(self.clip_norm)

    @property
    def noise(self) -> GaussianNoise:
        """N(0, σ² I)."""
        return GaussianNoise(self.sigma)


@dataclass(frozen=True)
class WithPureNoise(NoisyStatistic[Pure]):
    """A statistic plus noise of one scale that reveals an ε, without δ."""

    clip_norm: float
    scale: float
    kind: ClassVar[type[Sum]]
    law: ClassVar[type[PureNoise]]

    def __post_init__(self) -> None:
        check_positive("clip_norm", self.clip_norm)
        check_positive("scale", self.scale)

    @classmethod
    def for_epsilon(cls, clip_norm: float, epsilon: float, neighbours: Neighbours) -> Self:
        """The noise that makes the release (ε, 0)-DP."""
        check_positive("epsilon", epsilon)
        sensitivity = cls(clip_norm, 1.0).statistic.sensitivity(neighbours)
        return cls(clip_norm, cls.law.for_amount(sensitivity, epsilon))

    @property
    def statistic(self) -> Sum:
        """Of rows clipped to clip_norm."""
        return self.kind(self.clip_norm, self.law.norm)

    @property
    def noise(self) -> PureNoise:
        """Of this law and scale."""
        return self.law(self.scale)


# --- sums of rows --------------------------------------------------------------------------------


class GaussianSum(WithGaussianNoise):
    """Σ of rows clipped to ℓ2 norm C, plus N(0, σ² I): μ = 2C/σ (replace), C/σ (zero-out).

    >>> GaussianSum(clip_norm=1.0, sigma=4.0).event("replace")
    Gaussian(mu=0.5)
    >>> GaussianSum(1.0, 4.0).release(np.zeros((0, 3)), np.random.default_rng(0)).shape
    (3,)
    """

    kind = Sum


class VoteSum(GaussianSum):
    """Σ of rows without negative entries, of ℓ2 norm ≤ C, plus N(0, σ² I): Δ₂ = √2 C, not 2C.

    >>> round(VoteSum(clip_norm=1.0, sigma=4.0).event("replace").mu, 6)
    0.353553
    """

    kind = Votes


class LaplaceSum(WithPureNoise):
    """Σ of rows clipped to ℓ1 norm C, plus Laplace noise: ε = 2C/s (replace), C/s (zero-out).

    >>> LaplaceSum(clip_norm=1.0, scale=4.0).event("replace")
    Pure(epsilon=0.5)
    """

    kind = Sum
    law = LaplaceNoise


class KNormSum(WithPureNoise):
    """Σ of rows clipped to ℓ2 norm C, plus K-norm noise: ε = 2C/s (replace), C/s (zero-out).

    S1 Algorithm 5 with its fraction turned the right way up (docs/privacy.md, C): one row at a
    time, s = 2C/ε.

    >>> KNormSum(clip_norm=1.0, scale=4.0).event("replace")
    Pure(epsilon=0.5)
    """

    kind = Sum
    law = KNormNoise


@dataclass(frozen=True)
class EachRow(NoisyStatistic[Any]):
    """Every unit's row by itself, clipped and noised: (m, d) in, (m, d) out; the event of one row.

    >>> EachRow(GaussianSum(clip_norm=1.0, sigma=4.0)).event("replace")
    Gaussian(mu=0.5)
    """

    row: GaussianSum | KNormSum

    @property
    def statistic(self) -> EachRowApart:
        """The rows, clipped."""
        return EachRowApart(self.row.clip_norm)

    @property
    def noise(self) -> Noise[Any]:
        """That of one row."""
        return self.row.noise

    def to_dict(self) -> dict[str, object]:
        """Name and parameters."""
        return {"name": type(self).__name__, "row": self.row.to_dict()}


# --- second moments ------------------------------------------------------------------------------


class SymmetricGaussian(WithGaussianNoise):
    """WWᵀ = Σ wwᵀ (d×d), ‖w‖₂ ≤ K, plus symmetric noise: μ = √2 K²/σ (replace), K²/σ (zero-out).

    The noise is isotropic in svec coordinates: variance σ² on the diagonal, σ²/2 off it. svec is an
    isometry, so this is a Gaussian release of a vector with Δ₂ = Δ_F.

    >>> SymmetricGaussian(clip_norm=1.0, sigma=2.0).event("zero-out")
    Gaussian(mu=0.5)
    >>> S = SymmetricGaussian(1.0, 2.0).release(np.eye(3), np.random.default_rng(0))
    >>> bool(np.array_equal(S, S.T))
    True
    """

    kind = Covariance


class DiagonalGaussian(WithGaussianNoise):
    """The diagonal of WWᵀ, Σ w∘w (d,), plus N(0, σ² I): μ = √2 K²/σ (replace), K²/σ (zero-out).

    >>> DiagonalGaussian(clip_norm=1.0, sigma=2.0).event("zero-out")
    Gaussian(mu=0.5)
    """

    kind = Diagonal


class DiagonalLaplace(WithPureNoise):
    """The diagonal of WWᵀ with Laplace noise: ε = 2K²/s (replace), K²/s (zero-out).

    >>> DiagonalLaplace(clip_norm=2.0, scale=8.0).event("replace")
    Pure(epsilon=1.0)
    """

    kind = Diagonal
    law = LaplaceNoise


@dataclass(frozen=True)
class GramGaussian(WithGaussianNoise):
    """WᵀW (m×m), ‖w‖₂ ≤ K, plus symmetric noise: μ = K²√(8(m−1))/σ (replace), K²√(2m−1)/σ.

    Its sensitivity grows with √m: one unit is in a whole row and column (docs/privacy.md, A').

    >>> round(GramGaussian(clip_norm=1.0, sigma=16.0, units=9).event("replace").mu, 9)
    0.5
    """

    units: int = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        Gram(self.clip_norm, units=self.units)

    @classmethod
    def for_mu(  # type: ignore[override]  # it needs the number of units too
        cls, clip_norm: float, mu: float, neighbours: Neighbours, *, units: int
    ) -> Self:
        """The noise that makes the release μ-GDP."""
        check_positive("mu", mu)
        sensitivity = Gram(clip_norm, units=units).sensitivity(neighbours)
        return cls(clip_norm, cls.law.for_amount(sensitivity, mu), units=units)

    @property
    def statistic(self) -> Gram:
        """Of so many rows, clipped to clip_norm."""
        return Gram(self.clip_norm, units=self.units)


class TwoSidedWishart(WithPureNoise):
    """WWᵀ + E₁ − E₂, E₁, E₂ independent W_d(d+1, vI), ‖w‖₂ ≤ K: ε = K²/v (replace), K²/2v.

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

    kind = Covariance
    law = TwoSidedWishartNoise


@dataclass(frozen=True)
class PublishedWishart(NoisyStatistic[Pure]):
    """WWᵀ + E, E ~ W_d(d+1, s/(2ε) I): S1 as published, *claimed* (ε, 0)-DP, and not.

    Liang et al., Model-Protected Multi-Task Learning, Algorithms 1–4. For reproduction only: the
    release S has S ⪰ WWᵀ always, so its support tells who took part: without the unit it falls
    outside the support of the run with it with probability 1 − e^−ε, at any scale.

    ``sensitivity`` is s, by default K². The first version computes a vector of sensitivities
    s_i = max |‖w_i‖² − ‖w_i'‖²|, which with norm clipping is K² for every task, prints 2K for it
    (Algorithms 2 and 3), and uses max_i s_i. ``side`` "tasks" releases WᵀW.

    >>> published = PublishedWishart(clip_norm=1.0, epsilon=0.1, as_published=True, side="tasks")
    >>> published.noise.proven, published.release(np.eye(3)[:2], np.random.default_rng(0)).shape
    (False, (2, 2))
    """

    clip_norm: float
    epsilon: float
    as_published: bool = False
    sensitivity: float | None = None
    side: Literal["features", "tasks"] = "features"
    law: ClassVar[type[WishartNoise]] = WishartNoise

    def __post_init__(self) -> None:
        check_positive("clip_norm", self.clip_norm)
        check_positive("epsilon", self.epsilon)
        check_positive("sensitivity", self.noise.scale)
        if not self.as_published:
            raise InvalidInput(
                f"{self.law.reason}. Use SymmetricGaussian, or TwoSidedWishart for delta = 0; "
                "as_published=True reproduces the paper"
            )

    @property
    def statistic(self) -> Covariance:
        """WWᵀ or WᵀW."""
        return Gram(self.clip_norm) if self.side == "tasks" else Covariance(self.clip_norm)

    @property
    def noise(self) -> WishartNoise:
        """Of scale s/(2ε)."""
        claimed = self.clip_norm**2 if self.sensitivity is None else self.sensitivity
        return WishartNoise(WishartNoise.for_amount(claimed, self.epsilon))

    def event(self, neighbours: Neighbours) -> Pure:
        """The paper's claim, for either relation. It is no proof."""
        return Pure(by_neighbours(neighbours, replace=self.epsilon, zero_out=self.epsilon))
