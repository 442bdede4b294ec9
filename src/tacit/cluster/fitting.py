"""A fit over the files of a Parquet data set, each task whole in one of them.

    read every file: it is as declared, and no task is in two      (bad input ends it here)
    the rounds of the learner, over partitions                     (engine.py)
    every partition makes its tasks' models and writes them        models/NAME.parquet

The model that was given has then what is shared and what is promised; the tasks' own models are in
the files alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tacit.cluster.engine import Learning, OverPartitions
from tacit.cluster.workers import InThisProcess, Read, Workers
from tacit.engine import Message, Progress
from tacit.errors import InvalidInput
from tacit.estimator import Home, MultiTaskEstimator
from tacit.estimator.contract import PrivateLearner
from tacit.estimator.home import require_moderate
from tacit.estimator.parted_models import write_parted
from tacit.files import make
from tacit.folder import MODELS
from tacit.linear.losses import loss_named
from tacit.linear.threads import isolated
from tacit.tasks import Schema, TaskSet, as_schema, canonical_label, read_table
from tacit.tasks.table_files import files_of
from tacit.tasks.tables import require_column


def fit_partitions(
    model: MultiTaskEstimator,
    files: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    task: str,
    target: str,
    workers: Workers | None = None,
    progress: Progress = None,
) -> MultiTaskEstimator:
    """Learns from the tasks in all files; their models become out/models/*.parquet.

    ``files``: paths, or a pattern such as ``data/*.parquet``. ``workers``: None for this process,
    which has a file a core in memory and the numbers of all on the disk of ``out`` meanwhile, or
    ``connected(address)`` of a cluster, whose workers see the same paths. The result is the same
    bits either way.
    """
    found = partitions(files)
    names = read_table(found[0]).columns
    for role, name in {"task": task, "target": target}.items():
        require_column(name, names, role)
    features = [name for name in names if name not in (task, target)]
    schema = as_schema(getattr(model, "ranges", None), features)
    read = partial(_tasks, task=task, target=target, schema=schema)
    parted = Partitions.of(found, read, schema, task, workers or InThisProcess())
    return parted.fit(model, Path(out), progress)


def partitions(files: str | Path | Sequence[str | Path]) -> list[Path]:
    """The files that are meant, by name; InvalidInput if there is none.

    >>> partitions(["b.parquet", "a.parquet"])
    [PosixPath('a.parquet'), PosixPath('b.parquet')]
    """
    one = isinstance(files, str | Path)
    found = files_of(Path(files)) if one else sorted(map(Path, files))  # type: ignore[arg-type] # mypy forgets one
    if not found:
        raise InvalidInput(f"no file is called {str(files)!r}; expected those of a data set")
    name, count = Counter(file.stem for file in found).most_common(1)[0]
    if count > 1:
        raise InvalidInput(f"{count} files are called {name!r}; their models would be one file")
    return found


@dataclass(frozen=True)
class Partitions:
    """The files of a data set, read once and found sound."""

    files: Sequence[Path]
    schema: Schema
    task: str  # the column that names it
    workers: Workers
    held: Sequence[Any]  # by the workers
    labels: Sequence[tuple[Hashable, ...]]  # of each file

    @classmethod
    def of(
        cls, files: Sequence[Path], read: Read, schema: Schema, task: str, workers: Workers
    ) -> Partitions:
        """Of files that ``read`` makes tasks of; InvalidInput if a task is in two."""
        if schema.from_data or schema.open_columns.any():
            names = ", ".join(schema.open_names("the target")) or "all columns"
            raise InvalidInput(
                f"declare the ranges of {names}: files apart from each other cannot find them"
            )
        held = workers.held(read, files)
        labels = workers.reduced(list, workers.each(labels_of, held, schema))
        require_whole(dict(zip(files, labels, strict=True)))
        return cls(files, schema, task, workers, held, labels)

    def without_rows(self) -> TaskSet:
        """All tasks by name."""
        return TaskSet.without_rows([each for part in self.labels for each in part], self.schema)

    def fit(
        self, model: MultiTaskEstimator, out: Path, progress: Progress = None
    ) -> MultiTaskEstimator:
        """The rounds of the learner, and then the models, into out/models/."""
        _require_parted(model, self.schema)
        learning, nobody = Learning.of(model, self.schema), self.without_rows()
        sizes = [len(part) for part in self.labels]
        with self.workers.kept(home_of, self.held, learning, out) as homes:
            model._engine = OverPartitions(
                self.workers, homes, sizes, learning, learning.home(nobody)
            )
            try:
                model.fit_tasks(nobody, self.schema, progress=progress)
            finally:
                model._engine = None
            make(out / MODELS, 0o700)
            made = Made(learning, model.shared_, self.task)
            places = [out / MODELS / f"{file.stem}.parquet" for file in self.files]
            written = self.workers.each(write_models, homes, made, places)
            self.workers.reduced(list, written)
        return model


def labels_of(tasks: TaskSet, schema: Schema) -> tuple[Hashable, ...]:
    """The labels of a partition that can be learned from."""
    require_moderate(tasks, schema)
    return tasks.labels


def home_of(tasks: TaskSet, learning: Learning) -> Home:
    """The tasks as the learner sees them, and what each step would ask again."""
    home = learning.home(tasks)
    learning.model._look_at(home)
    return home


def require_whole(labels: Mapping[Path, Sequence[Hashable]]) -> None:
    """InvalidInput if a task has rows in two files: what it contributes would be two."""
    seen: dict[str, Path] = {}
    for file, part in labels.items():
        for label in part:
            before = seen.setdefault(canonical_label(label), file)
            if before is not file:
                raise InvalidInput(
                    f"task {label!r} has rows in {before.name} and in {file.name}; expected every "
                    "task whole in one file: write the data set anew, divided by task"
                )


def _require_parted(model: MultiTaskEstimator, schema: Schema) -> None:
    """Refuses what would need all rows in one place."""
    name = type(model).__name__
    if not isinstance(model, PrivateLearner) or model.budget is None:
        raise InvalidInput(f"{name} in partitions needs a budget: its twin needs all rows at once")
    if not model._adds_up:
        raise InvalidInput(f"{name} with these parameters runs in one process only")
    if loss_named(model.loss).targets_are_classes and schema.classes is None:
        raise InvalidInput("declare the classes as ranges={'target': [...]}: no file shows all")


def _tasks(file: Path, *, task: str, target: str, schema: Schema) -> TaskSet:
    """The tasks in a file."""
    try:
        return TaskSet.from_frame(read_table(file), task=task, target=target, schema=schema)
    except InvalidInput as error:
        raise InvalidInput(f"{file.name}: {error}") from error


# --- models at home ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Made:
    """Of what models are made."""

    learning: Learning
    shared: Message
    task: str  # the column that names it


def write_models(home: Home, made: Made, place: Path) -> Path:
    """The models of a partition's tasks, in a file."""
    with isolated():
        models = made.learning.model._at_home(home, made.shared)
    write_parted(place, made.task, home.labels, made.learning.schema, models)
    return place
