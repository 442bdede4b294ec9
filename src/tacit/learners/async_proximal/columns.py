r"""One column of a proximal operator, when one column of its argument has moved.

The server keeps V (d, T), the matrix before the prox, and P = prox(V). An arrival moves one column
of V and asks for the same column of P, so P is never formed. Beside V each coupling keeps what
makes a column cheap:

- trace norm: prox(V) = V·φ(VᵀV) = φ(VVᵀ)·V with φ(s²) = max(1 − level/s, 0), so the Gram matrix
  of the small side is enough. It changes by v⁺v⁺ᵀ − vvᵀ when d ≤ T, else in one row and column. Its
  eigenvectors above level² are all that φ needs.
- ℓ2,1: prox(V) scales row j by max(1 − level/‖row j‖, 0): the squared norms, which change by
  v⁺² − v².
- penalties that see each column by itself: nothing.
- any other penalty: the whole prox.

Adding and subtracting rounds each time, so what is kept is computed afresh from V after
``REFRESH`` steps: the error stays below REFRESH · 2⁻⁵² · ‖V‖_F² in the Gram matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.linalg.lapack import dsyevd, dsyevr

from tacit.linear.losses import FloatArray
from tacit.linear.penalties import (
    ColumnNorm,
    GroupNorm,
    L1Norm,
    Penalty,
    SquaredNorm,
    TraceNorm,
    shrunk,
)

REFRESH = 1000
FEW = 0.2  # up to this share of all eigenvectors it is faster to compute only those
_HUGE = 1e300  # above every eigenvalue

Nodes = list[int] | slice
"""Which columns; a slice where that is enough, because it copies nothing."""


def chosen(nodes: list[int]) -> Nodes:
    """These columns, each named once.

    >>> chosen([3]), chosen([1, 4])
    (slice(3, 4, None), [1, 4])
    """
    return slice(nodes[0], nodes[0] + 1) if len(nodes) == 1 else nodes


class Columns(Protocol):
    """prox_{level·r}(V), column by column, with what is kept beside V."""

    def kept(self, V: FloatArray) -> Any:
        """From V alone."""

    def moved(self, kept: Any, V: FloatArray, old: FloatArray, nodes: Nodes) -> Any:
        """After V[:, nodes], (d, k), was old and is now what V says."""

    def columns(self, kept: Any, V: FloatArray, nodes: Nodes) -> FloatArray:
        """(d, k): prox(V)[:, nodes]."""


def columns_of(penalty: Penalty, level: float) -> Columns:
    """The cheapest way to the columns of this penalty's prox."""
    if isinstance(penalty, TraceNorm):
        return SpectralColumns(level)
    if isinstance(penalty, GroupNorm):
        return RowColumns(level)
    if isinstance(penalty, L1Norm | ColumnNorm | SquaredNorm):
        return SeparateColumns(penalty, level)
    return WholeColumns(penalty, level)


class Spectrum(NamedTuple):
    """The Gram matrix G of the small side, and φ(G) = U diag(f) Uᵀ, which is never formed."""

    gram: FloatArray  # (s, s), s = min(d, T)
    U: FloatArray  # (s, r), the eigenvectors above level²
    factors: FloatArray  # (r,), f = 1 − level/s
    since: int  # steps since the Gram matrix was computed from V


