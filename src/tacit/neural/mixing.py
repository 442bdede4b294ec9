"""Which updates count in which broadcast, and how far one client can move what others see.

A round releases R broadcasts at once, S = B Δ + noise: Δ (m, d) the clipped updates, B (R, m)
fixed and public. Client k listens to one of them. With ‖Δ_k‖ ≤ γ, changing client k to nothing
moves the rows that *others* listen to by at most γ ‖(B_rk)_r‖₂ together: that is γ·``reach`` for
the worst client, and twice that under replace. The row that k alone listens to may move freely:
it is k's own view (joint DP), and must then be shown to nobody else (``public``).

============  =====================  ======================  ============================
relation      B                      reach                   a broadcast is
============  =====================  ======================  ============================
mean          one row of ones        1                       S / (p m)
clusters      one row a cluster      1 (they are disjoint)   S_c / (p m_c)
matrix B      B                      max_k ‖(B_jk)_{j≠k}‖₂   S_j / p
``Omega``     rows of I − Ω/s        as of a matrix          S_j / p
============  =====================  ======================  ============================

p is the expected share of clients in a round: denominators are fixed, never counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from tacit.arrays import FloatArray, IntArray
from tacit.errors import InvalidInput
from tacit.linear.task_relations import Omega


@dataclass(frozen=True, eq=False)
class Mixing:
    """B, who listens to which row of it, and the public factors that make means of sums."""

    weights: FloatArray  # (R, m)
    listens: IntArray  # (m,), the row of each client
    factors: FloatArray  # (R,), without 1/p
    begins: FloatArray | None = None  # (R,), of the public start; None: all of it

    @property
    def reach(self) -> float:
        """max_k ‖(B_rk) over the rows r that somebody else listens to‖₂.

        Where nobody hears another client (there is but one), the whole column: outsiders look on.

        >>> round(relationship([[0.5, 0.5], [0.25, 0.75]]).reach, 2), mean(1).reach
        (0.5, 1.0)
        """
        rows = np.arange(len(self.weights))[:, None]
        listeners = np.bincount(self.listens, minlength=len(self.weights))[:, None]
        others = listeners - (rows == self.listens[None])  # (R, m): listeners other than client k
        found = _longest(np.where(others > 0, self.weights, 0.0))
        return found if found > 0 else _longest(self.weights)

    @property
    def public(self) -> bool:
        """May everybody see all broadcasts? Not if a client reaches further with the row that it
        alone listens to: the noise does not cover that row, which then is for its listener only.

        >>> mean(3).public, relationship([[9.0, 1.0], [1.0, 0.0]]).public
        (True, False)
        """
        return _longest(self.weights) <= self.reach * (1 + 1e-12)

    def broadcasts(self, sums: FloatArray, share: float) -> FloatArray:
        """From noisy sums (R, d) to steps of the centres (R, d): post-processing."""
        return np.asarray(sums * (self.factors / share)[:, None])


def _longest(weights: FloatArray) -> float:
    """The largest norm of a column."""
    return float(np.sqrt((weights**2).sum(axis=0)).max())


def declared(relation: ArrayLike | Omega | None, clients: int) -> Mixing:
    """From None (one mean), clusters (m,), a matrix (m, m) of what is heard, or S2's Ω.

    >>> declared(["a", "b", "a"], 3).weights.tolist()
    [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """
    if relation is None:
        return mean(clients)
    given = relation.matrix if isinstance(relation, Omega) else np.asarray(relation)
    if given.ndim not in (1, 2) or len(given) != clients:
        raise InvalidInput(
            f"relation must be None, ({clients},) clusters or a ({clients}, {clients}) matrix, "
            f"got shape {given.shape}"
        )
    if isinstance(relation, Omega):
        return objective(relation)
    return clusters(given) if given.ndim == 1 else relationship(given)


def stiffness(relation: ArrayLike | Omega | None) -> float:
    """s: what λ is multiplied by to hold a client to what it hears (linear/task_relations.py).

    >>> stiffness(None), stiffness(Omega.laplacian([[0, 1], [1, 0]]))
    (1.0, 2.0)
    """
    return relation.scale if isinstance(relation, Omega) else 1.0


def mean(clients: int) -> Mixing:
    """All clients count alike, and hear the same.

    >>> mean(4).reach
    1.0
    """
    return Mixing(np.ones((1, clients)), np.zeros(clients, dtype=np.int64), np.array([1 / clients]))


def clusters(member_of: ArrayLike) -> Mixing:
    """Fixed, disjoint clusters: each has a mean of its own.

    >>> clusters([0, 0, 1]).reach, clusters([0, 0, 1]).factors.tolist()
    (1.0, [0.5, 1.0])
    """
    names, rows = np.unique(np.asarray(member_of), return_inverse=True)
    weights = (np.arange(len(names))[:, None] == rows[None]).astype(np.float64)
    return Mixing(weights, rows.astype(np.int64), 1 / weights.sum(axis=1))


def objective(omega: Omega) -> Mixing:
    """S2's objective (1): client k hears Σ_j B_kj w_j, B = I − Ω/s; equal rows are one broadcast.

    >>> objective(Omega.mean(4)).weights.tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """
    rows, listens = omega.broadcasts
    return Mixing(rows, listens, np.ones(len(rows)), rows.sum(axis=1))


def relationship(matrix: ArrayLike) -> Mixing:
    """Any fixed B (m, m): client j hears Σ_k B_jk Δ_k (S2, remark after Theorem 2)."""
    omega = np.asarray(matrix, dtype=np.float64)
    if omega.ndim != 2 or omega.shape[0] != omega.shape[1] or not np.isfinite(omega).all():
        raise InvalidInput(f"the relationship matrix must be square and finite, got {omega.shape}")
    if not np.any(omega - np.diag(np.diag(omega))):
        raise InvalidInput("the relationship matrix is diagonal: no task would learn from another")
    return Mixing(omega, np.arange(len(omega)), np.ones(len(omega)))
