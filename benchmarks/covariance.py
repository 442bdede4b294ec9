"""Low-rank and group-sparse tasks (S1 §5.4): what is left of single-task error under privacy.

    python benchmarks/covariance.py [--seeds 0 1 2] [--scale]

m = 320, n = 30, d = 30, unit rows, unit noise, 270 test rows a task; nMSE averaged over tasks as a
share of single-task nMSE on the same draws; δ = 1/(m ln m), replace, clip norm declared as 30, no
intercept (the truth has none); everything else by the library's rules (the other learners keep
their own clip rule). ``--scale`` prints the time of CovariancePrior at 1k, 10k and 100k tasks of
30 × 30, and its peak memory.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import time
from typing import Any

import numpy as np

from tacit import (
    AveragedModel,
    Budget,
    CovariancePrior,
    GroupSparse,
    LowRank,
    SingleTask,
    TaskRelationship,
)
from tacit.datasets import group_sparse_tasks, low_rank_tasks
from tacit.metrics import nmse_per_task

EPSILONS = (None, 0.1, 0.5, 1.0, 3.0, 10.0)
CLIP = 30.0
ROWS = 30  # of each task, as the generators draw them


def learners(budget: Budget | None, kind: str) -> dict[str, Any]:
    """What is compared at one budget."""
    bare: dict[str, Any] = {"budget": budget, "fit_intercept": False}
    common = bare | {"clip_norm": CLIP}
    proximal = LowRank if kind == "low rank" else GroupSparse
    found: dict[str, Any] = {"CovariancePrior": CovariancePrior(**common)}
    if kind == "group sparse":
        found["CovariancePrior diagonal"] = CovariancePrior(structure="diagonal", **common)
    found[proximal.__name__] = proximal(**bare)
    if budget is not None:
        published = proximal(as_published=True, step=1 / ROWS, **common)  # unit rows: L ≤ n
        found[f"{proximal.__name__} as published (not private)"] = published
    found["TaskRelationship (DP-MTRL)"] = TaskRelationship(**bare)
    found["AveragedModel (DP-AGGR)"] = AveragedModel(**bare)
    return found


def score(model: Any, data: Any) -> float:
    model.fit(data.X, data.y, task=data.task)
    predicted = model.predict(data.X_test, task=data.task_test)
    return nmse_per_task(data.y_test, predicted, data.task_test)


def compare(seeds: list[int]) -> None:
    for kind, draw in (("low rank", low_rank_tasks), ("group sparse", group_sparse_tasks)):
        shares: dict[tuple[str, float | None], list[float]] = {}
        alone = []
        for seed in seeds:
            data = draw(rng=np.random.default_rng(seed))
            alone.append(score(SingleTask(fit_intercept=False), data))
            delta = 1 / (320 * math.log(320))
            for epsilon in EPSILONS:
                budget = None if epsilon is None else Budget(epsilon, delta)
                for name, model in learners(budget, kind).items():
                    share = score(model, data) / alone[-1]
                    shares.setdefault((name, epsilon), []).append(share)
        print(json.dumps({"case": kind, "learner": "SingleTask", "nmse": round(np.mean(alone), 4)}))
        for (name, epsilon), values in shares.items():
            line = {"case": kind, "learner": name, "epsilon": epsilon}
            print(json.dumps(line | {"share_of_single": round(float(np.mean(values)), 3)}))


def scale() -> None:
    for tasks in (1_000, 10_000, 100_000):
        data = low_rank_tasks(tasks, test_rows=0, rng=np.random.default_rng(0))
        start = time.perf_counter()
        CovariancePrior(budget=Budget(1.0), clip_norm=CLIP, fit_intercept=False).fit(
            data.X, data.y, task=data.task
        )
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        line = {"case": "CovariancePrior", "tasks": tasks, "seconds": round(seconds, 2)}
        print(json.dumps(line | {"peak_gib": round(peak, 2)}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--scale", action="store_true")
    arguments = parser.parse_args()
    if arguments.scale:
        scale()
    else:
        compare(arguments.seeds)


if __name__ == "__main__":
    main()
