"""The exact samplers: tables, filters, and the big integers behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from typing import ClassVar

import numpy as np
import pytest
from scipy.special import erf

from tacit.arrays import FloatArray, IntArray
from tacit.privacy import big_integers, float_laws, noise
from tacit.privacy.noise import (
    RESOLUTION,
    SecureSource,
    SimulatedSource,
    Source,
    WordArray,
    rounded_gaussian,
    rounded_laplace,
)

LAWS = {"gaussian": noise._GAUSSIAN, "laplace": noise._EXPONENTIAL}
ALL_ONES = 2**64 - 1
Sampler = Callable[[tuple[int, ...], Source], IntArray]


@dataclass
class Script:
    """A source that hands out the given words, and knows what is left."""

    left: list[int] = field(default_factory=list)
    secure: ClassVar[bool] = False

    def words(self, n: int) -> WordArray:
        taken, self.left = self.left[:n], self.left[n:]
        assert len(taken) == n, "more words drawn than scripted"
        return np.array(taken, dtype=np.uint64)


def word_of(guide: int, v: int, minus: int, j: int) -> int:
    return guide << 48 | minus << 47 | j << 26 | v


def as_words(*words: int) -> WordArray:
    return np.array(words, dtype=np.uint64)


# --- sources -------------------------------------------------------------------------------------


def test_sources_give_64_bit_words() -> None:
    for source in (SecureSource(), SimulatedSource(np.random.default_rng(0))):
        words = source.words(1000)
        assert words.shape == (1000,)
        assert words.dtype == np.uint64
        assert np.bitwise_or.reduce(words) == ALL_ONES
        assert np.bitwise_and.reduce(words) == 0


def test_only_the_operating_system_is_secure() -> None:
    assert SecureSource().secure
    assert not SimulatedSource(np.random.default_rng(0)).secure


def test_secure_noise_does_not_repeat() -> None:
    source = SecureSource()
    assert not np.array_equal(rounded_gaussian(8, source), rounded_gaussian(8, source))


def test_simulated_noise_repeats_with_the_seed() -> None:
    for sampler in (rounded_gaussian, rounded_laplace):
        first, second = (sampler(100, SimulatedSource(np.random.default_rng(7))) for _ in "ab")
        np.testing.assert_array_equal(first, second)


def test_system_generators_differ() -> None:
    draws = {noise.system_generator().integers(2**63) for _ in range(4)}
    assert len(draws) == 4


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2**16 + 1,)])
@pytest.mark.parametrize("sampler", [rounded_gaussian, rounded_laplace])
def test_any_shape_is_filled(sampler: Sampler, shape: tuple[int, ...]) -> None:
    k = sampler(shape, SimulatedSource(np.random.default_rng(1)))
    assert k.shape == shape
    assert k.dtype == np.int64
    assert np.all(np.abs(k) < 50 * RESOLUTION)


# --- big integers --------------------------------------------------------------------------------


def test_half_normal_has_the_known_digits() -> None:
    known = "0.6826894921370858971704650912640758449558259334532087819747889004"
    with localcontext() as context:
        context.prec = 90
        found = Decimal(big_integers.half_normal_below(2 * RESOLUTION, 256)) / Decimal(2**256)
        assert abs(found - Decimal(known)) < Decimal("1e-63")


@pytest.mark.parametrize("edge", [1, 2**21, 12345 << 12, 2 * RESOLUTION, 19 * RESOLUTION])
def test_exponential_agrees_with_decimal(edge: int) -> None:
    with localcontext() as context:
        context.prec = 120
        exact = (1 - (-Decimal(edge) / Decimal(2 * RESOLUTION)).exp()) * Decimal(2**256)
        assert abs(big_integers.exponential_below(edge, 256) - exact) < 1


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
@pytest.mark.parametrize("edge", [0, 1, 3 * RESOLUTION + 1, 18 * RESOLUTION, 60 * RESOLUTION])
def test_few_bits_agree_with_many(law: noise._Law, edge: int) -> None:
    many = law.below(edge, 512)
    for bits in (42, 64, 128):
        assert abs((law.below(edge, bits) << (512 - bits)) - many) < 1 << (512 - bits)


def test_table_agrees_with_scipy() -> None:
    gaussian, _ = noise._table(noise._GAUSSIAN)
    laplace, _ = noise._table(noise._EXPONENTIAL)
    z = np.arange(1, len(gaussian) + 1) / 64
    np.testing.assert_allclose(gaussian / 2.0**64, erf(z / np.sqrt(2)), rtol=0, atol=1e-15)
    z = np.arange(1, len(laplace) + 1) / 64
    np.testing.assert_allclose(laplace / 2.0**64, -np.expm1(-z), rtol=0, atol=1e-15)


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_table_rises_until_the_tail_fits_no_word(law: noise._Law) -> None:
    table, _ = noise._table(law)
    assert np.all(table[1:] >= table[:-1])
    assert table[-1] == ALL_ONES


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_guide_agrees_with_the_table(law: noise._Law) -> None:
    table, guide = noise._table(law)
    words = SecureSource().words(20_000)
    guided = guide[words >> np.uint64(48)]
    settled = guided >= 0
    assert settled.mean() > 0.98
    expected = np.searchsorted(table, words, side="right")
    np.testing.assert_array_equal(guided[settled], expected[settled])


# --- what the fixed-width numbers do not settle --------------------------------------------------


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
@pytest.mark.parametrize("b", [0, 17, 100, 400])
def test_word_on_a_threshold_is_settled_by_further_bits(law: noise._Law, b: int) -> None:
    table, _ = noise._table(law)
    word = int(table[b])
    taken, rest = as_words(word), (word % 2**48) << 16
    more = law.below((b + 1) << 21, 192) - (word << 128)  # the next 128 bits of the threshold
    for next_, bucket in ((0, b), ((more >> 64) - 2, b), ((more >> 64) + 2, b + 1)):
        source = Script([rest, next_, 0, 0])
        assert noise._buckets(taken, law, source)[0] == bucket
        assert len(source.left) == 2


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_bits_of_the_cell_are_none_of_the_bucket(law: noise._Law) -> None:
    table, _ = noise._table(law)
    word, others = int(table[30]), word_of(0, 2**26 - 1, 1, 2**21 - 1)
    for offset, bucket in ((-(2**17), 30), (2**17, 31)):
        found = {
            int(noise._buckets(as_words(given), law, Script([(word + offset) % 2**48 << 16]))[0])
            for given in (word & ~others, word | others)
        }
        assert found == {bucket}


def test_words_beyond_the_table_reach_the_tail() -> None:
    source = Script([ALL_ONES] * 2 + [0])
    bucket = int(noise._buckets(as_words(ALL_ONES), noise._EXPONENTIAL, source)[0])
    assert bucket > len(noise._table(noise._EXPONENTIAL)[0])
    assert abs(bucket / 64 - 2 * 64 * np.log(2)) < 1  # P(|z| > t) = 2^−128


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_filter_agrees_with_big_integers_near_the_ratio(law: noise._Law) -> None:
    rng = np.random.default_rng(3)
    first = rng.integers(0, 500, 40) << 21
    j = rng.integers(0, 2**21, 40)
    exact = [noise._mass_ratio(law, int(f), int(f + i), 42) for f, i in zip(first, j, strict=True)]
    for offset in (-9, -4, 4, 9):
        v = np.array(exact) + offset
        keep = v < 2**42
        accepted = noise._below_ratio(law, first[keep], j[keep], v[keep], Script())
        np.testing.assert_array_equal(accepted, np.full(keep.sum(), offset < 0))


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_first_bits_accept_only_what_all_further_ones_would(law: noise._Law) -> None:
    rng = np.random.default_rng(4)
    first, j = rng.integers(0, 500, 40) << 21, rng.integers(0, 2**21, 40)
    exact = np.array(
        [noise._mass_ratio(law, int(f), int(f + i), 42) for f, i in zip(first, j, strict=True)]
    )
    for offset in range(-4, 4):
        v = np.minimum((exact >> 16) + offset, 2**26 - 1)
        sure = noise._surely_accepted(v, law.rise(first, j))
        assert not (sure & ((v + 1) << 16 > exact - 1)).any()
    easy = noise._surely_accepted((exact >> 16) * 9 // 10, law.rise(first, j))
    assert easy.all()


@pytest.mark.parametrize("further", [0, ALL_ONES])
def test_further_bits_of_the_uniform_settle_a_cell(further: int) -> None:
    first, j = 100 << 21, 2_000_000
    v = noise._mass_ratio(noise._GAUSSIAN, first, first + j, 42) >> 16  # r is between v and v + 1
    source = Script([further])
    found = noise._accepted(noise._GAUSSIAN, as_ints(first), as_ints(j), as_ints(v), source)
    assert found[0] == (further == 0)
    assert not source.left


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_proposal_on_the_ratio_is_settled_by_further_bits(law: noise._Law) -> None:
    first, j = 100 << 21, 2_000_000
    ratio = noise._mass_ratio(law, first, first + j, 42 + 64 + 64)
    v, more = ratio >> 128, (ratio >> 64) % 2**64
    for next_, accepted in ((more - 2, True), (more + 2, False)):
        source = Script([next_])
        found = noise._below_ratio(law, as_ints(first), as_ints(j), as_ints(v), source)
        assert found[0] == accepted
        assert not source.left


def test_centre_of_a_cell_stands_for_its_mass() -> None:
    """The filter's exp(−rise) is the exact ratio of masses to well within its margin 2^−43."""
    for first, j in ((0, 5), (0, 2**21 - 1), (300 << 21, 12345), (580 << 21, 2**21 - 1)):
        exact = noise._mass_ratio(noise._GAUSSIAN, first, first + j, 80)
        rise = int(noise._gaussian_rise(as_ints(first), as_ints(j))[0])
        centre = big_integers.series(rise, 0, 80)
        assert abs(centre - exact) < 2 ** (80 - 56)


