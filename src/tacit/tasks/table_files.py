"""Files as tables: CSV however a spreadsheet wrote it, Parquet, Excel, a query, a folder of files.

What a cell means must not depend on other tasks' cells: every cell of a file without types is text.
"""

from __future__ import annotations

import csv
import io
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit.errors import InvalidInput
from tacit.tasks.csv_dialects import MARKS, SEPARATORS, header, separator_of, utf8

DATABASES = (".sqlite", ".sqlite3", ".db", ".duckdb")
EXCEL = (".xlsx", ".xls", ".xlsb", ".ods")
TEXT = (".csv", ".tsv", ".tab", ".txt")
KINDS = (*TEXT, ".parquet", *EXCEL, *DATABASES)


@dataclass(frozen=True)
class Written:
    """How a table is written, as far as somebody says so."""

    separator: str | None = None  # None: the one that its header suggests
    decimal: str | None = None  # None: a comma where semicolons separate
    query: str | None = None  # of a database
    sheet: str | None = None  # of a workbook; None: the first
    task: str | None = None  # of a folder: the column that its files' names become

    def __post_init__(self) -> None:
        for name, known in (("separator", SEPARATORS), ("decimal", MARKS)):
            asked = getattr(self, name)
            if asked is not None:
                object.__setattr__(self, name, _mark(name, asked, known))


@dataclass(frozen=True)
class FileTable:
    """The cells of a file, and what was guessed about them."""

    frame: Any  # polars
    decimal: str = "."  # as its texts write numbers
    notes: tuple[str, ...] = ()  # what was seen, and which option says otherwise
    guessed: bool = False  # whether nobody said that its decimal mark is a comma


def read_table(path: str | Path) -> Any:
    """A file as a polars frame, with at least one row; each cell of a CSV is text, a blank one
    missing."""
    return read_file(Path(path)).frame


def read_file(path: Path, written: Written | None = None, *, least: int = 1) -> FileTable:
    """The same, with what was guessed on the way, and so many rows at least."""
    how = written or Written()
    if path.is_dir():
        return _folder(path, how)
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise InvalidInput(
            f"{path.name} is no table; expected a folder, or a name ending in .csv, .tsv, "
            ".parquet, .xlsx, .sqlite or .duckdb"
        )
    if not path.is_file():
        pattern = "; a pattern of files goes with --cluster in-process" if "*" in path.name else ""
        raise InvalidInput(f"there is no file {str(path)!r}{pattern}")
    if (how.query is not None) != (kind in DATABASES):
        raise InvalidInput(
            f"--query is for a database, which {path.name} is not"
            if how.query
            else f"{path.name} is a database: say which rows with --query 'SELECT ... FROM ...'"
        )
    found = _reader(kind)(path, how)
    frame = _numpy_types(_without_blanks(found.frame))
    if frame.height < least:
        raise InvalidInput(f"{path.name} has no rows; expected at least one below its header")
    return replace(found, frame=frame)


def _mark(name: str, asked: str, known: dict[str, str]) -> str:
    named = {word: mark for mark, word in known.items()} | {mark: mark for mark in known}
    if asked not in named:
        raise InvalidInput(f"--{name} is {asked!r}; expected {', '.join(known.values())}")
    return named[asked]


def _reader(kind: str) -> Callable[[Path, Written], FileTable]:
    if kind in TEXT:
        return _text_file
    if kind in EXCEL:
        return _workbook
    return _database if kind in DATABASES else _parquet


def _unreadable(*more: type[Exception]) -> tuple[type[BaseException], ...]:
    """What polars raises of a file that is not what it should be, and what else may be: where
    it did not expect that, a panic, which is no Exception."""
    import polars

    return polars.exceptions.PolarsError, polars.exceptions.PanicException, *more


# --- text ----------------------------------------------------------------------------------------


