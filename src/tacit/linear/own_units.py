"""Each task's problem as it sees it itself: centred, in its own units, with curvature one.

A step size that all tasks share must be public, and so must not follow the data. So each task
divides its own loss by its own largest curvature, at home: then 1 is the right step for everybody.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.linear.alone import INTERCEPT_VARIANCE
from tacit.linear.batched import Problems, solve_path
from tacit.linear.losses import FloatArray, Loss, Squared
from tacit.linear.smooth import Quadratic, Rowwise, Smooth, quadratic


@dataclass(frozen=True)
class OwnUnits:
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
        b = models[:, -1] + np.einsum("md,md->m", self.centre, models[:, :-1]) - self.y_centre
        return np.column_stack(
            [w, np.divide(b, self.size * self.y_scale, where=self.size > 0, out=np.zeros_like(b))]
        )

    def from_smooth(self, W: FloatArray) -> FloatArray:
        """Variables of ``smooth`` as models of the given problem."""
        return self.outwards(np.column_stack([W[:, :-1], W[:, -1] * self.size]))

    def outwards(self, models: FloatArray) -> FloatArray:
        """Models (m, D) of ``problems`` as models of the given problem."""
        w = models[:, :-1] * (self.y_scale / self.x_scale)[:, None]
        b = self.y_centre + self.y_scale * models[:, -1] - np.einsum("md,md->m", self.centre, w)
        return np.column_stack([w, b])


def own_units(problems: Problems, loss: Loss, *, scaled: bool) -> OwnUnits:
    """The problems centred (where there is an intercept) and, if asked, scaled to size one.

    >>> p = Problems(np.array([[0.0, 1], [4, 1]]), np.array([1.0, 3.0]), np.array([0, 2]))
    >>> own = own_units(p, Squared(), scaled=True)
    >>> own.problems.X[:, 0], own.problems.y, own.outwards(np.array([[1.0, 0.0]]))
    (array([-1.,  1.]), array([-1.,  1.]), array([[0.5, 1. ]]))
    """
    squared = isinstance(loss, Squared)
    intercept = bool(problems.X[:, -1].any())
    rows = np.maximum(problems.sizes, 1)
    task = np.repeat(np.arange(problems.n_tasks), problems.sizes)
    centre = problems.sum_rows(problems.X[:, :-1]) / rows[:, None] * intercept
    y_centre = problems.sum_rows(problems.y) / rows * (squared and intercept)
    X, y = problems.X[:, :-1] - centre[task], problems.y - y_centre[task]
    squares = (X**2).mean(axis=1) if X.shape[1] else 0 * y
    size = _positive(np.sqrt(problems.sum_rows(squares) / rows))
    x_scale = size if scaled else np.ones_like(size)
    y_scale = np.ones_like(size)
    if squared and scaled:
        y_scale = _positive(np.sqrt(problems.sum_rows(y**2) / rows))
    X, y = X / x_scale[task][:, None], y / y_scale[task]
    last = np.zeros_like(size) if squared or not intercept else size / x_scale
    home = Problems(np.column_stack([X, problems.X[:, -1]]), y, problems.offsets)
    variables = Problems(np.column_stack([X, last[task]]), y, problems.offsets)
    smooth, curvature = _unit_curvature(variables, loss)
    return OwnUnits(home, smooth, curvature, last, centre, x_scale, y_centre, y_scale)


def _unit_curvature(problems: Problems, loss: Loss) -> tuple[Smooth, FloatArray]:
    ones = np.ones(len(problems.y))
    if isinstance(loss, Squared):
        whole = quadratic(problems, ones)
        curvature = _positive(whole.bounds())
        G, b = whole.G / curvature[:, None, None], whole.b / curvature[:, None]
        return Quadratic(G, b, 0.0), curvature
    curvature = _positive(Rowwise(problems, loss, ones).bounds())
    return Rowwise(problems, loss, np.repeat(1 / curvature, problems.sizes)), curvature


def with_own_intercepts(problems: Problems, loss: Loss, coef: FloatArray) -> FloatArray:
    """(m, D): the given coefficients (m, d), each task's intercept fitted to its own rows.

    >>> p = Problems(np.array([[0.0, 1], [2, 1]]), np.array([1.0, 3.0]), np.array([0, 2]))
    >>> with_own_intercepts(p, Squared(), np.array([[1.0]])).round(4)
    array([[1., 1.]])
    """
    means = np.column_stack([coef, np.zeros(len(coef))])
    only = np.append(np.zeros(coef.shape[1]), INTERCEPT_VARIANCE)
    return solve_path(problems, np.ones(1), loss=loss, mean=means, covariance=only).coef[:, 0]


def _positive(sizes: FloatArray) -> FloatArray:
    return np.where(sizes > 0, sizes, 1.0)
