"""Ranges that nobody declared: how large targets and features are, by a vote of all tasks.

Powers of two: one for the targets, one for all undeclared features together, and one for each of
them, as a column of hundreds beside columns of zeros and ones would make the ones too small for any
prior. Every task votes for the sizes of its numbers, one-hot, and the noisy counts are released.

*Sensitivity.* A row has three parts (two where columns are not asked about one by one): the target,
the features, and the columns. Of each of the first two one entry is 1/√3, of the third one entry a
column 1/√(3u), u columns; or none, where a task has nothing there. So the norm is at most one and
no entry negative: Δ₂ = √2 (replace), 1 (zero-out), whatever u is.
"""

from __future__ import annotations

import math

import numpy as np

from tacit.arrays import BoolArray, FloatArray
from tacit.estimator.home import Home
from tacit.linear.losses import Loss
from tacit.linear.problems import FEW, Problems
from tacit.linear.row_algebra import row_sums

SHARE = 0.1  # of μ², when the declared ranges leave the scale open
DYADIC = np.arange(-20, 21)  # candidate scales 2^k
STANDS_OUT = 4.0  # σ
MOST_ASKED = 64  # columns, one by one; more are asked about together alone
FARTHEST = 1  # powers of two by which all features together may exceed what columns add up to


def asked_about(undeclared: BoolArray) -> BoolArray:
    """(d,): the columns whose sizes are voted on one by one: a public rule."""
    return undeclared if 1 < undeclared.sum() <= MOST_ASKED else np.zeros_like(undeclared)


def scale_votes(home: Home) -> FloatArray:
    """One-hot (m, (2 + u)B): the dyadic size of the targets, of the undeclared features, and of
    each of u columns."""
    p = home.problems
    undeclared = ~home.declared_features
    columns = np.flatnonzero(asked_about(undeclared))
    sizes = np.maximum(p.sizes, 1)
    target = np.sqrt(p.sum_rows(p.y**2) / sizes)
    squares = row_sums(p.X[:, :-1][:, undeclared] ** 2) / max(1, int(undeclared.sum()))
    feature = np.sqrt(p.sum_rows(squares) / sizes)
    size = np.column_stack([target, feature, _largest(p, np.abs(p.X[:, columns]))])
    parts = 3 if len(columns) else 2
    weight = np.sqrt([1 / parts] * 2 + [1 / (3 * max(1, len(columns)))] * len(columns))
    votes = np.zeros((*size.shape, len(DYADIC)))
    with np.errstate(divide="ignore"):
        exponent = np.clip(np.ceil(np.log2(size)), DYADIC[0], DYADIC[-1])
    who, what = np.nonzero(size > 0)
    votes[who, what, (exponent[who, what] - DYADIC[0]).astype(int)] = weight[what]
    return votes.reshape(p.n_tasks, -1)


def _largest(problems: Problems, values: FloatArray) -> FloatArray:
    """(m, u): of each task's rows; zero of none."""
    found = np.zeros((problems.n_tasks, values.shape[1]))
    some = problems.sizes > 0
    if some.any() and values.shape[1]:
        found[some] = np.maximum.reduceat(values, problems.offsets[:-1][some], axis=0)
    return found


def unclear(total: FloatArray, sigma: float, undeclared: BoolArray, declared_target: bool) -> bool:
    """Whether a winner does not stand out of the noise, or what columns say does not add up to what
    all features together are: then some column is of another size, and nobody knows which. A
    common scale where columns differ would cost a task more than it could gain.

    Of 82 noisy counts the largest exceeds 4σ by chance with probability 0.003.
    """
    asked = [not declared_target, bool(undeclared.any())]
    if (total.reshape(-1, len(DYADIC))[:2].max(1) < STANDS_OUT * sigma)[asked].any():
        return True
    if not asked_about(undeclared).any():
        return False
    exponents = column_exponents(total, sigma, undeclared)
    if not len(exponents):
        return True
    together = DYADIC[total.reshape(-1, len(DYADIC))[1].argmax()]
    added_up = math.ceil(0.5 * math.log2(float(np.mean(4.0**exponents))))
    return bool(together > added_up + FARTHEST)


def column_exponents(total: FloatArray, sigma: float, undeclared: BoolArray) -> FloatArray:
    """(u,), log₂ of each column's size: its own winner where that stands out, else that of all
    columns together; none where neither does, or no column was asked about."""
    counts = total.reshape(-1, len(DYADIC))[2:]
    if not asked_about(undeclared).any():
        return np.zeros(0)
    common = counts.sum(0)
    own = counts.max(1) > STANDS_OUT * sigma
    if not own.all() and common.max() <= STANDS_OUT * sigma * math.sqrt(len(counts)):
        return np.zeros(0)
    found = np.where(own, DYADIC[counts.argmax(1)], DYADIC[common.argmax()])
    return np.asarray(found, dtype=np.float64)


def voted_scales(
    total: FloatArray, sigma: float, undeclared: BoolArray, declared_target: bool
) -> tuple[float, FloatArray]:
    """Of the target, and of each feature (d,): twice the most voted size; one where it is declared,
    or unclear."""
    if unclear(total, sigma, undeclared, declared_target):
        return 1.0, np.ones(len(undeclared))
    target, feature = 2.0 ** (DYADIC[total.reshape(-1, len(DYADIC))[:2].argmax(1)] + 1)
    scales = np.where(undeclared, feature, 1.0)
    exponents = column_exponents(total, sigma, undeclared)
    if len(exponents):
        scales[asked_about(undeclared)] = 2.0 ** (exponents + 1)
    return 1.0 if declared_target else float(target), scales


def in_shared_units(home: Home, target: float, features: FloatArray) -> Problems:
    """The problems of home, with columns and targets divided by the shared scales."""
    p = home.problems
    if target == 1.0 and np.all(features == 1.0):
        return p
    units = (target, *features)
    if units in home.scaled:
        return home.scaled[units]
    y = p.y if home.loss.targets_are_classes else p.y / target
    scaled = Problems(p.X / np.append(features, 1.0), y, p.offsets, p.trust)
    if p.n_tasks <= FEW:
        home.scaled.clear()
        home.scaled[units] = scaled
    return scaled


def units_of(loss: Loss, target: float, features: FloatArray) -> FloatArray:
    """(D,): what turns a model of those problems back into the units of home."""
    return (1.0 if loss.targets_are_classes else target) / np.append(features, 1.0)
