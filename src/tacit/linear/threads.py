"""Arithmetic whose bits follow from its arguments: BLAS on one thread, and no data-made errors.

How many threads a product is given decides the order in which it adds. So the number must never
follow the data (one long task among short ones), nor who else computes in this process. Cores are
used by working on several tasks at a time (``on_all_cores``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ContextDecorator
from functools import cache
from threading import Lock, local
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from tacit.machine import cores_here, keep_memory


@cache
def _libraries() -> tuple[Any, ...]:
    """Looking for the loaded libraries takes milliseconds: once, numpy's BLAS being loaded."""
    return tuple(lib for lib in ThreadpoolController().lib_controllers if lib.user_api == "blas")


def _limited() -> Callable[[], None]:
    """What lifts the limit again. threadpoolctl's own asks each library all that it knows of it,
    which takes as long as a small batch."""
    before = [(library, library.num_threads) for library in _libraries()]
    for library, _ in before:
        library.set_num_threads(1)

    def lift() -> None:
        for library, threads in before:
            library.set_num_threads(threads)

    return lift


def _take_control() -> None:
    """threadpoolctl lets one thread at a time set OpenBLAS's, and ignores the others in silence."""
    for library in _libraries():
        clear = getattr(library, "clear_controlling_thread", None)  # since 3.7
        if clear is not None:
            clear(force=True)


class _Limit:
    """Who comes first sets the process's limit, who leaves last lifts it; each thread sets its own,
    as a BLAS that is built on OpenMP has one for each."""

    def __init__(self) -> None:
        self._lock, self._inside, self._here = Lock(), 0, local()
        self._first: Any = None

    def enter(self) -> None:
        self._here.depth = getattr(self._here, "depth", 0) + 1
        if self._here.depth > 1:
            return
        with self._lock:
            if self._inside == 0:
                _take_control()
                self._first = _limited()
            self._inside += 1
            self._here.mine = _limited()

    def leave(self) -> None:
        self._here.depth -= 1
        if self._here.depth > 0:
            return
        with self._lock:
            self._here.mine()
            self._inside -= 1
            if self._inside == 0:
                _take_control()
                self._first()
                _take_control()


_LIMIT = _Limit()


class one_blas_thread(ContextDecorator):  # used as functions are
    """``with one_blas_thread(): ...``"""

    def __enter__(self) -> None:
        _LIMIT.enter()

    def __exit__(self, *_: object) -> None:
        _LIMIT.leave()


class isolated(ContextDecorator):
    """One BLAS thread, and floating-point warnings off: no number in the data is an error.

    A block, or ``@isolated()`` over a function. What overflows is NaN or infinite in its own task.
    Entered with every small step, so it is no generator.

    >>> with isolated():
    ...     print(np.array([1e300]) * 1e300)
    [inf]
    """

    def _recreate_cm(self) -> isolated:
        return isolated()  # each use of a function has its own

    def __enter__(self) -> None:
        _LIMIT.enter()
        self._quiet = np.errstate(all="ignore")
        self._quiet.__enter__()

    def __exit__(self, *_: object) -> None:
        self._quiet.__exit__(None, None, None)
        _LIMIT.leave()


_HERE = local()


def on_all_cores(work: Callable[..., Any], *items: Sequence[Any]) -> Iterator[Any]:
    """work(item, ...) of all items, isolated and in their order, one a core at a time. What is on
    a core of its own already stays there: more threads than cores would only wait for each other.

    >>> list(on_all_cores(max, [1, 5], [3, 2]))
    [3, 5]
    """
    keep_memory()
    cores = min(cores_here(), len(items[0]))
    if cores <= 1 or getattr(_HERE, "has_a_core", False):
        yield from map(isolated()(work), *items)
        return

    @isolated()  # in every worker: its floating-point warnings are its own
    def on_one(*some: Any) -> Any:
        _HERE.has_a_core = True
        return work(*some)

    with isolated(), ThreadPoolExecutor(cores) as pool:
        yield from pool.map(on_one, *items)
