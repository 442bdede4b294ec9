"""A site over Flower: one entry of plain bytes in, one out. It loads nothing of ours but errors: a
node starts a process for every message, and what it loads is most of what a message costs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from tacit.errors import InvalidInput

CONTENT = "tacit"

Answer = Callable[[Path, bytes], bytes]
"""(the site's folder, a request) → what goes back."""


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


def site_folder(context: Context) -> Path:
    """Named by the node."""
    if "site" not in context.node_config:
        raise InvalidInput("this node was started without --node-config 'site=\"FOLDER\"'")
    return Path(str(context.node_config["site"]))


def client_app(answer: Answer, place_of: Callable[[Context], Path] = site_folder) -> ClientApp:
    """Answers for the site whose folder the node's configuration names."""
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        return Message(carried(answer(place_of(context), content_of(message))), reply_to=message)

    return app
