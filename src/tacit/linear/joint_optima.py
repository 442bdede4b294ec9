"""The exact optima of the joint problems that are not private, and tasks that join them later."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.arrays import FloatArray
from tacit.linear.batched import solve_path
from tacit.linear.losses import Loss
from tacit.linear.penalties import Penalty
from tacit.linear.prior_models import split_models, with_intercept
from tacit.linear.problems import Problems
from tacit.linear.proximal import Levels, decomposed_optimum, held_out, highest_level, optimum, path
from tacit.linear.single_task_fits import INTERCEPT_VARIANCE
from tacit.linear.smooth import INTERCEPT_RIDGE, smooth_part
from tacit.linear.standardised import standardised

OPEN_FOLDS = 3  # of the non-private optimum
OPEN_OWN = (0.1, 0.3, 1.0)  # λ₂ of the optimum, relative to the level at which Q is zero


@dataclass(frozen=True)
class Optimum:
    """Models, and what a task that joins later needs: (WWᵀ)^½ or row norms, and the penalties."""

    models: FloatArray  # (m, D), P + Q
    spread: FloatArray  # (d, d), or (d,)
    level: float  # λ, or λ₁
    own_level: float  # λ₂, or 0


def open_optimum(problems: Problems, loss: Loss, penalty: Penalty, level: float | None) -> Optimum:
    """S1, Eq. (2) or (3) solved exactly; λ by held-out rows over all tasks, unless given."""
    own = standardised(problems, loss, scaled=False)
    problems = own.problems
    zero = np.zeros((problems.n_tasks, problems.X.shape[1]))
    if level is None:
        top = highest_level(smooth_part(problems, loss), penalty, zero)
        levels = Levels(top).values()
        predicted = held_out(
            problems, lambda p: path(p, loss, penalty, levels, np.zeros_like(zero)), OPEN_FOLDS
        )
        lost = loss.value(predicted, problems.y[:, None]).sum(axis=0)
        level = float(levels[int(lost.argmin())])
    W = optimum(smooth_part(problems, loss), penalty, level, start=zero)
    return Optimum(own.outwards(W), penalty.spread(W[:, :-1].T), level, 0.0)


def open_decomposed(
    problems: Problems,
    loss: Loss,
    shared: Penalty,
    own: Penalty,
    given: tuple[float | None, float | None],
) -> Optimum:
    """S1, Eq. (23) solved exactly; λ₁ and λ₂ by held-out rows over all tasks, unless given."""
    units = standardised(problems, loss, scaled=False)
    problems = units.problems
    zero = np.zeros((problems.n_tasks, problems.X.shape[1]))
    smooth = smooth_part(problems, loss)
    first = (
        [given[0]]
        if given[0] is not None
        else list(Levels(highest_level(smooth, shared, zero), 5, 3.0).values()[1:])
    )
    top = highest_level(smooth, own, zero) if not own.is_ridge else 1.0
    second = [given[1]] if given[1] is not None else [share * top for share in OPEN_OWN]
    pairs = [(float(a), float(b)) for a in first for b in second]

    def fit(part: Problems) -> FloatArray:
        here = smooth_part(part, loss)
        found = [
            decomposed_optimum(here, shared, own, pair, start=zero, tolerance=1e-3)
            for pair in pairs
        ]
        return np.stack([P + Q for P, Q in found], axis=1)

    best = 0
    if len(pairs) > 1:
        predicted = held_out(problems, fit, OPEN_FOLDS)
        best = int(loss.value(predicted, problems.y[:, None]).sum(axis=0).argmin())
    P, Q = decomposed_optimum(smooth, shared, own, pairs[best], start=zero)
    return Optimum(units.outwards(P + Q), shared.spread(P[:, :-1].T), *pairs[best])


def joined(problems: Problems, loss: Loss, found: Optimum, own: Penalty | None) -> FloatArray:
    """(m, D): tasks that join later, under the prior of the optimum; found.models is not used."""
    units = standardised(problems, loss, scaled=False)
    if own is None:
        level = max(found.level, 1e-12)
        variance = level / INTERCEPT_RIDGE if loss.targets_are_classes else INTERCEPT_VARIANCE
        prior = with_intercept(found.spread, variance)
        coef = solve_path(units.problems, np.array([level]), loss=loss, covariance=prior).coef
        return units.outwards(coef[:, 0])
    strengths = (found.level / units.curvature, found.own_level / units.curvature)
    return units.from_smooth(split_models(units, found.spread, own, *strengths))
