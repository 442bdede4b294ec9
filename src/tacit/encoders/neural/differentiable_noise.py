"""The local mechanisms as differentiable simulations, for training only.

A report is drawn by ``tacit.privacy.mechanisms.local``; here the same laws are written as
functions of (latent, independent noise), so that gradients pass. Additive noise is independent of
the latent, and PrivUnitG is reparametrised: with v on the unit sphere of R^{Z+1},

    u = α v + (I − vvᵀ) n,    n ~ N(0, I),

and neither α nor n depends on v, so ∂u/∂v is the derivative of this line.
"""

from __future__ import annotations

from functools import singledispatch

import torch
from scipy.special import ndtr
from torch import Tensor

from tacit.encoders.neural.learning import Perturb, unperturbed
from tacit.errors import InvalidInput
from tacit.privacy.mechanisms.local import (
    LocalGaussian,
    LocalKNorm,
    LocalLaplace,
    LocalMechanism,
    PrivUnitG,
    SampledLaplace,
)

SMALLEST = 1e-6
"""Under the root of √(1 − ‖t‖²), whose derivative is infinite on the sphere."""


def clipped(latent: Tensor, radius: float) -> Tensor:
    """h · min(1, r/‖h‖), row by row; differentiable wherever ‖h‖ ≠ r.

    A clipped row keeps the gradient along the sphere and loses the one across it.

    >>> clipped(torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]]), 1.0)
    tensor([[0.6000, 0.8000],
            [0.3000, 0.4000],
            [0.0000, 0.0000]])
    """
    norms: Tensor = torch.linalg.vector_norm(latent, dim=1, keepdim=True)
    return latent / (norms / radius).clamp(min=1)


def simulated(mechanism: LocalMechanism | None, generator: torch.Generator) -> Perturb:
    """Latents in, reports out, by the law of the mechanism; floats, so for training only.

    >>> perturb = simulated(LocalKNorm(1.0, 1e6), torch.Generator().manual_seed(0))
    >>> perturb(torch.tensor([[3.0, 4.0]])).round(decimals=3)
    tensor([[0.6000, 0.8000]])
    """
    if mechanism is None:
        return unperturbed

    return lambda latent: _report(mechanism, clipped(latent, mechanism.radius), generator)


@singledispatch
def _report(mechanism: LocalMechanism, inside: Tensor, generator: torch.Generator) -> Tensor:
    """A report on each row inside the ball."""
    raise InvalidInput(f"nothing is learned through {type(mechanism).__name__}")


@_report.register
def _(mechanism: LocalLaplace, inside: Tensor, generator: torch.Generator) -> Tensor:
    weights = torch.tensor(mechanism.weights, dtype=inside.dtype)
    return inside + laplace_noise(inside, generator) / weights * mechanism.scale


@_report.register
def _(mechanism: SampledLaplace, inside: Tensor, generator: torch.Generator) -> Tensor:
    return inside + mechanism.scale * laplace_noise(inside, generator)


@_report.register
def _(mechanism: LocalKNorm, inside: Tensor, generator: torch.Generator) -> Tensor:
    return inside + mechanism.scale * _knorm(inside, generator)


@_report.register
def _(mechanism: LocalGaussian, inside: Tensor, generator: torch.Generator) -> Tensor:
    return inside + mechanism.sigma * _normal(inside, generator)


def laplace_noise(like: Tensor, generator: torch.Generator) -> Tensor:
    """Density ∝ exp(−|b|) in each coordinate: the difference of two exponentials."""
    one = torch.empty_like(like).exponential_(generator=generator)
    return one - torch.empty_like(like).exponential_(generator=generator)


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.empty_like(like).normal_(generator=generator)


def _knorm(like: Tensor, generator: torch.Generator) -> Tensor:
    """Density ∝ exp(−‖b‖₂): a uniform direction times Gamma(Z), a sum of Z exponentials."""
    direction = _normal(like, generator)
    radius = torch.empty_like(like).exponential_(generator=generator).sum(1, keepdim=True)
    length: Tensor = torch.linalg.vector_norm(direction, dim=1, keepdim=True)
    return direction / length * radius


@_report.register
def _(mechanism: PrivUnitG, inside: Tensor, generator: torch.Generator) -> Tensor:
    """r u/s without its last coordinate; v = (t, √(1 − ‖t‖²))."""
    t = inside / mechanism.radius
    rest = (1 - t.square().sum(1, keepdim=True)).clamp(min=SMALLEST).sqrt()
    n, last = _normal(t, generator), _normal(rest, generator)
    along = (n * t).sum(1, keepdim=True) + last * rest
    u = n + t * (_alpha(mechanism, len(t), generator).to(t.dtype)[:, None] - along)
    return u * (mechanism.radius / mechanism.lean)


def _alpha(mechanism: PrivUnitG, count: int, generator: torch.Generator) -> Tensor:
    """Normal numbers above γ with probability p, else below.

    Each tail is inverted from its own side, in double precision: the upper one may be as light as
    e^−ε.
    """
    tail = float(ndtr(-mechanism.lean))
    above = torch.rand(count, generator=generator, dtype=torch.float64) < mechanism.above
    uniform = 1 - torch.rand(count, generator=generator, dtype=torch.float64)  # in (0, 1]
    drawn = torch.special.ndtri(uniform * torch.where(above, tail, 1 - tail))
    return torch.where(above, -drawn, drawn)
