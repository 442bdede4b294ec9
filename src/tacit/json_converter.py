"""One converter for JSON: a dataclass is the object of its fields, and is read back strictly.

===================  ==============================================================
a dataclass          the object of its fields, unless its ``to_dict`` says otherwise
a tuple, an array    a list
infinity             "infinity": JSON has no word for it
===================  ==============================================================

Whatever is read may have been written by anybody. The annotation of a field is what it is held to,
as a parameter is (parameters.py): an entry that is unknown, missing or of another kind is
InvalidInput that names it. An older file has no entry for a younger field, which has a default.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from tacit.errors import InvalidInput, nearest
from tacit.parameters import kinds, require

T = TypeVar("T")

INFINITY = "infinity"


def to_json(value: Any) -> Any:
    """The value in lists, objects, text, numbers, True, False and None.

    >>> to_json({"label": ("a", np.int64(1)), "epsilon": math.inf})
    {'label': ['a', 1], 'epsilon': 'infinity'}
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, float):
        return INFINITY if value == math.inf else value
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, list | tuple):
        return [to_json(each) for each in value]
    if isinstance(value, Mapping):
        return {name: to_json(each) for name, each in value.items()}
    if is_dataclass(value):
        return value.to_dict() if hasattr(value, "to_dict") else fields_to_json(value)
    raise InvalidInput(f"{value!r} cannot be written; use text, numbers or tuples of them")


def fields_to_json(value: Any) -> dict[str, Any]:
    """What a dataclass can be made of again."""
    return {each.name: to_json(getattr(value, each.name)) for each in fields(value) if each.init}


def from_json(kind: type[T], value: Any, what: str) -> T:
    """Inverse of to_json; an error calls it ``what``.

    >>> from tacit.privacy.budget import Budget
    >>> from_json(Budget, {"epsilon": 1, "detla": 0}, "budget")
    Traceback (most recent call last):
    tacit.errors.InvalidInput: budget has no 'detla'; did you mean 'delta'?
    """
    read: T = _read(kind, value, what)
    return read


def hashable(label: Any) -> Hashable:
    """A label as it was before JSON made lists of tuples.

    >>> hashable(["a", 1])
    ('a', 1)
    """
    return tuple(map(hashable, label)) if isinstance(label, list) else label


def _read(hint: Any, value: Any, what: str) -> Any:
    origin, parts = get_origin(hint), get_args(hint)
    if NoneType in parts and value is None:
        return None
    if origin in (Union, UnionType) and sum(part is not NoneType for part in parts) == 1:
        return _read(next(part for part in parts if part is not NoneType), value, what)
    if is_dataclass(hint):
        return _made(hint, value, what)
    if origin is tuple:
        return _tuple(parts, value, what)
    if origin is Mapping:
        _require(dict, value, what)
        return {name: _read(parts[1], each, f"{what}.{name}") for name, each in value.items()}
    if hint is Hashable:
        return hashable(value)
    if hint is float and value == INFINITY:
        return math.inf
    require(what, value, kinds(hint))
    return float(value) if hint is float else value


def _made(cls: Any, value: Any, what: str) -> Any:
    _require(dict, value, what)
    hints = _hints(cls)
    for name in value:
        if name not in hints:
            raise InvalidInput(f"{what} has no {name!r}{nearest(name, hints)}")
    for each in fields(cls):
        if each.name not in value and each.default is each.default_factory is MISSING:
            raise InvalidInput(f"{what} needs the entry {each.name!r}")
    return cls(**{name: _read(hints[name], each, f"{what}.{name}") for name, each in value.items()})


def _tuple(parts: tuple[Any, ...], value: Any, what: str) -> tuple[Any, ...]:
    _require(list, value, what)
    each = [parts[0]] * len(value) if parts[1:] == (...,) else list(parts)
    if len(each) != len(value):
        raise InvalidInput(f"{what} must have {len(each)} entries, got {len(value)}")
    paired = enumerate(zip(each, value, strict=True))
    return tuple(_read(part, entry, f"{what}[{i}]") for i, (part, entry) in paired)


def _require(kind: type, value: Any, what: str) -> None:
    if not isinstance(value, kind):
        expected = "an object" if kind is dict else "a list"
        raise InvalidInput(f"{what} must be {expected}, got {value!r:.60}")


@cache
def _hints(cls: Any) -> dict[str, Any]:
    hints = get_type_hints(cls, include_extras=True)
    return {each.name: hints[each.name] for each in fields(cls) if each.init}
