"""The demo: a hundred related tasks with few rows each, alone, pooled, and learned privately."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit.datasets import related_tasks
from tacit.datasets.generators import Generated
from tacit.learners.mean_regularized import MeanRegularized
from tacit.learners.pooled import Pooled
from tacit.learners.single_task import SingleTask
from tacit.metrics import nmse, share_gained
from tacit.privacy.budget import Budget
from tacit.report.bars import bar_chart

EPSILONS = (0.1, 1.0, 10.0)
SHOWN = 1.0  # the ε whose guarantee is printed in full


@dataclass(frozen=True)
class Row:
    """One line of the demo's table."""

    learner: str
    epsilon: float | None  # None: no privacy
    nmse: float
    gained: float | None  # share of the tasks with a smaller error than alone; None: alone itself


@dataclass(frozen=True)
class Outcome:
    """What the demo shows."""

    rows: tuple[Row, ...]
    guarantee: str  # of the run at SHOWN, in full
    certificate: dict[str, Any]


def demo_data(seed: int = 7) -> Generated:
    """100 tasks of 5 to 25 rows, 10 features, drawn around a common model."""
    return related_tasks(100, (5, 25), 10, test_rows=100, rng=np.random.default_rng(seed))


def run_demo(progress: Callable[[str], None] = lambda _: None) -> Outcome:
    """Fits every learner on the same rows and scores it on the same test rows."""
    data = demo_data()
    rows: list[Row] = []
    alone: Any = None
    shown: MeanRegularized | None = None
    for name, epsilon, model in learners(data):
        model.fit(data.X, data.y, task=data.task)
        predicted = model.predict(data.X_test, task=data.task_test)
        errors = np.bincount(data.task_test, (predicted - data.y_test) ** 2)
        gained = None if alone is None else share_gained(alone, errors)
        alone = errors if alone is None else alone
        rows.append(Row(name, epsilon, nmse(data.y_test, predicted), gained))
        if epsilon == SHOWN:
            shown = model
        progress(name)
    assert shown is not None
    return Outcome(tuple(rows), str(shown.guarantee_), shown.certificate())


def learners(data: Generated) -> Iterator[tuple[str, float | None, Any]]:
    """The table's lines: name, ε and the learner."""
    yield "each task alone", None, SingleTask(ranges=data.ranges)
    yield "one model for all", None, Pooled(ranges=data.ranges)
    for epsilon in EPSILONS:
        model = MeanRegularized(budget=Budget(epsilon), ranges=data.ranges)
        yield f"together, private, ε = {epsilon:g}", epsilon, model
    yield "together, no privacy", None, MeanRegularized(ranges=data.ranges)


def write_demo(outcome: Outcome, directory: Path) -> list[Path]:
    """results.json, certificate.json and demo.svg."""
    directory.mkdir(parents=True, exist_ok=True)
    rows = [asdict(row) for row in outcome.rows]
    bars = [(row.learner, row.nmse) for row in outcome.rows]
    title = "Error on new rows, 100 tasks of 5 to 25 rows (nMSE, lower is better)"
    files = {
        "results.json": json.dumps(rows, indent=2, ensure_ascii=False),
        "certificate.json": json.dumps(outcome.certificate, indent=2, ensure_ascii=False),
        "demo.svg": bar_chart(title, bars),
    }
    for name, text in files.items():
        (directory / name).write_text(text + "\n", encoding="utf-8")
    return [directory / name for name in files]
