"""The noise has the law it says, judged at one level; and a broken twin fails the same test.

Secure noise cannot be seeded: each test of it fails by chance with probability ALPHA, and samples
are large enough for a broken twin to pass less often than that.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tacit.arrays import FloatArray, IntArray
from tacit.privacy import noise as sampling
from tacit.privacy.mechanisms import (
    DiagonalGaussian,
    DiagonalLaplace,
    GaussianSum,
    GramGaussian,
    KNormSum,
    LaplaceSum,
    NoisyStatistic,
    PublishedWishart,
    SymmetricGaussian,
    TwoSidedWishart,
    svec,
)
from tacit.privacy.noise import RESOLUTION, SecureSource, rounded_gaussian, rounded_laplace

ALPHA = 1e-6
SCALE = 3.0  # of every noise below; a broken twin's is larger
Cdf = Callable[[Any], Any]


def follows(sample: FloatArray, cdf: Cdf) -> bool:
    """Kolmogorov–Smirnov at level ALPHA."""
    return bool(stats.kstest(sample, cdf).pvalue > ALPHA)


def is_uniform(counts: IntArray) -> bool:
    """Chi-square at level ALPHA."""
    return bool(stats.chisquare(counts).pvalue > ALPHA)


def matches(counts: FloatArray, probabilities: FloatArray) -> bool:
    return bool(stats.chisquare(counts, counts.sum() * probabilities).pvalue > ALPHA)


# --- the exact samplers --------------------------------------------------------------------------


SAMPLERS = {"gaussian": (rounded_gaussian, stats.norm), "laplace": (rounded_laplace, stats.laplace)}
every_sampler = pytest.mark.parametrize(("sampler", "law"), SAMPLERS.values(), ids=SAMPLERS)
COUNT = 400_000


@lru_cache(maxsize=2)
def drawn(sampler: Callable[..., IntArray]) -> IntArray:
    """Secure noise, drawn once for all the tests below."""
    return sampler(COUNT, SecureSource())


def binned(k: IntArray, law: Any) -> tuple[FloatArray, FloatArray]:
    """Counts of k in 200 coarse bins, and their exact probabilities Σ P(k)."""
    edges = np.rint(law.ppf(np.arange(1, 200) / 200) * RESOLUTION)  # bins end at an integer k
    counts = np.bincount(np.searchsorted(edges, k, side="left"), minlength=200)
    below = law.cdf((edges + 0.5) / RESOLUTION)
    return counts.astype(np.float64), np.diff(np.r_[0.0, below, 1.0])


@every_sampler
def test_rounded_noise_has_its_law_in_coarse_bins(
    sampler: Callable[..., IntArray], law: Any
) -> None:
    k = drawn(sampler)
    assert matches(*binned(k, law))
    assert not matches(*binned(np.rint(1.05 * k).astype(np.int64), law))


@every_sampler
def test_rounded_noise_has_mean_zero_and_its_variance(
    sampler: Callable[..., IntArray], law: Any
) -> None:
    z = drawn(sampler) / RESOLUTION
    bound = stats.norm.isf(ALPHA / 2)
    variance, kurtosis = law.var(), law.stats(moments="k") + 3
    assert abs(z.mean()) < bound * np.sqrt(variance / COUNT)
    off = bound * variance * np.sqrt((kurtosis - 1) / COUNT)
    assert abs((z**2).mean() - variance) < off
    assert abs(((1.05 * z) ** 2).mean() - variance) > off


@every_sampler
def test_rounded_noise_is_symmetric(sampler: Callable[..., IntArray], law: Any) -> None:
    k = drawn(sampler)
    magnitudes = stats.ks_2samp(k[k > 0], -k[k < 0])
    assert magnitudes.pvalue > ALPHA
    assert stats.binomtest(int((k > 0).sum()), int((k != 0).sum())).pvalue > ALPHA
    assert stats.ks_2samp(1.05 * k[k > 0], -k[k < 0]).pvalue < ALPHA


@every_sampler
def test_low_bits_are_uniform(sampler: Callable[..., IntArray], law: Any) -> None:
    k = drawn(sampler)
    for shift in (0, 8):
        assert is_uniform(np.bincount((k >> shift) & 255, minlength=256))
    single = (k / RESOLUTION).astype(np.float32) * np.float32(RESOLUTION)  # the naive twin
    assert not is_uniform(np.bincount(single.astype(np.int64) & 255, minlength=256))


@pytest.mark.parametrize(
    ("law", "exact"), [(sampling._GAUSSIAN, stats.norm), (sampling._EXPONENTIAL, stats.laplace)]
)
def test_accepted_cells_have_their_law_inside_a_bucket(law: sampling._Law, exact: Any) -> None:
    """In the bucket [8, 8 + 1/64); the broken twin accepts every proposal."""
    first = np.full(2**20, (8 * 64) << 21, dtype=np.int64)
    mass = -np.diff(exact.sf(8 + np.arange(5) / 256))
    proposed, kept = np.zeros(4), np.zeros(4)
    for _ in range(12):
        words = SecureSource().words(first.size)
        k, accepted = sampling._proposals(law, first, words, SecureSource())
        quarter = np.minimum((2 * np.abs(k) - first) >> 19, 3)
        proposed += np.bincount(quarter, minlength=4)
        kept += np.bincount(quarter[accepted], minlength=4)
    assert matches(kept, mass / mass.sum())
    assert not matches(proposed, mass / mass.sum())


def test_secure_gaussian_agrees_with_opendp() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import opendp.prelude as dp

        dp.enable_features("contrib")
        domain = dp.vector_domain(dp.atom_domain(T=float, nan=False))
        space = domain, dp.l2_distance(T=float)
        reference = np.array(dp.m.make_gaussian(*space, scale=SCALE)([0.0] * 2_000))
    ours = GaussianSum(1.0, SCALE).release(np.zeros((0, 20_000)), None)
    assert stats.ks_2samp(ours, reference).pvalue > ALPHA
    assert stats.ks_2samp(2 * ours, reference).pvalue < ALPHA


# --- Gaussian and Laplace mechanisms -------------------------------------------------------------


def vectors(mechanism: NoisyStatistic[Any], shape: tuple[int, int]) -> Callable[[Any], FloatArray]:
    """The noise of one large release, in coordinates in which it is isotropic."""

    def sample(rng: np.random.Generator | None) -> FloatArray:
        noise = mechanism.release(np.zeros(shape), rng)
        return svec(noise) if noise.ndim == 2 else noise

    return sample


def isotropic(law: Any) -> Cdf:
    return lambda x: law.cdf(x / SCALE)


VECTORS: dict[str, tuple[Callable[[Any], FloatArray], Cdf]] = {
    "GaussianSum": (vectors(GaussianSum(1.0, SCALE), (0, 100_000)), isotropic(stats.norm)),
    "DiagonalGaussian": (
        vectors(DiagonalGaussian(1.0, SCALE), (0, 100_000)),
        isotropic(stats.norm),
    ),
    "SymmetricGaussian": (vectors(SymmetricGaussian(1.0, SCALE), (0, 450)), isotropic(stats.norm)),
    "GramGaussian": (vectors(GramGaussian(1.0, SCALE, units=450), (450, 2)), isotropic(stats.norm)),
    "DiagonalLaplace": (
        vectors(DiagonalLaplace(1.0, SCALE), (0, 100_000)),
        isotropic(stats.laplace),
    ),
    "LaplaceSum": (vectors(LaplaceSum(1.0, SCALE), (0, 100_000)), isotropic(stats.laplace)),
}
either_mode = pytest.mark.parametrize("seed", [None, 1], ids=["secure", "simulated"])


@pytest.mark.parametrize("name", VECTORS)
@either_mode
def test_noise_has_its_law(name: str, seed: int | None) -> None:
    sample, cdf = VECTORS[name]
    noise = sample(None if seed is None else np.random.default_rng(seed))
    assert follows(noise, cdf)
    assert not follows(1.1 * noise, cdf)
    assert not follows(noise + 0.1 * SCALE, cdf)


@either_mode
def test_off_diagonal_noise_has_half_the_variance(seed: int | None) -> None:
    rng = None if seed is None else np.random.default_rng(seed)
    noise = SymmetricGaussian(1.0, SCALE).release(np.zeros((0, 200)), rng)
    off = noise[np.triu_indices(200, 1)]
    assert follows(off, lambda x: stats.norm.cdf(x / (SCALE / np.sqrt(2))))
    assert not follows(off * np.sqrt(2), lambda x: stats.norm.cdf(x / (SCALE / np.sqrt(2))))


def test_noise_values_are_independent_of_each_other() -> None:
    z = drawn(rounded_gaussian) / RESOLUTION
    for lag in (1, 2, 7):
        correlation = float(np.mean(z[lag:] * z[:-lag]))
        assert abs(correlation) * np.sqrt(COUNT - lag) < stats.norm.isf(ALPHA / 2)


# --- K-norm and Wishart --------------------------------------------------------------------------


def releases(
    mechanism: NoisyStatistic[Any], dim: int, seed: int | None, count: int = 4_000
) -> FloatArray:
    rng = None if seed is None else np.random.default_rng(seed)
    return np.array([mechanism.release(np.zeros((0, dim)), rng) for _ in range(count)])


@lru_cache(maxsize=8)
def gamma_difference(shape: float, scale: float) -> Cdf:
    """The law of scale·(G − G'), G and G' independent Gamma(shape, 1); symmetric."""
    x = np.linspace(0, 40, 401)
    y = (np.arange(5_000) + 0.5) * (60 / 5_000)
    density = stats.gamma.pdf(y, shape) * (60 / 5_000)
    upper = np.array([density @ stats.gamma.cdf(y + value, shape) for value in x]) / density.sum()

    def cdf(value: Any) -> Any:
        tail = np.interp(np.abs(value) / scale, x, upper)
        return np.where(np.asarray(value) < 0, 1 - tail, tail)

    return cdf


@either_mode
def test_knorm_radius_is_gamma_and_direction_uniform(seed: int | None) -> None:
    noise = releases(KNormSum(1.0, SCALE), 3, seed)
    radius = np.linalg.norm(noise, axis=1)
    assert follows(radius / SCALE, stats.gamma(3).cdf)
    assert not follows(radius / SCALE, stats.gamma(2).cdf)
    # Archimedes: a coordinate of a uniform point of the sphere in three dimensions is uniform.
    height = noise[:, 0] / radius
    assert follows(height, stats.uniform(-1, 2).cdf)
    cube = np.random.default_rng(0).uniform(-1, 1, (4_000, 3))  # a direction from a cube
    assert not follows(cube[:, 0] / np.linalg.norm(cube, axis=1), stats.uniform(-1, 2).cdf)


@either_mode
def test_two_sided_wishart_in_one_dimension_is_laplace(seed: int | None) -> None:
    noise = releases(TwoSidedWishart(1.0, SCALE), 1, seed)[:, 0, 0]
    assert follows(noise, stats.laplace(scale=2 * SCALE).cdf)
    assert not follows(noise, stats.laplace(scale=SCALE).cdf)


@either_mode
def test_two_sided_wishart_entries_have_their_laws(seed: int | None) -> None:
    """Diagonal: v(χ²_n − χ²_n), n = d + 1; off it: (v/2)(χ²_2n − χ²_2n), from xy = (s² − t²)/2."""
    d = 3
    noise = releases(TwoSidedWishart(1.0, SCALE), d, seed)
    diagonal, off = gamma_difference((d + 1) / 2, 2 * SCALE), gamma_difference(d + 1, SCALE)
    assert follows(noise[:, 0, 0], diagonal)
    assert follows(noise[:, 0, 2], off)
    assert not follows(noise[:, 0, 0], off)
    assert not follows(1.5 * noise[:, 0, 2], off)


def test_two_sided_wishart_has_the_stated_variances() -> None:
    """2(d+1)v² off the diagonal, 4(d+1)v² on it."""
    d, count = 5, 8_000
    noise = releases(TwoSidedWishart(1.0, SCALE), d, 2, count)
    for entry, variance in (
        (noise[:, 0, 1], 2 * (d + 1) * SCALE**2),
        (noise[:, 1, 1], 4 * (d + 1) * SCALE**2),
    ):
        error = np.std(entry**2) / np.sqrt(count) * stats.norm.isf(ALPHA / 2)
        assert abs(np.mean(entry**2) - variance) < error
        assert abs(np.mean(entry**2) - 1.5 * variance) > error


def test_published_wishart_is_one_sided() -> None:
    """The flaw: noise that is positive definite, always, so the support depends on the data."""
    epsilon, d = 0.5, 3
    noise = releases(PublishedWishart(1.0, epsilon, as_published=True), d, 3)
    assert np.linalg.eigvalsh(noise).min() > 0
    scale = 1 / (2 * epsilon)
    assert follows(noise[:, 1, 1], stats.chi2(d + 1, scale=scale).cdf)
    assert not follows(1.1 * noise[:, 1, 1], stats.chi2(d + 1, scale=scale).cdf)
