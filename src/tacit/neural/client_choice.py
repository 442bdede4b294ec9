"""What each client takes home: its own model or the shared one, whichever suits its own rows best.

After the private rounds nothing costs anything. From what is public, the start w and the centre w̃
that it hears, a client has three ways to a model of its own (``Way``):

=============  ===============  =============================================================
way            starts from      and is
=============  ===============  =============================================================
``own``        w                trained alone, as if nobody had been heard
``halfway``    (w + w̃)/2        trained alone from there: half of what is shared, and half of
                                its noise
``shared``     its model of     finetuned, and held to w̃: in predictions (KL), or in
               the rounds       parameters where numbers are predicted
=============  ===============  =============================================================

A model of one's own is trained at a pace that suits the client's own rows (``paced``): steps that
are right for pixels in [0, 1] barely move a model of inputs ten times smaller.

It takes the one under which its own rows are likeliest in cross-validation, where its own model has
PRIOR of a start. So a client trusts what is shared no further than its own rows bear out, and
joining costs it what that choice can err.
A mixture of the three, weighed by their likelihoods, was better by .001 in accuracy where the
constants come from, and would be three models to hand out; shorter trainings among the candidates
look good in folds, where everything is under-trained, and mislead small clients
(docs/federated.md).

What a client takes home is a function of its own rows and coins and of what is public: steps and
folds do not follow anybody's number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from tacit.arrays import FloatArray, IntArray
from tacit.neural.client_training import LocalWork, Trainer
from tacit.neural.clients import NOBODY, Examples
from tacit.neural.finetuning import Finetuning, filled, finetuned
from tacit.neural.passes import Worker
from tacit.neural.secret_streams import Coins

Way = Literal["own", "halfway", "shared"]
WAYS: tuple[Way, ...] = ("own", "halfway", "shared")

FOLDS = 5
"""A client with fewer rows leaves them out one by one."""

STEPS: dict[Way, int] = {"own": 150, "halfway": 100, "shared": 60}
"""Steps of each way: enough for models of their own to fit the rows of a small client."""

GENTLE = 1 / 3
"""The shared model is finetuned at this share of the learning rate: it is near where it ends."""

PACES = (1.0, 4.0, 16.0, 1 / 4, 1 / 16)
"""Multiples of the learning rate that a client tries on its own rows, for its own model."""

TRIAL_STEPS = 30
"""Steps that each pace is tried for: enough to see that one is too long."""

PLAINLY = 0.95
"""Another pace than 1 must leave at most this share of the loss."""

PULL = 0.3
"""λ of what holds a shared model to w̃."""

PRIOR = 2.0
"""Log odds of one's own model: a client leaves it for evidence, not for a few lucky rows."""

TEMPERATURES = (1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0)
"""Outputs are divided by the one that suits them best, before their losses are compared: what is
asked is how well a way tells classes apart, and noise makes a model sure of itself, not wrong."""


@dataclass(frozen=True, eq=False)
class Settled:
    """The clients' models, and what each way lost on their own rows: for the clients' eyes only."""

    models: Tensor  # (m, d)
    ways: IntArray  # (m,), the place in WAYS of the way that each client took
    losses: FloatArray  # (m, 3), mean loss of each way on held-out rows; NaN where there are none

    def brought(self) -> dict[str, float]:
        """What joining brought: how many clients took which way, and the mean loss on held-out rows
        of their own models and of the ways they took (chosen by the same rows, so a bit too good).
        """
        taken = np.take_along_axis(self.losses, self.ways[:, None], axis=1)[:, 0]
        known = np.isfinite(self.losses).all(axis=1)
        counts = np.bincount(self.ways, minlength=len(WAYS)).tolist()
        found: dict[str, float] = dict(zip(WAYS, counts, strict=True))
        if known.any():
            found |= {
                "own_loss": float(self.losses[known, 0].mean()),
                "taken_loss": float(taken[known].mean()),
            }
        return found


