"""SharedPrior against single-task learning, two older learners, MixedLM, and its own twin.

    TACIT_DATA=... python benchmarks/shared_prior.py [families|school|mixed|logistic|scale ...]

Families (task_families.py) and School: mean squared error on test rows, δ = 1/(m ln m), replace,
declared ranges, simulated noise with the seed of the draw. ``reference`` lines were measured on the
same draws with the learners of the day before this one existed (shared_prior_reference.jsonl):
``SingleTask``, ``MeanRegularized`` and ``CovariancePrior``, which is no more. Constants were fixed
on seeds 1–3, on which nothing is reported.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import resource
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from school import training_rows
from scipy.special import expit
from scipy.stats import t as student
from task_families import FAMILIES, Drawn, family

from tacit import Budget, SharedPrior, SingleTask
from tacit.datasets import load_landmine, load_school, low_rank_tasks
from tacit.metrics import auc_per_task

EPSILONS = (0.1, 0.5, 1.0, 3.0, 10.0, 1e4, None)
SEEDS, SCHOOL_SEEDS, SCHOOL_DRAWS = (9001, 9002, 9003, 9004, 9005), (0, 1, 2), 5
REFERENCE = Path(__file__).with_name("shared_prior_reference.jsonl")
MIXED = ("mean150", "mean40", "intercept", "icptslope", "heteromean", "big_n", "m30", "cluster")

Errors = dict[tuple[str, str, int, float | None], float]


def told(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def fitted(data: Drawn, epsilon: float | None, seed: int, **more: Any) -> Any:
    m = len(np.unique(data.task))
    budget = None if epsilon is None else Budget(epsilon, 1 / (m * math.log(m)))
    model = SharedPrior(budget=budget, noise="simulated", random_state=seed, **more)
    train = data.train
    return model.fit(data.X[train], data.y[train], task=data.task[train])


def error(model: Any, data: Drawn) -> float:
    test = ~data.train
    predicted = model.predict(data.X[test], task=data.task[test])
    return float(np.mean((data.y[test] - predicted) ** 2))


# --- families ------------------------------------------------------------------------------------


def families() -> None:
    errors = reference()
    for name in FAMILIES:
        for seed in SEEDS:
            data = family(name, seed)
            for epsilon in EPSILONS:
                found = error(fitted(data, epsilon, seed, ranges=data.ranges), data)
                errors["SharedPrior", name, seed, epsilon] = found
        told(case=name, **shares(errors, name, SEEDS))
    summary(errors, SEEDS)


def reference() -> Errors:
    lines = map(json.loads, REFERENCE.read_text().splitlines())
    return {(x["learner"], x["case"], x["seed"], x["epsilon"]): x["error"] for x in lines}


def mean_error(
    errors: Errors, learner: str, name: str, seeds: Iterable[int], epsilon: float | None
) -> float:
    """Geometric, over draws."""
    return math.exp(np.mean([math.log(errors[learner, name, seed, epsilon]) for seed in seeds]))


def better(errors: Errors, name: str, seeds: Iterable[int], epsilon: float | None) -> float:
    learners = ("MeanRegularized", "CovariancePrior")
    return min(mean_error(errors, learner, name, seeds, epsilon) for learner in learners)


def shares(errors: Errors, name: str, seeds: Iterable[int]) -> dict[str, Any]:
    """By ε: of single-task error, and of the better of both."""
    single = mean_error(errors, "SingleTask", name, seeds, None)
    mine = {e: mean_error(errors, "SharedPrior", name, seeds, e) for e in EPSILONS}
    return {
        "of_single": {str(e): round(value / single, 4) for e, value in mine.items()},
        "of_better": {
            str(e): round(value / better(errors, name, seeds, e), 4)
            for e, value in mine.items()
            if e != 1e4
        },
    }


def summary(errors: Errors, seeds: Iterable[int]) -> None:
    """The rows of the table."""
    names = list(FAMILIES)
    for epsilon in EPSILONS:
        mine = {n: mean_error(errors, "SharedPrior", n, seeds, epsilon) for n in names}
        single = {n: mine[n] / mean_error(errors, "SingleTask", n, seeds, None) for n in names}
        line: dict[str, Any] = {"worst_of_single": round(max(single.values()), 4)}
        if epsilon == 1e4:
            twin = [mine[n] / mean_error(errors, "SharedPrior", n, seeds, None) for n in names]
            line |= {"of_twin_worst": round(max(twin), 4), "of_twin_least": round(min(twin), 4)}
        else:
            ratio = {n: mine[n] / better(errors, n, seeds, epsilon) for n in names}
            geometric = math.exp(np.mean([math.log(r) for r in ratio.values()]))
            worst = max(ratio, key=lambda n: ratio[n])
            line |= {"of_better": round(geometric, 4), "worst": [worst, round(ratio[worst], 4)]}
        told(case="all families", epsilon=epsilon, **line)
    monotone(errors, names, list(seeds))


def monotone(errors: Errors, names: list[str], seeds: list[int]) -> None:
    """Paired draws: does any family get worse from one ε to the next? One-sided t, Bonferroni."""
    steps = list(itertools.pairwise(EPSILONS))
    level = student.ppf(1 - 0.05 / (len(names) * len(steps)), len(seeds) - 1)
    worse = []
    for name in names:
        for low, high in steps:
            change = [
                math.log(errors["SharedPrior", name, s, high] / errors["SharedPrior", name, s, low])
                for s in seeds
            ]
            spread = max(float(np.std(change, ddof=1)), 1e-12) / math.sqrt(len(seeds))
            if np.mean(change) / spread > level:
                worse.append([name, low, high, round(float(np.mean(change)), 4)])
    told(case="monotone in epsilon", worse=worse)


# --- School --------------------------------------------------------------------------------------


def school_draw(seed: int) -> Drawn:
    data = load_school()
    task = np.asarray(data.task)
    return Drawn(data.X, data.y, task, training_rows(task, 0.3, seed), data.ranges)


def school() -> None:
    errors, mine = reference(), {}
    for seed in SCHOOL_SEEDS:
        data = school_draw(seed)
        for epsilon in EPSILONS:
            draws = range(1 if epsilon is None else SCHOOL_DRAWS)
            runs = [error(fitted(data, epsilon, i, ranges=data.ranges), data) for i in draws]
            mine[seed, epsilon] = float(np.mean(runs))

    def mean(learner: str, epsilon: float | None) -> float:
        return float(np.mean([errors[learner, "school", seed, epsilon] for seed in SCHOOL_SEEDS]))

    single = mean("SingleTask", None)
    twin = float(np.mean([mine[seed, None] for seed in SCHOOL_SEEDS]))
    for epsilon in EPSILONS:
        found = float(np.mean([mine[seed, epsilon] for seed in SCHOOL_SEEDS]))
        line = {"of_single": round(found / single, 4)}
        line["gain_kept"] = round((single - found) / (single - twin), 3)
        if epsilon != 1e4:
            old = min(mean(name, epsilon) for name in ("MeanRegularized", "CovariancePrior"))
            line["of_better"] = round(found / old, 4)
        told(case="school", epsilon=epsilon, **line)


# --- mixed models --------------------------------------------------------------------------------


def mixed() -> None:
    """The twin against statsmodels' MixedLM by REML, in the same run; with OMP_NUM_THREADS=1."""
    cases = [("school", school_draw(0))] + [(name, family(name, SEEDS[0])) for name in MIXED]
    fitted(cases[1][1], None, 0, ranges=cases[1][1].ranges)  # imports and warms up
    for name, data in cases:
        ours, seconds = least(8, twin_error, data)
        for effects in ("intercept", "slope"):
            if effects == "slope" and data.X.shape[1] > 10:
                continue
            theirs, slower = least(3, mixed_error, data, effects)
            line = {"ours_over_theirs": round(ours / theirs, 4)}
            line["times_faster"] = round(slower / seconds, 1)
            told(case=f"MixedLM {name}", random=effects, **line)


