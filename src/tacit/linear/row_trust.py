r"""How far a task's rows are to be believed: less where those that say most of its model err most.

A Gaussian likelihood has all rows equally noisy. Of somebody who mostly stands still, most rows are
nearly free of noise and say nothing; those that say something are noisy, and the likelihood claims
to know what it does not. If row i has noise s_i, a likelihood with s claims the information
H = Σ x_i x_iᵀ/s², and its score varies by J = Σ s_i² x_i x_iᵀ/s⁴. Raised to the power

.. math:: t = tr(H^{-1}H) / tr(H^{-1}J) = s² Σ h_i / Σ h_i s_i²

it claims what is so, on average over directions (a magnitude adjustment: Pauli, Racugno, Ventura
2011). Here h_i is the row's leverage in a ridge of the task by itself, s_i² is seen as
e_i²/(1 − h_i), e_i what that ridge leaves of it, and s² is their mean. How strong the ridge is,
rows say that it was not told (leave-one-out). So t is a task's own business, and the same in any
units of its columns.

With equal noises x = 1/t − 1 varies around zero by 2(Σ h²/(Σ h)² − 1/n), of which CAUTION is taken
off (James and Stein); and nothing is believed more than it claims.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tacit.arrays import FloatArray
from tacit.linear.problems import Block, Problems, each_block, inverses, moments, of_each_chunk
from tacit.linear.row_algebra import each_times, positive_or_one, row_sums, softmax
from tacit.linear.threads import isolated

SCALES = np.array([0.1, 10.0, 1000.0])  # of the variance of slopes, over the noise's
USUAL = np.array([0.5, 0.22, 2.0])  # nats beforehand against each: one decade below, 1.5 above one
SIGNAL = 3.0  # of all columns together, at scale one
TEMPERATURE = 0.7  # held-out errors are dependent: they count for less than they claim
NOISE_FLOOR = 1e-3  # a row with this share of the mean square, so that one proves little
CAUTION = 0.5
LEAST = 0.02
FLAT = 1e-12  # of a column's mean square: what lies below is rounding
MOST_LEVERAGE = 1 - 1e-9
RARE = 1e-9  # an excess that is none

Sums: TypeAlias = list[FloatArray]
"""Over the rows of each task (m,): s_i², h_i, h_i s_i², h_i², and the squared held-out error."""


@isolated()
def trust_in_rows(problems: Problems) -> FloatArray:
    """t (m,), one at most, of each task.

    >>> x = np.tile([0.01, -0.01, 1.0, -1.0], 15)
    >>> X, noise = np.column_stack([x, np.ones(60)]), np.random.default_rng(0).normal(size=60)
    >>> of = lambda y: float(trust_in_rows(Problems(X, y, np.array([0, 60])))[0].round(2))
    >>> of(2 * x + noise), of(2 * x + noise * abs(x))
    (1.0, 0.67)
    """
    return of_each_chunk(problems, _of_chunk)


def _of_chunk(problems: Problems) -> FloatArray:
    ridge = Ridge.of(problems.sizes.astype(float), *moments(problems))

    def sums(scales: FloatArray) -> Sums:
        P, slopes = ridge.at(scales)
        found = [np.zeros(problems.n_tasks) for _ in range(5)]

        def work(block: Block) -> None:
            X, y, mine = block.padded(problems.X), block.padded(problems.y), block.tasks
            Z = X[:, :, :-1] - ridge.centre[mine][:, None]
            leverage = ((Z @ P[mine]) * Z).sum(axis=2) + ridge.share[mine][:, None]
            left = y - ridge.level[mine][:, None] - each_times(Z, slopes[mine])
            for total, part in zip(found, parts(leverage, left), strict=True):
                total[mine] = row_sums(np.where(block.real, part, 0.0))

        each_block(problems, work)
        return found

    return trust(ridge, sums)


@dataclass(frozen=True)
class Ridge:
    """Each task by itself: a free intercept, and columns of one size."""

    rows: FloatArray  # (m,), one at least
    square: FloatArray  # (m,), mean of the targets' around their level
    centre: FloatArray  # (m, d), of the features
    level: FloatArray  # (m,), of the targets
    share: FloatArray  # (m,), of the intercept, in a row's leverage
    G: FloatArray  # (m, d, d), around the centre
    pull: FloatArray  # (m, d), the same of Xᵀy
    size: FloatArray  # (m, d), of a usual slope at scale one; zero of a column that is constant

    @classmethod
    def of(cls, rows: FloatArray, G: FloatArray, g: FloatArray, yy: FloatArray) -> Ridge:
        """From moments."""
        d, weight, counted = g.shape[1] - 1, G[:, -1, -1], positive_or_one(rows)
        share = weight / counted / counted
        centre, level = G[:, -1, :d] * share[:, None], g[:, -1] * share
        around = G[:, :d, :d] - weight[:, None, None] * centre[:, :, None] * centre[:, None, :]
        pull = g[:, :d] - (weight * level)[:, None] * centre
        own, all_of_it = (np.diagonal(part, axis1=1, axis2=2) for part in (around, G[:, :d, :d]))
        varies = own > FLAT * all_of_it
        columns = np.maximum(row_sums(np.where(varies, 1.0, 0.0)), 1.0)
        unit = (SIGNAL * counted / columns)[:, None] / np.where(varies, own, 1.0)
        size = np.where(varies, np.sqrt(unit), 0.0)
        square = (yy - weight * level**2) / counted
        return cls(counted, square, centre, level, share, around, pull, size)

    def at(self, scales: FloatArray) -> tuple[FloatArray, FloatArray]:
        """P (m, d, d), h = zᵀPz + share of a row z from the centre; and the slopes (m, d)."""
        both = scales[:, None, None] * self.size[:, :, None] * self.size[:, None, :]
        P = both * inverses(both * self.G)
        return P, each_times(P, self.pull)


def parts(leverage: FloatArray, left: FloatArray) -> Sums:
    """What rows add to the sums, by their leverage and what a ridge leaves of them."""
    h = np.minimum(leverage, MOST_LEVERAGE)
    noise = left**2 / (1 - h)
    return [noise, h, h * noise, h**2, noise / (1 - h)]


def trust(ridge: Ridge, sums: Callable[[FloatArray], Sums]) -> FloatArray:
    """t (m,): at the scale (of log c an average) by which rows say others."""
    n, floor = ridge.rows, NOISE_FLOOR * positive_or_one(ridge.square)
    held_out = np.stack([sums(np.zeros_like(n) + scale)[-1] for scale in SCALES], axis=1)
    likely = -TEMPERATURE / 2 * (n + 1)[:, None] * np.log(held_out + floor[:, None]) - USUAL
    noise, h, heavy, squares, _ = sums(np.exp(row_sums(softmax(likely) * np.log(SCALES))))
    everything = positive_or_one(h)
    excess = np.maximum(heavy / everything * n / positive_or_one(noise) - 1, RARE)
    variance = np.maximum(2 * (squares / everything**2 - 1 / n), 0.0)
    found = 1 / (1 + np.maximum(excess - CAUTION * variance / excess - RARE, 0.0))
    return np.where(np.isfinite(found), np.maximum(found, LEAST), 1.0)
