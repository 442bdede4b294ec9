"""Each task's problem as it sees it itself: centred, in its own units, with curvature one.

A step size that all tasks share must be public, and so must not follow the data. So each task
divides its own loss by its own largest curvature, at home: then 1 is the right step for everybody.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.arrays import FloatArray
from tacit.linear.batched import solve_path
from tacit.linear.losses import Loss
from tacit.linear.problems import Problems
from tacit.linear.row_algebra import positive_or_one, row_sums
from tacit.linear.single_task_fits import INTERCEPT_VARIANCE
from tacit.linear.smooth import Quadratic, Rowwise, Smooth, quadratic
from tacit.linear.threads import isolated

AUTO_CLIP = 1.0
"""In a task's own units a model that explains its targets has about norm one."""

CENTRED = 1e-9
"""Of a column's size: what centring leaves below this may be rounding, and is not scaled up.

A mean of n numbers is off by n·2^−53 of their size at most, and so is what is left of a constant;
scaled by this floor instead of by itself it stays below n·1.2e-7.
"""


@dataclass(frozen=True)
class Standardised:
    """x' = (x − centre)/x_scale, y' = (y − y_centre)/y_scale; models w' = w · x_scale/y_scale."""

    problems: Problems  # centred and scaled, the last column as it was: ones, or zeros
    smooth: Smooth  # the loss over its largest curvature; the last coordinate is b'/size
    curvature: FloatArray  # (m,), what the loss was divided by
    size: (
        FloatArray  # (m,), what the intercept's column is in ``smooth``: 0 if it is not a variable
    )
    centre: FloatArray  # (m, d)
    x_scale: FloatArray  # (m,)
    y_centre: FloatArray  # (m,)
    y_scale: FloatArray  # (m,)

    def inwards(self, models: FloatArray) -> FloatArray:
        """Models (m, D) of the given problem as variables of ``smooth``."""
        w = models[:, :-1] * (self.x_scale / self.y_scale)[:, None]
        b = models[:, -1] + row_sums(self.centre * models[:, :-1]) - self.y_centre
        return np.column_stack(
            [w, np.divide(b, self.size * self.y_scale, where=self.size > 0, out=np.zeros_like(b))]
        )

    def from_smooth(self, W: FloatArray) -> FloatArray:
        """Variables of ``smooth`` as models of the given problem."""
        return self.outwards(np.column_stack([W[:, :-1], W[:, -1] * self.size]))

    def outwards(self, models: FloatArray) -> FloatArray:
        """Models (m, D) of ``problems`` as models of the given problem."""
        w = models[:, :-1] * (self.y_scale / self.x_scale)[:, None]
        b = self.y_centre + self.y_scale * models[:, -1] - row_sums(self.centre * w)
        return np.column_stack([w, b])


@isolated()
def standardised(problems: Problems, loss: Loss, *, scaled: bool) -> Standardised:
    """The problems centred (where there is an intercept) and, if asked, scaled to size one.

    >>> from tacit.linear.losses import Squared
    >>> p = Problems(np.array([[0.0, 1], [4, 1]]), np.array([1.0, 3.0]), np.array([0, 2]))
    >>> own = standardised(p, Squared(), scaled=True)
    >>> own.problems.X[:, 0], own.problems.y, own.outwards(np.array([[1.0, 0.0]]))
    (array([-1.,  1.]), array([-1.,  1.]), array([[0.5, 1. ]]))
    """
    squared = loss.quadratic
    intercept = problems.sum_rows(problems.X[:, -1]) > 0  # ones, or zeros
    rows, task = np.maximum(problems.sizes, 1), problems.task
    centre = problems.sum_rows(problems.X[:, :-1]) / rows[:, None]
    centre = np.where(intercept[:, None], centre, 0.0)
    y_centre = np.where(squared & intercept, problems.sum_rows(problems.y) / rows, 0.0)
    X, y = problems.X[:, :-1] - centre[task], problems.y - y_centre[task]
    size = _sizes(problems, X, problems.X[:, :-1])
    x_scale = size if scaled else np.ones_like(size)
    y_scale = np.ones_like(size)
    if squared and scaled:
        y_scale = _sizes(problems, y[:, None], problems.y[:, None])
    X, y = X / x_scale[task][:, None], y / y_scale[task]
    last = np.where(squared | ~intercept, 0.0, size / x_scale)
    home = Problems(np.column_stack([X, problems.X[:, -1]]), y, problems.offsets)
    variables = Problems(np.column_stack([X, last[task]]), y, problems.offsets)
    smooth, curvature = _unit_curvature(variables, loss, (size / x_scale) ** 2 / 4)
    return Standardised(home, smooth, curvature, last, centre, x_scale, y_centre, y_scale)


def _sizes(problems: Problems, centred: FloatArray, given: FloatArray) -> FloatArray:
    """(m,): the root mean square of each task's numbers, at least CENTRED of it before centring."""
    width, rows = max(1, given.shape[1]), np.maximum(problems.sizes, 1)
    left, whole = (
        np.sqrt(problems.sum_rows(row_sums(values**2) / width) / rows)
        for values in (centred, given)
    )
    return positive_or_one(np.maximum(left, CENTRED * whole))


def _unit_curvature(problems: Problems, loss: Loss, least: FloatArray) -> tuple[Smooth, FloatArray]:
    """The loss over its largest curvature, or over ``least`` (m,) where that is larger.

    With columns of mean square s² the largest eigenvalue of XᵀX is at least n s², and the logistic
    curvature a quarter: s²/4 is larger only where s was floored, and what is left is rounding.
    """
    ones = np.ones(len(problems.y))
    if loss.quadratic:
        whole = quadratic(problems, ones)
        curvature = np.fmax(whole.bounds(), least)
        G, b = whole.G / curvature[:, None, None], whole.b / curvature[:, None]
        return Quadratic(G, b, 0.0), curvature
    curvature = np.fmax(Rowwise(problems, loss, ones).bounds(), least)
    return Rowwise(problems, loss, np.repeat(1 / curvature, problems.sizes)), curvature


def with_own_intercepts(problems: Problems, loss: Loss, coef: FloatArray) -> FloatArray:
    """(m, D): the given coefficients (m, d), each task's intercept fitted to its own rows.

    >>> from tacit.linear.losses import Squared
    >>> p = Problems(np.array([[0.0, 1], [2, 1]]), np.array([1.0, 3.0]), np.array([0, 2]))
    >>> with_own_intercepts(p, Squared(), np.array([[1.0]])).round(4)
    array([[1., 1.]])
    """
    means = np.column_stack([coef, np.zeros(len(coef))])
    only = np.append(np.zeros(coef.shape[1]), INTERCEPT_VARIANCE)
    return solve_path(problems, np.ones(1), loss=loss, mean=means, covariance=only).coef[:, 0]
