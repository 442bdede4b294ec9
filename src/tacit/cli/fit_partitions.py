"""``tacit fit --cluster``: the files of a data set, read as declared where they are worked on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.cli.fit_input import FitData, declared_schema, tasks_of
from tacit.cli.fit_request import FitRequest
from tacit.cli.learner_choice import AUTOMATIC, chosen_loss
from tacit.errors import InvalidInput
from tacit.tasks import Schema, TaskSet
from tacit.tasks.table_files import read_file

if TYPE_CHECKING:
    from tacit.cluster.workers import Workers

IN_PROCESS = "in-process"


@contextmanager
def cluster_workers(request: FitRequest) -> Iterator[Workers | None]:
    """Who works on partitions; None where the table is one."""
    if request.cluster is None:
        yield None
        return
    from tacit.cluster import InThisProcess, connected

    if request.cluster == IN_PROCESS:
        yield InThisProcess()
        return
    with connected(request.cluster) as workers:
        yield workers


def read_partitions(request: FitRequest, workers: Workers) -> FitData:
    """All tasks by name; columns are declared for the first file, and hold for all."""
    from tacit.cluster.fitting import Partitions, partitions

    files = partitions(request.table)
    first = read_file(files[0], request.written)
    schema = declared_schema(request, first)
    read = partial(_read, request=request, schema=schema)
    parted = Partitions.of(files, read, schema, request.task, workers)
    name = AUTOMATIC if request.learner == "auto" else request.learner
    loss, tasks = chosen_loss(request.loss, schema), parted.without_rows()
    return FitData(schema, loss, tasks, name, 0, notes=first.notes, partitions=parted)


def _read(file: Path, *, request: FitRequest, schema: Schema) -> TaskSet:
    """The tasks of one file; every error names it."""
    try:
        return tasks_of(read_file(file, request.written), request, schema)
    except InvalidInput as error:
        raise InvalidInput(f"{file.name}: {error}") from None