def _text_file(path: Path, how: Written) -> FileTable:
    import polars

    data, notes = utf8(path)
    separator, unsure = separator_of(data, how.separator)
    decimal = how.decimal or ("," if separator == ";" else ".")
    guessed = how.separator is None and (unsure or separator != ",")
    assumed = how.decimal is None and decimal == ","
    if guessed or assumed:
        notes.append(
            f"{path.name} is read as separated by {SEPARATORS[separator]}s, with decimal "
            f"{MARKS[decimal]}s; --separator and --decimal say otherwise"
        )
    try:
        names = header(data, separator)
        frame = polars.read_csv(io.BytesIO(data), separator=separator, infer_schema=False)
    except _unreadable(csv.Error) as error:
        raise InvalidInput(f"{path.name} cannot be read as a table: {_ragged(error)}") from error
    _require_no_rows_inside(path, frame, separator)
    return FileTable(*_named(path, frame, names, notes, decimal), guessed=assumed)


def _require_no_rows_inside(path: Path, frame: Any, separator: str) -> None:
    """A stray quote in one row would make a cell of all rows up to the next one: of other tasks."""
    for name, column in zip(frame.columns, frame, strict=True):
        for cell in column.filter(column.str.contains("\n", literal=True).fill_null(False)):
            if cell.count(separator) >= frame.width - 1 > 0:
                raise InvalidInput(
                    f"{path.name}: a cell of column {name!r} has a line end and as many "
                    "separators as a row: is a quotation mark in it left open?"
                )


def _ragged(error: BaseException) -> str:
    if "more fields than" in str(error):
        return "a row has more cells than the header has names; is the separator another one?"
    if left_open := re.search(r"Field `(.{1,20}).*not properly escaped", str(error), re.DOTALL):
        return f"a quotation mark is left open in the cell that begins with {left_open[1]!r}"
    return str(error)


# --- workbooks, databases, Parquet ---------------------------------------------------------------


