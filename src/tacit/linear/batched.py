r"""Thousands of small linear problems at once, each along a whole penalty path.

Task t has rows X_t (n_t, d) and targets y_t. For every penalty λ of the path

.. math:: \hat w_t(λ) = \arg\min_w Σ_i ℓ(x_iᵀw; y_i) + (λ/2) (w − μ)ᵀ S^{-1} (w − μ)

with any prior mean μ and covariance S = F Fᵀ. With Z = XF and w = μ + Fu this is a plain ridge in
u. Leave-one-out predictions come along: with a_i = z_iᵀ H^{-1} z_i, H the Hessian at the optimum,

.. math:: η_{−i} = η_i + ℓ'(η_i) a_i / (1 − ℓ''(η_i) a_i),

exact for the squared loss and the standard approximation (one Newton step) for the logistic.

Tasks of one ladder length are one (b, n, d) block (problems.py), a handful of BLAS and LAPACK calls
that never mix tasks. Squared loss: one eigendecomposition of the smaller of ZᵀZ and ZZᵀ serves the
whole path; which is smaller follows from the task's own ladder length n.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.arrays import FloatArray
from tacit.linear.losses import Loss, Squared
from tacit.linear.problems import Block, Problems, each_block, each_matrix, spectra
from tacit.linear.row_algebra import each_times, row_sums, times_each
from tacit.linear.threads import isolated

__all__ = ["Path", "Problems", "factor", "shared_mean", "solve_path"]

NEWTON_STEPS = 30
NEWTON_TOLERANCE = 1e-9
MEAN_RIDGE = 1e-6  # r of the shared mean

Mask = np.ndarray[tuple[int, int], np.dtype[np.bool_]]


@dataclass(frozen=True)
class Path:
    """Solutions along the penalty path."""

    penalties: FloatArray  # (L,)
    coef: FloatArray  # (m, L, d)
    held_out: FloatArray  # (N, L), the prediction for each row by the model fitted without it


def factor(covariance: FloatArray | None, d: int) -> FloatArray:
    """F (d, d) with S = F Fᵀ, from a matrix, a vector of variances, or None for the identity.

    >>> factor(np.array([4.0, 9.0]), 2)
    array([[2., 0.],
           [0., 3.]])
    """
    if covariance is None:
        return np.eye(d)
    if covariance.ndim == 1:
        return np.diag(np.sqrt(covariance))
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


@isolated()
def solve_path(
    problems: Problems,
    penalties: FloatArray,
    *,
    loss: Loss | None = None,
    mean: FloatArray | None = None,
    covariance: FloatArray | None = None,
) -> Path:
    """All tasks, all penalties, with leave-one-out predictions (see the module's formulas).

    ``mean`` is (d,) or one row per task (m, d); ``covariance`` as in ``factor``. A task whose solve
    fails or overflows keeps the prior mean, and stops nobody.

    >>> p = Problems(np.array([[1.0], [1.0]]), np.array([1.0, 3.0]), np.array([0, 2]))
    >>> solve_path(p, np.array([2.0])).coef.ravel()  # 4 / (2 + 2)
    array([1.])
    """
    loss = loss or Squared()
    n_rows, d = problems.X.shape
    m, n_penalties = problems.n_tasks, len(penalties)
    means = np.zeros((m, d)) if mean is None else np.broadcast_to(mean, (m, d))
    F = factor(covariance, d)
    coef, held_out = np.empty((m, n_penalties, d)), np.empty((n_rows, n_penalties))
    solve = _ridge_block if loss.quadratic else _newton_block

    def work(block: Block) -> None:
        X, y, prior = block.padded(problems.X), block.padded(problems.y), means[block.tasks]
        base = each_times(X, prior)
        u, eta = solve(X if covariance is None else X @ F, y, base, block.real, penalties, loss)
        models = prior[:, None] + (u if covariance is None else u @ F.T)
        if not (np.isfinite(models).all() and np.isfinite(eta).all()):
            models, eta = _or_prior(models, eta, prior, base)
        coef[block.tasks], held_out[block.rows[block.real]] = models, eta[block.real]

    each_block(problems, work)
    return Path(np.asarray(penalties), coef, held_out)


def _or_prior(
    models: FloatArray, eta: FloatArray, prior: FloatArray, base: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Models (b, L, d) and predictions (b, n, L); those of the prior mean where any is infinite."""
    sound = np.isfinite(models).all(axis=(1, 2), keepdims=True)
    sound = sound & np.isfinite(eta).all(axis=(1, 2), keepdims=True)
    return np.where(sound, models, prior[:, None]), np.where(sound, eta, base[:, :, None])


def _ridge_block(
    Z: FloatArray, y: FloatArray, base: FloatArray, real: Mask, penalties: FloatArray, loss: Loss
) -> tuple[FloatArray, FloatArray]:
    """u (b, L, d) and leave-one-out predictions (b, n, L) from one eigendecomposition."""
    n, d = Z.shape[1:]
    residual = y - base  # zero where padded, as both are
    Zt = Z.transpose(0, 2, 1)
    if n < d:  # ZZᵀ = QΛQᵀ: u = Zᵀ Q (Λ+λ)^{-1} Qᵀ r
        values, Q = spectra(Z @ Zt)
        inverse = 1 / (values[:, :, None] + penalties)
        dual = Q @ (times_each(residual, Q)[:, :, None] * inverse)  # (b, n, L)
        u = Zt @ dual
        leverage = (Q * Q) @ (values[:, :, None] * inverse)
        error = penalties * dual  # r − Zu
    else:  # ZᵀZ = VΛVᵀ: u = V (Λ+λ)^{-1} VᵀZᵀ r
        values, V = spectra(Zt @ Z)
        inverse = 1 / (values[:, :, None] + penalties)
        ZV = Z @ V
        scores = times_each(residual, ZV)[:, :, None] * inverse  # (b, d, L)
        u = V @ scores
        leverage = (ZV * ZV) @ inverse
        error = residual[:, :, None] - ZV @ scores
    held_out_error = error / np.maximum(1 - leverage, 1e-12)
    return u.transpose(0, 2, 1), (y[:, :, None] - held_out_error)


def _newton_block(
    Z: FloatArray, y: FloatArray, base: FloatArray, real: Mask, penalties: FloatArray, loss: Loss
) -> tuple[FloatArray, FloatArray]:
    """The same for a smooth loss: damped Newton from the largest penalty down, warm-started."""
    b, n, d = Z.shape
    u = np.empty((b, len(penalties), d))
    held_out = np.empty((b, n, len(penalties)))
    current = np.zeros((b, d))
    for index in np.argsort(penalties)[::-1]:
        penalty = float(penalties[index])
        current, eta, H = _newton(Z, y, base, real, penalty, loss, current)
        inverse = each_matrix(np.linalg.solve, H, Z.transpose(0, 2, 1))  # H^{-1}Zᵀ, (b, d, n)
        a = (Z * inverse.transpose(0, 2, 1)).sum(axis=2)
        curvature = loss.curvature(eta, y)
        u[:, index] = current
        held_out[:, :, index] = eta + loss.slope(eta, y) * a / np.maximum(1 - curvature * a, 1e-12)
    return u, held_out


def _newton(
    Z: FloatArray,
    y: FloatArray,
    base: FloatArray,
    real: Mask,
    penalty: float,
    loss: Loss,
    start: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Minimises Σ ℓ + (λ/2)‖u‖² for every task of the block; a step is halved until it descends.

    A task stops by its own step alone: what it gets must not depend on the tasks beside it.
    """
    ridge = penalty * np.eye(Z.shape[2])

    def predict(u: FloatArray) -> FloatArray:
        return base + each_times(Z, u)

    def objective(u: FloatArray, eta: FloatArray) -> FloatArray:
        return row_sums(np.where(real, loss.value(eta, y), 0.0)) + penalty / 2 * row_sums(u * u)

    def hessian(eta: FloatArray) -> FloatArray:
        return np.asarray(Z.transpose(0, 2, 1) @ (Z * loss.curvature(eta, y)[:, :, None]) + ridge)

    u, eta = start, predict(start)
    value = objective(u, eta)
    done = np.zeros(len(u), dtype=bool)
    for _ in range(NEWTON_STEPS):
        gradient = times_each(loss.slope(eta, y), Z) + penalty * u
        step = each_matrix(np.linalg.solve, hessian(eta), gradient[:, :, None])[:, :, 0]
        size = np.ones(len(u))
        for _ in range(30):
            trial = u - size[:, None] * step
            trial_eta = predict(trial)
            trial_value = objective(trial, trial_eta)
            worse = trial_value > value + 1e-12 * np.abs(value)
            if not worse.any():
                break
            size[worse] /= 2
        u = np.where(done[:, None], u, trial)
        eta, value = np.where(done[:, None], eta, trial_eta), np.where(done, value, trial_value)
        done |= np.abs(step).max(axis=1) <= NEWTON_TOLERANCE * (1 + np.abs(u).max(axis=1))
        if done.all():
            break
    return u, eta, hessian(eta)


def shared_mean(problems: Problems, penalty: float, *, loss: Loss | None = None) -> FloatArray:
    r"""The μ (d,) of the mean-regularised optimum, S2 Eq. (2), exactly.

    .. math:: \min_{μ, W} Σ_t [Σ_i ℓ(x_iᵀw_t; y_i) + (λ/2)‖w_t − μ‖²] + (r/2)‖μ‖²

    At the optimum μ is the mean of the w_t (up to r, which only picks one when several fit). For
    the squared loss, eliminating W leaves generalised least squares:
    Σ_t λ(G_t+λ)^{-1}G_t μ = Σ_t λ(G_t+λ)^{-1}X_tᵀy_t. Other losses: the same on working responses,
    which is Newton's method on the joint problem.
    """
    loss = loss or Squared()
    d = problems.X.shape[1]
    mu, W = np.zeros(d), np.zeros((problems.n_tasks, d))
    index = np.repeat(np.arange(problems.n_tasks), problems.sizes)
    for _ in range(1 if loss.quadratic else NEWTON_STEPS):
        eta = np.einsum("nd,nd->n", problems.X, W[index])
        weights = np.maximum(loss.curvature(eta, problems.y), 1e-8)
        working = eta - loss.slope(eta, problems.y) / weights
        previous = mu
        mu, W = _least_squares_mean(problems, working, weights, penalty)
        if np.linalg.norm(mu - previous) <= 1e-10 * (1 + np.linalg.norm(mu)):
            break
    return mu


def _least_squares_mean(
    problems: Problems, working: FloatArray, weights: FloatArray, penalty: float
) -> tuple[FloatArray, FloatArray]:
    m, d = problems.n_tasks, problems.X.shape[1]
    to_mean, to_task = np.empty((m, d, d)), np.empty((m, d))  # (G+λ)^{-1}G and (G+λ)^{-1}Xᵀz

    def work(block: Block) -> None:
        scale = np.sqrt(block.padded(weights))
        X = block.padded(problems.X) * scale[:, :, None]
        z = block.padded(working) * scale
        G = X.transpose(0, 2, 1) @ X
        right = np.concatenate([G, times_each(z, X)[:, :, None]], axis=2)
        solved = np.linalg.solve(G + penalty * np.eye(d), right)
        to_mean[block.tasks], to_task[block.tasks] = solved[:, :, :d], solved[:, :, d]

    each_block(problems, work)
    left = penalty * to_mean.sum(0) + MEAN_RIDGE * np.eye(d)
    mu = np.linalg.solve(left, penalty * to_task.sum(0))
    return mu, mu + to_task - to_mean @ mu