def settled(
    trainer: Trainer, public: Tensor, start: Tensor, heard: Tensor, coins: Coins
) -> Settled:
    """What all clients take home, from the public start (d,), the models (m, d) that they have
    after the rounds and the centres (m, d) that they hear."""
    own = public.expand_as(heard).contiguous()
    at_pace = paced(trainer, own, coins.of("pace"))
    if torch.equal(own, heard):  # nothing was shared: there is nothing to weigh
        models = _walked("own", at_pace, own, own, coins.of("own"))
        return Settled(models, np.zeros(len(own), dtype=np.int64), _unknown(len(own)))
    begun: dict[Way, tuple[Trainer, Tensor]] = {
        "own": (at_pace, own),
        "halfway": (at_pace, (own + heard) / 2),
        "shared": (trainer, start),
    }
    losses = np.stack([_cross_validated(way, *begun[way], heard, coins) for way in WAYS], axis=1)
    ways = chosen_ways(losses, trainer.examples.sizes, trainer.work)
    models = torch.empty_like(heard)
    for number, way in enumerate(WAYS):
        mine = torch.from_numpy(ways == number).to(heard.device)
        if mine.any():
            models[mine] = _walked(way, *begun[way], heard, coins.of(way))[mine]
    return Settled(models, ways, losses)


def paced(trainer: Trainer, start: Tensor, coins: Coins) -> Trainer:
    """The trainer, with each client at the pace that fits its own rows best from start (m, d) in
    TRIAL_STEPS."""
    examples, work = trainer.examples, replace(trainer.work, steps=TRIAL_STEPS, pull=0.0)
    sizes = examples.sizes
    nth = np.arange(len(examples.X)) - np.repeat(examples.offsets[:-1], sizes)
    owners = np.repeat(np.arange(examples.clients), sizes)
    rows = _blocks(np.arange(len(nth)), owners, nth, sizes, work.batch)
    left = []
    for pace in PACES:
        at_pace = replace(examples, paces=np.full(examples.clients, pace))
        tried = replace(trainer, work=work, examples=at_pace)
        models = finetuned(tried, start, start, "vanilla", coins)
        left.append(losses_at(trainer, models, rows)[:, 0] / (1.0 if pace == 1.0 else PLAINLY))
    best = np.where(np.isnan(left), np.inf, left).argmin(axis=0)
    return replace(trainer, examples=replace(examples, paces=np.array(PACES)[best]))


def chosen_ways(losses: FloatArray, sizes: IntArray, work: LocalWork) -> IntArray:
    """(m,): the likeliest way of each client, of mean losses (m, ways) over its ``sizes`` rows.

    A mean cross-entropy is a mean of −log p. Of numbers the variance is unknown, too: −log p is
    (n/2) log(mean loss), and a constant. Who has no rows, or diverges on every way, keeps what it
    heard.

    >>> work = LocalWork(10, 32, 0.3)
    >>> chosen_ways(np.array([[0.5, 0.6, 0.45], [0.5, 0.6, 0.45]]), np.array([10, 100]), work)
    array([0, 2])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        nats = losses if work.loss == "cross_entropy" else np.log(losses) / 2
    nats = np.where(np.isnan(nats), np.inf, nats * sizes[:, None])
    nats[:, WAYS.index("own")] -= PRIOR
    return np.where((nats < np.inf).any(axis=1), nats.argmin(axis=1), WAYS.index("shared"))


def _unknown(clients: int) -> FloatArray:
    return np.full((clients, len(WAYS)), np.nan)


def _walked(way: Way, trainer: Trainer, start: Tensor, heard: Tensor, coins: Coins) -> Tensor:
    """(m, d): all clients at the end of that way."""
    kind, work = work_of(way, trainer.work)
    anchors = heard if way == "shared" else start
    return finetuned(replace(trainer, work=work), start.contiguous(), anchors, kind, coins)


def work_of(way: Way, work: LocalWork) -> tuple[Finetuning, LocalWork]:
    """How a client is finetuned on that way, where ``work`` is what it does in a round.

    >>> work_of("shared", LocalWork(10, 32, 0.3))[1].steps
    60
    """
    if way != "shared":
        return "vanilla", replace(work, steps=STEPS[way], pull=0.0)
    kind: Finetuning = "kl" if work.loss == "cross_entropy" else "mean"
    return kind, replace(work, steps=STEPS[way], rate=work.rate * GENTLE, pull=PULL)


# --- cross-validation ----------------------------------------------------------------------------


def _cross_validated(
    way: Way, trainer: Trainer, start: Tensor, heard: Tensor, coins: Coins
) -> FloatArray:
    """(m,), the mean loss of each client's rows under models that did not see them."""
    examples, found = trainer.examples, []
    for number, (rest, held) in enumerate(folds(examples, trainer.work.batch, coins.of("folds"))):
        mine = coins.of(way).of(number)
        models = _walked(way, replace(trainer, examples=rest), start, heard, mine)
        found.append(losses_at(trainer, models, held))
    with np.errstate(invalid="ignore"):  # a client without rows has no mean
        return np.asarray(np.sum(found, axis=0).min(axis=1) / examples.sizes)


