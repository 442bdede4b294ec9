"""Group commit: callers that wait at the same time share one durable transaction.

A commit waits for the disk several times, however much it writes. So whoever asks for one joins a
line, and while the first of them commits, the others gather; the next commits for all of them:
their checks one after another, each on the state that the one before left, then one COMMIT. Nobody
returns before it. A caller that is refused has written nothing, and the others go on; if anything
else fails, the transaction is undone for all.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from weakref import WeakSet

from tacit.errors import LedgerError, TacitError
from tacit.privacy.chain import Row, canonical, link
from tacit.privacy.ledger_rows import read_entry
from tacit.privacy.long_lists import shortened
from tacit.privacy.record import Record
from tacit.privacy.snapshot import due, written
from tacit.privacy.store import LOCK, Store

T = TypeVar("T")
MOMENT = 0.02
"""Seconds: about what a commit takes, which all who come too late would wait for."""

LONG_TEXT = 4_096
"""A longer payload holds long lists by their digest (long_lists.py)."""


STAYS = "an in-memory ledger cannot go to another process; use a file"


class Caller:
    """What somebody wants to do inside a transaction, and what came of it."""

    def __init__(self, decide: Callable[[], Any]) -> None:
        self._decide, self._result = decide, None
        self._error: BaseException | None = None
        self.done = self.leads = False
        self.thread = threading.get_ident()
        self._called = threading.Lock()  # shut until it is done, or leads
        self._called.acquire()

    def wait(self) -> None:
        """Until somebody calls."""
        self._called.acquire()

    def call(self) -> None:
        """Whoever waits need not wait any longer."""
        if self._called.locked():
            self._called.release()

    def decided(self) -> None:
        """Decide; raises what it was refused with."""
        try:
            self._result = self._decide()
        except TacitError as error:
            self._error = error
            raise

    def failed(self, error: BaseException, *, own: bool) -> None:
        """Nothing was committed. Who did not cause it has an error of its own to raise."""
        self.done, self._error = True, error
        if not own:
            kind = type(error) if isinstance(error, LedgerError) else LedgerError
            self._error = kind(str(error) if isinstance(error, LedgerError) else _undone(error))

    def outcome(self) -> Any:
        """What was decided; or raises why it was not."""
        if self._error is not None:
            raise self._error
        return self._result


def _undone(error: object) -> str:
    return f"a transaction that was shared with others was undone: {error!r}; nothing was released"


class Line:
    """Those who wait for a commit. One of them leads: it commits for all, then calls the next."""

    def __init__(self) -> None:
        self._mutex = threading.Condition()
        self._expected, self._asking = 1, 0
        self._leader: Caller | None = None
        self._waiting: list[Caller] = []
        self._taken: list[Caller] = []
        _LINES.add(self)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Of those who will join soon, but need the record first: a commit would keep them from it,
        so whoever leads lets them ask."""
        with self._mutex:
            self._asking += 1
        try:
            yield
        finally:
            with self._mutex:
                self._asking -= 1
                if not self._asking:
                    self._mutex.notify()

    def join(self, caller: Caller) -> None:
        """Wait until the caller is done, or leads. Nobody is here twice: whom an interrupt kept
        from leaving has left."""
        with self._mutex:
            self._waiting = [each for each in self._waiting if each.thread != caller.thread]
            if self._leader is not None and self._leader.thread == caller.thread:
                self._hand_on()
            self._waiting.append(caller)
            if len(self._waiting) >= self._expected:
                self._mutex.notify()
            if self._leader is None:
                self._leader, caller.leads = caller, True
                return
        caller.wait()

    def take(self) -> Sequence[Caller]:
        """Everybody who waits now. As many as the last time are given a moment to come back:
        otherwise the first of them would commit alone while all others wait for it."""
        with self._mutex:
            self._mutex.wait_for(self._gathered, MOMENT)
            self._taken, self._waiting = self._waiting, []
            self._expected = len(self._taken)
            return self._taken

    def _gathered(self) -> bool:
        return not self._asking and len(self._waiting) >= self._expected

    def leave(self, caller: Caller) -> None:
        """Whoever is done, or gave up, goes: nobody is left behind, and the next one leads."""
        if caller.done and not caller.leads:
            return
        with self._mutex:
            self._waiting = [each for each in self._waiting if each is not caller]
            if caller.leads:
                self._hand_on()

    def _hand_on(self) -> None:
        """From who led to the next."""
        for each in self._taken:
            if not each.done:
                each.failed(LedgerError(_undone("interrupted")), own=False)
            each.call()
        self._taken, self._leader = [], next(iter(self._waiting), None)
        if self._leader is not None:
            self._leader.leads = True
            self._leader.call()


_LINES: WeakSet[Line] = WeakSet()


def _begin_anew() -> None:
    """A child has none of its parent's threads: nobody waits in it, and nobody leads."""
    for line in list(_LINES):
        line.__init__()  # type: ignore[misc]  # as new: its lock may be held by nobody who is here


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


class Writing(Record):
    """A ledger that is written: entries, and the snapshots of them."""

    def _begin(self, store: Store) -> None:
        self._line = Line()
        super()._begin(store)

    def _transact(self, decide: Callable[[], T]) -> T:
        """What ``decide`` returns, run inside a transaction, once that is durable. Nothing is, of a
        child's copy of its parent's memory: both would spend the same."""
        if self._store.left_behind:
            raise LedgerError(STAYS)
        caller = Caller(decide)
        try:
            self._line.join(caller)
            if caller.leads:
                callers = self._line.take()
                with LOCK:
                    self._commit(callers, caller)
        finally:  # whatever interrupts it, but while a lock is being taken
            self._line.leave(caller)
        result: T = caller.outcome()
        return result

    def _commit(self, callers: Sequence[Caller], first: Caller) -> None:
        """One transaction for all of them; should it fail, for none."""
        transaction = self._store.transaction()
        try:
            with transaction:
                self._catch_up()
                for caller in callers:
                    self._decide(caller)
                self._keep_snapshot()
        except BaseException as error:
            transaction.gen.close()  # interrupted before its end, it would go on, and be read from
            self._forget()
            for caller in callers:
                caller.failed(error, own=caller is first)
            return
        for caller in callers:
            caller.done = True
        self._store.kept_head.write(self._head())

    def _decide(self, caller: Caller) -> None:
        """One caller's turn: what it appends, the next one's state holds. A refusal is its own."""
        changes = self._store.changes
        try:
            caller.decided()
        except TacitError:
            if not self._store.is_as_with(changes):
                raise

    @property
    def _next(self) -> int:
        """The number of the entry that is appended next."""
        return self._fold.seq + 1

    def _append(self, kind: str, payload: dict[str, Any]) -> None:
        """Write one entry; the state takes it in at once, and forgets it if nobody can commit."""
        put = self._store.put_blob
        many = any(isinstance(each, list) and len(each) > LONG_TEXT for each in payload.values())
        text = canonical(shortened(payload, put) if many else payload)
        if not many and len(text) > LONG_TEXT:
            text = canonical(shortened(json.loads(text), put))
        row = Row(self._next, kind, text, link(self._fold.digest, kind, text))
        self._store.append(row)
        self._fold.add(read_entry(self._store, row), row.digest)

    def _keep_snapshot(self) -> None:
        """Append a snapshot, if one is due, and forget the one before."""
        since, old = self._fold.snapshot
        if self.path is None or not due(self._fold.seq - since, self._store.blob_size(old)):
            return
        self._store.drop_blob(old)  # first: the new one may be the same
        self._append("snapshot", {"sha256": self._store.put_blob(written(self._state))})
