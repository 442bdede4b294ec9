"""How well models predict rows they have not seen, and mixtures of models weighted by it."""

from __future__ import annotations

import math

import numpy as np

from tacit.arrays import FloatArray
from tacit.linear.batched import Path
from tacit.linear.losses import Loss
from tacit.linear.problems import Problems
from tacit.linear.row_algebra import row_sums, times_each
from tacit.linear.threads import isolated

TEMPERATURE = 0.7
"""Leave-one-out likelihoods are dependent: count them for less than they claim."""

DECADES = (1.5, 1.0)
"""Spread of the public prior of log10 λ below and above λ₀."""

LEAST_TRUST = 0.02
"""What is shared, and what a task finds alone, are each believed this much at least."""

NOISE_FLOOR = 0.1**2
"""A pseudo-row with this share of the task's mean square, so that one row proves little."""


@isolated()
def log_evidence(problems: Problems, path: Path, loss: Loss) -> FloatArray:
    """Leave-one-out log likelihood (m, L) of each penalty, tempered.

    Squared loss: Student's t, −(n+1)/2 · log(Σe² + floor), the noise variance integrated out.
    """
    total = problems.sum_rows(loss.value(path.held_out, problems.y[:, None]))
    if loss.quadratic:
        rows = problems.sizes[:, None]
        size = problems.sum_rows(problems.y**2)[:, None] / np.maximum(rows, 1)
        floor = NOISE_FLOOR * np.where(size > 0, size, 1.0)
        total = (rows + 1) / 2 * np.log(2 * total + floor)
    return np.asarray(-TEMPERATURE * total)


def default_penalty(width: int) -> float:
    """λ₀ = D/3: about one unit of signal spread over D columns against one unit of noise."""
    return width / 3


def usual_penalties(penalties: FloatArray, width: int) -> FloatArray:
    """The public log prior (L,) of a path: log10 λ around log10 λ₀, wider below than above.

    λ = noise variance / variance of a coefficient. Little noise is commoner than little signal.
    """
    decades = np.log10(penalties / default_penalty(width))
    return np.asarray(-0.5 * (decades / np.where(decades < 0, *DECADES)) ** 2)


@isolated()
def mixture(coef: FloatArray, log_weight: FloatArray) -> FloatArray:
    """Σ_k p_k coef_k per task, p ∝ exp(log_weight): (m, ..., D) and (m, ...) → (m, D).

    Weights that are no numbers count for nothing; where none is one, all count alike.

    >>> mixture(np.array([[[1.0], [3.0]]]), np.zeros((1, 2)))
    array([[2.]])
    """
    weight = shares(log_weight).reshape(len(log_weight), -1)
    return times_each(weight, coef.reshape(*weight.shape, -1))


def shares(log_weight: FloatArray) -> FloatArray:
    """p (m, ...) of each task's options, one in all.

    >>> shares(np.log([[1.0, 3.0]]))
    array([[0.25, 0.75]])
    """
    flat: FloatArray = log_weight.reshape(len(log_weight), -1)
    known = np.where(np.isnan(flat), -np.inf, flat)
    best = known.max(axis=1, keepdims=True)
    weight = np.exp(np.where(np.isfinite(best), known - best, 0.0))
    found: FloatArray = (weight / row_sums(weight)[:, None]).reshape(log_weight.shape)
    return found


# --- what all tasks together find usual ----------------------------------------------------------

STRONGEST = 6.0
"""Nats: the most that all tasks together can say against an option."""

INDIFFERENCE = 0.02
"""Of the number of tasks: a lead of this size is one nat, however little noise there is."""


def ballots(log_posterior: FloatArray) -> FloatArray:
    """What each task says for the options (m, ...) → (m, K): one for its best, less by the nats
    that another is below it, and nothing from one nat on.

    No entry is negative, so that two ballots that a mechanism clips to norm one are √2 apart at
    most (``VoteSum``); who always says the same of all options, says nothing: totals are centred.

    >>> ballots(np.array([[0.0, -0.5, -9.0]]))
    array([[1. , 0.5, 0. ]])
    """
    flat = log_posterior.reshape(len(log_posterior), math.prod(log_posterior.shape[1:]))
    found: FloatArray = np.maximum(1 + flat - flat.max(axis=1, keepdims=True), 0.0)
    return found


def prior_of_votes(total: FloatArray, sigma: float, n_tasks: int) -> FloatArray:
    """The log prior (K,) that summed ballots with noise σ imply: shrunk towards no opinion by their
    noise (James–Stein), in units of it, and never below −STRONGEST. Ballots have norm one at most:
    noise of twice all of them together leaves no opinion."""
    total = total - total.mean()
    opinion = max(0.0, 1 - total.size * sigma**2 / max(float(total @ total), 1e-300))
    if total.size * sigma**2 >= (2 * n_tasks) ** 2:
        opinion = 0.0
    log_prior = opinion * total / np.hypot(sigma, INDIFFERENCE * n_tasks)
    return np.asarray(np.maximum(log_prior - log_prior.max(), -STRONGEST))
