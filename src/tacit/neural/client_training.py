"""What clients do at home: E steps of SGD on loss + (λ/2)‖w − w̃‖², for all of them at once.

Algorithm 1, lines 11–14 of S2. Clients work in passes of one public shape (passes.py). On a GPU a
pass is captured once as a CUDA graph and replayed; on a CPU it is small enough for its models to
stay in the cache through all E steps.

What becomes of a client is, bit for bit, a function of its model, its centre and its own rows in
its own order: not of who else is in the pass, where it sits in it, or how many passes there are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue

import torch
from torch import Tensor

from tacit.arrays import IntArray
from tacit.device.installation import one_thread, steady
from tacit.errors import InvalidInput
from tacit.neural.clients import NOBODY, Examples
from tacit.neural.kernels import step_of
from tacit.neural.passes import Pass, Worker, parts, slots, spared, unit_slots
from tacit.neural.products import add_product
from tacit.neural.sampling import Everyone, Sampler
from tacit.neural.stacked import Stacked, parameters_of

RowLoss = Callable[[Tensor, Tensor], Tensor]
"""(outputs, targets) → a loss for each row."""

CACHE_FLOATS = 2**21
"""Parameters of a pass on a CPU, and what layers make of its rows: with gradients 16 MB."""

MEMORY_FLOATS = 2**28
"""Parameters of all passes that run at a time on a CPU: with their gradients 2 GB."""

FIXED = {"cpu": 2.0**22, "cuda": 2.0**27}
"""What a step of a pass costs before the first client, in products (parameters × rows): measured
once, for everybody; a wrong number costs time and nothing else."""


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


@dataclass(frozen=True, eq=False)
class TrainingStep:
    """Where the clients of a pass are, one step before the next."""

    stacked: Stacked
    parameters: list[Tensor]  # (c, ...) each
    anchors: list[Tensor]  # (c or 1, ...) each: the centres
    weights: list[Tensor]  # (c, ...) each, or nothing: what the extra term was given
    x: Tensor
    outputs: Tensor


Extra = Callable[[TrainingStep], Tensor] | None
"""A further term of the local objective, (c,)."""


def descend(
    stacked: Stacked,
    work: LocalWork,
    examples: Examples,
    extra: Extra,
    W: Tensor,
    centres: Tensor,
    order: Tensor,
    *weights: Tensor,
) -> None:
    """E steps for each client, in place: W (c, d), centres (c or 1, d), order (E, c, batch)."""
    # Copies of their own: rows of W are no multiple of anything, and updates crawl over them.
    parameters = [view.clone(memory_format=torch.contiguous_format) for view in stacked.views(W)]
    anchors, given = stacked.views(centres), [v for w in weights for v in stacked.views(w)]
    in_factors = extra is None and stacked.linear
    for rows in order:
        if in_factors:
            _factored_step(stacked, work, examples, parameters, anchors, rows)
            continue
        x, y = examples.at(rows.flatten())
        leaves = [parameter.requires_grad_() for parameter in parameters]
        outputs = stacked(leaves, x)
        objective = _mean_loss(work, examples, outputs, y, rows)
        if extra is not None:
            objective = objective + extra(TrainingStep(stacked, leaves, anchors, given, x, outputs))
        total = examples.paced(objective, rows).sum()
        gradients = torch.autograd.grad(total, leaves, materialize_grads=True)
        parameters = [leaf.detach() for leaf in leaves]
        for parameter, centre, gradient in zip(parameters, anchors, gradients, strict=True):
            step_of(parameter, gradient, centre, work.rate, work.pull)
    torch.cat([parameter.flatten(1) for parameter in parameters], dim=1, out=W)


def _mean_loss(
    work: LocalWork, examples: Examples, outputs: Tensor, y: Tensor, rows: Tensor
) -> Tensor:
    """(c,), of outputs (c · batch, ...) on rows (c, batch)."""
    losses = work.row_loss(examples.shifted(outputs, rows), y)
    return losses.view(len(rows), -1).mean(1)


# A step is w − η(g + λ(w − w̃)), Algorithm 1 line 13 of S2: in place, and without temporaries, each
# of which would be a pass through memory.


def _factored_step(
    stacked: Stacked,
    work: LocalWork,
    examples: Examples,
    parameters: list[Tensor],
    anchors: list[Tensor],
    rows: Tensor,
) -> None:
    """Where all layers are linear the gradient of a weight is a product of few rows, and is added
    as such: written down it would be as large as the weight."""
    clients, named = len(rows), dict(zip(stacked.names, parameters, strict=True))
    x, y = examples.at(rows.flatten())
    outputs, tape = stacked.taped(parameters, x.requires_grad_())
    objective = _mean_loss(work, examples, outputs, y, rows)
    total = examples.paced(objective, rows).sum()
    deltas = torch.autograd.grad(total, [found for _, _, found in tape], allow_unused=True)
    _pull(parameters, anchors, work)
    for (path, given, _), delta in zip(tape, deltas, strict=True):
        if delta is None:  # the module made nothing of it
            continue
        left, right = (z.detach().reshape(clients, -1, z.shape[-1]) for z in (delta, given))
        weight, bias = parameters_of(path)
        add_product(named[weight], left.mT, right, -work.rate)
        if bias in named:
            named[bias].sub_(left.sum(1), alpha=work.rate)


def _pull(parameters: list[Tensor], centres: list[Tensor], work: LocalWork) -> None:
    """w − ηλ(w − w̃)."""
    if work.pull:
        for w, centre in zip(parameters, centres, strict=True):
            w.lerp_(centre.expand_as(w), work.rate * work.pull)


@dataclass(frozen=True, eq=False)
class Trainer:
    """Runs the local work of any number of clients, pass by pass, on the examples' device."""

    stacked: Stacked
    work: LocalWork
    examples: Examples
    chunk: int | None = None  # clients of a pass, at most; None: a public rule
    extra: Extra = None
    threads: int = field(default_factory=torch.get_num_threads)  # fixed here, for all passes
    _idle: SimpleQueue[Worker] = field(default_factory=SimpleQueue, init=False)

    def __post_init__(self) -> None:
        self._idle.put(Worker(self.stacked))

    @property
    def device(self) -> torch.device:
        """Where the examples are, and the work is done."""
        return self.examples.X.device

    @property
    def workers(self) -> int:
        """Passes at a time: a GPU has room for one, a CPU runs each on a thread of its own."""
        if self.device.type != "cpu":
            return 1
        return min(self.threads, max(1, MEMORY_FLOATS // self.stacked.size))

    def __call__(
        self,
        W: Tensor,
        centres: Tensor,
        order: IntArray,
        *weights: Tensor,
        sampler: Sampler | None = None,
        spare: bool = False,
    ) -> Tensor:
        """The models (n, d) after E steps from W (n, d) around centres (n, d), or (d,) for all.

        ``weights`` (n, d): for the extra term. ``sampler``: of the cohorts that these n are one of;
        None: everybody. ``spare``: as in ``each``.
        """
        drawn, size = torch.from_numpy(order).to(W.device), self.slots(sampler)

        def job(worker: Worker, part: slice) -> Tensor:
            around = centres[None] if centres.ndim == 1 else centres[part]
            shape = (size, 1 if centres.ndim == 1 else size, *(size for _ in weights))
            mine = [given[part] for given in weights]
            return self._pass(worker, shape, W)(W[part], around, drawn[:, part], *mine)

        return self.each(job, len(W), size, spare=spare) if len(W) else W.clone()

    def each(
        self,
        job: Callable[[Worker, slice], Tensor],
        clients: int,
        size: int,
        *,
        spare: bool = False,
    ) -> Tensor:
        """(clients, ...): what the job makes of each pass of at most ``size`` clients.

        ``spare``: a client whose rows make the job raise becomes NaN, and stops nobody else.
        """

        def one(part: slice) -> Tensor:
            worker = self._idle.get()
            try:
                run = partial(job, worker)
                # Both belong to a thread: a pass must not tell whether it was the caller's.
                with torch.autocast(self.device.type, enabled=False), torch.enable_grad():
                    return spared(run, part) if spare else run(part)
            finally:
                self._idle.put(worker)

        each = list(parts(clients, size))
        with steady(self.device):
            if len(each) == 1:
                return one(each[0])
            if self.workers == 1:
                return torch.cat([one(part) for part in each])
            for _ in range(self._idle.qsize(), min(self.workers, len(each))):
                self._idle.put(Worker(copy.deepcopy(self.stacked)))
            with ThreadPoolExecutor(self.workers, initializer=one_thread) as pool:
                return torch.cat(list(pool.map(one, each)))

    def slots(self, sampler: Sampler | None = None) -> int:
        """Slots of a pass: of public values and of the hardware, never of data or free memory."""
        on_gpu = self.device.type == "cuda"
        unit = 1 if on_gpu else unit_slots(self.work.batch)
        if self.chunk is not None:
            return max(1, self.chunk // unit * unit)
        fixed = FIXED["cuda" if on_gpu else "cpu"] / (self.stacked.size * self.work.batch)
        clients = max(1, self.examples.clients)
        return slots(sampler or Everyone(), clients, self._most(), fixed, unit, self.workers)

    def _most(self) -> int:
        """How many fit: half of all the memory that the GPU was built with, or the CPU's cache."""
        if self.device.type == "cuda":
            memory = torch.cuda.get_device_properties(self.device).total_memory
            return max(1, memory // 2 // self.bytes_per_client())
        each = self.stacked.size + self.stacked.width * self.work.batch
        return max(1, CACHE_FLOATS // each)

    def bytes_per_client(self) -> int:
        """Models, centre and gradients, and a generous guess at the activations of one batch."""
        row = self.examples.X.shape[1:].numel()
        return 4 * (6 * self.stacked.size + 150 * row * self.work.batch)

    def _pass(self, worker: Worker, shape: tuple[int, ...], like: Tensor) -> Pass:
        """The worker's pass of that shape: the one that there was, or a new one."""
        if shape not in worker.passes:
            W, centres, *weights = (like.new_zeros(rows, self.stacked.size) for rows in shape)
            order = (self.work.steps, len(W), self.work.batch)
            worker.passes[shape] = Pass(
                partial(descend, worker.stacked, self.work, self.examples, self.extra),
                W,
                centres,
                torch.full(order, NOBODY, device=W.device),
                *weights,
            )
        return worker.passes[shape]
