"""From public rows and a linear task to a design: moments, spectrum, choice, decoder.

Given the map φ = A x + b and the mechanism, the decoder is the best linear one for *clipped*
reports (Proposition 1 with the moments of what is really sent):

    x̂ = C report + d,    C = Cov(x, φ_r) (Cov(φ_r) + Cov(w))⁻¹,   d = E[x] − C E[φ_r],

φ_r = clip(φ, r) and Cov(w) diagonal, from the mechanism's closed form. Its loss on the rows that
gave the moments is exact, clipping bias included, for all mechanisms here: their noise has mean
zero and a covariance that does not depend on the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit.arrays import FloatArray
from tacit.encoders.base import Strategy
from tacit.encoders.closed_forms import Spectrum, spectrum, water_filling
from tacit.encoders.design_search import Candidate, Search, Wanted, best_candidates, centred
from tacit.encoders.networks import Design, Layer, nothing
from tacit.errors import InvalidInput
from tacit.privacy.mechanisms import clip_rows
from tacit.privacy.mechanisms.local import LocalMechanism, SampledLaplace, sample_sensitivity

MOST_ROWS = 4_000  # of the search; the decoder is made of all rows
LEAST_GAIN = 1e-6  # of the loss without any report; less is not worth a report
BENCHMARK_SIZE = 3  # Z of the privacy-agnostic benchmark, where none is given (S4 Section 5)


# --- the task ------------------------------------------------------------------------------------


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


# --- the decoder, and what is lost ---------------------------------------------------------------


def with_best_decoder(
    X: Any, mean: FloatArray, A: FloatArray, b: FloatArray, mechanism: LocalMechanism | None
) -> Design:
    """The design whose decoder is best for these rows (dense or sparse)."""
    phi, noise = _sent(np.asarray(X @ A.T) + b, mechanism)
    level = phi.mean(axis=0)
    centred = phi - level
    spread = centred.T @ centred / len(phi) + np.diag(noise)
    cross = np.asarray(X.T @ centred) / len(phi)  # (n, Z), Cov(x, φ_r): centred has mean zero
    C = np.linalg.lstsq(spread, cross.T, rcond=None)[0].T
    return Design((Layer(A, b),), mechanism, (Layer(C, mean - C @ level),))


def expected_loss(design: Design, X: Any, K: FloatArray) -> float:
    """E‖K(x̂ − x)‖² over these rows and the noise: exact, no draw; sparse rows block by block."""
    if not isinstance(X, np.ndarray):
        blocks = [X[i : i + 1024].toarray() for i in range(0, X.shape[0], 1024)]
        losses = [expected_loss(design, block, K) for block in blocks]
        return float(np.average(losses, weights=[len(block) for block in blocks]))
    phi, noise = _sent(design.encoded(X), design.mechanism)
    errors = (design.decoded(phi) - X) @ K.T
    spread = (K @ design.decoder[0].weight) ** 2 @ noise
    return float((errors**2).sum(axis=1).mean() + spread.sum())


def _sent(phi: FloatArray, mechanism: LocalMechanism | None) -> tuple[FloatArray, FloatArray]:
    """What the noise is added to (rows, Z), and its variances (Z,)."""
    size = phi.shape[1]
    if mechanism is None:
        return phi, np.zeros(size)
    return clip_rows(phi, mechanism.radius), mechanism.variance(size)


# --- without noise, with the best, and as published ----------------------------------------------


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
    search = Search(h, y, found.eigenvalues[: found.relevant], shapes, wanted)
    ranked = best_candidates(search)
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
            size = min(k, wanted.size or BENCHMARK_SIZE)
            return found.whiten[:k], [np.full(size, size**-0.5)]
        case "task-agnostic":
            return np.eye(n), [np.full(n, float((found.colour**2).sum()) ** -0.5)]


def _some_rows(X: Any) -> Any:
    """Every so many rows, MOST_ROWS at most: the search needs no more."""
    return X[:: -(-X.shape[0] // MOST_ROWS)]


def _built(X: Any, mean: FloatArray, maps: FloatArray, best: Candidate, wanted: Wanted) -> Design:
    size = len(best.scales)
    A = best.scales[:, None] * maps[:size]
    centre = np.zeros(size) if best.centre is None else best.centre
    mechanism = best.mechanism(wanted)
    return with_best_decoder(X, mean, A, -A @ mean - best.scales * centre, mechanism)


def published_design(X: Any, found: Spectrum, wanted: Wanted) -> Design:
    """Propositions 2–4 or a benchmark, with Laplace noise for the samples (Section 4.1, end).

    Not private for the next user (docs/privacy.md, F). For reproduction and comparison.
    """
    epsilon = wanted.budget.epsilon / wanted.reports
    E = _published_map(X, found, wanted.strategy, epsilon, wanted.size)
    if not len(E):
        return nothing(found.mean)
    bias = -E @ found.mean
    claimed = sample_sensitivity(np.asarray(X @ E.T) + bias)
    mechanism = SampledLaplace(claimed, epsilon, as_published=True)
    return with_best_decoder(X, found.mean, E, bias, mechanism)


def _published_map(
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
            return np.asarray(found.whiten[: size or BENCHMARK_SIZE])
