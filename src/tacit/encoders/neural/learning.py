"""Algorithm 1 of S4: encoder and decoder learned together, through the clip and the noise.

Cheng, Tang, Chinchali, *Task-aware Privacy Preservation for Multi-dimensional Data* (ICML 2022),
Section 4.2 and A.7.4 (S4).

**Symbols**: g_e, θ_e → ``encoder``; g_d, θ_d → ``decoder``; f → ``target``; φ → ``latent``;
w → inside ``perturb``; Z → the encoder's output width; η → ``regularization``; l → ``loss``;
τ → ``epoch``.

**Differs from the paper in**

1. Noise is drawn anew at every step and every row, not once per epoch: the gradient is that of
   E_w[l], an unbiased estimate, where a fixed draw is a sample to be overfitted.
2. Steps may be taken on random batches, because MNIST does not fit many full steps.
3. The learning rate falls to zero along a half cosine, so that the last steps average the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tacit.encoders.neural.task import Problem
from tacit.errors import InvalidInput

Perturb = Callable[[Tensor], Tensor]
"""A simulated mechanism: latents (n, Z) in, clipped and noisy reports (n, Z) out."""

Refresh = Callable[[nn.Module], Perturb]
"""The mechanism at the start of an epoch; as published it measures the encoder first."""

_SMALL = 5 * 10**7  # products in a pass that one thread does in a few milliseconds


@dataclass(frozen=True)
class Schedule:
    """How Algorithm 1 is run: Adam at ``learning_rate``, ``steps`` in each of ``epochs``."""

    epochs: int
    steps: int
    learning_rate: float
    batch: int
    regularization: float  # η of θ_e


def unperturbed(latent: Tensor) -> Tensor:
    """No clip and no noise: the privacy-agnostic first stage, and the non-private twin."""
    return latent


def train(
    encoder: nn.Module,
    decoder: nn.Module,
    problem: Problem,
    refresh: Refresh,
    schedule: Schedule,
    generator: torch.Generator,
    *,
    decoder_only: bool = False,
) -> list[float]:
    """Algorithm 1, in place; the loss of each epoch's last step. ``decoder_only``: θ_e is fixed."""
    free = [*decoder.parameters()] + ([] if decoder_only else [*encoder.parameters()])
    optimizer = torch.optim.Adam(free, lr=schedule.learning_rate, foreach=True)
    total = schedule.epochs * schedule.steps
    falling = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * min(step, total) / total))
    )
    history = []
    with _threads(_work(encoder, decoder, problem, schedule)):
        for _ in range(schedule.epochs):
            perturb = refresh(encoder)  # line 4
            for _ in range(schedule.steps):  # line 3
                optimizer.zero_grad(set_to_none=True)
                value = _step_loss(encoder, decoder, problem, perturb, schedule, generator)
                value.backward()  # type: ignore[no-untyped-call] # torch leaves this one untyped
                optimizer.step()
                falling.step()
            history.append(_finite(float(value.detach())))
    return history


def _work(encoder: nn.Module, decoder: nn.Module, problem: Problem, schedule: Schedule) -> int:
    """Products in one pass, roughly: rows of a batch times weights."""
    weights = sum(p.numel() for m in (encoder, decoder, problem.target) for p in m.parameters())
    return min(len(problem.rows), schedule.batch) * weights


@contextmanager
def _threads(work: int) -> Iterator[None]:
    """One thread for small steps: waiting for others takes longer than the step."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if work < _SMALL else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _step_loss(
    encoder: nn.Module,
    decoder: nn.Module,
    problem: Problem,
    perturb: Perturb,
    schedule: Schedule,
    generator: torch.Generator,
) -> Tensor:
    """L + η‖θ_e‖² on one batch."""
    chosen = _batch(len(problem.rows), schedule.batch, generator)
    reports = perturb(encoder(problem.rows[chosen]))
    value = problem.risk(decoder(reports), chosen)
    if schedule.regularization:
        squares = sum(p.square().sum() for p in encoder.parameters())
        value = value + schedule.regularization * squares
    return value


def _batch(rows: int, batch: int, generator: torch.Generator) -> Tensor | slice:
    """All rows, or a random batch of them."""
    if batch >= rows:
        return slice(None)
    return torch.randint(rows, (batch,), generator=generator)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise InvalidInput(
            f"the task loss became {value} in training: scale X, or lower learning_rate"
        )
    return value


@torch.no_grad()
def expected_loss(
    encoder: nn.Module, decoder: nn.Module, problem: Problem, perturb: Perturb, draws: int
) -> float:
    """E_w[l], the mean over ``draws`` reports of each row."""
    latent = encoder(problem.rows)
    values = [float(problem.risk(decoder(perturb(latent)))) for _ in range(draws)]
    return sum(values) / draws
