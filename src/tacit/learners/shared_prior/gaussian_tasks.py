"""A batch of tasks under Gaussian priors: posterior means, evidences and scores in closed form.

Task k's log likelihood is −(yy − 2gᵀw + wᵀGw)/2s², exactly for the squared loss; for the logistic
loss (s = 1) it is the quadratic approximation at a model of the task's own. In coordinates
w = mean + F u, u ~ N(0, s²c I), one tridiagonal form of B = FᵀGF serves all scales c.

All sums run over a contiguous last axis and all products are one task's own (row_algebra.py), so
that a task gets the same bits in any batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit.arrays import FloatArray
from tacit.linear.batched import solve_path
from tacit.linear.losses import Loss
from tacit.linear.problems import Problems, inverses, moments, solutions, spectra
from tacit.linear.row_algebra import (
    between,
    each_times,
    log_sum_exp,
    positive_or_one,
    row_sums,
    softmax,
    times_each,
)
from tacit.linear.tridiagonal import Tridiagonal
from tacit.privacy.mechanisms.grid import each_svec, svec

LEAST_CURVATURE = 1e-4  # of a logistic row far out, so that its working response is finite
LEAST_RESIDUAL = 1e-10  # in squared scaled units: what is below is rounding
OWN_SCALES = 10.0 ** np.arange(-2, 4.1, 0.75)  # over which a task averages by itself
OWN_DECADES = (1.0, 1.5)  # spread of log10 c below and above one, and a wide one of its noise:
OWN_NOISE = np.array([2.0])  # nats
LAPLACE_STEPS = 8


@dataclass(frozen=True)
class Likelihoods:
    """What a Gaussian prior needs to know of each task's rows."""

    rows: FloatArray  # (m,), n, as far as they are believed
    G: FloatArray  # (m, D, D)
    g: FloatArray  # (m, D)
    yy: FloatArray  # (m,)
    loss: Loss

    @classmethod
    def squared(cls, problems: Problems, loss: Loss) -> Likelihoods:
        """Exactly."""
        return cls(problems.counts(), *problems.moments(), loss)

    @classmethod
    def logistic(cls, problems: Problems, loss: Loss, at: FloatArray) -> Likelihoods:
        """The same of the working responses at the models ``at`` (m, D), a Newton step's."""
        eta = row_sums(problems.X * at[problems.task])
        curvature = np.maximum(loss.curvature(eta, problems.y), LEAST_CURVATURE)
        working = eta - loss.slope(eta, problems.y) / curvature
        weighted = Problems(problems.X, working, problems.offsets)
        return cls(problems.sizes.astype(float), *moments(weighted, np.sqrt(curvature)), loss)

    @property
    def noise_is_known(self) -> bool:
        """Whether s is one: a logistic likelihood has no scale of its own."""
        return self.loss.targets_are_classes


def likelihoods(
    problems: Problems, loss: Loss, mean: FloatArray, covariance: FloatArray
) -> Likelihoods:
    """Of the rows; a logistic task's at its mode under the prior N(mean, covariance)."""
    if loss.quadratic:
        return Likelihoods.squared(problems, loss)
    modes = solve_path(problems, np.ones(1), loss=loss, mean=mean, covariance=covariance)
    return Likelihoods.logistic(problems, loss, modes.coef[:, 0])


