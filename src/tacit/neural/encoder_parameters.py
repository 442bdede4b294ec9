"""The parameters of an encoder, checked before anything is learned."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit.errors import InvalidInput
from tacit.neural.encoder_strategies import STRATEGIES
from tacit.neural.encoder_training import ACTIVATIONS
from tacit.privacy.budget import Budget

_CHOICES = {
    "strategy": STRATEGIES,
    "activation": tuple(ACTIVATIONS),
    "noise": ("secure", "simulated"),
}
_COUNTS = ("reports", "epochs", "steps", "batch_size", "hidden", "dimensions")
_OPTIONAL = ("hidden", "dimensions")


def require_parameters(encoder: Any) -> None:
    """InvalidInput that names the first parameter which cannot be used."""
    for name, choices in _CHOICES.items():
        if getattr(encoder, name) not in choices:
            raise InvalidInput(f"{name} must be one of {choices}, got {getattr(encoder, name)!r}")
    for name in _COUNTS:
        value = getattr(encoder, name)
        optional = value is None and name in _OPTIONAL
        if not (optional or (isinstance(value, int | np.integer) and value >= 1)):
            raise InvalidInput(f"{name} must be a positive integer, got {value!r}")
    if not encoder.learning_rate > 0 or not encoder.regularization >= 0:
        raise InvalidInput("learning_rate must be positive and regularization not negative")
    _require_budget(encoder.budget, encoder.as_published)


def _require_budget(budget: object, as_published: bool) -> None:
    if budget is None and as_published:
        raise InvalidInput("as_published needs a budget: its noise is Δ₁/ε")
    if budget is not None and not isinstance(budget, Budget):
        raise InvalidInput(f"budget must be a Budget or None, got {budget!r}")
    if budget is not None and budget.neighbours != "replace":
        raise InvalidInput(f"local budgets are for any two vectors: 'replace', {budget}")
