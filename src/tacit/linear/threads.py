"""Arithmetic whose bits follow from its arguments: BLAS on one thread, and no data-made errors.

How many threads a product is given decides the order in which it adds. So the number must never
follow the data (one long task among short ones), nor who else computes in this process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController


@cache
def _libraries() -> Any:
    """Looking for the loaded libraries takes milliseconds: once, numpy's BLAS being loaded."""
    return ThreadpoolController()


class _Limit:
    """The limit is the process's: who comes first sets it, who leaves last lifts it."""

    def __init__(self) -> None:
        self._lock, self._inside = Lock(), 0
        self._set: Any = None

    def enter(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._set = _libraries().limit(limits=1, user_api="blas")
            self._inside += 1

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._set is not None:
                self._set.restore_original_limits()


_LIMIT = _Limit()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """``with one_blas_thread(): ...``"""
    _LIMIT.enter()
    try:
        yield
    finally:
        _LIMIT.leave()


@contextmanager
def isolated() -> Iterator[None]:
    """One BLAS thread, and floating-point warnings off: no number in the data is an error.

    A block, or ``@isolated()`` over a function. What overflows is NaN or infinite in its own task.

    >>> with isolated():
    ...     print(np.array([1e300]) * 1e300)
    [inf]
    """
    with one_blas_thread(), np.errstate(all="ignore"):
        yield
