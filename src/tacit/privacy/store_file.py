"""A ledger's file: its tables, how it comes into being, and how it is told from other files.

Format 3 holds

=========  ========================================================================================
entries    the hash chain (chain.py): the only table that anything is counted from
outputs    the persisted value of each spend, whose digest is on the chain
keys       which entries a key's spend and output are: an index, which may be made again
blobs      long lists of payloads, and the newest snapshot, by their digest: the chain names it
=========  ========================================================================================

Format 2 had the first two; it is read as it is, and becomes format 3 when it is opened to be
written. Its entries stay what they were.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

from tacit.errors import LedgerCorrupt, LedgerError
from tacit.files import sync
from tacit.privacy.chain import Row

APPLICATION_ID = 0x74616369  # "taci"
SCHEMA_VERSION = 3
FOLDED = (2, 3)
"""Formats whose entries add up."""

_CHAIN = (
    "CREATE TABLE entries (seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, payload TEXT NOT NULL, "
    "digest BLOB NOT NULL)",
    "CREATE TABLE outputs (spend INTEGER PRIMARY KEY REFERENCES entries, value BLOB NOT NULL)",
    f"PRAGMA application_id = {APPLICATION_ID}",
)
KEYS = (
    "TABLE keys (run TEXT NOT NULL, name TEXT NOT NULL, spend INTEGER NOT NULL, output INTEGER, "
    "PRIMARY KEY (run, name)) WITHOUT ROWID"
)
ADDED = (
    f"CREATE {KEYS}",
    "CREATE TABLE blobs (sha256 TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    "CREATE INDEX snapshots ON entries (seq) WHERE kind = 'snapshot'",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
"""What format 3 has and format 2 had not."""

BESIDE = (".key", ".head", ".signing")
"""What lies beside a ledger that was used: where one of them is left, a ledger was there."""


def make(path: Path, first: Row, *, read_only: bool) -> None:
    """A new ledger appears whole or not at all, and only where nothing was."""
    left = [path.name + end for end in BESIDE if path.with_name(path.name + end).exists()]
    if read_only or left:
        raise LedgerError(f"there is no ledger {path}{_lost(left)}; nothing was released")
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        with closing(sqlite3.connect(partial, isolation_level=None)) as connection:
            create(connection, first)
        with suppress(FileExistsError):  # another process was faster: its ledger is the ledger
            os.link(partial, path)
        sync(path.parent)
    finally:
        partial.unlink()


def create(connection: sqlite3.Connection, first: Row) -> None:
    """An empty database becomes a ledger with its first entry."""
    connection.execute("BEGIN")
    for statement in (*_CHAIN, *ADDED):
        connection.execute(statement)
    connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?)", first)
    connection.execute("COMMIT")


def require_whole(path: Path) -> None:
    """Refuse what is no file, or an empty one."""
    if not path.is_file():
        raise LedgerCorrupt(f"{path} is not a file; nothing was released")
    if path.stat().st_size == 0:
        raise LedgerCorrupt(
            f"{path} is empty: a ledger that lost its entries, not a new one; restore it; "
            "nothing was released"
        )


def take_back(path: Path) -> None:
    """What a writer had half written when it was killed is undone, as by the next who may write:
    until then nobody can read the file, and whoever may only read would be refused."""
    if not path.with_name(f"{path.name}-journal").exists():
        return
    place = f"file:{quote(os.fsencode(str(path)))}?mode=rw"
    with suppress(sqlite3.Error), closing(sqlite3.connect(place, uri=True)) as connection:
        connection.execute("PRAGMA schema_version")


def require_known(name: str, application: int, version: int, *, read_only: bool) -> None:
    """Refuse what is not one of ours, of a format that we can write, or at least read."""
    if application != APPLICATION_ID:
        raise LedgerCorrupt(f"{name} is not a tacit ledger, but a database of another kind")
    if version not in FOLDED and not (read_only and version == 1):
        raise LedgerError(
            f"{name} is a ledger of format {version}; this tacit writes format {SCHEMA_VERSION}. "
            "Format 1 recorded neither units nor doubts, so nothing can be added to it: keep it as "
            "the record it is (tacit ledger show reads it), and count what it says by hand; "
            "nothing was released"
        )


def _lost(left: list[str]) -> str:
    """What to do where only something beside the ledger is left."""
    if not left:
        return ""
    return (
        f", but {left[0]} lies there: a lost ledger is not a new one. Restore it; or, if nothing "
        f"of these data was ever released, remove {', '.join(left)}"
    )
