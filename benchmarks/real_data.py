"""School at several training shares and landmine: every learner, private and not.

    TACIT_DATA=... python benchmarks/real_data.py [--seeds 0 1 2] [--shares 0.3 0.5 0.7 0.9]

School: nMSE over all test rows. Landmine: 29 binary tasks, half the rows for training, mean AUC
over tasks; its features have no published ranges, so none are declared. δ = 1/(m ln m), replace.
"""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

import numpy as np
from school import training_rows

from tacit import Budget, MeanRegularized, Pooled, SharedPrior, SingleTask
from tacit.datasets import load_landmine, load_school
from tacit.metrics import auc_per_task, nmse

EPSILONS = (0.1, 1.0, 10.0)


def learners(n_tasks: int, **common: Any) -> dict[tuple[str, float | None], Any]:
    """All learners at all budgets; None is no privacy."""
    delta = 1 / (n_tasks * math.log(n_tasks))
    found: dict[tuple[str, float | None], Any] = {
        ("SingleTask", None): SingleTask(**common),
        ("Pooled", None): Pooled(**common),
    }
    for learner in (MeanRegularized, SharedPrior):
        found[learner.__name__, None] = learner(**common)
        for epsilon in EPSILONS:
            found[learner.__name__, epsilon] = learner(budget=Budget(epsilon, delta), **common)
    return found


def report(case: str, metric: str, scores: dict[tuple[str, float | None], list[float]]) -> None:
    for (name, epsilon), values in scores.items():
        line = {"case": case, "learner": name, "epsilon": epsilon}
        print(json.dumps(line | {metric: round(float(np.mean(values)), 4)}), flush=True)


def school(share: float, seeds: list[int]) -> None:
    data = load_school()
    scores: dict[tuple[str, float | None], list[float]] = {}
    for seed in seeds:
        train = training_rows(data.task, share, seed)
        for key, model in learners(len(np.unique(data.task)), ranges=data.ranges).items():
            model.fit(data.X[train], data.y[train], task=data.task[train])
            predicted = model.predict(data.X[~train], task=data.task[~train])
            scores.setdefault(key, []).append(nmse(data.y[~train], predicted))
    report(f"school {share:.0%}", "nmse", scores)


def landmine(seeds: list[int]) -> None:
    data = load_landmine()
    scores: dict[tuple[str, float | None], list[float]] = {}
    for seed in seeds:
        train = training_rows(data.task, 0.5, seed)
        common = {"loss": "logistic", "ranges": data.ranges}
        for key, model in learners(29, **common).items():
            model.fit(data.X[train], data.y[train], task=data.task[train])
            found = model.decision_function(data.X[~train], task=data.task[~train])
            auc = auc_per_task(data.y[~train], found, data.task[~train])
            scores.setdefault(key, []).append(auc)
    report("landmine 50%", "auc", scores)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.3, 0.5, 0.7, 0.9])
    arguments = parser.parse_args()
    for share in arguments.shares:
        school(share, arguments.seeds)
    landmine(arguments.seeds)


if __name__ == "__main__":
    main()
