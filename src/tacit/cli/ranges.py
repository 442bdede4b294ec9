"""``tacit ranges``: a template of declared ranges and categories to fill in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.options import Table, TableFormat, grouped
from tacit.cli.output import AsJson, examples, say

EXAMPLES = examples(
    "tacit ranges pupils.csv --task school --target score --out ranges.toml",
    "tacit ranges pupils.parquet > ranges.toml",
)


@grouped
def ranges(
    table: Table,
    task: Annotated[str | None, typer.Option(help="The column that names the task.")] = None,
    target: Annotated[str | None, typer.Option(help="The column to be predicted.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write it here, not to stdout.")] = None,
    *,
    form: TableFormat,
    as_json: AsJson = False,
) -> None:
    """Write a template of declared ranges: types filled in, bounds left to you.

    Bounds and categories come from public documentation, never from the data.
    """
    from tacit.cli.column_kinds import column_kinds
    from tacit.cli.declarations import template
    from tacit.errors import InvalidInput
    from tacit.files import replace_file
    from tacit.tasks.tables import require_column

    found = form.read(table, task)
    for name, role in ((task, "task"), (target, "target")):
        if name is not None:
            require_column(name, found.frame.columns, role)
    kinds = column_kinds(found, task)
    types = {name: kind.type for name, kind in kinds.items()}
    text = template(table.name, kinds, task, target)
    if out is None:
        say({"template": text, "types": types}, text.rstrip("\n"), as_json=as_json)
        return
    if out.exists():
        raise InvalidInput(f"{out} is there already; remove it, or choose another --out")
    replace_file(out, text.encode())
    said = f'Written: {out}. Fill in every "?", then: tacit fit {table} --ranges {out} ...'
    say({"out": str(out), "types": types}, said, as_json=as_json)
