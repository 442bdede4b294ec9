"""Labels of tasks, classes and categories: which occur, which are known, which are missing."""

from __future__ import annotations

import numbers
from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tacit.errors import InvalidInput, UndeclaredValue

Array: TypeAlias = npt.NDArray[Any]
FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]
Classes: TypeAlias = tuple[Hashable, Hashable]

NUMERIC = "biuf"  # dtype kinds: bool, signed, unsigned, float


def missing_mask(values: Array) -> npt.NDArray[np.bool_]:
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
        raise InvalidInput(
            f"{name} has {int(missing.sum())} missing value(s) (NaN or None), "
            f"the first in row {int(np.argmax(missing))}; drop those rows"
        )


def distinct(values: Array, name: str) -> tuple[tuple[Hashable, ...], IntArray]:
    """The distinct labels and, for each row, the position of its label (N,).

    Labels are plain Python values. They are sorted if they are all numbers or all of one type
    that sorts; otherwise they keep the order of first appearance.

    >>> distinct(np.array(["b", "a", "b"]), "task")
    (('a', 'b'), array([1, 0, 1]))
    """
    if values.dtype.kind in NUMERIC:
        unique, codes = np.unique(values, return_inverse=True)
        return tuple(unique.tolist()), codes.astype(np.int64, copy=False)
    items = _python_values(values)
    labels = _ordered(_unique(items, name))
    lookup = {label: position for position, label in enumerate(labels)}
    return labels, np.fromiter(map(lookup.__getitem__, items), np.int64, len(items))


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
            f"column {name!r} holds {value!r} in row {row}, which was not declared; "
            f"declared: {listed(known)}"
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
    except TypeError:  # pandas.NA has no truth value
        return True
    except ValueError:  # an array inside a cell has many
        return False


def _python_values(values: Array) -> list[Any]:
    if values.dtype.kind in "mM":  # nanoseconds would become bare integers
        values = values.astype(f"{values.dtype.kind}8[us]")
    items = values.tolist()
    return [item.item() if isinstance(item, np.generic) else item for item in items]


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
    one_type = len({type(label) for label in labels}) == 1
    if not one_type and not all(isinstance(label, numbers.Real) for label in labels):
        return tuple(labels)
    if any(isinstance(label, frozenset) for label in labels):  # < is only a partial order
        return tuple(labels)
    try:
        return tuple(sorted(labels))
    except TypeError:
        return tuple(labels)
