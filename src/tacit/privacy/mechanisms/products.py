"""The products that learners use: sums of rows and second moments, with a noise each."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

from tacit.errors import InvalidInput
from tacit.privacy.accounting import Gaussian, Pure
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms import noises, statistics
from tacit.privacy.mechanisms.block_moments import BlockMoments, Blocks
from tacit.privacy.mechanisms.clipping import by_neighbours, check_positive
from tacit.privacy.mechanisms.noises import Noise, Revealed
from tacit.privacy.mechanisms.noisy_statistic import NoisyStatistic
from tacit.privacy.mechanisms.statistics import Gram, Sum


@dataclass(frozen=True)
class Clipped(NoisyStatistic[Revealed]):
    """A kind of statistic, of rows clipped to clip_norm."""

    clip_norm: float
    kind: ClassVar[type[Sum]]
    law: ClassVar[type[Noise[Any]]]

    def __post_init__(self) -> None:
        check_positive("clip_norm", self.statistic.clip_norm)
        check_positive("the scale of the noise", self.noise.scale)

    @property
    def statistic(self) -> Sum:
        """With a sensitivity in the norm of the noise."""
        return self.kind(self.clip_norm, self.law.norm)

    @classmethod
    def _scale(cls, clip_norm: float, amount: float, neighbours: Neighbours) -> float:
        sensitivity = cls.kind(clip_norm, cls.law.norm).sensitivity(neighbours)
        return cls.law.scale_for(sensitivity, amount)


class PlusGaussian(NoisyStatistic[Gaussian]):
    """A statistic plus N(0, σ² I): μ-GDP with μ = Δ/σ."""

    sigma: float
    law: ClassVar[type[Noise[Any]]] = noises.GaussianNoise

    @property
    def noise(self) -> Noise[Gaussian]:
        """N(0, σ² I)."""
        return self.law(self.sigma)


@dataclass(frozen=True)
class WithGaussianNoise(PlusGaussian, Clipped[Gaussian]):
    """The same, of clipped rows."""

    sigma: float

    @classmethod
    def for_mu(cls, clip_norm: float, mu: float, neighbours: Neighbours) -> Self:
        """The noise that makes the release μ-GDP."""
        return cls(clip_norm, cls._scale(clip_norm, mu, neighbours))


@dataclass(frozen=True)
class WithPureNoise(Clipped[Pure]):
    """A statistic plus noise of one scale that reveals an ε, without δ."""

    scale: float

    @property
    def noise(self) -> Noise[Pure]:
        """Of this law and scale."""
        return self.law(self.scale)

    @classmethod
    def for_epsilon(cls, clip_norm: float, epsilon: float, neighbours: Neighbours) -> Self:
        """The noise that makes the release (ε, 0)-DP."""
        return cls(clip_norm, cls._scale(clip_norm, epsilon, neighbours))


# --- sums of rows --------------------------------------------------------------------------------


class GaussianSum(WithGaussianNoise):
    """Σ of rows clipped to ℓ2 norm C, plus N(0, σ² I): μ = 2C/σ (replace), C/σ (zero-out).

    >>> GaussianSum(clip_norm=1.0, sigma=4.0).event("replace")
    Gaussian(mu=0.5)
    >>> import numpy as np
    >>> GaussianSum(1.0, 4.0).release(np.zeros((0, 3)), np.random.default_rng(0)).shape
    (3,)
    """

    kind = Sum


class VoteSum(GaussianSum):
    """Σ of rows without negative entries, of ℓ2 norm ≤ C, plus N(0, σ² I): Δ₂ = √2 C, not 2C.

    >>> round(VoteSum(clip_norm=1.0, sigma=4.0).event("replace").mu, 6)
    0.353553
    """

    kind = statistics.Votes


class LaplaceSum(WithPureNoise):
    """Σ of rows clipped to ℓ1 norm C, plus Laplace noise: ε = 2C/s (replace), C/s (zero-out).

    >>> LaplaceSum(clip_norm=1.0, scale=4.0).event("replace")
    Pure(epsilon=0.5)
    """

    kind = Sum
    law = noises.LaplaceNoise


class KNormSum(WithPureNoise):
    """Σ of rows clipped to ℓ2 norm C, plus K-norm noise: ε = 2C/s (replace), C/s (zero-out).

    S1 Algorithm 5 with its fraction turned the right way up (docs/privacy.md, C): one row at a
    time, s = 2C/ε.

    >>> KNormSum(clip_norm=1.0, scale=4.0).event("replace")
    Pure(epsilon=0.5)
    """

    kind = Sum
    law = noises.KNormNoise


@dataclass(frozen=True)
class EachRow(NoisyStatistic[Any]):
    """Every unit's row by itself, clipped and noised: (m, d) in, (m, d) out; the event of one row.

    >>> EachRow(GaussianSum(clip_norm=1.0, sigma=4.0)).event("replace")
    Gaussian(mu=0.5)
    """

    row: GaussianSum | KNormSum

    @property
    def statistic(self) -> Sum:
        """The rows, clipped."""
        return statistics.EachRowApart(self.row.clip_norm)

    @property
    def noise(self) -> Noise[Any]:
        """That of one row."""
        return self.row.noise


# --- second moments ------------------------------------------------------------------------------


class SymmetricGaussian(WithGaussianNoise):
    """WWᵀ = Σ wwᵀ (d×d), ‖w‖₂ ≤ K, plus symmetric noise: μ = √2 K²/σ (replace), K²/σ (zero-out).

    The noise is isotropic in svec coordinates: variance σ² on the diagonal, σ²/2 off it. svec is an
    isometry, so this is a Gaussian release of a vector with Δ₂ = Δ_F.

    >>> SymmetricGaussian(clip_norm=1.0, sigma=2.0).event("zero-out")
    Gaussian(mu=0.5)
    >>> import numpy as np
    >>> S = SymmetricGaussian(1.0, 2.0).release(np.eye(3), np.random.default_rng(0))
    >>> bool(np.array_equal(S, S.T))
    True
    """

    kind = statistics.Covariance


class DiagonalGaussian(WithGaussianNoise):
    """The diagonal of WWᵀ, Σ w∘w (d,), plus N(0, σ² I): μ = √2 K²/σ (replace), K²/σ (zero-out).

    >>> DiagonalGaussian(clip_norm=1.0, sigma=2.0).event("zero-out")
    Gaussian(mu=0.5)
    """

    kind = statistics.Diagonal


class DiagonalLaplace(WithPureNoise):
    """The diagonal of WWᵀ with Laplace noise: ε = 2K²/s (replace), K²/s (zero-out).

    >>> DiagonalLaplace(clip_norm=2.0, scale=8.0).event("replace")
    Pure(epsilon=1.0)
    """

    kind = statistics.Diagonal
    law = noises.LaplaceNoise


@dataclass(frozen=True)
class GramGaussian(WithGaussianNoise):
    """WᵀW (m×m), ‖w‖₂ ≤ K, plus symmetric noise: μ = K²√(8(m−1))/σ (replace), K²√(2m−1)/σ.

    Its sensitivity grows with √m: one unit is in a whole row and column (docs/privacy.md, A').

    >>> round(GramGaussian(clip_norm=1.0, sigma=16.0, units=9).event("replace").mu, 9)
    0.5
    """

    units: int = field(kw_only=True)

    @classmethod
    def for_mu(  # type: ignore[override]  # it needs the number of units too
        cls, clip_norm: float, mu: float, neighbours: Neighbours, *, units: int
    ) -> Self:
        """The noise that makes the release μ-GDP."""
        sensitivity = Gram(clip_norm, units=units).sensitivity(neighbours)
        return cls(clip_norm, cls.law.scale_for(sensitivity, mu), units=units)

    @property
    def statistic(self) -> Gram:
        """Of so many rows, clipped to clip_norm."""
        return Gram(self.clip_norm, units=self.units)


@dataclass(frozen=True)
class MomentsGaussian(PlusGaussian):
    """The second moments of coded rows plus N(0, σ² I): μ = Δ/σ for one person with all rows.

    Δ is that of ``Blocks`` with these levels and weights.

    >>> blocks = Blocks(levels=(2,), weights=(1.0,), count=1.0, slope=1.0, total=1.0)
    >>> MomentsGaussian.for_mu(blocks, 0.5, "replace").event("replace")
    Gaussian(mu=0.5)
    """

    levels: tuple[int, ...]
    weights: tuple[float, ...]
    count: float
    slope: float
    total: float
    square: float
    sigma: float

    def __post_init__(self) -> None:
        check_positive("the scale of the noise", self.sigma)

    @classmethod
    def for_mu(cls, blocks: Blocks, mu: float, neighbours: Neighbours) -> Self:
        """The noise that makes the release μ-GDP."""
        return cls(**asdict(blocks), sigma=cls.law.scale_for(blocks.sensitivity(neighbours), mu))

    @cached_property
    def blocks(self) -> Blocks:
        """The columns and their weights."""
        given = {each.name: getattr(self, each.name) for each in fields(Blocks)}
        return Blocks(**given | {name: tuple(given[name]) for name in ("levels", "weights")})

    @property
    def statistic(self) -> Sum:
        """Of one silo."""
        return BlockMoments(self.blocks.sensitivity("zero-out"), blocks=self.blocks)


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

    kind = statistics.Covariance
    law = noises.TwoSidedWishartNoise


@dataclass(frozen=True)
class PublishedWishart(NoisyStatistic[Pure]):
    """WWᵀ + E, E ~ W_d(d+1, s/(2ε) I): S1 as published, *claimed* (ε, 0)-DP, and not.

    Liang et al., Model-Protected Multi-Task Learning, Algorithms 1–4. For reproduction only: the
    release S has S ⪰ WWᵀ always, so its support tells who took part: without the unit it falls
    outside the support of the run with it with probability 1 − e^−ε, at any scale.

    ``sensitivity`` is s, by default K². The first version computes a vector of sensitivities
    s_i = max |‖w_i‖² − ‖w_i'‖²|, which with norm clipping is K² for every task, prints 2K for it
    (Algorithms 2 and 3), and uses max_i s_i. ``side`` "tasks" releases WᵀW. ``clipped`` False:
    Algorithm 5, which takes its noisy models as they are.

    >>> import numpy as np
    >>> published = PublishedWishart(clip_norm=1.0, epsilon=0.1, as_published=True, side="tasks")
    >>> published.noise.proven, published.release(np.eye(3)[:2], np.random.default_rng(0)).shape
    (False, (2, 2))
    """

    clip_norm: float
    epsilon: float
    as_published: bool = False
    sensitivity: float | None = None
    side: Literal["features", "tasks"] = "features"
    clipped: bool = True
    law: ClassVar[type[Noise[Any]]] = noises.WishartNoise

    def __post_init__(self) -> None:
        check_positive("clip_norm", self.clip_norm)
        check_positive("the scale of the noise", self.noise.scale)
        if not self.as_published:
            raise InvalidInput(
                f"{self.law.reason}. Use SymmetricGaussian, or TwoSidedWishart for delta = 0; "
                "as_published=True reproduces the paper"
            )

    @property
    def statistic(self) -> Sum:
        """WWᵀ or WᵀW."""
        kind = Gram if self.side == "tasks" else statistics.Covariance
        return kind(self.clip_norm if self.clipped else math.inf)

    @property
    def noise(self) -> Noise[Pure]:
        """Of scale s/(2ε)."""
        claimed = self.clip_norm**2 if self.sensitivity is None else self.sensitivity
        return self.law(self.law.scale_for(claimed, self.epsilon))

    def event(self, neighbours: Neighbours) -> Pure:
        """The paper's claim, for either relation. It is no proof."""
        return Pure(by_neighbours(neighbours, replace=self.epsilon, zero_out=self.epsilon))
