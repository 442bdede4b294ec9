"""Arrays by what they hold: one name each, for the whole tree."""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]


def namespace(values: Any) -> Any:
    """numpy, or the module whose array it is: PyTorch, which is not imported for it.

    >>> namespace(np.ones(1)).__name__
    'numpy'
    """
    return sys.modules["torch"] if type(values).__module__ == "torch" else np


def on_host(values: Any) -> Any:
    """As numpy's, wherever they are.

    >>> on_host(np.ones(1))
    array([1.])
    """
    return np.asarray(values if isinstance(values, np.ndarray) else values.cpu())
