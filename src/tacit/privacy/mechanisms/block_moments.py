r"""Second moments of coded rows, between columns: what a least-squares fit needs of a table.

A row has one cell per declared column and the target y in [−1, 1] at the end. A cell is the number
k of one of K categories, or a number in [−1, 1]. A category becomes its K − 1 Helmert coordinates
v = h_k (``helmert``), of norm ‖h_k‖² = ρ_K = 2(1 − 1/K) and with h_kᵀh_l = −ρ_K/(K − 1); a number
stays one, v = x, ρ = 1. With weights w of columns, x_g = w_g v_g, a row's statistic is

.. math:: T = √2 \big(x_g ⊗ x_h \;(g < h),\; α x_g,\; β x_g y,\; γ y\big)
    \text{ and } u\, v_g^2,\, u\, y^2 \text{ of numbers}.

The blocks x_g ⊗ x_g of categories are left out: the counts in Σ x_g determine them.

**Sensitivity, replace.** Let r_g = w_g²ρ_g. But for squares T is affine in each of x_1, …, y with
the others fixed, so that ‖T − T′‖² is convex in each, and largest where every number is ±1. There
‖x_g‖² = r_g and y² = 1, and with p_g = x_gᵀx′_g, q = yy′

.. math:: ‖T − T'‖² = 4 \Big(\sum_{g<h} (r_g r_h − p_g p_h) + α² \sum_g (r_g − p_g)
    + β² \sum_g (r_g − q p_g) + γ² (1 − q)\Big),

p_g = r_g where a cell stays, −r_g/(K_g − 1) where it changes (K = 2 for numbers), q = ±1: the
maximum is over finitely many corners. A square moves by 1 at most, so each adds u².
**Zero-out.** ‖T‖² ≤ 2 (Σ_{g<h} r_g r_h + (α² + β²) Σ r_g + γ²) + u² for each square.

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
    """The columns of a row, what each product weighs, and so what one row can move.

    >>> Blocks(levels=(3, NUMBER), weights=(1.0, 1.0), count=1.0, slope=1.0, total=1.0).width
    5
    """

    levels: tuple[int, ...]  # of each column but the target: K categories, or NUMBER
    weights: tuple[float, ...]  # w, of each of them
    count: float  # α
    slope: float  # β
    total: float  # γ
    square: float = 1.0  # u

    def __post_init__(self) -> None:
        if len(self.weights) != len(self.levels) or not all(
            isinstance(k, int) and k >= 0 for k in self.levels
        ):
            raise InvalidInput(
                f"expected the levels of each column (0: a number) and as many weights, "
                f"got {self.levels} and {self.weights}"
            )
        for value in (*self.weights, self.count, self.slope, self.total, self.square):
            check_positive("a weight", value)

    # --- where things are ------------------------------------------------------------------------

    @cached_property
    def owner(self) -> IntArray:
        """(width,): the column of each coordinate of z = (1, v, y); −1 of the constant."""
        sizes = [1, *(1 if k == NUMBER else max(k - 1, 0) for k in self.levels), 1]
        return np.repeat(np.arange(-1, len(sizes) - 1), sizes)

    @property
    def width(self) -> int:
        """Coordinates of z."""
        return len(self.owner)

    @cached_property
    def pairs(self) -> tuple[IntArray, IntArray]:
        """The coordinates i < j of z whose product is released: of different columns."""
        i, j = np.triu_indices(self.width, 1)
        apart = self.owner[i] != self.owner[j]
        return i[apart], j[apart]

    @cached_property
    def numbers(self) -> IntArray:
        """The coordinates of z whose square is released: numbers, and the target."""
        levels = np.array([1, *self.levels, NUMBER])
        return np.flatnonzero(levels[self.owner + 1] == NUMBER)

    @property
    def size(self) -> int:
        """Coordinates of T."""
        return len(self.pairs[0]) + len(self.numbers)

    @cached_property
    def product_weights(self) -> FloatArray:
        """Of each pair: √2 times w_g w_h, α w_g, β w_g or γ."""
        last = len(self.levels)
        w = np.array([1.0, *self.weights, 1.0])[self.owner + 1]
        i, j = self.pairs
        more = np.where(self.owner[i] < 0, self.count, 1.0)
        more = np.where(self.owner[j] == last, self.slope, more)
        more = np.where((self.owner[i] < 0) & (self.owner[j] == last), self.total, more)
        return np.asarray(math.sqrt(2) * w[i] * w[j] * more)

    # --- what one row can move -------------------------------------------------------------------

    @property
    def radii(self) -> FloatArray:
        """(B,): r."""
        rho = [1.0 if k == NUMBER else 2 * (1 - 1 / max(k, 1)) for k in self.levels]
        return np.asarray(np.square(self.weights) * rho)

    def sensitivity(self, neighbours: Neighbours) -> float:
        """Of T, in ℓ2; derived above."""
        products = by_neighbours(neighbours, replace=self._apart(), zero_out=self._longest())
        return (1 + _SLACK) * math.sqrt(products + len(self.numbers) * self.square**2)

    def _longest(self) -> float:
        """‖T‖² without squares."""
        between = (self.radii.sum() ** 2 - (self.radii**2).sum()) / 2
        lines = (self.count**2 + self.slope**2) * self.radii.sum()
        return float(2 * (between + lines + self.total**2))

    def _apart(self) -> float:
        """The largest ‖T − T′‖² without squares; Σ_{g<h} p_g p_h = ((Σp)² − Σp²)/2."""
        sums, squares = self._corners()
        two = [
            (sums**2 - squares) / 2 + (self.count**2 + q * self.slope**2) * sums + q * self.total**2
            for q in (1, -1)
        ]
        return 2 * self._longest() - 4 * float(np.min(two))

    def _corners(self) -> tuple[FloatArray, FloatArray]:
        """Σp and Σp² at all corners.

        Columns of one kind (r, K) are interchangeable: what counts is how many of them change.
        Where there are too many kinds, Σp may be anything that makes it worst, and Σp² = Σr².
        """
        kinds = Counter(
            (float(r), 2 if k == NUMBER else k)
            for r, k in zip(self.radii, self.levels, strict=True)
            if r > 0
        )
        if math.prod(count + 1 for count in kinds.values()) > _MOST_CORNERS:
            line = self.count**2 + np.array([1, -1]) * self.slope**2
            reach = self.radii.sum()
            return np.clip(-line, -reach, reach), np.full(2, (self.radii**2).sum())
        sums, squares = np.zeros(1), np.zeros(1)
        for (r, k), count in kinds.items():
            changed, other = np.arange(count + 1), -r / (k - 1)
            sums = np.add.outer(sums, (count - changed) * r + changed * other).ravel()
            moved = (count - changed) * r**2 + changed * other**2
            squares = np.add.outer(squares, moved).ravel()
        return sums, squares

    # --- rows in, moments out --------------------------------------------------------------------

    def coordinates(self, cells: FloatArray) -> FloatArray:
        """(n, width): z = (1, v, y) of each row of cells (n, B + 1), the target last."""
        parts = [np.ones((len(cells), 1))]
        for column, k in zip(cells.T, (*self.levels, NUMBER), strict=True):
            parts.append(_number(column) if k == NUMBER else helmert(k)[_category(column, k)])
        return np.hstack(parts)

    def terms(self, cells: FloatArray) -> FloatArray:
        """(n, size): T of each row, by itself."""
        z, (i, j) = self.coordinates(cells), self.pairs
        squares = z[:, self.numbers] ** 2
        return np.hstack([z[:, i] * z[:, j] * self.product_weights, self.square * squares])

    def decoded(self, values: FloatArray) -> FloatArray:
        """(..., width, width): Σ zzᵀ, of values (..., size) of Σ T.

        Where nothing was released, the diagonal blocks of categories and of the constant: zero.
        """
        products, squares = np.split(values, [len(self.pairs[0])], axis=-1)
        return self._symmetric(products / self.product_weights, squares / self.square)

    def noise_deviations(self, sigma: float) -> FloatArray:
        """(width, width): that of each decoded entry; 0 where nothing was released."""
        on = np.full(len(self.numbers), sigma / self.square)
        return self._symmetric(sigma / self.product_weights, on)

    def _symmetric(self, products: FloatArray, squares: FloatArray) -> FloatArray:
        S = np.zeros((*products.shape[:-1], self.width, self.width))
        i, j = self.pairs
        S[..., i, j] = S[..., j, i] = products
        S[..., self.numbers, self.numbers] = squares
        return S


def _number(column: FloatArray) -> FloatArray:
    return np.clip(np.nan_to_num(column, nan=0.0, posinf=1.0, neginf=-1.0), -1.0, 1.0)[:, None]


def _category(column: FloatArray, levels: int) -> IntArray:
    nearest = np.rint(np.clip(np.nan_to_num(column, nan=0.0), 0.0, max(levels - 1, 0)))
    return np.asarray(nearest.astype(np.int64))


@dataclass(frozen=True)
class BlockMoments(Sum):
    """Σ over people of the mean of T over their rows; ``clip_norm`` is the largest ‖T‖.

    Contributions are (n, 2 + B): a person's number, the cells of one of their rows, its target.
    """

    blocks: Blocks = Blocks((), (), 1.0, 1.0, 1.0)
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
        if rows.shape[1] != len(self.blocks.levels) + 2:
            raise InvalidInput(
                f"expected a person, {len(self.blocks.levels)} cells and a target a row, "
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
