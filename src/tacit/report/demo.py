"""The demo: a hundred related tasks with few rows each, alone, pooled, and learned privately."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit import folder
from tacit.certificate import seal
from tacit.datasets import related_tasks
from tacit.datasets.generators import Generated
from tacit.learners.mean_regularized import MeanRegularized
from tacit.learners.pooled import Pooled
from tacit.learners.single_task import SingleTask
from tacit.metrics import nmse, share_gained
from tacit.privacy.budget import Budget
from tacit.privacy.ledger import Ledger
from tacit.privacy.release import new_run
from tacit.privacy.signing import signer_for
from tacit.report.local_view import EPSILONS as CURVE
from tacit.report.local_view import LocalView, measure, write_local
from tacit.report.pages import write_pages
from tacit.tasks import TaskSet, as_schema

EPSILONS = (0.1, 1.0, 10.0)
SHOWN = 1.0  # the ε whose guarantee is printed in full
STEPS = 7  # calls of progress: every learner, and the measurements


@dataclass(frozen=True)
class DemoRow:
    """One line of the demo's table."""

    learner: str
    epsilon: float | None  # None: no privacy
    nmse: float
    gained: float | None  # share of the tasks with a smaller error than alone; None: alone itself


@dataclass(frozen=True)
class DemoResult:
    """What the demo shows."""

    rows: tuple[DemoRow, ...]
    model: MeanRegularized  # the run at SHOWN
    view: LocalView  # of it

    @property
    def guarantee(self) -> str:
        """Of the run at SHOWN, in full."""
        return str(self.model.guarantee_)


def demo_data(seed: int = 7) -> Generated:
    """100 tasks of 5 to 25 rows, 10 features, drawn around a common model."""
    return related_tasks(100, (5, 25), 10, test_rows=100, rng=np.random.default_rng(seed))


def run_demo(
    progress: Callable[[str], None] = lambda _: None, directory: Path | None = None
) -> DemoResult:
    """Fits every learner on the same rows and scores it on the same test rows.

    The run at SHOWN is recorded in the directory's ledger, each time as a data set of its own.
    """
    data = demo_data()
    rows: list[DemoRow] = []
    alone: Any = None
    shown: MeanRegularized | None = None
    for name, epsilon, model in learners(data, _ledger(directory)):
        model.fit(data.X, data.y, task=data.task)
        predicted = model.predict(data.X_test, task=data.task_test)
        errors = np.bincount(data.task_test, (predicted - data.y_test) ** 2)
        gained = None if alone is None else share_gained(alone, errors)
        alone = errors if alone is None else alone
        rows.append(DemoRow(name, epsilon, nmse(data.y_test, predicted), gained))
        if epsilon == SHOWN:
            shown = model
        progress(name)
    assert shown is not None
    view = measured(shown, data)
    progress("the curve and the leakage")
    return DemoResult(tuple(rows), shown, view)


def learners(data: Generated, ledger: Ledger) -> Iterator[tuple[str, float | None, Any]]:
    """The table's lines: name, ε and the learner."""
    yield "each task alone", None, SingleTask(ranges=data.ranges)
    yield "one model for all", None, Pooled(ranges=data.ranges)
    for epsilon in EPSILONS:
        kept = ledger if epsilon == SHOWN else None
        model = MeanRegularized(budget=Budget(epsilon), ranges=data.ranges, ledger=kept)
        yield f"together, private, ε = {epsilon:g}", epsilon, model
    yield "together, no privacy", None, MeanRegularized(ranges=data.ranges)


def measured(model: MeanRegularized, data: Generated) -> LocalView:
    """What the trusted side sees of the run."""
    schema = as_schema(data.ranges, [f"x{j}" for j in range(data.X.shape[1])])
    training = TaskSet.from_arrays(data.X, data.y, data.task, schema=schema)
    held_out = TaskSet.from_arrays(data.X_test, data.y_test, data.task_test, schema=schema)
    return measure(model, training, held_out, schema, curve=True, epsilons=CURVE)


def write_demo(outcome: DemoResult, directory: Path) -> list[Path]:
    """A fitted folder with both pages, and results.json."""
    directory.mkdir(parents=True, exist_ok=True)
    outcome.model.certify(
        tasks={"column": "task", "count": len(outcome.model.tasks_)},
        target="y",
        data={"fingerprint": "", "how": "none: the demo's data are generated"},
        budget=asdict(Budget(SHOWN)),
    )
    outcome.model.save(directory)
    results = directory / "results.json"
    names = (folder.MODEL, folder.CERTIFICATE, folder.SEAL)
    files = [*(directory / name for name in names), results]
    folder.write_json(results, [asdict(row) for row in outcome.rows])
    files += _run_files(outcome.model, directory)
    files += [write_local(outcome.view, directory), *write_pages(directory)]
    ledger = outcome.model.ledger_
    seal(directory, signer_for(None if ledger is None else ledger.path))  # again, with the page
    return files


def _run_files(model: MeanRegularized, directory: Path) -> list[Path]:
    """run.json beside the ledger that recorded the run, as `tacit fit` leaves it."""
    ledger = directory / folder.LEDGER
    recorded = model.ledger_ is not None and model.ledger_.path == ledger.absolute()
    return [ledger, directory / folder.RUN] if recorded else []


def _ledger(directory: Path | None) -> Ledger:
    if directory is None:
        return Ledger.in_memory()
    directory.mkdir(parents=True, exist_ok=True)
    return Ledger(directory / folder.LEDGER, dataset=f"demo {new_run()}")
