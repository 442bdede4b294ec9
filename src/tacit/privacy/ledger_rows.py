"""Rows of a ledger, read: what they say, and whether they follow from what was there before."""

from __future__ import annotations

from tacit.errors import BudgetExceeded, LedgerCorrupt, LedgerError, TacitError
from tacit.folder import DEEPEST, is_deep
from tacit.privacy.chain import GENESIS, Entry, Row, link, linked, parsed, sha256
from tacit.privacy.long_lists import lengthened
from tacit.privacy.release import Key
from tacit.privacy.runs import Run
from tacit.privacy.snapshot import written
from tacit.privacy.spending import DeclaredAt, Spending
from tacit.privacy.store import IndexedKey, Store

UNREADABLE = (TacitError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError)
"""What reading something raises that no ledger wrote."""


def read_entry(store: Store, row: Row) -> Entry:
    """A stored row, with the lists that it names; LedgerCorrupt where it is no JSON of ours."""
    try:
        payload = parsed(row.payload)
        payload = lengthened(payload, store.blob) if '"list"' in row.payload else payload
        wrong = None if isinstance(payload, dict) else f"a {type(payload).__name__}"
        if wrong is None and is_deep(payload):
            wrong = f"it nests deeper than {DEEPEST} levels"
    except (LedgerCorrupt, ValueError, RecursionError) as error:
        wrong = str(error)
    if wrong is not None:
        raise LedgerCorrupt(f"entry {row.seq} cannot be read: {wrong}; nothing was released")
    return Entry(row.seq, row.kind, payload, row.digest.hex())


def read_declared(store: Store, declared: DeclaredAt) -> Entry:
    """An entry whose digest is known: LedgerCorrupt if it is another one."""
    before, row = store.row(declared.seq - 1), store.row(declared.seq)
    previous = GENESIS if before is None else before.digest
    if row is None or link(previous, row.kind, row.payload).hex() != declared.digest:
        raise LedgerCorrupt(
            f"entry {declared.seq} is no longer what was recorded; nothing was released"
        )
    return read_entry(store, row)


def read_run(store: Store, declared: DeclaredAt) -> Run:
    """The run that was declared before a snapshot, which knows the digest of its entry."""
    return Run.from_json(read_declared(store, declared).payload)


def entry_key(entry: Entry) -> Key:
    """The key that a spend or an output names."""
    return Key(entry.payload["run"], entry.payload["round"], entry.payload["party"])


class Fold:
    """A state, and the entry of the chain that it is of."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.state = Spending()
        self.seq, self.digest = 0, GENESIS
        self.changes = 0  # of the store, when the last entry was folded in
        self.snapshot = (0, "")  # the newest one's entry, and the digest of its blob

    def begin_with(self, state: Spending, row: Row, blob: str) -> None:
        """Believe a snapshot: the state is that of its entry."""
        self.state, self.seq, self.digest = state, row.seq, row.digest
        self.snapshot = (row.seq, blob)

    def take(self, row: Row, *, strict: bool = False) -> Entry:
        """Fold in the next row; LedgerCorrupt says why it does not belong there.

        Strict also computes every price again, and holds it to its cap.
        """
        wrong = linked(row, self.seq, self.digest)
        if wrong:
            raise LedgerCorrupt(wrong)
        entry = read_entry(self._store, row)
        try:
            if row.kind in ("spend", "output"):
                self._require_place(entry)
            if row.kind == "snapshot":
                self._require_true(entry)
            self.add(entry, row.digest, strict=strict)
        except (LedgerError, BudgetExceeded) as error:
            raise LedgerCorrupt(f"entry {row.seq} should not be there: {error}") from None
        except UNREADABLE as error:
            raise LedgerCorrupt(f"entry {row.seq} cannot be read: {error!r}") from None
        return entry

    def add(self, entry: Entry, digest: bytes, *, strict: bool = False) -> None:
        """Fold in an entry that is known to follow."""
        self.state.apply(entry, strict=strict)
        if entry.kind == "snapshot":
            self.snapshot = (entry.seq, str(entry.payload["sha256"]))
        self.seq, self.digest = entry.seq, digest
        self.changes = self._store.changes

    def _require_true(self, entry: Entry) -> None:
        """A snapshot is of the entries before it, whoever wrote it: what follows it, and the head
        kept of that, would let the next one begin there."""
        if entry.payload["sha256"] != sha256(written(self.state)):
            raise LedgerCorrupt("a snapshot that says something else than the entries before it")

    def _require_place(self, entry: Entry) -> None:
        """Each key has one spend, and one output after it: those that the index knows."""
        key, spends = entry_key(entry), entry.kind == "spend"
        indexed = IndexedKey.of(key)
        if self._store.indexing:
            self._index(indexed, entry)
        place = self._store.place(indexed)
        if spends and (place is None or place.spend != entry.seq):
            raise LedgerCorrupt(f"a second spend for {key}, or one that is not in the index")
        if not spends and (place is None or not place.spend < entry.seq == place.output):
            raise LedgerCorrupt(f"an output of {key} that no spend allows, or a second one")

    def _index(self, key: IndexedKey, entry: Entry) -> None:
        """Note a key of a file whose writers did not, unless it is known."""
        place = self._store.place(key)
        if entry.kind == "spend" and place is None:
            self._store.put_spend(key, entry.seq)
        elif entry.kind == "output" and place is not None and place.output is None:
            self._store.put_output(key, entry.seq)
