"""The one door: a number computed from private data becomes public only through Ledger.release.

``release`` checks the budget, records the spend durably, draws noise, persists the result, returns
it. Whatever dies at whatever instant, there may be a recorded spend without a release, never a
release without a record, and never two spends for one key:

1. *transaction A*: catch up with other processes. The key has an output: return it. It has a
   spend: go on. Else hold plan and budget against the state, append the spend, commit to disk.
2. *outside*: draw the noise. A crash here has spent, and nothing has left: asking again draws.
3. *transaction B*: another process has persisted an output for the key: return that one and
   forget ours. Else append the output, commit, return.

State is a fold over the entries (spending.py), which form a hash chain (chain.py) in an SQLite
file (store.py). It is private: it belongs to the trusted side, though it holds no contribution
and never who took part in a sampled round.

A task that only its own node reads from (S3) is a run of its own: one task, its own plan.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidInput, LedgerCorrupt, LedgerError
from tacit.privacy import runs
from tacit.privacy.accounting import Cost, Event, Pure
from tacit.privacy.budget import Budget
from tacit.privacy.chain import (
    GENESIS,
    Anchor,
    Entry,
    Row,
    Verdict,
    agree,
    broken,
    canonical,
    entry,
    event_to_json,
    link,
    sha256,
)
from tacit.privacy.release import Declared, FloatArray, Key, Mechanism, Release, new_run
from tacit.privacy.runs import SAMPLED, Run
from tacit.privacy.spending import Spending, fold
from tacit.privacy.store import LOCK, Store
from tacit.privacy.verification import verdict

__all__ = [
    "Anchor",
    "Declared",
    "Entry",
    "Key",
    "Ledger",
    "Mechanism",
    "Release",
    "Verdict",
    "new_run",
]


class Ledger:
    """What was spent on each task of a data set, and what was released for it.

    Several fits on the same data add up, task by task. A file serves any number of processes and
    threads at once, and survives their deaths; ``in_memory()`` is for simulations and audits.

    >>> from tacit.privacy.accounting import Gaussian
    >>> ledger = Ledger.in_memory()
    >>> ledger.open_run("first", ["a", "b"], Budget(1.0), plan=[Gaussian(0.1)] * 4)
    >>> ledger.spent("a")
    Cost(mu_squared=0.0, epsilon=0.0, delta=0.0)
    """

    def __init__(self, path: str | os.PathLike[str] | None, *, dataset: str = "default") -> None:
        self.path = None if path is None else Path(path).absolute()
        self.dataset = dataset
        self._state = Spending()
        self._seq, self._digest = 0, GENESIS
        self._store = Store(self.path)
        try:
            self._catch_up()
        except BaseException:
            self._store.close()
            raise

    @classmethod
    def in_memory(cls, *, dataset: str = "default") -> Ledger:
        """A ledger that is gone with its process. A fork continues with a copy."""
        return cls(None, dataset=dataset)

    # --- spending --------------------------------------------------------------------------------

    def open_run(
        self,
        run: str,
        tasks: Sequence[Hashable],
        budgets: Budget | Sequence[Budget | None],
        plan: Sequence[Event],
        *,
        shares: Sequence[float] | FloatArray | None = None,
    ) -> None:
        """Declare a run before its first release, and check that its plan fits.

        Budgets cap everything ever spent on (data set, task), earlier runs included; None: that
        task is not charged and has share 0. ``shares`` (m,), in [0, 1], are what each task reveals
        of an event (default 1). Declaring the same again resumes; something else under the same
        name is an error. Nothing is reserved: of two runs that fit one by one but not together,
        one is stopped later.
        """
        asked = runs.declared(run, self.dataset, tasks, budgets, plan, shares)
        if self._known(asked):
            return
        # Composing a sampled plan may take seconds: it is done before others are kept waiting.
        found = self._affordable(asked)
        with self._transaction():
            if run not in self._state.runs:
                self._state.check(found, runs.planned_charge(found))
                self._append("run", found.to_json())
        self._known(asked)

    def release(
        self,
        mechanism: Mechanism,
        contributions: Any,
        *,
        key: Key,
        rng: np.random.Generator | None = None,
        shares: Sequence[float] | FloatArray | None = None,
    ) -> Release:
        """Check the budget, record the spend durably, draw noise, persist the result, return it.

        The same key again returns the same bits and never spends twice. ``shares`` replaces those
        declared with the run. ``rng`` is for simulated noise; None asks the operating system.
        """
        key = _checked_key(key)
        run = self._run(key.run)
        parts = run.shares if shares is None else runs.checked_shares(run, shares)
        event = mechanism.event(run.neighbours)
        payload = key._asdict() | {"mechanism": mechanism.to_dict(), "event": event_to_json(event)}
        if not np.array_equal(parts, run.shares):
            payload["shares"] = parts.tolist()
        persisted = self._spend(key, run, event, parts, payload)
        if persisted is not None:
            return persisted
        value = mechanism.release(contributions, rng, None if np.all(parts == 1) else parts)
        return self._persist(key, np.asarray(value), mechanism.secure(rng))

    def _spend(
        self, key: Key, run: Run, event: Event, shares: FloatArray, payload: dict[str, Any]
    ) -> Release | None:
        """Transaction A: the persisted output, or None once the spend is on disk."""
        with self._transaction():
            if key in self._state.spends:
                self._same_spend(key, payload)
                return self._persisted(key)
            self._state.check(run, self._state.charge(run, event, shares))
            self._append("spend", payload)
            return None

    def _persist(self, key: Key, value: NDArray[Any], secure: bool) -> Release:
        """Transaction B: ours, or what another process persisted first."""
        blob = io.BytesIO()
        np.save(blob, value, allow_pickle=False)
        digest = sha256(blob.getvalue())
        with self._transaction():
            earlier = self._persisted(key)
            if earlier is not None:
                return earlier
            self._append("output", key._asdict() | {"sha256": digest, "secure": secure})
            self._store.put_value(self._state.spends[key], blob.getvalue())
        return Release(value, (key,), secure)

    # --- asking ----------------------------------------------------------------------------------

    def spent(self, task: Hashable) -> Cost:
        """Everything ever spent on a task of this data set."""
        with LOCK:
            self._catch_up()
            return self._state.spent(self.dataset, task)

    def costs(self, tasks: Sequence[Hashable], *, before: str | None = None) -> list[Cost]:
        """Everything ever spent on each task; with ``before``, only until that run was declared.

        A run that resumes must plan as it did when it was declared.
        """
        with LOCK:
            self._catch_up()
            state = self._state
            if before in state.runs:
                state = Spending()
                for row in self._store.rows():
                    if row.kind == "run" and entry(row).payload["run"] == before:
                        break
                    fold(state, row)
            return [state.spent(self.dataset, task) for task in tasks]

    def remaining(self, task: Hashable, budget: Budget) -> float:
        """ε left at the budget's δ: its ε less the ε of everything spent; not below 0.

        A release is refused if it would raise the ε spent by more than this. The largest μ of a
        further Gaussian run is ``accounting.remaining_mu(budget, ledger.spent(task))``.
        """
        return max(0.0, budget.epsilon - self.spent(task).epsilon_at(budget.delta))

    def released(self, key: Key) -> Release | None:
        """What was released under this key, if its output is on record: no need to compute again
        what a resumed run would contribute."""
        key = _checked_key(key)
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
        with self._store.transaction(write=False):
            return verdict(self._store.rows(), self._store.digests(), anchor)

    # --- inside ----------------------------------------------------------------------------------

    def _known(self, asked: Run) -> bool:
        """Was this run declared? LedgerError if its name was, for another one."""
        with LOCK:
            self._catch_up()
            known = self._state.runs.get(asked.name)
        if known is None:
            return False
        mine, theirs = (json.loads(canonical(r.declaration())) for r in (asked, known))
        different = [name for name in mine if not agree(mine[name], theirs[name])]
        if different:
            raise LedgerError(
                f"run {asked.name!r} was declared with other {', '.join(different)}; "
                "choose another name (new_run()); nothing was released"
            )
        return True

    def _affordable(self, asked: Run) -> Run:
        """The run with its block: sampled events, and pure ones if adding them does not fit."""
        with LOCK:
            spent = self._state.costs(asked)
        found = runs.with_block(asked, spent)
        refused = runs.refusal(found, spent, runs.planned_charge(found))
        if refused and sum(n for event, n in asked.plan if isinstance(event, Pure)) > 1:
            found = runs.with_block(asked, spent, SAMPLED | {Pure})
            refused = runs.refusal(found, spent, runs.planned_charge(found)) and refused
        if refused:
            raise refused
        return found

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

    def _same_spend(self, key: Key, payload: dict[str, Any]) -> None:
        row = self._store.rows(self._state.spends[key], 1)[0]
        if not agree(json.loads(row.payload), json.loads(canonical(payload))):
            raise LedgerError(
                f"{key} was spent on another mechanism, event or shares (entry {row.seq}); "
                "nothing was released"
            )

    def _persisted(self, key: Key) -> Release | None:
        output = self._state.outputs.get(key)
        if output is None:
            return None
        value = self._store.value(self._state.spends[key]) or b""
        if sha256(value) != output.sha256:
            raise LedgerCorrupt(f"{self._store.name}: the output of {key} was edited or removed")
        return Release(np.load(io.BytesIO(value), allow_pickle=False), (key,), output.secure)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._store.transaction():
            self._catch_up()
            yield

    def _append(self, kind: str, payload: dict[str, Any]) -> None:
        """One entry a transaction; the state takes it in once it is committed (_catch_up)."""
        text = canonical(payload)
        self._store.append(Row(self._seq + 1, kind, text, link(self._digest, kind, text)))

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

    # --- an object that others hold --------------------------------------------------------------

    def close(self) -> None:
        """Close the file. An in-memory ledger is gone."""
        self._store.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "in memory" if self.path is None else str(self.path)
        return f"<Ledger {where}, data set {self.dataset!r}>"

    def __deepcopy__(self, _: dict[int, Any]) -> Ledger:
        return self  # a clone of an estimator spends from the same ledger

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is None:
            raise LedgerError("an in-memory ledger cannot go to another process; use a file")
        return _reopened, (str(self.path), self.dataset)


def _reopened(path: str, dataset: str) -> Ledger:
    return Ledger(path, dataset=dataset)


def _checked_key(key: Key) -> Key:
    run, number, party = key
    if not (
        isinstance(run, str) and isinstance(party, str) and isinstance(number, int | np.integer)
    ):
        raise InvalidInput(f"a key is (run: str, round: int, party: str), got {key!r}")
    return Key(run, int(number), party)
