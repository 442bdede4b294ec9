r"""Fast solvers of the non-private multi-task problems (S1, Eq. 2, 3 and 23).

.. math:: \min_W Σ_t Σ_i ℓ(x_iᵀw_t + b_t; y_i) + λ Ω(W)

``accelerated`` is the accelerated proximal gradient method with adaptive restart (Beck and Teboulle
2009; O'Donoghue and Candès 2015); squared losses, whose curvature is known, are solved by
alternating directions (splitting.py). ``optimum`` runs either in the subspace that the solution
uses: the trace norm's solution lives in a few directions, that of ℓ2,1 in a few features, so the
tasks' problems have a few variables each. After each inner solve one proximal step of the whole
problem shows which directions are missing; it is also the test of optimality.

Models are rows, (m, D); the last column, the intercept, is never penalised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tacit.arrays import FloatArray, IntArray
from tacit.linear.losses import Loss
from tacit.linear.penalties import L1Norm, Penalty
from tacit.linear.problems import Problems
from tacit.linear.row_algebra import each_times, row_sums
from tacit.linear.smooth import Smooth, smooth_part
from tacit.linear.splitting import alternating
from tacit.linear.standardised import standardised
from tacit.linear.threads import isolated, one_blas_thread
from tacit.machine import keep_memory

TOLERANCE = 1e-5  # norm of the proximal gradient, relative to the gradient at zero
MOST_STEPS = 20_000
MOST_SUBSPACES = 60
NARROW = 0.6  # a subspace wider than this share of d saves nothing
GROWTH = 10  # new directions at a time, at least
INNER = 0.02  # accuracy inside a subspace, relative to what is missing outside

Gradient = Callable[[FloatArray], FloatArray]
Prox = Callable[[FloatArray, float], FloatArray]


def penalised_prox(penalty: Penalty, level: float | FloatArray) -> Prox:
    """prox(V, step) of level · Ω on all columns of V (m, D) but the last."""

    def prox(V: FloatArray, step: float) -> FloatArray:
        return np.hstack([penalty.prox(V[:, :-1].T, level * step).T, V[:, -1:]])

    return prox


def accelerated(
    gradient: Gradient,
    prox: Prox,
    start: FloatArray,
    step: float,
    *,
    stop: float,
    most: int = MOST_STEPS,
) -> FloatArray:
    """Accelerated proximal gradient steps until ‖W⁺ − Z‖/step ≤ stop.

    Momentum restarts when it points uphill: ⟨Z − W⁺, W⁺ − W⟩ > 0.
    """
    W = Z = start
    momentum = 1.0
    for _ in range(most):
        new = prox(Z - step * gradient(Z), step)
        residual = Z - new
        if float(np.linalg.norm(residual)) <= stop * step:
            return new
        if float(np.vdot(residual, new - W)) > 0:
            momentum, Z = 1.0, new
        else:
            following = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
            Z = new + (momentum - 1) / following * (new - W)
            momentum = following
        W = new
    return W


@isolated()
def accelerated_alone(
    gradient: Gradient,
    prox: Prox,
    start: FloatArray,
    step: float,
    steps: int,
) -> FloatArray:
    """The same for problems that have nothing to do with each other, one per row.

    The number of steps is fixed and each row restarts by itself: no task learns about another from
    when its own iteration stopped.
    """
    W = Z = start
    momentum = np.ones((len(start), 1))
    for _ in range(steps):
        new = prox(Z - step * gradient(Z), step)
        uphill = row_sums((Z - new) * (new - W))[:, None] > 0
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        Z = new + np.where(uphill, 0.0, (momentum - 1) / following) * (new - W)
        W, momentum = new, np.where(uphill, 1.0, following)
    return W


def optimum(
    smooth: Smooth,
    penalty: Penalty,
    level: float,
    *,
    start: FloatArray,
    tolerance: float = TOLERANCE,
) -> FloatArray:
    """(m, D): the minimiser of smooth + level · Ω, the last column free."""
    keep_memory()
    with one_blas_thread():  # many small products: threads would only wait
        return _optimum(smooth, penalised_prox(penalty, level), penalty, start, tolerance)


def _optimum(
    smooth: Smooth, prox: Prox, penalty: Penalty, start: FloatArray, tolerance: float
) -> FloatArray:
    zero = np.zeros_like(start)
    slope = smooth.gradient(zero)
    size = float(np.linalg.norm(slope))
    if size == 0:
        return zero
    if start.any():
        slope = smooth.gradient(start)
    stop, W, step = tolerance * size, start, float(np.linalg.norm(start) or 1.0) / size
    for _ in range(MOST_SUBSPACES):
        ahead = prox(W - step * slope, step)  # at the optimum it is W, whatever the step
        residual = float(np.linalg.norm(ahead - W)) / step
        if residual <= stop:
            return ahead
        U = _subspace(penalty, W, ahead)
        if U is None:
            break
        W, step = _solved_within(smooth, prox, U, W, max(stop / 2, INNER * residual))
        slope = smooth.gradient(W)
    return _solved(smooth, prox, W, stop)


def _solved(smooth: Smooth, prox: Prox, start: FloatArray, stop: float) -> FloatArray:
    """In all variables: along the tasks' curvatures where they are known, else by gradients."""
    curved = smooth.curvatures
    if curved is None:
        step = 1 / max(float(smooth.bounds().max(initial=0.0)), 1e-300)
        return accelerated(smooth.gradient, prox, start, step, stop=stop)
    return alternating(
        curved.nearest,
        curved.gradient,
        prox,
        start,
        weight=curved.weight,
        stop=stop,
        most=MOST_STEPS,
    )


