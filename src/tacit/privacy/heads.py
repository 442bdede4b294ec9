"""The newest head of a ledger, kept beside its file: an older copy of the file is recognised by it,
and a snapshot is believed only under it (snapshot.py)."""

from __future__ import annotations

import json
import secrets
from contextlib import suppress
from pathlib import Path

from tacit.errors import LedgerCorrupt
from tacit.files import read_bytes
from tacit.privacy.chain import Anchor


class KeptHead:
    """``FILE.head``; of a ledger in memory there is none."""

    def __init__(self, ledger: Path | None) -> None:
        self._place = None if ledger is None else ledger.with_name(ledger.name + ".head")
        self._known_length = 0

    def read(self) -> Anchor | None:
        """The entry that was the newest when the file was last written, if that is known."""
        try:
            if self._place is None or not self._place.exists():
                return None
            text = read_bytes(self._place).decode("ascii").strip("\0")
            if not text:
                return None  # lost with the power: its name was synced, and what it held was not
            kept = json.loads(text)
            if not 0 < int(kept["length"]) < 2**63:
                raise ValueError(f"no entry has the number {kept['length']}")
            return Anchor(str(kept["digest"]), int(kept["length"]))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError, OSError) as error:
            raise LedgerCorrupt(f"{self._place} is not the head of a ledger: {error!r}") from None

    def write(self, head: Anchor) -> None:
        """Remember the newest entry.

        Not synced: should it be lost with the power, an older head is as true, or none.
        """
        if self._place is None or self._known_length >= head.length:
            return
        self._known_length = head.length
        kept = self.read()
        if kept is not None and kept.length >= head.length:
            return  # another process has written a newer one
        partial = self._place.with_name(f".{self._place.name}.{secrets.token_hex(8)}")
        with suppress(OSError):
            try:
                partial.write_text(json.dumps(head._asdict()), encoding="ascii")
                partial.replace(self._place)
            finally:
                partial.unlink(missing_ok=True)
