"""The noisy second moments of all silos, and what is left of them once noise is known.

Released are sums over people of products of coordinates z = (1, v, y) between columns
(block_moments.py). ``moments_of`` puts them into matrices; ``pooled`` and ``shrunk`` pull them to
what is usual, each as far as its known noise exceeds what is seen to differ: pooled moments to
columns that do not depend on each other, those of a silo to the pooled ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.arrays import FloatArray, IntArray
from tacit.linear.threads import isolated
from tacit.privacy.mechanisms import Blocks
from tacit.privacy.mechanisms.block_moments import NUMBER, helmert


@dataclass(frozen=True)
class Moments:
    """Σ zzᵀ of J silos, as far as it is known."""

    S: FloatArray  # (J, p, p)
    people: FloatArray  # (J,)
    variance: FloatArray  # (J, p, p), of the noise in each entry
    owner: IntArray  # (d,), the column of each coordinate of f = (1, v), d = p − 1; −1: constant


@dataclass(frozen=True)
class Sums:
    """M = Σ ffᵀ and b = Σ f(y − fᵀbase), of one silo or of many, and the noise left in them."""

    M: FloatArray  # (..., d, d)
    b: FloatArray  # (..., d)
    M_variance: FloatArray  # (..., d, d), of each entry
    b_variance: FloatArray  # (..., d)
    base: FloatArray  # (d,), public

    def apart(self, mu: FloatArray) -> FloatArray:
        """(..., d): b − M(μ − base), zero but for noise and deviations where μ is right."""
        return np.asarray(self.b - self.M @ (mu - self.base))

    def noise(self, mu: FloatArray) -> FloatArray:
        """(..., d, d): the covariance of ``apart`` by noise; M's is independent and symmetric."""
        step = mu - self.base
        both = self.M_variance * np.outer(step, step)
        i = np.arange(len(mu))
        both[..., i, i] = (self.M_variance * step**2).sum(axis=-1) + self.b_variance
        return np.asarray(both)


@isolated()
def moments_of(
    blocks: Blocks, values: FloatArray, people: FloatArray, sigmas: FloatArray
) -> Moments:
    """Of released values (J, size), with noise of these deviations (J,).

    The block of a category follows from its counts c = n/K + ½ H Σv: it is Hᵀ diag(c) H.
    """
    S = blocks.decoded(values)
    unit = blocks.noise_deviations(1.0) ** 2
    S[:, 0, 0] = people
    for column, levels in enumerate(blocks.levels):
        mine = np.flatnonzero(blocks.owner == column)
        if levels == NUMBER or not len(mine):
            continue
        H, block = helmert(levels), np.ix_(mine, mine)
        counts = people[:, None] / levels + S[:, 0, mine] @ H.T / 2  # (J, K)
        S[:, block[0], block[1]] = np.einsum("jk,kp,kq->jpq", counts, H, H)
        into = np.einsum("kr,kp,kq->rpq", H, H, H) / 2
        unit[block] = np.einsum("r,rpq->pq", unit[0, mine], into**2)
    return Moments(S, people, unit * sigmas[:, None, None] ** 2, blocks.owner[:-1])


def pooled(of: Moments, weights: FloatArray) -> Sums:
    """Sums over silos with these weights (J,); M[0, 0] is the people in them."""
    d = len(of.owner)
    S = np.einsum("j,jpq->pq", weights, of.S)
    variance = np.einsum("j,jpq->pq", weights**2, of.variance)
    total = max(float(S[0, 0]), 1.0)
    mean = S[0, :d] / total
    centred = S[:d, :d] / total - np.outer(mean, mean)
    keep = _dependence(centred, variance[:d, :d] / total**2, of.owner)
    M = positive(total * (keep * centred + np.outer(mean, mean)))
    return Sums(M, S[:d, d], keep * variance[:d, :d], variance[:d, d], np.zeros(d))


def _dependence(centred: FloatArray, noise: FloatArray, owner: IntArray) -> FloatArray:
    """(d, d): how much of what is seen between two columns is more than noise; 1 within one."""
    columns = int(owner.max()) + 2
    mark = np.eye(columns)[owner + 1]  # (d, columns)
    seen, expected = mark.T @ centred**2 @ mark, mark.T @ noise @ mark
    share = np.maximum(0.0, 1 - expected / np.maximum(seen, 1e-300))
    np.fill_diagonal(share, 1.0)
    share[0] = share[:, 0] = 1.0  # the constant: nothing is left between it and a column
    return np.asarray(mark @ share @ mark.T)


def shrunk(of: Moments, usual: FloatArray) -> Sums:
    """Every silo's moments, pulled to n times ``usual`` (d, d), those of one person."""
    d, n = len(of.owner), of.people[:, None, None]
    apart, noise = of.S[:, :d, :d] - n * usual, of.variance[:, :d, :d]
    seen = (apart**2 - noise).sum(axis=0) / max(float((of.people**2).sum()), 1.0)
    signal = np.maximum(seen, 0.0) * n**2
    keep = signal / (signal + noise + 1e-12)
    M = positive(n * usual + keep * apart)
    return Sums(M, of.S[:, :d, d], keep * noise, of.variance[:, :d, d], np.zeros(d))


def positive(M: FloatArray) -> FloatArray:
    """The nearest positive semidefinite matrices."""
    values, U = np.linalg.eigh(M)
    return np.asarray((U * np.maximum(values, 0.0)[..., None, :]) @ np.swapaxes(U, -1, -2))
