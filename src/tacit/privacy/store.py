"""The file under the ledger: SQLite, one connection for each process, every commit durable.

Rollback journal and ``synchronous=EXTRA``, on purpose. A spend must be on disk before its noise is
drawn, whatever dies next. Killing the process is survived in every mode. Losing power after a
commit is not: in DELETE mode the commit *is* the removal of the journal, and only EXTRA also syncs
the directory, without which the journal may come back and undo a spend whose release has left.
WAL with FULL would be as safe and three times as fast, but keeps the newest spends in a second
file until a checkpoint: who copies ``ledger.sqlite`` alone would lose them.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from tacit.errors import LedgerCorrupt, LedgerError
from tacit.privacy.chain import Anchor, Row, sha256

APPLICATION_ID = 0x74616369  # "taci"
SCHEMA_VERSION = 2
BUSY_SECONDS = 30.0

_SCHEMA = f"""
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, payload TEXT NOT NULL, digest BLOB NOT NULL);
CREATE TABLE outputs (spend INTEGER PRIMARY KEY REFERENCES entries, value BLOB NOT NULL);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""

LOCK = threading.RLock()
"""Held during every use of a connection, and during every fork: so no child starts its life with
a half-finished transaction, or with file locks that SQLite believes to have (they are per process).
"""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release
    )

_LEFT_TO_THE_PARENT: list[sqlite3.Connection] = []
"""A child may neither use nor close its parent's connections: it keeps them, untouched."""


BESIDE = (".key", ".head", ".signing")
"""What lies beside a ledger that was used: where one of them is left, a ledger was there."""


