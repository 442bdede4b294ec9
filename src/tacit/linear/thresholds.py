"""What a proximal operator does to one number, or to one length."""

from __future__ import annotations

import numpy as np

from tacit.arrays import FloatArray

Level = float | FloatArray


def soft_threshold(values: FloatArray, level: Level) -> FloatArray:
    """sign(x) · max(|x| − level, 0).

    >>> soft_threshold(np.array([-3.0, 0.5, 2.0]), 1.0)
    array([-2.,  0.,  1.])
    """
    return np.asarray(np.sign(values) * np.maximum(np.abs(values) - level, 0.0))


def shrunk(sizes: FloatArray, level: Level) -> FloatArray:
    """max(1 − level/size, 0): the factor that shortens a length by level; 0 at length 0.

    >>> shrunk(np.array([4.0, 1.0, 0.0]), 2.0)
    array([0.5, 0. , 0. ])
    """
    out = np.zeros_like(sizes)
    return np.asarray(np.divide(np.maximum(sizes - level, 0.0), sizes, out=out, where=sizes > 0))
