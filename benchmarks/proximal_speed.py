"""The trace-norm and ℓ2,1 optimum: ours against a simple proximal loop, to the same objective.

    python benchmarks/proximal_speed.py [--tasks 2000] [--features 100] [--rows 50] [--share 0.2]

The simple loop is proximal gradient with a fixed step 1/L, plain (ISTA) or accelerated (FISTA): per
iteration X_tᵀ(X_t w_t − y_t) by einsum, and a full SVD for the trace norm. It stops as soon as its
objective is within 1e-6 of the optimum, which is told to it; ours has to find out by itself.
λ is ``--share`` of the level at which the solution is zero. Seconds are of one processor: what else
runs on the machine counts less. One JSON line per case.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from tacit.arrays import FloatArray
from tacit.linear.batched import Problems
from tacit.linear.losses import Squared
from tacit.linear.penalties import GroupNorm, TraceNorm
from tacit.linear.proximal import highest_level, optimum
from tacit.linear.smooth import smooth_part

CLOSE = 1e-6


def simple_prox(V: FloatArray, level: float, kind: str) -> FloatArray:
    if kind == "group":
        sizes = np.linalg.norm(V, axis=1, keepdims=True)
        return np.asarray(V * np.maximum(1 - level / np.maximum(sizes, 1e-300), 0))
    U, sizes, Qt = np.linalg.svd(V, full_matrices=False)
    return np.asarray((U * np.maximum(sizes - level, 0)) @ Qt)


def simple_value(X: FloatArray, y: FloatArray, W: FloatArray, level: float, kind: str) -> float:
    """The objective; W is (d, m)."""
    error = np.einsum("tnd,dt->tn", X, W) - y
    size = (
        np.linalg.norm(W, axis=1).sum()
        if kind == "group"
        else np.linalg.svd(W, compute_uv=False).sum()
    )
    return float(0.5 * (error**2).sum() + level * size)


def simple_loop(
    X: FloatArray, y: FloatArray, level: float, kind: str, target: float, fast: bool, limit: float
) -> tuple[float, int, bool]:
    """Seconds, iterations, and whether it came within 1e-6 before the limit."""
    start = time.process_time()
    step = 1 / max(
        float(np.linalg.eigvalsh(x @ x.T if len(x) < x.shape[1] else x.T @ x)[-1]) for x in X
    )
    W = Z = np.zeros((X.shape[2], len(X)))
    momentum, spent_checking = 1.0, 0.0
    for iteration in range(1, 100_000):
        error = np.einsum("tnd,dt->tn", X, Z) - y
        new = simple_prox(Z - step * np.einsum("tnd,tn->dt", X, error), step * level, kind)
        following = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        Z = new + ((momentum - 1) / following if fast else 0.0) * (new - W)
        W, momentum = new, following
        if iteration % 10 == 0:
            mark = time.process_time()
            close = simple_value(X, y, W, level, kind) <= target * (1 + CLOSE)
            spent_checking += time.process_time() - mark
            seconds = mark - start - spent_checking
            if close or seconds > limit:
                return seconds, iteration, close
    return time.process_time() - start - spent_checking, iteration, False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=2_000)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--rows", type=int, default=50)
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for each simple loop")
    arguments = parser.parse_args()
    threadpool_limits(1, user_api="blas")  # for all of them
    m, d, n = arguments.tasks, arguments.features, arguments.rows
    rng = np.random.default_rng(0)
    X = rng.normal(size=(m, n, d))
    low_rank = rng.normal(size=(d, 5)) @ rng.normal(size=(5, m)) / 5**0.5
    sparse = rng.normal(size=(d, m)) * (np.arange(d) < 8)[:, None]
    for kind, penalty, truth in (
        ("trace", TraceNorm(), low_rank),
        ("group", GroupNorm(), sparse),
    ):
        y = np.einsum("tnd,dt->tn", X, truth) + rng.normal(size=(m, n))
        rows = np.concatenate([X, np.zeros((m, n, 1))], axis=2).reshape(m * n, d + 1)
        problems = Problems(rows, y.ravel(), np.arange(0, m * n + 1, n))
        zero = np.zeros((m, d + 1))
        level = arguments.share * highest_level(smooth_part(problems, Squared()), penalty, zero)
        few = smooth_part(
            Problems(rows[: 20 * n], y.ravel()[: 20 * n], np.arange(21) * n), Squared()
        )
        optimum(few, penalty, level, start=zero[:20])  # warm up
        start = time.process_time()
        smooth = smooth_part(problems, Squared())
        W = optimum(smooth, penalty, level, start=zero, tolerance=3e-4)[:, :d].T
        ours = time.process_time() - start
        exact = optimum(smooth, penalty, level, start=zero, tolerance=1e-11)
        best = simple_value(X, y, exact[:, :d].T, level, kind)
        line: dict[str, Any] = {
            "case": f"{kind} norm",
            "tasks": m,
            "features": d,
            "rows": n,
            "rank": int(np.linalg.matrix_rank(W)),
            "seconds": round(ours, 3),
            "relative_gap": simple_value(X, y, W, level, kind) / best - 1,
        }
        line["reached"] = bool(line["relative_gap"] <= CLOSE)
        for name, fast in (("ista", False), ("fista", True)):
            seconds, iterations, reached = simple_loop(
                X, y, level, kind, best, fast, arguments.limit
            )
            line |= {
                f"{name}_seconds": round(seconds, 2),
                f"{name}_iterations": iterations,
                f"{name}_reached": reached,
                f"times_faster_than_{name}": round(seconds / ours, 1),
            }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