class Store:
    """Two tables, transactions, and one error for everything that goes wrong."""

    def __init__(self, path: Path | None, first: Row, *, read_only: bool = False) -> None:
        """``first`` is the entry that a new ledger begins with; an old one keeps its own."""
        self.name = ":memory:" if path is None else str(path)
        self._path, self.read_only = path, read_only
        self._known_length = 0
        with LOCK, self._errors():
            if path is None:
                self._connect()
                self._create(self._connection, first)
                return
            if not path.exists():
                self._make(path, first)
            self._require_whole(path)
            self._connect()
            try:
                self._recognise()
            except BaseException:
                self._connection.close()
                raise

    @property
    def version(self) -> int:
        """The format of the file."""
        return SCHEMA_VERSION if self._path is None else self._pragma("user_version")

    def rows(self, first: int = 1, most: int = -1) -> list[Row]:
        """The entries from ``first`` on, or so many of them."""
        query = "SELECT seq, kind, payload, digest FROM entries WHERE seq >= ? ORDER BY seq LIMIT ?"
        with LOCK, self._errors():
            found = self._current().execute(query, (first, most)).fetchall()
        return [Row(seq, str(kind), str(text), _bytes(digest)) for seq, kind, text, digest in found]

    def append(self, row: Row) -> None:
        """Write an entry; its number must be new."""
        with self._errors():
            self._current().execute("INSERT INTO entries VALUES (?, ?, ?, ?)", row)

    def value(self, spend: int) -> bytes | None:
        """The persisted output of a spend."""
        query = "SELECT value FROM outputs WHERE spend = ?"
        with LOCK, self._errors():
            found = self._current().execute(query, (spend,)).fetchall()
        return _bytes(found[0][0]) if found else None

    def put_value(self, spend: int, value: bytes) -> None:
        """Persist the output of a spend."""
        with self._errors():
            self._current().execute("INSERT INTO outputs VALUES (?, ?)", (spend, value))

    def digests(self) -> dict[int, str]:
        """The SHA-256 of every persisted output, by the number of its spend."""
        with LOCK, self._errors():
            found = self._current().execute("SELECT spend, value FROM outputs")
            return {spend: sha256(_bytes(value)) for spend, value in found}

    @contextmanager
    def transaction(self, *, write: bool = True) -> Iterator[None]:
        """All or nothing; a writer is alone from its first read on."""
        with LOCK:
            try:
                with self._errors():
                    self._current().execute("BEGIN IMMEDIATE" if write else "BEGIN")
                yield
                with self._errors():
                    self._connection.execute("COMMIT")
            finally:
                with self._errors():
                    if self._connection.in_transaction:  # an error, or a COMMIT that failed
                        self._connection.execute("ROLLBACK")

    # --- the head, kept outside the file too ------------------------------------------------------

    def keep_head(self, head: Anchor) -> None:
        """Remember the newest entry beside the file, so that an older copy is recognised.

        Not synced: should it be lost with the power, an older head is as true.
        """
        if self._path is None or self._known_length >= head.length:
            return
        self._known_length = head.length
        kept = self.kept_head()
        if kept is not None and kept.length >= head.length:
            return  # another process has written a newer one
        partial = self._path.with_name(f".{self._path.name}.{secrets.token_hex(8)}")
        with suppress(OSError):
            try:
                partial.write_text(json.dumps(head._asdict()), encoding="ascii")
                partial.replace(self._path.with_name(self._path.name + ".head"))
            finally:
                partial.unlink(missing_ok=True)

    def kept_head(self) -> Anchor | None:
        """The entry that was the newest when the file was last written, if that is known."""
        if self._path is None:
            return None
        place = self._path.with_name(self._path.name + ".head")
        try:
            kept = json.loads(place.read_text(encoding="ascii"))
            return Anchor(str(kept["digest"]), int(kept["length"]))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise LedgerCorrupt(f"{place} is not the head of a ledger: {error!r}") from None

    def close(self) -> None:
        """Close the connection; a child leaves its parent's alone."""
        with LOCK:
            if self._owner == os.getpid() or self._path is None:
                self._connection.close()

    def _current(self) -> sqlite3.Connection:
        if self._owner != os.getpid() and self._path is not None:  # after a fork
            _LEFT_TO_THE_PARENT.append(self._connection)
            self._connect()
        return self._connection

    def _make(self, path: Path, first: Row) -> None:
        """A new ledger appears whole or not at all, and only where nothing was."""
        left = [path.name + end for end in BESIDE if path.with_name(path.name + end).exists()]
        if self.read_only or left:
            raise LedgerError(f"there is no ledger {path}{_lost(left)}; nothing was released")
        partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            with closing(sqlite3.connect(partial, isolation_level=None)) as connection:
                self._create(connection, first)
            with suppress(FileExistsError):  # another process was faster: its ledger is the ledger
                os.link(partial, path)
            _sync(path.parent)
        finally:
            partial.unlink()

    def _create(self, connection: sqlite3.Connection, first: Row) -> None:
        connection.execute("BEGIN")
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?)", first)
        connection.execute("COMMIT")

    def _require_whole(self, path: Path) -> None:
        if not path.is_file():
            raise LedgerCorrupt(f"{path} is not a file; nothing was released")
        if path.stat().st_size == 0:
            raise LedgerCorrupt(
                f"{path} is empty: a ledger that lost its entries, not a new one; restore it; "
                "nothing was released"
            )

    def _connect(self) -> None:
        place = self.name
        if self.read_only:
            place = f"file:{quote(str(self._path))}?mode=ro"
        self._connection = sqlite3.connect(
            place,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            uri=self.read_only,
        )
        self._owner = os.getpid()
        self._connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        self._connection.execute("PRAGMA synchronous = EXTRA")
        self._connection.execute(
            "PRAGMA fullfsync = ON"
        )  # where fsync alone does not reach the disk

    def _recognise(self) -> None:
        """See that the file is one of ours, of a format that we can write, or at least read."""
        if self._pragma("application_id") != APPLICATION_ID:
            raise LedgerCorrupt(
                f"{self.name} is not a tacit ledger, but a database of another kind"
            )
        if self.version != SCHEMA_VERSION and not (self.read_only and self.version == 1):
            raise LedgerError(
                f"{self.name} is a ledger of format {self.version}; this tacit writes format "
                f"{SCHEMA_VERSION}. Format 1 recorded neither units nor doubts, so nothing can be "
                "added to it: keep it as the record it is (tacit ledger show reads it), and count "
                "what it says by hand; nothing was released"
            )
        if not self.read_only:
            self._connection.execute("PRAGMA journal_mode = DELETE")

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
                raise LedgerCorrupt(
                    f"{self.name} is not a tacit ledger, or no longer ({error}); "
                    "nothing was released"
                ) from error
            raise LedgerError(f"{self.name}: {error}; nothing was released") from error
        except OSError as error:
            raise LedgerError(f"{error}; nothing was released") from error


def _lost(left: list[str]) -> str:
    """What to do where only something beside the ledger is left."""
    if not left:
        return ""
    return (
        f", but {left[0]} lies there: a lost ledger is not a new one. Restore it; or, if nothing "
        f"of these data was ever released, remove {', '.join(left)}"
    )


def _sync(directory: Path) -> None:
    """The names in a directory reach the disk."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else b""
