"""The cores and the memory of this process."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
_KEPT = 31 << 20


@cache
def cores_here() -> int:
    """How many this process may use. The system is asked once: its answer takes as long as the work
    on a small batch, and what was decided by it stays so for the process.

    >>> 1 <= cores_here() <= (os.cpu_count() or 1)
    True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def of_slices(work: Callable[[slice], T], n: int, most: int) -> list[T]:
    """work(rows) of n rows, so many at a time, on all cores, in their order: for elementwise work
    on large arrays, which numpy does without holding Python up.

    >>> of_slices(lambda rows: rows.stop - rows.start, 5, 2)
    [2, 2, 1]
    """
    rows = [slice(start, min(start + most, n)) for start in range(0, n, most)]
    cores = min(cores_here(), len(rows))
    if cores <= 1:
        return list(map(work, rows))
    keep_memory()
    found: list[Any] = [None] * len(rows)
    left = iter(range(len(rows)))  # whoever is free takes the next

    def some() -> None:
        for i in left:
            found[i] = work(rows[i])

    with ThreadPoolExecutor(cores) as pool:
        for done in [pool.submit(some) for _ in range(cores)]:
            done.result()
    return found


@cache
def keep_memory() -> None:
    """Lets arrays of a few megabytes be made of memory that others have left. By default glibc
    hands it back to the system and asks for it again, zeroed page by page, at every operation: a
    tenth of the time, for which all threads wait in turn. What it keeps follows from the largest
    array that was given back (mallopt(3), M_MMAP_THRESHOLD), so one is: no page of it is touched.
    """
    np.empty(_KEPT, dtype=np.uint8)
