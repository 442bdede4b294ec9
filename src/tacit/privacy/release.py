"""What may leave the trusted side: a Release, or a Declared constant. Nothing else.

A ``Release`` is born in ``Ledger.release`` and nowhere else; a function of Releases and declared
constants is a Release again (post-processing), as long as the function looks at nothing else.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from tacit.arrays import Array, FloatArray
from tacit.errors import InvalidInput
from tacit.privacy.accounting import Event
from tacit.privacy.budget import Neighbours


class Mechanism(Protocol):
    """What the ledger asks of a mechanism: what a release reveals, and the release itself."""

    def event(self, neighbours: Neighbours) -> Event:
        """What one release reveals about one unit whose share is 1."""
        ...

    def release(
        self, contributions: Any, rng: np.random.Generator | None, shares: FloatArray | None = None
    ) -> Array:
        """Clip, sum, add noise; task i is clipped so that it reveals shares[i] · event. Whatever it
        raises must not follow from what it drew: who asks again is charged no second time."""
        ...

    def secure(self, rng: np.random.Generator | None) -> bool:
        """Does a release with this rng have exact noise from the operating system?"""
        ...

    def to_dict(self) -> dict[str, object]:
        """The public parameters, for the record: never who took part, never a contribution."""
        ...


class Key(NamedTuple):
    """The name of one release: it is drawn once and spent once, however often it is asked for."""

    run: str
    round: int
    party: str


def new_run() -> str:
    """A fresh name for a run: 64 random bits.

    >>> len(new_run()), new_run() == new_run()
    (16, False)
    """
    return secrets.token_hex(8)


@dataclass(frozen=True)
class Declared:
    """A public constant that somebody declared: JSON or an array, never computed from the data.

    >>> Declared(0.5).value
    0.5
    """

    value: Any

    def __post_init__(self) -> None:
        if isinstance(self.value, np.ndarray | np.generic):
            object.__setattr__(self, "value", _read_only(self.value))
            return
        try:
            json.dumps(self.value)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"a declared constant is JSON or an array: {error}") from None


@dataclass(frozen=True, eq=False)
class Release:
    """A value that went through the door, and the keys of the releases it came from.

    >>> total = Release(np.array([6.0, 9.0]), (Key("run", 1, "curator"),), secure=True)
    >>> total.map(lambda value: value / 3).value
    array([2., 3.])
    >>> Release.combine(lambda a, b: a / b, total, Declared(3)).source == total.source
    True
    """

    value: Array
    source: tuple[Key, ...]
    secure: bool

    def __post_init__(self) -> None:
        if not self.source:
            raise InvalidInput("a Release comes from at least one key; use Declared for constants")
        object.__setattr__(self, "value", _read_only(self.value))

    def map(self, function: Callable[[Array], ArrayLike]) -> Release:
        """function(value), still a Release: post-processing is free."""
        return Release.combine(function, self)

    @staticmethod
    def combine(function: Callable[..., ArrayLike], *parts: Release | Declared) -> Release:
        """function(value, value, ...): secure if all of its releases are."""
        return Release.derive(lambda *values: {"": function(*values)}, *parts)[""]

    @staticmethod
    def derive(
        function: Callable[..., Mapping[str, ArrayLike]], *parts: Release | Declared
    ) -> dict[str, Release]:
        """As combine, for a function that gives several values by name: each rests on all parts."""
        for part in parts:
            if not isinstance(part, Release | Declared):
                raise InvalidInput(f"only a Release or Declared combines, got {type(part)}")
        releases = [part for part in parts if isinstance(part, Release)]
        source = tuple(dict.fromkeys(key for release in releases for key in release.source))
        secure = all(release.secure for release in releases)
        found = function(*(part.value for part in parts))
        return {name: Release(np.asarray(value), source, secure) for name, value in found.items()}


def _read_only(value: ArrayLike) -> Array:
    array = np.array(value)  # a copy of our own, so that nobody else can write to it
    if array.dtype.hasobject:
        raise InvalidInput("only numbers, booleans and strings may leave; got an array of objects")
    array.setflags(write=False)
    return array
