"""Over Flower: a request is a message of a run, an answer its reply; one entry of plain bytes each.

Flower brings them there: SuperLink and SuperNodes, TLS, keys of the nodes, processes. It knows
nothing of what is inside, and nothing of ours is unpickled. A node starts a process for every
message, so a site has no memory but its folder (records.py).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from tacit.errors import InvalidInput
from tacit.federation.coordinator import KEY, Pages, coordinate
from tacit.federation.site import Site
from tacit.federation.terms import Terms
from tacit.privacy.signing import signer_in
from tacit.tasks import TaskSet

log = logging.getLogger(__name__)

CONTENT = "tacit"
PAUSE = 0.2
"""Seconds between two looks at what has arrived."""

Read = Callable[[Path, Terms], TaskSet]
"""The rows in a site's folder, read as the terms declare them."""

Finished = Callable[[Site], None]
"""What a site does with its folder when it is whole: its private page."""


PlaceOf = Callable[[Context], Path]
"""The folder of a party."""


def carried(content: bytes) -> RecordDict:
    """As Flower carries it."""
    return RecordDict({CONTENT: ConfigRecord({CONTENT: content})})


def content_of(message: Message) -> bytes:
    """Inverse of ``carried``; nothing of a message that failed on its way."""
    if message.has_error():
        return b""
    records = message.content.config_records
    found = records[CONTENT].get(CONTENT) if CONTENT in records else None
    return found if isinstance(found, bytes) else b""


@dataclass
class FlowerChannel:
    """The nodes of a run; an address is the number that the SuperLink gave a node."""

    grid: Grid
    waiting: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Of each message that is out: who has it, and until when an answer counts."""

    def addresses(self) -> Sequence[str]:
        """Of everybody who is there now."""
        return [str(node) for node in self.grid.get_node_ids()]

    def send(self, requests: Mapping[str, bytes], seconds: float) -> None:
        """A message lives as long as its answer counts: what comes later is not delivered."""
        until = time.monotonic() + seconds
        messages = [
            Message(carried(request), int(address), "query", ttl=seconds)
            for address, request in requests.items()
        ]
        for number, address in zip(self.grid.push_messages(messages), requests, strict=True):
            if number:
                self.waiting[number] = address, until

    def received(self) -> Sequence[tuple[str, bytes]] | None:
        """What has come since; None: nobody is asked any more."""
        now = time.monotonic()
        self.waiting = {number: out for number, out in self.waiting.items() if out[1] > now}
        if not self.waiting:
            return None
        found = []
        for reply in self.grid.pull_messages(list(self.waiting)):
            asked = self.waiting.pop(reply.metadata.reply_to_message_id, None)
            if asked is not None and (content := content_of(reply)):
                found.append((asked[0], content))
        if not found:
            time.sleep(PAUSE)
        return found


def coordinator_folder(context: Context) -> Path:
    """Named by the run's configuration."""
    return Path(str(context.run_config["coordinator"]))


def site_folder(context: Context) -> Path:
    """Named by the node."""
    if "site" not in context.node_config:
        raise InvalidInput("this node was started without --node-config 'site=\"FOLDER\"'")
    return Path(str(context.node_config["site"]))


def server_app(pages: Pages, place_of: PlaceOf = coordinator_folder) -> ServerApp:
    """Coordinates the run whose folder the run's configuration names."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        coordinate(place_of(context), FlowerChannel(grid), pages)

    return app


def client_app(read: Read, finished: Finished, place_of: PlaceOf = site_folder) -> ClientApp:
    """Answers for the site whose folder the node's configuration names."""
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        place = place_of(context)
        terms = Terms.read(place)
        rows = partial(read, place, terms)
        site = Site(place.name, terms, rows, signer_in(place / KEY), place)
        answer = site.answer(content_of(message))
        if site.hand_outs.are_whole():
            try:
                finished(site)
            except Exception:  # at home, after everything that others see: it stops nothing
                log.exception("nothing was measured at home")
        return Message(carried(answer), reply_to=message)

    return app