def _subspace(penalty: Penalty, W: FloatArray, ahead: FloatArray) -> FloatArray | None:
    """Orthonormal (d, r): what W uses and the strongest of what the next step would use."""
    before, after = penalty.basis(W[:, :-1].T), penalty.basis(ahead[:, :-1].T)
    if before is None or after is None:
        return None
    if before.size and after.shape[1] > NARROW * len(after):  # the solution will not be narrow
        return None
    most = max(GROWTH, 2 * before.shape[1])
    strongest = after[:, :most]
    trimmed = strongest @ (strongest.T @ ahead[:, :-1].T)
    U = penalty.basis(np.hstack([W[:, :-1].T, trimmed]))
    return U if U is not None and U.shape[1] <= NARROW * len(U) else None


def _solved_within(
    smooth: Smooth, prox: Prox, U: FloatArray, start: FloatArray, stop: float
) -> tuple[FloatArray, float]:
    """The optimum among the models A Uᵀ, and a step: penalties that have a basis are blind to U."""
    F = np.zeros((len(U) + 1, U.shape[1] + 1))
    F[:-1, :-1], F[-1, -1] = U, 1.0
    small = smooth.restricted(F)
    step = 1 / max(float(small.bounds().max(initial=0.0)), 1e-300)
    return _solved(small, prox, start @ F, stop) @ F.T, step


def decomposed_optimum(
    smooth: Smooth,
    shared: Penalty,
    own: Penalty,
    levels: tuple[float, float],
    *,
    start: FloatArray,
    tolerance: float = TOLERANCE,
) -> tuple[FloatArray, FloatArray]:
    """P (m, D) and Q (m, D) of S1, Eq. (23): loss(P + Q) + λ₁ Ω₁(P) + λ₂ Ω₂(Q).

    One method on [P, Q]; the loss has twice the curvature there. The intercept is P's.
    """
    width = start.shape[1]
    first, second = (
        penalised_prox(penalty, level) for penalty, level in zip((shared, own), levels, strict=True)
    )

    def gradient(both: FloatArray) -> FloatArray:
        slope = smooth.gradient(both[:, :width] + both[:, width:])
        return np.hstack([slope, slope])

    def prox(both: FloatArray, step: float) -> FloatArray:
        P, Q = first(both[:, :width], step), second(both[:, width:], step)
        Q[:, -1] = 0.0
        return np.hstack([P, Q])

    start = np.hstack([start, np.zeros_like(start)])
    stop = tolerance * float(np.linalg.norm(gradient(np.zeros_like(start))))
    with one_blas_thread():
        both = _solved_apart(smooth, gradient, prox, start, stop)
    return both[:, :width], both[:, width:]


def _solved_apart(
    smooth: Smooth, gradient: Gradient, prox: Prox, start: FloatArray, stop: float
) -> FloatArray:
    """As _solved, in [P, Q] with a smooth part of P + Q.

    Whatever P + Q = W is, ½ρ‖P − p‖² + ½ρ‖Q − q‖² is least where both are equally far from where
    they should be, and then it is ¼ρ‖W − p − q‖²."""
    curved, width = smooth.curvatures, start.shape[1] // 2
    if curved is None:
        step = 1 / max(2 * float(smooth.bounds().max(initial=0.0)), 1e-300)
        return accelerated(gradient, prox, start, step, stop=stop)

    def nearest(point: FloatArray, weight: float) -> FloatArray:
        together = point[:, :width] + point[:, width:]
        missing = (curved.nearest(together, weight / 2) - together) / 2
        return point + np.hstack([missing, missing])

    weight = 2 * curved.weight
    return alternating(nearest, gradient, prox, start, weight=weight, stop=stop, most=MOST_STEPS)


