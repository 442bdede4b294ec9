"""What was spent: a pure fold over the entries of a ledger.

There is no table of totals that could disagree with the history: each process folds the entries it
has not seen yet into arrays, one row a task, and asks those.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import BudgetExceeded, LedgerCorrupt, LedgerError, TacitError
from tacit.privacy.accounting import Cost, Event
from tacit.privacy.chain import (
    Entry,
    Row,
    agree,
    entry,
    event_from_json,
    label_from_json,
    label_identity,
    label_to_json,
)
from tacit.privacy.release import FloatArray, Key
from tacit.privacy.runs import Run, event_charge, refusal, unpacked


class _Account:
    """What was spent on each task of one data set, and under which neighbours."""

    def __init__(self) -> None:
        self._row: dict[Hashable, int] = {}
        self.costs = np.zeros((0, 3))
        self.relation = np.zeros(0, dtype="U8")  # "" until something was charged

    def rows(self, labels: Iterable[Any]) -> NDArray[np.intp]:
        """Where these tasks are; a new one has spent nothing."""
        row = self._row
        found = [row.setdefault(label_identity(label), len(row)) for label in labels]
        new = len(row) - len(self.costs)
        if new:
            self.costs = np.vstack([self.costs, np.zeros((new, 3))])
            self.relation = np.append(self.relation, np.zeros(new, dtype="U8"))
        return np.array(found, dtype=np.intp)


@dataclass(frozen=True)
class Output:
    """A persisted result: the digest of its bytes, and whether its noise was secure."""

    sha256: str
    secure: bool


class Spending:
    """The state of a ledger: apply each entry in order, ask, never write."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.spends: dict[Key, int] = {}  # the entry that recorded it
        self.outputs: dict[Key, Output] = {}
        self._accounts: dict[str, _Account] = {}
        self._rows: dict[str, NDArray[np.intp]] = {}
        self._left: dict[str, list[int]] = {}  # of each planned event
        self._place: dict[str, dict[Event, int]] = {}  # of each event in the plan
        self._block_due: dict[str, bool] = {}

    def apply(self, entry: Entry, *, strict: bool = False) -> None:
        """Fold one entry in; strict also holds every spend against its budget."""
        if entry.kind == "run":
            return self._apply_run(Run.from_json(entry.payload))
        key = Key(entry.payload["run"], entry.payload["round"], entry.payload["party"])
        if entry.kind == "spend":
            return self._apply_spend(key, entry, strict)
        if entry.kind != "output" or key not in self.spends or key in self.outputs:
            raise LedgerCorrupt(f"entry {entry.seq}: an output of {key} that no spend allows")
        self.outputs[key] = Output(entry.payload["sha256"], entry.payload["secure"])
        return None

    def _apply_run(self, run: Run) -> None:
        if run.name in self.runs:
            raise LedgerCorrupt(f"run {run.name!r} was declared twice")
        self._rows[run.name] = self._account(run.dataset).rows(run.tasks)
        self._left[run.name] = [count for _, count in run.plan]
        self._place[run.name] = {event: i for i, (event, _) in enumerate(run.plan)}
        self._block_due[run.name] = True
        self.runs[run.name] = run

    def _apply_spend(self, key: Key, entry: Entry, strict: bool) -> None:
        if key in self.spends or key.run not in self.runs:
            raise LedgerCorrupt(f"entry {entry.seq}: a second spend for {key}, or one without run")
        run, event = self.runs[key.run], event_from_json(entry.payload["event"])
        named = entry.payload.get("shares")
        shares = run.shares if named is None else unpacked(named, len(run.tasks))
        charge = self.charge(run, event, shares)
        if strict:
            self.check(run, charge)
        self._left[run.name][self._planned(run, event)] -= 1
        self._block_due[run.name] &= type(event) not in run.block_kinds
        account, rows = self._accounts[run.dataset], self._rows[run.name]
        account.costs[rows] += charge
        account.relation[rows[charge.any(axis=1)]] = run.neighbours
        self.spends[key] = entry.seq

    def charge(self, run: Run, event: Event, shares: FloatArray) -> FloatArray:
        """What one more release costs each task; LedgerError if the plan has none left."""
        self._planned(run, event)
        if type(event) not in run.block_kinds:
            return event_charge(event, shares)
        if not np.array_equal(shares, run.shares):
            raise LedgerError(
                f"run {run.name!r}: the shares of {type(event).__name__} releases are charged as "
                "declared with the run; nothing was released"
            )
        return run.block if self._block_due[run.name] else np.zeros_like(run.block)

    def check(self, run: Run, charge: FloatArray) -> None:
        """BudgetExceeded unless every task can afford its charge on top of what it spent."""
        refused = refusal(run, self.costs(run), charge)
        if refused is not None:
            raise refused
        relation = self._account(run.dataset).relation[self._where(run)]
        clash = charge.any(axis=1) & (relation != "") & (relation != run.neighbours)
        if clash.any():
            task = label_from_json(run.tasks[int(np.argmax(clash))])
            raise LedgerError(
                f"task {task!r} was charged under other neighbours than {run.neighbours!r}; "
                "the two do not add up; nothing was released"
            )

    def costs(self, run: Run) -> FloatArray:
        """What was spent on each task of a run, by this and all other runs; (m, 3)."""
        rows = self._where(run)  # first: it may add new tasks
        return self._account(run.dataset).costs[rows]

    def spent(self, dataset: str, task: Hashable) -> Cost:
        """What was spent on one task."""
        account = self._account(dataset)
        row = account.rows([label_to_json(task)])
        return Cost(*account.costs[row[0]].tolist())

    def _where(self, run: Run) -> NDArray[np.intp]:
        known = self._rows.get(run.name)
        return self._account(run.dataset).rows(run.tasks) if known is None else known

    def _account(self, dataset: str) -> _Account:
        return self._accounts.setdefault(dataset, _Account())

    def _planned(self, run: Run, event: Event) -> int:
        """Which planned event this one is; some of it must be left."""
        left, exact = self._left[run.name], self._place[run.name].get(event)
        if exact is not None and left[exact]:
            return exact
        same = [i for i, (planned, _) in enumerate(run.plan) if _same(planned, event)]
        for i in same:
            if left[i]:
                return i
        why = "all of them are used up" if same else "it is not in the plan"
        raise LedgerError(
            f"run {run.name!r} planned no further {event}: {why}; nothing was released"
        )


def _same(a: Event, b: Event) -> bool:
    return type(a) is type(b) and agree(vars(a), vars(b))


def fold(state: Spending, row: Row, *, strict: bool = False) -> str | None:
    """Fold a row in, or say why it means nothing here."""
    try:
        state.apply(entry(row), strict=strict)
    except (LedgerError, BudgetExceeded) as error:
        return f"entry {row.seq} should not be there: {error}"
    except (TacitError, LookupError, TypeError, ValueError, AttributeError) as error:
        return f"entry {row.seq} cannot be read: {error!r}"
    return None
