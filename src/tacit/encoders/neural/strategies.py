"""Which encoder is learned: task-aware (S4 Algorithm 1) or one of the benchmarks of S4 A.7.4.

================  ==============================  ===============================================
strategy          encoder                         decoder
================  ==============================  ===============================================
task-aware        learned through the noise       learned with it
privacy-agnostic  learned without clip and noise  then learned again, with noise, encoder fixed
task-agnostic     the identity                    learned with noise, on the task loss
================  ==============================  ===============================================

The unit of φ is free: a decoder undoes any scale. So the radius of the ball is 1, and what the
training chooses is how much of the population is clipped. It starts with every fit row inside, and
so do the benchmarks, which know no clip: their encoder is moved and scaled, then fixed. As
published nothing is clipped, and the noise has the scale Δ₁/ε, Δ₁ the largest ℓ1 distance between
the fit rows' latents; training is to the letter, too (``Training.printed``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from tacit.encoders.base import Strategy
from tacit.encoders.neural.differentiable_noise import simulated
from tacit.encoders.neural.learning import Learned, Perturb, Training, unperturbed
from tacit.encoders.neural.modules import Hidden, identity_network, into_the_ball, network
from tacit.privacy.mechanisms.local import LocalMechanism, SampledLaplace, sample_sensitivity

Noise = Callable[[nn.Module, Tensor], LocalMechanism | None]
"""What reports of an encoder go through, given the fit rows; None: no noise."""


@dataclass(frozen=True)
class Shape:
    """The networks: d → (hidden →) Z and back."""

    width: int  # Z
    hidden: int | None
    activation: Hidden

    def encoder_sizes(self, dim: int) -> tuple[int, ...]:
        """(d, Z) or (d, hidden, Z); reversed they are the decoder's."""
        return (dim, self.width) if self.hidden is None else (dim, self.hidden, self.width)


@torch.no_grad()
def measured(epsilon: float, encoder: nn.Module, rows: Tensor) -> SampledLaplace:
    """As published: Lap(Δ₁/ε), Δ₁ of the fit rows' latents and not of the next user."""
    widest = sample_sensitivity(encoder(rows).double().numpy())
    return SampledLaplace(widest, epsilon, as_published=True)


def learn(strategy: Strategy, training: Training, shape: Shape, noise: Noise) -> Learned:
    """Encoder and decoder by a strategy."""
    rows = training.problem.rows
    encoder, decoder = _start(strategy, training, shape)

    def refresh(current: nn.Module) -> Perturb:  # Algorithm 1 line 4
        return simulated(noise(current, rows), training.generator)

    if strategy == "privacy-agnostic":  # A.7.4: −∇L alone, so without η
        replace(training, regularization=0.0).run(encoder, decoder, lambda _: unperturbed)
    mechanism = noise(encoder, rows)
    if mechanism is not None and math.isfinite(mechanism.radius):
        into_the_ball(encoder, decoder, rows)
    if strategy == "task-aware":
        history = training.run(encoder, decoder, refresh)
        return Learned(encoder, decoder, refresh(encoder), history)
    perturb = refresh(encoder)  # the encoder is fixed, and so is what its reports go through
    history = training.run(encoder, decoder, lambda _: perturb, fixed=True)
    return Learned(encoder, decoder, perturb, history)


def _start(
    strategy: Strategy, training: Training, shape: Shape
) -> tuple[nn.Sequential, nn.Sequential]:
    dim, dtype = training.problem.rows.shape[1], training.problem.rows.dtype
    sizes = shape.encoder_sizes(dim)
    if strategy == "task-agnostic":
        sizes = (dim, *sizes[1:-1], dim)
        encoder = identity_network(dim)
    else:
        encoder = network(sizes, shape.activation, training.generator)
    decoder = network(sizes[::-1], shape.activation, training.generator)
    return encoder.to(dtype), decoder.to(dtype)
