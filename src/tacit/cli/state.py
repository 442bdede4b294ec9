"""The state of a run on the trusted side: run.json, and the keyed fingerprint of the data.

run.json holds what ``--resume`` needs: the name of the run, everything that was declared, where the
ledger is, and the fingerprint of the table. It holds no data.

    fingerprint = HMAC-SHA256(key, run ‖ 0 ‖ SHA-256(file))

The key is 32 random bytes in a file beside the ledger that only its owner can read. Without it the
fingerprint says nothing about the data, so it may stand in a certificate; the name of the run makes
two certificates of the same data look unrelated.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tacit import folder
from tacit.errors import InvalidInput


@dataclass(frozen=True)
class RunState:
    """What a run was declared with."""

    run: str
    options: Mapping[str, Any]  # everything declared, as JSON
    ledger: str  # its path; relative to the folder if it lies there
    dataset: str
    fingerprint: str
    complete: bool = False

    def write(self, directory: Path) -> None:
        """Writes directory/run.json, whole or not at all."""
        folder.write_json(directory / folder.RUN, asdict(self))

    @classmethod
    def read(cls, directory: Path) -> RunState:
        """Inverse of write."""
        found = folder.read_json(directory / folder.RUN)
        try:
            return cls(**found)
        except TypeError as error:
            raise InvalidInput(f"{directory / folder.RUN} is not a run of tacit: {error}") from None

    def ledger_path(self, directory: Path) -> Path:
        """Where the ledger is."""
        return directory / self.ledger


def require_same(before: RunState, now: RunState) -> None:
    """Refuse to resume with other options or other data: the releases would not be of this run."""
    changed = [
        f"{name} was {_short(before.options.get(name))}, is {_short(now.options.get(name))}"
        for name in sorted({*before.options, *now.options})
        if before.options.get(name) != now.options.get(name)
    ]
    if before.ledger != now.ledger or before.dataset != now.dataset:
        changed.append("the ledger or the data set id is another one")
    if before.fingerprint != now.fingerprint:
        changed.append("the table is another one")
    if changed:
        raise InvalidInput(f"--resume needs the run as it was declared: {'; '.join(changed)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def key_path(ledger: Path) -> Path:
    """Where the key of a ledger's fingerprints is kept."""
    return ledger.with_name(ledger.name + ".key")


def ledger_key(ledger: Path) -> bytes:
    """The ledger's key, made on its first use: for its owner's eyes only."""
    path = key_path(ledger)
    return _checked_key(path, folder.made_once(path, secrets.token_hex(32).encode()))


def _checked_key(path: Path, content: bytes) -> bytes:
    try:
        key = bytes.fromhex(content.decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != 32:
        raise InvalidInput(f"{path} is not a key of tacit; the data cannot be recognised by it")
    return key


def fingerprint(key: bytes, run: str, table: Path) -> str:
    """The keyed fingerprint of a file, in hex."""
    with table.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
    return hmac.new(key, run.encode() + b"\0" + digest, "sha256").hexdigest()
