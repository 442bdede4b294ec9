r"""Multi-task relationship learning (Zhang and Yeung, UAI 2010), solved to its optimum.

.. math:: \min_{W, Ω} Σ_t \frac{1}{n_t} Σ_i ½(x_iᵀw_t − y_i)² + \frac{λ₁}{2} ‖W‖_F²
          + \frac{λ₂}{2} tr(W Ω^{-1} Wᵀ),   Ω ⪰ 0,  tr Ω = m

Given W the best Ω is m (WᵀW)^½/‖W‖_*, and leaves (λ₂/2m)‖W‖_*²: a convex problem in W alone. Its
stationary point is that of the trace norm at the level τ = (λ₂/m)‖W‖_*, which W sets itself. As
‖W(τ)‖_* falls with τ, that level is a root. (Alternating between W and Ω need not come here: where
m > d, Ω is singular, and W does not leave its span again.)

Models are rows, (m, D); the last column, the intercept, is eliminated by centring before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from tacit.arrays import FloatArray
from tacit.linear.penalties import TraceNorm
from tacit.linear.problems import Problems
from tacit.linear.proximal import Levels, held_out, highest_level, optimum
from tacit.linear.smooth import Quadratic, quadratic

FOLDS = 5
TRIED = (1e-4, 1e-3, 1e-2, 1e-1)  # λ₁ to choose from
LEVELS, DECADES = 7, 3.0  # and τ, from the level at which W is zero downwards
COARSE, FINE = 1e-3, 1e-7


@dataclass(frozen=True)
class Related:
    """Models (m, D), and the penalties that they are the optimum of."""

    models: FloatArray
    penalty: float  # λ₁
    coupling: float  # λ₂


def mean_squares(problems: Problems, penalty: float) -> Quadratic:
    """(1/n_t) Σ_i ½(x_iᵀw_t − y_i)² + (λ₁/2)‖w_t‖² of every task, the last column free."""
    whole = quadratic(problems, (1 / np.maximum(problems.sizes, 1))[problems.task])
    ridge = penalty * np.eye(whole.G.shape[1])
    ridge[-1, -1] = 0.0
    return Quadratic(whole.G + ridge, whole.b, whole.constant)


def related_optimum(problems: Problems, penalty: float, coupling: float) -> Related:
    """The optimum at λ₁ and λ₂."""
    smooth, m = mean_squares(problems, penalty), problems.n_tasks
    found = optimum(smooth, TraceNorm(), 0.0, start=_nothing(problems), tolerance=FINE)

    def above(level: float) -> float:
        nonlocal found
        found = optimum(smooth, TraceNorm(), level, start=found, tolerance=FINE)
        return level - coupling / m * TraceNorm().value(found[:, :-1].T)

    top = coupling / m * TraceNorm().value(found[:, :-1].T)
    if top > 0:  # the root is at top at most; at twice that, rounding cannot hide the sign
        above(float(brentq(above, 0.0, 2 * top, xtol=1e-9 * top, rtol=1e-9)))
    return Related(found, penalty, coupling)


def chosen_optimum(problems: Problems, penalty: float | None, coupling: float | None) -> Related:
    """The optimum; what is None is chosen by held-out rows over all tasks.

    λ₂ is tried as the level τ that it comes to, from zero models downwards, with warm starts.
    """
    if coupling is not None and penalty is not None:
        return related_optimum(problems, penalty, coupling)
    tried = TRIED if penalty is None else (penalty,)
    tops = [
        highest_level(mean_squares(problems, each), TraceNorm(), _nothing(problems))
        for each in tried
    ]
    pairs = [
        (each, float(level))
        for each, top in zip(tried, tops, strict=True)
        for level in (Levels(top, LEVELS, DECADES).values() if coupling is None else (coupling,))
    ]
    predicted = held_out(problems, lambda part: _path(part, pairs, coupling), FOLDS)
    lost = ((predicted - problems.y[:, None]) ** 2).sum(axis=0)
    best, level = pairs[int(lost.argmin())]
    if coupling is not None:
        return related_optimum(problems, best, coupling)
    W = optimum(mean_squares(problems, best), TraceNorm(), level, start=_nothing(problems))
    size = TraceNorm().value(W[:, :-1].T)
    return Related(W, best, level * problems.n_tasks / size if size > 0 else 0.0)


def _path(
    problems: Problems, pairs: Sequence[tuple[float, float]], coupling: float | None
) -> FloatArray:
    """(m, L, D): the models at each λ₁ and level, or λ₂."""
    models = []
    start = _nothing(problems)
    for penalty, level in pairs:
        if coupling is None:
            smooth = mean_squares(problems, penalty)
            start = optimum(smooth, TraceNorm(), level, start=start, tolerance=COARSE)
        else:
            start = related_optimum(problems, penalty, coupling).models
        models.append(start)
    return np.stack(models, axis=1)


def _nothing(problems: Problems) -> FloatArray:
    return np.zeros((problems.n_tasks, problems.X.shape[1]))
