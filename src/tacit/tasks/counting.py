"""Whole numbers that name tasks, counted instead of sorted: millions of rows, on all cores."""

from __future__ import annotations

import numpy as np

from tacit.arrays import Array, IntArray
from tacit.machine import of_slices

MANY = 2**20
"""Numbers that one core looks at, where there are more."""


def counted(values: Array) -> tuple[tuple[int, ...], IntArray] | None:
    """The distinct ones and the place of each, as of ``np.unique``; None where they lie far apart.

    >>> counted(np.array([7, 5, 7]))
    ((5, 7), array([1, 0, 1]))
    """
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, -1)
    if high - low >= 2 * len(values) or high >= 2**63:
        return None
    occurs = np.zeros(high - low + 1, dtype=bool)

    def note(rows: slice) -> None:
        occurs[values[rows].astype(np.int64) - low] = True

    of_slices(note, len(values), MANY)
    labels, place = np.flatnonzero(occurs) + low, np.cumsum(occurs) - 1
    codes = np.empty(len(values), dtype=np.int64)

    def look_up(rows: slice) -> None:
        codes[rows] = place[values[rows].astype(np.int64) - low]

    of_slices(look_up, len(values), MANY)
    return tuple(labels.tolist()), codes
