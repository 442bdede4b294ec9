"""FederatedMTL with its defaults: what joining brings each client, against training alone.

    python benchmarks/federated_defaults.py [--device cuda] [--seeds 3] [--jobs 1] [--sets mnist]

One rule for all sets, nothing tuned here: ``FederatedMTL(net, budget=...)``, with secure noise,
zero-out neighbours and everything accounted; one hidden layer of 100, or none (``linear``).
``alone`` is the same call with a budget that buys no round. Accuracy on rows that no client trained
on, mean over clients; one JSON line for each set, ε and seed, then the table. Fits that share a GPU
(``--jobs``) tell nothing about times.

=============  ==========================  ==========================================  ==========
set            clients × training rows     test rows                                   δ
=============  ==========================  ==========================================  ==========
mnist          538 writers × 30            the writer's other digits                   1e-5
femnist        202 writers × about 21      a fixed quarter of each writer's            1e-5
har            30 subjects × 103           a fixed half of each subject's              1e-5
digits30/60/   30 × 29, 60 × 14, 100 × 8   the client's other half                     1e-5
100
searched       400 writers × 30            as in federated_utility.py, whose search    1/400
                                           chose settings for the same writers
linear         60 × 14 digits              as digits60, without a hidden layer         1e-5
linear62       femnist on 7 × 7 pixels     as femnist, without a hidden layer          1e-5
linear400      searched on 7 × 7 pixels    as searched, without a hidden layer         1/400
=============  ==========================  ==========================================  ==========

The constants behind the defaults were fixed on other rows: writers of MNIST's *test* part, the
other half of each subject of HAR, the other three quarters of FEMNIST (docs/federated.md). A
subject of HAR scales its features by its own training rows, at home.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from federated_utility import SCORED
from sklearn.datasets import load_digits
from torch import nn

from tacit import Budget
from tacit.neural import FederatedMTL

FIXED = 20260101
"""The seed that has always dealt rows for tuning and for testing: other seeds never mix them."""

ALONE = 1e-4
"""An ε that buys no round of these networks."""

Rows = tuple[Any, Any, Any]
"""X, y and whose each row is."""


@dataclass(frozen=True)
class Case:
    """A set, as a seed splits it, with a fresh network."""

    train: Rows
    test: Rows
    network: Any
    delta: float = 1e-5


def dealt(groups: list[Any], cut: Callable[[int], int], rng: np.random.Generator) -> list[Any]:
    """For each group its rows in random order, cut in two."""
    mixed = [rng.permutation(group) for group in groups]
    return [(rows[: cut(len(rows))], rows[cut(len(rows)) :]) for rows in mixed]


def taken(X: Any, y: Any, parts: list[Any]) -> Rows:
    """The rows of these parts, each a client's."""
    task = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    rows = np.concatenate(parts)
    return X[rows], y[rows], task


def by_task(task: Any, least: int) -> list[Any]:
    """The rows of each task that has at least so many."""
    groups = [np.flatnonzero(task == t) for t in np.unique(task)]
    return [group for group in groups if len(group) >= least]


def mlp(inputs: int, outputs: int, seed: int, hidden: int = 100) -> nn.Module:
    """One hidden layer, as PyTorch draws it."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def mnist(data: Path, seed: int) -> Case:
    """30 digits of each writer."""
    file = np.load(data / "mnist_by_writer.npz")
    X, y = file["X_train"].reshape(-1, 784) / np.float32(255), file["y_train"].astype(np.int64)
    parts = dealt(by_task(file["writer_train"], 40), lambda _: 30, np.random.default_rng(seed))
    train, test = (taken(X, y, list(half)) for half in zip(*parts, strict=True))
    return Case(train, test, mlp(784, 10, seed))


def searched(data: Path, seed: int, pool: int) -> Case:
    """The writers that docs/federated.md scores, on pixels averaged ``pool`` × ``pool``."""
    file = np.load(data / "mnist_by_writer.npz")
    side = 28 // pool
    pixels = file["X_train"].reshape(-1, side, pool, side, pool).mean((2, 4)) / 255
    X, y = pixels.reshape(-1, side * side).astype(np.float32), file["y_train"].astype(np.int64)
    names = file["writer_train"]
    chosen = np.random.default_rng(FIXED).permutation(np.unique(names))[:SCORED]
    groups = [np.flatnonzero(names == name) for name in chosen]
    parts = dealt(groups, lambda n: min(30, 3 * n // 4), np.random.default_rng(seed))
    train, test = (taken(X, y, list(half)) for half in zip(*parts, strict=True))
    return Case(train, test, mlp(side * side, 10, seed, hidden=64), delta=1 / SCORED)


def femnist(data: Path, seed: int, pool: int = 1) -> Case:
    """Three quarters of each writer's characters; the last quarter is always the same."""
    file = np.load(data / "femnist_pmtl_testpart.npz")
    side = 28 // pool
    pixels = file["X"].reshape(-1, side, pool, side, pool).mean((2, 4)) / 255
    X, y = 1 - pixels.reshape(-1, side * side).astype(np.float32), file["y"].astype(np.int64)
    parts = dealt(by_task(file["task"], 8), lambda n: int(n * 0.75), np.random.default_rng(FIXED))
    train, test = (taken(X, y, list(half)) for half in zip(*parts, strict=True))
    return Case(train, test, mlp(side * side, 62, seed))


