"""Low-rank and group-sparse tasks (S1 §5.4): what is left of single-task error under privacy.

    python benchmarks/covariance.py [--seeds 0 1 2]

m = 320, n = 30, d = 30, unit rows, unit noise, 270 test rows a task; nMSE averaged over tasks as a
share of single-task nMSE on the same draws; δ = 1/(m ln m), replace, ranges declared, no intercept
(the truth has none); everything else by the library's rules. The published algorithms get a clip
norm of 30, declared.
"""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

import numpy as np

from tacit import (
    AveragedModel,
    Budget,
    GroupSparse,
    LowRank,
    SharedPrior,
    SingleTask,
    TaskRelationship,
)
from tacit.datasets import group_sparse_tasks, low_rank_tasks
from tacit.metrics import nmse_per_task

EPSILONS = (None, 0.1, 0.5, 1.0, 3.0, 10.0)
CLIP = 30.0
ROWS = 30  # of each task, as the generators draw them


def learners(budget: Budget | None, kind: str, most: float) -> dict[str, Any]:
    """What is compared at one budget; targets lie within ±most."""
    bare: dict[str, Any] = {"budget": budget, "fit_intercept": False}
    ranges: dict[Any, Any] = dict.fromkeys(range(30), (-1.0, 1.0)) | {"target": (-most, most)}
    proximal = LowRank if kind == "low rank" else GroupSparse
    found: dict[str, Any] = {"SharedPrior": SharedPrior(ranges=ranges, **bare)}
    found[proximal.__name__] = proximal(**bare)
    if budget is not None:
        published = proximal(as_published=True, step=1 / ROWS, clip_norm=CLIP, **bare)  # L ≤ n
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
                for name, model in learners(budget, kind, float(np.abs(data.y).max())).items():
                    share = score(model, data) / alone[-1]
                    shares.setdefault((name, epsilon), []).append(share)
        print(json.dumps({"case": kind, "learner": "SingleTask", "nmse": round(np.mean(alone), 4)}))
        for (name, epsilon), values in shares.items():
            line = {"case": kind, "learner": name, "epsilon": epsilon}
            print(json.dumps(line | {"share_of_single": round(float(np.mean(values)), 3)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    compare(parser.parse_args().seeds)


if __name__ == "__main__":
    main()