def _workbook(path: Path, how: Written) -> FileTable:
    import polars

    try:
        from fastexcel import read_excel
    except ImportError:
        raise InvalidInput(f"reading {path.name} needs: pip install 'tacit[tables]'") from None
    notes = []
    try:
        sheets = read_excel(path).sheet_names
        sheet = how.sheet or sheets[0]
        if sheet not in sheets:
            raise InvalidInput(f"{path.name} has no sheet {sheet!r}; it has {', '.join(sheets)}")
        cells = polars.read_excel(path, sheet_name=sheet, has_header=False, infer_schema_length=0)
    except _unreadable(OSError, ValueError, RuntimeError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{path.name} cannot be read as a workbook: {error}") from error
    if how.sheet is None and len(sheets) > 1:
        notes.append(f"{sheet!r} is the first of {len(sheets)} sheets; --sheet names another")
    names = [name or "" for name in cells.row(0)] if cells.height else []
    return FileTable(*_named(path, cells[1:], names, notes, how.decimal or "."))


def _database(path: Path, how: Written) -> FileTable:
    import polars

    assert how.query is not None
    try:
        with closing(_connected(path)) as connection:
            cursor = connection.execute(how.query)
            if cursor.description is None:
                raise InvalidInput(f"--query selects nothing from {path.name}: {how.query!r}")
            names = [column[0] for column in cursor.description]
            rows = [[_cell(value) for value in row] for row in cursor.fetchall()]
    except Exception as error:  # each database has errors of its own
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{path.name} does not answer --query: {error}") from error
    kinds = dict.fromkeys((f"{j}" for j in range(len(names))), polars.String)
    frame = polars.DataFrame(rows, schema=kinds, orient="row")
    return FileTable(*_named(path, frame, names, [], how.decimal or "."))


def _connected(path: Path) -> Any:
    """For reading only."""
    if path.suffix.lower() != ".duckdb":
        return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        import duckdb
    except ImportError:
        raise InvalidInput(f"reading {path.name} needs: pip install 'tacit[tables]'") from None
    return duckdb.connect(str(path), read_only=True)


def _cell(value: Any) -> str | None:
    if isinstance(value, bytes):
        raise InvalidInput("--query selects bytes; expected texts, numbers or dates")
    return value if value is None or isinstance(value, str) else str(value)


def _parquet(path: Path, how: Written) -> FileTable:
    import polars

    try:
        return FileTable(polars.read_parquet(path), how.decimal or ".")
    except _unreadable(OSError, TypeError) as error:
        # TypeError: its name is no text, and polars takes it for an object
        raise InvalidInput(f"{path.name} cannot be read as a table: {error}") from error


# --- folders -------------------------------------------------------------------------------------


def _folder(path: Path, how: Written) -> FileTable:
    """One file per task, each called as its task."""
    import polars

    files = folder_files(path)
    if not files:
        raise InvalidInput(f"{path} holds no table; expected one file for each task")
    if how.task is None:
        raise InvalidInput(f"{path} is a folder: name the column that its files are, with --task")
    tables = [read_file(file, how) for file in files]
    for file, table in zip(files, tables, strict=True):
        if [*table.frame.columns] != [*tables[0].frame.columns]:
            told = f"{', '.join(tables[0].frame.columns)} of {files[0].name}"
            raise InvalidInput(f"the columns of {file.name} are not {told}")
        if table.decimal != tables[0].decimal:
            raise InvalidInput(f"{file.name} is separated in another way than {files[0].name}")
        if how.task in table.frame.columns:
            raise InvalidInput(f"{file.name} has a column {how.task!r}, which its own name is")
    text = [
        table.frame.with_columns(polars.lit(file.stem).alias(how.task))
        for file, table in zip(files, tables, strict=True)
    ]
    notes = dict.fromkeys(note for table in tables for note in table.notes)
    try:
        whole = polars.concat(text)
    except polars.exceptions.PolarsError as error:
        raise InvalidInput(f"the files of {path.name} do not fit together: {error}") from error
    return replace(tables[0], frame=whole, notes=tuple(notes)[:1])


def files_of(table: Path) -> list[Path]:
    """The tables of a folder, or those that a pattern such as data/*.parquet names, by name."""
    if table.is_dir():
        return folder_files(table)
    return sorted(table.parent.glob(table.name))


def folder_files(path: Path) -> list[Path]:
    """The tables in a folder, by name; not what begins with a point, nor databases."""
    known = (*TEXT, ".parquet", *EXCEL)
    found = (file for file in path.iterdir() if file.suffix.lower() in known)
    return sorted(file for file in found if file.is_file() and not file.name.startswith("."))


# --- what all of them have in common -------------------------------------------------------------


def _named(
    path: Path, frame: Any, names: Sequence[str], notes: Iterable[str], decimal: str
) -> tuple[Any, str, tuple[str, ...]]:
    """Columns by their names, which must differ; those without a name are left out, and so are
    empty rows below the last."""
    texts = [name.strip() for name in names]
    twice = [name for name, count in Counter(filter(None, texts)).items() if count > 1]
    if twice:
        raise InvalidInput(
            f"{path.name} has several columns called {', '.join(map(repr, twice))}; "
            "column names must differ"
        )
    told, nameless = [*notes], [f"{j + 1}" for j, name in enumerate(texts) if not name]
    if nameless:
        told.append(f"column {', '.join(nameless)} of {path.name} has no name and is left out")
    kept = [j for j, name in enumerate(texts) if name and j < frame.width]
    chosen = frame[:, kept]
    chosen.columns = [texts[j] for j in kept]
    return _without_end(chosen), decimal, tuple(told)


def _without_end(frame: Any) -> Any:
    """Without the empty rows at its end, which spreadsheets write."""
    import polars

    present = frame.select(polars.any_horizontal(polars.all().is_not_null())).to_series()
    last = present.arg_true().max() if frame.width else None
    return frame[: 0 if last is None else int(last) + 1]


def _without_blanks(frame: Any) -> Any:
    import polars

    text = polars.col(polars.String)
    return frame.with_columns(polars.when(text.str.strip_chars() != "").then(text))


def _numpy_types(frame: Any) -> Any:
    import polars

    wide = [name for name, kind in frame.schema.items() if str(kind) in ("Int128", "UInt128")]
    return frame.cast(dict.fromkeys(wide, polars.String))  # numpy has no such integers
