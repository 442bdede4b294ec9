"""Networks of PyTorch while they are trained, and as plain arrays afterwards.

Training sees standardised rows; the mean and the spread of the fit rows are folded into the first
layer of the encoder and the last one of the decoder, so that both work in the units of X.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from tacit.arrays import FloatArray
from tacit.encoders.networks import Layer, Layers

Hidden = Literal["sigmoid", "relu", "tanh"]

ACTIVATIONS: dict[Hidden, type[nn.Module]] = {
    "sigmoid": nn.Sigmoid,
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
}
_NAMES = {module: name for name, module in ACTIVATIONS.items()}


def network(sizes: Sequence[int], activation: Hidden, generator: torch.Generator) -> nn.Sequential:
    """Linear layers with an activation between them; sizes (d, Z) is a linear map.

    >>> [type(layer).__name__ for layer in network((3, 5, 2), "sigmoid", torch.Generator())]
    ['Linear', 'Sigmoid', 'Linear']
    """
    layers: list[nn.Module] = []
    for inside, outside in pairwise(sizes):
        layers += [_linear(inside, outside, generator), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers[:-1])


@torch.no_grad()
def _linear(inside: int, outside: int, generator: torch.Generator) -> nn.Linear:
    """Uniform in ±1/√d as torch does, but from the generator passed in."""
    layer = nn.Linear(inside, outside, device="meta").to_empty(device="cpu")  # draws nothing
    bound = 1 / math.sqrt(inside)
    layer.weight.uniform_(-bound, bound, generator=generator)
    layer.bias.uniform_(-bound, bound, generator=generator)
    return layer


@torch.no_grad()
def identity_network(dim: int) -> nn.Sequential:
    """The task-agnostic encoder, g_e(x) = x.

    >>> identity_network(2)(torch.tensor([[3.0, 4.0]])).tolist()
    [[3.0, 4.0]]
    """
    layer = _linear(dim, dim, torch.Generator())
    layer.weight.copy_(torch.eye(dim))
    layer.bias.zero_()
    return nn.Sequential(layer)


def as_layers(module: nn.Module) -> Layers:
    """Of a network of linear layers with an activation between them."""
    found: list[Layer] = []
    for child in module.children():
        if isinstance(child, nn.Linear):
            found.append(Layer(_array(child.weight), _array(child.bias)))
        else:
            found[-1] = replace(found[-1], activation=_NAMES[type(child)])
    return tuple(found)


def _array(parameter: Tensor) -> FloatArray:
    return np.array(parameter.detach().double().numpy())


@dataclass(frozen=True, eq=False)
class Scaling:
    """z = (x − mean)/spread, column by column."""

    mean: FloatArray  # (d,)
    spread: FloatArray  # (d,)

    @classmethod
    def of(cls, rows: FloatArray) -> Scaling:
        """That of the rows; a constant column keeps its unit."""
        mean, spread = rows.mean(axis=0), rows.std(axis=0)
        tiny = spread <= 1e-12 * np.maximum(1.0, np.abs(mean))
        return cls(mean, np.where(tiny, 1.0, spread))

    @classmethod
    def none(cls, rows: FloatArray) -> Scaling:
        """Rows as they are."""
        return cls(np.zeros(rows.shape[1]), np.ones(rows.shape[1]))

    def reading(self, layers: Layers) -> Layers:
        """The layers as functions of x where they were of z."""
        first = layers[0]
        weight = first.weight / self.spread
        return (replace(first, weight=weight, bias=first.bias - weight @ self.mean), *layers[1:])

    def writing(self, layers: Layers) -> Layers:
        """The layers with mean + spread ∘ output; the last one has no activation."""
        last = layers[-1]
        weight, bias = last.weight * self.spread[:, None], last.bias * self.spread + self.mean
        return (*layers[:-1], replace(last, weight=weight, bias=bias))


@torch.no_grad()
def into_the_ball(encoder: nn.Sequential, decoder: nn.Sequential, rows: Tensor) -> None:
    """φ → (φ − c)/s in place, c the mean of φ(rows) and s their largest distance from it.

    The decoder reads sφ + c, so that both together compute what they did.
    """
    last, first = encoder[-1], decoder[0]
    assert isinstance(last, nn.Linear)
    assert isinstance(first, nn.Linear)
    latent = encoder(rows)
    centre = latent.mean(0)
    size = torch.linalg.vector_norm(latent - centre, dim=1).max().clamp(min=1e-30)
    first.bias.add_(first.weight @ centre)
    first.weight.mul_(size)
    last.weight.div_(size)
    last.bias.copy_((last.bias - centre) / size)
