"""Tasks, folders and measurements that the tests of the pages share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tacit.datasets import related_tasks
from tacit.datasets.generators import Generated
from tacit.report.local_view import LocalView, Score
from tacit.tasks import Schema, TaskSet, as_schema


def example(seed: int = 0, n_tasks: int = 30, loss: Any = "squared") -> Generated:
    """Tasks of five to fifteen rows, four features."""
    rng = np.random.default_rng(seed)
    return related_tasks(n_tasks, (5, 15), 4, test_rows=6, loss=loss, rng=rng)


def task_sets(data: Generated, ranges: Any = None) -> tuple[TaskSet, TaskSet, Schema]:
    """Training rows, held-out rows, and the schema that scaled both."""
    names = [f"x{j}" for j in range(data.X.shape[1])]
    schema = as_schema(data.ranges if ranges is None else ranges, names)
    rows = (data.X, data.y, data.task), (data.X_test, data.y_test, data.task_test)
    training, held_out = (TaskSet.from_arrays(*part, schema=schema) for part in rows)
    return training, held_out, schema


def save_with_facts(model: Any, folder: Path, column: str = "school_id") -> Path:
    """What `tacit fit` writes, without the measurements."""
    model.certify(
        tasks={"column": column, "count": len(model.tasks_)},
        target="score",
        budget={"epsilon": 1.0, "delta": 1e-5, "neighbours": "replace"},
    )
    model.save(folder)
    return folder


def crowd(n_tasks: int) -> LocalView:
    """Measurements of many tasks, every hundredth without held-out rows."""
    rng = np.random.default_rng(1)
    alone, gain = rng.gamma(9, 0.1, n_tasks), rng.normal(0.1, 0.1, n_tasks)
    errors = [tuple(map(float, e)) for e in (np.abs(alone - gain), alone)]
    missing = [tuple(None if i % 100 == 0 else e for i, e in enumerate(es)) for es in errors]
    scores = {n: Score(0.5, None, e) for n, e in zip(("together", "alone"), missing, strict=True)}
    labels = tuple(f"secret-label-{i}" for i in range(n_tasks))
    rows = (200,) * n_tasks
    return LocalView("MeanRegularized", "squared", 1.0, labels, rows, rows, scores)
