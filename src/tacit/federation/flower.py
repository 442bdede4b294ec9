"""The coordinator over Flower: a request is a message of a run, an answer its reply.

Flower brings them there: SuperLink and SuperNodes, TLS, keys of the nodes, processes. It knows
nothing of what is inside, and nothing of ours is unpickled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from tacit.federation.coordinator import Pages, coordinate
from tacit.federation.flower_site import carried, content_of

PAUSE = 0.2
"""Seconds between two looks at what has arrived."""

PlaceOf = Callable[[Context], Path]
"""The folder of a party."""


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


def server_app(pages: Pages, place_of: PlaceOf = coordinator_folder) -> ServerApp:
    """Coordinates the run whose folder the run's configuration names."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        coordinate(place_of(context), FlowerChannel(grid), pages)

    return app
