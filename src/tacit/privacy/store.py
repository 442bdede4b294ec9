"""The file under the ledger: SQLite, one connection for each process, every commit durable.

Rollback journal and ``synchronous=EXTRA``, on purpose. A spend must be on disk before its noise is
drawn, whatever dies next. Killing the process is survived in every mode. Losing power after a
commit is not: in DELETE mode the commit *is* the removal of the journal, and only EXTRA also syncs
the directory, without which the journal may come back and undo a spend whose release has left.
WAL with FULL would be as safe and three times as fast, but keeps the newest spends in a second
file until a checkpoint: who copies ``ledger.sqlite`` alone would lose them.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tacit.errors import LedgerCorrupt, LedgerError
from tacit.privacy.chain import Row, sha256

APPLICATION_ID = 0x74616369  # "taci"
SCHEMA_VERSION = 1
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


class Store:
    """Two tables, transactions, and one error for everything that goes wrong."""

    def __init__(self, path: Path | None) -> None:
        self.name = ":memory:" if path is None else str(path)
        self._path = path
        with LOCK, self._errors():
            if path is not None:
                with suppress(FileExistsError):  # a ledger is a private view: for its owner only
                    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            self._connect()
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise

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

    def _connect(self) -> None:
        self._connection = sqlite3.connect(
            self.name, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        self._owner = os.getpid()
        self._connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        self._connection.execute("PRAGMA synchronous = EXTRA")
        self._connection.execute(
            "PRAGMA fullfsync = ON"
        )  # where fsync alone does not reach the disk

    def _prepare(self) -> None:
        """Create the tables in an empty file, or see that it is one of ours."""
        self._connection.execute("PRAGMA journal_mode = DELETE")
        if self._is_empty():
            with self.transaction():
                if self._is_empty():  # nobody else was faster
                    for statement in _SCHEMA.split(";"):
                        self._connection.execute(statement)
        if self._pragma("application_id") != APPLICATION_ID:
            raise LedgerCorrupt(
                f"{self.name} is not a tacit ledger, but a database of another kind"
            )
        if self._pragma("user_version") != SCHEMA_VERSION:
            raise LedgerError(
                f"{self.name} is a ledger of version {self._pragma('user_version')}; "
                f"this tacit reads version {SCHEMA_VERSION}"
            )

    def _is_empty(self) -> bool:
        tables = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        return not (tables or self._pragma("application_id") or self._pragma("user_version"))

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


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else b""
