"""The sites as their coordinator sees them: who agreed, who is asked, whose answer counts.

**The rule for answers.** A round waits ``terms.seconds``. The first sound answer of a site to this
round's request counts; a second one, one to another request, one that is late and one that is not
what was asked for do not. Who is not heard contributes zero, as a task without rows does: nobody's
denominator changes, and every site is charged all the same. Nothing that a site does stops a run.

Who answered, and who was refused for what, is noted in the journal. It belongs to the coordinator,
whom the sites trust; whether a site answers may depend on its data.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tacit import folder
from tacit.arrays import Array, IntArray
from tacit.certificate import documents
from tacit.errors import InvalidInput, Refused
from tacit.federation.own_tasks import Planned
from tacit.federation.site import AGREEMENT
from tacit.federation.terms import Terms
from tacit.federation.wire import digest, packed, require_rows, unpacked
from tacit.json_converter import to_json

ROOM = 2**20
"""Bytes of an answer beside its rows."""

PATIENCE = 3
"""Times ``terms.seconds`` until whoever has not signed, or sent a release, is not waited for."""

Note = Callable[..., None]
"""Writes a line into the journal: what, and about whom."""


Broadcast = Callable[[str, int], dict[str, Array]]
"""(site, round) → what that site is told before that release."""


class Channel(Protocol):
    """How requests reach the sites: an address is whatever the transport knows a node by."""

    def addresses(self) -> Sequence[str]:
        """Of everybody who is there now."""

    def send(self, requests: Mapping[str, bytes], seconds: float) -> None:
        """Each address gets its request, and has so long to answer it."""

    def received(self) -> Sequence[tuple[str, bytes]] | None:
        """What has come since, after a moment if nothing has; None: nobody is asked any more."""


def answers(
    channel: Channel, requests: Mapping[str, bytes], seconds: float
) -> Iterator[tuple[str, bytes]]:
    """Asks, and yields answers as they come, until all came or the time is up."""
    until, waiting = time.monotonic() + seconds, set(requests)
    if requests:
        channel.send(requests, seconds)
    while waiting and time.monotonic() < until:
        found = channel.received()
        if found is None:
            return
        for address, content in found:
            waiting.discard(address)
            yield address, content


@dataclass
class Sites:
    """All sites of a run, over a channel."""

    terms: Terms
    channel: Channel
    note: Note
    signed: Path  # where agreements are kept
    address: dict[str, str] = field(default_factory=dict)  # of each site that agreed
    agreements: dict[str, Any] = field(default_factory=dict)  # as each of them signed
    asked: set[str] = field(default_factory=set)  # addresses, to agree
    heard_until: dict[str, int] = field(default_factory=dict)  # the last round each site has

    def __post_init__(self) -> None:
        if self.signed.exists():
            found = folder.read_json(self.signed)
            of_these = {k: v for k, v in found.items() if v["terms"] == self.terms.digest}
            self.agreements.update(of_these)

    # --- agreement -----------------------------------------------------------------------------

    def agree(self) -> None:
        """Asks until every site is there and has signed; Refused names who does not, or did not in
        time. Who signed before, in a run that goes on, may be away: it counts as silent."""
        until = time.monotonic() + PATIENCE * self.terms.seconds
        while self._away():
            refusals = self.meet()
            away = self._away()
            if said := away & refusals.keys():
                raise refusals[min(said)]
            if away and time.monotonic() > until:
                if unsigned := sorted(away - self.agreements.keys()):
                    raise Refused(", ".join(unsigned), "not there, or it has not signed")
                self.note("away", sites=sorted(away))
                return
            if away:
                self.asked &= set(self.address.values())  # the others are asked again
                time.sleep(min(1.0, self.terms.seconds / 10))

    def _away(self) -> set[str]:
        return self.terms.sites.keys() - self.address.keys()

    def meet(self) -> dict[str, Refused]:
        """Asks everybody at a new address to agree: a site that was away may have another one.
        Who refuses, and whoever is no site of this run, by the name that he gives."""
        refusals = {}
        request = packed({"kind": "agree", "terms": self.terms.to_dict()})
        new = {each: request for each in self.channel.addresses() if each not in self.asked}
        self.asked |= new.keys()
        for address, content in answers(self.channel, new, self.terms.seconds):
            try:
                said, _ = self.sound(content, request, ROOM)
                self.address[name := self._signer(said)] = address
                self.agreements[name] = said["agreement"]
                self.note("agreed", site=name)
            except (Refused, InvalidInput) as error:
                told = error if isinstance(error, Refused) else Refused(address, str(error))
                refusals[told.party] = told
                self.note("refused", site=told.party, why=told.why)
        if new:
            folder.write_json(self.signed, self.agreements)
        return refusals

    def _signer(self, said: Mapping[str, Any]) -> str:
        """The site that signed these terms with its own key."""
        agreement = said.get("agreement")
        name = str(said.get("site"))
        if not isinstance(agreement, dict) or name not in self.terms.sites:
            raise Refused(name, "it is no site of this run, or signs nothing")
        expected = {"format": AGREEMENT, "site": name, "terms": self.terms.digest}
        if {k: v for k, v in agreement.items() if k not in ("signature", "box")} != expected:
            raise Refused(name, "it signed something else")
        if documents.signed_by(agreement) != self.terms.sites[name].key:
            raise Refused(name, "it signed with another key than the terms name")
        return name

    def sound(
        self, content: bytes, request: bytes, most: int
    ) -> tuple[dict[str, Any], dict[str, Array]]:
        """An answer to this very request that is no refusal."""
        said, arrays = unpacked(content, most)
        name = str(said.get("site"))
        if said.get("answers") != digest(request):
            raise Refused(name, "it answers another request")
        if "refused" in said:
            raise Refused(name, f"it refuses: {said['refused']}")
        return said, arrays

    # --- rounds --------------------------------------------------------------------------------

    def rows(
        self,
        number: int,
        broadcast: Broadcast,
        planned: Planned,
        silence: Array,
        units: IntArray,
    ) -> Array:
        """(k, width): the rows of these units (k,), silence where no site was heard.

        A site is told the broadcasts that it has not answered yet.
        """
        self.meet()
        requests = {
            name: self._request(name, number, broadcast, planned) for name in sorted(self.address)
        }
        rows, heard = np.array(silence), set()
        for name, _, arrays in self.sound_answers(requests, silence.nbytes + ROOM):
            own = np.flatnonzero(np.isin(units, self.terms.places[name]))
            try:
                shape = (len(own), *silence.shape[1:])
                found = require_rows(arrays, shape, str(silence.dtype))
            except InvalidInput as error:
                self.note("refused", site=name, round=number, why=str(error))
                continue
            if name not in heard:
                rows[own] = found
                heard.add(name)
                self.heard_until[name] = number
        silent = sorted(self.terms.sites.keys() - heard)
        self.note("round", round=number, heard=sorted(heard), silent=silent)
        return rows

    def told(self, name: str, number: int, broadcast: Broadcast) -> dict[str, Array]:
        """The broadcasts up to a round that a site has not answered yet."""
        first = self.heard_until.get(name, -1) + 1
        return {
            f"{j}/{part}": array
            for j in range(first, number + 1)
            for part, array in broadcast(name, j).items()
        }

    def _request(self, name: str, number: int, broadcast: Broadcast, planned: Planned) -> bytes:
        about = {"kind": "contribute", "terms": self.terms.digest, "number": number}
        about |= {"planned": to_json(planned)}
        return packed(about, self.told(name, number, broadcast))

    def sound_answers(
        self, requests: Mapping[str, bytes], most: int
    ) -> Iterator[tuple[str, dict[str, Any], dict[str, Array]]]:
        """By site: what is a sound answer to its request. The others are noted."""
        site_at = {self.address[name]: name for name in requests}
        sent = {self.address[name]: request for name, request in requests.items()}
        for address, content in answers(self.channel, sent, self.terms.seconds):
            name = site_at.get(address, address)
            try:
                said, arrays = self.sound(content, requests.get(name, b""), most)
                if said.get("site") != name:
                    raise Refused(name, f"it answers as {said.get('site')!r}")
            except (Refused, InvalidInput) as error:
                self.note("refused", site=name, why=str(error))
                continue
            yield name, said, arrays

    # --- at the end ----------------------------------------------------------------------------

    def finish(self, files: Mapping[str, bytes], sealed: Callable[[int, str], bytes]) -> list[str]:
        """Hands everybody the public files; ``sealed(place, digest)`` seals what a task may have of
        what its site made of them. The names of those whose hand-outs are whole."""
        about = {"kind": "finish", "terms": self.terms.digest}
        request, seals = packed(about, _as_arrays(files)), {}
        for name, said, _ in self.sound_answers(dict.fromkeys(self.address, request), ROOM):
            digests: Any = said.get("digests")
            if not _is_digests(digests, self.terms.places[name]):
                self.note("refused", site=name, why="it tells no digests of its tasks")
                continue
            own = {place: sealed(int(place), digest) for place, digest in digests.items()}
            seals[name] = packed(about | {"kind": "seal"}, _as_arrays(own))
        return sorted(
            {name for name, said, _ in self.sound_answers(seals, ROOM) if said.get("sealed")}
        )


def _as_arrays(files: Mapping[str, bytes]) -> dict[str, Array]:
    return {name: np.frombuffer(content, np.uint8) for name, content in files.items()}


def _is_digests(found: Any, places: Sequence[int]) -> bool:
    """One SHA-256, in hex, for each place."""
    return (
        isinstance(found, dict)
        and found.keys() == set(map(str, places))
        and all(isinstance(d, str) and re.fullmatch("[0-9a-f]{64}", d) for d in found.values())
    )
