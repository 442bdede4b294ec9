"""Labels of tasks, classes and categories: which occur, which are known, which are missing.

A task's budget follows its label, so a label has one canonical text in every process, table and
type: 1, 1.0 and "1" are one account. Otherwise a column that turns from numbers into text, because
one more school is called "A7", would open a new account for everybody.
"""

from __future__ import annotations

import json
import math
import numbers
import re
import unicodedata
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, TypeAlias

import numpy as np

from tacit.arrays import Array, BoolArray, IntArray
from tacit.errors import BadCell, InvalidInput, UndeclaredValue
from tacit.json_converter import to_json
from tacit.tasks.counting import counted

Classes: TypeAlias = tuple[Hashable, ...]  # two or more

NUMERIC = "biuf"  # dtype kinds: bool, signed, unsigned, float
DEEPEST = 8
"""How far tuples nest in a label."""
_SPACES = "".join(filter(str.isspace, map(chr, range(0x3001)))) + "\ufeff\u200b\u200c\u200d\u2060"
INVISIBLE = _SPACES + "\0\u200e\u200f\u202a\u202b\u202c\u202d\u202e"
"""What text may begin or end with and nobody sees: blanks, a byte order mark, zero-width spaces,
directions as spreadsheets copy them, and zero bytes, which numpy drops."""
WRITTEN_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)\.0")
"""How tables write an integer of a column of floats: 1.0 is 1, and 1.10 or 01.0 is text."""
WRITTEN_FLOAT = re.compile(r"-?[0-9](\.[0-9]+)?e[-+][0-9]+")
"""And a large or small number: 1e+22 is 1 and 22 zeros, where no float writes 1e5."""
WRITTEN_TIME = re.compile(
    r"[0-9]{4}(-[0-9]{2}){2}[ T][0-9]{2}(:[0-9]{2}){1,2}(\.[0-9]+)?(Z|[-+]..:?..)?"
)
"""And workbooks a time: 2020-01-02 00:00:00 is the day."""
CODE = re.compile(r"[-+]?0[0-9]")
"""How text begins that is no number, whatever digits follow: a leading zero means something."""
LARGEST_ROW = 2**63
"""Below it are the numbers that rows of a table have."""
MOST_DIGITS = 400
"""Of a number in a label, before or after its point; float64 has at most 324."""


def canonical_label(label: object) -> str:
    """The one text by which accounts, models and budgets know a task.

    ======================  =====================================================================
    text                    NFC-normalised, stripped; not empty; "1.0" is 1, "1e+22" a number,
                            "True" true, and a time a time, as programs write them
    true and false          true, false
    a number                decimal, without exponent or trailing zeros: 1.0 is 1, 1.50 is 1.5
    a date or time          ISO 8601; a midnight without time zone is its day, others are in UTC
    StrEnum and IntEnum     as their value
    a tuple of these        the JSON array of their texts
    ======================  =====================================================================

    Nothing else has a text that every process would write alike: it is refused.

    >>> [canonical_label(label) for label in (1, 1.0, " 1", "007", True, ("north", 3))]
    ['1', '1', '1', '007', 'true', '["north","3"]']
    """
    if type(label) is int and -LARGEST_ROW < label < LARGEST_ROW:
        return str(label)  # as below, in a tenth of the time: a million tasks are often numbered
    return _canonical(label, DEEPEST)


def _canonical(label: object, depth: int) -> str:
    match _python_value(label):
        case Enum() as member:
            text = _canonical(member.value, depth) if isinstance(member, str | int) else ""
        case str() as found:
            text = _clean_text(found)
        case bool() as found:
            text = "true" if found else "false"
        case int() | float() | Decimal() as number:
            text = _number_text(number)
        case date() as day:
            text = _date_text(day)
        case tuple() as parts if depth > 0:
            texts = [_canonical(part, depth - 1) for part in parts]
            text = json.dumps(texts, ensure_ascii=False, separators=(",", ":"))
        case _:
            text = ""
    if not text:
        raise InvalidInput(
            f"a task cannot be called {_shown(label)}, of type {type(label).__name__}; expected "
            "text that is not empty, a finite number, true or false, a date, or a tuple of them"
        )
    return text


