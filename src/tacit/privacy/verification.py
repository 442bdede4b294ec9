"""Recomputing a ledger: what was changed, and what could have been changed unseen."""

from __future__ import annotations

from collections.abc import Iterator

from tacit.errors import LedgerCorrupt
from tacit.privacy.chain import GENESIS, Anchor, Entry, Row, Verdict, linked, sha256
from tacit.privacy.ledger_rows import Fold, entry_key, read_entry
from tacit.privacy.mechanisms.recorded import other_than_recorded
from tacit.privacy.store import IndexedKey, Store
from tacit.privacy.store_file import FOLDED

MOST = 100
"""Problems that are told; a file that has more is not worth a longer list."""


def verdict(store: Store, anchors: list[Anchor]) -> Verdict:
    """Hold the rows against their digests, each other and the anchors, and outputs against rows.

    One pass: nothing is kept of a row but what it adds to the state. Rows of format 1 are held
    against their digests alone.
    """
    verification = _Verification(store, anchors)
    for row in store.rows():
        verification.take(row)
    verification.finish()
    problems, head = verification.problems, verification.head
    return Verdict(not problems, head, tuple(problems), (_unseen(head, anchors),))


class _Verification:
    """What was found so far."""

    def __init__(self, store: Store, anchors: list[Anchor]) -> None:
        self._store, self._anchors = store, anchors
        self._fold: Fold | None = Fold(store) if store.version in FOLDED else None
        snapshot = store.newest_snapshot()
        self._snapshot = 0 if snapshot is None else snapshot.seq
        self._seq, self._length, self._digest = 0, 0, GENESIS
        self._spends = self._outputs = 0
        self.problems: list[str] = []
        for anchor in anchors:
            if anchor.length < 1 and anchor != Anchor(GENESIS.hex(), 0):
                self._found([_rewritten(anchor)])

    @property
    def head(self) -> Anchor:
        return Anchor(self._digest.hex(), self._length)

    def take(self, row: Row) -> None:
        """One more row."""
        wrong = linked(row, self._seq, self._digest)
        self._found([] if wrong is None else [wrong])
        self._seq, self._length, self._digest = row.seq, self._length + 1, row.digest
        for anchor in self._anchors:
            if anchor.length == self._length and anchor.digest != row.digest.hex():
                self._found([_rewritten(anchor)])
        if self._fold is not None and wrong is None:
            self._follow(self._fold, row)
        elif wrong is not None:
            self._fold = None  # what follows adds up to nothing

    def _follow(self, fold: Fold, row: Row) -> None:
        """Whether the row's predecessors allow it, and it is what it says."""
        try:
            if row.seq == self._snapshot:
                self._found(_lost_snapshot(self._store, row))
            entry = fold.take(row, strict=True)
            if entry.kind == "spend":
                self._spends += 1
                self._found(_other_event(entry, fold))
            elif entry.kind == "output":
                self._outputs += 1
                self._found(_other_output(self._store, entry))
        except LedgerCorrupt as error:
            self._found([str(error)])
            self._fold = None

    def finish(self) -> None:
        """What only the end can tell: rows that are missing there, or too many beside the chain."""
        for anchor in self._anchors:
            if self._length < anchor.length:
                self._found(
                    [
                        f"truncated: {self._length} entries, but {anchor.length} when the anchor "
                        "was taken"
                    ]
                )
        counted = (self._spends, self._outputs, self._outputs)
        if self._fold is not None and self._store.sizes() != counted:
            self._found(["an output, or the key of one, was added or removed beside the entries"])

    def _found(self, problems: Iterator[str] | list[str]) -> None:
        self.problems += list(problems)[: MOST - len(self.problems)]


def _rewritten(anchor: Anchor) -> str:
    return f"rewritten: entry {anchor.length} is not the one the anchor was taken at"


def _other_event(spend: Entry, fold: Fold) -> Iterator[str]:
    """Where its mechanism, as recorded, reveals something else than was charged."""
    payload = spend.payload
    neighbours = fold.state.runs[payload["run"]].neighbours
    wrong = other_than_recorded(
        payload["mechanism"], payload["event"], bool(payload["secure"]), neighbours
    )
    return (f"entry {spend.seq}: {line}" for line in wrong)


def _other_output(store: Store, output: Entry) -> Iterator[str]:
    """Where the persisted value is not the one that was recorded."""
    place = store.place(IndexedKey.of(entry_key(output)))
    value = None if place is None else store.value(place.spend)
    if place is None or value is None or sha256(value) != output.payload["sha256"]:
        number = output.seq if place is None else place.spend
        yield f"the output of entry {number} was edited, added or removed"


def _lost_snapshot(store: Store, row: Row) -> Iterator[str]:
    """Where what the newest snapshot names is not there."""
    if store.blob(str(read_entry(store, row).payload.get("sha256"))) is None:
        yield f"the snapshot of entry {row.seq} was edited or removed"


def _unseen(head: Anchor, anchors: list[Anchor]) -> str:
    """What this verification could not have seen."""
    if not anchors:
        return (
            "no anchor: entries cut off at the end, or a chain rewritten as a whole, "
            "cannot be seen without one"
        )
    younger = head.length - max(anchor.length for anchor in anchors)
    return f"whether entries after the anchor were cut off cannot be seen ({younger} are there)"
