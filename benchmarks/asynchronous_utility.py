"""AsyncProximal: what is left of utility when the server is an adversary (S3's synthetic setting).

    python benchmarks/asynchronous_utility.py released [--seeds 0 1 2 3 4]
    python benchmarks/asynchronous_utility.py table [--seeds 0 1 2] [--rows 60 200 1000 5000]
    ... [--tasks "low rank" related] [--epsilons 0.5 1 5 inf]

20 nodes, 28 features, total ε per node at δ = 1e-5, replace, every constant by the library's public
rules. ``released``: 200 rows a node, 30% for training; nMSE of the models that may be shown,
averaged over nodes, against private gradient descent node by node at the same budget
(``penalty=None``) and S3 as published at the same claimed total: as in its §4.1, and at its best,
on rows of norm one with C₁ = 1, its letters chosen on another draw. ``table``: nMSE of the models
that stay at home as a share of what each node gets alone without privacy, by rows a node. ε = null
is no noise at all. Noise is simulated, so that a line can be had again.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any, Literal

import numpy as np

from tacit import AsyncProximal, Budget, SingleTask
from tacit.datasets import low_rank_tasks, related_tasks
from tacit.learners.async_proximal.printed import Printed
from tacit.metrics import nmse_per_task

NODES, FEATURES, ROWS, TRAINED = 20, 28, 200, 0.3
EPSILONS = (0.5, 1.0, 5.0, math.inf)
KINDS = ("low rank", "related")
TEST_ROWS = 140
CHOOSING = 100  # the draw on which S3's letters are chosen
STARTS: tuple[Literal["single-task", "zero"], ...] = ("single-task", "zero")
LETTERS = [
    Printed(own_step=a, shared_step=b, threshold=mu, start=start, row_norm=1.0, record_every=1000)
    for a, b, mu, start in product((0.1, 0.01), (0.1, 0.01, 1e-3, 1e-4), (1.5e-3, None), STARTS)
]


def drawn(kind: str, rows: int, seed: int) -> Any:
    """Models of rank 3 (S3 §4.1), or around a common one; at least TEST_ROWS rows to test on."""
    rng = np.random.default_rng(seed)
    if kind == "low rank":
        return low_rank_tasks(NODES, rows, FEATURES, rank=3, test_rows=TEST_ROWS, rng=rng)
    return related_tasks(NODES, rows, FEATURES, test_rows=TEST_ROWS, rng=rng)


def nmse(predict: Callable[..., Any], data: Any) -> float:
    return nmse_per_task(data.y_test, predict(data.X_test, task=data.task_test), data.task_test)


def fitted(data: Any, epsilon: float | None, seed: int, **more: Any) -> Any:
    budget = None if epsilon is None else Budget(epsilon)
    model = AsyncProximal(
        budget=budget, ranges=data.ranges, noise="simulated", random_state=seed, **more
    )
    return model.fit(data.X, data.y, task=data.task)


def alone(data: Any) -> float:
    model = SingleTask(ranges=data.ranges).fit(data.X, data.y, task=data.task)
    return nmse(model.predict, data)


def unit_rows(data: Any) -> Any:
    """The same tasks with ‖x‖ = 1."""
    X, X_test = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (data.X, data.X_test))
    ranges = dict.fromkeys(range(FEATURES), (-1.0, 1.0)) | {"target": data.ranges["target"]}
    return replace(data, X=X, X_test=X_test, ranges=ranges)


def published_at_its_best(
    kind: str, epsilon: float, releases: int, seeds: list[int]
) -> tuple[Printed, list[float]]:
    """The letters that are best on another draw, and what they give on these."""

    def score(letters: Printed, seed: int) -> float:
        data = unit_rows(drawn(kind, round(TRAINED * ROWS), seed))
        how = {"as_published": letters, "releases": releases, "fit_intercept": False}
        return nmse(fitted(data, epsilon, seed, **how).predict, data)

    best = min(LETTERS, key=lambda letters: score(letters, CHOOSING))
    return best, [score(best, seed) for seed in seeds]


def report(line: dict[str, Any], values: list[float], name: str = "nmse") -> None:
    spread = float(np.std(values) / np.sqrt(len(values)))
    line |= {name: round(float(np.mean(values)), 4), "standard_error": round(spread, 4)}
    print(json.dumps(line), flush=True)


def released(seeds: list[int], kinds: list[str], epsilons: list[float | None]) -> None:
    """Models that may be shown."""
    for kind in kinds:
        data = {seed: drawn(kind, round(TRAINED * ROWS), seed) for seed in seeds}
        line = {"case": "released", "tasks": kind, "seeds": len(seeds)}
        report(line | {"learner": "SingleTask, no privacy"}, [alone(data[s]) for s in seeds])
        for epsilon in epsilons:
            found = {
                "AsyncProximal": [fitted(data[s], epsilon, s) for s in seeds],
                "private descent node by node": [
                    fitted(data[s], epsilon, s, penalty=None) for s in seeds
                ],
            }
            if epsilon is not None:
                releases = found["AsyncProximal"][0].history_[0]["count"]
                found["S3 as published (not private)"] = [
                    fitted(data[s], epsilon, s, as_published=True, releases=releases) for s in seeds
                ]
                trusted = [fitted(data[s], epsilon, s, server="trusted") for s in seeds]
                found["AsyncProximal, trusted server"] = trusted
                best, scores = published_at_its_best(kind, epsilon, releases, seeds)
                letters = ("own_step", "shared_step", "threshold", "start")
                chosen = {name: getattr(best, name) for name in letters} | {"releases": releases}
                name = "S3 as published, at its best (not private)"
                report(line | {"epsilon": epsilon, "learner": name} | chosen, scores)
            for name, models in found.items():
                scores = [nmse(m.predict, data[s]) for m, s in zip(models, seeds, strict=True)]
                report(line | {"epsilon": epsilon, "learner": name}, scores)


def table(
    seeds: list[int], rows: list[int], kinds: list[str], epsilons: list[float | None]
) -> None:
    """Models that stay at home, as a share of what a node gets alone without privacy."""
    for kind in kinds:
        for n in rows:
            data = {seed: drawn(kind, n, seed) for seed in seeds}
            single = {seed: alone(data[seed]) for seed in seeds}
            for epsilon in epsilons:
                start = time.perf_counter()
                models = [fitted(data[s], epsilon, s) for s in seeds]
                seconds = (time.perf_counter() - start) / len(seeds)
                shares = [
                    nmse(m.predict_at_home, data[s]) / single[s]
                    for m, s in zip(models, seeds, strict=True)
                ]
                line = {"case": "home", "tasks": kind, "rows": n, "epsilon": epsilon}
                worst = {"worst_seed": round(max(shares), 4), "seconds_a_fit": round(seconds, 2)}
                report(line | worst, shares, "share_of_single")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["released", "table"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rows", type=int, nargs="+", default=[60, 200, 1000, 5000])
    parser.add_argument("--tasks", choices=KINDS, nargs="+", default=KINDS)
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    arguments = parser.parse_args()
    epsilons = [None if math.isinf(epsilon) else epsilon for epsilon in arguments.epsilons]
    if arguments.what == "released":
        released(arguments.seeds, arguments.tasks, epsilons)
    else:
        table(arguments.seeds, arguments.rows, arguments.tasks, epsilons)


if __name__ == "__main__":
    main()
