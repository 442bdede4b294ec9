"""What a site keeps of a run on its own disk, so that a process that dies loses nothing.

::

    terms.json       what it agreed to
    00003.round      what was broadcast before release 3: public, as it came
    00003.answer     what it answered, and its state if that is an array: private, for its owner's
                     eyes only
    finished.json    the digests of its hand-outs, as it told them

A participant is a pure function of its rows and of the broadcasts, so its state need not be kept:
what is no array is computed again from the rounds. A round that is on the disk is never replaced by
another.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit import files, folder
from tacit.arrays import Array
from tacit.errors import Refused
from tacit.federation.terms import FILE, Terms
from tacit.federation.wire import is_count, packed, unpacked

FINISHED = "finished.json"


def secret_in(file: Path) -> bytes:
    """32 bytes that were drawn once, for their owner's eyes only."""
    return bytes.fromhex(files.made_once(file, secrets.token_bytes(32).hex().encode()).decode())


@dataclass(frozen=True)
class Records:
    """Of one run, in a folder that only the site's owner can read."""

    place: Path

    @classmethod
    def at(cls, site: Path, terms: Terms) -> Records:
        """Made with its first use."""
        place = site / "runs" / terms.digest  # whole: a part of it can be made to agree
        files.make(place, 0o700)
        return cls(place)

    def of(self, place: int) -> Records:
        """Those of one of its tasks: what it alone was asked, and its own secrets."""
        files.make(self.place / f"task {place}", 0o700)
        return Records(self.place / f"task {place}")

    def agreed(self) -> bool:
        """Whether the site has signed."""
        return (self.place / FILE).exists()

    def rounds(self) -> int:
        """How many broadcasts are there: always the first so many."""
        return sum(1 for _ in self.place.glob("*.round"))

    def broadcast(self, number: int) -> dict[str, Array]:
        """What was shared before release ``number``."""
        return unpacked(files.read_bytes(self._file(number, "round")))[1]

    def take(self, number: int, shared: Mapping[str, Array]) -> None:
        """One more broadcast; Refused if another one was there, or one before it was not."""
        content = packed({"number": number}, shared)
        there = self.rounds()
        if number > there:
            raise Refused("the coordinator", f"round {number} comes before round {there}")
        if number == there:
            files.replace_file(self._file(number, "round"), content)
        elif files.read_bytes(self._file(number, "round")) != content:
            raise Refused("the coordinator", f"round {number} was asked before, with other numbers")

    def answer(self, number: int) -> Array | None:
        """What was answered."""
        found = self._answer(number)
        return None if found is None else found[1]["rows"]

    def _answer(self, number: int) -> tuple[dict[str, Any], dict[str, Array]] | None:
        file = self._file(number, "answer")
        return unpacked(files.read_bytes(file)) if file.exists() else None

    def keep(self, number: int, rows: Array, state: Any) -> None:
        """An answer, before it is sent, and the participant's state after it."""
        kept = {"state": state} if isinstance(state, np.ndarray) else {}
        about = {"resumes": state is None or bool(kept)}
        content = packed(about, {"rows": rows} | kept)
        files.replace_file(self._file(number, "answer"), content, private=True)

    def left_off(self, before: int) -> tuple[int, Array | None]:
        """The first round from which on everything must be computed, and the state before it."""
        for number in range(before - 1, -1, -1):
            found = self._answer(number)
            if found is not None and found[0]["resumes"]:
                return number + 1, found[1].get("state")
        return 0, None

    def finished(self) -> dict[str, Any] | None:
        """What the site said of its hand-outs when the run was over."""
        file = self.place / FINISHED
        return folder.read_json(file) if file.exists() else None

    def finish(self, told: Mapping[str, Any]) -> None:
        """Kept before it is said."""
        folder.write_json(self.place / FINISHED, told)

    def secret(self, name: str) -> bytes:
        """32 bytes of the site's own, the same whenever they are asked for."""
        return secret_in(self.place / name)

    def _file(self, number: int, kind: str) -> Path:
        return self.place / f"{number:05d}.{kind}"


def broadcasts(arrays: Mapping[str, Array]) -> dict[int, dict[str, Array]]:
    """By round: an array is named ``round/name``.

    >>> broadcasts({"0/mean": np.zeros(1)})
    {0: {'mean': array([0.])}}
    """
    found: dict[int, dict[str, Array]] = {}
    for name, array in arrays.items():
        number, slash, part = name.partition("/")
        if not (slash and number.isdecimal() and len(number) < 6):
            raise Refused("the coordinator", f"an array is called {name!r}, expected round/name")
        found.setdefault(int(number), {})[part] = array
    return found


def broadcast_alone(number: Any, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """What is told with this release; Refused if it is not that of this round alone. Secret coins
    follow the round, so that who tells it must not choose it."""
    told = broadcasts(arrays)
    if not (
        is_count(number)
        and told.keys() == {number}
        and np.array_equal(told[number].get("round", number), number)
    ):
        raise Refused("the coordinator", f"it asks for release {number!r}, and tells another")
    return told[number]
