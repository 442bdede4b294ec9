"""The file under the ledger: SQLite, one connection for each process, every commit durable.

Rollback journal and ``synchronous=EXTRA``, on purpose. A spend must be on disk before its result is
returned, whatever dies next. Killing the process is survived in every mode. Losing power after a
commit is not: in DELETE mode the commit *is* the removal of the journal, and only EXTRA also syncs
the directory, without which the journal may come back and undo a spend whose release has left.
So a commit syncs five times (the journal and its name, its header, the file, the name's removal).
A journal that is kept (PERSIST, TRUNCATE) is synced as often, as SQLite opens it anew each time. To
keep it costs less of each sync (on one disk a commit took 4.8 bare ones, where removing it took 6.3
to 7), and was left: it stays beside the file for good, and whoever may read the ledger, but not the
journal, could no longer open it.

WAL with FULL would sync once, and was weighed and left: it keeps the newest spends in a second file
until a checkpoint, so that who copies ``ledger.sqlite`` alone would lose them; its index is memory
that two hosts at one network drive do not share, so that both might spend the same ε; and before
SQLite 3.51.3 two processes that write and checkpoint at once may corrupt it (sqlite.org/wal.html,
the WAL-reset bug).
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from tacit.errors import InvalidInput, LedgerCorrupt, LedgerError
from tacit.privacy import store_file
from tacit.privacy.chain import Row, canonical, sha256
from tacit.privacy.heads import KeptHead
from tacit.privacy.release import Key
from tacit.privacy.store_file import SCHEMA_VERSION

_HALF_WRITTEN = (
    "a process was killed while it wrote; before anybody can read it, who may write to it and to "
    "its folder has to open it"
)
BUSY_SECONDS = 30.0
PAGE = 1_000
"""Entries that are read at once: memory does not grow with the ledger."""

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


def located(path: str | os.PathLike[str]) -> Path:
    """Where the file is, wherever the process goes."""
    try:
        place = Path(path).resolve()
        os.fsencode(place)
    except (TypeError, ValueError, RuntimeError) as error:  # a zero byte; a circular link
        raise InvalidInput(f"{path!r} names no file for a ledger: {error}") from None
    if not place.name:
        raise InvalidInput(f"{str(path)!r} is a folder; expected a file for a ledger")
    return place


class IndexedKey(NamedTuple):
    """A key as the index knows it: canonical, since a number or a text may be of any kind."""

    run: str
    name: str

    @classmethod
    def of(cls, key: Key) -> IndexedKey:
        """Made once for a transaction, which asks for it twice."""
        return cls(canonical(key.run), canonical([key.round, key.party]))


class Place(NamedTuple):
    """Which entries a key's spend and its output are."""

    spend: int
    output: int | None


