"""School: how much of the gain of learning together is kept under privacy.

    TACIT_DATA=... python benchmarks/school.py [--seeds 0 1 2] [--draws 8]

30% of each school for training, features and target by their public ranges, nMSE over all test
rows, δ = 1/(m ln m), replace. Gain kept = (single − private) / (single − twin). Clip and rounds
are the library's public rule; the noise is secure, so every run differs a little.
"""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

import numpy as np

from tacit import Budget, MeanRegularized, Pooled, SingleTask
from tacit.datasets import load_school
from tacit.metrics import nmse

EPSILONS = (0.1, 0.5, 1.0, 10.0)


def training_rows(task: Any, fraction: float, seed: int) -> Any:
    """A mask with the given share of each task's rows, at least one."""
    rng = np.random.default_rng(seed)
    chosen = np.zeros(len(task), dtype=bool)
    for label in np.unique(task):
        rows = rng.permutation(np.flatnonzero(task == label))
        chosen[rows[: max(1, round(fraction * len(rows)))]] = True
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--draws", type=int, default=8, help="fits per seed and ε, new noise each")
    arguments = parser.parse_args()
    data = load_school()
    task = np.asarray(data.task)
    m = len(np.unique(task))
    delta = 1 / (m * math.log(m))
    scores: dict[str, list[float]] = {}

    def run(name: str, model: Any, train: Any) -> None:
        model.fit(data.X[train], data.y[train], task=task[train])
        predicted = model.predict(data.X[~train], task=task[~train])
        scores.setdefault(name, []).append(nmse(data.y[~train], predicted))

    for seed in arguments.seeds:
        train = training_rows(task, 0.3, seed)
        run("single", SingleTask(ranges=data.ranges), train)
        run("pooled", Pooled(ranges=data.ranges), train)
        run("twin", MeanRegularized(ranges=data.ranges), train)
        for epsilon in EPSILONS:
            for _ in range(arguments.draws):
                budget = Budget(epsilon, delta)
                run(f"epsilon={epsilon}", MeanRegularized(budget=budget, ranges=data.ranges), train)

    mean = {name: float(np.mean(values)) for name, values in scores.items()}
    gain = mean["single"] - mean["twin"]
    for name, values in scores.items():
        line = {"case": f"school {name}", "nmse": round(mean[name], 4), "seeds": arguments.seeds}
        if name.startswith("epsilon"):
            by_draw = np.reshape(values, (len(arguments.seeds), -1)).mean(0)
            kept = (mean["single"] - by_draw) / gain  # one number per draw of the noise
            line["gain_kept"] = round(float(kept.mean()), 3)
            line["gain_kept_sd_over_noise"] = round(float(kept.std()), 3)
        print(json.dumps(line))


if __name__ == "__main__":
    main()