# --- rows that are held out ---------------------------------------------------------------------


def folds(problems: Problems, count: int) -> IntArray:
    """(N,): a fold for each row, in turn within each task by the order of (y, x).

    It depends on the rows and not on their order, and every fold sees all sizes of y.

    >>> folds(Problems(np.zeros((4, 1)), np.array([3.0, 1, 2, 0]), np.array([0, 4])), 2)
    array([1, 1, 0, 0])
    """
    task = problems.task
    order = np.lexsort([*problems.X.T[::-1], problems.y, task])
    fold = np.empty(len(task), dtype=np.int64)
    fold[order] = (np.arange(len(task)) - problems.offsets[:-1][task[order]]) % count
    return fold


def without(problems: Problems, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Problems:
    """The problems without these rows."""
    sizes = np.bincount(problems.task[~rows], minlength=problems.n_tasks)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return Problems(problems.X[~rows], problems.y[~rows], offsets)


def held_out(problems: Problems, fit: Callable[[Problems], FloatArray], count: int) -> FloatArray:
    """(N, L): each row predicted by models (m, L, D) fitted without its fold."""
    fold, task = folds(problems, count), problems.task
    parts = []
    for number in range(count):
        rows = fold == number
        models = fit(without(problems, rows))
        parts.append((rows, each_times(models[task[rows]], problems.X[rows])))
    predicted = np.empty((len(task), parts[0][1].shape[1]))
    for rows, values in parts:
        predicted[rows] = values
    return predicted


@dataclass(frozen=True)
class Levels:
    """Penalty levels to try, from the one at which the solution is just zero downwards."""

    highest: float
    count: int = 8
    decades: float = 3.5

    def values(self) -> FloatArray:
        """(L,), falling."""
        return self.highest * 10.0 ** np.linspace(0, -self.decades, self.count)


def highest_level(smooth: Smooth, penalty: Penalty, start: FloatArray) -> float:
    """The smallest λ with W = 0, the dual norm of the gradient at zero: bisection on prox = 0."""
    V = -smooth.gradient(start)[:, :-1].T
    high = float(np.linalg.norm(V)) or 1.0
    low = 0.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if penalty.prox(V, middle).any() else (low, middle)
    return high


def path(
    problems: Problems, loss: Loss, penalty: Penalty, levels: FloatArray, start: FloatArray
) -> FloatArray:
    """(m, L, D): the optimum at every level, each started from the one before."""
    smooth = smooth_part(problems, loss)
    models = []
    for level in levels:
        start = optimum(smooth, penalty, float(level), start=start, tolerance=1e-4)
        models.append(start)
    return np.stack(models, axis=1)


# --- each task by itself, sparse ----------------------------------------------------------------

LASSO_SHARES = 10.0 ** np.arange(0, -3.1, -0.5)  # of the level at which a task's model is zero
LASSO_STEPS = 200
LASSO_FOLDS = 5


@isolated()
def lasso_alone(problems: Problems, loss: Loss) -> FloatArray:
    """(m, D): every task by itself with an ℓ1 penalty, at the level that predicts held-out rows.

    >>> p = Problems(np.array([[0.0, 1], [1, 1], [2, 1]]), np.array([1.0, 3, 5]), np.array([0, 3]))
    >>> from tacit.linear.losses import Squared
    >>> lasso_alone(p, Squared()).round(1)
    array([[2., 1.]])
    """
    predicted = held_out(problems, lambda part: _lasso_path(part, loss), LASSO_FOLDS)
    lost = problems.sum_rows(loss.value(predicted, problems.y[:, None]))
    best = lost.argmin(axis=1)  # of equal ones the highest level
    return np.asarray(_lasso_path(problems, loss)[np.arange(problems.n_tasks), best])


def _lasso_path(problems: Problems, loss: Loss) -> FloatArray:
    """(m, L, D) along LASSO_SHARES, a fixed number of steps each: no task waits for another."""
    own = standardised(problems, loss, scaled=True)
    W = np.zeros((problems.n_tasks, problems.X.shape[1]))
    highest = np.abs(own.smooth.gradient(W)[:, :-1]).max(axis=1, initial=0.0)
    models = []
    for share in LASSO_SHARES:
        prox = penalised_prox(L1Norm(), share * highest)
        W = accelerated_alone(own.smooth.gradient, prox, W, 1.0, LASSO_STEPS)
        models.append(own.from_smooth(W))
    return np.stack(models, axis=1)
