"""Twenty-one families of generated tasks on which public constants were fixed, and others reported.

A family is drawn from its name and a seed: rows, targets, tasks, which rows are for training, and
loosely declared ranges. 15 test rows a task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

TEST_ROWS = 15

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Drawn:
    """One draw of a family."""

    X: Array
    y: Array
    task: Array
    train: Array  # a mask of rows
    ranges: dict[Any, Any]


class Draw:
    """A generator with the few words that families are described in."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def normal(self, *shape: int) -> Array:
        """Standard normal."""
        return self.rng.normal(size=shape)

    def unit(self, d: int) -> Array:
        """A direction."""
        v = self.normal(d)
        return np.asarray(v / np.linalg.norm(v))

    def sizes(self, low: int, high: int, m: int) -> Array:
        """Training rows of each task."""
        return self.rng.integers(low, high + 1, m)

    def tasks(
        self, W: Array, b: Array, sizes: Array, noise: Any, x: str = "uniform",
        loose: float = 1.0, offset: float = 0.0,
    ) -> Drawn:  # fmt: skip
        """Rows of linear tasks with models (m, d) and intercepts (m,)."""
        m, _ = W.shape
        n = sizes + TEST_ROWS
        task = np.repeat(np.arange(m), n)
        X = self._features(x, task, W.shape)
        s = np.broadcast_to(noise, (m,))[task]
        y = np.einsum("nd,nd->n", X, W[task]) + b[task] + s * self.normal(len(task)) + offset
        first = np.concatenate([[0], np.cumsum(n)])[:-1]
        train = np.arange(len(task)) - first[task] < sizes[task]
        return Drawn(X, y, task, train, _ranges(X, y, loose))

    def _features(self, kind: str, task: Array, shape: tuple[int, int]) -> Array:
        (m, d), rng, N = shape, self.rng, len(task)
        if kind == "uniform":
            return rng.uniform(-1, 1, (N, d))
        if kind == "sphere":
            X = self.normal(N, d)
            return np.asarray(X / np.linalg.norm(X, axis=1, keepdims=True))
        if kind == "binary":
            return np.asarray(rng.random((N, d)) < rng.uniform(0.15, 0.6, d), dtype=float)
        L, shift = self.normal(d, d) * 0.5 + np.eye(d), self.normal(m, d) * 0.5
        X = (self.normal(N, d) + shift[task]) @ L.T  # correlated, uncentred, shifted by task
        return np.asarray(X * np.exp(self.normal(d) * 0.5) + self.normal(d))


def _ranges(X: Array, y: Array, loose: float) -> dict[Any, tuple[float, float]]:
    ranges: dict[Any, tuple[float, float]] = {}
    for j, column in enumerate(X.T):
        centre, half = (column.min() + column.max()) / 2, np.ptp(column) / 2 * loose + 1e-9
        ranges[j] = (float(centre - half), float(centre + half))
    centre, half = (y.min() + y.max()) / 2, np.ptp(y) / 2 * loose
    ranges["target"] = (float(centre - half), float(centre + half))
    return ranges


# --- around a mean -------------------------------------------------------------------------------


def around(
    m: int, d: int, spread: float, level: float, rows: tuple[int, int], noise: float,
    loose: float = 1.0,
) -> Callable[[Draw], Drawn]:  # fmt: skip
    """Models spread around one direction."""

    def draw(r: Draw) -> Drawn:
        w = r.unit(d)
        W = w + spread * r.normal(m, d) / np.sqrt(d)
        return r.tasks(W, level * r.normal(m), r.sizes(*rows, m), noise, loose=loose)

    return draw


def sparsemean(r: Draw) -> Drawn:
    W = np.zeros((800, 20))
    W[:, :5] = 1 + 0.7 * r.normal(800, 5)
    return r.tasks(W, 0.3 * r.normal(800), r.sizes(4, 14, 800), 0.7)


def noiseless(r: Draw) -> Drawn:
    W = r.normal(8) + 0.3 * r.normal(200, 8)
    return r.tasks(W, 0.3 * r.normal(200), r.sizes(4, 8, 200), 1e-3)


def intercept(r: Draw) -> Drawn:
    W = np.tile(r.normal(5) * 0.5, (160, 1))
    return r.tasks(W, 0.5 * r.normal(160), r.sizes(8, 40, 160), 1.6, "corr", offset=3)


def icptslope(r: Draw) -> Drawn:
    W = np.tile(r.normal(6) * 0.4, (70, 1))
    W[:, 0] += 0.3 * r.normal(70)
    return r.tasks(W, 0.5 * r.normal(70), r.sizes(10, 60, 70), 1.5, "corr", 1.3, -2)


