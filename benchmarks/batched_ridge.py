"""20,000 ridge problems (30 rows, 30 features) with leave-one-out: ours against a RidgeCV loop.

    python benchmarks/batched_ridge.py [--tasks 20000] [--loop 1000]

Both choose among the same 14 penalties with an intercept. The loop runs on the first ``--loop``
tasks and is scaled up; the ratio is per task, in one run.
"""

from __future__ import annotations

import argparse
import json
import resource
import time

import numpy as np
from sklearn.linear_model import RidgeCV

from tacit.linear.alone import PENALTIES, own_path
from tacit.linear.batched import Problems
from tacit.linear.losses import Squared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--loop", type=int, default=1_000)
    arguments = parser.parse_args()
    m, n, d = arguments.tasks, 30, 30
    rng = np.random.default_rng(0)
    X = rng.normal(size=(m * n, d))
    W = rng.normal(size=(m, d))
    y = np.einsum("nd,nd->n", X, np.repeat(W, n, axis=0)) + rng.normal(size=m * n)
    problems = Problems(np.hstack([X, np.ones((m * n, 1))]), y, np.arange(0, m * n + 1, n))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    start = time.perf_counter()
    path = own_path(problems, Squared())
    held_out = problems.sum_rows((path.held_out - y[:, None]) ** 2)
    ours = PENALTIES[held_out.argmin(1)]
    seconds = (time.perf_counter() - start) / m
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

    start = time.perf_counter()
    loop = [
        RidgeCV(alphas=PENALTIES).fit(X[t * n : (t + 1) * n], y[t * n : (t + 1) * n]).alpha_
        for t in range(arguments.loop)
    ]
    loop_seconds = (time.perf_counter() - start) / arguments.loop

    line = {
        "case": "batched ridge with leave-one-out",
        "tasks": m,
        "seconds_per_task": seconds,
        "ridgecv_loop_seconds_per_task": loop_seconds,
        "times_faster": round(loop_seconds / seconds, 1),
        "same_penalty_share": float(np.mean(np.asarray(loop) == ours[: arguments.loop])),
        "extra_memory_over_data": round(memory * 1024 / problems.X.nbytes, 2),
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