def twin_error(data: Drawn) -> float:
    return error(fitted(data, None, 0, ranges=data.ranges), data)


def least(times: int, work: Callable[..., float], *given: Any) -> tuple[float, float]:
    """What comes of it, and the least of so many times, in seconds of one processor: with one BLAS
    thread, what else runs on the machine counts less."""
    taken = []
    for _ in range(times):
        start = time.process_time()
        found = work(*given)
        taken.append(time.process_time() - start)
    return found, min(taken)


def mixed_error(data: Drawn, effects: str) -> float:
    import statsmodels.api as sm

    low, high = data.X.min(0), data.X.max(0)
    scaled = (data.X - low) / np.where(high > low, high - low, 1.0)
    X = np.column_stack([np.ones(len(scaled)), scaled[:, data.X[data.train].std(0) > 0]])
    Z = X if effects == "slope" else X[:, :1]
    train, test = data.train, ~data.train
    model = sm.MixedLM(data.y[train], X[train], groups=data.task[train], exog_re=Z[train])
    found = model.fit(reml=True)
    own = {label: np.asarray(value) for label, value in found.random_effects.items()}
    random = np.stack([own[label] for label in data.task[test]])
    predicted = X[test] @ found.fe_params + np.einsum("nk,nk->n", Z[test], random)
    return float(np.mean((data.y[test] - predicted) ** 2))