def folds(examples: Examples, batch: int, coins: Coins) -> Iterator[tuple[Examples, IntArray]]:
    """For each fold the examples outside of it, and the rows in it: (blocks, clients, batch).

    A client's rows are dealt in an order of its own; nobody's row fills up the last block.

    >>> three = Examples(torch.zeros(3, 1), torch.zeros(3), np.array([0, 0, 3]))
    >>> rest, held = next(folds(three, 2, Coins(bytes(32))))
    >>> rest.sizes.tolist(), held.shape, (held >= 0).sum(axis=(0, 2)).tolist()
    ([0, 2], (1, 2, 2), [0, 1])
    """
    sizes = examples.sizes
    owners = np.repeat(np.arange(examples.clients), sizes)
    each = enumerate(sizes.tolist())
    dealt = [examples.coins(client, coins).shuffled(size) for client, size in each]
    places = np.concatenate([np.empty(0, dtype=np.int64), *dealt])
    for fold in range(FOLDS):
        rest = np.flatnonzero(places % FOLDS != fold)
        kept = np.bincount(owners[rest], minlength=examples.clients)
        rows = torch.from_numpy(rest).to(examples.X.device)
        offsets = np.concatenate([[0], np.cumsum(kept)])
        outside = replace(examples, X=examples.X[rows], y=examples.y[rows], offsets=offsets)
        inside = np.flatnonzero(places % FOLDS == fold)
        most = -(-sizes // FOLDS)
        yield outside, _blocks(inside, owners[inside], places[inside] // FOLDS, most, batch)


def _blocks(
    rows: IntArray, owners: IntArray, nth: IntArray, most: IntArray, batch: int
) -> IntArray:
    """(blocks, clients, batch): the owner's nth row in its nth place, of at most so many each."""
    blocks = np.full((len(most), -(-int(most.max(initial=1)) // batch) * batch), NOBODY)
    blocks[owners, nth] = rows
    return np.ascontiguousarray(blocks.reshape(len(most), -1, batch).transpose(1, 0, 2))


def losses_at(trainer: Trainer, models: Tensor, rows: IntArray) -> FloatArray:
    """(m, temperatures): total losses of models (m, d) on their clients' rows (blocks, m, batch).

    In passes, as in training: no bit of it depends on who else is there. Numbers have one
    temperature, 1.
    """
    drawn, size = torch.from_numpy(rows).to(trainer.device), trainer.slots()
    temperatures = TEMPERATURES if trainer.work.loss == "cross_entropy" else TEMPERATURES[:1]

    @torch.no_grad()
    def job(worker: Worker, part: slice) -> Tensor:
        parameters = worker.stacked.views(filled(models[part], size))
        total = models.new_zeros(size, len(temperatures))
        before = worker.stacked.set_training(False)
        try:
            for block in drawn[:, part]:
                places = filled(block, size, NOBODY).flatten()
                x, y = trainer.examples.at(places)
                outputs = worker.stacked(parameters, x)
                for column, temperature in enumerate(temperatures):
                    losses = trainer.work.row_loss(outputs / temperature, y)
                    losses = torch.where(places == NOBODY, 0.0, losses)
                    total[:, column] += losses.view(size, -1).sum(1)
        finally:
            worker.stacked.set_training(before)
        return total[: part.stop - part.start]

    found = trainer.each(job, len(models), size, spare=True)
    return np.asarray(found.double().cpu().numpy())
