"""ε and δ for people: what was spent is printed rounded up, what is left rounded down."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

SAME = 1e-12
"""Two numbers closer than this, relatively, are the same number computed twice: 3 · 1e-5 is printed
as 3e-05, although it is stored as 3.0000000000000004e-05."""


def rounded_up(value: float, digits: int = 4) -> str:
    """Not less than the value.

    >>> rounded_up(4.36849), rounded_up(0.9999999989), rounded_up(3e-5), rounded_up(1e-5 + 1e-5)
    ('4.369', '1', '3e-05', '2e-05')
    """
    return _rounded(value * (1 - SAME), digits, ROUND_CEILING)


def rounded_down(value: float, digits: int = 4) -> str:
    """Not more than the value.

    >>> rounded_down(0.13999), rounded_down(2.0)
    ('0.1399', '2')
    """
    return _rounded(value * (1 + SAME), digits, ROUND_FLOOR)


def odds(chance: float) -> str:
    """One in so many, rounded so that the chance is not shown smaller.

    >>> odds(1e-5), odds(3e-5)
    ('one in 100,000', 'one in 33,333')
    """
    return f"one in {math.floor((1 + SAME) / chance):,}"


def _rounded(value: float, digits: int, direction: str) -> str:
    if not math.isfinite(value):
        return f"{value:g}"
    return f"{float(Context(digits, direction).create_decimal(value)):.{digits}g}"
