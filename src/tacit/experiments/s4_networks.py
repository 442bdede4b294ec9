"""S4's learned encoders (Section 4.2, A.8 to A.11): a task as its owner trains it, then reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

from tacit.arrays import FloatArray
from tacit.datasets import load_mnist_by_writer, load_real_estate
from tacit.encoders.neural import TaskAwareEncoder
from tacit.encoders.neural.task import LOSSES, TaskLoss
from tacit.experiments.declared import Point
from tacit.experiments.s4_measures import AWARE, Method
from tacit.privacy.budget import Budget

REPORTS = 20_000  # on the test rows together
STEPS = 15  # to an epoch, A.8
BATCH = 1024  # rows to a step: all of them, but of MNIST


@dataclass(frozen=True)
class Application:
    """An application: its rows, the task's loss, and the encoder's shape and η (A.8)."""

    load: Callable[[int | None], tuple[FloatArray, FloatArray]]
    loss: TaskLoss
    eta: float
    hidden: int | None = None
    activation: str = "sigmoid"


@dataclass(frozen=True)
class Split:
    """Rows to fit on and to test on, and the task trained on the former."""

    case: Application
    X: FloatArray
    y: FloatArray
    X_test: FloatArray
    y_test: FloatArray
    task: nn.Module


def task_loss(
    seed: int,
    case: str,
    method: Method | Literal["exact rows"],
    epsilon: float,
    dimensions: int,
    epochs: int,
    rate: float,
    rows: int | None,
    by_width: bool = False,
) -> Iterator[Point]:
    """E l(f(x̂), y) on the test rows, over the noise of many reports."""
    split = _split(CASES[case], rows, seed)
    curve = _named(method, dimensions) if by_width else method
    if method == "exact rows":
        yield Point(curve, None, _loss(split, split.X_test))
        return
    encoder = _fitted(split, method, epsilon, dimensions, (epochs, rate), seed)
    repeats = max(1, REPORTS // len(split.X_test))
    losses = [
        _loss(split, encoder.inverse_transform(encoder.transform(split.X_test)))
        for _ in range(repeats)
    ]
    yield Point(curve, 1 / epsilon, float(np.mean(losses)))


def _named(method: Method | Literal["exact rows"], dimensions: int) -> str:
    """By Z; nobody is named where it is the task-aware encoder."""
    return f"Z = {dimensions}" if method == AWARE else f"{method}, Z = {dimensions}"


def timed(seed: int, case: str, method: Method, epochs: int, rate: float) -> Iterator[Point]:
    """What Table 1 says of an application, and the seconds that training took here."""
    split = _split(CASES[case], None, seed)
    start = time.perf_counter()
    _fitted(split, method, 10.0, 3, (epochs, rate), seed)
    yield Point(method, "samples", float(len(split.X) + len(split.X_test)), case)
    yield Point(method, "epochs", float(epochs), case)
    yield Point(method, "seconds", time.perf_counter() - start, case)


def _fitted(
    split: Split,
    method: Method,
    epsilon: float,
    dimensions: int,
    work: tuple[int, float],
    seed: int,
) -> TaskAwareEncoder:
    """``work``: epochs, and the rate of Adam, as published."""
    case, budget = split.case, Budget(epsilon, 0.0)
    common: dict[str, Any] = {
        "hidden": case.hidden,
        "activation": case.activation,
        "loss": case.loss,
        "noise": "simulated",
        "random_state": seed,
    }
    if method == "tacit":
        encoder = TaskAwareEncoder(budget, **common)
    else:
        encoder = TaskAwareEncoder(
            budget,
            strategy=method,
            dimensions=dimensions,
            regularization=case.eta,
            epochs=work[0],
            steps=STEPS,
            learning_rate=work[1],
            batch_size=BATCH,
            as_published=True,
            **common,
        )
    return encoder.fit(split.X, split.y, target=split.task)


def _loss(split: Split, rows: FloatArray) -> float:
    with torch.no_grad():
        answers = split.task(torch.tensor(rows, dtype=torch.float32))
        return float(LOSSES[split.case.loss](answers, _wanted(split.y_test, split.case.loss)))


def _wanted(y: FloatArray, loss: TaskLoss) -> torch.Tensor:
    if loss == "cross-entropy":
        return torch.tensor(y, dtype=torch.int64)
    return torch.tensor(y, dtype=torch.float32)[:, None]


def _split(case: Application, rows: int | None, seed: int) -> Split:
    """70/30; features and a real target scaled to [0, 1] by the fit rows."""
    X, y = case.load(rows)
    fit, test = np.split(np.random.default_rng(seed).permutation(len(X)), [int(0.7 * len(X))])
    if case.loss != "cross-entropy":  # pixels are in [0, 1] as they are
        low, high = X[fit].min(0), X[fit].max(0)
        X = (X - low) / np.where(high > low, high - low, 1.0)
    if case.loss == "squared":
        y = (y - y[fit].min()) / np.ptp(y[fit])
    return Split(case, X[fit], y[fit], X[test], y[test], _task(X[fit], y[fit], case.loss, seed))


def _task(X: FloatArray, y: FloatArray, loss: TaskLoss, seed: int) -> nn.Module:
    """f: one hidden layer of 1.5n ReLUs, or a linear classifier of digits.

    A.8 ends f in another ReLU, which has no gradient where it is zero; here it ends linearly.
    """
    n = X.shape[1]
    generator = torch.Generator().manual_seed(seed)
    module: nn.Module = nn.Linear(n, 10)
    if loss != "cross-entropy":
        module = nn.Sequential(nn.Linear(n, 3 * n // 2), nn.ReLU(), nn.Linear(3 * n // 2, 1))
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5, generator=generator)
    rows, wanted = torch.tensor(X, dtype=torch.float32), _wanted(y, loss)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2, weight_decay=1e-4)
    for _ in range(300 if loss == "cross-entropy" else 1500):
        some = torch.randint(len(rows), (min(1024, len(rows)),), generator=generator)
        optimizer.zero_grad()
        value = LOSSES[loss](module(rows[some]), wanted[some])
        value.backward()  # type: ignore[no-untyped-call] # torch leaves this one untyped
        optimizer.step()
    return module.eval()


def _houses(rows: int | None) -> tuple[FloatArray, FloatArray]:
    data = load_real_estate()
    return data.X[:rows], data.y[:rows]


def _tumours(rows: int | None) -> tuple[FloatArray, FloatArray]:
    data = load_breast_cancer()
    return data.data[:rows], data.target[:rows].astype(np.float64)


def _digits(rows: int | None) -> tuple[FloatArray, FloatArray]:
    """All 70,000 of MNIST, its own two parts together."""
    data = load_mnist_by_writer()
    X = np.concatenate([data.train.X, data.test.X])
    y = np.concatenate([data.train.y, data.test.y])
    chosen = np.random.default_rng(0).permutation(len(X))[:rows]
    return X[chosen].reshape(len(chosen), -1) / 255.0, y[chosen].astype(np.float64)


CASES = {
    "real-estate": Application(_houses, "squared", 0.2),
    "real-estate-hidden": Application(_houses, "squared", 0.001, hidden=6, activation="relu"),
    "breast-cancer": Application(_tumours, "logistic", 0.001, hidden=30),
    "mnist": Application(_digits, "cross-entropy", 0.001),
}
