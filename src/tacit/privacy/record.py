"""The record: what a ledger's file says, folded as it grows, and every question to it.

State is a fold over the entries (spending.py), which form a hash chain (chain.py) in an SQLite
file (store.py). It is private: it belongs to the trusted side, though it holds no contribution
and never who took part in a sampled round.
"""

from __future__ import annotations

import io
import math
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import NoReturn, Self

import numpy as np

from tacit.errors import InvalidInput, LedgerCorrupt
from tacit.privacy.account import Statement
from tacit.privacy.accounting import Cost
from tacit.privacy.chain import GENESIS, Anchor, Entry, Verdict, broken, entry, sha256
from tacit.privacy.release import Key, Release
from tacit.privacy.runs import Cap
from tacit.privacy.spending import Spending, fold
from tacit.privacy.store import LOCK, SCHEMA_VERSION, Store
from tacit.privacy.verification import verdict


class Record:
    """A ledger that is read."""

    path: Path | None
    dataset: str
    cap: Cap  # that the first run of the data set will declare

    def _begin(self, store: Store) -> None:
        self._store = store
        self._state = Spending()
        self._seq, self._digest = 0, GENESIS
        try:
            if store.version == SCHEMA_VERSION:
                self._catch_up()
            if not store.read_only:
                self._require_newest()
        except BaseException:
            store.close()
            raise

    def _require_newest(self) -> None:
        """Refuse an older copy of the file: what was released since would be forgotten."""
        kept = self._store.kept_head()
        rows = [] if kept is None else self._store.rows(kept.length, 1)
        if kept is not None and (not rows or rows[0].digest.hex() != kept.digest):
            raise LedgerCorrupt(
                f"{self._store.name} ends at entry {self._seq}, but entry {kept.length} was "
                f"recorded ({self._store.name}.head): an older copy was put in its place, and what "
                "was released since would be spent again. Put the newest copy back. If it is lost "
                "for good, keep this one as a record, begin another ledger, and count by hand what "
                "the certificates say was spent; nothing was released"
            )

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
            state = self._state
            known = {run for run in before if run in state.runs}
            if known:
                state = Spending()
                for row in self._store.rows():
                    if row.kind == "run" and entry(row).payload["run"] in known:
                        break
                    fold(state, row)
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
            return Anchor(self._digest.hex(), self._seq)

    def entries(self) -> list[Entry]:
        """All entries, oldest first."""
        return [entry(row) for row in self._store.rows()]

    def verify(self, anchor: Anchor | None = None) -> Verdict:
        """Recompute everything: digests, order, plans, budgets, persisted outputs.

        Finds any edit, removal or reordering; with an anchor also a truncated end.
        """
        kept = self._store.kept_head()
        anchors = [found for found in (anchor, kept) if found is not None]
        with self._store.transaction(write=False):
            folds = self._store.version == SCHEMA_VERSION
            return verdict(self._store.rows(), self._store.digests(), anchors, folds=folds)

    def close(self) -> None:
        """Close the file. An in-memory ledger is gone."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- inside ----------------------------------------------------------------------------------

    def _persisted(self, key: Key) -> Release | None:
        output = self._state.outputs.get(key)
        if output is None:
            return None
        value = self._store.value(self._state.spends[key]) or b""
        if sha256(value) != output.sha256:
            raise LedgerCorrupt(f"{self._store.name}: the output of {key} was edited or removed")
        return Release(np.load(io.BytesIO(value), allow_pickle=False), (key,), output.secure)

    def _catch_up(self) -> None:
        """Fold in what was committed since the last time, by whomever."""
        with LOCK:
            rows = self._store.rows(max(1, self._seq))
            if self._seq:  # the last entry we know must still be there
                if not rows or rows[0].seq != self._seq or rows[0].digest != self._digest:
                    self._corrupt(f"entry {self._seq} is no longer what it was")
                rows = rows[1:]
            problems = broken(rows, self._seq, self._digest)
            if problems:
                self._corrupt(problems[0])
            for row in rows:
                wrong = fold(self._state, row)
                if wrong:
                    self._corrupt(wrong)
                self._seq, self._digest = row.seq, row.digest

    def _corrupt(self, problem: str) -> NoReturn:
        raise LedgerCorrupt(f"{self._store.name}: {problem}; nothing was released")


def checked_key(key: Key) -> Key:
    run, number, party = key
    if not (
        isinstance(run, str) and isinstance(party, str) and isinstance(number, int | np.integer)
    ):
        raise InvalidInput(f"a key is (run: str, round: int, party: str), got {key!r}")
    return Key(run, int(number), party)
