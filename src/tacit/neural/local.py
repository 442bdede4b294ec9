"""What clients do at home: E steps of SGD on loss + (λ/2)‖w − w̃‖², for all of them at once.

Algorithm 1, lines 11–14 of S2. On a GPU a whole round is captured once as a CUDA graph and
replayed, so that no kernel waits for Python; a graph has one shape, so the last chunk of clients
is filled up with clients that do not count. On a CPU a chunk is small enough for its models to
stay in the cache through all E steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.errors import InvalidInput
from tacit.neural.clients import Examples
from tacit.neural.kernels import fused, updated
from tacit.neural.stacked import Stacked

RowLoss = Callable[[Tensor, Tensor], Tensor]
"""(outputs, targets) → a loss for each row."""

CACHE_FLOATS = 2**21
"""Parameters of a chunk on a CPU: with their gradients 16 MB."""


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """(rows,), of outputs (rows, classes)."""
    return torch.nn.functional.cross_entropy(outputs, targets, reduction="none")


def squared(outputs: Tensor, targets: Tensor) -> Tensor:
    """(rows,), half the squared error; outputs (rows,) or (rows, 1)."""
    return 0.5 * (
        outputs.reshape(len(targets), -1) - targets.reshape(len(targets), -1)
    ).square().sum(1)


LOSSES: dict[str, RowLoss] = {"cross_entropy": cross_entropy, "squared": squared}


@dataclass(frozen=True)
class LocalWork:
    """What each client does in a round it takes part in."""

    steps: int  # E
    batch: int
    rate: float  # η
    pull: float = 0.0  # λ
    loss: str | RowLoss = "cross_entropy"

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("batch", 1)):
            if getattr(self, name) < least:
                raise InvalidInput(f"{name} must be at least {least}, got {getattr(self, name)}")
        if not self.rate > 0 or self.pull < 0:
            raise InvalidInput(f"rate must be > 0 and pull ≥ 0, got {self.rate} and {self.pull}")
        if isinstance(self.loss, str) and self.loss not in LOSSES:
            raise InvalidInput(f"loss must be one of {', '.join(LOSSES)}, got {self.loss!r}")

    @property
    def row_loss(self) -> RowLoss:
        """The loss as a function."""
        return LOSSES[self.loss] if isinstance(self.loss, str) else self.loss


Extra = Callable[[list[Tensor], list[Tensor], Tensor, Tensor], Tensor] | None
"""A further term of the local objective: (parameters, centres, x, outputs) → (clients,)."""


def descend(
    stacked: Stacked,
    work: LocalWork,
    examples: Examples,
    W: Tensor,
    centres: Tensor,
    order: Tensor,
    extra: Extra = None,
) -> None:
    """E steps for each client, in place: W (c, d), centres (c or 1, d), order (E, c, batch)."""
    # Copies of their own: rows of W are no multiple of anything, and updates crawl over them.
    parameters = [view.clone(memory_format=torch.contiguous_format) for view in stacked.views(W)]
    anchors = stacked.views(centres)
    clients = len(W)
    for rows in order:
        x, y = examples.X[rows.flatten()], examples.y[rows.flatten()]
        parameters = [parameter.detach().requires_grad_() for parameter in parameters]
        outputs = stacked(parameters, x)
        objective = work.row_loss(outputs, y).view(clients, -1).mean(1)
        if extra is not None:
            objective = objective + extra(parameters, anchors, x, outputs)
        gradients = torch.autograd.grad(objective.sum(), parameters)
        with torch.no_grad():
            parameters = [
                _stepped(*each, work) for each in zip(parameters, gradients, anchors, strict=True)
            ]
    with torch.no_grad():
        torch.cat([parameter.flatten(1) for parameter in parameters], dim=1, out=W)


def _stepped(w: Tensor, gradient: Tensor, centre: Tensor, work: LocalWork) -> Tensor:
    """``updated``; on a CPU in place, where every temporary would cost a pass through memory."""
    if not w.is_cuda:
        w = w.detach()
        if work.pull:
            w.lerp_(centre.expand_as(w), work.rate * work.pull)
        return w.sub_(gradient, alpha=work.rate)
    flat = fused(
        updated, w.flatten(1), gradient.flatten(1), centre.flatten(1), work.rate, work.pull
    )
    return flat.view_as(w)


@dataclass
class Trainer:
    """Runs the local work of any number of clients, chunk by chunk, on the examples' device."""

    stacked: Stacked
    work: LocalWork
    examples: Examples
    chunk: int | None = None  # clients at a time; None: by the device
    extra: Extra = None
    _graph: Graph | None = field(default=None, init=False)

    def __call__(self, W: Tensor, centres: Tensor, order: NDArray[np.int64]) -> Tensor:
        """The models (c, d) after E steps from W (c, d); centres (1, d) or (c, d)."""
        trained = W.clone()
        drawn = torch.from_numpy(order).to(W.device)
        size = self.chunk_size(len(W))
        for start in range(0, len(W), size):
            part = slice(start, start + size)
            around = centres if len(centres) == 1 else centres[part]
            if W.is_cuda:
                trained[part] = self._replay(size, trained[part], around, drawn[:, part])
            else:
                descend(
                    self.stacked, self.work, self.examples, trained[part], around, drawn[:, part],
                    self.extra,
                )  # fmt: skip
        return trained

    @property
    def device(self) -> torch.device:
        """Where the examples are, and the work is done."""
        return self.examples.X.device

    def chunk_size(self, clients: int) -> int:
        """How many clients are trained at a time."""
        if self.chunk is not None:
            return max(1, self.chunk)
        if self.examples.X.is_cuda:
            free, _ = torch.cuda.mem_get_info(self.device)
            return max(1, min(clients, int(0.5 * free / self.bytes_per_client())))
        return max(1, min(clients, CACHE_FLOATS // self.stacked.size))

    def bytes_per_client(self) -> int:
        """Models, centre and gradients, and a generous guess at the activations of one batch."""
        row = self.examples.X[:1].numel()
        return 4 * (6 * self.stacked.size + 150 * row * self.work.batch)

    def _replay(self, size: int, W: Tensor, centres: Tensor, order: Tensor) -> Tensor:
        if self._graph is None or not self._graph.fits(size, len(centres)):
            self._graph = Graph(self, size, W, centres, order)
        return self._graph(W, centres, order)


class Graph:
    """One chunk's local work as a CUDA graph, with buffers of fixed shape."""

    def __init__(
        self, trainer: Trainer, size: int, W: Tensor, centres: Tensor, order: Tensor
    ) -> None:
        self.W = W.new_zeros(size, W.shape[1])
        self.centres = centres.new_zeros(1 if len(centres) == 1 else size, W.shape[1])
        self.order = order.new_zeros(order.shape[0], size, order.shape[2])
        self.graph = torch.cuda.CUDAGraph()

        def run() -> None:
            descend(
                trainer.stacked, trainer.work, trainer.examples, self.W, self.centres, self.order,
                trainer.extra,
            )  # fmt: skip

        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call] # torch's stream
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # libraries choose their kernels before they are recorded
            run()
        torch.cuda.current_stream().wait_stream(aside)
        with torch.cuda.graph(self.graph):
            run()

    def fits(self, size: int, centres: int) -> bool:
        """Has this graph the shape that is asked for?"""
        return len(self.W) == size and (len(self.centres) == 1) == (centres == 1)

    def __call__(self, W: Tensor, centres: Tensor, order: Tensor) -> Tensor:
        """Clients beyond those given train on nothing that is used."""
        n = len(W)
        self.W[:n] = W
        self.centres[: len(centres)] = centres
        self.order[:, :n] = order
        self.graph.replay()
        return self.W[:n]