# --- logistic ------------------------------------------------------------------------------------


def logistic() -> None:
    """The same families with a logistic link, and landmine: log loss and AUC, over single-task."""
    for name in FAMILIES:
        losses: dict[str, list[tuple[float, float]]] = {}
        for seed in SEEDS[:3]:
            data = as_classes(family(name, seed), seed)
            compare(data, seed, losses, {**data.ranges, "target": [0, 1]})
        tell_logistic(name, losses)
    landmine = load_landmine()
    losses = {}
    for seed in SCHOOL_SEEDS:
        task = np.asarray(landmine.task)
        data = Drawn(landmine.X, landmine.y, task, training_rows(task, 0.5, seed), {})
        compare(data, seed, losses, landmine.ranges)
    tell_logistic("landmine", losses)


def as_classes(data: Drawn, seed: int) -> Drawn:
    """Targets in {0, 1}: the family's target, centred and at twice its spread, as log odds."""
    odds = 2 * (data.y - data.y.mean()) / data.y.std()
    drawn = np.random.default_rng(seed).random(len(odds)) < expit(odds)
    return Drawn(data.X, drawn.astype(int), data.task, data.train, data.ranges)


def compare(
    data: Drawn, seed: int, losses: dict[str, list[tuple[float, float]]], ranges: Any
) -> None:
    train, test = data.train, ~data.train
    single = SingleTask(loss="logistic", ranges=ranges)
    models = {"SingleTask": single.fit(data.X[train], data.y[train], task=data.task[train])}
    for epsilon in (0.5, 1.0, 10.0, None):
        models[str(epsilon)] = fitted(data, epsilon, seed, loss="logistic", ranges=ranges)
    for name, model in models.items():
        odds = model.decision_function(data.X[test], task=data.task[test])
        loss = float(np.mean(np.logaddexp(0, -np.where(data.y[test] > 0, 1, -1) * odds)))
        auc = auc_per_task(data.y[test], odds, data.task[test])
        losses.setdefault(name, []).append((loss, auc))


def tell_logistic(case: str, losses: dict[str, list[tuple[float, float]]]) -> None:
    means = {name: np.mean(values, axis=0) for name, values in losses.items()}
    single = means.pop("SingleTask")
    of_single = {name: round(float(value[0] / single[0]), 4) for name, value in means.items()}
    auc = {name: round(float(value[1]), 4) for name, value in means.items()}
    told(
        case=f"logistic {case}", log_loss_of_single=of_single, auc=auc, single=list(single.round(4))
    )


# --- size ----------------------------------------------------------------------------------------


def scale() -> None:
    for tasks in (1_000, 10_000, 100_000):
        data = low_rank_tasks(tasks, test_rows=0, rng=np.random.default_rng(0))
        most = float(np.abs(data.y).max())
        ranges: dict[Any, Any] = dict.fromkeys(range(30), (-1.0, 1.0)) | {"target": (-most, most)}
        start = time.perf_counter()
        SharedPrior(budget=Budget(1.0), ranges=ranges).fit(data.X, data.y, task=data.task)
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        told(case="scale", tasks=tasks, seconds=round(seconds, 2), peak_gib=round(peak, 2))


PARTS = {
    "families": families,
    "school": school,
    "mixed": mixed,
    "logistic": logistic,
    "scale": scale,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=PARTS, default=list(PARTS))
    for part in parser.parse_args().parts:
        PARTS[part]()


if __name__ == "__main__":
    main()