class Store:
    """The tables of a ledger (store_file.py), transactions, and one error for all that fails."""

    def __init__(self, path: Path | None, first: Row, *, read_only: bool = False) -> None:
        """``first`` is the entry that a new ledger begins with; an old one keeps its own."""
        self.name = ":memory:" if path is None else str(path)
        self._path, self.read_only = path, read_only
        self._errors = OurErrors(self.name)
        self.kept_head = KeptHead(path)
        self.indexing = False  # whether whoever folds notes the keys, as no writer did
        with LOCK, self._errors:
            if path is None:
                self._connect()
                store_file.create(self._connection, first)
                return
            if not path.exists():
                store_file.make(path, first, read_only=read_only)
            store_file.require_whole(path)
            if read_only:
                store_file.take_back(path)
            self._connect()
            try:
                self._recognise()
            except BaseException:
                self._connection.close()
                raise

    @property
    def version(self) -> int:
        """The format of the file."""
        return self._pragma("user_version")

    @property
    def changes(self) -> int:
        """How many rows this connection has written."""
        return self._connection.total_changes

    def is_as_with(self, changes: int) -> bool:
        """Whether nothing was written in this transaction since there were so many, and it goes on:
        SQLite gives up some by itself."""
        return self._connection.in_transaction and self.changes == changes

    @property
    def left_behind(self) -> bool:
        """Whether it is a copy, in a forked process, of what another has in memory."""
        return self._path is None and self._owner != os.getpid()

    def is_ours_since(self, changes: int) -> bool:
        """Whether nobody can have written since this connection had written so many rows."""
        return self._path is None and self.changes == changes

    # --- the chain -------------------------------------------------------------------------------

    def rows(self, first: int = 1) -> Iterator[Row]:
        """The entries from ``first`` on, a page in memory at a time."""
        query = "SELECT seq, kind, payload, digest FROM entries WHERE seq >= ? ORDER BY seq LIMIT ?"
        while True:
            page = [_row(*found) for found in self._found(query, first, PAGE)]
            yield from page
            if len(page) < PAGE:
                return
            if page[-1].seq < first:  # a damaged tree, which would be walked for ever
                raise LedgerCorrupt(
                    f"{self.name}: its entries are not in order; nothing was released"
                )
            first = page[-1].seq + 1

    def row(self, seq: int) -> Row | None:
        """One entry."""
        query = "SELECT seq, kind, payload, digest FROM entries WHERE seq = ?"
        return next((_row(*found) for found in self._found(query, seq)), None)

    def newest_snapshot(self) -> Row | None:
        """The last entry that names a snapshot."""
        query = (
            "SELECT seq, kind, payload, digest FROM entries WHERE kind = 'snapshot' "
            "ORDER BY seq DESC LIMIT 1"
        )
        return next((_row(*found) for found in self._found(query)), None)

    def append(self, row: Row) -> None:
        """Write an entry; its number must be new."""
        self._write("INSERT INTO entries VALUES (?, ?, ?, ?)", *row)

    # --- what the chain names --------------------------------------------------------------------

    def place(self, key: IndexedKey) -> Place | None:
        """Where a key was used, if it was."""
        query = "SELECT spend, output FROM keys WHERE run = ? AND name = ?"
        return next((Place(*found) for found in self._found(query, *key)), None)

    def put_spend(self, key: IndexedKey, seq: int) -> None:
        """Note the spend of a key; LedgerError if it has one."""
        self._write("INSERT INTO keys VALUES (?, ?, ?, NULL)", *key, seq)

    def put_output(self, key: IndexedKey, seq: int) -> None:
        """Note the output of a key."""
        self._write("UPDATE keys SET output = ? WHERE run = ? AND name = ?", seq, *key)

    def spends(self, run: str) -> list[Row]:
        """The spends of a run, oldest first."""
        query = (
            "SELECT seq, kind, payload, digest FROM keys JOIN entries ON seq = spend "
            "WHERE run = ? ORDER BY seq"
        )
        return [_row(*found) for found in self._found(query, canonical(run))]

    def value(self, spend: int) -> bytes | None:
        """The persisted output of a spend."""
        found = self._found("SELECT value FROM outputs WHERE spend = ?", spend)
        return _bytes(found[0][0]) if found else None

    def put_value(self, spend: int, value: bytes) -> None:
        """Persist the output of a spend."""
        self._write("INSERT INTO outputs VALUES (?, ?)", spend, value)

    def blob(self, digest: str) -> bytes | None:
        """What has this digest, if it is there and has it."""
        found = self._found("SELECT value FROM blobs WHERE sha256 = ?", digest)
        value = _bytes(found[0][0]) if found else b""
        return value if sha256(value) == digest else None

    def blob_size(self, digest: str) -> int:
        """How many bytes have this digest."""
        found = self._found("SELECT length(value) FROM blobs WHERE sha256 = ?", digest)
        return found[0][0] if found else 0

    def put_blob(self, value: bytes) -> str:
        """Keep something under its digest, once."""
        self._write("INSERT OR IGNORE INTO blobs VALUES (?, ?)", sha256(value), value)
        return sha256(value)

    def drop_blob(self, digest: str) -> None:
        """Forget what has this digest."""
        self._write("DELETE FROM blobs WHERE sha256 = ?", digest)

    def sizes(self) -> tuple[int, int, int]:
        """How many keys, keys with an output, and persisted outputs there are."""
        keys, outputs = self._found("SELECT count(*), count(output) FROM keys")[0]
        return keys, outputs, self._found("SELECT count(*) FROM outputs")[0][0]

    # --- inside ----------------------------------------------------------------------------------

    @contextmanager
    def transaction(self, *, write: bool = True) -> Iterator[None]:
        """All or nothing; a writer is alone from its first read on."""
        with LOCK:
            try:
                with self._errors:
                    self._current().execute("BEGIN IMMEDIATE" if write else "BEGIN")
                yield
                with self._errors:
                    self._connection.execute("COMMIT")
            finally:
                with self._errors:
                    if self._connection.in_transaction:  # an error, or a COMMIT that failed
                        self._connection.execute("ROLLBACK")

    @contextmanager
    def upgrade(self) -> Iterator[None]:
        """Format 2 becomes 3, if everything is folded inside; a reader keeps the keys to itself."""
        self.indexing = True
        if self.read_only:
            self._write(f"CREATE TEMP {store_file.KEYS}")
            yield
            return
        with self.transaction():
            for statement in store_file.ADDED if self.version != SCHEMA_VERSION else ():
                self._write(statement)
            yield
        self.indexing = False

    def close(self) -> None:
        """Close the connection; a child leaves its parent's alone."""
        with LOCK:
            if self._owner == os.getpid() or self._path is None:
                self._connection.close()

    def _found(self, query: str, *values: object) -> list[tuple[int, ...]]:
        with LOCK, self._errors:
            return self._current().execute(query, values).fetchall()

    def _write(self, statement: str, *values: object) -> None:
        with LOCK, self._errors:
            self._current().execute(statement, values)

    def _current(self) -> sqlite3.Connection:
        if self._owner != os.getpid() and self._path is not None:  # after a fork
            if self.indexing:
                raise LedgerError(f"{self.name} is of format 2: open it in the process that reads")
            _LEFT_TO_THE_PARENT.append(self._connection)
            self._connect()
        return self._connection

    def _connect(self) -> None:
        place = self.name
        if self.read_only:
            place = f"file:{quote(os.fsencode(str(self._path)))}?mode=ro"
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
        application, version = self._pragma("application_id"), self.version
        store_file.require_known(self.name, application, version, read_only=self.read_only)
        if computed := self._found("SELECT name FROM sqlite_schema WHERE rootpage = 0"):
            raise LedgerCorrupt(
                f"{self.name} has {computed[0][0]!r}, a view or trigger: what it says would be "
                "computed, for as long as somebody likes; nothing was released"
            )
        if not self.read_only:
            self._connection.execute("PRAGMA journal_mode = DELETE")

    def _pragma(self, name: str) -> int:
        return int(self._found(f"PRAGMA {name}")[0][0])


class OurErrors:
    """A context in which what SQLite or the system raises becomes one of our errors. Entered with
    every statement, so it is no generator."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.Error):
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
                raise LedgerCorrupt(
                    f"{self._name} is not a tacit ledger, or no longer ({error}); "
                    "nothing was released"
                ) from error
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY_ROLLBACK:
                error.args = (_HALF_WRITTEN,)
            raise LedgerError(f"{self._name}: {error}; nothing was released") from error
        if isinstance(error, UnicodeDecodeError):  # what SQLite says of a schema that was damaged
            raise LedgerCorrupt(
                f"{self._name} is no longer a tacit ledger ({error.object!r}); nothing was released"
            ) from None
        if isinstance(error, OSError):
            raise LedgerError(f"{error}; nothing was released") from error


def _row(seq: object, kind: object, text: object, digest: object) -> Row:
    return Row(int(str(seq)), str(kind), str(text), _bytes(digest))


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else b""
