"""What a node does at home with what was released: free of charge, and it never leaves.

Each node weighs, by leave-one-out, three ways to use its own rows:

- alone: ridge or logistic regression in its own units, as SingleTask does it;
- around the others: (λ/2)‖w − p̄‖², p̄ the mean of the *other* nodes' columns of P;
- under the spread of the others: (λ/2) wᵀS^{−1}w, S ∝ (PPᵀ)^½ without the node's own column.

Its own column stays out: it was made from the same rows, so leave-one-out would believe it. The
model is the mixture of all by leave-one-out likelihood (tempered: it is noisy) times a public
prior: what is released is trusted as far as the plan predicts it to be signal. With many rows the
likelihood decides; where the shared part is noise, the node is left with its single-task model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from tacit.arrays import FloatArray
from tacit.linear.batched import Path, Problems, factor, solve_path
from tacit.linear.covariance_maps import spread
from tacit.linear.losses import Loss
from tacit.linear.model_averaging import LEAST_TRUST, log_evidence, mixture, usual_penalties
from tacit.linear.prior_models import with_intercept
from tacit.linear.single_task_fits import (
    INTERCEPT_VARIANCE,
    PENALTIES,
    best_alone,
    in_own_units,
    own_path,
)


@dataclass(frozen=True)
class Others:
    """What the other nodes say to each of m nodes."""

    mean: FloatArray  # (m, D), p̄
    factors: FloatArray | None  # (m, d, d), F with FFᵀ = S; None: they say nothing
    trust: FloatArray  # (m,), in [0, 1]


def others_of_each(P: FloatArray, trust: FloatArray) -> Others:
    """For every node of P (D, m): all columns but its own.

    >>> others_of_each(np.array([[1.0, 3.0], [0.0, 0.0]]), np.ones(2)).mean[:, 0]
    array([3., 1.])
    """
    m = P.shape[1]
    if m < 2 or not P.any():
        return Others(np.zeros_like(P.T), None, np.zeros(m))
    mean = (P.sum(axis=1, keepdims=True) - P).T / (m - 1)
    W = P[:-1]
    return Others(mean, np.stack([_factor(W, W[:, [t]]) for t in range(m)]), trust)


def others_of_newcomer(P: FloatArray, trust: FloatArray) -> Others:
    """For one node that took no part: all columns."""
    if not P.any():
        return Others(np.zeros((1, len(P))), None, np.zeros(1))
    W = P[:-1]
    return Others(P.mean(axis=1)[None], _factor(W, W[:, :0])[None], trust.mean(keepdims=True))


def _factor(W: FloatArray, without: FloatArray) -> FloatArray:
    return factor(spread(W @ W.T - without @ without.T, 0.0), len(W))


def home_models(problems: Problems, loss: Loss, others: Others) -> FloatArray:
    """(m, D): each node's own model."""
    alone = best_alone(problems, loss)
    if others.factors is None:
        return alone
    scaled, back = in_own_units(problems, loss)
    even = with_intercept(np.ones(problems.X.shape[1] - 1), INTERCEPT_VARIANCE)
    paths = [
        own_path(scaled, loss),
        solve_path(scaled, PENALTIES, loss=loss, mean=others.mean / back, covariance=even),
        _spread_path(scaled, loss, others.factors),
    ]
    evidence = np.stack([log_evidence(scaled, path, loss) for path in paths], axis=1)
    usual = usual_penalties(PENALTIES, problems.X.shape[1])
    log_weight = evidence + _log_prior(others.trust)[:, :, None] + usual  # (m, 3, L)
    apart = _share_of_first(log_weight)[:, None]
    coef = np.stack([path.coef for path in paths[1:]], axis=1)  # (m, 2, L, D)
    return apart * alone + (1 - apart) * mixture(coef, log_weight[:, 1:]) * back


def _share_of_first(log_weight: FloatArray) -> FloatArray:
    """(m,): the posterior probability of option 0, from (m, options, L)."""
    options = logsumexp(log_weight, axis=2)
    return np.asarray(np.exp(options[:, 0] - logsumexp(options, axis=1)))


def _spread_path(problems: Problems, loss: Loss, factors: FloatArray) -> Path:
    """Every node under its own S: plain ridge in u on the rows xF, and w = Fu."""
    free = INTERCEPT_VARIANCE**0.5
    bounds = zip(problems.offsets[:-1], problems.offsets[1:], factors, strict=True)
    Z = np.concatenate([problems.X[a:b, :-1] @ F for a, b, F in bounds])
    turned = Problems(np.column_stack([Z, free * problems.X[:, -1]]), problems.y, problems.offsets)
    path = solve_path(turned, PENALTIES, loss=loss)
    coef = np.concatenate(
        [np.einsum("mde,mle->mld", factors, path.coef[:, :, :-1]), free * path.coef[:, :, -1:]],
        axis=2,
    )
    return Path(path.penalties, coef, path.held_out)


def _log_prior(trust: FloatArray) -> FloatArray:
    """(m, 3): the node alone; and what is shared, half by half."""
    together = np.maximum(trust, LEAST_TRUST) / 2
    alone = np.maximum(1 - trust, LEAST_TRUST)
    return np.asarray(np.log(np.column_stack([alone, together, together])))
