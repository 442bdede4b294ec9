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
the fit rows' latents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from tacit.neural.encoder_layers import into_the_ball
from tacit.neural.encoder_noise import Clipping, laplace_noise, simulated
from tacit.neural.encoder_training import (
    Activation,
    Perturb,
    Problem,
    Schedule,
    identity_network,
    network,
    train,
    unperturbed,
)
from tacit.privacy.budget import Budget
from tacit.privacy.local import LocalName, available, local_mechanism
from tacit.privacy.mechanisms.local import LocalMechanism, SampledLaplace

Strategy = Literal["task-aware", "privacy-agnostic", "task-agnostic"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)

RADIUS = 1.0
"""Of the ball that latents are clipped to: φ has no unit of its own."""


@dataclass(frozen=True)
class Shape:
    """The networks: d → (hidden →) Z and back."""

    width: int  # Z
    hidden: int | None
    activation: Activation

    def encoder_sizes(self, dim: int) -> tuple[int, ...]:
        """(d, Z) or (d, hidden, Z); reversed they are the decoder's."""
        return (dim, self.width) if self.hidden is None else (dim, self.hidden, self.width)


@dataclass(frozen=True)
class Learned:
    """Two trained networks and what their reports go through in training."""

    encoder: nn.Sequential
    decoder: nn.Sequential
    perturb: Perturb
    history: list[float]


@dataclass(frozen=True)
class Noise:
    """A mechanism, the published claim, or none (both None)."""

    mechanism: Clipping | None
    claimed_epsilon: float | None = None  # as published

    def on(self, encoder: nn.Module, rows: Tensor, generator: torch.Generator) -> Perturb:
        """The simulation of it."""
        if self.mechanism is not None:
            return simulated(self.mechanism, generator)
        if self.claimed_epsilon is None:
            return unperturbed
        return _published(encoder, rows, self.claimed_epsilon, generator)

    def on_reports(self, encoder: nn.Module, rows: Tensor) -> LocalMechanism | None:
        """What reports go through, once the encoder is fixed."""
        if self.claimed_epsilon is None:
            return self.mechanism
        with torch.no_grad():
            measured = sample_sensitivity(encoder(rows))
        return SampledLaplace(measured, self.claimed_epsilon, as_published=True)


def _published(
    encoder: nn.Module, rows: Tensor, epsilon: float, generator: torch.Generator
) -> Perturb:
    """φ + Lap(Δ₁/ε), Algorithm 1 line 4."""
    with torch.no_grad():
        scale = sample_sensitivity(encoder(rows)) / epsilon
    return lambda latent: latent + scale * laplace_noise(latent, generator)


def learn(
    strategy: Strategy,
    problem: Problem,
    shape: Shape,
    noise: Noise,
    schedule: Schedule,
    generator: torch.Generator,
) -> Learned:
    """Encoder and decoder by a strategy."""
    encoder, decoder = _start(strategy, problem, shape, generator)

    def refresh(current: nn.Module) -> Perturb:
        return noise.on(current, problem.rows, generator)

    if strategy == "privacy-agnostic":
        train(encoder, decoder, problem, lambda _: unperturbed, schedule, generator)
    if noise.mechanism is not None:
        into_the_ball(encoder, decoder, problem.rows)
    if strategy == "task-aware":
        history = train(encoder, decoder, problem, refresh, schedule, generator)
        return Learned(encoder, decoder, refresh(encoder), history)
    perturb = refresh(encoder)  # the encoder is fixed, and so is what its reports go through
    history = train(
        encoder, decoder, problem, lambda _: perturb, schedule, generator, decoder_only=True
    )
    return Learned(encoder, decoder, perturb, history)


def _start(
    strategy: Strategy, problem: Problem, shape: Shape, generator: torch.Generator
) -> tuple[nn.Sequential, nn.Sequential]:
    dim, dtype = problem.rows.shape[1], problem.rows.dtype
    sizes = shape.encoder_sizes(dim)
    if strategy == "task-agnostic":
        sizes = (dim, *sizes[1:-1], dim)
        encoder = identity_network(dim)
    else:
        encoder = network(sizes, shape.activation, generator)
    return encoder.to(dtype), network(sizes[::-1], shape.activation, generator).to(dtype)


def best_mechanism(name: str, budget: Budget, dim: int, reports: int) -> Clipping:
    """The named mechanism; "auto": the one with the least variance in ``dim`` coordinates.

    That is a public rule of (ε, δ, Z). PrivUnitG's variance does not grow with Z, so it wins in
    all but the lowest dimensions and largest ε, even over the Gaussian at δ = 1e-5. At δ = 0 noise
    must be pure and drawn exactly.

    >>> type(best_mechanism("auto", Budget(5.0), 3, 1)).__name__
    'PrivUnitG'
    >>> type(best_mechanism("auto", Budget(20.0, 0.0), 1, 1)).__name__
    'LocalLaplace'
    """
    names: list[LocalName] = [name]  # type: ignore[list-item] # local_mechanism refuses others
    if name == "auto":
        names = [each for each in available(budget, reports) if each != "staircase"]
    found = [local_mechanism(each, RADIUS, budget, dim, reports=reports) for each in names]
    best = min(found, key=lambda mechanism: float(mechanism.variance(dim).mean()))
    assert isinstance(best, Clipping)
    return best


# --- the sensitivity of a sample (S4, as published) ----------------------------------------------


def sample_sensitivity(latent: Tensor) -> float:
    """Δ₁ = max ‖φ_i − φ_j‖₁ over the rows: of this sample, not of the next user.

    The largest ℓ1 distance is max over signs u of (max_i uᵀφ_i − min_i uᵀφ_i); half of the signs
    are enough. Beyond ten coordinates pairs are compared.

    >>> sample_sensitivity(torch.tensor([[0.0, 0.0], [1.0, -2.0], [0.5, 0.5]]))
    3.0
    """
    rows, width = latent.detach(), latent.shape[1]
    if width > 10:
        return _largest_distance(rows.double().numpy())
    codes = torch.arange(2 ** (width - 1))[:, None] >> torch.arange(width)
    sums = rows @ (1 - 2 * (codes & 1)).to(rows.dtype).T
    return float((sums.amax(0) - sums.amin(0)).max())


def _largest_distance(rows: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> float:
    """By the triangle inequality only rows far from the mean can be the two ends."""
    from scipy.spatial.distance import cdist

    size = np.abs(rows - rows.mean(0)).sum(1)
    order = np.argsort(-size)
    rows, size, best = rows[order], size[order], 0.0
    for start in range(0, len(rows), 64):
        reach = np.searchsorted(-size, size[start] - best)  # others with size > best − size[start]
        if reach <= start:
            break
        best = max(best, float(cdist(rows[start : start + 64], rows[:reach], "cityblock").max()))
    return best