def test_exp_is_far_better_than_the_filter_needs() -> None:
    x = -np.random.default_rng(0).uniform(0, 0.15, 500)
    with localcontext() as context:
        context.prec = 40
        exact = [Decimal(float(value)).exp() for value in x]
        errors = [abs(Decimal(float(e)) / t - 1) for e, t in zip(np.exp(x), exact, strict=True)]
    assert max(errors) < Decimal(2) ** -50


def as_ints(value: int) -> IntArray:
    return np.array([value], dtype=np.int64)


# --- cells to noise ------------------------------------------------------------------------------


def test_rejected_cell_is_redrawn_in_the_same_bucket() -> None:
    table, _ = noise._table(noise._GAUSSIAN)
    middle = (int(table[99]) + int(table[100])) // 2  # bucket 100
    refused = word_of(middle >> 48, 2**26 - 1, 0, 2**21 - 1)
    source = Script([refused, ALL_ONES, word_of(0, 0, 1, 7)])
    k = noise._rounded(1, noise._GAUSSIAN, source)
    assert k[0] == -(((100 << 21) + 7 + 1) // 2)
    assert not source.left


@pytest.mark.parametrize(
    ("cell", "k"), [(0, 0), (1, 1), (2, 1), (3, 2), (4, 2)], ids=lambda value: str(value)
)
def test_cells_round_to_the_nearest_grid_point(cell: int, k: int) -> None:
    for minus, sign in ((0, 1), (1, -1)):
        source = Script([word_of(0, 0, minus, cell)])
        assert noise._rounded(1, noise._GAUSSIAN, source)[0] == sign * k


# --- laws in floating point ----------------------------------------------------------------------


def test_float_laws_handle_no_and_one_dimension() -> None:
    rng = np.random.default_rng(0)
    shapes: list[FloatArray] = [
        float_laws.knorm(0, rng),
        float_laws.knorm(1, rng),
        float_laws.wishart(0, rng),
    ]
    assert [x.shape for x in shapes] == [(0,), (1,), (0, 0)]
    assert float_laws.wishart(1, rng)[0, 0] > 0
