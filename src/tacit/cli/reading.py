"""What ``tacit fit`` was asked for, and the table read as it was declared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit.cli.cells import cells, features, task_texts
from tacit.cli.declarations import read_declarations
from tacit.cli.learner_choice import AUTOMATIC, chosen_loss, require_learner
from tacit.errors import InvalidInput, MissingValues
from tacit.linear.losses import LossName
from tacit.privacy.budget import Budget
from tacit.rounding import rounded_up
from tacit.tasks import Schema, TaskSet, read_table
from tacit.tasks.tables import require_column

SMALL_DELTA = 0.1
"""δ · m above this: some whole task may leak with a probability worth a warning."""


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line."""

    table: Path
    task: str
    target: str
    epsilon: float
    delta: float
    neighbours: str
    ranges: Path
    learner: str
    loss: str
    ledger: Path | None
    dataset: str
    holdout: float
    noise: str
    seed: int | None
    out: Path

    @property
    def budget(self) -> Budget:
        """The budget of every task."""
        relation: Any = self.neighbours  # checked by Budget
        return Budget(self.epsilon, self.delta, neighbours=relation)

    def require_sound(self) -> None:
        """Refuse what can be refused before anything is read."""
        _ = self.budget
        require_learner(self.learner)
        if not 0 <= self.holdout < 1:
            raise InvalidInput(f"--holdout must be in [0, 1), got {self.holdout}")
        if self.noise not in ("secure", "simulated"):
            raise InvalidInput(f"--noise is {self.noise!r}; expected secure or simulated")
        if self.task == self.target:
            raise InvalidInput(f"--task and --target are both {self.task!r}")


@dataclass(frozen=True)
class Data:
    """The table as tasks, scaled as declared."""

    schema: Schema
    loss: LossName
    tasks: TaskSet
    learner: str
    dropped: int  # rows that were left out, as declared

    def split(self, holdout: float, seed: int) -> tuple[TaskSet, TaskSet | None]:
        """Rows to learn from, and rows held out at home. The choice looks at no value."""
        if holdout == 0:
            return self.tasks, None
        return self.tasks.split(1 - holdout, np.random.default_rng(seed))


def read_data(request: Request) -> Data:
    """The table as declared; every error names the file, the column and the row."""
    declarations = read_declarations(request.ranges)
    frame = read_table(request.table)
    for name, role in ((request.task, "task"), (request.target, "target")):
        require_column(name, frame.columns, role)
    schema = declarations.schema(frame.columns, request.task, request.target)
    loss = chosen_loss(request.loss, schema)
    tasks = _tasks(frame, request, schema)
    name = AUTOMATIC if request.learner == "auto" else request.learner
    return Data(schema, loss, tasks, name, frame.height - tasks.n_rows)


def _tasks(frame: Any, request: Request, schema: Schema) -> TaskSet:
    """The rows as tasks; errors speak of the table and of the file of ranges."""
    try:
        y, labels = cells(frame[request.target], schema.target), task_texts(frame[request.task])
        return TaskSet.from_arrays(features(frame, schema), y, labels, schema=schema)
    except MissingValues as error:
        raise InvalidInput(
            f"column {error.column!r} has {error.count} empty cell(s); drop those rows, "
            f"or say what one means: missing = ... in {request.ranges.name}, "
            'where missing = "drop" drops them'
        ) from None
    except InvalidInput as error:
        said = str(error).partition("; if y holds")[0]
        raise InvalidInput(said.replace("column 'target'", f"column {request.target!r}")) from None


def warnings_for(request: Request, data: Data) -> list[str]:
    """What is allowed and should be thought about. For the operator: it tells of the rows."""
    m, found = data.tasks.n_tasks, []
    if data.dropped:
        empty = int((data.tasks.sizes == 0).sum())
        found.append(
            f"{data.dropped} rows were dropped, their cells empty or undeclared; "
            f"{empty} tasks have no row left, and contribute nothing"
        )
    if request.delta * m >= SMALL_DELTA:
        found.append(
            f"delta {rounded_up(request.delta)} is not well below 1/m = {1 / m:.2g}: "
            "with such a delta one whole task of m may leak"
        )
    return found
