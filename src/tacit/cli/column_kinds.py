"""What a column seems to hold, for the operator's eyes: proposals, never declarations.

Whoever runs tacit sees the data anyway. What is proposed here becomes public only where somebody
declares it, or as an error that names a column and no cell of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tacit.tasks.csv_dialects import decimal_points
from tacit.tasks.table_files import FileTable

if TYPE_CHECKING:
    import polars

DATE = r"^\s*(\d{4}[-./]\d{1,2}[-./]\d{1,2}|\d{1,2}[-./]\d{1,2}[-./](\d{4}|\d{2}))([ T].*)?\s*$"
CODE = r"^\s*0\d+\s*$"
MOSTLY = 0.5  # of the cells that are there
FEWEST_IDS = 20  # rows, before numbers that all differ look like ids
PROSE = 40  # letters: longer cells, in the mean, are free text
MOST_CATEGORIES = 20  # where nobody says how many tasks there are


@dataclass(frozen=True)
class Kind:
    """A type of ours (see declarations.py), and why."""

    type: str
    why: str = ""


def column_kinds(table: FileTable, task: str | None = None) -> dict[str, Kind]:
    """For each column; one with more categories than tasks would cost more than it tells."""
    frame = table.frame
    most = MOST_CATEGORIES if task is None else frame[task].n_unique()
    return {name: _kind(frame[name], table.decimal, most) for name in frame.columns}


def _kind(series: polars.Series, decimal: str, most: int) -> Kind:
    import polars

    present = series.drop_nulls()
    if series.dtype.is_numeric():
        return _of_numbers(present, len(series))
    if series.dtype == polars.Boolean:
        return Kind("categories")
    if series.dtype.base_type() not in (polars.String, polars.Categorical, polars.Enum):
        return Kind("ignore", f"holds {series.dtype}")
    text = present.cast(polars.String)
    numbers = decimal_points(text, decimal).cast(polars.Float64, strict=False)
    if _mostly(numbers.is_not_null()) and not _mostly(text.str.contains(CODE)):
        return _of_numbers(numbers.drop_nulls(), len(series))
    return _of_texts(text, most)


def _of_numbers(numbers: polars.Series, rows: int) -> Kind:
    whole = numbers.dtype.is_integer() or bool((numbers == numbers.round()).all())
    if rows >= FEWEST_IDS and whole and numbers.n_unique() == rows:
        return Kind("ignore", "looks like ids: every row has another whole number")
    return Kind("number")


def _of_texts(text: polars.Series, most: int) -> Kind:
    if _mostly(text.str.contains(DATE)):
        return Kind("ignore", "looks like dates")
    if len(text) and float(text.str.len_chars().mean()) > PROSE:  # type: ignore[arg-type] # of numbers
        return Kind("ignore", "looks like free text")
    if text.n_unique() > most:
        return Kind("ignore", "has more categories than there are tasks")
    return Kind("categories")


def _mostly(found: polars.Series) -> bool:
    return len(found) > 0 and float(found.sum()) > MOSTLY * len(found)
