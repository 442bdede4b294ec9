"""Algorithm 1 of S4: encoder and decoder learned together, through the clip and the noise.

Cheng, Tang, Chinchali, *Task-aware Privacy Preservation for Multi-dimensional Data* (ICML 2022),
Section 4.2 and A.7.4 (S4).

**Symbols**: g_e, θ_e → ``encoder``; g_d, θ_d → ``decoder``; f → ``target``; φ → ``latent``;
w → inside ``perturb``; Z → the encoder's output width; η → ``regularization``; l → ``loss``;
τ → ``epoch``.

**Differs from the paper in**

1. Noise is drawn anew at every step and every row, not once per epoch: the gradient is that of
   E_w[l], an unbiased estimate, where a fixed draw is a sample to be overfitted.
2. The learning rate falls to zero along a half cosine, so that the last steps average the noise.
3. Steps may be taken on random batches, because MNIST does not fit many full steps.

``printed`` undoes the first two; the third is undone by a batch of all rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from tacit.encoders.neural.task import Problem
from tacit.errors import InvalidInput

Perturb = Callable[[Tensor], Tensor]
"""A simulated mechanism: latents (n, Z) in, clipped and noisy reports (n, Z) out."""

Refresh = Callable[[nn.Module], Perturb]
"""The mechanism at the start of an epoch; as published it measures the encoder first."""

Chosen = Tensor | slice
"""Rows of a batch."""

_SMALL = 5 * 10**7  # products in a pass that one thread does in a few milliseconds


def unperturbed(latent: Tensor) -> Tensor:
    """No clip and no noise: the privacy-agnostic first stage, and the non-private twin."""
    return latent


@dataclass(frozen=True)
class Training:
    """How Algorithm 1 is run: Adam at ``learning_rate``, ``steps`` in each of ``epochs``."""

    problem: Problem
    generator: torch.Generator  # of starts, batches and simulated noise
    epochs: int
    steps: int
    learning_rate: float
    batch: int
    regularization: float  # η of θ_e
    printed: bool = False  # Algorithm 1 to the letter: one w for each row of an epoch, one rate

    def shorter(self, part: int) -> Training:
        """With a part of the epochs."""
        return replace(self, epochs=max(1, self.epochs // part))

    def run(
        self, encoder: nn.Module, decoder: nn.Module, refresh: Refresh, *, fixed: bool = False
    ) -> list[float]:
        """Algorithm 1, in place; the loss of each epoch's last step. ``fixed``: θ_e stays."""
        free = [*decoder.parameters()] + ([] if fixed else [*encoder.parameters()])
        optimizer = torch.optim.Adam(free, lr=self.learning_rate, foreach=True)
        rates = torch.optim.lr_scheduler.LambdaLR(optimizer, self._share_of_rate)
        history = []
        with _threads(self._work(encoder, decoder)):
            for _ in range(self.epochs):
                reports = self._reports(encoder, refresh(encoder))  # line 4
                for _ in range(self.steps):  # line 3
                    optimizer.zero_grad(set_to_none=True)
                    value = self._step_loss(encoder, decoder, reports)
                    value.backward()  # type: ignore[no-untyped-call] # torch leaves this one untyped
                    optimizer.step()
                    rates.step()
                history.append(_finite(float(value.detach())))
        return history

    def _share_of_rate(self, step: int) -> float:
        total = self.epochs * self.steps
        return 1.0 if self.printed else 0.5 * (1 + math.cos(math.pi * min(step, total) / total))

    def _reports(self, encoder: nn.Module, perturb: Perturb) -> Callable[[Chosen], Tensor]:
        """What is reported of rows in this epoch; as printed φ + w, with w drawn here."""
        rows = self.problem.rows
        if not self.printed:
            return lambda chosen: perturb(encoder(rows[chosen]))
        with torch.no_grad():
            w = perturb(torch.zeros_like(encoder(rows)))  # its noise is added, and clips nothing
        return lambda chosen: encoder(rows[chosen]) + w[chosen]

    def _step_loss(
        self, encoder: nn.Module, decoder: nn.Module, reports: Callable[[Chosen], Tensor]
    ) -> Tensor:
        """L + η‖θ_e‖² on one batch."""
        chosen = self._batch()
        value = self.problem.risk(decoder(reports(chosen)), chosen)
        if self.regularization:
            squares = sum(p.square().sum() for p in encoder.parameters())
            value = value + self.regularization * squares
        return value

    def _batch(self) -> Chosen:
        """All rows, or a random batch of them."""
        rows = len(self.problem.rows)
        if self.batch >= rows:
            return slice(None)
        return torch.randint(rows, (self.batch,), generator=self.generator)

    def _work(self, *modules: nn.Module) -> int:
        """Products in one pass, roughly: rows of a batch times weights."""
        every = (*modules, self.problem.target)
        weights = sum(p.numel() for module in every for p in module.parameters())
        return min(len(self.problem.rows), self.batch) * weights


@contextmanager
def _threads(work: int) -> Iterator[None]:
    """One thread for small steps: waiting for others takes longer than the step."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if work < _SMALL else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise InvalidInput(
            f"the task loss became {value} in training: scale X, or lower learning_rate"
        )
    return value


@dataclass(frozen=True)
class Learned:
    """Two trained networks and what their reports go through in training."""

    encoder: nn.Module
    decoder: nn.Module
    perturb: Perturb
    history: list[float]

    @torch.no_grad()
    def expected_loss(self, problem: Problem, draws: int) -> float:
        """E_w[l], the mean over ``draws`` reports of each row."""
        latent = self.encoder(problem.rows)
        values = [float(problem.risk(self.decoder(self.perturb(latent)))) for _ in range(draws)]
        return sum(values) / draws
