r"""Second moments of coded rows, between columns: what a least-squares fit needs of a table.

A row has one cell per declared column, the target among them: a category's number k of K, or a
number in [−1, 1]. A category becomes its K − 1 Helmert coordinates h_k (``helmert``), of norm
‖h_k‖² = ρ_K = 2(1 − 1/K) and with h_kᵀh_l = −ρ_K/(K − 1); a number stays one, ρ = 1. With weights w
and a constant a,

.. math:: z = (a, w_1 v_1, …, w_B v_B),

    T = (\sqrt2\, z_g ⊗ z_h)_{g<h} \text{ and } u\, v_g^2 \text{ of every number}.

The blocks z_g ⊗ z_g of categories are left out: the counts in a·z_g determine them.

**Sensitivity, replace.** Let r_g = w_g²ρ_g, r_0 = a². The first part of T is affine in each block
with the others fixed, so ‖T − T′‖² is convex in each, and largest where every number is ±1. There
‖z_g‖² = r_g, and with p_g = z_gᵀz′_g

.. math:: ‖T − T'‖² = \sum_{g<h} 2‖z_g ⊗ z_h − z'_g ⊗ z'_h‖² = 4 \sum_{g<h} (r_g r_h − p_g p_h),

p_g = r_g where a cell stays, −r_g/(K_g − 1) where it changes (K = 2 for numbers), p_0 = r_0. So the
maximum is over finitely many corners. A square moves by 1 at most: u² each on top.
**Zero-out.** ‖T‖² ≤ 2 Σ_{g<h} r_g r_h + u² each.

**A person with k rows** adds the mean of their T: the difference of two means is a mean of
differences of rows, so that the same bounds hold whatever k is before and after.

Every cell becomes a valid one before anything is computed (a number beyond ±1 is clipped, what is
not finite is 0, a category that is none is the nearest), so the bounds are not taken on trust.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np

from tacit.arrays import FloatArray, IntArray
from tacit.errors import InvalidInput
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms.clipping import as_rows, by_neighbours, check_positive
from tacit.privacy.mechanisms.grid import grid, grid_steps, grid_sum
from tacit.privacy.mechanisms.noises import Norm, Shape
from tacit.privacy.mechanisms.statistics import Sum

NUMBER = 0
"""The levels of a column of numbers."""

_MOST_CORNERS = 2**18
_ROWS = 2**11  # at a time: what they need is megabytes
_SLACK = 2.0**-30  # for rounding: of products, and of the mean of up to four million rows


@lru_cache(maxsize=64)
def helmert(levels: int) -> FloatArray:
    """(K, K − 1): row k are the coordinates of category k, in which all are equally far apart.

    >>> helmert(2).ravel()
    array([-1.,  1.])
    >>> (helmert(3) @ helmert(3).T).round(3)
    array([[ 1.333, -0.667, -0.667],
           [-0.667,  1.333, -0.667],
           [-0.667, -0.667,  1.333]])
    """
    H = np.zeros((levels, max(levels - 1, 0)))
    for j in range(1, levels):
        H[:j, j - 1], H[j, j - 1] = -1.0, j
        H[:, j - 1] *= math.sqrt(2 / (j * (j + 1)))
    H.setflags(write=False)
    return H


@dataclass(frozen=True)
class Blocks:
    """The columns of a row, what each weighs, and so what one row can move.

    >>> Blocks(levels=(3, NUMBER), weights=(1.0, 1.0), constant=1.0, square=1.0).width
    4
    """

    levels: tuple[int, ...]  # of each column: K categories, or NUMBER
    weights: tuple[float, ...]  # w, of each column
    constant: float  # a
    square: float  # u

    def __post_init__(self) -> None:
        if len(self.weights) != len(self.levels) or not all(
            isinstance(k, int) and k >= 0 for k in self.levels
        ):
            raise InvalidInput(
                f"expected the levels of each column (0: a number) and as many weights, "
                f"got {self.levels} and {self.weights}"
            )
        for value in (*self.weights, self.constant, self.square):
            check_positive("a weight", value)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Coordinates of each block, the constant first."""
        return (1, *(1 if k == NUMBER else max(k - 1, 0) for k in self.levels))

    @property
    def width(self) -> int:
        """Coordinates of z, the constant first."""
        return sum(self.sizes)

    @cached_property
    def owner(self) -> IntArray:
        """(width,): the block of each coordinate, 0 the constant."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @cached_property
    def pairs(self) -> tuple[IntArray, IntArray]:
        """The coordinates i < j of z whose product is released: of different blocks."""
        i, j = np.triu_indices(self.width, 1)
        apart = self.owner[i] != self.owner[j]
        return i[apart], j[apart]

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """Which columns are numbers."""
        return tuple(g for g, k in enumerate(self.levels) if k == NUMBER)

    @property
    def size(self) -> int:
        """Coordinates of T."""
        return len(self.pairs[0]) + len(self.numbers)

    @cached_property
    def scales(self) -> FloatArray:
        """(width,): a and w, coordinate by coordinate."""
        return np.array([self.constant, *self.weights])[self.owner]

    @property
    def radii(self) -> FloatArray:
        """(1 + B,): r, the constant first."""
        rho = [1.0 if k == NUMBER else 2 * (1 - 1 / max(k, 1)) for k in self.levels]
        return np.array([self.constant**2, *np.square(self.weights) * rho])

    def sensitivity(self, neighbours: Neighbours) -> float:
        """Of T, in ℓ2; derived above."""
        r = self.radii
        cross = by_neighbours(
            neighbours, replace=self._corners(), zero_out=float(r.sum() ** 2 - (r**2).sum())
        )
        return (1 + _SLACK) * math.sqrt(cross + len(self.numbers) * self.square**2)

    def _corners(self) -> float:
        """max 4 Σ_{g<h} (r_g r_h − p_g p_h) = 2((Σr)² − Σr² − min((Σp)² − Σp²)).

        Columns of one kind (r, K) are interchangeable: what counts is how many of them change.
        Where there are too many kinds, (Σp)² ≥ 0 and Σp² ≤ Σr².
        """
        r = self.radii
        kinds = Counter(
            (float(radius), 2 if k == NUMBER else k)
            for radius, k in zip(r[1:], self.levels, strict=True)
            if radius > 0
        )
        total, squares = float(r.sum()), float((r**2).sum())
        if math.prod(count + 1 for count in kinds.values()) > _MOST_CORNERS:
            return 2 * total**2
        first, second = np.array([r[0]]), np.array([r[0] ** 2])  # Σp and Σp² so far
        for (radius, k), count in kinds.items():
            changed = np.arange(count + 1)
            other = -radius / (k - 1)
            first = np.add.outer(first, (count - changed) * radius + changed * other).ravel()
            moved = (count - changed) * radius**2 + changed * other**2
            second = np.add.outer(second, moved).ravel()
        return 2 * (total**2 - squares - float((first**2 - second).min()))

    def coordinates(self, cells: FloatArray) -> FloatArray:
        """(n, width): z of each row of cells (n, B), without weights: 1, then v."""
        parts = [np.ones((len(cells), 1))]
        for column, k in zip(cells.T, self.levels, strict=True):
            parts.append(_number(column) if k == NUMBER else helmert(k)[_category(column, k)])
        return np.hstack(parts)

    def terms(self, cells: FloatArray) -> FloatArray:
        """(n, size): T of each row, by itself."""
        v = self.coordinates(cells)
        z, (i, j) = v * self.scales, self.pairs
        squares = v[:, self._of_numbers] ** 2
        return np.hstack([math.sqrt(2) * z[:, i] * z[:, j], self.square * squares])

    @cached_property
    def _of_numbers(self) -> IntArray:
        """The coordinates of z that are numbers."""
        return np.flatnonzero(np.isin(self.owner - 1, self.numbers))

    def decoded(self, values: FloatArray) -> FloatArray:
        """(..., width, width): Σ zzᵀ without weights, of values (..., size) of Σ T.

        Where nothing was released, the diagonal blocks of categories and of the constant: zero.
        """
        products, squares = np.split(values, [len(self.pairs[0])], axis=-1)
        return self._symmetric(products / self._product_weights, squares / self.square)

    def noise_deviations(self, sigma: float) -> FloatArray:
        """(width, width): that of each decoded entry; 0 where nothing was released."""
        on = np.full(len(self.numbers), sigma / self.square)
        return self._symmetric(sigma / self._product_weights, on)

    @property
    def _product_weights(self) -> FloatArray:
        i, j = self.pairs
        return np.asarray(math.sqrt(2) * self.scales[i] * self.scales[j])

    def _symmetric(self, products: FloatArray, squares: FloatArray) -> FloatArray:
        S = np.zeros((*products.shape[:-1], self.width, self.width))
        i, j = self.pairs
        S[..., i, j] = S[..., j, i] = products
        S[..., self._of_numbers, self._of_numbers] = squares
        return S


def _number(column: FloatArray) -> FloatArray:
    return np.clip(np.nan_to_num(column, nan=0.0, posinf=1.0, neginf=-1.0), -1.0, 1.0)[:, None]


def _category(column: FloatArray, levels: int) -> IntArray:
    nearest = np.rint(np.clip(np.nan_to_num(column, nan=0.0), 0.0, max(levels - 1, 0)))
    return np.asarray(nearest.astype(np.int64))


@dataclass(frozen=True)
class BlockMoments(Sum):
    """Σ over people of the mean of T over their rows; ``clip_norm`` is the largest ‖T‖.

    Contributions are (n, 1 + B): a person's number, then the cells of one of their rows.
    """

    blocks: Blocks = Blocks((), (), 1.0, 1.0)
    norms: ClassVar[tuple[Norm, ...]] = ("l2",)
    vectors: ClassVar[bool] = True

    def sensitivity(self, neighbours: Neighbours) -> float:
        """Of one person."""
        return self.blocks.sensitivity(neighbours)

    def checked(
        self, contributions: FloatArray, shares: FloatArray | None
    ) -> tuple[FloatArray, FloatArray]:
        """Rows of as many cells as columns are declared."""
        rows = as_rows(contributions, vectors=True)
        if rows.shape[1] != 1 + len(self.blocks.levels):
            raise InvalidInput(
                f"expected a person and {len(self.blocks.levels)} cells a row, "
                f"got {rows.shape[1]} columns"
            )
        if shares is not None:
            raise InvalidInput("everybody in a silo has the same share: it is in the noise")
        return rows, np.ones(len(rows))

    def total(self, rows: FloatArray, clips: FloatArray) -> FloatArray:
        """In floats."""
        sums = (people.sum(axis=0) for people in self._people(rows))
        return np.asarray(sum(sums, np.zeros(self.blocks.size)))

    def counts(self, rows: FloatArray, clips: FloatArray, scale: float) -> IntArray:
        """Each person cut onto the grid, a little smaller than they are: in each of D coordinates
        |t(x) − t(y)| < |x − y| + g, so (1 − η)Δ + g√D ≤ Δ makes Δ hold of what is cut, too."""
        step, size = grid(scale), self.blocks.size
        margin = step * math.sqrt(size) / self.sensitivity("replace") + _SLACK
        grid_steps(scale, self.bound, len(rows))
        total = np.zeros(size, dtype=np.int64)
        for people in self._people(rows):
            total += grid_sum(people * max(1 - margin, 0.0), scale, self.bound)
        return total

    def coordinates(self, shape: Shape) -> Shape:
        """As many as T has."""
        return (self.blocks.size,)

    def shaped(self, coordinates: FloatArray, shape: Shape) -> FloatArray:
        """As they are."""
        return coordinates

    def _people(self, rows: FloatArray) -> Iterator[FloatArray]:
        """(people, size): the mean of T of each, some people at a time."""
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        starts = np.flatnonzero(np.r_[True, rows[1:, 0] != rows[:-1, 0]][: len(rows)])
        first = 0
        while first < len(starts):
            last = max(first + 1, int(np.searchsorted(starts, starts[first] + _ROWS)))
            stop = starts[last] if last < len(starts) else len(rows)
            mine = starts[first:last]
            sums = np.add.reduceat(
                self.blocks.terms(rows[mine[0] : stop, 1:]), mine - mine[0], axis=0
            )
            yield sums / np.diff(np.r_[mine, stop])[:, None]
            first = last
