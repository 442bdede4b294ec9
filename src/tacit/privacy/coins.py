"""Exact coins: Bernoulli(e^−x), geometric numbers and uniform integers, from uniform words alone.

As in ``noise``, fixed-width numbers only filter: where the known bits of a uniform do not settle a
comparison, it is settled in big integers, with as many further bits as it takes. So every law below
holds exactly if the words are uniform, however rare an outcome is.

Exponents x are integers in units of 2^−52.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from tacit.arrays import BoolArray, IntArray
from tacit.privacy.big_integers import UNIT_BITS, series
from tacit.privacy.noise import Source, is_below

EXPONENT_BITS = 52


def exponent_below(x: float) -> int:
    """The largest exponent that is at most x ≥ 0: e^−x of it is never smaller.

    >>> exponent_below(0.5) == 2**51
    True
    """
    return math.floor(math.ldexp(x, EXPONENT_BITS))


def falls(exponents: IntArray, source: Source) -> BoolArray:
    """True with probability e^−x, each; x ≥ 0.

    A word gives 53 bits w of a uniform U in [w, w + 1)/2^53. Floats know e^−x to a relative 2^−42
    (x < 2^10 is rounded to 2^−53 of itself): what lies clearly on one side is settled.

    >>> from tacit.privacy.noise import SimulatedSource
    >>> falls(np.zeros(3, dtype=np.int64), SimulatedSource(np.random.default_rng(0)))
    array([ True,  True,  True])
    """
    words = source.words(exponents.size)
    w = (words >> np.uint64(11)).astype(np.float64)
    level = np.exp(exponents * -(2.0**-EXPONENT_BITS)) * 2.0**53
    fallen: BoolArray = w + 1 <= level * (1 - 2.0**-42)
    for i in np.flatnonzero(~fallen & (w <= level * (1 + 2.0**-42))):
        level = partial(series, int(exponents[i]) << (UNIT_BITS - EXPONENT_BITS), 0)
        fallen[i] = exponents[i] == 0 or is_below(level, int(words[i]), 64, source)
    return fallen


def below(bound: int, count: int, source: Source) -> IntArray:
    """Uniform integers in [0, bound), bound ≤ 2^62: first bits of words, again where too large.

    >>> from tacit.privacy.noise import SimulatedSource
    >>> sorted(set(below(3, 100, SimulatedSource(np.random.default_rng(0))).tolist()))
    [0, 1, 2]
    """
    bits = (bound - 1).bit_length()
    found = np.zeros(count, dtype=np.int64)
    again = np.arange(count if bits else 0)
    while again.size:
        found[again] = (source.words(again.size) >> np.uint64(64 - bits)).astype(np.int64)
        again = again[found[again] >= bound]
    return found


def geometric(exponent: int, count: int, source: Source) -> IntArray:
    """k with P(k) = (1 − b) b^k, b = e^−x, x > 0.

    The binary digits of k are independent, since b^k = Π b^{2^i · digit}: digit i is 1 with odds
    b^{2^i}. Digits are drawn while 2^i x < 1; what is left of k is geometric with b^{2^i} ≤ 1/e,
    and counts coins until the first that does not fall.
    """
    found = np.zeros(count, dtype=np.int64)
    place = 1
    while exponent < 1 << EXPONENT_BITS:
        found += place * _digits(exponent, count, source)
        exponent, place = 2 * exponent, 2 * place
    alive = np.arange(count)
    while alive.size:
        alive = alive[falls(np.full(alive.size, exponent), source)]
        found[alive] += place
    return found


def _digits(exponent: int, count: int, source: Source) -> IntArray:
    """1 with odds e^−x: a fair digit, of which a 1 stays with probability e^−x, else again."""
    found = np.zeros(count, dtype=np.int64)
    again = np.arange(count)
    while again.size:
        found[again] = below(2, again.size, source)
        stays = falls(np.full(again.size, exponent), source)
        again = again[(found[again] == 1) & ~stays]
    return found
