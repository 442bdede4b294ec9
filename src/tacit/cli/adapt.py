"""``tacit adapt``: a task joins after training, at no cost to the others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.options import Folder, SigningKey, Table, TableFormat, Unproven, grouped
from tacit.cli.output import AsJson, examples, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tacit.estimator import MultiTaskEstimator
    from tacit.tasks.table_files import FileTable

EXAMPLES = examples("tacit adapt model hillside.csv --task hillside --out for-hillside")


@grouped
def adapt(
    directory: Folder,
    table: Table,
    task: Annotated[str, typer.Option(help="The label of the task that joins.")],
    out: Annotated[Path, typer.Option(help="The folder to write, for that task.")],
    target: Annotated[
        list[str] | None,
        typer.Option(help="The target's column, if the certificate does not say; or several."),
    ] = None,
    unproven: Unproven = False,
    signing_key: SigningKey = None,
    *,
    form: TableFormat,
    as_json: AsJson = False,
) -> None:
    """Make the model of a new task of what was shared and its own rows; write its hand-out.

    Nothing of the newcomer leaves, so nothing is spent, and the others learn nothing of it. A table
    that has the task's column gives the rows of that task; of another, all rows are its own.
    """
    from tacit.cli.hand_out import (
        described,
        ledger_here,
        lines,
        require_empty,
        require_handed,
        write_hand_out,
    )
    from tacit.cli.loading import load_model, named_schema, recorded_targets
    from tacit.tasks import canonical_label

    require_empty(out)
    model, label = load_model(directory), canonical_label(task)
    named_schema(directory, model)
    key = require_handed(directory, model, signing_key, as_json=as_json)
    join(model, form.read(table), label, target or recorded_targets(model.certificate()))
    with ledger_here(directory) as ledger:
        write_hand_out(model, label, out, key, ledger, unproven=unproven, newcomer=True)
    found = described(model, {label: out})
    say(found, "\n".join(lines(found, f"task {label!r}", out)), as_json=as_json)


def join(model: MultiTaskEstimator, table: FileTable, label: str, names: Sequence[str]) -> None:
    """The model with one more task; InvalidInput tells everything that is wrong with its rows."""
    from dataclasses import replace

    from tacit.cli.cells import bad_cells, features, targets, task_texts
    from tacit.cli.loading import task_column
    from tacit.errors import InvalidInput
    from tacit.tasks.tables import require_column

    if not names:
        raise InvalidInput("the certificate names no target; name its column with --target")
    column, schema = task_column(model.certificate()), model._schema
    for name in (*schema.feature_names, *names):
        require_column(name, table.frame.columns, "needed")
    if column in table.frame.columns:
        own = task_texts(table.frame[column]) == label
        if not own.any():
            raise InvalidInput(f"no row of the table is of task {label!r}")
        table = replace(table, frame=table.frame.filter(own))
    if len(names) != len(schema.targets):
        raise InvalidInput(f"{len(names)} targets were named, and {len(schema.targets)} learned")
    named = zip((*schema.feature_names, *names), (*schema.columns, *schema.targets), strict=True)
    if problems := [*bad_cells(table, named)]:
        raise InvalidInput("; ".join(problems))
    model.adapt(features(table, schema), targets(table, schema, names), task=label)