@dataclass(frozen=True)
class View:
    """Every task in coordinates w = mean + F u."""

    tasks: Likelihoods
    mean: FloatArray  # (r,)
    F: FloatArray  # (r, r)
    B: FloatArray  # (m, r, r), FᵀGF
    pull: FloatArray  # (m, r), Fᵀ(g − G mean)
    residual: FloatArray  # (m,), of the mean

    @classmethod
    def of(cls, tasks: Likelihoods, mean: FloatArray, F: FloatArray) -> View:
        """Two products a task; the residual is yy − 2gᵀw + wᵀGw at the mean."""
        there = each_times(tasks.G, mean)
        residual = np.maximum(tasks.yy + row_sums(mean * (there - 2 * tasks.g)), 0.0)
        pull = times_each(tasks.g - there, F)
        return cls(tasks, mean, F, between(tasks.G, F), pull, residual)

    @cached_property
    def form(self) -> Tridiagonal:
        """Of B and the pull."""
        return Tridiagonal.of(self.B, self.pull)

    def path(self, scales: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Quadratic form and log determinant of the marginal law of a task's targets, (m, L)."""
        explained, log_det = self.form.path(scales)
        return np.maximum(self.residual[:, None] - explained, LEAST_RESIDUAL), log_det

    def log_likelihood(self, scales: FloatArray, noises: FloatArray) -> FloatArray:
        """Log marginal likelihood (m, L, S) at every scale c and noise s."""
        left, log_det = self.path(scales)
        rows = self.tasks.rows[:, None, None]
        fit = rows * np.log(noises) + left[:, :, None] / (2 * noises**2)
        return -0.5 * log_det[:, :, None] - fit

    def evidence(
        self, scales: FloatArray, noise: float, spreads: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Log marginal likelihood (m, S, L) with log s_k ~ N(log noise, spread²) integrated out,
        and the task's noise variance (m, S, L) where it is likeliest."""
        left, log_det = (part[:, None] for part in self.path(scales))
        if self.tasks.noise_is_known:
            known = np.repeat(-0.5 * (log_det + left), len(spreads), axis=1)
            return known, np.ones_like(known)
        rows = self.tasks.rows[:, None, None]
        fit, level = _over_noise(left / noise**2, rows, spreads[:, None])
        return fit - 0.5 * log_det, noise**2 * np.exp(2 * level)

    def mixed(self, scales: FloatArray, weight: FloatArray) -> FloatArray:
        """Σ_c weight · the posterior mean of w (m, r), of weights (m, L)."""
        u = self.form.solved(scales, weight)
        return row_sums(weight)[:, None] * self.mean + times_each(u, self.F.T)

    def each(self, scales: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The posterior mean of w at every scale, and its variances over s², both (m, L, r): of
        B = QΛQᵀ, (I/c + B)⁻¹ = Q(I/c + Λ)⁻¹Qᵀ."""
        values, Q = spectra(self.B)
        inverse = 1 / (1 / scales[:, None] + values[:, None])
        turned = np.swapaxes(self.F @ Q, 1, 2)
        u = inverse * times_each(self.pull, Q)[:, None]
        return self.mean + u @ turned, inverse @ turned**2

    def _over_scales(self, noise: float) -> FloatArray:
        """(m, L): log posterior of a task's own scale, and of its rows, with a noise of its own."""
        decades = np.log10(OWN_SCALES) / np.where(OWN_SCALES > 1, OWN_DECADES[1], OWN_DECADES[0])
        return self.evidence(OWN_SCALES, noise, OWN_NOISE)[0][:, 0] - 0.5 * decades**2

    def own_evidence(self, noise: float) -> FloatArray:
        """(m,): log marginal likelihood of a task with a scale and a noise of its own."""
        return log_sum_exp(self._over_scales(noise))

    def own(self, noise: float) -> tuple[FloatArray, FloatArray]:
        """Each task's own posterior mean of u (m, r), its scale averaged over, and that scale."""
        weight = softmax(self._over_scales(noise))
        return self.form.solved(OWN_SCALES, weight), np.exp(row_sums(weight * np.log(OWN_SCALES)))

    def along(
        self, first: FloatArray, second: FloatArray, scales: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Slopes (m, 2) and svec of the curvature (m, 3) of each log likelihood of
        mean + F (a first + b second) at zero, the task's own deviation of scale c_k (m,) integrated
        out."""
        spread = scales[:, None, None] * self.B
        x, y = solutions(spread, first), solutions(spread, second)
        ahead, aside = each_times(self.B, first), each_times(self.B, second)
        slopes = [row_sums(shrunk * self.pull) for shrunk in (x, y)]
        curved = [row_sums(x * ahead), math.sqrt(2) * row_sums(x * aside), row_sums(y * aside)]
        return np.stack(slopes, axis=1), np.stack(curved, axis=1)

    def scores(self, noise: float) -> tuple[FloatArray, FloatArray]:
        """svec(Ã_k), Ã_k = ω B(I + B)⁻¹, 0 ⪯ Ã_k ⪯ I, and b̃_k = √ω(I + B)⁻¹b/s (m, r), b the pull.

        ω ≤ 1 is a Student's weight: a task noisier than others says less. It is in Ã once, and once
        in b̃b̃ᵀ, whose size is compared.
        """
        inverse = inverses(self.B)
        score = each_times(inverse, self.pull)
        left = np.maximum(self.residual - row_sums(score * self.pull), LEAST_RESIDUAL)
        weight = np.ones_like(left)
        if not self.tasks.noise_is_known:
            weight = np.minimum(1.0, noise**2 * (2 + self.tasks.rows) / (2 * noise**2 + left))
        information = weight[:, None] * (svec(np.eye(len(self.mean))) - each_svec(inverse))
        return information, score * (np.sqrt(weight) / noise)[:, None]


def _over_noise(
    left: FloatArray, rows: FloatArray, spread: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """log ∫ N(l; 0, spread²) exp(−n l − left e^{−2l}/2) dl (m, S, L) by Laplace's method, and its
    mode; l = log(s_k/s). Newton's steps are bounded by one."""
    precision = 1 / spread**2
    level = 0.5 * np.log((left + 0.1 * precision) / (rows + 0.1 * precision))
    for _ in range(LAPLACE_STEPS):
        fit = left * np.exp(-2 * level)
        level += np.clip((fit - rows - precision * level) / (2 * fit + precision), -1, 1)
    fit = left * np.exp(-2 * level)
    at_mode = -rows * level - fit / 2 - precision * level**2 / 2
    found: FloatArray = at_mode - 0.5 * np.log((2 * fit + precision) * spread**2)
    return found, level


# --- by itself -----------------------------------------------------------------------------------

INTERCEPT_SPREAD = 0.5  # prior variance of a level, in squared scaled units
OWN_SIGNAL = 3.0  # s²c of the slopes together, in the task's own units, at c = 1


@dataclass(frozen=True)
class Alone:
    """Each task by itself: a free intercept, and slopes ~ N(0, s²c) in its own units."""

    slopes: View  # with the intercept eliminated
    unit: FloatArray  # (m,), variance of a slope at c = 1
    centre: FloatArray  # (m, d), of the features
    level: FloatArray  # (m,), of the targets

    @classmethod
    def of(cls, tasks: Likelihoods) -> Alone:
        """Centred at the (weighted) means of the task's rows."""
        d, weight = tasks.g.shape[1] - 1, tasks.G[:, -1, -1]
        counted = positive_or_one(weight)
        centre, level = tasks.G[:, -1, :d] / counted[:, None], tasks.g[:, -1] / counted
        G = tasks.G[:, :d, :d] - weight[:, None, None] * centre[:, :, None] * centre[:, None, :]
        size = np.trace(G, axis1=1, axis2=2) / np.maximum(tasks.rows, 1)
        unit = OWN_SIGNAL / np.maximum(size, 1e-8)
        pull = tasks.g[:, :d] - (weight * level)[:, None] * centre
        residual = np.maximum(tasks.yy - weight * level**2, LEAST_RESIDUAL)
        B, pull = G * unit[:, None, None], pull * np.sqrt(unit)[:, None]
        slopes = View(tasks, np.zeros(d), np.eye(d), B, pull, residual)
        return cls(slopes, unit, centre, level)

    def evidence(
        self, scales: FloatArray, noise: float, spreads: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """As of a view (m, S, L): a level of its own costs what its prior says."""
        found, variance = self.slopes.evidence(scales, noise, spreads)
        weight = self.slopes.tasks.G[:, -1, -1][:, None, None]
        return found - 0.5 * np.log1p(weight * INTERCEPT_SPREAD / variance), variance

    def each(self, scales: FloatArray) -> tuple[FloatArray, FloatArray]:
        """As of a view (m, L, d), of the slopes alone."""
        means, variances = self.slopes.each(scales)
        unit = self.unit[:, None, None]
        return means * np.sqrt(unit), variances * unit

    def mixed(self, scales: FloatArray, weight: FloatArray) -> FloatArray:
        """(m, D)."""
        slopes = self.slopes.mixed(scales, weight) * np.sqrt(self.unit)[:, None]
        level = row_sums(weight) * self.level - row_sums(slopes * self.centre)
        return np.column_stack([slopes, level])
