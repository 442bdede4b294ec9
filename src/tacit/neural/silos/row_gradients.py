"""The gradient of every row's loss, of all silos at once, in factors.

A linear layer's gradient at one row is an outer product, of what came back to its outputs and of
what went in: δ ⊗ a, and δ of its biases. So a few batched matrix products give all rows' gradients
of all silos, in p + q numbers a layer instead of p·q, and neither their norms nor a weighted sum of
them needs more (people_sums.py). A gradient that is no such product is written out: any module's,
by ``torch.func``.

**Isolation.** A row's part in a release must have no bit that depends on other rows. As clients in
rounds, rows work in passes of one public shape (passes.py): ``slots`` blocks of ROWS rows, each of
one silo, filled up with nobody's. That a row's factors have the same bits wherever it is put, and
beside whatever, is tried before a run (``row_doubt``), on public numbers; where it fails, and where
gradients are written out, rows are computed one by one. In the run each silo computes one of its
rows once more by itself (``alone``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from tacit.arrays import IntArray
from tacit.device.installation import installation, steady, strict
from tacit.errors import InvalidInput
from tacit.neural.client_training import RowLoss, Trainer
from tacit.neural.clients import NOBODY, Examples
from tacit.neural.finetuning import filled
from tacit.neural.isolation_trial import public_rows, same_bits
from tacit.neural.passes import parts
from tacit.neural.stacked import Stacked, parameters_of

ROWS = 64
"""Rows of a block, all of one silo."""

FLOATS = 2**22
"""Numbers of all factors of a pass, about."""


@dataclass(frozen=True, eq=False)
class LayerRows:
    """The gradients of one layer's parameters at n rows: left ⊗ right, and left, row by row."""

    left: Tensor  # (n, p)
    right: Tensor | None = None  # (n, q); None: there is no such product
    bias: bool = True  # is left itself a part of it?

    @property
    def size(self) -> int:
        """Parameters."""
        products = 0 if self.right is None else self.right.shape[1]
        return self.left.shape[1] * (products + self.bias)

    @property
    def width(self) -> int:
        """Numbers of a row."""
        return self.left.shape[1] + (0 if self.right is None else self.right.shape[1])

    def __getitem__(self, rows: slice | Tensor) -> LayerRows:
        right = None if self.right is None else self.right[rows]
        return LayerRows(self.left[rows], right, self.bias)

    def then(self, more: LayerRows) -> LayerRows:
        """These rows, and more of them."""
        right = None
        if self.right is not None and more.right is not None:
            right = torch.cat([self.right, more.right])
        return replace(self, left=torch.cat([self.left, more.left]), right=right)

    def own(self) -> LayerRows:
        """In memory of its own: where a matrix begins must not follow from who else is there."""
        right = None if self.right is None else self.right.detach().clone()
        return replace(self, left=self.left.detach().clone(), right=right)


Factors = list[LayerRows]
"""Of all layers, in the order of the module's parameters."""


def factored(stacked: Stacked, row_loss: RowLoss, W: Tensor, x: Tensor, y: Tensor) -> Factors:
    """Of models W (c, d) at rows x (c · rows, ...), as many of each.

    >>> module = torch.nn.Linear(2, 1, bias=False)
    >>> stacked = Stacked(module, torch.zeros(2, 2))
    >>> x, y = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.zeros(2)
    >>> loss = lambda outputs, targets: outputs.sum(1)
    >>> layer, = factored(stacked, loss, torch.ones(1, 2), x, y)
    >>> layer.left.tolist(), layer.right.tolist(), layer.bias
    ([[1.0], [1.0]], [[1.0, 2.0], [3.0, 4.0]], False)
    """
    views = [view.detach() for view in stacked.views(W)]
    found = _by_layers(stacked, row_loss, views, x, y) if stacked.linear else None
    if found is None:
        dense = stacked.row_gradients(views, x, y, row_loss)
        found = [LayerRows(dense)]
    return found


def _by_layers(
    stacked: Stacked, row_loss: RowLoss, views: list[Tensor], x: Tensor, y: Tensor
) -> Factors | None:
    """δ and a of each layer; None where a layer takes part twice, or by several vectors a row."""
    outputs, tape = stacked.taped(views, x.detach().requires_grad_())
    paths = [path for path, _, _ in tape]
    if len(set(paths)) < len(paths) or any(given.ndim != 2 for _, given, _ in tape):
        return None
    deltas = torch.autograd.grad(row_loss(outputs, y).sum(), [found for _, _, found in tape])
    by_path = {
        path: LayerRows(delta, given.detach(), parameters_of(path)[1] in stacked.names)
        for (path, given, _), delta in zip(tape, deltas, strict=True)
    }
    return [
        by_path[name.removesuffix("weight").rstrip(".")]
        for name in stacked.names
        if name.endswith("weight")
    ]


