"""Noise: where randomness comes from, and exact rounded Gaussian and Laplace samplers.

Floating-point noise betrays the value it was added to in its low bits (docs/privacy.md, G). Secure
noise is an integer k, and the released value is k·g on a public grid g = σ/R:

    P(k) = F((k + ½)/R) − F((k − ½)/R),    R = RESOLUTION, F the normal or the Laplace law,

the continuous noise, rounded. If the sum is a multiple of g too, then sum + k·g is the continuous
release rounded to the grid: post-processing, so its guarantee carries over unchanged.

**The sampler is exact**, in this sense: if the words are uniform, k has exactly the law above.

1. |z| falls in a bucket of width 1/64. A word u selects it: U = 0.u… in binary is compared with the
   thresholds P(|z| < b/64), of which 64 bits are tabulated. Mostly the first 16 bits of a word
   settle it; where they do not, 48 of another word follow them.
2. A bucket has 2²¹ cells of width h = 1/(2R). The other 48 bits of the word are a sign, a cell j
   and 26 bits of a uniform V. The cell is accepted if V < r, r = mass of cell j / mass of cell 0
   ≤ 1, since both densities fall with |z|; where 26 bits do not settle that, 16 of another word
   follow them. A rejected cell is drawn again, of a new word, the bucket never.
3. Cell c = ⌊|z|/h⌋ is rounded to the nearest multiple of 1/R: k = ±⌊(c + 1)/2⌋. Cell 0 gives
   k = 0 with either sign.

Fixed-width numbers only *filter*. Where the known bits of U or V do not settle a comparison
(probability about 2⁻⁴⁰ a value), it is settled in big integers, with as many further bits of the
uniform as it takes. So neither the table nor the rounding of exp adds any error:

    table 0 + tail 0 + float 0 + cell mass 0 = 0, the statistical distance of a value from its law.

(64-bit integers hold all exponents while |z| < 2¹³; beyond lies less than exp(−2¹³).)
What remains is an assumption: the operating system's words cannot be told from uniform ones.
Nothing here runs in constant time: an observer of the clock is not covered.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar, Protocol

import numpy as np

from tacit.arrays import BoolArray, IntArray
from tacit.machine import cores_here, keep_memory
from tacit.privacy.big_integers import UNIT_BITS, exponential_below, half_normal_below

WordArray = np.ndarray[Any, np.dtype[np.uint64]]

Rng = np.random.Generator | None
"""Of a release: None is secure noise from the operating system, a generator is a simulation."""

RESOLUTION = 2**26
"""Grid points of secure noise in one standard deviation (Gaussian) or one scale (Laplace)."""

_CELL_BITS = 21  # cells in a bucket: 2R/64
_GUIDE_BITS = 16
_FIRST_BITS = 26  # 64 = 16 (guide) + 1 (sign) + 21 (cell) + 26 (accept)
_ACCEPT_BITS = 42  # with 16 more, where 26 do not settle it
_OTHERS = np.uint64(2 ** (64 - _GUIDE_BITS) - 1)  # the bits of a word that are not the guide's
_CHUNK = 2**15  # values at a time: what they need stays in the cache


# --- where randomness comes from -----------------------------------------------------------------


class Source(Protocol):
    """Independent uniform 64-bit words."""

    secure: ClassVar[bool]

    def words(self, n: int) -> WordArray:
        """The next n words."""
        ...


@dataclass(frozen=True)
class SecureSource:
    """Words from the operating system."""

    secure: ClassVar[bool] = True

    def words(self, n: int) -> WordArray:
        """The next n words."""
        return np.frombuffer(os.urandom(8 * n), dtype=np.uint64)


@dataclass(frozen=True)
class SimulatedSource:
    """Words from a generator: reproducible, so not secret."""

    rng: np.random.Generator
    secure: ClassVar[bool] = False

    def words(self, n: int) -> WordArray:
        """The next n words."""
        return self.rng.integers(0, 2**64 - 1, size=n, dtype=np.uint64, endpoint=True)


def words_of(rng: Rng) -> Source:
    """The operating system's words, or a simulation's."""
    return SecureSource() if rng is None else SimulatedSource(rng)


def system_generator() -> np.random.Generator:
    """A fresh generator keyed with 128 bits of the operating system.

    For the laws that have no exact sampler here (K-norm, Wishart): unpredictable, but drawn in
    floating point. Their mechanisms snap to a public grid, say secure_noise=False, and claim no
    δ = 0.
    """
    return np.random.Generator(np.random.Philox(key=int.from_bytes(os.urandom(16))))


# --- the two laws --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Law:
    """The law of |z| on cells of width h, with density ∝ exp(−exponent)."""

    below: Callable[[int, int], int]  # (edge, bits): 2^bits P(|z| < edge·h), error below 1
    exponent: Callable[[int], int]  # at an edge, in units of 2^−55
    rise: Callable[[IntArray, IntArray], IntArray]  # exponent of first + j less that of first


def _gaussian_rise(first: IntArray, j: IntArray) -> IntArray:
    """(z_j² − z_0²)/2 between the centres z = (first + j + ½)h and (first + ½)h.

    The mass of a cell is hφ(z)(1 + h²(z² − 1)/24 + …): the ratio of two cells of one bucket is
    exp(−rise) up to a factor 1 ± h² z/(24·32), which is 1 ± 2^−50 while z < 2^13.
    """
    rise = 2 * first
    rise += j
    rise += 1
    rise *= j
    return rise


def _exponential_rise(first: IntArray, j: IntArray) -> IntArray:
    """j·h: without memory, the ratio of two cells is exp(−rise) exactly, in every bucket."""
    return j << 28


_GAUSSIAN = _Law(half_normal_below, lambda edge: edge * edge, _gaussian_rise)
_EXPONENTIAL = _Law(exponential_below, lambda edge: edge << 28, _exponential_rise)


def _mass_ratio(law: _Law, first: int, cell: int, bits: int) -> int:
    """2^bits · mass of cell / mass of first, with an error below 1.

    A mass is at least 2^−30 e^−x, of which bits + 34 bits are kept.
    """
    wide = bits + 64 + ((3 * law.exponent(cell + 1)) >> (UNIT_BITS + 1))
    mass = law.below(cell + 1, wide) - law.below(cell, wide)
    mass_first = law.below(first + 1, wide) - law.below(first, wide)
    return ((mass << (bits + 1)) // mass_first + 1) >> 1


# --- choosing a bucket ---------------------------------------------------------------------------


@lru_cache(maxsize=2)
def _table(law: _Law) -> tuple[WordArray, np.ndarray[Any, np.dtype[np.int16]]]:
    """Thresholds ⌊2^64 P(|z| < b/64)⌋ for b = 1, 2, … until 2^64 − 1; and the guide.

    The guide maps the first 16 bits of a word to its bucket, or to −1 if they do not settle it.
    """
    thresholds: list[int] = [0]
    while thresholds[-1] < 2**64 - 1:
        thresholds.append(law.below(len(thresholds) << _CELL_BITS, 128) >> 64)
    table = np.array(thresholds[1:], dtype=np.uint64)
    lowest = np.arange(2**_GUIDE_BITS, dtype=np.uint64) << np.uint64(64 - _GUIDE_BITS)
    guide = _settled(table, lowest, lowest + np.uint64(2 ** (64 - _GUIDE_BITS) - 1))
    return table, guide.astype(np.int16)


def _settled(table: WordArray, low: WordArray, high: WordArray) -> IntArray:
    """The bucket of all uniforms whose word is in [low, high], −1 where they have several.

    A threshold is in [T − 2^−64, T + 1 + 2^−64], so a word u is below it for certain if u < T − 1,
    and above if u > T + 1.
    """
    above = np.searchsorted(table, np.maximum(low, np.uint64(1)) - np.uint64(1), side="left")
    reached = np.minimum(high, np.uint64(2**64 - 2)) + np.uint64(1)
    not_below = np.searchsorted(table, reached, side="right")
    return np.where(above == not_below, above, -1)


def _settle_bucket(law: _Law, prefix: int, source: Source) -> int:
    """The bucket of U = 0.prefix…, drawing further bits of U as needed."""
    bits, bucket = 64, 0
    while True:
        edge = law.below((bucket + 1) << _CELL_BITS, bits)
        if prefix >= edge + 1:  # U ≥ prefix/2^bits ≥ P(|z| < upper edge)
            bucket += 1
        elif prefix + 2 <= edge:  # U < (prefix + 1)/2^bits ≤ P(|z| < upper edge)
            return bucket
        else:
            prefix, bits = (prefix << 64) | int(source.words(1)[0]), bits + 64


def _buckets(words: WordArray, law: _Law, source: Source) -> IntArray:
    """Independent buckets by the first 16 bits of each word: the guide settles all but 1% of them,
    48 further bits and the table all but 2^−50."""
    table, guide = _table(law)
    guided = (words >> np.uint64(64 - _GUIDE_BITS)).view(np.int64)
    buckets: IntArray = guide[guided].astype(np.int64)
    open_ = np.flatnonzero(buckets < 0)
    if open_.size:
        more = source.words(open_.size) >> np.uint64(_GUIDE_BITS)
        whole = (words[open_] & ~_OTHERS) | more
        buckets[open_] = _settled(table, whole, whole)
        for i, word in zip(open_, whole, strict=True):
            if buckets[i] < 0:
                buckets[i] = _settle_bucket(law, int(word), source)
    return buckets


# --- choosing a cell, and rounding ---------------------------------------------------------------


def is_below(level: Callable[[int], int], prefix: int, bits: int, source: Source) -> bool:
    """Is a uniform V = 0.prefix…, of which so many bits are known, below a number x?

    level(bits) is 2^bits x, with an error below 1. Draws further bits of V as needed.
    """
    while True:
        x = level(bits)
        if prefix + 2 <= x:
            return True
        if prefix >= x + 1:
            return False
        prefix, bits = (prefix << 64) | int(source.words(1)[0]), bits + 64


def _accepted(law: _Law, first: IntArray, j: IntArray, v: IntArray, source: Source) -> BoolArray:
    """V < r for each proposal, v being the first 26 bits of V.

    r ≥ 1 − rise (up to 2^−43), in integers, accepts 99% of the Gaussian proposals.
    """
    rise = law.rise(first, j)
    accepted = _surely_accepted(v, rise)
    open_ = np.flatnonzero(~accepted)
    if open_.size:
        bits = _ACCEPT_BITS - _FIRST_BITS
        more = (source.words(open_.size) >> np.uint64(64 - bits)).view(np.int64)
        longer = (v[open_] << bits) | more
        accepted[open_] = _below_ratio(law, first[open_], j[open_], longer, source)
    return accepted


def _surely_accepted(v: IntArray, rise: IntArray) -> BoolArray:
    """V < (v + 1)/2^26 ≤ 1 − rise − 2^−43 ≤ r, whatever the further bits of V."""
    least = rise >> (UNIT_BITS - _FIRST_BITS)
    least += v
    return np.asarray(least <= 2**_FIRST_BITS - 3)


def _below_ratio(law: _Law, first: IntArray, j: IntArray, v: IntArray, source: Source) -> BoolArray:
    """The same by the first 42 bits of V: exp is good to one unit of 2^−42 if its relative error
    is below 2^−43, a thousand ulps."""
    ratio = np.exp(law.rise(first, j) * -(2.0**-UNIT_BITS)) * 2.0**_ACCEPT_BITS
    below = np.asarray(v + 2 <= ratio)
    for i in np.flatnonzero(np.abs(v - ratio) < 2):
        cells = int(first[i]), int(first[i] + j[i])
        below[i] = is_below(partial(_mass_ratio, law, *cells), int(v[i]), _ACCEPT_BITS, source)
    return below


def _proposals(
    law: _Law, first: IntArray, words: WordArray, source: Source
) -> tuple[IntArray, BoolArray]:
    """One k for each bucket that starts at cell first, by the last 48 bits of its word, and whether
    it is accepted."""
    bits = (words & _OTHERS).view(np.int64)
    j = bits >> _FIRST_BITS
    minus = -(j >> _CELL_BITS)  # 0 or −1
    j &= 2**_CELL_BITS - 1
    bits &= 2**_FIRST_BITS - 1
    k = first + j
    k += 1
    k >>= 1
    k ^= minus
    k -= minus  # −k where minus = −1, in two's complement
    return k, _accepted(law, first, j, bits, source)


def _rounded(count: int, law: _Law, source: Source) -> IntArray:
    words = source.words(count)
    first = _buckets(words, law, source)
    first <<= _CELL_BITS
    k, accepted = _proposals(law, first, words, source)
    while (again := np.flatnonzero(~accepted)).size:
        words = source.words(again.size)
        k[again], accepted[again] = _proposals(law, first[again], words, source)
    return k


def _in_chunks(shape: int | tuple[int, ...], law: _Law, source: Source) -> IntArray:
    """The operating system's words have no order: their chunks are drawn on all cores at once."""
    keep_memory()
    out = np.empty(shape, dtype=np.int64)
    flat = out.reshape(-1)

    def draw(start: int) -> None:
        chunk = flat[start : start + _CHUNK]
        chunk[:] = _rounded(chunk.size, law, source)

    starts = range(0, flat.size, _CHUNK)
    if source.secure and len(starts) > 1:
        with ThreadPoolExecutor(min(len(starts), cores_here())) as pool:
            list(pool.map(draw, starts))
    else:
        for start in starts:
            draw(start)
    return out


def rounded_gaussian(shape: int | tuple[int, ...], source: Source) -> IntArray:
    """k with P(k) = Φ((k+½)/R) − Φ((k−½)/R), exactly; k·σ/R is N(0, σ²) rounded to the grid σ/R.

    >>> k = rounded_gaussian(10_000, SimulatedSource(np.random.default_rng(0)))
    >>> round(float(np.std(k / RESOLUTION)), 1)
    1.0
    """
    return _in_chunks(shape, _GAUSSIAN, source)


def rounded_laplace(shape: int | tuple[int, ...], source: Source) -> IntArray:
    """k with P(k) = F((k+½)/R) − F((k−½)/R), exactly, F(x) = 1 − e^−x/2 for x ≥ 0.

    >>> k = rounded_laplace(10_000, SimulatedSource(np.random.default_rng(0)))
    >>> round(float(np.mean(np.abs(k / RESOLUTION))), 1)
    1.0
    """
    return _in_chunks(shape, _EXPONENTIAL, source)
