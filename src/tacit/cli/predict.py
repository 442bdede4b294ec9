"""``tacit predict``: what a fitted folder, or a hand-out, says of new rows."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.options import Folder, Table, TableFormat, grouped
from tacit.cli.output import AsJson, examples, say, warn

if TYPE_CHECKING:
    from tacit.estimator import MultiTaskEstimator
    from tacit.tasks import Schema
    from tacit.tasks.table_files import FileTable

FORMULA = r"^\s*[=+\-@＝＋－＠]"
"""How a cell begins that a spreadsheet computes, in the letters of either width."""

LOCALE: dict[str, Any] = {"separator": ";", "decimal_comma": True}
"""How a spreadsheet writes and opens CSV where commas are decimal marks."""

EXAMPLES = examples(
    "tacit predict model new.csv > predictions.csv",
    "tacit predict for-hillside new.parquet --out predictions.csv",
    "tacit predict for-hillside new.parquet --at-home",
)


@grouped
def predict(
    directory: Folder,
    table: Table,
    out: Annotated[Path | None, typer.Option(help="Write here (CSV), not to stdout.")] = None,
    unknown: Annotated[
        str, typer.Option(help="Rows of a task that was not fitted: error, or shared model.")
    ] = "error",
    task: Annotated[
        str | None, typer.Option(help="The task's column, if the certificate does not say.")
    ] = None,
    at_home: Annotated[
        bool, typer.Option("--at-home", help="By the models that tasks keep to themselves.")
    ] = False,
    *,
    form: TableFormat,
    as_json: AsJson = False,
) -> None:
    """Predict new rows, each by the model of its task; CSV, in the order of the table, with
    semicolons and decimal commas where the table has those.

    Where rows or people are protected, these are the models that anybody may see; --at-home takes
    those that tasks made of them with their own rows, and only they should see what they predict.
    A row with a cell that is not as declared has an empty prediction, and a warning says how many.
    Refuses a folder that is not as it was sealed (exit status 1); the ledger is not asked. With
    --json the predictions go to --out. A label or class that a spreadsheet would take for a
    formula begins with an apostrophe.
    """
    from tacit import files
    from tacit.cli.loading import load_model, named_schema, task_column
    from tacit.cli.verify import require_sealed
    from tacit.errors import InvalidInput

    if as_json and out is None:
        raise InvalidInput("--json needs --out: the predictions are no part of the object")
    model = load_model(directory)
    certificate = model.certificate()
    require_sealed(directory, certificate, as_json=as_json)
    named_schema(directory, model)
    task = task or task_column(certificate)
    read = form.read(table, task)
    model = model._with_home_models() if at_home else model
    predicted, said_of_rows = predictions(model, read, task, unknown)
    frame = without_formulas(predicted)
    text = frame.write_csv(**LOCALE) if read.decimal == "," else frame.write_csv()
    warn(said_of_rows)
    if out is None:
        sys.stdout.write(text)
        return
    files.replace_file(out, text.encode())
    said = f"Written: {out}, {frame.height} rows"
    say({"out": str(out), "rows": frame.height}, said, as_json=as_json)


def predictions(
    model: MultiTaskEstimator, table: FileTable, task: str | None, unknown: str
) -> tuple[Any, list[str]]:
    """A polars frame: the task of each row, its prediction, and the probability of a class; and
    what is to be said about cells and rows."""
    import numpy as np
    import polars

    from tacit.cli.cells import features
    from tacit.tasks.tables import require_column

    frame = table.frame
    there = dict.fromkeys(frame.columns)
    for name in model._schema.feature_names:
        require_column(name, there, "feature")
    labels = _labels(model, frame, task)
    columns: dict[str, Any] = {} if task is None or labels is None else {task: frame[task]}
    rows = features(table, model._schema)
    sound = np.asarray(np.isfinite(model._schema.coded(rows, strict=False)).all(axis=1))
    found: dict[str, Any] = {name: [] for name in _predicted_names(model)}
    if sound.any():
        whose = None if labels is None else labels[sound]
        found = _predicted(model, rows.at(sound), whose, unknown)
    whole = {_free(name, task): _spread(values, sound) for name, values in found.items()}
    said = _said(table, model._schema, sound)
    if labels is not None and unknown == "shared":
        said += _by_the_shared_model(model, labels)
    return polars.DataFrame(columns | whole), said


def _free(name: str, task: str | None) -> str:
    """A name that the task's column does not have already."""
    return f"{name} (tacit)" if name == task else name