@dataclass(frozen=True)
class SpectralColumns:
    """Of the trace norm.

    >>> coupling, V = SpectralColumns(3.5), np.diag([3.0, 4.0])
    >>> coupling.columns(coupling.kept(V), V, [1]).round(12) + 0.0
    array([[0. ],
           [0.5]])
    """

    level: float

    def kept(self, V: FloatArray) -> Spectrum:
        gram = V @ V.T if _wide(V) else V.T @ V
        return self._spectrum(gram, len(gram), 0)

    def moved(self, kept: Spectrum, V: FloatArray, old: FloatArray, nodes: Nodes) -> Spectrum:
        if kept.since >= REFRESH:
            return self.kept(V)
        new = V[:, nodes]
        if _wide(V):
            gram = kept.gram + (new @ new.T - old @ old.T)
            return self._spectrum(gram, len(kept.factors), kept.since + 1)
        gram, products = kept.gram.copy(), new.T @ V
        gram[nodes], gram[:, nodes] = products, products.T
        return self._spectrum(gram, len(kept.factors), 0)  # computed from V, not added up

    def columns(self, kept: Spectrum, V: FloatArray, nodes: Nodes) -> FloatArray:
        U, factors = kept.U, kept.factors[:, None]
        if _wide(V):
            return np.asarray(U @ (factors * (U.T @ V[:, nodes])))
        return np.asarray(V @ (U @ (factors * U[nodes].T)))

    def _spectrum(self, gram: FloatArray, rank: int, since: int) -> Spectrum:
        """``rank`` is what it was before, and about what it will be."""
        squares, U = _eigenvectors_above(gram, self.level**2, rank)
        return Spectrum(gram, U, 1 - self.level / np.sqrt(squares), since)


def _eigenvectors_above(
    gram: FloatArray, least: float, expected: int
) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues (r,) above ``least`` and their vectors (s, r).

    By LAPACK's dsyevr if few are expected: it computes only those.
    """
    if expected <= FEW * len(gram):
        squares, U, count, _, failed = dsyevr(gram.T, range="V", vl=least, vu=_HUGE)
        if not failed:
            return squares[:count], U[:, :count]
    squares, U, failed = dsyevd(gram.T)  # rising; as numpy's eigh, without its checks
    if failed:
        squares, U = np.linalg.eigh(gram)
    first = int(squares.searchsorted(least, side="right"))
    return squares[first:], U[:, first:]


class RowSums(NamedTuple):
    """Of the squares in each row of V, and what the prox makes of them."""

    squares: FloatArray  # (d,)
    factors: FloatArray  # (d, 1)
    since: int


@dataclass(frozen=True)
class RowColumns:
    """Of the ℓ2,1 norm.

    >>> coupling, V = RowColumns(1.0), np.array([[3.0, 4.0], [0.3, 0.4]])
    >>> coupling.columns(coupling.kept(V), V, [0])
    array([[2.4],
           [0. ]])
    """

    level: float

    def kept(self, V: FloatArray) -> RowSums:
        return self._sums((V * V).sum(axis=1), 0)

    def moved(self, kept: RowSums, V: FloatArray, old: FloatArray, nodes: Nodes) -> RowSums:
        if kept.since >= REFRESH:
            return self.kept(V)
        new = V[:, nodes]
        change = ((new - old) * (new + old)).sum(axis=1)
        return self._sums(kept.squares + change, kept.since + 1)

    def columns(self, kept: RowSums, V: FloatArray, nodes: Nodes) -> FloatArray:
        return np.asarray(kept.factors * V[:, nodes])

    def _sums(self, squares: FloatArray, since: int) -> RowSums:
        sizes = np.sqrt(np.maximum(squares, 0.0))
        return RowSums(squares, shrunk(sizes, self.level)[:, None], since)


@dataclass(frozen=True)
class SeparateColumns:
    """Of a penalty that sees each column by itself."""

    penalty: Penalty
    level: float

    def kept(self, V: FloatArray) -> None:
        return None

    def moved(self, kept: None, V: FloatArray, old: FloatArray, nodes: Nodes) -> None:
        return None

    def columns(self, kept: None, V: FloatArray, nodes: Nodes) -> FloatArray:
        return self.penalty.prox(V[:, nodes], self.level)


@dataclass(frozen=True)
class WholeColumns:
    """Of any other penalty: all of P, at every step."""

    penalty: Penalty
    level: float

    def kept(self, V: FloatArray) -> FloatArray:
        return self.penalty.prox(V, self.level)

    def moved(self, kept: FloatArray, V: FloatArray, old: FloatArray, nodes: Nodes) -> FloatArray:
        return self.kept(V)

    def columns(self, kept: FloatArray, V: FloatArray, nodes: Nodes) -> FloatArray:
        return np.asarray(kept[:, nodes])


def _wide(V: FloatArray) -> bool:
    return bool(V.shape[0] <= V.shape[1])
