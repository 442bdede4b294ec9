"""Losses of a linear predictor: value, first and second derivative in the prediction."""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np
from scipy.special import expit

from tacit.arrays import FloatArray
from tacit.errors import InvalidInput

LossName = Literal["squared", "logistic"]


class Loss(Protocol):
    """ℓ(η; y) of a prediction η = xᵀw, elementwise."""

    name: LossName
    targets_are_classes: bool  # −1 and +1, which have no unit; numbers have one
    quadratic: bool  # in η: one step of Newton solves it
    most_curvature: float  # of ∂²ℓ/∂η², wherever

    def value(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        """ℓ(η; y)."""

    def slope(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        """∂ℓ/∂η."""

    def curvature(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        """∂²ℓ/∂η²."""


class Squared:
    """ℓ = (η − y)²/2.

    >>> float(Squared().value(np.array([3.0]), np.array([1.0]))[0])
    2.0
    """

    name: LossName = "squared"
    targets_are_classes = False
    quadratic = True
    most_curvature = 1.0

    def value(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        return 0.5 * (eta - y) ** 2

    def slope(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        return eta - y

    def curvature(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        return np.ones_like(eta + y)


class Logistic:
    """ℓ = log(1 + exp(−yη)), y ∈ {−1, +1}.

    >>> float(Logistic().value(np.array([0.0]), np.array([1.0]))[0])  # log 2
    0.6931471805599453
    """

    name: LossName = "logistic"
    targets_are_classes = True
    quadratic = False
    most_curvature = 0.25

    def value(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        return np.logaddexp(0.0, -y * eta)

    def slope(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(-y * expit(-y * eta))

    def curvature(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        probability = expit(eta)
        return np.asarray(probability * (1 - probability) + 0.0 * y)


_LOSSES: dict[str, Loss] = {"squared": Squared(), "logistic": Logistic()}


def loss_named(name: str) -> Loss:
    """The loss of that name.

    >>> loss_named("squared").name
    'squared'
    """
    if name not in _LOSSES:
        raise InvalidInput(f"loss must be one of {tuple(_LOSSES)}, got {name!r}")
    return _LOSSES[name]