def _spread(values: Any, sound: Any) -> Any:
    """A polars series with nothing where a row is not sound."""
    import polars

    kept = polars.Series(values)
    return polars.Series([None] * len(sound), dtype=kept.dtype).scatter(sound.nonzero()[0], kept)


def _said(table: FileTable, schema: Schema, sound: Any) -> list[str]:
    """Which cells are doubtful; how many rows have no prediction, and why."""
    from tacit.cli.cells import bad_cells, doubtful_cells

    named = [*zip(schema.feature_names, schema.columns, strict=True)]
    said = [*doubtful_cells(table, named)]
    if not sound.all():
        why = "; ".join(bad_cells(table, named)) or "cells are empty, or not as declared"
        said.append(f"{int((~sound).sum())} rows have no prediction: {why}")
    return said


def _by_the_shared_model(model: MultiTaskEstimator, labels: Any) -> list[str]:
    """How many rows are of tasks that were not fitted."""
    from tacit.tasks import canonical_label

    known = {canonical_label(label) for label in model.tasks_}
    strange = [label for label in labels if label not in known]
    if not strange:
        return []
    whose = f"of {len({*strange}):,} tasks that were not fitted"
    return [f"{len(strange):,} of {len(labels):,} rows are {whose}: the shared model predicts them"]


def without_formulas(frame: Any) -> Any:
    """A polars frame in which no text, and no name of a column, is a formula to a spreadsheet:
    whoever chose a label would choose what is run where the predictions are opened.

    >>> import polars
    >>> without_formulas(polars.DataFrame({"@school": ["=cmd|'/c calc'!A0", "-7", "b"]})).to_dicts()
    [{"'@school": "'=cmd|'/c calc'!A0"}, {"'@school": '-7'}, {"'@school": 'b'}]
    """
    import polars

    words = frame.with_columns(polars.col(polars.Categorical, polars.Enum).cast(polars.String))
    cells = [_marked(polars.col(name)) for name in words.select(polars.col(polars.String)).columns]
    named = {name: f"'{name}" for name in frame.columns if re.match(FORMULA, name)}
    return words.with_columns(cells).rename(named)


def _marked(text: Any) -> Any:
    import polars

    is_number = text.cast(polars.Float64, strict=False).is_not_null()
    is_formula = text.str.contains(FORMULA) & ~is_number
    return (
        polars.when(is_formula)
        .then(polars.lit("'") + text)
        .otherwise(text)
        .alias(text.meta.output_name())
    )


def _predicted(model: MultiTaskEstimator, X: Any, labels: Any, unknown: Any) -> dict[str, Any]:
    from tacit.cli.loading import near_label
    from tacit.errors import InvalidInput, UnknownTask
    from tacit.estimator.fitted import has_classes

    try:
        predicted = model.predict(X, labels, unknown=unknown)
        found = dict(
            zip(_predicted_names(model), predicted.T.reshape(-1, len(predicted)), strict=True)
        )
        if has_classes(model):
            likely = model.predict_proba(X, labels, unknown=unknown)
            told = range(len(model.classes_)) if likely.shape[1] > 2 else (1,)
            found |= {f"probability of {model.classes_[k]}": likely[:, k] for k in told}
    except UnknownTask as error:
        raise InvalidInput(
            f"task {error.task!r} is not one of the {len(model.tasks_)} fitted tasks"
            f"{near_label(str(error.task), model.tasks_)}; "
            "--unknown shared gives it the shared model"
        ) from None
    return found


def _predicted_names(model: MultiTaskEstimator) -> list[str]:
    """Of several targets, which of them each prediction is of."""
    from tacit.cli.loading import recorded_targets

    count = len(model._schema.targets)
    if count == 1:
        return ["prediction"]
    targets = recorded_targets(model.certificate())
    return [f"prediction of {name}" for name in targets or map(str, range(count))]


def _labels(model: MultiTaskEstimator, frame: Any, task: str | None) -> Any:
    """The canonical text of each row's task; a hand-out needs none."""
    from tacit.cli.cells import task_texts
    from tacit.errors import InvalidInput
    from tacit.tasks.tables import require_column

    if len(model.tasks_) == 1 and (task is None or task not in frame.columns):
        return None
    if task is None:
        raise InvalidInput("the certificate names no task column; name it with --task")
    require_column(task, frame.columns, "task")
    return task_texts(frame[task])