def har(data: Path, seed: int) -> Case:
    """103 windows of each subject; half of all windows are only ever tested on."""
    file = np.load(data / "har_uci_features.npz")
    X, y = file["X"].astype(np.float64), file["y"].astype(np.int64)
    halves = dealt(by_task(file["task"], 8), lambda n: int(n * 0.5), np.random.default_rng(FIXED))
    rng, train, test = np.random.default_rng(seed), [], []
    for other, last in halves:
        mine = rng.permutation(other)[:103]
        centre, scale = X[mine].mean(0), X[mine].std(0) + 1e-6
        for rows in (mine, last):
            X[rows] = np.clip((X[rows] - centre) / scale, -5, 5)
        train.append(mine)
        test.append(last)
    return Case(taken(X, y, train), taken(X, y, test), mlp(X.shape[1], 6, seed))


def digits(clients: int, seed: int) -> Case:
    """scikit-learn's digits, dealt to so many clients; half of each client's are tested on."""
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    groups = np.array_split(rng.permutation(len(X)), clients)
    parts = dealt(groups, lambda n: n // 2, rng)
    train, test = (taken(X / 16, y, list(half)) for half in zip(*parts, strict=True))
    return Case(train, test, mlp(64, 10, seed))


def linear(found: Case, seed: int) -> Case:
    """The same without a hidden layer."""
    torch.manual_seed(seed)
    first, last = found.network[0], found.network[-1]
    return replace(found, network=nn.Linear(first.in_features, last.out_features))


EPSILONS: dict[str, tuple[float | None, ...]] = {
    "mnist": (ALONE, 0.5, 2.0, 8.0, None),
    "femnist": (ALONE, 0.5, 2.0, 8.0, None),
    "har": (ALONE, 0.5, 2.0, 8.0, None),
    "digits30": (ALONE, 0.5, 2.0, 8.0, None),
    "digits60": (ALONE, 0.5, 2.0, 8.0, None),
    "digits100": (ALONE, 0.5, 2.0, 8.0, None),
    "searched": (ALONE, 0.1, 0.8, 2.0),
    "linear": (ALONE, 0.5, 2.0),
    "linear62": (ALONE, 0.8, 4.0),
    "linear400": (ALONE, 0.1),
}


def case(name: str, epsilon: float | None, data: Path, seed: int) -> Case:
    """The set of that name; where noise is strong, ``searched`` offers fewer parameters, too."""
    if name == "searched":
        return searched(data, seed, 4 if epsilon == 0.1 else 2)
    if name.startswith("linear"):
        made = {"linear": partial(digits, 60), "linear62": partial(femnist, data, pool=4)}
        return linear(made.get(name, partial(searched, data, pool=4))(seed=seed), seed)
    if name.startswith("digits"):
        return digits(int(name.removeprefix("digits")), seed)
    return {"mnist": mnist, "femnist": femnist, "har": har}[name](data, seed)


def accuracy(model: FederatedMTL, test: Rows) -> float:
    """The mean over clients of the share of rows that each one's model gets right."""
    X, y, task = test
    right = model.predict(X, task=task) == y
    return float((np.bincount(task, right) / np.bincount(task)).mean())


def scored(name: str, epsilon: float | None, seed: int, data: Path, device: str) -> dict[str, Any]:
    """One fit with the defaults."""
    found = case(name, epsilon, data, seed)
    budget = None if epsilon is None else Budget(epsilon, found.delta, neighbours="zero-out")
    model, start = FederatedMTL(found.network, budget=budget, device=device), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that no round is run is what the line says
        model.fit(*found.train[:2], task=found.train[2])
    spent = time.perf_counter() - start
    assert epsilon != ALONE or model.rounds_ == 0
    return {
        "set": name,
        "epsilon": "alone" if epsilon == ALONE else epsilon,
        "seed": seed,
        "accuracy": accuracy(model, found.test),
        "rounds": model.rounds_,
        "spent": model.guarantee_.epsilon if budget is not None else None,
        "proven": model.guarantee_.proven,
        "home": model.private_home_,
        "seconds": spent,
    }


def lines(options: argparse.Namespace, data: Path) -> Iterator[dict[str, Any]]:
    """Each fit, printed when it is done."""
    asked = [
        (name, epsilon, seed)
        for name in options.sets
        for epsilon in EPSILONS[name]
        for seed in range(options.seeds)
    ]
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        each = [pool.submit(scored, *fit, data, options.device) for fit in asked]
        for done in as_completed(each):
            print(json.dumps(done.result()), flush=True)
            yield done.result()


def main() -> None:
    """All sets, then the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="fits at a time")
    parser.add_argument("--sets", nargs="+", default=list(EPSILONS), choices=list(EPSILONS))
    found: dict[tuple[str, Any], list[dict[str, Any]]] = {}
    for line in lines(parser.parse_args(), Path(os.environ["TACIT_DATA"])):
        found.setdefault((line["set"], line["epsilon"]), []).append(line)
    for (name, epsilon), each in found.items():
        values = [line["accuracy"] for line in each]
        rounds = each[0]["rounds"]
        print(f"{name:10} ε={epsilon!s:6} {np.mean(values):.4f} ± {np.std(values):.4f} T={rounds}")


if __name__ == "__main__":
    main()
