"""What several commands ask for, each said once; and groups of options.

A group is a frozen dataclass whose fields are options. A command that takes one has all of them:
``grouped`` spells them out for typer, in their order, and puts the group together again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from tacit.cli.output import warn

if TYPE_CHECKING:
    from tacit.tasks.table_files import FileTable, Written

Table = Annotated[
    Path,
    typer.Argument(
        help="A CSV, Parquet or Excel file, a database, or a folder with a file per task.",
        show_default=False,
    ),
]
Folder = Annotated[Path, typer.Argument(help="A folder that fit wrote.", show_default=False)]
Ignore = Annotated[list[str] | None, typer.Option(help="A column to leave out; may be repeated.")]
Delta = Annotated[float, typer.Option(help="The δ of the guarantee.")]
Unproven = Annotated[
    bool, typer.Option("--unproven", help="Hand out what is not proven; its certificate says.")
]
SigningKey = Annotated[
    Path | None, typer.Option(help="The key that signed the certificate; else LEDGER.signing.")
]


def one_of(*values: str, told: str) -> Any:
    """An option whose values the shell completes."""
    return typer.Option(help=told, autocompletion=lambda: [*values])


@dataclass(frozen=True)
class TableFormat:
    """How a table is written, where its name and its header do not tell."""

    separator: Annotated[
        str | None,
        typer.Option(help="Of a CSV: comma, semicolon, tab, bar; else its header tells."),
    ] = None
    decimal: Annotated[
        str | None, typer.Option(help="point or comma; else a comma where semicolons separate.")
    ] = None
    query: Annotated[str | None, typer.Option(help="Of an SQLite or DuckDB file: SELECT ...")] = (
        None
    )
    sheet: Annotated[str | None, typer.Option(help="Of a workbook; else its first.")] = None

    def written(self, task: str | None = None) -> Written:
        """The same to whoever reads; the names of a folder's files become the task's column."""
        from tacit.tasks.table_files import Written

        return Written(self.separator, self.decimal, self.query, self.sheet, task)

    def read(self, table: Path, task: str | None = None) -> FileTable:
        """The table; what was guessed about it is told."""
        from tacit.tasks.table_files import read_file

        found = read_file(table, self.written(task))
        warn([*found.notes])
        return found


# --- groups --------------------------------------------------------------------------------------


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer reads it, with the options of its groups.

    >>> def show(table: Table, how: TableFormat) -> None: ...
    >>> [*inspect.signature(grouped(show)).parameters]
    ['table', 'separator', 'decimal', 'query', 'sheet']
    """
    kinds = get_type_hints(command, include_extras=True)
    parameters = inspect.signature(command).parameters
    options = [
        option
        for name, parameter in parameters.items()
        for option in _options(name, kinds[name], parameter.default)
    ]

    @wraps(command)
    def called(**given: Any) -> None:
        command(**{name: _taken(name, kinds[name], given) for name in parameters})

    called.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined] # typer asks it
    return called


def _options(name: str, kind: Any, default: Any) -> Iterator[inspect.Parameter]:
    """One, or those of a group."""
    if not is_dataclass(kind):
        yield inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
        )
        return
    kinds = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        value = inspect.Parameter.empty if field.default is MISSING else field.default
        yield from _options(field.name, kinds[field.name], value)


def _taken(name: str, kind: Any, given: dict[str, Any]) -> Any:
    """The value of an option, or a group of those that were given."""
    if not is_dataclass(kind):
        return given[name]
    kinds = get_type_hints(kind)
    values = {field.name: _taken(field.name, kinds[field.name], given) for field in fields(kind)}
    return kind(**values)  # type: ignore[operator] # a group is a class
