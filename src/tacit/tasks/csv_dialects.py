"""How a text file writes a table: its bytes, its separator, its decimal mark.

What has to be guessed is guessed from the header, which is public; a line that is no UTF-8 is read
as Windows-1252, by itself alone. So no cell's meaning depends on another task's cells.
"""

from __future__ import annotations

import codecs
import csv
import io
from contextlib import suppress
from pathlib import Path
from typing import Any

from tacit.errors import InvalidInput

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
MARKS = {".": "point", ",": "comma"}
COMMA_NUMBER = r"^\s*[-+]?(\d{1,3}(\.\d{3})+|\d*),\d+([eE][-+]?\d+)?\s*$"
"""A number with a decimal comma, its thousands apart or not: 1,5 and 1.234,5."""
THOUSANDS = r"^\s*[-+]?[1-9]\d{0,2}(\.\d{3})+\s*$"
"""A number whose thousands a point sets apart, or one with three decimals: 1.234."""


def utf8(path: Path) -> tuple[bytes, list[str]]:
    """The bytes of a file as UTF-8. Those of a line that is none are Windows', by itself."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path.name} cannot be read as a table: {error}") from error
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", errors="replace").encode(), []
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        data.decode()
    except UnicodeDecodeError:
        lines = [_line(line) for line in data.splitlines(keepends=True)]
        other = sum(foreign for _, foreign in lines)
        note = f"{other} lines of {path.name} are no UTF-8, and read as Windows-1252 (Latin-1)"
        return b"".join(line for line, _ in lines), [note]
    return data, []


def _line(line: bytes) -> tuple[bytes, bool]:
    try:
        line.decode()
    except UnicodeDecodeError:
        return line.decode("cp1252", errors="replace").encode(), True
    return line, False


def header(data: bytes, separator: str) -> list[str]:
    """The names of the columns; one may hold a line's end, in quotes."""
    text = io.TextIOWrapper(io.BytesIO(data), "utf-8", errors="replace", newline="")
    return next(csv.reader(text, delimiter=separator), [])


def separator_of(data: bytes, asked: str | None) -> tuple[str, bool]:
    """The one that cuts the header into most names; and whether another one cuts it too."""
    if asked is not None:
        return asked, False
    widths = dict.fromkeys(SEPARATORS, 0)
    for mark in SEPARATORS:
        with suppress(csv.Error):  # no header is like that, and polars says what is wrong
            widths[mark] = len(header(data, mark))
    best = max(widths, key=widths.__getitem__)
    return best, sum(width > 1 for width in widths.values()) > 1


def decimal_points(series: Any, decimal: str) -> Any:
    """A polars series of texts in which numbers have a decimal point; other texts stay.

    >>> import polars
    >>> decimal_points(polars.Series(["1,5", "1.234,5", "1.234", "n/a", "2.5"]), ",").to_list()
    ['1.5', '1234.5', '1234', 'n/a', '2.5']
    """
    import polars

    if decimal == "." or series.dtype != polars.String:
        return series
    text = polars.col(series.name)
    pointed = text.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
    is_number = text.str.contains(f"{COMMA_NUMBER}|{THOUSANDS}")
    chosen = polars.when(is_number).then(pointed).otherwise(text)
    return series.to_frame().select(chosen.alias(series.name)).to_series()