def _shown(label: object) -> str:
    try:
        return repr(label)
    except (ValueError, RecursionError):  # an integer of more than 4300 digits, a nested tuple
        return "something of that length"


def _clean_text(text: str) -> str:
    """Empty for what is no Unicode, as a file name may be."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return ""
    text = unicodedata.normalize("NFC", text).strip(INVISIBLE)
    if WRITTEN_INTEGER.fullmatch(text):
        return "0" if text == "-0.0" else text[:-2]
    if WRITTEN_FLOAT.fullmatch(text) and repr(float(text)) == text:
        return _number_text(float(text))
    if WRITTEN_TIME.fullmatch(text):
        with suppress(ValueError):  # no such day, or hour
            return _date_text(datetime.fromisoformat(text))
    return text.lower() if text in ("True", "False") else text


def _number_text(number: int | float | Decimal) -> str:
    """Empty unless it is finite and its digits can be written down."""
    is_fraction = isinstance(number, float) and not number.is_integer()
    exact = Decimal(repr(number) if is_fraction else number)  # 0.1 is 0.1, not its 55 binary digits
    if not exact.is_finite() or abs(exact.adjusted()) > MOST_DIGITS:
        return ""
    if exact == exact.to_integral_value():
        return str(int(exact))
    return format(exact, "f").rstrip("0")


def _date_text(day: date) -> str:
    """Empty for NaT, and for what lies outside the calendar in UTC."""
    if not isinstance(day, datetime):
        return day.isoformat()
    try:
        if day.tzinfo is not None:
            return day.astimezone(UTC).isoformat()
        return (day.date() if day.time() == time() else day).isoformat()
    except (OverflowError, ValueError):
        return ""


def written_label(label: Hashable) -> Any:
    """A label as a folder keeps it: as it is, or its text where JSON does not know its type.

    >>> written_label(("a", 7)), written_label(date(2020, 1, 2))
    (['a', 7], '2020-01-02')
    """
    try:
        return to_json(label)
    except InvalidInput:
        return canonical_label(label)


def require_one_text(labels: Iterable[Hashable], name: str) -> None:
    """Refuse two different labels of one task (1 and "1"), and equal ones of two (1 and True)."""
    by_text: dict[str, Hashable] = {}
    for label in labels:
        first = by_text.setdefault(text := canonical_label(label), label)
        if first != label:
            raise InvalidInput(
                f"{name} holds {first!r} and {label!r}, which are one task, {text!r}: "
                "write it in one way"
            )
    by_label: dict[Hashable, str] = {}
    for text, label in by_text.items():
        if by_label.setdefault(label, text) != text:
            raise InvalidInput(
                f"{name} holds {by_label[label]!r} and {text!r}, two tasks whose labels are equal "
                "in Python: write both as text"
            )


def missing_mask(values: Array) -> BoolArray:
    """Which rows are missing, (N,).

    >>> missing_mask(np.array(["a", None, float("nan")], dtype=object))
    array([False,  True,  True])
    """
    if values.dtype.kind in "fc":
        return np.asarray(np.isnan(values))
    if values.dtype.kind in "mM":
        return np.asarray(np.isnat(values))
    if values.dtype.kind == "O":
        return np.asarray(np.frompyfunc(_is_missing, 1, 1)(values), dtype=np.bool_)
    return np.zeros(len(values), dtype=np.bool_)


def require_present(values: Array, name: str) -> None:
    """Refuse missing labels, naming the first row."""
    missing = missing_mask(values)
    if missing.any():
        raise BadCell(
            f"{name} has {int(missing.sum())} missing value(s) (NaN or None), "
            "the first in row {row}; drop those rows",
            int(np.argmax(missing)),
        )


def distinct(values: Array, name: str) -> tuple[tuple[Hashable, ...], IntArray]:
    """The distinct labels and, for each row, the position of its label (N,).

    Labels are plain Python values, sorted as numbers or as one type that sorts, or by their texts.

    >>> distinct(np.array(["b", "a", "b"]), "task")
    (('a', 'b'), array([1, 0, 1]))
    """
    if values.dtype.kind in "iu" and (found := counted(values)) is not None:
        return found
    if values.dtype.kind in NUMERIC:
        unique, codes = np.unique(values, return_inverse=True)
        return tuple(unique.tolist()), codes.astype(np.int64, copy=False)
    items = python_values(values)
    try:
        labels = _ordered(_unique(items, name))
        lookup = {label: position for position, label in enumerate(labels)}
        return labels, np.fromiter(map(lookup.__getitem__, items), np.int64, len(items))
    except RecursionError:
        raise InvalidInput(f"{name} holds a tuple that nests too deep to be compared") from None


def positions(values: Array, known: Sequence[Hashable], name: str) -> IntArray:
    """For each row the position of its label in `known`, -1 if it is not there. (N,)

    >>> positions(np.array([7, 9, 8]), [9, 7], "task")
    array([ 1,  0, -1])
    """
    labels, codes = distinct(values, name)
    lookup = {label: position for position, label in enumerate(known)}
    return np.array([lookup.get(label, -1) for label in labels], dtype=np.int64)[codes]


def require_declared(found: Array, values: Array, known: Sequence[Hashable], name: str) -> None:
    """Refuse position -1: a label that is not `known`."""
    undeclared = found == -1
    if undeclared.any():
        row = int(np.argmax(undeclared))
        value = values[row].item() if isinstance(values[row], np.generic) else values[row]
        raise UndeclaredValue(
            f"column {name!r} holds {value!r} in row {{row}}, which was not declared "
            f"({int(undeclared.sum())} such rows); declared: {listed(known)}",
            row,
        )


def listed(values: Sequence[object]) -> str:
    """The first eight values, for a message."""
    text = ", ".join(repr(value) for value in values[:8])
    return text + (", ..." if len(values) > 8 else "")


def _is_missing(value: object) -> bool:
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ArithmeticError):  # pandas.NA has no truth value, a signalling NaN no equal
        return True
    except ValueError:  # an array inside a cell has many
        return False


def python_values(values: Array) -> list[Any]:
    """The values as plain Python's.

    >>> python_values(np.array([1, 2], dtype=np.int8))
    [1, 2]
    """
    if values.dtype.kind in "mM":
        values = values.astype(f"{values.dtype.kind}8[us]")
    return [_python_value(item) for item in values.tolist()]


def _python_value(value: Any) -> Any:
    if isinstance(value, np.datetime64):  # nanoseconds would become bare integers
        value = value.astype("datetime64[us]")
    return value.item() if isinstance(value, np.generic) else value


def _unique(items: list[Any], name: str) -> list[Hashable]:
    try:
        return list(dict.fromkeys(items))
    except TypeError:
        row = next(row for row, item in enumerate(items) if not _is_hashable(item))
        raise InvalidInput(f"{name} holds {items[row]!r} in row {row}, not hashable") from None


def _is_hashable(item: object) -> bool:
    try:
        hash(item)
    except TypeError:
        return False
    return True


def _ordered(labels: list[Any]) -> tuple[Hashable, ...]:
    """Sorted, by their texts where Python cannot: never by which came first, which rows decide."""
    one_type = len({type(label) for label in labels}) == 1
    if one_type or all(isinstance(label, numbers.Real) for label in labels):
        with suppress(TypeError):
            return tuple(sorted(labels))
    try:
        return tuple(sorted(labels, key=canonical_label))
    except InvalidInput:  # of no task: they are refused, or are a table's cells
        return tuple(labels)


def category(cell: Hashable, categories: Sequence[Hashable]) -> Hashable:
    """The declared category that a cell writes; one that writes none stays as it is.

    >>> category("1.0", (0, 1)), category("True", (False, True)), category("01", (1,))
    (1, True, '01')
    >>> category(1.0, ("1", "2")), category("1", (1, "1"))
    ('1', '1')
    """
    if cell in categories:
        return cell
    if isinstance(cell, str):
        return next((known for known in categories if _value(cell) == known), cell)
    if isinstance(cell, tuple):  # (1,) is (True,) in Python, and another text
        return cell
    try:
        text = canonical_label(cell)
    except InvalidInput:  # a missing cell, or a type that no category has
        return cell
    return text if text in categories else cell


def _value(text: str) -> float:
    """The number or truth value that a text writes; NaN, which equals nothing, if none: 007 is a
    code, and another one than 7."""
    word = text.strip().lower()
    if word in ("true", "false"):
        return word == "true"
    if CODE.match(word):
        return math.nan
    try:
        return float(word)
    except ValueError:
        return math.nan
