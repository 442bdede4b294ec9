"""The record: what a ledger's file says, folded as it grows, and every question to it.

State is a fold (ledger_rows.py) of the entries (spending.py), a hash chain (chain.py) in an
SQLite file (store.py); it begins with the newest snapshot that can be believed (snapshot.py). It is
private: it belongs to the trusted side, though it holds no contribution and never who took part in
a sampled round.
"""

from __future__ import annotations

import io
import math
from collections.abc import Hashable, Sequence
from contextlib import nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np
from numpy.lib import format as npy_format

from tacit.arrays import Array
from tacit.errors import InvalidInput, LedgerCorrupt
from tacit.privacy.accounting import Cost
from tacit.privacy.chain import Anchor, Entry, Verdict, sha256
from tacit.privacy.dataset_account import Statement
from tacit.privacy.ledger_rows import UNREADABLE, Fold, read_declared, read_entry, read_run
from tacit.privacy.release import Key, Release
from tacit.privacy.runs import Cap
from tacit.privacy.snapshot import restored
from tacit.privacy.spending import DeclaredAt, Spending
from tacit.privacy.store import LOCK, IndexedKey, Place, Store
from tacit.privacy.store_file import FOLDED, SCHEMA_VERSION
from tacit.privacy.verification import verdict


class Record:
    """A ledger that is read."""

    path: Path | None
    dataset: str
    cap: Cap  # that the first run of the data set will declare

    def _begin(self, store: Store) -> None:
        self._store, self._fold = store, Fold(store)
        try:
            if store.version in FOLDED:
                old = store.version != SCHEMA_VERSION and not store.indexing
                with store.upgrade() if old else nullcontext():
                    self._catch_up()
            if not store.read_only:
                self._require_newest()
        except BaseException:
            store.close()
            raise

    def _require_newest(self) -> None:
        """Refuse an older copy of the file: what was released since would be forgotten."""
        kept = self._store.kept_head.read()
        if kept is not None and not self._holds(kept):
            raise LedgerCorrupt(
                f"{self._store.name} ends at entry {self._fold.seq}, but entry {kept.length} was "
                f"recorded ({self._store.name}.head): an older copy was put in its place, and what "
                "was released since would be spent again. Put the newest copy back. If it is lost "
                "for good, keep this one as a record, begin another ledger, and count by hand what "
                "the certificates say was spent; nothing was released"
            )

    def _holds(self, anchor: Anchor) -> bool:
        """Whether an anchor's entry is there."""
        row = self._store.row(anchor.length)
        return row is not None and row.digest.hex() == anchor.digest

    @property
    def _state(self) -> Spending:
        return self._fold.state

    @property
    def identity(self) -> str:
        """The random name that the ledger was born with; it stands in certificates."""
        return self._state.identity

    def statement(self, tasks: Sequence[Hashable], runs: Sequence[str] = ()) -> Statement:
        """What everything recorded for these tasks reveals of the worst of them, and the part that
        these runs have in it: the worst of each, as no task is in two of them."""
        with LOCK:
            self._catch_up()
            return self._state.statement(self.dataset, tasks, runs)

    def spent(self, task: Hashable) -> Cost:
        """Everything ever spent on a task of this data set, as a lifetime cap counts it."""
        with LOCK:
            self._catch_up()
            return self._state.spent(self.dataset, task)

    def costs(self, tasks: Sequence[Hashable], *, before: Sequence[str] = ()) -> list[Cost]:
        """Everything ever spent on each task, as a lifetime cap counts it; with ``before``, only
        until the first of these runs was declared: a run that resumes plans as it did then."""
        with LOCK:
            self._catch_up()
            runs = self._state.runs
            declared = [runs.progress[run].declared.seq for run in before if run in runs]
            state = self._folded(min(declared) - 1).state if declared else self._state
            return [state.spent(self.dataset, task) for task in tasks]

    def lifetime(self) -> Cap:
        """The cap of this data set: fixed with its first run, or what that will declare."""
        with LOCK:
            self._catch_up()
            account = self._state.account(self.dataset)
        return account.cap if account.opened else self.cap

    def remaining(self, task: Hashable) -> float:
        """ε left to a task under the lifetime cap, at the cap's δ; infinite without a cap."""
        cap = self.lifetime()
        if not cap:
            return math.inf
        return max(0.0, cap[-1].epsilon - self.spent(task).epsilon_at(cap[-1].delta))

    def begun(self, run: str) -> bool:
        """Whether anything was spent on a run."""
        with LOCK:
            self._catch_up()
            return self._state.begun(run)

    def released(self, key: Key) -> Release | None:
        """What was released under this key, if its output is on record: no need to compute again
        what a resumed run would contribute."""
        key = checked_key(key)
        with LOCK:
            self._catch_up()
            return self._persisted(key)

    def head(self) -> Anchor:
        """What to keep elsewhere (in a certificate), so that verify can see truncation."""
        with LOCK:
            self._catch_up()
            return self._head()

    def entries(self) -> list[Entry]:
        """All entries, oldest first."""
        return [read_entry(self._store, row) for row in self._store.rows()]

    def spends(self, run: str) -> list[Entry]:
        """What was spent on a run, release by release: however much else is on record."""
        return [read_entry(self._store, row) for row in self._store.spends(run)]

    def verify(self, anchor: Anchor | None = None) -> Verdict:
        """Recompute everything, in one pass: digests, order, plans, budgets, persisted outputs.

        Finds any edit, removal or reordering; with an anchor also a truncated end. It believes no
        snapshot, and its memory grows with tasks and runs, not with releases.
        """
        anchors = [found for found in (anchor, self._store.kept_head.read()) if found is not None]
        with self._store.transaction(write=False):
            return verdict(self._store, anchors)

    def close(self) -> None:
        """Close the file. An in-memory ledger is gone."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- inside ----------------------------------------------------------------------------------

    def _persisted(self, key: Key) -> Release | None:
        place = self._store.place(IndexedKey.of(key))
        return None if place is None else self._output(key, place)

    def _output(self, key: Key, place: Place) -> Release | None:
        if place.output is None:
            return None
        row, value = self._store.row(place.output), self._store.value(place.spend) or b""
        try:
            payload = {} if row is None else read_entry(self._store, row).payload
            if payload == key._asdict() | {"sha256": sha256(value), "secure": payload["secure"]}:
                kept = np.load(io.BytesIO(value), allow_pickle=False)
                return Release(kept, (key,), bool(payload["secure"]))
        except UNREADABLE:
            pass
        raise LedgerCorrupt(f"{self._store.name}: the output of {key} was edited or removed")

    def _head(self) -> Anchor:
        return Anchor(self._fold.digest.hex(), self._fold.seq)

    def _catch_up(self) -> None:
        """Fold in what was committed since the last time, by whomever."""
        with LOCK:
            if self._fold.seq and self._store.is_ours_since(self._fold.changes):
                return
            if not self._fold.seq:
                self._begin_with_snapshot()
            rows = self._store.rows(max(1, self._fold.seq))
            if self._fold.seq:  # the last entry we know must still be there
                last = next(rows, None)
                if last is None or (last.seq, last.digest) != (self._fold.seq, self._fold.digest):
                    self._corrupt(f"entry {self._fold.seq} is no longer what it was")
            try:
                for row in rows:
                    self._fold.take(row)
            except LedgerCorrupt as error:
                self._corrupt(str(error))

    def _forget(self) -> None:
        """Begin anew at the next question: the newest snapshot, if it can be believed, and on."""
        self._fold = Fold(self._store)

    def _begin_with_snapshot(self) -> None:
        """Begin with the newest snapshot, if there is one that can be believed (snapshot.py)."""
        try:
            kept, row = self._store.kept_head.read(), self._store.newest_snapshot()
            if kept is None or row is None or row.seq > kept.length or not self._holds(kept):
                return
            if row.kind != "snapshot":  # the index that found it is not trusted
                return
            declared = DeclaredAt(row.seq, row.digest.hex())
            digest = read_declared(self._store, declared).payload["sha256"]
            blob = self._store.blob(digest)
            if blob is not None:
                state = restored(blob, lambda at: read_run(self._store, at))
                self._fold.begin_with(state, row, digest)
        except UNREADABLE:
            return  # then everything is folded

    def _folded(self, last: int) -> Fold:
        """Everything up to an entry, folded anew: whatever a snapshot or an index says."""
        fold = Fold(self._store)
        try:
            for row in self._store.rows():
                if row.seq > last:
                    break
                fold.take(row)
        except LedgerCorrupt as error:
            self._corrupt(str(error))
        return fold

    def _corrupt(self, problem: str) -> NoReturn:
        raise LedgerCorrupt(f"{self._store.name}: {problem}; nothing was released")


def npy(value: Array) -> bytes:
    """What np.save writes; its header is made once for each shape.

    >>> np.load(io.BytesIO(npy(np.array([[1.0, 2.0]]))))
    array([[1., 2.]])
    """
    return _npy_header(value.dtype, value.shape) + value.tobytes()


@lru_cache(maxsize=64)
def _npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    if dtype.hasobject:
        raise InvalidInput(f"what is released is made of numbers, got {dtype}")
    told, header = npy_format.dtype_to_descr(dtype), io.BytesIO()
    fields = {"descr": told, "fortran_order": False, "shape": shape}
    npy_format.write_array_header_1_0(header, fields)
    return header.getvalue()


def checked_key(key: Key) -> Key:
    run, number, party = key
    if not (
        isinstance(run, str) and isinstance(party, str) and isinstance(number, int | np.integer)
    ):
        raise InvalidInput(f"a key is (run: str, round: int, party: str), got {key!r}")
    return Key(run, int(number), party)
