"""One converter for JSON: what is written is read back, and nothing else is taken for it."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Literal

import numpy as np
import pytest

from tacit.errors import InvalidInput
from tacit.json_converter import from_json, to_json


@dataclass(frozen=True)
class Inner:
    name: str
    size: int = 1


@dataclass(frozen=True)
class Outer:
    share: float
    kind: Literal["a", "b"]
    parts: tuple[Inner, ...] = ()
    pair: tuple[int, str] = (0, "")
    label: Hashable = None
    by_name: Mapping[str, Inner] = field(default_factory=dict)
    inner: Inner | None = None
    either: float | Literal["none"] | None = None
    sure: bool = False
    rest: Any = None


FULL = Outer(
    math.inf,
    "b",
    (Inner("x"), Inner("y", 2)),
    (3, "z"),
    ("a", ("b", 1)),
    {"one": Inner("w")},
    Inner("v", 4),
    "none",
    True,
    [1, {"deep": 0.5}],
)


def through_text(value: Any) -> Any:
    return json.loads(json.dumps(to_json(value), allow_nan=False))


@pytest.mark.parametrize("value", [FULL, Outer(0.1, "a"), Outer(0.1, "a", either=2.5)])
def test_what_is_written_is_read_back(value: Outer) -> None:
    assert from_json(Outer, through_text(value), "it") == value


def test_numbers_of_numpy_are_written_as_pythons() -> None:
    written = to_json(Outer(np.float64(0.1), "a", rest=np.arange(2)))
    assert type(written["share"]) is float
    assert written["rest"] == [0, 1]


@pytest.mark.parametrize("value", [date(2020, 1, 2), object(), {1}, np.datetime64("2020-01-02")])
def test_what_json_does_not_know_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="cannot be written"):
        to_json([value])


@pytest.mark.parametrize(
    ("entry", "value", "said"),
    [
        ("shaer", 1, "it has no 'shaer'; did you mean 'share'"),
        ("share", True, "it.share must be a number"),
        ("share", "0.5", "it.share must be a number"),
        ("share", math.nan, "it.share must be a number"),
        ("kind", "c", "it.kind must be 'a' or 'b', got 'c'"),
        ("parts", {}, "it.parts must be a list"),
        ("parts", [{"name": "x"}, {}], r"it.parts\[1\] needs the entry 'name'"),
        ("parts", [{"name": "x", "size": 1.5}], r"it.parts\[0\].size must be an integer"),
        ("pair", [1], "it.pair must have 2 entries, got 1"),
        ("by_name", {"one": 3}, "it.by_name.one must be an object"),
        ("inner", [], "it.inner must be an object"),
        ("either", "some", "it.either must be a number, 'none' or None"),
        ("sure", 1, "it.sure must be True or False"),
        ("sure", None, "it.sure must be True or False"),
    ],
)
def test_what_was_never_written_is_refused_by_name(entry: str, value: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        from_json(Outer, through_text(FULL) | {entry: value}, "it")


@pytest.mark.parametrize("value", [None, [], "text", 3, {"kind": "a"}])
def test_something_else_is_no_object_of_ours(value: Any) -> None:
    with pytest.raises(InvalidInput, match=r"must be an object|needs the entry 'share'"):
        from_json(Outer, value, "it")
