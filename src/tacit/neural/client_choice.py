"""What each client takes home: its own model or the shared one, whichever suits its own rows best.

After the private rounds nothing costs anything. From what is public, the start w and the centre w̃
that it hears, a client has five ways to a model of its own (``Way``):

=============  ===============  =============================================================
way            starts from      and is
=============  ===============  =============================================================
``own``        w                trained alone, as if nobody had been heard
``shared``     its model of     finetuned, and held to w̃: in predictions (KL), or in
               the rounds       parameters where numbers are predicted
``open``       the same         the same, but that classes of which it has no row need not be
                                unlikely: perhaps they are missing by chance
``half``       halfway to it    the same around (w + w̃)/2, which holds half of the noise
``loose``      its model of     as *open*, but as long and as fast as if trained alone, and
               the rounds       hardly held: what is left of w̃ is where its rows say nothing
=============  ===============  =============================================================

All are trained at a pace that suits the client's own rows (``paced``): steps that are right for
pixels in [0, 1] barely move a model of inputs ten times smaller. At a slower pace than a client's
own model the shared one would end where it began, and unlearn nothing of its noise.

**Open.** Cross-entropy lowers the outputs of all classes that a client has no row of. A writer of
seven characters, of 62, so unlearns most of what is shared; one who only ever writes digits is
right to. The client's own folds tell the two apart: in the first they hold classes that the rest
has not. On this way the outputs of unseen classes are lowered by OPEN before the loss, which then
has little left to lower (a soft form of the restricted softmax of FedRS, Li and Zhan, 2021).

A client takes the way under which its own rows are likeliest in cross-validation, where its own
model has a start; where it has few rows a class, the one that is right most often
(``chosen_ways``). So a client trusts what is shared no further than its own rows
bear out, and joining costs it what that choice can err.
A mixture of the ways, weighed by their likelihoods, was better by .001 in accuracy where the
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
from tacit.neural.personal import width
from tacit.neural.secret_streams import Coins

Way = Literal["own", "shared", "open", "half", "loose"]
WAYS: tuple[Way, ...] = ("own", "shared", "open", "half", "loose")

FOLDS = 5
"""A client with fewer rows leaves them out one by one."""

STEPS: dict[Way, int] = {"own": 150, "shared": 60, "open": 60, "half": 60, "loose": 150}
"""Steps of each way: enough for models of their own to fit the rows of a small client."""

GENTLE = 1 / 3
"""The shared model is finetuned at this share of the learning rate: it is near where it ends."""

PACES = (1.0, 4.0, 16.0, 1 / 4, 1 / 16, 64.0)
"""Multiples of the learning rate that a client tries on its own rows, from the public start."""

TRIAL_STEPS = 30
"""Steps that each pace is tried for: enough to see that one is too long."""

UNLEARNED = 1 / 3
"""Of the loss at the start: who has less of it left at the pace of 1 keeps that pace. A faster one
would fit the same rows sooner, and other rows worse."""

SLOW = 1 / 6
"""Who has no more left than this at one of the other paces does not take the last, 64, either."""

PULL: dict[Way, float] = {"own": 0.0, "shared": 0.3, "open": 0.3, "half": 0.3, "loose": 0.1}
"""λ of what holds a shared model to w̃."""

OPEN = 4.0
"""By how much outputs of unseen classes are lowered before the loss."""

PRIOR = 2.0
"""Log odds of one's own model: a client leaves it for evidence, not for a few lucky rows."""

ENOUGH = 3
"""Rows a class, with which a client goes by likelihoods alone."""

AN_ERROR = 2.0
"""Nats that an error counts, as far as errors count at all."""

TEMPERATURES = (1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 0.7, 0.5, 0.35, 0.25)
"""Outputs are divided by the one that suits them best, before their losses are compared: what is
asked is how well a way tells classes apart. Noise makes a model sure of itself, and being held to
one that is not sure makes it doubt; neither makes it wrong. The first, 1, is what pace goes by."""


