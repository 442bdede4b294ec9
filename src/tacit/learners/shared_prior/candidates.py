"""Every prior that a task may use at home, made of all lessons: post-processing, public numbers.

Which of them is usual, tasks vote on; which serves one task, it finds out by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.arrays import FloatArray
from tacit.learners.shared_prior.lessons import Lessons
from tacit.learners.shared_prior.shrinkage import spikes, square_root, towards_one
from tacit.linear.row_algebra import row_sums

RESTS = (0.1, 0.01)  # how much of what does not stand out a task may believe in
LEAST_REST = 1e-4  # of the average variance, in every direction


@dataclass(frozen=True)
class Candidate:
    """N(mean, s²c covariance), and how many of its numbers were fitted to the tasks."""

    mean: FloatArray  # (D,)
    covariance: FloatArray  # (D, D), over s²c
    fitted: int


def isotropic(told: Lessons, refined: bool) -> FloatArray:
    """A covariance without structure, as large as T where that was refined."""
    plain = told.base @ told.base.T
    if refined:
        return np.asarray(plain * (np.trace(_outer(told, told.linear)) / np.trace(plain)))
    return plain


def rough(told: Lessons, refined: bool) -> FloatArray:
    """The coordinates in which c and s are voted on."""
    linear, error = _outer(told, told.linear), told.mean_covariance / told.noise**2
    return square_root(0.5 * linear + 0.5 * isotropic(told, refined) + error)


def only_plain(told: Lessons) -> list[Candidate]:
    """Where a mean would drown."""
    return [Candidate(told.mean, isotropic(told, refined=False), 0)]


def candidates(told: Lessons, scale: float, refined: bool) -> list[Candidate]:
    """Around the mean, whose error is part of every covariance; and around zero, with the mean's
    length in the covariance."""
    plain, linear = isotropic(told, refined), _outer(told, told.linear)
    sharp, mean, zero = _outer(told, told.sharp), told.mean, np.zeros_like(told.mean)
    error = told.mean_covariance / told.noise**2 / scale
    d = len(mean)
    diagonal = np.diag(linear) if refined else own_diagonal(told)
    full = d * (d + 1) // 2 + d
    found = [
        Candidate(mean, plain + error, d),
        Candidate(mean, linear + error, full),
        Candidate(mean, np.diag(diagonal) + error, 2 * d),
        Candidate(mean, sharp + error, full),
        Candidate(mean, 0.5 * linear + 0.1 * plain + error, full),
    ]
    if refined:
        whole = np.outer(mean, mean) / told.noise**2 / scale + error
        ends = [plain + whole, sharp + whole + 0.05 * plain, sharp + whole]
    else:
        raw = _outer(told, told.raw)
        few = [_outer(told, few_directions(told, rest)) for rest in RESTS]
        few.append(sharp + 0.03 * plain)
        found += [Candidate(mean, covariance + error, full) for covariance in few]
        ends = [plain, raw + 0.05 * plain, raw]
    return found + [
        Candidate(zero, covariance, n) for covariance, n in zip(ends, (d, full, full), strict=True)
    ]


def few_directions(told: Lessons, rest: float) -> FloatArray:
    """T of what stands out of the moment, with ``rest`` of the remainder in all others."""
    d = len(told.mean)
    variance = told.moment_noise**2 / 2 + 1 / told.weight  # of an entry: noise, a sample of tasks
    kept = spikes(told.moment, d * variance)
    left = max(float(np.trace(told.moment) - np.trace(kept)), 0.0) / d
    return np.asarray(kept + max(rest * left, LEAST_REST) * np.eye(d))


def own_diagonal(told: Lessons) -> FloatArray:
    """(D,): variances without correlations. Of the moment only its diagonal in the first frame's
    coordinates is read, and shrunk by the noise of so many numbers, not by that of a whole matrix:
    of fᵀMf that is |f|² times as large, so what a round's coordinates made small is known well."""
    rows = np.asarray(np.linalg.solve(told.base, told.outer), dtype=np.float64)
    seen, size = row_sums((rows @ told.moment) * rows), row_sums(rows**2)
    usual = max(float(seen.mean()), 0.1)
    variance = (size / usual) ** 2 * (told.moment_noise**2 + 2 / told.weight)
    return np.diag(told.base) ** 2 * towards_one(seen / usual, variance)


def _outer(told: Lessons, T: FloatArray) -> FloatArray:
    return np.asarray(told.outer @ T @ told.outer.T)
