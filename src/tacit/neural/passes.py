"""Passes of one public shape: how many clients are trained at a time, and what fills the rest.

Libraries choose their kernels, and how they split them over threads, by the size of a batch: the
same client has other last bits in a batch of one than in a batch of two. How many clients a secret
cohort has must not show in anybody's update. So a run has one shape of a pass, a function of
public values alone; a cohort takes as many passes as it needs and is never cut short, and slots
without a client hold zeros.

All slots of a pass must then give the same bits, since it depends on the others which slot a client
gets. On a GPU one kernel serves all slots. On a CPU three things tell slots apart, and are avoided:

threads    a tensor is cut where the threads' shares end: each pass runs on one thread, and as many
           passes at a time as there are threads
tails      what is left over after the last full vector goes through other functions (seen: sigmoid,
           softplus, GELU): slots · batch is a multiple of 32, the longest vector step, so nothing
           is; a pass of a single slot has its tail always in the same place
alignment  MKL's products look at the address of a matrix modulo 16 bytes or more: matrices of all
           slots are aligned alike (``products.product``)

That it is so is tried before every run (isolation_trial.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial

import numpy as np
import torch
from torch import Tensor

from tacit.neural.clients import NOBODY
from tacit.neural.sampling import Sampler
from tacit.neural.stacked import Stacked

_VECTOR = 32
"""Numbers that PyTorch's vectorised loops take at a time: two registers of 512 bits, in floats."""


@lru_cache(maxsize=64)
def slots(
    sampler: Sampler, clients: int, most: int, fixed: float, unit: int = 1, workers: int = 1
) -> int:
    """The shape c that costs least in expectation: E⌈K/(c·workers)⌉ · (c + fixed) is smallest.

    K is the size of a cohort, ``fixed`` what a pass costs beyond its slots, in slots; c is 1 or a
    multiple of ``unit``, at most ``most`` (one unit may be four times as many). Few slots waste
    little on idle ones, many waste little on further passes.

    >>> from tacit.neural.sampling import Everyone, SecretCoins
    >>> slots(Everyone(), 200, 12, 0.8), slots(SecretCoins(0.2), 200, 200, 26.0)
    (10, 50)
    """
    units = max(most // unit, 1) if unit <= 4 * most else 0
    some = np.geomspace(1, max(1, min(units * unit, clients)), 200).astype(np.int64)
    candidates = np.unique([1, *(-(-some // unit) * unit if units else [])])
    costs = [sampler.passes(clients, int(c) * workers) * (c + fixed) for c in candidates]
    return int(candidates[int(np.argmin(costs))])


def unit_slots(batch: int) -> int:
    """The fewest slots whose rows fill whole vectors, on a CPU.

    >>> unit_slots(32), unit_slots(10), unit_slots(7)
    (1, 16, 32)
    """
    return _VECTOR // math.gcd(_VECTOR, batch)


Work = Callable[..., None]
"""Of the module and a pass's buffers; changes the models W in place."""


class Pass:
    """Buffers of one shape, the same for every pass of a run, and the work that is done on them."""

    def __init__(
        self, work: Work, W: Tensor, centres: Tensor, order: Tensor, *rest: Tensor
    ) -> None:
        """W (c, d), centres (1 or c, d), order (E, c, batch); the rest (c, ...) is the work's."""
        self.W, self.centres, self.order, self.rest = W, centres, order, rest
        run = partial(work, W, centres, order, *rest)
        first = partial(work, W, centres, order[:1], *rest)
        self._run = captured(run, first) if W.is_cuda else run

    def __call__(self, W: Tensor, centres: Tensor, order: Tensor, *rest: Tensor) -> Tensor:
        """(n, d), what becomes of the first n ≤ c slots, a copy; the other slots are idle."""
        _fill(self.order.transpose(0, 1), order.transpose(0, 1), NOBODY)
        for buffer, given in zip(
            (self.W, self.centres, *self.rest), (W, centres, *rest), strict=True
        ):
            _fill(buffer, given, 0.0)
        self._run()
        return self.W[: len(W)].clone()


def _fill(buffer: Tensor, given: Tensor, idle: float) -> None:
    buffer[: len(given)], buffer[len(given) :] = given, idle


def captured(run: Callable[[], None], before: Callable[[], None]) -> Callable[[], None]:
    """The same as a CUDA graph, so that no kernel waits for Python. ``before`` runs all of its
    operations once: libraries choose their kernels before they are recorded."""
    graph = torch.cuda.CUDAGraph()
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call] # torch's stream
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        before()
    torch.cuda.current_stream().wait_stream(aside)
    with torch.cuda.graph(graph):
        run()
    return graph.replay


@dataclass(frozen=True, eq=False)
class Worker:
    """Who runs passes, one at a time: with a module of its own, since PyTorch puts parameters into
    the module while it is called."""

    stacked: Stacked
    passes: dict[tuple[int, ...], Pass] = field(default_factory=dict)


def parts(clients: int, size: int) -> Iterator[slice]:
    """The clients of each pass.

    >>> list(parts(3, 2))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    for start in range(0, clients, size):
        yield slice(start, min(start + size, clients))


def spared(run: Callable[[slice], Tensor], part: slice) -> Tensor:
    """run(part), (n, d); if that raises, each client by itself, and NaN for those who raise alone.

    So no client's data stops the others. What raises without anybody's data is no client's doing
    (too little memory, a broken module), and is raised.

    >>> def run(part):
    ...     if part.start <= 1 < part.stop:
    ...         raise IndexError("a row of client 1")
    ...     return torch.arange(4.0)[part, None]
    >>> spared(run, slice(0, 3)).flatten().tolist()
    [0.0, nan, 2.0]
    """
    try:
        return run(part)
    except Exception:
        nobody = run(slice(0, 0))
    return torch.cat([_attempt(run, i, nobody) for i in range(part.start, part.stop)])


def _attempt(run: Callable[[slice], Tensor], client: int, nobody: Tensor) -> Tensor:
    try:
        return run(slice(client, client + 1))
    except Exception:
        return nobody.new_full((1, *nobody.shape[1:]), torch.nan)