@dataclass(frozen=True, eq=False)
class Settled:
    """The clients' models, and what each way lost on their own rows: for the clients' eyes only."""

    models: Tensor  # (m, d)
    ways: IntArray  # (m,), the place in WAYS of the way that each client took
    losses: FloatArray  # (m, ways), mean loss of each on held-out rows; NaN where there are none
    errors: FloatArray  # (m, ways), the share of these rows that it gets wrong; NaN for numbers

    def brought(self) -> dict[str, float]:
        """What joining brought: how many clients took which way, and the mean loss and errors on
        held-out rows of their own models and of the ways they took (chosen by the same rows, so a
        bit too good)."""
        counts = np.bincount(self.ways, minlength=len(WAYS)).tolist()
        found: dict[str, float] = dict(zip(WAYS, counts, strict=True))
        for name, each in (("loss", self.losses), ("errors", self.errors)):
            taken = np.take_along_axis(each, self.ways[:, None], axis=1)[:, 0]
            known = np.isfinite(each).all(axis=1)
            if known.any():
                found[f"own_{name}"] = float(each[known, 0].mean())
                found[f"taken_{name}"] = float(taken[known].mean())
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
        unknown = np.full((len(own), len(WAYS)), np.nan)
        return Settled(models, np.zeros(len(own), dtype=np.int64), unknown, unknown)
    classes = _classes(trainer)
    offered = WAYS if classes else WAYS[:2]
    ends = dict.fromkeys(offered, (start, heard))
    ends["own"], ends["half"] = (own, own), ((own + start) / 2, (own + heard) / 2)
    found = [_cross_validated(way, at_pace, *ends[way], coins) for way in offered]
    losses, errors = (np.stack(each, axis=1) for each in zip(*found, strict=True))
    ways = chosen_ways(losses, errors, trainer.examples.sizes, classes)
    models = torch.empty_like(heard)
    for number, way in enumerate(offered):
        mine = torch.from_numpy(ways == number).to(heard.device)
        if mine.any():
            models[mine] = _walked(way, at_pace, *ends[way], _coins(way, coins))[mine]
    return Settled(models, ways, losses, errors)


def _classes(trainer: Trainer) -> int:
    """How many there are; 0: numbers are predicted."""
    if trainer.work.loss != "cross_entropy":
        return 0
    X = trainer.examples.X
    return width(trainer.stacked, X.new_zeros(1, *X.shape[1:]))


def paced(trainer: Trainer, start: Tensor, coins: Coins) -> Trainer:
    """The trainer, with each client at the pace of 1 if it learns its own rows from start (m, d) in
    TRIAL_STEPS, and else at the one that fits them best."""
    examples, work = trainer.examples, replace(trainer.work, steps=TRIAL_STEPS, pull=0.0)
    sizes = examples.sizes
    nth = np.arange(len(examples.X)) - np.repeat(examples.offsets[:-1], sizes)
    rows = _blocks(np.arange(len(nth)), examples.owners, nth, sizes, work.batch)
    losses = []
    for pace in PACES:
        at_pace = replace(examples, paces=np.full(examples.clients, pace))
        tried = replace(trainer, work=work, examples=at_pace)
        models = finetuned(tried, start, start, "vanilla", coins)
        losses.append(losses_at(trainer, models, rows)[:, 0])
    left, begun = np.where(np.isnan(losses), np.inf, losses), losses_at(trainer, start, rows)[:, 0]
    left[-1, left[:-1].min(axis=0) <= SLOW * begun] = np.inf
    paces = np.where(left[0] <= UNLEARNED * begun, 1.0, np.array(PACES)[left.argmin(axis=0)])
    return replace(trainer, examples=replace(examples, paces=paces))


