"""Linear learners on real measurements, each as it comes.

What rows are believed (linear/row_trust.py) was decided on the first four cases of movements, so
they are no test of it; on the others no constant was fixed.

    TACIT_DATA=... python benchmarks/other_data.py [--seeds 0 1 2 3]

har        30 people, one feature of their movements from a few others: heavy tails, few rows
power      one household: its power at 20 h from earlier hours, a task a month, or a month of the
           year and every seventh day
school     School with eight of its features, and few pupils a school

Mean squared error of rows held out over that of single-task learning, geometric over seeds. Ranges
are those of the data and a tenth more on each side: they are no secret here. δ = 1/(m ln m),
replace, simulated noise; the budget's learners twice a seed.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tacit import Budget, MeanRegularized, Pooled, SharedPrior, SingleTask
from tacit.arrays import BoolArray, FloatArray, IntArray
from tacit.datasets import load_har, load_household_power, load_school

EPSILONS = (0.1, 1.0, 10.0, None)
HOURS = [0, 3, 6, 7, 8, 9, 12, 15, 17, 18, 19]
DRAWS = 2


@dataclass(frozen=True)
class Case:
    """Rows, and how many of each task are for training: a number, or a share."""

    X: FloatArray
    y: FloatArray
    task: IntArray
    training: float

    @property
    def ranges(self) -> dict[Any, tuple[float, float]]:
        """With a tenth more on each side."""
        cells = np.column_stack([self.X, self.y])
        low, high = cells.min(axis=0), cells.max(axis=0)
        ends = zip(low - 0.1 * (high - low), high + 0.1 * (high - low), strict=True)
        return dict(zip((*range(self.X.shape[1]), "target"), ends, strict=True))

    def train(self, seed: int) -> BoolArray:
        """Rows drawn for training; one at least is held out."""
        rng, chosen = np.random.default_rng(seed), np.zeros(len(self.y), dtype=bool)
        for label in np.unique(self.task):
            mine = np.flatnonzero(self.task == label)
            asked = self.training if self.training >= 1 else max(2, self.training * len(mine))
            count = min(int(asked), len(mine) - 1)
            chosen[rng.choice(mine, count, replace=False)] = True
        return chosen


def har(draw: int, features: int, rows: int) -> Case:
    data = load_har()
    chosen = np.random.default_rng(draw).choice(data.X.shape[1], features + 1, replace=False)
    return Case(data.X[:, chosen[:-1]], data.X[:, chosen[-1]], data.task, rows)


def power(by_month: bool, share: float) -> Case:
    data = load_household_power()
    month = data.date // 100
    task = month if by_month else month % 100 * 10 + np.arange(len(month)) % 7
    return Case(data.X[:, HOURS], data.X[:, 20], task, share)


def school(draw: int, rows: int) -> Case:
    data = load_school()
    chosen = np.random.default_rng(draw).choice(27, 8, replace=False)
    return Case(data.X[:, chosen], data.y, data.task, rows)


OTHERS = list(enumerate([(8, 10), (5, 30), (3, 5), (20, 100), (10, 15), (4, 8), (12, 40), (2, 4)]))
"""Columns and rows of movements that were drawn after the first four had said what to mend."""

CASES: dict[str, Callable[[], Case]] = {
    "har, 8 features, 10 rows": lambda: har(0, 8, 10),
    "har, 5 features, 30 rows": lambda: har(1, 5, 30),
    "har, 3 features, 5 rows": lambda: har(2, 3, 5),
    "har, 20 features, 100 rows": lambda: har(3, 20, 100),
    **{f"other har, {f} features, {n} rows": partial(har, 40 + k, f, n) for k, (f, n) in OTHERS},
    "power, 48 months, half": lambda: power(True, 0.5),
    "power, 84 tasks, 60%": lambda: power(False, 0.6),
    "school, 10 rows": lambda: school(99, 10),
    "school, 5 rows": lambda: school(100, 5),
    "school, 30 rows": lambda: school(101, 30),
}


def errors(case: Case, seeds: list[int]) -> dict[str, list[float]]:
    """By learner and ε, over those of single-task learning."""
    m, ranges = len(np.unique(case.task)), case.ranges
    delta = 1 / (m * math.log(m))
    found: dict[str, list[float]] = defaultdict(list)
    for seed in seeds:
        train = case.train(seed)

        def error(model: Any, train: BoolArray = train) -> float:
            model.fit(case.X[train], case.y[train], task=case.task[train])
            predicted = model.predict(case.X[~train], task=case.task[~train])
            return float(np.mean((case.y[~train] - predicted) ** 2))

        single = error(SingleTask(ranges=ranges))
        found["Pooled"].append(error(Pooled(ranges=ranges)) / single)
        for learner in (SharedPrior, MeanRegularized):
            for epsilon in EPSILONS:
                budget = None if epsilon is None else Budget(epsilon, delta)
                given: dict[str, Any] = {"budget": budget, "ranges": ranges, "noise": "simulated"}
                draws = range(1 if budget is None else DRAWS)
                each = [error(learner(random_state=17 * seed + k, **given)) for k in draws]
                found[f"{learner.__name__} {epsilon}"].append(float(np.mean(each)) / single)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3])
    asked = parser.parse_args()
    for name, make in CASES.items():
        case = make()
        found = errors(case, asked.seeds)
        line = {key: round(math.exp(np.mean(np.log(each))), 3) for key, each in found.items()}
        tasks, features = len(np.unique(case.task)), case.X.shape[1]
        print(json.dumps({"case": name, "tasks": tasks, "features": features} | line), flush=True)


if __name__ == "__main__":
    main()
