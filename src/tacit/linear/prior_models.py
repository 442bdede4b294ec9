"""Models at home under a prior covariance that all share: its part p, and the task's own part q."""

from __future__ import annotations

import math

import numpy as np

from tacit.arrays import FloatArray
from tacit.linear.batched import Path
from tacit.linear.losses import Loss
from tacit.linear.penalties import Penalty
from tacit.linear.problems import Problems
from tacit.linear.proximal import accelerated_alone, held_out
from tacit.linear.row_algebra import times_each
from tacit.linear.standardised import Standardised, standardised
from tacit.linear.threads import isolated

HOME_FOLDS = 3
HOME_STEPS = 60
STRENGTHS = (0.01, 0.1)  # λ₁ of a decomposed model at home, in units of curvature
OWN_SHARES = (0.01, 0.1)  # λ₂, in the same units and relative to a coefficient's size


def with_intercept(S: FloatArray, variance: float) -> FloatArray:
    """The prior covariance (D, D), or its diagonal (D,), with the intercept's variance last."""
    if S.ndim == 1:
        return np.append(S, variance)
    whole = np.zeros((len(S) + 1, len(S) + 1))
    whole[:-1, :-1], whole[-1, -1] = S, variance
    return whole


@isolated()
def split_path(problems: Problems, loss: Loss, S: FloatArray, own: Penalty) -> Path:
    """w = p + q at home, p ~ N(0, S) and q under its own penalty, at several strengths of both;
    held-out predictions by folds."""
    levels = [(a, b / math.sqrt(len(S))) for a in STRENGTHS for b in OWN_SHARES]

    def fit(part: Problems) -> FloatArray:
        units = standardised(part, loss, scaled=False)
        ones = np.ones(part.n_tasks)
        models = [split_models(units, S, own, a * ones, b * ones) for a, b in levels]
        return np.stack([units.from_smooth(each) for each in models], axis=1)

    return Path(
        np.array([a for a, _ in levels]), fit(problems), held_out(problems, fit, HOME_FOLDS)
    )


@isolated()
def split_models(
    units: Standardised, S: FloatArray, own: Penalty, strength: FloatArray, own_level: FloatArray
) -> FloatArray:
    """(m, D): argmin of loss(p + q) + (strength/2) pᵀS^{−1}p + own_level · Ω(q), task by task."""
    sizes, U = (S, np.eye(len(S))) if S.ndim == 1 else np.linalg.eigh(S)
    sizes = np.maximum(sizes, 0.0)
    m, width = len(strength), len(S) + 1

    def gradient(both: FloatArray) -> FloatArray:
        slope = units.smooth.gradient(both[:, :width] + np.pad(both[:, width:], ((0, 0), (0, 1))))
        return np.hstack([slope, slope[:, :-1]])

    def prox(both: FloatArray, step: float) -> FloatArray:
        shrink = sizes / np.maximum(sizes + step * strength[:, None], 1e-300)
        p = times_each(times_each(both[:, : width - 1], U) * shrink, U.T)
        q = own.prox(both[:, width:].T, step * own_level).T
        return np.hstack([p, both[:, width - 1 : width], q])

    both = accelerated_alone(gradient, prox, np.zeros((m, 2 * width - 1)), 0.5, HOME_STEPS)
    return both[:, :width] + np.pad(both[:, width:], ((0, 0), (0, 1)))
