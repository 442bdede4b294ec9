"""Each task by itself: ridge or logistic regression with a free intercept, along one path."""

from __future__ import annotations

import numpy as np

from tacit.arrays import FloatArray
from tacit.linear.batched import Path, solve_path
from tacit.linear.losses import Loss
from tacit.linear.problems import Problems
from tacit.linear.row_algebra import positive_or_one, row_sums
from tacit.linear.threads import isolated

PENALTIES = 10.0 ** np.arange(-2, 4.75, 0.5)
"""The penalty path that every task walks at home; columns are about one in size."""

INTERCEPT_VARIANCE = 1e6
"""Prior variance of the last column, the intercept: practically free, finite for one row."""


def own_path(problems: Problems, loss: Loss) -> Path:
    """Every task held to zero at every penalty, the last column (the intercept) free."""
    variances = np.ones(problems.X.shape[1])
    variances[-1] = INTERCEPT_VARIANCE
    return solve_path(problems, PENALTIES, loss=loss, covariance=variances)


@isolated()
def in_own_units(problems: Problems, loss: Loss) -> tuple[Problems, FloatArray]:
    """Every task divides its columns and its target by their root mean square: its own business.

    Returns the scaled problems and the factor (m, d + 1) that turns their models back.
    """
    X, rows = problems.X, np.maximum(problems.sizes, 1)
    width = max(1, X.shape[1] - 1)
    squares = row_sums(X[:, :-1] ** 2) / width
    feature = positive_or_one(np.sqrt(problems.sum_rows(squares) / rows))
    target = np.ones(problems.n_tasks)
    if not loss.targets_are_classes:
        target = positive_or_one(np.sqrt(problems.sum_rows(problems.y**2) / rows))
    scaled = X.copy()
    scaled[:, :-1] /= feature[problems.task][:, None]
    columns = np.ones((problems.n_tasks, X.shape[1]))
    columns[:, :-1] = feature[:, None]
    back = target[:, None] / columns
    return Problems(scaled, problems.y / target[problems.task], problems.offsets), back


def best_alone(problems: Problems, loss: Loss) -> FloatArray:
    """(m, d + 1): every task at the penalty that predicts its held-out rows best.

    >>> from tacit.linear.losses import Squared
    >>> X, y = np.array([[0.0, 1], [1, 1], [2, 1]]), np.array([1.0, 3, 5])
    >>> best_alone(Problems(X, y, np.array([0, 3])), Squared()).round(2)
    array([[1.98, 1.02]])
    """
    return np.concatenate([np.multiply(*best_in_own_units(p, loss)) for p in problems.chunks()])


@isolated()
def best_in_own_units(problems: Problems, loss: Loss) -> tuple[FloatArray, FloatArray]:
    """The same in each task's own units, and the factor (m, d + 1) that turns it back."""
    scaled, back = in_own_units(problems, loss)
    path = own_path(scaled, loss)
    held_out = scaled.sum_rows(loss.value(path.held_out, scaled.y[:, None]))
    best = held_out[:, ::-1].argmin(axis=1)  # of equal ones the largest penalty
    return np.asarray(path.coef[:, ::-1][np.arange(problems.n_tasks), best]), back
