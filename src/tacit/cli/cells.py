"""The cells of a table, each read on its own, as its column was declared.

What a cell means must not depend on other tasks' cells. One school called "A7", or one "n/a" among
the ages, would make a reader of CSV take the whole column for text: every school would have another
label and another budget, and every age another meaning. So all columns of a CSV are read as text,
and each cell by the declaration alone; Parquet, which has types, comes out the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tacit.arrays import Array
from tacit.cli.output import FIRST_ROW
from tacit.errors import BadCell, InvalidInput, MissingValues
from tacit.tasks import Column, Schema, canonical_label, task_codes
from tacit.tasks.csv_dialects import COMMA_NUMBER, THOUSANDS, decimal_points
from tacit.tasks.labels import category, distinct, missing_mask, require_present
from tacit.tasks.numeric_cells import readable_numbers
from tacit.tasks.table_files import FileTable
from tacit.tasks.tables import Table, as_vector

if TYPE_CHECKING:
    import polars

SHOWN = 20
"""How many characters of a cell are shown."""


def features(table: FileTable, schema: Schema) -> Table:
    """The declared features of a table."""
    named = zip(schema.feature_names, schema.columns, strict=True)
    values = tuple(cells(table, name, column) for name, column in named)
    return Table(schema.feature_names, values, named=True)


def targets(table: FileTable, schema: Schema, names: Sequence[str]) -> Array | Table:
    """The target's column (N,); the columns of several."""
    named = zip(names, schema.targets, strict=True)
    values = tuple(cells(table, name, column) for name, column in named)
    return values[0] if len(values) == 1 else Table(tuple(names), values, named=True)


def task_texts(series: polars.Series) -> Array:
    """The canonical text of each row's task (N,): 7 and 7.0 are "7", and 007 stays "007".

    >>> import polars
    >>> task_texts(polars.Series("school", [7, 8])), task_texts(polars.Series("school", ["007"]))
    (array(['7', '8'], dtype=object), array(['007'], dtype=object))
    """
    import polars

    if series.dtype.is_nested() or series.dtype.base_type() in (polars.Binary, polars.Object):
        raise InvalidInput(
            f"column {series.name!r} holds {series.dtype}, by which no task can be called; "
            "expected text, numbers or dates"
        )
    require_present(as_vector(series, series.name), f"column {series.name!r}")
    labels, codes = task_codes(series, len(series))
    return np.array([canonical_label(label) for label in labels], dtype=object)[codes]


def cells(table: FileTable, name: str, column: Column) -> Array:
    """One column (N,): numbers, or the declared categories that its cells write."""
    series = table.frame[name]
    if column.categories is None:
        if question := unclear(table, name):
            raise InvalidInput(question)
        return as_vector(_numbers(decimal_points(series, table.decimal)), name)
    values = as_vector(series, name)
    found, codes = distinct(values, f"column {name!r}")
    meant = [category(cell, column.categories) for cell in found]
    return np.fromiter(meant, object, len(meant))[codes]


def bad_cells(table: FileTable, columns: Iterable[tuple[str, Column]]) -> Iterator[str]:
    """What is not as declared, column by column; rows are counted as a spreadsheet does."""
    for name, column in columns:
        try:
            column.transform(cells(table, name, column), name)
        except InvalidInput as error:
            yield told(error)


def doubtful_cells(table: FileTable, columns: Iterable[tuple[str, Column]]) -> Iterator[str]:
    """What is read as declared and may not be meant, column by column: cells that hold no number
    and count as the middle or drop their row, and numbers outside the range. A private view."""
    for name, column in columns:
        if column.categories is not None:
            continue
        values = cells(table, name, column)
        numbers, n = readable_numbers(values, name), f"{len(values):,}"
        unread = ~np.isfinite(numbers)
        if unread.any() and column.missing in ("middle", "drop"):
            written = values[unread & ~missing_mask(values)]
            such_as = f", e.g. {str(written[0])[:SHOWN]!r}" if len(written) else ""
            means = {"middle": "count as the middle of the range", "drop": "drop their rows"}
            meant = means[column.missing]
            yield f"{name!r}: {unread.sum():,} of {n} cells hold no number{such_as}; they {meant}"
        if column.low is None or column.high is None:
            continue
        outside = int(((numbers < column.low) | (numbers > column.high)).sum())
        if outside:
            within = f"{column.low:g} to {column.high:g}"
            yield f"{name!r}: {outside:,} of {n} rows outside {within}; they count as its ends"


def comma_hint(table: FileTable, names: Iterable[str]) -> str:
    """The end of an error message about cells in which a decimal comma was not read as one."""
    import polars

    texts = [s for s in map(table.frame.get_column, names) if s.dtype == polars.String]
    if table.decimal == "." and any(s.str.contains(COMMA_NUMBER).any() for s in texts):
        return "; cells look like numbers with a decimal comma: --decimal comma reads them"
    return ""


def told(error: InvalidInput) -> str:
    """An error about a column, for somebody with a spreadsheet."""
    if isinstance(error, MissingValues):
        return f"column {error.column!r} has {error.count} empty cell(s)"
    return error.as_counted_from(FIRST_ROW) if isinstance(error, BadCell) else str(error)


def unclear(table: FileTable, name: str) -> str:
    """What to ask where nobody said that commas are decimal marks: 1.234 may be two numbers."""
    import polars

    series = table.frame[name]
    if not table.guessed or series.dtype != polars.String:
        return ""
    either = series.filter(series.str.contains(THOUSANDS).fill_null(False))
    if not len(either):
        return ""
    number = either[0].strip()[:SHOWN]
    return (
        f"column {name!r} holds {number}: is that {number.replace('.', '')} (--decimal comma), or "
        "are points decimal (--decimal point)?"
    )


def _numbers(series: polars.Series) -> polars.Series:
    """Text as numbers at once; if some cell is none, as it was: then each is read by Python, which
    reads whatever polars does, to the same bits."""
    import polars

    if series.dtype != polars.String:
        return series
    numbers = series.cast(polars.Float64, strict=False)
    return numbers if numbers.null_count() == series.null_count() else series
