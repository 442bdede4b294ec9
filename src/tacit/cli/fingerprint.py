"""The keyed fingerprint of a table, by which the trusted side knows it again.

    fingerprint = HMAC-SHA256(key, run ‖ 0 ‖ SHA-256(file))

The key is 32 random bytes in a file beside the ledger that only its owner can read. Without it the
fingerprint says nothing about the data, so it may stand in a certificate; the name of the run makes
two certificates of the same data look unrelated.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from pathlib import Path

from tacit import files
from tacit.errors import InvalidInput
from tacit.tasks.table_files import files_of


def ledger_key(ledger: Path) -> bytes:
    """The ledger's key, made on its first use: for its owner's eyes only."""
    path = ledger.with_name(ledger.name + ".key")
    content = files.made_once(path, secrets.token_hex(32).encode())
    try:
        key = bytes.fromhex(content.decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != 32:
        raise InvalidInput(f"{path} is not a key of tacit; the data cannot be recognised by it")
    return key


def fingerprint(key: bytes, run: str, table: Path) -> str:
    """The keyed fingerprint of a file, in hex; of several, of them and their names."""
    if table.is_file():
        digest = _digest(table)
    else:
        each = [file.name.encode() + b"\0" + _digest(file) for file in files_of(table)]
        digest = hashlib.sha256(b"".join(each)).digest()
    return hmac.new(key, run.encode() + b"\0" + digest, "sha256").hexdigest()


def _digest(file: Path) -> bytes:
    with files.opened(file, None) as opened:
        return hashlib.file_digest(opened, "sha256").digest()
