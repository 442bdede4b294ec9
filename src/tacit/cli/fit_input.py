"""The table of ``tacit fit``, read as it was declared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.arrays import Array
from tacit.cli.cells import (
    bad_cells,
    comma_hint,
    doubtful_cells,
    features,
    targets,
    task_texts,
    told,
)
from tacit.cli.declarations import Declarations, read_declarations
from tacit.cli.fit_request import FitRequest
from tacit.cli.learner_choice import AUTOMATIC, OF_NODES, chosen_loss
from tacit.cli.undeclared import HERE, completed, price_of_ranges
from tacit.errors import InvalidInput
from tacit.linear.losses import LossName
from tacit.rounding import rounded_up
from tacit.tasks import Column, Schema, TaskSet, task_codes
from tacit.tasks.table_files import FileTable, read_file
from tacit.tasks.tables import require_column

if TYPE_CHECKING:
    from tacit.cluster.fitting import Partitions

SMALL_DELTA = 0.1
"""δ · m above this: some unit may leak with a probability worth a warning."""


@dataclass(frozen=True)
class FitData:
    """The table as tasks, scaled as declared."""

    schema: Schema
    loss: LossName
    tasks: TaskSet
    learner: str
    dropped: int  # rows that were left out, as declared
    person: Array | None = None  # (N,), whose each row of the table is
    notes: tuple[str, ...] = ()  # what was guessed about the file, and which cells are doubtful
    partitions: Partitions | None = None  # where the rows are, if ``tasks`` has names alone

    @property
    def units(self) -> int:
        """How many are protected: tasks, or rows or people in them."""
        if self.person is None:
            return self.tasks.n_rows if self.learner == OF_NODES else self.tasks.n_tasks
        _, codes = task_codes(self.person, len(self.person))
        whose = np.column_stack([self.tasks.task_index, codes[self.tasks.order]])
        return len(np.unique(whose, axis=0))

    def split(self, holdout: float, seed: int) -> tuple[TaskSet, TaskSet | None]:
        """Rows to learn from, and rows held out at home. The choice looks at no value."""
        if holdout == 0:
            return self.tasks, None
        return self.tasks.split(1 - holdout, np.random.default_rng(seed))


def read_data(request: FitRequest) -> FitData:
    """The table as declared; every error names the file, the column and the row."""
    table = read_file(request.table, request.written)
    schema = declared_schema(request, table)
    loss = chosen_loss(request.loss, schema)
    tasks = tasks_of(table, request, schema)
    name = AUTOMATIC if request.learner == "auto" else request.learner
    dropped = table.frame.height - tasks.n_rows
    people = _people(table.frame, request)
    notes = (*table.notes, *doubtful_cells(table, _named(request, schema)))
    _require_rows(tasks, table, request, schema)
    return FitData(schema, loss, tasks, name, dropped, people, notes=notes)


def _require_rows(tasks: TaskSet, table: FileTable, request: FitRequest, schema: Schema) -> None:
    """Refuse a table of which no row is left, before anything is spent on it. Whether one task has
    rows stops nothing: that is its own affair."""
    if tasks.n_rows:
        return
    named = dict(_named(request, schema))
    why = "; ".join(doubtful_cells(table, named.items())) or "cells are empty or undeclared"
    numbers = [name for name, column in named.items() if column.categories is None]
    raise InvalidInput(
        f"all {table.frame.height:,} rows of {request.table.name} would be dropped: {why}"
        f"{comma_hint(table, numbers)}"
    )


def _named(request: FitRequest, schema: Schema) -> Iterator[tuple[str, Column]]:
    """Every declared column with its name, targets last."""
    yield from zip(schema.feature_names, schema.columns, strict=True)
    yield from zip(request.target, schema.targets, strict=True)


def declared_schema(request: FitRequest, table: FileTable) -> Schema:
    """How the columns of the table are to be read."""
    names = table.frame.columns
    roles = ("task", request.task), ("person", request.person)
    for role, name in (*roles, *(("target", each) for each in request.target)):
        if name is not None:
            require_column(name, names, role)
    declared = _declarations(request, table)
    return declared.schema(names, request.task, request.target, request.person)


def _declarations(request: FitRequest, table: FileTable) -> Declarations:
    """Those of the file, in which everything stands; or of the command line alone."""
    said = request.columns.columns(table, request.target, fixed=request.rows_are_public)
    if request.ranges is not None:
        return read_declarations(request.ranges).overridden(said)
    aside = {} if request.person is None else dict.fromkeys([request.person])
    budget = request.budget if request.cluster is None else None
    return completed(aside | said, table, request.task, request.target, budget)


def _people(frame: Any, request: FitRequest) -> Array | None:
    """Whose each row is; without a column that says so, each is somebody."""
    if request.protect == "task":
        return None
    return np.arange(frame.height) if request.person is None else task_texts(frame[request.person])


def tasks_of(table: FileTable, request: FitRequest, schema: Schema) -> TaskSet:
    """The rows as tasks; or everything that is wrong with them, at once."""
    frame = table.frame
    try:
        labels = task_texts(frame[request.task])
        y = targets(table, schema, request.target)
        return TaskSet.from_arrays(features(table, schema), y, labels, schema=schema)
    except InvalidInput as error:
        problems = [*_problems(table, request, schema)] or [told(error)]
        raise InvalidInput("; ".join(problems)) from None


def _problems(table: FileTable, request: FitRequest, schema: Schema) -> Iterator[str]:
    """Of the task's column, and of each declared one."""
    try:
        task_texts(table.frame[request.task])
    except InvalidInput as error:
        yield told(error)
    found = [*bad_cells(table, _named(request, schema))]
    yield from found
    if any("empty cell(s)" in said for said in found):
        where = HERE if request.ranges is None else request.ranges.name
        if request.rows_are_public:
            yield "drop those rows, or say in a file of ranges what one means: missing = NUMBER"
            return
        yield (
            f"drop those rows, or say what one means: missing = ... in {where}, "
            'where missing = "drop" drops them'
        )


def warnings_for(request: FitRequest, data: FitData) -> list[str]:
    """What is allowed and should be thought about. For the operator: it tells of the rows."""
    m, found = data.units, [*data.notes]
    noun = "one whole task" if data.person is None else "one person"
    noun = "one row" if data.learner == OF_NODES else noun
    if data.dropped:
        empty = int((data.tasks.sizes == 0).sum())
        left = f"; {empty} tasks have no row left, and contribute nothing" if empty else ""
        found.append(f"{data.dropped} rows were dropped, their cells empty or undeclared{left}")
    if data.schema.open_columns.any():
        found.append(
            price_of_ranges(data.schema, request.target, request.budget, data.tasks.n_tasks)
        )
    if data.tasks.n_tasks == 1 and data.person is None:
        found.append(
            f"{request.task!r} names one task alone: nobody is there to learn with, and the budget "
            "is spent all the same; is it the right column?"
        )
    elif data.tasks.n_features > data.tasks.n_tasks:
        found.append(
            f"{data.tasks.n_features:,} columns outnumber {data.tasks.n_tasks:,} tasks: little can "
            "be learned together; leave out columns, or declare fewer categories"
        )
    if request.delta * m >= SMALL_DELTA:
        found.append(
            f"delta {rounded_up(request.delta)} is not well below 1/m = {1 / m:.2g}: "
            f"with such a delta {noun} of m may leak"
        )
    return found
