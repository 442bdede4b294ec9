"""Clients are kept apart: tried before a run, on public numbers.

Every sensitivity assumes that replacing one client changes one contribution (docs/privacy.md).
What makes it so: streams of their own (secret_streams.py), passes of one public shape (passes.py),
deterministic algorithms and a fixed number of threads (installation.py), elementwise clipping and
whole-number sums (cohort.py). What none of these can promise is that a library's batched product,
or a user's module, treats each slot of a pass alike and looks at no other. So that is tried, on
this installation, with this module and shape; where it fails, nothing is proven, and the guarantee
says why. (In the run the engine holds one client against itself alone.) Trying finds no module that
looks at its neighbours only for numbers that nobody tried: ``ASSUMED`` says so in every guarantee.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from tacit.device.installation import installation, strict
from tacit.neural.client_training import Trainer
from tacit.neural.clients import Examples
from tacit.neural.sampling import Sampler

ASSUMED = (
    "how long a round takes, and in how many passes",
    "a module or loss of one's own that looks at other rows than its own for certain values only: "
    "it was tried on random, huge and non-finite numbers",
)
"""What isolation leaves open, for ``not_covered``."""

_STEPS = 2  # the second starts from models that differ


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Bit for bit, NaN and the sign of zero included.

    >>> same_bits(torch.tensor([0.0, torch.nan]), torch.tensor([0.0, torch.nan]))
    True
    >>> same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
    False
    """
    return torch.equal(*(each.contiguous().view(torch.uint8) for each in (one, other)))


# --- before a run --------------------------------------------------------------------------------


def doubt(trainer: Trainer, sampler: Sampler, *, shared: bool) -> str:
    """Why clients may not be kept apart here; nothing if they are. ``shared``: one centre for all.

    Looks at shapes alone, never at the clients' numbers.
    """
    where = installation(trainer.device)
    devices = [trainer.device] if trainer.device.type == "cuda" else []
    try:
        with strict(), torch.random.fork_rng(devices):
            apart = IsolationTrial(trainer, trainer.slots(sampler), shared).apart()
    except Exception as error:  # whatever a module may raise
        return f"that clients are kept apart could not be tried on {where}: {error}"
    if apart:
        return ""
    return (
        f"an update depends on the slot or on the neighbours of its client on {where}, or the "
        "module draws random numbers (dropout); chunk=1 trains one client at a time"
    )


def public_rows(trainer: Trainer) -> Tensor:
    """(4 · batch, ...): normal numbers, the last quarter huge, infinite and NaN; or 0 and 1, if the
    module refuses those (it looks something up by them)."""
    generator = torch.Generator().manual_seed(0)
    shape = (4 * trainer.work.batch, *trainer.examples.X.shape[1:])
    X = torch.randn(shape, generator=generator)
    wild = X[3 * trainer.work.batch :]
    wild *= 1e30
    wild[::2], wild[1::4] = torch.inf, torch.nan
    if trainer.stacked.takes(X):
        return X
    return torch.randint(2, shape, generator=generator)


class IsolationTrial:
    """One client among others, all of them made of public numbers, in every kind of place."""

    def __init__(self, trainer: Trainer, size: int, shared: bool) -> None:
        self.batch, self.size, self.shared = trainer.work.batch, size, shared
        X, y = public_rows(trainer).to(trainer.examples.X), trainer.examples.y
        targets = y.new_zeros(len(X), *y.shape[1:])  # the first class, or the number 0
        everything = Examples(X, targets, np.append(np.zeros(size, dtype=np.int64), len(X)))
        work = replace(trainer.work, steps=_STEPS)
        self.trainer = replace(trainer, work=work, examples=everything, chunk=size)
        start, generator = trainer.stacked.start(), torch.Generator().manual_seed(1)
        noise = torch.randn(2, 4, len(start), generator=generator).to(start)
        self.models, self.centres = start * (1 + 0.1 * noise) + 0.01 * noise  # the last: the client

    def apart(self) -> bool:
        """Does the client become the same, bit for bit, wherever it is put?"""
        alone = self.put([0], 1)[0]
        return all(
            same_bits(found, alone) for slots, n, wild in self._places()
            for found in self.put(slots, n, wild=wild)
        )  # fmt: skip

    def _places(self) -> Iterator[tuple[list[int], int, bool]]:
        """Slots that the client takes, of how many clients, and whether the others are wild."""
        middle, last = self.size // 2, self.size - 1
        yield list(range(self.size)), self.size, False  # nobody but the client
        for wild in (False, True):
            for slot in (0, middle, last):
                yield [slot], self.size, wild
            yield [middle], middle + 1, wild  # and the rest idle

    def put(self, slots: list[int], n: int, *, wild: bool = False) -> Tensor:
        """What the client becomes in these slots of a pass of n."""
        rng = np.random.default_rng(n)
        first, end = (3, 4) if wild else (1, 3)
        order = rng.integers(first * self.batch, end * self.batch, (_STEPS, n, self.batch))
        order[:, slots] = np.arange(self.batch)
        models, centres = (kinds[np.arange(n) % 3] for kinds in (self.models, self.centres))
        models[slots], centres[slots] = self.models[-1], self.centres[-1]
        around = self.centres[-1] if self.shared else centres
        return self.trainer(models, around, order)[slots]
