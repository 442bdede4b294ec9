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
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.errors import InvalidInput
from tacit.neural.clients import batches
from tacit.neural.local import Extra, Trainer

Finetuning = Literal["vanilla", "mean", "kl", "ewc"]
FINETUNINGS: tuple[Finetuning, ...] = ("vanilla", "mean", "kl", "ewc")
FISHER_ROWS = 32


def finetuned(
    trainer: Trainer, start: Tensor, centres: Tensor, kind: Finetuning, rng: np.random.Generator
) -> Tensor:
    """(m, d): all clients after ``trainer.work`` steps from start (m, d) around centres (m, d).

    ``trainer.work.pull`` is λ. A client without rows, or one that diverges, keeps the centre.
    """
    require_kind(kind, trainer.work.loss)
    work = trainer.work
    plain = work if kind == "mean" else replace(work, pull=0.0)
    done = torch.empty_like(start)
    size = trainer.chunk_size(len(start))
    everyone = np.arange(trainer.examples.clients)
    for clients in np.split(everyone, range(size, len(everyone), size)):
        part = torch.from_numpy(clients)
        around, own = centres[part].to(trainer.device), start[part].to(trainer.device)
        extra = None
        if kind == "kl":
            extra = _symmetrised_kl(trainer, work.pull)
        elif kind == "ewc":
            fisher = fisher_information(trainer, around, clients, rng)
            extra = _weighted_distance(trainer, fisher, work.pull)
        local = Trainer(trainer.stacked, plain, trainer.examples, len(clients), extra)
        order = batches(trainer.examples, clients, work.steps, work.batch, rng)
        found = local(own, around, order)
        usable = torch.isfinite(found).all(dim=1)
        usable &= torch.from_numpy(trainer.examples.sizes[clients] > 0).to(found.device)
        done[part] = torch.where(usable[:, None], found, around).to(done)
    return done


def require_kind(kind: Finetuning, loss: object) -> None:
    """InvalidInput unless it is one of the four, and one that goes with the loss."""
    if kind not in FINETUNINGS:
        raise InvalidInput(f"finetune must be one of {', '.join(FINETUNINGS)}, got {kind!r}")
    if kind == "kl" and loss != "cross_entropy":
        raise InvalidInput(
            "finetune='kl' compares class probabilities: it needs classes to predict"
        )


def _symmetrised_kl(trainer: Trainer, strength: float) -> Extra:
    def term(parameters: list[Tensor], anchors: list[Tensor], x: Tensor, outputs: Tensor) -> Tensor:
        with torch.no_grad():
            theirs = trainer.stacked(anchors, x).log_softmax(dim=1)
        ours = outputs.log_softmax(dim=1)
        both = ((ours.exp() - theirs.exp()) * (ours - theirs)).sum(dim=1)  # KL + its mirror image
        return strength * both.view(len(parameters[0]), -1).mean(dim=1)

    return term


def _weighted_distance(trainer: Trainer, fisher: Tensor, strength: float) -> Extra:
    weights = trainer.stacked.views(fisher)

    def term(parameters: list[Tensor], anchors: list[Tensor], x: Tensor, outputs: Tensor) -> Tensor:
        parts = [
            (f * (w - a).square()).flatten(1).sum(dim=1)
            for f, w, a in zip(weights, parameters, anchors, strict=True)
        ]
        return strength / 2 * torch.stack(parts).sum(dim=0)

    return term


def fisher_information(
    trainer: Trainer, centres: Tensor, clients: NDArray[np.int64], rng: np.random.Generator
) -> Tensor:
    """(c, d): the mean squared gradient of the loss at the centre, row by row of each client."""
    rows = batches(trainer.examples, clients, FISHER_ROWS, 1, rng)  # (rows, c, 1)
    total = torch.zeros_like(centres)
    for row in torch.from_numpy(rows).to(trainer.device):
        parameters = [view.clone().requires_grad_() for view in trainer.stacked.views(centres)]
        picked = row.flatten()
        outputs = trainer.stacked(parameters, trainer.examples.X[picked])
        loss = trainer.work.row_loss(outputs, trainer.examples.y[picked]).sum()
        gradients = torch.autograd.grad(loss, parameters)
        total += torch.cat([gradient.flatten(1) for gradient in gradients], dim=1).square()
    return total / FISHER_ROWS
