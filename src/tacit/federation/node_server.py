"""The server of nodes that trust nobody: it acts on every arrival, and waits for no one.

One message is outstanding per node. What arrives is written down before anything follows from it,
in a ledger that repeats the nodes' own: the events they spent, the releases they sent, in the order
of their arrival. So a server that died is where it was once it has read its ledger, and anybody can
play the run again. A node that does not answer in time is asked again for the same release; after
``PATIENCE`` times the run goes on without it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tacit.arrays import Array
from tacit.engine import Edge
from tacit.engine.arrivals import GRADIENT, SERVER, Arrival, Moment, Parties
from tacit.engine.protocol import Released
from tacit.errors import InvalidInput, Refused
from tacit.federation.arrived import Arrived
from tacit.federation.node_site import COLUMN, declared, party
from tacit.federation.sites import PATIENCE, ROOM, Sites
from tacit.federation.wire import digest, packed, require_rows, unpacked
from tacit.linear.threads import one_blas_thread


class Outstanding(NamedTuple):
    """What a node was asked, and until when."""

    place: int
    request: bytes
    until: float


@dataclass(frozen=True)
class OverNodes:
    """An engine with the duties of ``run_arrivals``; when somebody answers is up to the nodes."""

    sites: Sites

    def __call__(self, parties: Parties, _: object) -> Moment:
        """Where everybody is when all nodes have sent what they may, or are given up."""
        with one_blas_thread():
            run = _Run.begun(self.sites, parties)
            run.resume()
            run.finish()
        if not run.now.arrivals:
            raise Refused(", ".join(sorted(self.sites.terms.sites)), "not one release came")
        return run.now


@dataclass
class _Run:
    sites: Sites
    parties: Any  # Parties, whose doors are those of this process's ledger
    now: Moment
    out: dict[str, Outstanding] = field(default_factory=dict)  # by the digest of the request
    tries: dict[int, int] = field(default_factory=dict)  # of each node, since it last answered

    @classmethod
    def begun(cls, sites: Sites, parties: Parties) -> _Run:
        for node, door in zip(parties.nodes, parties.doors, strict=True):
            if node.releases:
                declared(node, door)
        states = [node.start() for node in parties.nodes]
        server = parties.server.start()
        return cls(sites, parties, Moment(0.0, server, states, [0] * len(states), []))

    def resume(self) -> None:
        """Takes in what is on the ledger, in the order in which it came."""
        doors = self.parties.doors
        place_of = {door.run: place for place, door in enumerate(doors)}
        for entry in doors[0].ledger.entries() if doors else ():
            if entry.kind == "output" and (run := entry.payload["run"]) in place_of:
                place, number = place_of[run], int(entry.payload["round"])
                mechanism = self.parties.nodes[place].mechanism
                self.take(place, doors[place].release(number, party(place), mechanism, None))

    def finish(self) -> None:
        """Asks, and acts on each arrival, until nobody has anything left to send."""
        for place in range(len(self.parties.nodes)):
            self.ask(place)
        while self.out:
            found = self.sites.channel.received()
            for _, content in found or ():
                self.arrive(content)
            late = time.monotonic()
            for key, waiting in list(self.out.items()):
                if found is None or waiting.until < late:
                    del self.out[key]
                    self.ask(waiting.place)

    def ask(self, place: int) -> None:
        """The next column to a node that has something left to send and is not given up."""
        tried = self.tries[place] = self.tries.get(place, 0) + 1
        number = self.now.sent[place]
        name = self.owner(place)
        if number >= self.parties.nodes[place].releases:
            return
        if tried > PATIENCE:
            self.sites.note("given up", site=name, node=place, number=number)
            return
        if tried > 1:
            self.sites.meet()  # it may have come back under another address
        column = self.parties.server.column(self.now.server, place)
        about = {"kind": "step", "terms": self.sites.terms.digest, "place": place, "number": number}
        request, seconds = packed(about, {COLUMN: column}), self.sites.terms.seconds
        self.out[digest(request)] = Outstanding(place, request, time.monotonic() + seconds)
        if name in self.sites.address:
            self.sites.channel.send({self.sites.address[name]: request}, seconds)

    def owner(self, place: int) -> str:
        """The site that has the node."""
        return next(name for name, own in self.sites.terms.places.items() if place in own)

    def arrive(self, content: bytes) -> None:
        """One answer: on the ledger, then at the server, then the node's next column."""
        asked: Outstanding | None = None
        try:
            asked = self.out.pop(str(unpacked(content, ROOM)[0].get("answers")), None)
            if asked is None:
                raise Refused("a node", "it answers no request that is open")
            _, arrays = self.sites.sound(content, asked.request, ROOM)
            width = len(self.parties.server.column(self.now.server, asked.place))
            self.record(asked.place, require_rows(arrays, (width,)))
            self.tries[asked.place] = 0
        except (Refused, InvalidInput) as error:
            self.sites.note("refused", site=getattr(error, "party", "a node"), why=str(error))
        if asked is not None:
            self.ask(asked.place)

    def record(self, place: int, total: Array) -> None:
        """An arrival: on the ledger before anything follows from it."""
        node, door, number = (
            self.parties.nodes[place],
            self.parties.doors[place],
            self.now.sent[place],
        )
        came = Arrived(node.mechanism)
        self.take(place, door.release(number, party(place), came, total))
        self.sites.note("arrival", site=self.owner(place), node=place, number=number)

    def take(self, place: int, released: Released) -> None:
        """What follows from one release: the node's public state, and the server's next."""
        now, node, server = self.now, self.parties.nodes[place], self.parties.server
        column = server.column(now.server, place)
        message, now.nodes[place] = node.absorb(column, released, now.nodes[place])
        now.sent[place] += 1
        sent = Edge(party(place), SERVER, False, now.transcript).send(message)
        gradient = np.asarray(sent[GRADIENT].value)
        arrival = Arrival(place, server.round(now.server, place), gradient)
        now.arrivals.append(arrival)
        now.server = server.arrive(now.server, [arrival])