def chosen_ways(losses: FloatArray, errors: FloatArray, sizes: IntArray, classes: int) -> IntArray:
    """(m,): the best way of each client, of mean losses and errors (m, ways) over its rows.

    A mean cross-entropy is a mean of −log p. Of numbers (no classes) the variance is unknown, too:
    −log p is (n/2) log(mean loss), and a constant.

    Where rows are few for so many classes, no way gets most held-out rows right, and a likelihood
    is mostly of how wrong each way is there. So errors take its place with the share
    b = 1 − n/(ENOUGH · classes), AN_ERROR nats each: (1 − b)·nats + b·AN_ERROR·errors. One's own
    model has PRIOR of a start, and with that share an error, as it lacks a class for each row held
    out. *half* and *loose* have as much to make up for: the more ways there are, the more often a
    choice by few rows errs. Who has no rows, or diverges on every way, keeps what it heard.

    >>> two, sizes = np.array([[0.5, 0.6, 0.45], [0.5, 0.6, 0.45]]), np.array([10, 100])
    >>> chosen_ways(two, np.zeros((2, 3)), sizes, 10)
    array([0, 2])
    >>> likelier = np.array([[4.0, 3.0, 3.0]])
    >>> chosen_ways(likelier, np.array([[0.8, 0.9, 0.9]]), np.array([20]), 200)
    array([0])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        nats = losses if classes else np.log(losses) / 2
    few = np.maximum(1 - sizes / max(ENOUGH * classes, 1), 0.0)[:, None]  # b
    cost = np.where(few > 0, (1 - few) * nats + few * AN_ERROR * errors, nats)
    cost = np.where(np.isnan(cost), np.inf, cost * sizes[:, None])
    cost[:, WAYS.index("own")] -= PRIOR + AN_ERROR * few[:, 0]
    cost[:, WAYS.index("half") :] += AN_ERROR * few
    return np.where((cost < np.inf).any(axis=1), cost.argmin(axis=1), WAYS.index("shared"))


def _walked(way: Way, trainer: Trainer, start: Tensor, around: Tensor, coins: Coins) -> Tensor:
    """(m, d): all clients at the end of that way."""
    kind, work = work_of(way, trainer.work)
    if way not in ("own", "shared"):
        trainer = replace(trainer, examples=opened(trainer.examples, _classes(trainer)))
    return finetuned(replace(trainer, work=work), start.contiguous(), around, kind, coins)


def work_of(way: Way, work: LocalWork) -> tuple[Finetuning, LocalWork]:
    """How a client is finetuned on that way, where ``work`` is what it does in a round.

    >>> work_of("shared", LocalWork(10, 32, 0.3))[1].steps
    60
    """
    kind: Finetuning = "kl" if work.loss == "cross_entropy" else "mean"
    rate = work.rate if way in ("own", "loose") else work.rate * GENTLE
    walked = replace(work, steps=STEPS[way], rate=rate, pull=PULL[way])
    return ("vanilla" if way == "own" else kind), walked


def _coins(way: Way, coins: Coins) -> Coins:
    """Where all classes were seen, both ways from what is shared are one."""
    return coins.of("own" if way == "own" else "shared")


def opened(examples: Examples, classes: int) -> Examples:
    """With the outputs of each client's unseen classes lowered by OPEN before its loss.

    >>> two = Examples(torch.zeros(3, 1), torch.tensor([2, 0, 2]), np.array([0, 1, 3]))
    >>> opened(two, 3).shifts
    tensor([[-4., -4.,  0.],
            [ 0., -4.,  0.]])
    """
    shifts = examples.X.new_full((examples.clients, classes), -OPEN)
    shifts[examples.owners, examples.y] = 0.0
    return replace(examples, shifts=shifts)


# --- cross-validation ----------------------------------------------------------------------------


def _cross_validated(
    way: Way, trainer: Trainer, start: Tensor, around: Tensor, coins: Coins
) -> tuple[FloatArray, FloatArray]:
    """(m,) each: mean loss, and share of errors, on rows that the client's models did not see."""
    examples, found = trainer.examples, []
    for number, (rest, held) in enumerate(folds(examples, trainer.work.batch, coins.of("folds"))):
        mine = _coins(way, coins).of(number)
        models = _walked(way, replace(trainer, examples=rest), start, around, mine)
        found.append(losses_at(trainer, models, held))
    with np.errstate(invalid="ignore"):  # a client without rows has no mean
        means = np.sum(found, axis=0) / examples.sizes[:, None]
    return means[:, :-1].min(axis=1), means[:, -1]


def folds(examples: Examples, batch: int, coins: Coins) -> Iterator[tuple[Examples, IntArray]]:
    """For each fold the examples outside of it, and the rows in it: (blocks, clients, batch).

    A client's rows are dealt in an order of its own; nobody's row fills up the last block.

    >>> three = Examples(torch.zeros(3, 1), torch.zeros(3), np.array([0, 0, 3]))
    >>> rest, held = next(folds(three, 2, Coins(bytes(32))))
    >>> rest.sizes.tolist(), held.shape, (held >= 0).sum(axis=(0, 2)).tolist()
    ([0, 2], (1, 2, 2), [0, 1])
    """
    sizes, owners = examples.sizes, examples.owners
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
    """(m, temperatures + 1): total losses of models (m, d) on their clients' rows (blocks, m,
    batch), and in the last column their errors.

    In passes, as in training: no bit of it depends on who else is there. Numbers have one
    temperature, 1, and no errors: NaN.
    """
    drawn, size = torch.from_numpy(rows).to(trainer.device), trainer.slots()
    classes = trainer.work.loss == "cross_entropy"
    temperatures = TEMPERATURES if classes else TEMPERATURES[:1]

    @torch.no_grad()
    def job(worker: Worker, part: slice) -> Tensor:
        parameters = worker.stacked.views(filled(models[part], size))
        total = models.new_zeros(size, len(temperatures) + 1)
        before = worker.stacked.set_training(False)
        try:
            for block in drawn[:, part]:
                places = filled(block, size, NOBODY).flatten()
                x, y = trainer.examples.at(places)
                outputs = worker.stacked(parameters, x)
                columns = [trainer.work.row_loss(outputs / t, y) for t in temperatures]
                wrong = outputs.argmax(1) != y if classes else torch.nan
                for column, lost in enumerate([*columns, wrong]):
                    counted = torch.where(places == NOBODY, 0.0, lost)
                    total[:, column] += counted.view(size, -1).sum(1)
        finally:
            worker.stacked.set_training(before)
        return total[: part.stop - part.start]

    found = trainer.each(job, len(models), size, spare=True)
    return np.asarray(found.double().cpu().numpy())
