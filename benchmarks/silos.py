"""People inside silos: School by the protocol of MR-MTL, generated tasks, HAR with networks.

    TACIT_DATA=... python benchmarks/silos.py [--draws 4] [--jobs 1]
                                              [--only school peers synthetic har]

The protocol is that of github.com/kenziyuliu/private-cross-silo-fl (Liu, Hu, Wu, Smith, NeurIPS
2022): 139 schools, a fifth of each for testing (seeds 100 + 1000k), y → (y − 1)/69, mean squared
error over all test rows, δ = 1e-3. Where we differ: ours protects a pupil who is *replaced* (twice
the sensitivity of theirs, who is added or removed), counts everything it looks at, and chooses
nothing on test rows. Theirs standardises each school's columns outside the accounting, and here its
learning rate and λ are the best of a grid *on the test rows*. Columns that hold one of several
levels are declared as categories; predictions are cut to the declared range.

HAR: 25 people as silos, half of each one's windows to learn from, and a window is what is protected
(replaced; δ = 1e-5). The first five people are volunteers, whose rows are public: columns are
scaled by theirs, since scaling by a silo's own rows, as task-level benchmarks do at home, would not
be covered. ``single`` scales by its own all the same: what a silo without privacy would do.

``public`` are models made of releases, which anybody may see; ``home`` are those of a silo with its
own rows.
"""

from __future__ import annotations

import argparse
import json
import logging
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import train_test_split

from tacit import Budget, Ledger, MeanRegularized, SharedPrior, SingleTask
from tacit.datasets import (
    group_sparse_tasks,
    load_har,
    load_school,
    low_rank_tasks,
    related_tasks,
)
from tacit.errors import PrivacyWarning

EPSILONS = (0.5, 1.0, 3.0, 6.0)
DELTA, SPLITS, SEED = 1e-3, 5, 100
GROUPS = ((0, 1, 2), (5, 6), (7, 8, 9), tuple(range(10, 21)), (21, 22, 23), (24, 25, 26))
PERCENT = (3, 4)
BATCH, ROUNDS, CLIP = 32, 201, 1.0
RATES, LAMBDAS = (0.003, 0.01, 0.03), (0.3, 1.0, 3.0, 10.0)


HALVES, VOLUNTEERS = 11, 5  # which windows are learned from, and who shows theirs to everybody

Runner = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], list[Any]]
"""Does the same work for many cases, perhaps at once."""


def said(case: str, **numbers: Any) -> None:
    print(json.dumps({"case": case} | numbers), flush=True)


LEARNERS = {"ours": SharedPrior, "mean regularisation": MeanRegularized}


def silos(name: str, budget: Budget | None, ranges: Any, seed: int) -> Any:
    return LEARNERS[name](
        unit="example",
        budget=budget,
        ranges=ranges,
        noise="simulated",
        ledger=Ledger.in_memory(),
        random_state=seed,
    )


# --- School --------------------------------------------------------------------------------------


def declared(X: Any) -> tuple[Any, dict[Any, Any]]:
    """One column for each group of 0/1 columns: the number of its level. A row with none or several
    gets the last."""
    levels = [
        np.where(X[:, g].sum(axis=1) == 1, X[:, g].argmax(axis=1), len(g) - 1)
        for g in map(list, GROUPS)
    ]
    ranges: dict[Any, Any] = {j: list(range(len(g))) for j, g in enumerate(GROUPS)}
    ranges |= {len(GROUPS) + j: (0, 100) for j in range(len(PERCENT))}
    return np.column_stack([*levels, X[:, list(PERCENT)]]), ranges | {"target": (1, 70)}


def training(task: Any, seed: int) -> Any:
    train = np.zeros(len(task), dtype=bool)
    for label in np.unique(task):
        train[
            train_test_split(np.flatnonzero(task == label), test_size=0.2, random_state=seed)[0]
        ] = 1
    return train


def school_errors(name: str, epsilon: float | None, split: int, draw: int) -> tuple[float, float]:
    """Of the public and of the home models."""
    data = load_school()
    X, ranges = declared(data.X)
    train = training(data.task, SEED + 1000 * split)
    budget = None if epsilon is None else Budget(epsilon, DELTA)
    model = silos(name, budget, ranges, 100 * split + draw)
    model.fit(X[train], data.y[train], task=data.task[train])
    shown = model.predict(X[~train], task=data.task[~train])
    home = model.predict_at_home(X[~train], task=data.task[~train])
    public, own = (
        float(np.mean((np.clip(each, 1, 70) - data.y[~train]) ** 2)) / 69**2
        for each in (shown, home)
    )
    return public, own


