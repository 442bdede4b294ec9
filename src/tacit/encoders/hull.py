"""How far S4's design may be from the best: Theorem 1, and the two radii that it needs.

S is the convex hull of the whitened rows h. Its boundary lies between the sphere of radius r_max,
the longest row, and the largest sphere inside S, of radius r_min. The polar body of S has the
points v with h·v ≤ 1 for all rows, and r_min = 1/max ‖v‖. In few coordinates that is read off the
facets. In many it is a convex maximum, which nobody computes; but max v·b and max −v·b for every b
of an orthonormal basis are linear programs, and with their larger values m_b, ‖v‖² ≤ Σ m_b². So
r_min ≥ 1/√Σm_b² always, and r_min ≤ 1/‖v‖ for every v that was met: a lower bound on the best loss
is one with either the true r_min or less.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.spatial import ConvexHull

from tacit.arrays import FloatArray
from tacit.encoders.closed_forms import task_aware_loss
from tacit.encoders.designs import task_spectrum
from tacit.errors import InvalidInput

FEW = 5  # coordinates in which facets are counted
SLACK = 1e-7  # of the linear programs


class Radii(NamedTuple):
    """Of the spheres that hold a hull's boundary between them."""

    inner: float  # at most r_min, and r_min itself in few coordinates
    inner_at_most: float  # at least r_min
    outer: float  # r_max


class LossBounds(NamedTuple):
    """Of the best loss that any linear encoder can have with Laplace noise, Eq. (14)."""

    lower: float  # L(r_min), or less
    upper: float  # L(r_max)


def hull_radii(h: FloatArray) -> Radii:
    """Of rows h (N, k) around the origin.

    >>> corners = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    >>> [round(radius, 6) for radius in hull_radii(corners)]
    [1.0, 1.0, 1.414214]
    """
    outer = float(np.sqrt((h**2).sum(axis=1)).max(initial=0.0))
    if 1 < h.shape[1] <= FEW:
        inner = max(0.0, float(-ConvexHull(h).equations[:, -1].max()))
        return Radii(inner, inner, outer)
    axes = np.eye(h.shape[1])
    first = _extremes(h, axes)
    if first is None:  # the polar body is not bounded: the origin is on the boundary
        return Radii(0.0, 0.0, outer)
    turned = np.linalg.svd(first)[2]  # its long directions as axes: a tighter box
    again = _extremes(h, turned)
    assert again is not None  # bounded in one basis is bounded in all
    longest = np.sqrt((np.vstack([first, again]) ** 2).sum(axis=1)).max()
    box = min(_box(first, axes), _box(again, turned))
    return Radii((1 - SLACK) / box, min(outer, (1 + SLACK) / float(longest)), outer)


def _extremes(h: FloatArray, axes: FloatArray) -> FloatArray | None:
    """(2k, k): the farthest points of the polar body along the axes and against them."""
    found = []
    for direction in (*axes, *-axes):
        program: Any = linprog(-direction, A_ub=h, b_ub=np.ones(len(h)), bounds=(None, None))
        if program.status == 3:
            return None
        if program.status != 0:
            raise InvalidInput(f"r_min is not to be had of these rows: {program.message}")
        found.append(program.x)
    return np.array(found)


def _box(points: FloatArray, axes: FloatArray) -> float:
    """√Σm²: half the diagonal of a box around the polar body."""
    k = len(axes)
    reach = np.concatenate([(points[:k] * axes).sum(axis=1), -(points[k:] * axes).sum(axis=1)])
    return float(np.sqrt((np.maximum(reach[:k], reach[k:]) ** 2).sum()))


def loss_bounds(X: FloatArray, K: FloatArray, epsilons: Sequence[float]) -> list[LossBounds]:
    """Theorem 1 of rows X (N, n) and the task K, at each ε: S4's design is below the upper one, and
    no other is below the lower. In n > FEW coordinates it takes 4n linear programs."""
    found = task_spectrum(X, K)
    radii = hull_radii((X - found.mean) @ found.whiten.T)
    lower, upper = (
        [task_aware_loss(found.eigenvalues, radius, epsilon) for epsilon in epsilons]
        for radius in (radii.inner, radii.outer)
    )
    return list(map(LossBounds, lower, upper))
