"""What formulas share, scales and coordinates of the host's, on a device."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from tacit.arrays import Array

KEPT = 2**14
"""Bytes of an array that is sent to a device once."""


def sent(values: Array, device: torch.device) -> Tensor:
    """A copy, into which nobody writes. Of what is small one is kept: to send it anew would wait
    until the device has done all that it was told.

    >>> sent(np.ones(2), torch.device("cpu")) is sent(np.ones(2), torch.device("cpu"))
    True
    """
    if values.nbytes > KEPT:
        return torch.tensor(values, device=device)
    return _kept(values.tobytes(), values.dtype.str, values.shape, device)


@lru_cache(maxsize=256)
def _kept(numbers: bytes, kind: str, shape: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor(np.frombuffer(numbers, kind).reshape(shape), device=device)
