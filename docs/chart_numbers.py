"""The numbers of the book's three charts: what the tutorials' own code measures."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

import tacit
from tacit.datasets import related_tasks

Numbers = list[tuple[str, float, bool]]  # name, number, is it ours


def schools() -> Numbers:
    """docs/tutorials/schools.md, with several budgets."""
    rng = np.random.default_rng(0)
    data = related_tasks(200, rows=15, n_features=8, spread=0.7, test_rows=50, rng=rng)
    ranges = data.ranges
    learners = [
        ("alone", tacit.SingleTask(ranges=ranges), False),
        ("one model for all", tacit.Pooled(ranges=ranges), False),
        *((f"together, ε = {e:g}", shared(tacit.Budget(e), ranges), True) for e in (0.5, 1, 3)),
        ("together, no privacy", tacit.SharedPrior(ranges=ranges), True),
    ]
    return [
        (name, score(learner.fit(data.X, data.y, task=data.task), data), ours)
        for name, learner, ours in learners
    ]


def shared(budget: tacit.Budget, ranges: object) -> tacit.SharedPrior:
    """A private learner whose picture comes out the same again."""
    return tacit.SharedPrior(budget=budget, ranges=ranges, noise="simulated", random_state=0)


def score(model, data) -> float:  # any fitted learner, and generated data
    """R² on rows that nobody learned from."""
    return float(model.score(data.X_test, data.y_test, task=data.task_test))


def phones() -> Numbers:
    """docs/tutorials/phones.md, with several budgets."""
    from torch import nn

    from tacit.neural import FederatedMTL

    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    mine, new = order[:900], order[900:]
    phone, phone_new = np.arange(900) % 60, np.arange(len(new)) % 60

    def accuracy(epsilon: float) -> float:
        net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
        budget = tacit.Budget(epsilon, 1e-3, neighbours="zero-out")
        model = FederatedMTL(net, budget=budget, noise="simulated", random_state=0)
        model.fit(X[mine] / 16, y[mine], task=phone)
        return float(model.score(X[new] / 16, y[new], task=phone_new))

    return [
        ("alone (no round runs)", accuracy(0.01), False),
        *((f"together, ε = {e:g}", accuracy(e), True) for e in (2, 8, 32)),
    ]


def devices() -> Numbers:
    """docs/tutorials/devices.md, with several budgets."""
    hours = np.arange(24)
    peaks = np.stack([np.exp(-(((hours - at) / 3.0) ** 2)) for at in (12, 8, 19)])
    rng = np.random.default_rng(0)
    public, households = (
        rng.gamma(4.0, 0.25, (2000, 3)) @ peaks + rng.normal(0, 0.2, (2000, 24)) for _ in range(2)
    )
    sums = np.repeat(np.eye(3), 8, axis=1)
    rows: Numbers = []
    for epsilon in (4.0, 8.0, 16.0):
        for strategy in ("task-agnostic", "task-aware"):
            encoder = tacit.TaskAwareEncoder(tacit.Budget(epsilon, 0.0), strategy=strategy)
            decoded = encoder.fit(public, target=sums).inverse_transform(
                encoder.transform(households)
            )
            error = float(np.mean(((decoded - households) @ sums.T) ** 2))
            rows.append((f"{strategy}, ε = {epsilon:g}", error, strategy == "task-aware"))
    return rows
