"""The clients' examples, ragged and on one device, and the order in which batches are drawn."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from tacit.arrays import FloatArray, IntArray
from tacit.errors import InvalidInput
from tacit.neural.secret_streams import Coins

NOBODY = -1
"""The row of a client that has none, and of a slot without a client."""


@dataclass(frozen=True)
class Examples:
    """All clients' rows, the clients one after the other; client k has offsets[k]:offsets[k+1]."""

    X: Tensor  # (N, ...)
    y: Tensor  # (N,) classes, or (N, ...) numbers
    offsets: IntArray  # (m + 1,)
    names: IntArray | None = None  # (m,), by which each draws its coins; None: 0, ..., m − 1
    paces: FloatArray | None = None  # (m,), times as fast as the others' work; None: 1 each
    shifts: Tensor | None = None  # (m, classes), added to outputs before the loss; None: nothing
    _longer: tuple[Tensor, Tensor] = field(init=False, repr=False)  # X and y with nobody's row
    _whose: Tensor = field(init=False, repr=False)  # (N + 1,), each row's client, and nobody
    _pace: Tensor | None = field(init=False, repr=False)  # (m + 1,), the clients', and nobody's
    _shift: Tensor | None = field(init=False, repr=False)  # (m + 1, classes)

    def __post_init__(self) -> None:
        if len(self.X) != len(self.y) or self.offsets[-1] != len(self.X):
            raise InvalidInput(
                f"X has {len(self.X)} rows, y {len(self.y)}, the offsets end at {self.offsets[-1]}"
            )
        # One row more, nobody's. Somebody's would not do: its infinities would survive being
        # multiplied by zero, and to select afterwards costs a pass over memory.
        X, y = (torch.cat([z, z.new_zeros(1, *z.shape[1:])]) for z in (self.X, self.y))
        whose = torch.from_numpy(np.append(self.owners, NOBODY)).to(X.device)
        pace, shift = None, None
        if self.paces is not None:
            pace = torch.from_numpy(np.append(self.paces, 1.0)).to(X.device, torch.float32)
        if self.shifts is not None:
            shift = torch.cat([self.shifts, torch.zeros_like(self.shifts[:1])])
        found = {"_longer": (X, y), "X": X[:NOBODY], "y": y[:NOBODY]}
        found |= {"_whose": whose, "_pace": pace, "_shift": shift}
        for name, value in found.items():
            object.__setattr__(self, name, value)

    def at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """X and y at these rows (n,); zeros where it is nobody's.

        >>> one = Examples(torch.tensor([[torch.inf]]), torch.tensor([2]), np.array([0, 1]))
        >>> one.at(torch.tensor([0, NOBODY]))
        (tensor([[inf],
                [0.]]), tensor([2, 0]))
        """
        X, y = self._longer
        places = rows.remainder(len(X))  # nobody's comes last
        return X.index_select(0, places), y.index_select(0, places)

    def paced(self, objective: Tensor, rows: Tensor) -> Tensor:
        """The clients' objectives (c,) on rows (c, batch), each times its pace: to descend on that
        is to take steps of that many times the length."""
        return objective if self._pace is None else objective * self._pace[self._whose[rows[:, 0]]]

    def shifted(self, outputs: Tensor, rows: Tensor) -> Tensor:
        """Outputs (c · batch, classes) of rows (c, batch), each with its client's shift."""
        return (
            outputs if self._shift is None else outputs + self._shift[self._whose[rows.flatten()]]
        )

    @property
    def clients(self) -> int:
        """m."""
        return len(self.offsets) - 1

    @property
    def sizes(self) -> IntArray:
        """(m,), rows of each client."""
        return np.diff(self.offsets)

    @property
    def owners(self) -> IntArray:
        """(N,), the client of each row."""
        return np.repeat(np.arange(self.clients), self.sizes)

    def coins(self, client: int, of: Coins) -> Coins:
        """The client's own stream, the same among whichever others it is."""
        return of.of(client if self.names is None else int(self.names[client]))

    def select(self, clients: IntArray) -> Examples:
        """These clients alone, in this order, under the names that they have among all."""
        rows = [np.arange(self.offsets[k], self.offsets[k + 1]) for k in clients]
        mine = torch.from_numpy(np.concatenate([np.empty(0, dtype=np.int64), *rows]))
        offsets = np.concatenate([[0], np.cumsum(self.sizes[clients])])
        names = clients if self.names is None else self.names[clients]
        paces = None if self.paces is None else self.paces[clients]
        return Examples(self.X[mine], self.y[mine], offsets, names, paces)

    def to(self, device: torch.device) -> Examples:
        """The same on another device."""
        if self.X.device == device:
            return self
        return replace(self, X=self.X.to(device), y=self.y.to(device))


def batches(
    examples: Examples, clients: IntArray, steps: int, batch: int, coins: Coins
) -> IntArray:
    """(steps, clients, batch): the rows that each client uses in each of its steps.

    Each client goes through its rows in a random order, again and again in the same one until the
    steps are done; a client with fewer rows than a batch meets some of them twice in it. The order
    follows from the client's own stream and number of rows alone. An empty client has NOBODY's.

    >>> two = Examples(torch.zeros(5, 1), torch.zeros(5), np.array([0, 2, 5]))
    >>> batches(two, np.array([1]), 2, 3, Coins(bytes(32)))[:, 0].tolist()
    [[2, 4, 3], [2, 4, 3]]
    """
    order, places = np.full((len(clients), steps * batch), NOBODY), np.arange(steps * batch)
    sizes = examples.sizes[clients].tolist()
    for row, client, size in zip(order, clients.tolist(), sizes, strict=True):
        if size > 0:
            mine = examples.offsets[client] + examples.coins(client, coins).shuffled(size)
            row[:] = mine.take(places, mode="wrap")
    by_client = order.reshape(len(clients), steps, batch)
    return np.ascontiguousarray(by_client.transpose(1, 0, 2))
