"""The collector of reports (S4): it asks every device, and counts each person once.

What a device answered first is on the disk before it counts, for good: a second report of the same
people, a replayed one and one of somebody else's people change nothing, and are noted. Devices come
and go: who does not answer is asked again when the collector is run again.

::

    reports/TERMS/00003.report   what was reported by the device of that number under these terms
    reports.jsonl                one report a line, for everybody; users.json says whose each is
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

from tacit import files, folder
from tacit.arrays import FloatArray
from tacit.errors import InvalidInput
from tacit.federation.reporting import ENCODER, ExportedEncoder
from tacit.federation.sites import ROOM, Sites
from tacit.federation.wire import packed, require_rows, unpacked
from tacit.tasks.labels import written_label

REPORTS, USERS = "reports.jsonl", "users.json"


@dataclass(frozen=True)
class Collector:
    """The reports of a run, in its folder."""

    place: Path
    sites: Sites
    encoder: ExportedEncoder

    @classmethod
    def at(cls, place: Path, sites: Sites) -> Collector:
        """InvalidInput if the encoder here is not the one that was agreed on."""
        encoder = ExportedEncoder.read(place / ENCODER)
        if encoder.digest != sites.terms.encoder:
            raise InvalidInput(f"{place / ENCODER} is not the encoder of the terms")
        found = cls(place, sites, encoder)
        files.make(found.reports)
        return found

    @property
    def reports(self) -> Path:
        """Those of these terms: another survey's are never taken for them."""
        return self.place / "reports" / self.sites.terms.digest

    def collect(self) -> Path:
        """Asks until everybody reported or the time is up; the file with what there is."""
        until = time.monotonic() + self.sites.terms.seconds
        while self.missing():
            self.sites.meet()
            self.ask()
            if not self.missing() or time.monotonic() > until:
                break
            self.sites.asked &= set(self.sites.address.values())  # the others are asked again
            time.sleep(min(1.0, self.sites.terms.seconds / 10))
        heard = sorted(self.sites.terms.sites.keys() - set(self.missing()))
        self.sites.note("finished", whole=heard, missing=self.missing())
        return self.written(heard)

    def missing(self) -> list[str]:
        """The devices that did not report yet."""
        return [name for name in sorted(self.sites.terms.sites) if not self._file(name).exists()]

    def ask(self) -> None:
        """Those who are there and did not report yet."""
        request = packed({"kind": "report", "terms": self.sites.terms.digest})
        there = [name for name in self.missing() if name in self.sites.address]
        most = 8 * self.encoder.width * len(self.sites.terms.labels) + ROOM
        for name, _, arrays in self.sites.sound_answers(dict.fromkeys(there, request), most):
            try:
                self.take(name, require_rows(arrays, self._shape(name)))
            except InvalidInput as error:
                self.sites.note("refused", site=name, why=str(error))

    def take(self, name: str, rows: FloatArray) -> None:
        """The first counts; InvalidInput: it is another one."""
        content = packed({"site": name}, {"rows": rows})
        if files.made_once(self._file(name), content) != content:
            raise InvalidInput("its people have reported before, and each counts once")
        self.sites.note("reported", site=name)

    def written(self, heard: list[str]) -> Path:
        """All reports so far, person by person, in the order of the terms."""
        of: dict[int, list[float]] = {}
        for name in heard:
            rows = unpacked(files.read_bytes(self._file(name)))[1]["rows"]
            of |= dict(zip(self.sites.terms.places[name], rows.tolist(), strict=True))
        lines = "".join(json.dumps(of[place]) + "\n" for place in sorted(of))
        labels = [written_label(self.sites.terms.labels[place]) for place in sorted(of)]
        files.replace_file(self.place / REPORTS, lines.encode())
        folder.write_json(self.place / USERS, labels)
        return self.place / REPORTS

    def _shape(self, name: str) -> tuple[int, int]:
        return len(self.sites.terms.places[name]), self.encoder.width

    def _file(self, name: str) -> Path:
        number = sorted(self.sites.terms.sites).index(name)
        return self.reports / f"{number:05d}.report"