def school(run: Runner, draws: int) -> None:
    cases = [
        (name, epsilon, split, draw)
        for name in LEARNERS
        for epsilon in (*EPSILONS, None)
        for split in range(SPLITS)
        for draw in range(1 if epsilon is None else draws)
    ]
    errors = dict(zip(cases, run(school_errors, cases), strict=True))
    for name, epsilon in product(LEARNERS, (*EPSILONS, None)):
        noises = range(1 if epsilon is None else draws)
        found = np.array([[errors[name, epsilon, k, d] for d in noises] for k in range(SPLITS)])
        public, home = found.mean(axis=(0, 1))
        spread = found.std(axis=1).mean(axis=0)
        said(
            f"school, {name}",
            epsilon=epsilon,
            public=round(public, 5),
            home=round(home, 5),
            sd_over_noise=[round(float(s), 5) for s in spread],
        )


# --- those who came before, on the same splits ---------------------------------------------------


def standardised(data: Any, split: int) -> tuple[Any, ...]:
    """Each school's columns by the mean and deviation of its training rows, unaccounted; padded."""
    train = training(data.task, SEED + 1000 * split)
    parts = []
    for label in np.unique(data.task):
        mine = data.task == label
        a, b = data.X[mine & train], data.X[mine & ~train]
        mean, scale = a.mean(axis=0), a.std(axis=0)
        scale[scale == 0] = 1.0
        parts.append(
            [np.c_[(each - mean) / scale, np.ones(len(each))] for each in (a, b)]
            + [(data.y[mine & train] - 1) / 69, (data.y[mine & ~train] - 1) / 69]
        )
    return tuple(zip(*parts, strict=True))


@cache
def multiplier(rows: int, epsilon: float) -> float:
    """σ/C of their sampled gradients: RDP, add/remove, as they account."""
    from dp_accounting import dp_event, mechanism_calibration, rdp

    logging.disable(logging.WARNING)  # of orders that it leaves out

    batch = min(BATCH, rows)
    steps = rows // batch * ROUNDS

    def event(noise: float) -> Any:
        once = dp_event.PoissonSampledDpEvent(batch / rows, dp_event.GaussianDpEvent(noise))
        return dp_event.SelfComposedDpEvent(once, steps)

    return float(
        mechanism_calibration.calibrate_dp_mechanism(
            rdp.RdpAccountant,
            event,
            epsilon,
            DELTA,
            mechanism_calibration.ExplicitBracketInterval(0.1, 1e3),
            tol=1e-3,
        )
    )


def multipliers(rows: Any, epsilon: float | None) -> Any:
    """Of all schools: calibrated at a ladder of sizes, the next below, which is more noise."""
    if epsilon is None:
        return np.zeros(len(rows))
    ladder = np.unique(np.geomspace(min(rows), max(rows), 10).astype(int))
    found = np.array([multiplier(int(n), epsilon) for n in ladder])
    return np.exp(np.interp(np.log(rows), np.log(ladder), np.log(found)))


