"""What a silo does at home with what was shared: free of charge, and it never leaves.

Its own rows under the shared prior, w ~ N(mean, covariance) and rows with noise σ², is a ridge at
the penalty σ²; around that, and beside the silo by itself, it takes the mixture by leave-one-out
likelihood. Where what was released is noise the silo is left with its single-task model.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from tacit.arrays import FloatArray
from tacit.linear.batched import Problems, solve_path
from tacit.linear.losses import Loss
from tacit.linear.model_averaging import log_evidence, mixture, usual_penalties
from tacit.linear.single_task_fits import PENALTIES, own_path

FACTORS = np.exp2(np.arange(-6.0, 4.0))
"""Penalties at home, in units of the shared σ²: below one where its prior is too narrow."""

OCTAVES = 2.0
"""Spread of the public prior of log2 of a factor around 0."""

ALONE = 0.1
"""The public prior of a silo by itself."""


def home_models(
    problems: Problems, loss: Loss, mean: FloatArray, covariance: FloatArray, noise: float
) -> FloatArray:
    """(m, D): each silo's own model."""
    penalty = 1.0 if loss.targets_are_classes else noise
    joined = solve_path(problems, penalty * FACTORS, loss=loss, mean=mean, covariance=covariance)
    alone = own_path(problems, loss)
    usual = -0.5 * (np.log2(FACTORS) / OCTAVES) ** 2
    own = usual_penalties(PENALTIES, problems.X.shape[1])
    weights = [
        log_evidence(problems, joined, loss) + np.log(1 - ALONE) + usual - logsumexp(usual),
        log_evidence(problems, alone, loss) + np.log(ALONE) + own - logsumexp(own),
    ]
    coef = np.concatenate([joined.coef, alone.coef], axis=1)
    return mixture(coef, np.concatenate(weights, axis=1))
