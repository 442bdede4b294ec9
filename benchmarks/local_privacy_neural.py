"""Reports through learned encoders (S4 Section 5, A.8, A.11): published, its benchmarks, ours.

    python benchmarks/local_privacy_neural.py [--only breast-cancer] [--epsilons 5] [--methods ours]
        [--as-printed]

One JSON line per case, ε and seed: expected task loss on the test rows, and seconds of training
(wall and processor).
70/30 split; rows and target scaled by the fit rows. As published: Laplace with the fit rows'
sensitivity, Z and η of S4 (its ε is a claim); ours: δ = 0, mechanism and Z chosen by the library
from the fit rows. ``--as-printed``: the published forms train for 2,000 epochs at rate 0.001, as S4
has it, and not for a tenth of them at ten times the rate. Without data in TACIT_DATA only breast
cancer runs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer
from torch import nn

from tacit.arrays import Array
from tacit.datasets import load_household_power, load_mnist_by_writer, load_real_estate
from tacit.encoders.base import Strategy
from tacit.encoders.neural import TaskAwareEncoder
from tacit.encoders.neural.task import LOSSES
from tacit.privacy.budget import Budget

Loss = Literal["squared", "logistic", "cross-entropy"]
REPORTS = 50_000  # on the test rows together
EPOCHS, STEPS = 2000, 15  # S4 Table 1 and A.8
DIGITS = 20_000  # of MNIST, so that every case trains on two cores in minutes


@dataclass(frozen=True)
class Case:
    """One experiment of S4."""

    load: Callable[[], tuple[Array, NDArray[Any] | None]]
    task: Callable[[Array, Any, int], nn.Module]
    loss: Loss
    epsilons: tuple[float, ...]
    dimensions: int  # Z, as published
    eta: float
    hidden: int | None
    epochs: int  # of STEPS steps, as published
    divisor: float = 1.0


def household() -> tuple[Array, None]:
    return load_household_power().X / 6.561, None


def houses() -> tuple[Array, Array]:
    data = load_real_estate()
    return data.X, data.y


def tumours() -> tuple[Array, Array]:
    data = load_breast_cancer()
    return data.data, data.target.astype(np.float64)


def digits() -> tuple[Array, NDArray[Any]]:
    data = load_mnist_by_writer().train
    chosen = np.random.default_rng(0).permutation(len(data.X))[:DIGITS]
    return data.X[chosen].reshape(DIGITS, -1) / 255.0, data.y[chosen]


def day_and_night(X: Array, y: Any, seed: int) -> nn.Module:
    """S4 Eq. 15: hours 9 to 20 count twice."""
    task = nn.Linear(24, 24, bias=False)
    weights = torch.ones(24)
    weights[8:20] = 2.0
    task.weight.data = torch.diag(weights)
    return task


def hidden_task(X: Array, y: Array, seed: int) -> nn.Module:
    """One hidden layer of 1.5 n units; the output is linear (a ReLU there has no gradient)."""
    n = X.shape[1]
    layers = nn.Sequential(nn.Linear(n, 3 * n // 2), nn.ReLU(), nn.Linear(3 * n // 2, 1))
    loss: Loss = "logistic" if set(np.unique(y)) == {0.0, 1.0} else "squared"
    return trained(layers, X, y[:, None], loss, seed, steps=1500, rate=1e-2)


def linear_task(X: Array, y: Any, seed: int) -> nn.Module:
    return trained(nn.Linear(X.shape[1], 10), X, y, "cross-entropy", seed, steps=300, rate=1e-2)


def trained(
    module: nn.Module, X: Array, y: Any, loss: Loss, seed: int, *, steps: int, rate: float
) -> nn.Module:
    """The task as its owner would have it, on the fit rows."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5, generator=generator)
    kind = torch.int64 if loss == "cross-entropy" else torch.float32
    rows, wanted = torch.tensor(X, dtype=torch.float32), torch.tensor(y, dtype=kind)
    optimizer = torch.optim.Adam(module.parameters(), lr=rate, weight_decay=1e-4)
    for _ in range(steps):
        some = torch.randint(len(rows), (min(1024, len(rows)),), generator=generator)
        optimizer.zero_grad()
        value = LOSSES[loss](module(rows[some]), wanted[some])
        value.backward()  # type: ignore[no-untyped-call] # torch leaves this one untyped
        optimizer.step()
    return module.eval()