def descended(
    parts: Any, epsilon: float | None, rate: float, lam: float | None, seed: int
) -> float:
    """MR-MTL at λ; λ = 0: every school alone; None: FedAvg. Test error over all rows."""
    X, Xt, y, yt = parts
    J, d, rng = len(X), X[0].shape[1], np.random.default_rng(seed)
    rows = np.array([len(each) for each in X])
    sizes, noise = np.minimum(rows, BATCH), multipliers(rows, epsilon)
    F, t = np.zeros((J, rows.max() + 1, d)), np.zeros((J, rows.max() + 1))  # the last row is empty
    for j in range(J):
        F[j, : rows[j]], t[j, : rows[j]] = X[j], y[j]
    w, mean, school = np.zeros((J, d)), np.zeros(d), np.arange(J)[:, None]
    for _ in range(ROUNDS):
        if lam is None:
            w = np.tile(mean, (J, 1))
        before = w
        keys = np.where(np.arange(rows.max()) < rows[:, None], rng.random((J, rows.max())), 2.0)
        orders = np.argsort(keys, axis=1)
        for k in range(int((rows // sizes).max())):
            places = np.minimum(k * sizes[:, None] + np.arange(BATCH), rows.max() - 1)
            on = (k < rows // sizes)[:, None] & (np.arange(BATCH) < sizes[:, None])
            chosen = np.where(on, orders[school, places], rows.max())
            Z = F[school, chosen]
            g = (np.einsum("jnd,jd->jn", Z, w) - t[school, chosen])[:, :, None] * Z
            g = (g + (lam or 0.0) * (w - mean)[:, None, :]) * on[:, :, None]
            if epsilon is not None:
                g /= np.maximum(1.0, np.linalg.norm(g, axis=2, keepdims=True) / CLIP)
            total = g.sum(axis=1) + CLIP * noise[:, None] * rng.standard_normal((J, d))
            w = w - on[:, :1] * rate * total / sizes[:, None]
        mean = mean + rows / rows.sum() @ (w - before)
    final = np.tile(mean, (J, 1)) if lam is None else w
    squares = [((a @ b - c) ** 2) for a, b, c in zip(Xt, final, yt, strict=True)]
    return float(np.concatenate(squares).mean())


PEERS: dict[str, tuple[float | None, ...]] = {
    "MR-MTL": LAMBDAS,
    "private local": (0.0,),
    "FedAvg": (None,),
}


def peer_error(epsilon: float | None, rate: float, lam: float | None, split: int) -> float:
    return descended(standardised(load_school(), split), epsilon, rate, lam, SEED + split)


def ridge_error(split: int) -> float:
    X, Xt, y, yt = standardised(load_school(), split)
    fits = (RidgeCV(np.logspace(-1, 4, 16)).fit(a, b) for a, b in zip(X, y, strict=True))
    squares = [(f.predict(c) - e) ** 2 for f, c, e in zip(fits, Xt, yt, strict=True)]
    return float(np.concatenate(squares).mean())


def peers(run: Runner) -> None:
    alone = run(ridge_error, [(k,) for k in range(SPLITS)])
    said("school, ridge of each school alone, no privacy", mse=round(float(np.mean(alone)), 5))
    settings = [
        (epsilon, rate, lam)
        for epsilon in (*EPSILONS, None)
        for lambdas in PEERS.values()
        for rate in RATES
        for lam in lambdas
    ]
    cases = [(*each, split) for each in settings for split in range(SPLITS)]
    errors = dict(zip(cases, run(peer_error, cases), strict=True))
    for epsilon in (*EPSILONS, None):
        for name, lambdas in PEERS.items():
            mine = [each for each in settings if each[0] == epsilon and each[2] in lambdas]
            means = [float(np.mean([errors[*each, k] for k in range(SPLITS)])) for each in mine]
            best = int(np.argmin(means))
            said(
                f"school, {name}, best on test rows",
                epsilon=epsilon,
                mse=round(means[best], 5),
                rate=mine[best][1],
                lam=mine[best][2],
            )


# --- generated tasks -----------------------------------------------------------------------------


FAMILIES: dict[str, Callable[[np.random.Generator], Any]] = {
    "few directions (S1)": lambda rng: low_rank_tasks(100, 200, 30, test_rows=100, rng=rng),
    "few features (S1)": lambda rng: group_sparse_tasks(100, 200, 30, test_rows=100, rng=rng),
    "a common mean, 30 tasks": lambda rng: related_tasks(30, 200, 10, test_rows=100, rng=rng),
    "a common mean, 100 tasks": lambda rng: related_tasks(100, 200, 10, test_rows=100, rng=rng),
}


def generated_errors(
    name: str, family: str, epsilon: float | None, draws: int
) -> tuple[float, float]:
    """Of public and home models, as a share of every task alone without privacy."""
    data = FAMILIES[family](np.random.default_rng(7))

    def error(predicted: Any) -> float:
        return float(np.mean((predicted - data.y_test) ** 2))

    alone = SingleTask(ranges=data.ranges).fit(data.X, data.y, task=data.task)
    single = error(alone.predict(data.X_test, task=data.task_test))
    budget, found = None if epsilon is None else Budget(epsilon), []
    for draw in range(1 if epsilon is None else draws):
        model = silos(name, budget, data.ranges, draw)
        model.fit(data.X, data.y, task=data.task)
        public = model.predict(data.X_test, task=data.task_test)
        home = model.predict_at_home(data.X_test, task=data.task_test)
        found.append([error(public) / single, error(home) / single])
    public, home = np.mean(found, axis=0)
    return float(public), float(home)


def synthetic(run: Runner, draws: int) -> None:
    """200 rows a task."""
    cases = list(product(LEARNERS, FAMILIES, (0.5, 1.0, 3.0, 8.0, None), [draws]))
    errors = run(generated_errors, cases)
    for (name, family, epsilon, _), (public, home) in zip(cases, errors, strict=True):
        found = {"public": round(public, 3), "home": round(home, 3)}
        said(f"200 rows a task, {family}, {name}", epsilon=epsilon, **found)


# --- HAR, with networks --------------------------------------------------------------------------


def windows(own_scale: bool) -> tuple[Any, ...]:
    """Half of each person's windows to learn from, the other half to test on."""
    data = load_har()
    people = np.unique(data.task)
    X, public = data.X.astype(np.float64), np.isin(data.task, people[:VOLUNTEERS])
    X = (X - X[public].mean(0)) / (X[public].std(0) + 1e-6)
    train, test = np.zeros(len(X), dtype=bool), ~public
    for place, label in enumerate(people[VOLUNTEERS:]):
        rng = np.random.default_rng([HALVES, place])
        mine = rng.permutation(np.flatnonzero(data.task == label))
        learned = mine[: len(mine) // 2]
        train[learned], test[learned] = True, False
        if own_scale:
            X[mine] = (X[mine] - X[learned].mean(0)) / (X[learned].std(0) + 1e-6)
    X = np.clip(X, -5, 5).astype(np.float32)
    return X[train], data.y[train], data.task[train], X[test], data.y[test], data.task[test]


def har_scores(seed: int, own_scale: bool = False, **settings: Any) -> tuple[float, float]:
    """Accuracy of public and home models, the mean over people."""
    import torch

    from tacit.neural import FederatedMTL

    torch.manual_seed(seed)
    module = torch.nn.Sequential(
        torch.nn.Linear(186, 100), torch.nn.ReLU(), torch.nn.Linear(100, 6)
    )
    settings |= {"noise": "simulated", "random_state": seed, "ledger": Ledger.in_memory()}
    X, y, task, Xt, yt, tt = windows(own_scale)
    model = FederatedMTL(module, **settings).fit(X, y, task=task)
    right = [each == yt for each in (model.predict(Xt, tt), model.predict_at_home(Xt, tt))]
    public, home = (float(np.mean([r[tt == k].mean() for k in np.unique(tt)])) for r in right)
    return public, home


def har(seeds: int) -> None:
    people: dict[str, Any] = {"unit": "example"}
    nobody = people | {"budget": Budget(1e-4)}  # so little that no round is run: each by itself
    cases: dict[str, dict[str, Any]] = {
        "single": nobody | {"own_scale": True},
        "single, as all others are scaled": nobody,
        "eps 2": people | {"budget": Budget(2.0)},
        "eps 8": people | {"budget": Budget(8.0)},
        "eps 8, MR-MTL": people | {"budget": Budget(8.0), "method": "mtl", "pull": 1.0},
        "no privacy": {},
    }
    for name, settings in cases.items():
        found = np.array([har_scores(seed, **settings) for seed in range(seeds)])
        (public, home), spread = found.mean(axis=0), found.std(axis=0)
        said(
            f"har, {name}",
            public=round(float(public), 4),
            home=round(float(home), 4),
            sd=[round(float(s), 4) for s in spread],
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=4, help="fits per split and ε, new noise each")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--only", nargs="+", default=["school", "peers", "synthetic"])
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyWarning)  # δ is theirs, and not below 1/12,000

    def run(work: Callable[..., Any], cases: Sequence[tuple[Any, ...]]) -> list[Any]:
        with ProcessPoolExecutor(arguments.jobs) as pool:
            return list(pool.map(work, *zip(*cases, strict=True)))

    if "school" in arguments.only:
        school(run, arguments.draws)
    if "peers" in arguments.only:
        peers(run)
    if "synthetic" in arguments.only:
        synthetic(run, arguments.draws)
    if "har" in arguments.only:
        har(seeds=3)


if __name__ == "__main__":
    main()
