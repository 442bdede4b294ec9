"""S4's three approaches as published: Laplace noise with the sensitivity of the samples.

Not private for the next user (docs/privacy.md, F). For reproduction and comparison.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np

from tacit.errors import InvalidInput
from tacit.learners.task_aware.closed_forms import Spectrum, water_filling
from tacit.learners.task_aware.designs import Design, with_best_decoder
from tacit.privacy.mechanisms.local import SampledLaplace, sample_sensitivity
from tacit.privacy.noise import FloatArray

Strategy = Literal["task-aware", "task-agnostic", "privacy-agnostic"]


def published_design(
    X: Any, found: Spectrum, strategy: Strategy, epsilon: float, size: int | None
) -> Design:
    """E of Propositions 2–4 (or of a benchmark), then σ_w² for the samples (Section 4.1, end)."""
    E = _encoder(X, found, strategy, epsilon, size)
    bias = -E @ found.mean
    claimed = sample_sensitivity(np.asarray(X @ E.T) + bias)
    mechanism = SampledLaplace(claimed, epsilon, as_published=True)
    return with_best_decoder(X, found.mean, E, bias, mechanism)


def _encoder(
    X: Any, found: Spectrum, strategy: Strategy, epsilon: float, size: int | None
) -> FloatArray:
    """(Z, n), applied to x − μ."""
    match strategy:
        case "task-aware":  # step 2: as if the boundary were the sphere of radius r_max
            h = np.asarray(X @ found.whiten.T) - found.whiten @ found.mean
            outer = float(np.sqrt((h**2).sum(axis=1)).max())
            squares = water_filling(found.eigenvalues[:size], 8 * outer**2 / epsilon**2)
            return np.asarray(np.sqrt(squares)[:, None] * found.whiten[: len(squares)])
        case "task-agnostic":  # A.7.1: E = L, that is φ = x − μ
            return np.eye(len(found.mean))
        case "privacy-agnostic":  # A.7.2: a fixed Z, equal σ
            return np.asarray(found.whiten[: 3 if size is None else size])
    raise InvalidInput(f"strategy must be one of {get_args(Strategy)}, got {strategy!r}")
