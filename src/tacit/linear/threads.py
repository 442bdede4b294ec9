"""BLAS on one thread, where many small products would only wait for each other."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


@cache
def _libraries() -> Any:
    """Looking for the loaded libraries takes milliseconds: once is enough."""
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[Any]:
    """``with one_blas_thread(): ...``"""
    limited: AbstractContextManager[Any] = _libraries().limit(limits=1, user_api="blas")
    return limited
