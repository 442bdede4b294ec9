"""Networks as plain arrays: what an encoder computes here, on a device and in a file.

A design is what a fitted encoder comes to:

    φ = g_e(x),    report = clip(φ, r) + w,    x̂ = g_d(report).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import expit

from tacit.arrays import FloatArray
from tacit.privacy.isolation import products
from tacit.privacy.mechanisms.local import LocalMechanism

Activation = Literal["identity", "relu", "sigmoid", "tanh"]

_APPLY: dict[str, Callable[[Any], Any]] = {
    "identity": lambda x: x,
    "sigmoid": expit,
    "relu": lambda x: np.maximum(x, 0.0),
    "tanh": np.tanh,
}


@dataclass(frozen=True, eq=False)
class Layer:
    """φ = activation(weight x + bias)."""

    weight: FloatArray  # (out, in)
    bias: FloatArray  # (out,)
    activation: Activation = "identity"

    def to_dict(self) -> dict[str, object]:
        """As JSON."""
        weight, bias = np.asarray(self.weight, float), np.asarray(self.bias, float)
        return {"weight": weight.tolist(), "bias": bias.tolist(), "activation": self.activation}


Layers = tuple[Layer, ...]


def each_row(X: Any, weight: FloatArray) -> FloatArray:
    """X Wᵀ, each row by itself, so that a user's φ does not depend on who else reports.

    scipy's product walks through a sparse row by itself; numpy's takes dense ones in groups.
    """
    return products(X, weight) if isinstance(X, np.ndarray) else np.asarray(X @ weight.T)


def together(X: FloatArray, weight: FloatArray) -> FloatArray:
    """X Wᵀ by the library, for what is public anyhow."""
    return np.asarray(X @ weight.T)


def forward(
    layers: Layers, rows: Any, product: Callable[[Any, FloatArray], FloatArray] = each_row
) -> FloatArray:
    """a(W x + b), layer after layer: (n, in) → (n, out).

    >>> layer = Layer(np.array([[1.0, -1.0]]), np.array([0.5]), "relu")
    >>> forward((layer,), np.array([[2.0, 1.0], [0.0, 1.0]]))
    array([[1.5],
           [0. ]])
    """
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is clipped to 0
        for layer in layers:
            rows = _APPLY[layer.activation](product(rows, layer.weight) + layer.bias)
    return np.asarray(rows)


@dataclass(frozen=True, eq=False)
class Design:
    """Encoder, mechanism and decoder; mechanism None: reports are exact (no budget) or empty."""

    encoder: Layers
    mechanism: LocalMechanism | None
    decoder: Layers

    @property
    def size(self) -> int:
        """Z, the coordinates of a report."""
        return len(self.encoder[-1].bias)

    def encoded(self, X: Any) -> FloatArray:
        """φ (rows, Z) of dense or sparse rows; nothing is densified."""
        return forward(self.encoder, X)

    def decoded(self, reports: FloatArray) -> FloatArray:
        """x̂ (rows, n)."""
        return forward(self.decoder, reports, together)

    def to_arrays(self) -> dict[str, FloatArray]:
        """Weights and biases by name; ``activations`` and the mechanism are written elsewhere."""
        return {
            f"{name}.{i}.{part}": getattr(layer, part)
            for name in ("encoder", "decoder")
            for i, layer in enumerate(getattr(self, name))
            for part in ("weight", "bias")
        }

    def activations(self) -> dict[str, list[Activation]]:
        """Of each layer of the two networks."""
        both = {"encoder": self.encoder, "decoder": self.decoder}
        return {name: [layer.activation for layer in layers] for name, layers in both.items()}

    @classmethod
    def from_arrays(
        cls,
        arrays: Mapping[str, FloatArray],
        activations: Mapping[str, Sequence[Activation]],
        mechanism: LocalMechanism | None,
    ) -> Design:
        """What ``to_arrays`` wrote."""
        encoder, decoder = (
            tuple(
                Layer(arrays[f"{name}.{i}.weight"], arrays[f"{name}.{i}.bias"], activation)
                for i, activation in enumerate(activations[name])
            )
            for name in ("encoder", "decoder")
        )
        return cls(encoder, mechanism, decoder)


def nothing(estimate: FloatArray) -> Design:
    """No report at all, which reveals nothing; everybody gets one estimate (n,)."""
    n = len(estimate)
    nobody = Layer(np.zeros((0, n)), np.zeros(0))
    return Design((nobody,), None, (Layer(np.zeros((n, 0)), estimate),))
