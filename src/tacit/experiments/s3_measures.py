"""S3's runs: the objective and the errors of the first five tasks by iteration.

S3 does not say how its synthetic tasks were drawn, and ADNI is not public: here models of rank 3 on
unit rows, targets of unit scale, and for ADNI a generator of its shape. As published with C₁ = 1,
the best the paper's algorithm can have on unit rows (its noise grows with C₁C₂).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from tacit.arrays import Array, FloatArray
from tacit.datasets import adni_shaped_tasks, low_rank_tasks
from tacit.datasets.generators import Generated
from tacit.experiments.declared import Point
from tacit.experiments.rows import Rows
from tacit.learners.async_proximal.estimator import AsyncProximal
from tacit.learners.async_proximal.printed import LEVEL, Printed
from tacit.learners.single_task import SingleTask
from tacit.linear.losses import LossName
from tacit.privacy.budget import Budget

OBJECTIVE, RANK = "objective", "rank of P"
TASKS = tuple(f"task {t}" for t in range(1, 6))
TRAINED = 0.3  # of the rows of each task
DELTA = 1e-5
LINES = 20  # of a trajectory
UNIT = 20.0  # the standard deviation of an entry of the generated models

Name = Literal["synthetic", "ADNI-shaped"]


class Tasks3(NamedTuple):
    """Rows to train on and to test on."""

    train: Rows
    test: Rows


def trajectory(
    seed: int,
    data: Name,
    loss: LossName,
    learner: str,
    iterations: int,
    step: float,
    threshold: float,
    epsilons: tuple[float, float] | None = None,
) -> Iterator[Point]:
    """Objective of Eq. (1), rank of P and test errors of the first five tasks, by iteration."""
    tasks = _tasks(data, loss, seed)
    if learner == "single-task":
        yield from _levels(tasks, loss, learner, SingleTask(loss=loss, fit_intercept=False))
    elif learner == "as published":
        settings = Printed(
            own_step=step,
            shared_step=step,
            threshold=threshold,
            row_norm=1.0,
            epsilons=epsilons,
            record_every=max(1, iterations // LINES),
        )
        yield from _published(tasks, loss, settings, iterations, seed)
    else:
        assert epsilons is not None
        nominal = sum(epsilons)
        total = nominal if learner == "tacit, ε in all" else iterations * nominal
        model = AsyncProximal(
            loss=loss,
            budget=Budget(total, DELTA),
            noise="simulated",
            random_state=seed,
            fit_intercept=False,
        )
        yield from _levels(tasks, loss, f"{learner}, ε = {epsilons[1]:g}", model)


def _published(
    tasks: Tasks3, loss: LossName, settings: Printed, iterations: int, seed: int
) -> Iterator[Point]:
    private = settings.epsilons is not None
    model = AsyncProximal(
        loss=loss,
        budget=settings.claimed(iterations) if private else None,
        releases=iterations,
        as_published=settings,
        noise="simulated",
        random_state=seed,
        fit_intercept=False,
    )
    tasks.train.given_to(model)
    curve = f"as published, ε = {settings.epsilons[1]:g}" if settings.epsilons else "no noise"
    predicted = model.staged_predict(tasks.test.X, tasks.test.task)
    for line, answers in zip(model.private_history_, predicted, strict=True):
        yield Point(curve, float(line["iteration"]), line["objective"], OBJECTIVE)
        yield Point(curve, float(line["iteration"]), float(line["rank"]), RANK)
        yield from _errors(curve, line["iteration"], answers, tasks, loss)


def _levels(tasks: Tasks3, loss: LossName, curve: str, model: Any) -> Iterator[Point]:
    """What has no trajectory: the same at every iteration. A node's model is the one it keeps at
    home, as S3's p + q is."""
    tasks.train.given_to(model)
    W = model.home_coef_ if isinstance(model, AsyncProximal) else model.coef_
    yield Point(curve, None, _objective(tasks, loss, W), OBJECTIVE)
    eta = _scores(tasks.test, W)
    answers = np.sign(eta) if loss == "logistic" else eta
    yield from _errors(curve, None, answers, tasks, loss)


def _errors(
    curve: str, x: float | None, answers: Array, tasks: Tasks3, loss: LossName
) -> Iterator[Point]:
    """Error rate, or mean squared error, of the first five tasks."""
    y, task = tasks.test.y, tasks.test.task
    wrong = answers != y if loss == "logistic" else (answers - y) ** 2
    for t, panel in enumerate(TASKS):
        yield Point(curve, x, float(np.mean(wrong[task == t])), panel)


def _objective(tasks: Tasks3, loss: LossName, W: FloatArray) -> float:
    """Eq. (1), in S3's units: Σ_t mean ℓ + λ‖W‖_*."""
    _, y, task = tasks.train
    eta = _scores(tasks.train, W)
    rows = np.logaddexp(0, -y * eta) if loss == "logistic" else (eta - y) ** 2
    means = np.bincount(task, rows) / np.bincount(task)
    return float(means.sum() + LEVEL[loss] * np.linalg.norm(W, "nuc"))


def _scores(rows: Rows, W: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("nd,nd->n", rows.X, W.T[rows.task]))


def shape(seed: int, data: Name) -> Iterator[Point]:
    """The lines of Table 1."""
    drawn = _drawn(data, seed)
    sizes = np.bincount(drawn.task)
    yield Point(data, "tasks", float(len(sizes)))
    yield Point(data, "fewest samples", float(sizes.min()))
    yield Point(data, "most samples", float(sizes.max()))
    yield Point(data, "dimensions", float(drawn.X.shape[1]))


def _drawn(data: Name, seed: int) -> Generated:
    rng = np.random.default_rng(seed)
    if data == "synthetic":
        return low_rank_tasks(20, 200, 28, rank=3, test_rows=0, rng=rng)
    return adni_shaped_tasks(rng=rng)


def _tasks(data: Name, loss: LossName, seed: int) -> Tasks3:
    drawn = _drawn(data, seed)
    y = np.sign(drawn.y) if loss == "logistic" else drawn.y / UNIT
    place = np.arange(len(y)) - np.searchsorted(drawn.task, drawn.task)  # rows are drawn at random
    train = place < np.ceil(TRAINED * np.bincount(drawn.task)[drawn.task])
    rows = Rows(drawn.X, y, drawn.task)
    return Tasks3(rows.some(train), rows.some(~train))
