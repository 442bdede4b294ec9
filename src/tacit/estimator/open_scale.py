"""Ranges that nobody declared: how large targets and features are, by a vote of all tasks.

One power of two for the targets and one for all undeclared features: every task votes for the size
of its own numbers, one-hot, and the noisy counts are released (Δ₂ = √2, replace).
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


def scale_votes(home: Home) -> FloatArray:
    """One-hot (m, 2B): the dyadic size of the targets and of the undeclared features."""
    p = home.problems
    undeclared = ~home.declared_features
    sizes = np.maximum(p.sizes, 1)
    target = np.sqrt(p.sum_rows(p.y**2) / sizes)
    squares = row_sums(p.X[:, :-1][:, undeclared] ** 2) / max(1, int(undeclared.sum()))
    feature = np.sqrt(p.sum_rows(squares) / sizes)
    votes = np.zeros((p.n_tasks, 2, len(DYADIC)))
    for block, size in enumerate((target, feature)):
        with np.errstate(divide="ignore"):
            exponent = np.clip(np.ceil(np.log2(size)), DYADIC[0], DYADIC[-1])
        said = size > 0
        votes[said, block, (exponent[said] - DYADIC[0]).astype(int)] = 1.0
    return votes.reshape(p.n_tasks, -1) / math.sqrt(2)


def unclear(total: FloatArray, sigma: float, undeclared: BoolArray, declared_target: bool) -> bool:
    """Whether a winner does not stand out of the noise.

    Of 82 noisy counts the largest exceeds 4σ by chance with probability 0.003.
    """
    asked = [not declared_target, bool(undeclared.any())]
    return bool((total.reshape(2, -1).max(1) < STANDS_OUT * sigma)[asked].any())


def voted_scales(
    total: FloatArray, sigma: float, undeclared: BoolArray, declared_target: bool
) -> tuple[float, FloatArray]:
    """Of the target, and of each feature (d,): twice the most voted size; one where it is declared,
    or unclear."""
    if unclear(total, sigma, undeclared, declared_target):
        return 1.0, np.ones(len(undeclared))
    target, feature = 2.0 ** (DYADIC[total.reshape(2, -1).argmax(1)] + 1)
    return 1.0 if declared_target else float(target), np.where(undeclared, feature, 1.0)


def in_shared_units(home: Home, target: float, features: FloatArray) -> Problems:
    """The problems of home, with columns and targets divided by the shared scales."""
    p = home.problems
    if target == 1.0 and np.all(features == 1.0):
        return p
    units = (target, *features)
    if units in home.scaled:
        return home.scaled[units]
    y = p.y if home.loss.targets_are_classes else p.y / target
    scaled = Problems(p.X / np.append(features, 1.0), y, p.offsets)
    if p.n_tasks <= FEW:
        home.scaled.clear()
        home.scaled[units] = scaled
    return scaled


def units_of(loss: Loss, target: float, features: FloatArray) -> FloatArray:
    """(D,): what turns a model of those problems back into the units of home."""
    return (1.0 if loss.targets_are_classes else target) / np.append(features, 1.0)
