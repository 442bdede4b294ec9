"""The one door: a number computed from private data becomes public only through Ledger.release.

``release`` checks the budget, draws noise, makes spend and result durable together, returns it:

1. The key has an output: return it. Else hold plan and budget against what is known of the record:
   who cannot pay is refused, and nothing is drawn. Else draw the noise, in memory.
2. *One transaction*: catch up with other processes and ask again. The key has an output by now:
   return that one and forget ours. Else append spend and output, commit to disk, return.

**Why one commit is enough.** What is promised is an order between the record and what leaves. A
value leaves by 2 alone, when its spend and its own bits are on disk. Dying before that commit
leaves neither: nobody has seen the draw, and asking again draws as if for the first time. Dying
after it leaves both, and asking again returns the same bits. To commit the spend before the draw
would add a third outcome, spent and nothing to return, from which one draws again for the same
price: it protects from nothing more. Check and append are one exclusive transaction: of two who can
pay in 1, but not both, the second is refused in 2, and its draw dropped. A mechanism that raises is
charged, as whoever catches that has seen something; asked again, it draws for the same price.

Threads that wait at the same time share a transaction (committing.py). Every question to the record
is in record.py. A task that only its own node reads (S3) is a run of its own.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tacit.arrays import Array, FloatArray
from tacit.errors import InvalidInput, LedgerError
from tacit.privacy import prices, runs
from tacit.privacy.accounting import Event
from tacit.privacy.asking import Asked, require_rows
from tacit.privacy.budget import Budget
from tacit.privacy.chain import (
    GENESIS,
    Anchor,
    Entry,
    Row,
    Verdict,
    agree,
    canonical,
    link,
    sha256,
)
from tacit.privacy.committing import STAYS, Writing
from tacit.privacy.dataset_account import Statement
from tacit.privacy.ledger_rows import read_entry
from tacit.privacy.record import checked_key, npy
from tacit.privacy.release import Declared, Key, Mechanism, Release, new_run
from tacit.privacy.runs import USUAL_TERMS, Cap, Run, RunTerms, checked_cap, made_now
from tacit.privacy.store import LOCK, Place, Store, located
from tacit.tasks.labels import canonical_label

__all__ = [
    "Anchor",
    "Declared",
    "Entry",
    "Key",
    "Ledger",
    "Mechanism",
    "Release",
    "Statement",
    "Verdict",
    "new_run",
]


class Ledger(Writing):
    """What was spent on each task of a data set, and what was released for it.

    Several fits on the same data add up, task by task. A file serves any number of processes and
    threads at once, and survives their deaths; ``in_memory()`` is for simulations and audits.

    ``cap`` is a lifetime cap for every task of the data set: a Budget, or a ladder of them. It is
    fixed with the first run, refuses whatever would exceed it, and lets runs compose tightly.
    ``read_only`` reads an existing file and writes nothing.

    >>> from tacit.privacy.accounting import Gaussian
    >>> ledger = Ledger.in_memory(cap=Budget(2.0))
    >>> ledger.open_run("first", ["a", "b"], Budget(1.0), plan=[Gaussian(0.1)] * 4)
    >>> ledger.spent("a")
    Cost(mu_squared=0.0, epsilon=0.0, delta=0.0)
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        *,
        dataset: str = "default",
        cap: Budget | Sequence[Budget] | None = None,
        read_only: bool = False,
    ) -> None:
        self.path = None if path is None else located(path)
        self.dataset, self.cap = canonical_label(dataset), checked_cap(cap)
        self._begin(Store(self.path, _first_row(), read_only=read_only))

    @classmethod
    def in_memory(
        cls, *, dataset: str = "default", cap: Budget | Sequence[Budget] | None = None
    ) -> Ledger:
        """A ledger that is gone with its process, and stays in it: no fork spends from a copy."""
        return cls(None, dataset=dataset, cap=cap)

    def beside(self, dataset: str, *, cap: Budget | Sequence[Budget] | None = None) -> Ledger:
        """The same record, for another data set, or one that is new to it under a cap."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.dataset, other.cap = canonical_label(dataset), checked_cap(cap)
        other._begin(self._store)
        return other

    @property
    def left_behind(self) -> bool:
        """Whether it is a forked process's copy of a ledger in memory, from which nobody spends."""
        return self._store.left_behind

    # --- spending --------------------------------------------------------------------------------

    def open_run(
        self,
        run: str,
        tasks: Sequence[Hashable],
        budgets: Budget | Sequence[Budget | None],
        plan: Sequence[Event],
        terms: RunTerms = USUAL_TERMS,
        *,
        shares: Sequence[float] | FloatArray | None = None,
    ) -> None:
        """Declare a run before its first release, and check that its plan fits.

        Budgets are this run's, for each task; None: that task is not charged and has share 0.
        ``terms`` say who is protected from whom, and how (runs.py). ``shares`` (m,), in [0, 1], are
        what each task reveals of an event (default 1). Declaring the same again resumes; something
        else under the same name is an error. Nothing is reserved: of two runs that fit under the
        cap one by one but not together, one is stopped later.
        """
        asked = runs.declared(run, self.dataset, tasks, budgets, plan, terms, shares)
        if self._known(asked):
            return
        while not self._declared(asked):
            pass
        self._known(asked)

    def _declared(self, asked: Run) -> bool:
        """Prices the run and appends it; False if another process fixed the cap meanwhile.

        Composing a sampled plan may take seconds: it is done before others are kept waiting.
        """
        found = replace(prices.priced(asked, self._cap_for(asked)), made=made_now())

        def decide() -> bool:
            if asked.name in self._state.runs:
                return True
            if self._cap_for(asked) != found.cap:
                return False
            self._state.check(found, self._state.planned_charge(found))
            self._append("run", found.to_json())
            return True

        return self._transact(decide)

    def release(
        self,
        mechanism: Mechanism,
        contributions: Any,
        *,
        key: Key,
        rng: np.random.Generator | None = None,
    ) -> Release:
        """Check the budget, draw noise, make spend and result durable, return the result.

        The same key again returns the same bits and never spends twice. ``rng`` is for simulated
        noise, in a run that was declared with it; None asks the operating system.
        """
        key = checked_key(key)
        run = self._run(key.run)
        if run.secure != (rng is None):
            raise LedgerError(
                f"run {run.name!r} was declared with {'secure' if run.secure else 'simulated'} "
                "noise, and this is the other; nothing was released"
            )
        asked = Asked.of(key, run, mechanism, secure=mechanism.secure(rng))
        with self._line.asking(), LOCK:
            if not self._fold.seq:  # forgotten, with a transaction that failed
                self._catch_up()
            found = self._before(asked)
        if isinstance(found, Release):
            return found
        require_rows(asked, mechanism, contributions)
        shares = None if np.all(run.shares == 1) else run.shares
        try:
            value = np.asarray(mechanism.release(contributions, rng, shares))
        except BaseException as error:
            failure = error
        else:
            return self._persist(asked, value)
        try:  # not above, where a refusal to charge it would print what was not paid for
            self._transact(lambda: self._charged(asked))  # whoever sees it fail has seen something
            raise failure
        finally:
            del failure  # it holds this frame, and so the contributions

    def _before(self, asked: Asked) -> Release | Place | None:
        """What was released under the key, or where it was spent; else None: it can be paid."""
        place = self._store.place(asked.indexed)
        if place is not None:
            return self._spent_before(asked, place) or place
        self._state.check(asked.run, self._state.charge(asked.run, asked.event, asked.secure))
        return None

    def _spent_before(self, asked: Asked, place: Place) -> Release | None:
        """The output of an earlier spend, or None: it is to be drawn.

        Nobody draws on the word of an index, or of an entry that was read before: everything is
        folded first.
        """
        found = self._output(asked.key, place)
        if found is None:
            self._catch_up()  # what is folded anew counts as all there is
            self._fold = self._folded(self._fold.seq)
        row = self._store.row(place.spend)
        recorded = {} if row is None else read_entry(self._store, row).payload
        if not agree(recorded, json.loads(canonical(asked.payload))):
            raise LedgerError(
                f"{asked.key} was spent on another mechanism or event (entry {place.spend}); "
                "nothing was released"
            )
        return found

    def _persist(self, asked: Asked, value: Array) -> Release:
        """Spend and output on disk, both or neither; or what another process persisted first."""
        blob = npy(value)
        payload = asked.key._asdict() | {"sha256": sha256(blob), "secure": asked.secure}

        def decide() -> Release:
            charged = self._charged(asked)
            if isinstance(charged, Release):
                return charged
            self._store.put_value(charged.spend, blob)
            self._store.put_output(asked.indexed, self._next)
            self._append("output", payload)
            return Release(value, (asked.key,), asked.secure)

        return self._transact(decide)

    def _charged(self, asked: Asked) -> Place | Release:
        """In a transaction: where the spend is, now or before; or what was released already."""
        found = self._before(asked)
        if found is None:
            found = Place(self._next, None)
            self._store.put_spend(asked.indexed, found.spend)
            self._append("spend", asked.payload)
        return found

    def record_certificate(self, digest: str) -> None:
        """Append the digest of a certificate to the chain: what was promised is on record too."""

        def decide() -> None:
            if digest not in self._state.certificates:
                self._append("certificate", {"sha256": digest})

        self._transact(decide)

    # --- inside ----------------------------------------------------------------------------------

    def _known(self, asked: Run) -> bool:
        """Was this run declared? LedgerError if its name was, for another one."""
        with LOCK:
            self._catch_up()
            known = self._state.runs.get(asked.name)
        if known is None:
            return False
        if asked.declaration() == known.declaration():
            return True
        mine, theirs = (json.loads(canonical(r.declaration())) for r in (asked, known))
        different = [name for name in mine if not agree(mine[name], theirs[name])]
        if different:
            raise LedgerError(
                f"run {asked.name!r} was declared with other {', '.join(different)}; "
                "choose another name (new_run()); nothing was released"
            )
        return True

    def _cap_for(self, asked: Run) -> Cap:
        """The cap that the run is declared under: the first run's, for ever."""
        account = self._state.account(self.dataset)
        if account.opened and self.cap and self.cap != account.cap:
            fixed = " < ".join(map(str, account.cap)) or "none"
            raise LedgerError(
                f"the lifetime cap of data set {self.dataset!r} was fixed with its first run "
                f"({fixed}): raised after seeing output it would promise nothing"
            )
        cap = account.cap if account.opened else self.cap
        if cap and cap[0].neighbours != asked.neighbours:
            raise InvalidInput(
                f"the lifetime cap is for {cap[0].neighbours} neighbours, the run for "
                f"{asked.neighbours}"
            )
        return cap

    def _run(self, name: str) -> Run:
        with LOCK:
            if name not in self._state.runs:
                self._catch_up()
            run = self._state.runs.get(name)
        if run is None or run.dataset != self.dataset:
            raise LedgerError(
                f"run {name!r} was not declared for data set {self.dataset!r}; "
                "call open_run first; nothing was released"
            )
        return run

    # --- an object that others hold --------------------------------------------------------------

    def __repr__(self) -> str:
        where = "in memory" if self.path is None else str(self.path)
        return f"<Ledger {where}, data set {self.dataset!r}>"

    def __copy__(self) -> Ledger:
        return self  # a clone of an estimator spends from the same ledger

    def __deepcopy__(self, _: dict[int, Any]) -> Ledger:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is None:
            raise LedgerError(STAYS)
        return _reopened, (str(self.path), self.dataset, self.cap, self._store.read_only)


def _first_row() -> Row:
    """The entry that names a new ledger."""
    text = canonical({"identity": secrets.token_hex(16), "made": list(made_now())})
    return Row(1, "ledger", text, link(GENESIS, "ledger", text))


def _reopened(path: str, dataset: str, cap: Cap, read_only: bool) -> Ledger:
    return Ledger(path, dataset=dataset, cap=cap or None, read_only=read_only)
