"""Ridge problems of many tasks with leave-one-out: what isolation costs, and a RidgeCV loop.

    python benchmarks/batched_ridge.py [--tasks 20000] [--loop 1000] [--repeats 7]

Isolation: our solver against the one before it, which blocked tasks of similar length, padded them
to the longest and gave a single block all threads (``before`` below, as it was). Repeats of the two
alternate; the ratio is of their medians, the least of the best. Above 1 isolation costs time.

Loop: all of a task's penalties and its intercept by scikit-learn, on the first ``--loop`` tasks.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

import numpy as np
from sklearn.linear_model import RidgeCV

from tacit.arrays import FloatArray
from tacit.linear.losses import Squared
from tacit.linear.problems import Block, Problems
from tacit.linear.single_task_fits import INTERCEPT_VARIANCE, PENALTIES, own_path
from tacit.linear.threads import one_blas_thread


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--loop", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=7)
    asked = parser.parse_args()
    rng, m = np.random.default_rng(0), asked.tasks
    cases = {
        "30 rows, 30 features": (np.full(m, 30), 30),
        "1 to 100 rows, 20 features": (rng.integers(1, 101, m // 4), 20),
        "5 to 60 rows, 100 features": (rng.integers(5, 61, m // 20), 100),
        "139 tasks of 20 to 250 rows, 28 features": (rng.integers(20, 251, 139), 28),
        "one task of 20,000 rows, 30 features": (np.full(1, 20_000), 30),
    }
    for name, (sizes, d) in cases.items():
        line = {"case": "isolation", "tasks": name} | cost(problems_of(sizes, d), asked.repeats)
        print(json.dumps(line), flush=True)
    print(json.dumps(against_loop(problems_of(np.full(m, 30), 30), asked.loop)))


def problems_of(sizes: Any, d: int) -> Problems:
    """Tasks with a model of their own, noise one, and an intercept column."""
    rng = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    X, W = rng.normal(size=(offsets[-1], d)), rng.normal(size=(len(sizes), d))
    y = np.einsum("nd,nd->n", X, np.repeat(W, sizes, axis=0)) + rng.normal(size=len(X))
    return Problems(np.hstack([X, np.ones((len(X), 1))]), y, offsets)


def seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def cost(problems: Problems, repeats: int) -> dict[str, float]:
    """Both forms in turn, and how far apart their models are."""
    forms: dict[str, Callable[[], FloatArray]] = {
        "before": lambda: before(problems),
        "now": lambda: own_path(problems, Squared()).coef,
    }
    apart = float(np.abs(forms["before"]() - forms["now"]()).max())
    taken: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(repeats):
        for name, run in forms.items():
            taken[name].append(seconds(run))
    return {
        **{f"{name}_seconds": round(median(times), 4) for name, times in taken.items()},
        "ratio": round(median(taken["now"]) / median(taken["before"]), 3),
        "ratio_of_best": round(min(taken["now"]) / min(taken["before"]), 3),
        "models_apart": apart,
    }


def against_loop(problems: Problems, loop: int) -> dict[str, Any]:
    """Seconds per task, ours and scikit-learn's, with the penalties that both choose."""
    m, held = problems.n_tasks, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    path = own_path(problems, Squared())
    held_out = problems.sum_rows((path.held_out - problems.y[:, None]) ** 2)
    ours = PENALTIES[held_out.argmin(1)]
    per_task = (time.perf_counter() - start) / m
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held
    parts = list(problems.select(range(loop)).chunks(most=1))
    start = time.perf_counter()
    theirs = [RidgeCV(alphas=PENALTIES).fit(part.X[:, :-1], part.y).alpha_ for part in parts]
    loop_per_task = (time.perf_counter() - start) / loop
    return {
        "case": "batched ridge with leave-one-out",
        "tasks": m,
        "seconds_per_task": per_task,
        "ridgecv_loop_seconds_per_task": loop_per_task,
        "times_faster": round(loop_per_task / per_task, 1),
        "same_penalty_share": float(np.mean(np.asarray(theirs) == ours[:loop])),
        "extra_memory_over_data": round(memory * 1024 / problems.X.nbytes, 2),
    }


# --- the form before isolation ------------------------------------------------------------------


def before(problems: Problems) -> FloatArray:
    """(m, L, d): the models of ``own_path``, with leave-one-out, as they were computed."""
    n_rows, d = problems.X.shape
    coef = np.empty((problems.n_tasks, len(PENALTIES), d))
    held_out = np.empty((n_rows, len(PENALTIES)))
    F = np.diag(np.sqrt(np.append(np.ones(d - 1), INTERCEPT_VARIANCE)))

    def work(block: Block) -> None:
        X = problems.X[block.rows] * block.real[:, :, None]
        y = problems.y[block.rows] * block.real
        u, eta = _ridge(X @ F, y)
        coef[block.tasks] = u @ F.T
        held_out[block.rows[block.real]] = eta[block.real]

    found = list(_similar(problems))
    if len(found) == 1:  # and all threads of BLAS
        work(found[0])
        return coef
    with one_blas_thread(), ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(work, found):
            pass
    return coef


def _similar(problems: Problems) -> Iterator[Block]:
    """Tasks ordered by size, cut where the padding exceeds a quarter or the memory 16 MiB."""
    sizes, width = problems.sizes, problems.X.shape[1]
    order = np.argsort(sizes, kind="stable")
    start = 0
    while start < len(order):
        smallest = max(1, int(sizes[order[start]]))
        stop = int(np.searchsorted(sizes[order], np.floor(smallest * 1.25), side="right"))
        each = int(sizes[order[stop - 1]])
        stop = max(start + 1, min(stop, start + max(1, (1 << 21) // (each * max(width, each)))))
        tasks = order[start:stop]
        longest = int(sizes[tasks].max())
        real = np.arange(longest) < sizes[tasks][:, None]
        yield Block(
            tasks, np.where(real, problems.offsets[tasks][:, None] + np.arange(longest), 0), real
        )
        start = stop


def _ridge(Z: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    n, d = Z.shape[1:]
    Zt = Z.transpose(0, 2, 1)
    if n < d:
        values, Q = np.linalg.eigh(Z @ Zt)
        values = np.maximum(values, 0.0)
        inverse = 1 / (values[:, :, None] + PENALTIES)
        dual = Q @ (np.einsum("bnk,bn->bk", Q, y)[:, :, None] * inverse)
        u, leverage = Zt @ dual, (Q * Q) @ (values[:, :, None] * inverse)
        error = PENALTIES * dual
    else:
        values, V = np.linalg.eigh(Zt @ Z)
        inverse = 1 / (np.maximum(values, 0.0)[:, :, None] + PENALTIES)
        ZV = Z @ V
        scores = np.einsum("bnk,bn->bk", ZV, y)[:, :, None] * inverse
        u, leverage = V @ scores, (ZV * ZV) @ inverse
        error = y[:, :, None] - ZV @ scores
    return u.transpose(0, 2, 1), y[:, :, None] - error / np.maximum(1 - leverage, 1e-12)


if __name__ == "__main__":
    main()
