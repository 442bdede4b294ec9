"""What a site keeps of a run on its own disk, so that a process that dies loses nothing.

::

    terms.json       what it agreed to
    00003.round      what was broadcast before release 3: public, as it came
    00003.answer     what it answered: private, for its owner's eyes only

A participant is a pure function of its rows and of the broadcasts, so its state need not be kept:
it is computed again from the rounds. A round that is on the disk is never replaced by another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tacit import files
from tacit.arrays import Array
from tacit.errors import Refused
from tacit.federation.terms import FILE, Terms
from tacit.federation.wire import packed, unpacked


@dataclass(frozen=True)
class Records:
    """Of one run, in a folder that only the site's owner can read."""

    place: Path

    @classmethod
    def at(cls, site: Path, terms: Terms) -> Records:
        """Made with its first use."""
        place = site / "runs" / terms.digest[:16]
        files.make(place, 0o700)
        return cls(place)

    def of(self, place: int) -> Records:
        """Those of one of its nodes, which is asked by itself."""
        files.make(self.place / f"node {place}", 0o700)
        return Records(self.place / f"node {place}")

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

    def answer(self, number: int) -> tuple[Array, bool] | None:
        """What was answered, and whether the participant kept nothing for later."""
        file = self._file(number, "answer")
        if not file.exists():
            return None
        said, arrays = unpacked(files.read_bytes(file))
        return arrays["rows"], bool(said["stateless"])

    def keep(self, number: int, rows: Array, *, stateless: bool) -> None:
        """An answer, before it is sent."""
        content = packed({"stateless": stateless}, {"rows": rows})
        files.replace_file(self._file(number, "answer"), content, private=True)

    def fresh_from(self, number: int) -> int:
        """The first round from which on everything must be computed to answer this one."""
        for earlier in range(number - 1, -1, -1):
            found = self.answer(earlier)
            if found is not None and found[1]:
                return earlier + 1
        return 0

    def _file(self, number: int, kind: str) -> Path:
        return self.place / f"{number:05d}.{kind}"