@dataclass(frozen=True, eq=False)
class RowGradients:
    """Makes the factors of any rows, pass by pass."""

    stacked: Stacked
    row_loss: RowLoss
    examples: Examples
    slots: int = 1  # blocks of a pass
    rows: int = ROWS  # of a block

    @classmethod
    def of(cls, trainer: Trainer) -> tuple[RowGradients, str]:
        """With passes of a shape that follows from the module, the installation and the number of
        silos alone; and why rows may not be kept apart, if they may not.

        Gradients that are written out go row by row: libraries take such products in groups of
        rows, and a few public rows that happen to come out alike in every place prove nothing.
        """
        one = cls(trainer.stacked, trainer.work.row_loss, trainer.examples, rows=1)
        try:
            layers = one.alone(one.stacked.start(), NOBODY)
        except RuntimeError:
            raise InvalidInput(
                "people inside silos need the gradient of each row by itself, which torch.func "
                "cannot compute for all layers of this model (dropout inside attention, for one)"
            ) from None
        if any(layer.right is None for layer in layers):
            return one, row_doubt(one, trainer)
        width = sum(layer.width for layer in layers)
        most = trainer.chunk or FLOATS // (width * ROWS)
        many = replace(one, slots=max(1, min(most, one.examples.clients)), rows=ROWS)
        found = row_doubt(many, trainer)
        return (one, row_doubt(one, trainer)) if found else (many, "")

    def at(self, models: Tensor, blocks: IntArray) -> Factors:
        """Of the blocks (b ≤ slots, rows) under their models (b, d)."""
        W = filled(models, self.slots)
        places = filled(torch.from_numpy(blocks).to(models.device), self.slots, NOBODY)
        x, y = self.examples.at(places.flatten())
        with (
            steady(models.device),
            torch.autocast(models.device.type, enabled=False),
            torch.enable_grad(),
        ):
            return factored(self.stacked, self.row_loss, W, x, y)

    def each(self, models: Tensor, rows: Sequence[IntArray]) -> Iterator[Factors]:
        """Silo by silo: of its rows (n_j,) under its model; models (silos, d).

        All silos share passes, and no more of them are held than the next silo needs.
        """
        blocks = [blocked(mine, self.rows) for mine in rows]
        together, owner = (
            np.concatenate(blocks),
            np.repeat(np.arange(len(rows)), [*map(len, blocks)]),
        )
        theirs = models[torch.from_numpy(owner).to(models.device)]
        passes = (self.at(theirs[p], together[p]) for p in parts(len(together), self.slots))
        held = next(passes)
        for mine, block in zip(rows, blocks, strict=True):
            while len(held[0].left) < block.size:
                held = [one.then(more) for one, more in zip(held, next(passes), strict=True)]
            yield [layer[: len(mine)].own() for layer in held]
            held = [layer[block.size :] for layer in held]

    def alone(self, model: Tensor, row: int) -> Factors:
        """Of one row under its model (d,), with nobody beside it."""
        return [
            layer[:1].own() for layer in self.at(model[None], blocked(np.array([row]), self.rows))
        ]


def blocked(rows: IntArray, size: int) -> IntArray:
    """(b ≥ 1, size): the rows in their order, and nobody's after the last.

    >>> blocked(np.arange(3), 2).tolist()
    [[0, 1], [2, -1]]
    """
    blocks = np.full((max(1, -(-len(rows) // size)), size), NOBODY)
    blocks.ravel()[: len(rows)] = rows
    return blocks


def same_rows(some: Factors, others: Factors) -> bool:
    """Bit for bit."""
    return all(
        same_bits(a.left, b.left)
        and (a.right is None or b.right is None or same_bits(a.right, b.right))
        for a, b in zip(some, others, strict=True)
    )


# --- before a run --------------------------------------------------------------------------------


def row_doubt(gradients: RowGradients, trainer: Trainer) -> str:
    """Why rows may not be kept apart on this installation; nothing if they are. Looks at shapes
    alone, never at anybody's numbers."""
    where = installation(trainer.device)
    try:
        with strict(), torch.random.fork_rng([trainer.device] * trainer.examples.X.is_cuda):
            apart = _apart(gradients, public_rows(trainer).to(trainer.examples.X))
    except Exception as error:  # whatever a module may raise
        return f"that rows are kept apart could not be tried on {where}: {error}"
    if apart:
        return ""
    return (
        f"a row's gradient depends on its place or on the rows beside it on {where}, or the module "
        "draws random numbers (dropout)"
    )


_TRIED = 2  # public rows, each in every place


def _apart(gradients: RowGradients, X: Tensor) -> bool:
    """Do some public rows give the same bits wherever they are put? The last quarter of X are wild
    numbers: huge, infinite, none."""
    y = gradients.examples.y
    some = Examples(X, y.new_zeros(len(X), *y.shape[1:]), np.array([0, len(X)]))
    tried = replace(gradients, examples=some)
    start, generator = tried.stacked.start(), torch.Generator().manual_seed(1)
    noise = torch.randn(2, len(start), generator=generator).to(start)
    models = start * (1 + 0.1 * noise) + 0.01 * noise
    calm, wild = np.arange(_TRIED, 3 * len(X) // 4), np.arange(3 * len(X) // 4, len(X))
    return all(
        _everywhere(tried, models, row, others)
        for row in range(_TRIED)
        for others in (np.array([row]), calm, wild)
    )


def _everywhere(tried: RowGradients, models: Tensor, row: int, others: IntArray) -> bool:
    """That row, in every second place of every second block among others: all four ways."""
    alone = tried.alone(models[0], row)
    slot, place = np.indices((tried.slots, tried.rows))
    for second, first in ((0, 0), (0, 1), (1, 0), (1, 1)):
        mine = (slot % 2 == second) & (place % 2 == first)
        blocks = np.where(mine, row, np.resize(others, mine.shape))
        given = models[torch.from_numpy(slot[:, 0] % 2 != second).long().to(models.device)]
        here = torch.from_numpy(mine.ravel()).to(models.device)
        found = [layer[here] for layer in tried.at(given, blocks)]
        if not same_rows(found, [layer[torch.zeros(int(mine.sum())).long()] for layer in alone]):
            return False
    return True
