"""What a client makes of the released model at home: free of charge, whatever it does (S2 §5.3).

=============  =====================================================  =========================
name           adds to the local loss                                 keeps close to w̃ in
=============  =====================================================  =========================
``vanilla``    nothing                                                nothing
``mean``       (λ/2) ‖w − w̃‖²                                         parameters
``kl``         λ (KL(p‖p̃) + KL(p̃‖p)), means over the batch            predictions
``ewc``        (λ/2) Σ_i F_i (w_i − w̃_i)²                             parameters that matter
=============  =====================================================  =========================

p and p̃ are the class probabilities of the personal and of the released model; F is the diagonal of
the empirical Fisher information of the released model on the client's own rows (Kirkpatrick et
al., 2017), from at most ``FISHER_ROWS`` of them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from tacit.errors import InvalidInput
from tacit.neural.client_training import Extra, Trainer, TrainingStep
from tacit.neural.clients import NOBODY, batches
from tacit.neural.passes import Worker
from tacit.neural.secret_streams import Coins

Finetuning = Literal["vanilla", "mean", "kl", "ewc"]
FINETUNINGS: tuple[Finetuning, ...] = ("vanilla", "mean", "kl", "ewc")
FISHER_ROWS = 32


def finetuned(
    trainer: Trainer, start: Tensor, centres: Tensor, kind: Finetuning, coins: Coins
) -> Tensor:
    """(m, d): all clients after ``trainer.work`` steps from start (m, d) around centres (m, d).

    ``trainer.work.pull`` is λ. A client without rows, or one that diverges, keeps the centre. As in
    a round, nothing of one client is in another's model: each is handed to its client.
    """
    require_kind(kind, trainer.work.loss)
    work, examples = trainer.work, trainer.examples
    order = batches(examples, np.arange(examples.clients), work.steps, work.batch, coins)
    plain = work if kind == "mean" else replace(work, pull=0.0)
    local = replace(trainer, work=plain, extra=_extra(kind, work.pull))
    weights = [fisher_information(trainer, centres, coins)] if kind == "ewc" else []
    found = local(start, centres, order, *weights, spare=True)
    usable = torch.isfinite(found).all(dim=1)
    usable &= torch.from_numpy(examples.sizes > 0).to(found.device)
    return torch.where(usable[:, None], found, centres)


def require_kind(kind: Finetuning, loss: object) -> None:
    """InvalidInput unless it is one of the four, and one that goes with the loss."""
    if kind not in FINETUNINGS:
        raise InvalidInput(f"finetune must be one of {', '.join(FINETUNINGS)}, got {kind!r}")
    if kind == "kl" and loss != "cross_entropy":
        raise InvalidInput(
            "finetune='kl' compares class probabilities: it needs classes to predict"
        )


def _extra(kind: Finetuning, strength: float) -> Extra:
    """What is added to the loss, besides the pull."""
    terms = {"kl": symmetrised_kl, "ewc": weighted_distance}
    return partial(terms[kind], strength) if kind in terms else None


def symmetrised_kl(strength: float, at: TrainingStep) -> Tensor:
    """λ (KL(p‖p̃) + KL(p̃‖p)), (c,)."""
    with torch.no_grad():
        theirs = at.stacked(at.anchors, at.x).log_softmax(dim=1)
    ours = at.outputs.log_softmax(dim=1)
    both = ((ours.exp() - theirs.exp()) * (ours - theirs)).sum(dim=1)  # KL + its mirror image
    return strength * both.view(len(at.parameters[0]), -1).mean(dim=1)


def weighted_distance(strength: float, at: TrainingStep) -> Tensor:
    """(λ/2) Σ_i F_i (w_i − w̃_i)², (c,); the step's weights are F."""
    each = [
        (f * (w - a).square()).flatten(1).sum(dim=1)
        for f, w, a in zip(at.weights, at.parameters, at.anchors, strict=True)
    ]
    return strength / 2 * torch.stack(each).sum(dim=0)


def fisher_information(trainer: Trainer, centres: Tensor, coins: Coins) -> Tensor:
    """(m, d): the mean squared gradient of the loss at the centre, row by row of each client.

    NaN for a client whose rows the module refuses.
    """
    clients, size = np.arange(trainer.examples.clients), trainer.slots()
    rows = batches(trainer.examples, clients, FISHER_ROWS, 1, coins.of("fisher"))[:, :, 0]
    drawn = torch.from_numpy(rows).to(trainer.device)  # (rows, m)

    def job(worker: Worker, part: slice) -> Tensor:
        around = filled(centres[part], size)
        total = torch.zeros_like(around)
        for row in drawn[:, part]:
            parameters = [view.clone().requires_grad_() for view in trainer.stacked.views(around)]
            x, y = trainer.examples.at(filled(row, size, NOBODY))
            loss = trainer.work.row_loss(worker.stacked(parameters, x), y).sum()
            gradients = torch.autograd.grad(loss, parameters)
            total += torch.cat([gradient.flatten(1) for gradient in gradients], dim=1).square()
        return total[: part.stop - part.start] / FISHER_ROWS

    return trainer.each(job, len(clients), size, spare=True)


def filled(given: Tensor, size: int, idle: float = 0) -> Tensor:
    """given (n, ...), with idle rows up to the shape of a pass."""
    rest = given.new_full((size - len(given), *given.shape[1:]), idle)
    return torch.cat([given, rest])