CASES = {
    "household-power": Case(
        household, day_and_night, "squared", (5, 10, 20), 3, 0.2, None, 200, 24.0
    ),
    "real-estate": Case(houses, hidden_task, "squared", (1, 2, 5, 10, 20), 3, 0.2, None, 200),
    "breast-cancer": Case(tumours, hidden_task, "logistic", (5, 10, 20), 3, 0.001, 30, 200),
    "mnist": Case(digits, linear_task, "cross-entropy", (5, 10, 20), 10, 0.001, None, 40),
}

PUBLISHED: dict[str, Strategy] = {
    "task_agnostic": "task-agnostic",
    "privacy_agnostic": "privacy-agnostic",
    "published": "task-aware",
}
METHODS = [*PUBLISHED, "ours"]


def split(case: Case, seed: int) -> tuple[Array, Any, Array, Any]:
    """70/30; features and a real target scaled to [0, 1] by the fit rows."""
    X, y = case.load()
    order = np.random.default_rng(seed).permutation(len(X))
    fit, test = np.split(order, [int(0.7 * len(X))])
    if case.task is hidden_task:
        low, high = X[fit].min(0), X[fit].max(0)
        X = (X - low) / np.where(high > low, high - low, 1.0)
    if y is None:
        return X[fit], None, X[test], None
    if case.loss == "squared":
        y = (y - y[fit].min()) / np.ptp(y[fit])
    return X[fit], y[fit], X[test], y[test]


def encoders(
    case: Case, epsilon: float, seed: int, *, as_printed: bool
) -> dict[str, TaskAwareEncoder]:
    """The three of S4 as published, and ours with the library's defaults."""
    budget = Budget(epsilon, 0.0)
    every: dict[str, Any] = {
        "hidden": case.hidden,
        "loss": case.loss,
        "noise": "simulated",
        "random_state": seed,
    }
    found = {
        name: TaskAwareEncoder(
            budget,
            strategy=strategy,
            dimensions=case.dimensions,
            regularization=case.eta,
            epochs=EPOCHS if as_printed else case.epochs,
            steps=STEPS,
            learning_rate=1e-3 if as_printed else 1e-2,
            as_published=True,
            **every,
        )
        for name, strategy in PUBLISHED.items()
    }
    return found | {"ours": TaskAwareEncoder(budget, **every)}


def test_loss(case: Case, encoder: TaskAwareEncoder, task: nn.Module, X: Array, y: Any) -> float:
    """E_w l on rows that nobody has seen, divided as the paper does."""
    with torch.no_grad():
        exact = task(torch.tensor(X, dtype=torch.float32))
        kind = torch.int64 if case.loss == "cross-entropy" else torch.float32
        wanted = exact if y is None else torch.tensor(y, dtype=kind)
        wanted = wanted[:, None] if wanted.ndim < exact.ndim and kind.is_floating_point else wanted
        losses = []
        for _ in range(max(1, REPORTS // len(X))):
            estimates = encoder.inverse_transform(encoder.transform(X))
            answers = task(torch.tensor(estimates, dtype=torch.float32))
            losses.append(float(LOSSES[case.loss](answers, wanted)))
    return float(np.mean(losses)) / case.divisor


def measured(
    name: str, epsilon: float, seed: int, methods: list[str], *, as_printed: bool
) -> dict[str, Any]:
    """One line."""
    case = CASES[name]
    X, y, X_test, y_test = split(case, seed)
    task = case.task(X, y, seed)
    loss, wall, processor = {}, {}, {}
    line: dict[str, Any] = {"case": name, "epsilon": epsilon, "seed": seed}
    for label in methods:
        encoder = encoders(case, epsilon, seed, as_printed=as_printed)[label]
        start, busy = time.perf_counter(), time.process_time()
        encoder.fit(X, y, target=task)
        wall[label] = round(time.perf_counter() - start, 1)
        processor[label] = round(time.process_time() - busy, 1)
        loss[label] = round(test_loss(case, encoder, task, X_test, y_test), 5)
        if label == "ours":
            line |= {"Z": encoder.dimensions_, "mechanism": type(encoder.mechanism_).__name__}
    return line | {"loss": loss, "seconds": wall, "processor_seconds": processor}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=[*CASES])
    parser.add_argument("--epsilons", type=float, nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--as-printed", action="store_true")
    asked = parser.parse_args()
    for name in [asked.only] if asked.only else CASES:
        for epsilon in asked.epsilons or CASES[name].epsilons:
            for seed in asked.seeds:
                line = measured(name, epsilon, seed, asked.methods, as_printed=asked.as_printed)
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
