"""From public rows and a task to a design: moments, spectrum, choice, decoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from tacit.errors import InvalidInput
from tacit.learners.task_aware.choice import (
    LEAST_GAIN,
    MOST_ROWS,
    Candidate,
    Search,
    best_candidates,
    centred,
)
from tacit.learners.task_aware.closed_forms import Spectrum, spectrum
from tacit.learners.task_aware.designs import Design, nothing, with_best_decoder
from tacit.learners.task_aware.published import Strategy
from tacit.privacy.budget import Budget
from tacit.privacy.local import LocalName, local_mechanism
from tacit.privacy.noise import FloatArray


@dataclass(frozen=True)
class Wanted:
    """What the user of an encoder declared."""

    budget: Budget
    names: tuple[LocalName, ...]
    strategy: Strategy
    size: int | None
    radius: float | None
    reports: int


def stacked_task(target: Any, n: int) -> FloatArray:
    """K (m, n): a matrix, or several (matrix, weight) with ‖·‖² losses added by their weights.

    Rows are scaled by √weight, so the loss of the stack is Σ_j w_j ‖K_j(x̂ − x)‖². None: x itself.

    >>> stacked_task([(np.ones((1, 2)), 4.0), ([[0, 1]], 1.0)], 2)
    array([[2., 2.],
           [0., 1.]])
    """
    if target is None:
        return np.eye(n)
    if isinstance(target, list) and target and all(isinstance(part, tuple) for part in target):
        return np.vstack([_weighted(part, n) for part in target])
    K = np.atleast_2d(_numbers(target))
    if K.ndim != 2 or K.shape[1] != n:
        raise InvalidInput(f"target must be (outputs, {n}), one column a feature, got {K.shape}")
    if not len(K):
        raise InvalidInput("target has no rows: there is no task to report for")
    return K


def _weighted(part: tuple[Any, ...], n: int) -> FloatArray:
    if len(part) != 2:
        raise InvalidInput(f"a weighted task is (matrix, weight), got {len(part)} parts")
    weight = float(part[1])
    if not 0 <= weight < np.inf:
        raise InvalidInput(f"a task's weight must be a finite number ≥ 0, got {part[1]!r}")
    return np.asarray(np.sqrt(weight) * stacked_task(part[0], n))


def _numbers(target: Any) -> FloatArray:
    try:
        K = np.asarray(target, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"target must be a matrix K of numbers ({error}); a differentiable task goes to "
            "tacit.neural.TaskAwareEncoder"
        ) from None
    if not np.isfinite(K).all():
        raise InvalidInput("target K holds NaN or infinity")
    return K


def task_spectrum(X: Any, K: FloatArray) -> Spectrum:
    """Mean and covariance of the rows (divisor N), and the eigenbasis of the task; X may be sparse.

    Only XᵀX (n, n) is formed of sparse rows. Dense ones are centred first.
    """
    mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
    if isinstance(X, np.ndarray):
        rows = X - mean
        return spectrum(mean, _without_constants(rows.T @ rows / len(rows), 1e-13 * mean), K)
    second = np.asarray((X.T @ X).todense(), dtype=np.float64) / X.shape[0]
    return spectrum(mean, _without_constants(second - np.outer(mean, mean), 1e-7 * mean), K)


def _without_constants(covariance: FloatArray, rounding: FloatArray) -> FloatArray:
    """Columns whose deviation is no more than the rounding of their mean are constant."""
    varies = np.diag(covariance) > rounding**2
    return np.where(np.outer(varies, varies), covariance, 0.0)


def exact_design(X: Any, found: Spectrum, size: int | None) -> Design:
    """Without a budget: every coordinate that the task needs, as it is."""
    A = found.whiten[: found.relevant][:size]
    return with_best_decoder(X, found.mean, A, -A @ found.mean, None)


def chosen_design(
    X: Any, K: FloatArray, found: Spectrum, wanted: Wanted
) -> tuple[Design, list[Candidate]]:
    """The design with the least predicted loss, and the best of each mechanism.

    Where even the best gains less than LEAST_GAIN of the loss, nothing is reported.
    """
    if not found.relevant:
        return nothing(found.mean), []
    maps, shapes = _coordinates(found, wanted)
    rows = _some_rows(X)
    h, y = (np.asarray(rows @ A.T) - A @ found.mean for A in (maps, K))
    search = Search(h, y, found.eigenvalues[: found.relevant], wanted.budget, wanted.reports)
    ranked = best_candidates(
        search, wanted.names, most=wanted.size, radius=wanted.radius, shapes=shapes
    )
    if not ranked:
        raise InvalidInput("staircase noise is for one number, and this strategy reports several")
    if ranked[0].loss > (1 - LEAST_GAIN) * search.without_report():
        return nothing(found.mean), ranked
    best = ranked[0]
    if wanted.radius is None and wanted.strategy == "task-aware":
        best = centred(search, best)
    return _built(X, found.mean, maps, best, wanted), [best, *ranked[1:]]


def _coordinates(found: Spectrum, wanted: Wanted) -> tuple[FloatArray, Sequence[FloatArray] | None]:
    """Rows of the map from x − μ to h, and the shapes σ that a benchmark strategy fixes (A.7)."""
    k, n = found.relevant, len(found.mean)
    match wanted.strategy:
        case "task-aware":
            return found.whiten[:k], None
        case "privacy-agnostic":
            size = min(k, 3 if wanted.size is None else wanted.size)
            return found.whiten[:k], [np.full(size, size**-0.5)]
        case "task-agnostic":
            return np.eye(n), [np.full(n, float((found.colour**2).sum()) ** -0.5)]
    raise InvalidInput(f"strategy must be one of {get_args(Strategy)}, got {wanted.strategy!r}")


def _some_rows(X: Any) -> Any:
    """Every so many rows, MOST_ROWS at most: the search needs no more."""
    return X[:: -(-X.shape[0] // MOST_ROWS)]


def _built(X: Any, mean: FloatArray, maps: FloatArray, best: Candidate, wanted: Wanted) -> Design:
    size = len(best.scales)
    A = best.scales[:, None] * maps[:size]
    centre = np.zeros(size) if best.centre is None else best.centre
    mechanism = local_mechanism(
        best.name,
        best.radius,
        wanted.budget,
        size,
        reports=wanted.reports,
        weights=None if best.weights is None else best.weights.tolist(),
    )
    return with_best_decoder(X, mean, A, -A @ mean - best.scales * centre, mechanism)
