"""Exponentials and normal probabilities in big integers, to as many bits as asked.

Exponents are integers in units of 2^−55, edges in units of h = 2^−27, so that z²/2 = c²/2^55 at
z = c·h.
"""

from __future__ import annotations

import math
from functools import lru_cache

UNIT_BITS = 55


def rounded_shift(value: int, by: int) -> int:
    """value / 2^by, to the nearest integer."""
    return (value + (1 << (by - 1))) >> by


def series(exponent: int, step: int, bits: int) -> int:
    """2^bits Σ_n (−x)^n / (n! (step·n + 1)), x = exponent/2^55, with an error below 1.

    Terms are at most e^x < 2^{1.5x}. Flooring each of N < 2^29 terms costs at most N e^x units in
    each later term, N² e^x < 2^{58+1.5x} in all; there are 2^{64+1.5x} units in the result's last
    bit. What is cut off is alternating and below one unit.
    """
    guard = 64 + ((3 * exponent) >> (UNIT_BITS + 1))
    total, n, term = 0, 0, 1 << (bits + guard)
    while term:
        total += (-1) ** n * (term // (step * n + 1))
        n += 1
        term = term * exponent // (n << UNIT_BITS)
    return rounded_shift(total, guard)


def _inverse_arctan(n: int, bits: int) -> int:
    """2^bits arctan(1/n), with an error below the number of terms."""
    total, k, power = 0, 0, (1 << bits) // n
    while power:
        total += (-1) ** k * (power // (2 * k + 1))
        k, power = k + 1, power // (n * n)
    return total


@lru_cache(maxsize=64)
def _root_two_over_pi(bits: int) -> int:
    """2^bits √(2/π), with an error below 16 × bits; π by Machin's formula."""
    pi = 16 * _inverse_arctan(5, bits) - 4 * _inverse_arctan(239, bits)
    return math.isqrt((2 << (3 * bits)) // pi)


def half_normal_below(edge: int, bits: int) -> int:
    """2^bits P(|z| < t), t = edge·h, z standard normal, with an error below 1.

    P = √(2/π) t Σ_n (−t²/2)^n / (n! (2n+1)); 64 guard bits hold the errors of both factors.

    >>> half_normal_below(2**27, 64) / 2**64  # P(|z| < 1)
    0.6826894921370859
    """
    wide = bits + 64
    product = _root_two_over_pi(wide) * edge * series(edge * edge, 2, wide)
    return rounded_shift(product, 2 * wide - bits + 27)  # h = 2^−27


def exponential_below(edge: int, bits: int) -> int:
    """2^bits P(|z| < t) = 2^bits (1 − e^−t), t = edge·h, with an error below 1.

    >>> exponential_below(2**27, 64) / 2**64
    0.6321205588285577
    """
    return (1 << bits) - series(edge << 28, 0, bits)
