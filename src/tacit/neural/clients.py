"""The clients' examples, ragged and on one device, and the order in which batches are drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.errors import InvalidInput


@dataclass(frozen=True)
class Examples:
    """All clients' rows, the clients one after the other; client k has offsets[k]:offsets[k+1]."""

    X: Tensor  # (N, ...)
    y: Tensor  # (N,) classes, or (N, ...) numbers
    offsets: NDArray[np.int64]  # (m + 1,)

    def __post_init__(self) -> None:
        if len(self.X) != len(self.y) or self.offsets[-1] != len(self.X):
            raise InvalidInput(
                f"X has {len(self.X)} rows, y {len(self.y)}, the offsets end at {self.offsets[-1]}"
            )

    @property
    def clients(self) -> int:
        """m."""
        return len(self.offsets) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(m,), rows of each client."""
        return np.diff(self.offsets)

    def to(self, device: torch.device) -> Examples:
        """The same on another device."""
        return Examples(self.X.to(device), self.y.to(device), self.offsets)


def batches(
    examples: Examples,
    clients: NDArray[np.int64],
    steps: int,
    batch: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """(steps, clients, batch): the rows that each client uses in each of its steps.

    Each client goes through its rows in a random order, again and again in the same one until the
    steps are done; a client with fewer rows than a batch meets some of them twice in it. Of an
    empty client the indices mean nothing: its update does not count.

    >>> two = Examples(torch.zeros(5, 1), torch.zeros(5), np.array([0, 2, 5]))
    >>> batches(two, np.array([1]), 2, 3, np.random.default_rng(0))[:, 0].tolist()
    [[4, 3, 2], [4, 3, 2]]
    """
    sizes = examples.sizes[clients]
    widest = int(sizes.max(initial=1))
    keys = rng.random((len(clients), widest))
    keys[np.arange(widest) >= sizes[:, None]] = np.inf  # behind a client's own rows
    shuffled = np.argsort(keys, axis=1)
    place = np.arange(steps * batch)[None] % np.maximum(sizes, 1)[:, None]
    rows = examples.offsets[clients, None] + np.take_along_axis(shuffled, place, axis=1)
    last = max(len(examples.X) - 1, 0)
    ordered = np.minimum(rows, last).reshape(len(clients), steps, batch)
    return np.ascontiguousarray(ordered.transpose(1, 0, 2))
