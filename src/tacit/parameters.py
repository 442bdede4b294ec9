"""Parameters, each declared once: the annotation of a field is what ``fit`` holds its value to.

    rounds: Count | Literal["auto"] = "auto"

tells a reader and a type checker what ``rounds`` may be, and ``require_parameters`` refuses the
rest (0, True, 2.5, NaN, 10**30) before a row is looked at. Bounds are wide and public: within them
squares and fourth powers are finite numbers, and loops end.

Numbers may be numpy's; a bool is no number. Text is what can be written as UTF-8. ``random_state``
is a whole number or None: a generator would go on from where the last fit left it, so that a fit
taken up again would not be the same one.
"""

from __future__ import annotations

import collections.abc
import math
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, partial
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from tacit.errors import InvalidInput

T = TypeVar("T")

MOST_ROUNDS = 10_000
SMALLEST, LARGEST = 1e-60, 1e60


@dataclass(frozen=True)
class Between:
    """Numbers from low to high, both among them."""

    low: float
    high: float


Count = Annotated[int, Between(1, MOST_ROUNDS)]
"""Of rounds, releases, reports."""
Size = Annotated[int, Between(1, 2**31 - 1)]
"""Of rows, or of anything that is not walked through one by one."""
Seed = Annotated[int, Between(0, 2**64 - 1)]
Zero = Annotated[float, Between(0, 0)]
Positive = Annotated[float, Between(SMALLEST, LARGEST)]
NonNegative = Annotated[float, Between(0, LARGEST)]
Share = Annotated[float, Between(1e-6, 0.999999)]


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def learner(cls: type[T]) -> type[T]:
    """A class whose annotated fields are its parameters, by name, those of its bases first."""
    return dataclass(eq=False, repr=False, kw_only=True)(cls)


def require_parameters(given: Any) -> None:
    """InvalidInput that names the first parameter which is not what was declared."""
    declared = _declared(type(given))  # type: ignore[arg-type] # a class is hashable
    for name, allowed in declared.items():
        require(name, getattr(given, name), allowed)


def require_unset(given: Any, names: Sequence[str], where: str) -> None:
    """InvalidInput if one of these has another value than its default: it would be ignored."""
    for name in names:
        value, default = getattr(given, name), type(given).__dataclass_fields__[name].default
        if value is not default and not (np.ndim(value) == 0 and value == default):
            raise InvalidInput(f"{name} means nothing {where}: leave it out, got {_seen(value)}")


def require(name: str, value: Any, allowed: tuple[Kind, ...]) -> None:
    """InvalidInput if the value is of none of these kinds.

    >>> require("rounds", 0, kinds(Count | Literal["auto"]))
    Traceback (most recent call last):
    tacit.errors.InvalidInput: rounds must be an integer from 1 to 10,000 or 'auto', got 0
    """
    if not _fits(value, allowed):
        raise InvalidInput(f"{name} must be {_either(allowed)}, got {_seen(value)}")


class Checked:
    """A dataclass that is held to its annotations when it is made."""

    def __post_init__(self) -> None:
        require_parameters(self)


@cache
def _declared(cls: Any) -> dict[str, tuple[Kind, ...]]:
    hints = get_type_hints(cls, include_extras=True)
    return {each.name: kinds(hints[each.name]) for each in fields(cls)}


# --- what an annotation allows -------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """One thing that a value may be: in words, and whether it is."""

    said: str
    holds: Callable[[Any], bool]


def kinds(hint: Any) -> tuple[Kind, ...]:
    """The kinds of value that an annotation allows."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return tuple(kind for part in parts for kind in kinds(part))
    if origin is Literal:
        return tuple(Kind(repr(each), partial(_is, each)) for each in parts)
    if origin in _MADE_OF:
        return (_MADE_OF[origin](*parts),)
    return (_PLAIN.get(hint) or _instance(hint),)


def _fits(value: Any, allowed: tuple[Kind, ...]) -> bool:
    return any(kind.holds(value) for kind in allowed)


def _is(expected: Any, value: Any) -> bool:
    return isinstance(value, type(expected)) and value == expected


def _number(kind: type, within: Between) -> Kind:
    low, high = within.low, within.high
    what, is_one = ("an integer", _is_whole) if kind is int else ("a number", _is_real)
    said = f"{what} from {_written(low)} to {_written(high)}" if low < high else _written(low)
    return Kind(said, lambda v: is_one(v) and low <= _exactly(v) <= high)


def _exactly(number: Any) -> Any:
    """As Python's: numpy would round a bound to the precision of what it is compared with."""
    return number.item() if isinstance(number, np.generic) else number


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_real(value: Any) -> bool:
    return _is_whole(value) or isinstance(value, float | np.floating)


def _is_text(value: Any) -> bool:
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _mapping(_: Any, to: Any) -> Kind:
    allowed = kinds(to)

    def holds(value: Any) -> bool:
        is_one = isinstance(value, collections.abc.Mapping)
        return is_one and all(_fits(each, allowed) for each in value.values())

    return Kind("a mapping" if to is Any else f"a mapping to {_either(allowed)}", holds)


def _sequence(of: Any) -> Kind:
    allowed = kinds(of)

    def holds(value: Any) -> bool:
        is_one = isinstance(value, list | tuple) or getattr(value, "ndim", 0) == 1
        return is_one and all(_fits(each, allowed) for each in value)

    return Kind(f"a list, each {_either(allowed)}", holds)


def _tuple(*parts: Any) -> Kind:
    allowed = [kinds(part) for part in parts]

    def holds(value: Any) -> bool:
        is_one = isinstance(value, list | tuple) and len(value) == len(parts)
        return is_one and all(map(_fits, value, allowed))

    return Kind(f"({', '.join(map(_either, allowed))})", holds)


def _instance(kind: type) -> Kind:
    article = "an" if kind.__name__[0] in "AEIOU" else "a"
    said = f"{article} {kind.__name__}"
    return Kind(said, lambda v: isinstance(v, kind) and not isinstance(v, type))


_FUNCTION = Kind("a function", lambda v: callable(v) and not isinstance(v, type))
_MADE_OF: dict[Any, Callable[..., Kind]] = {
    Annotated: _number,
    collections.abc.Mapping: _mapping,
    collections.abc.Sequence: _sequence,
    collections.abc.Callable: lambda *_: _FUNCTION,
    tuple: _tuple,
}
_PLAIN: dict[Any, Kind] = {
    Any: Kind("anything", lambda _: True),
    NoneType: Kind("None", lambda v: v is None),
    bool: Kind("True or False", lambda v: isinstance(v, bool | np.bool_)),
    str: Kind("text", _is_text),
    int: Kind("an integer", _is_whole),
    float: Kind("a number", lambda v: _is_real(v) and math.isfinite(v)),
}


# --- in words ------------------------------------------------------------------------------------


def _either(allowed: tuple[Kind, ...]) -> str:
    """What is allowed, in one phrase.

    >>> _either(kinds(Literal["a", "b"] | None))
    "'a', 'b' or None"
    """
    *most, last = (kind.said for kind in allowed)
    return f"{', '.join(most)} or {last}" if most else last


def _written(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"


def _seen(value: Any) -> str:
    """What was given, shortly, whatever it is."""
    try:
        return reprlib.repr(value)
    except Exception:  # of somebody's __repr__, or of a number with too many digits
        return f"something of type {type(value).__name__}"