def conjoint(r: Draw) -> Drawn:
    L = r.normal(13, 13) / 4 + np.diag(r.rng.uniform(0.1, 1, 13))
    W = r.normal(13) * 0.7 + r.normal(190, 13) @ L.T
    return r.tasks(W, 5 + 1.5 * r.normal(190), r.sizes(16, 16, 190), 1.5, "binary")


def tiny_n(r: Draw) -> Drawn:
    W = r.normal(5) * 0.6 + 0.4 * r.normal(2400, 5)
    return r.tasks(W, 0.5 * r.normal(2400), r.sizes(1, 2, 2400), 0.7, "corr")


def heteromean(r: Draw) -> Drawn:
    W = r.normal(5) + 0.3 * r.normal(150, 5)
    b, sizes = 2 + 0.5 * r.normal(150), r.sizes(4, 30, 150)
    return r.tasks(W, b, sizes, np.exp(0.8 * r.normal(150) - 0.3), "corr", 1.5)


# --- few directions, clusters, nothing in common -------------------------------------------------


def lowrank(r: Draw) -> Drawn:
    W = r.normal(320, 5) @ r.normal(5, 30) * 20 / np.sqrt(5)
    return r.tasks(W, 0 * r.normal(320), r.sizes(30, 30, 320), 1.0, "sphere")


def lowmean(r: Draw) -> Drawn:
    W = r.normal(15) * 0.5 + r.normal(1000, 2) @ r.normal(2, 15) * 0.5
    return r.tasks(W, 0.3 * r.normal(1000), r.sizes(5, 15, 1000), 0.7, "uniform", 1.5)


def sparse(r: Draw) -> Drawn:
    W = np.zeros((320, 30))
    W[:, :4] = r.rng.uniform(1, 50, (320, 4)) * r.rng.choice([-1, 1], (320, 4))
    return r.tasks(W, 0 * r.normal(320), r.sizes(30, 30, 320), 1.0, "sphere")


def cluster(r: Draw) -> Drawn:
    C = r.normal(3, 8)
    W = C[r.rng.integers(0, 3, 300)] + 0.15 * r.normal(300, 8)
    return r.tasks(W, 0.2 * r.normal(300), r.sizes(6, 14, 300), 0.8)


def unrelated(r: Draw) -> Drawn:
    return r.tasks(r.normal(200, 6), r.normal(200), r.sizes(15, 40, 200), 0.7)


def hetero(r: Draw) -> Drawn:
    a = np.exp(r.normal(200))
    W = a[:, None] * (0.5 + r.normal(200, 6))
    b, sizes = a * r.normal(200), r.sizes(10, 30, 200)
    return r.tasks(W, b, sizes, 0.5 * np.exp(r.normal(200)))


def noiselow(r: Draw) -> Drawn:
    W = r.normal(300, 2) @ r.normal(2, 12)
    return r.tasks(W, 0 * r.normal(300), r.sizes(4, 10, 300), 1e-3)


def anticor(r: Draw) -> Drawn:
    a = r.rng.choice([-1, 1], 250) * np.exp(0.3 * r.normal(250))
    W = a[:, None] * r.normal(7) + 0.1 * r.normal(250, 7)
    return r.tasks(W, 0.3 * r.normal(250), r.sizes(5, 15, 250), 0.8)


FAMILIES: dict[str, Callable[[Draw], Drawn]] = {
    "mean150": around(150, 5, 0.3, 0.15, (5, 25), 0.5),
    "mean2000": around(2000, 10, 0.5, 0.2, (1, 5), 0.5),
    "mean300d20": around(300, 20, 0.5, 0.2, (20, 60), 0.5, 1.5),
    "mean40": around(40, 4, 0.4, 0.2, (8, 40), 0.7),
    "lowrank": lowrank,
    "lowmean": lowmean,
    "sparse": sparse,
    "sparsemean": sparsemean,
    "cluster": cluster,
    "unrelated": unrelated,
    "hetero": hetero,
    "noiseless": noiseless,
    "noiselow": noiselow,
    "intercept": intercept,
    "icptslope": icptslope,
    "conjoint": conjoint,
    "tiny_n": tiny_n,
    "big_n": around(60, 10, 0.4, 0.3, (80, 200), 1.5),
    "m30": around(30, 3, 0.3, 0.3, (4, 16), 0.8, 2.0),
    "anticor": anticor,
    "heteromean": heteromean,
}


def family(name: str, seed: int) -> Drawn:
    """One draw."""
    return FAMILIES[name](Draw(np.random.default_rng([seed, sum(map(ord, name))])))
