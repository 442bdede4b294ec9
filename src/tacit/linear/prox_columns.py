r"""Some columns of a proximal operator, when some columns of its argument have moved.

A server keeps V (d, T), the matrix before the prox, and P = prox(V). A message moves one column of
V and asks for the same column of P, so P is never formed. Beside V is kept what makes a column
cheap, and ``Penalty.columns`` says how:

- trace norm: prox(V) = V·φ(VᵀV) = φ(VVᵀ)·V with φ(s²) = max(1 − level/s, 0), so the Gram matrix
  of the small side is enough. It changes by v⁺v⁺ᵀ − vvᵀ when d ≤ T, else in one row and column. Its
  eigenvectors above level² are all that φ needs.
- ℓ2,1: prox(V) scales row j by max(1 − level/‖row j‖, 0): the squared norms, which change by
  v⁺² − v².
- a separable penalty: nothing.
- any other: the whole prox.

Adding and subtracting rounds each time, so what is kept is computed afresh from V after
``REFRESH`` steps: the error stays below REFRESH · 2⁻⁵² · ‖V‖_F² in the Gram matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.linalg.lapack import dsyevd, dsyevr

from tacit.arrays import FloatArray
from tacit.linear.thresholds import shrunk

if TYPE_CHECKING:
    from tacit.linear.penalties import Penalty

REFRESH = 1000
FEW = 0.2  # up to this share of all eigenvectors it is faster to compute only those
_HUGE = 1e300  # above every eigenvalue

Chosen = list[int] | slice
"""Which columns, each once; a slice where that is enough, because it copies nothing."""


@dataclass(frozen=True)
class ProxColumns:
    """prox_{level·Ω}(V), column by column, with what is kept beside V; as slow as the penalty."""

    penalty: Penalty
    level: float

    def kept(self, V: FloatArray) -> Any:
        """From V alone."""
        return None if self.penalty.separable else self.penalty.prox(V, self.level)

    def moved(self, kept: Any, V: FloatArray, old: FloatArray, chosen: Chosen) -> Any:
        """After V[:, chosen], (d, k), was old and is now what V says."""
        return self.kept(V)

    def columns(self, kept: Any, V: FloatArray, chosen: Chosen) -> FloatArray:
        """(d, k): prox(V)[:, chosen]."""
        if self.penalty.separable:
            return self.penalty.prox(V[:, chosen], self.level)
        return np.asarray(kept[:, chosen])


class GramSpectrum(NamedTuple):
    """The Gram matrix G of the small side, and φ(G) = U diag(f) Uᵀ, which is never formed."""

    gram: FloatArray  # (s, s), s = min(d, T)
    U: FloatArray  # (s, r), the eigenvectors above level²
    factors: FloatArray  # (r,), f = 1 − level/s
    since: int  # steps since the Gram matrix was computed from V


class SpectralColumns(ProxColumns):
    """Of the trace norm."""

    def kept(self, V: FloatArray) -> GramSpectrum:
        gram = V @ V.T if _is_wide(V) else V.T @ V
        return self._spectrum(gram, len(gram), 0)

    def moved(
        self, kept: GramSpectrum, V: FloatArray, old: FloatArray, chosen: Chosen
    ) -> GramSpectrum:
        if kept.since >= REFRESH:
            return self.kept(V)
        new = V[:, chosen]
        if _is_wide(V):
            gram = kept.gram + (new @ new.T - old @ old.T)
            return self._spectrum(gram, len(kept.factors), kept.since + 1)
        gram, products = kept.gram.copy(), new.T @ V
        gram[chosen], gram[:, chosen] = products, products.T
        return self._spectrum(gram, len(kept.factors), 0)  # computed from V, not added up

    def columns(self, kept: GramSpectrum, V: FloatArray, chosen: Chosen) -> FloatArray:
        U, factors = kept.U, kept.factors[:, None]
        if _is_wide(V):
            return np.asarray(U @ (factors * (U.T @ V[:, chosen])))
        return np.asarray(V @ (U @ (factors * U[chosen].T)))

    def _spectrum(self, gram: FloatArray, rank: int, since: int) -> GramSpectrum:
        """``rank`` is what it was before, and about what it will be."""
        squares, U = _eigenvectors_above(gram, self.level**2, rank)
        return GramSpectrum(gram, U, 1 - self.level / np.sqrt(squares), since)


def _is_wide(V: FloatArray) -> bool:
    return bool(V.shape[0] <= V.shape[1])


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


class RowColumns(ProxColumns):
    """Of the ℓ2,1 norm."""

    def kept(self, V: FloatArray) -> RowSums:
        return self._sums((V * V).sum(axis=1), 0)

    def moved(self, kept: RowSums, V: FloatArray, old: FloatArray, chosen: Chosen) -> RowSums:
        if kept.since >= REFRESH:
            return self.kept(V)
        new = V[:, chosen]
        change = ((new - old) * (new + old)).sum(axis=1)
        return self._sums(kept.squares + change, kept.since + 1)

    def columns(self, kept: RowSums, V: FloatArray, chosen: Chosen) -> FloatArray:
        return np.asarray(kept.factors * V[:, chosen])

    def _sums(self, squares: FloatArray, since: int) -> RowSums:
        sizes = np.sqrt(np.maximum(squares, 0.0))
        return RowSums(squares, shrunk(sizes, self.level)[:, None], since)
