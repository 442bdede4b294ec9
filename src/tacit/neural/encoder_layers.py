"""A trained network as plain arrays: what is exported is what runs.

Training sees standardised rows; the mean and the spread of the fit rows are folded into the first
layer of the encoder and the last one of the decoder, so that both work in the units of X.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor, nn

from tacit.neural.encoder_training import Activation
from tacit.privacy.isolation import products
from tacit.privacy.local import Layer
from tacit.privacy.noise import FloatArray

Layers = tuple[Layer, ...]

APPLY: dict[str, Callable[[Any], Any]] = {
    "identity": lambda x: x,
    "sigmoid": expit,
    "relu": lambda x: np.maximum(x, 0.0),
    "tanh": np.tanh,
}

_NAMES: dict[type[nn.Module], Activation] = {
    nn.Sigmoid: "sigmoid",
    nn.ReLU: "relu",
    nn.Tanh: "tanh",
}


Product = Callable[[FloatArray, FloatArray], FloatArray]
"""X Wᵀ of rows (n, in) and a weight (out, in)."""


def forward(layers: Layers, rows: FloatArray, product: Product = products) -> FloatArray:
    """a(W x + b), layer after layer: (n, in) → (n, out); by default each row by itself, so that a
    user's latent does not depend on who else reports.

    >>> layer = Layer(np.array([[1.0, -1.0]]), np.array([0.5]), "relu")
    >>> forward((layer,), np.array([[2.0, 1.0], [0.0, 1.0]]))
    array([[1.5],
           [0. ]])
    """
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # a latent that is not finite is clipped to 0
        for layer in layers:
            rows = np.asarray(APPLY[layer.activation](product(rows, layer.weight) + layer.bias))
    return rows


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


def reading(layers: Layers, mean: FloatArray, spread: FloatArray) -> Layers:
    """The layers as functions of x where they were of (x − mean)/spread."""
    first = layers[0]
    weight = first.weight / spread
    return (replace(first, weight=weight, bias=first.bias - weight @ mean), *layers[1:])


def writing(layers: Layers, mean: FloatArray, spread: FloatArray) -> Layers:
    """The layers with mean + spread ∘ output; the last one has no activation."""
    last = layers[-1]
    weight, bias = last.weight * spread[:, None], last.bias * spread + mean
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
