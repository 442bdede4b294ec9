"""What was spent: a pure fold over the entries of a ledger.

There is no table of totals that could disagree with the history: each process folds the entries it
has not seen yet into arrays, one row a task, and asks those.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import FloatArray
from tacit.errors import BudgetExceeded, LedgerCorrupt, LedgerError, TacitError
from tacit.privacy.account import COMPARED, IN_FLOATS, Account, Statement
from tacit.privacy.accounting import Cost, Event
from tacit.privacy.chain import Entry, Row, agree, entry, event_from_json
from tacit.privacy.prices import event_charge, priced, refusal
from tacit.privacy.release import Key
from tacit.privacy.runs import Promise, Run
from tacit.tasks.labels import canonical_label


@dataclass(frozen=True)
class Output:
    """A persisted result: the digest of its bytes, and whether its noise was secure."""

    sha256: str
    secure: bool


class Spending:
    """The state of a ledger: apply each entry in order, ask, never write."""

    def __init__(self) -> None:
        self.identity = ""
        self.runs: dict[str, Run] = {}
        self.spends: dict[Key, int] = {}  # the entry that recorded it
        self.outputs: dict[Key, Output] = {}
        self.certificates: set[str] = set()
        self.accounts: dict[str, Account] = {}
        self._rows: dict[str, NDArray[np.intp]] = {}
        self._left: dict[str, list[int]] = {}  # of each planned event
        self._place: dict[str, dict[Event, int]] = {}  # of each event in the plan
        self._begun: set[str] = set()
        self._in_floats: dict[str, FloatArray] = {}  # the δ that a run's own price lacks
        self._block_due: dict[str, bool] = {}

    def apply(self, entry: Entry, *, strict: bool = False) -> None:
        """Fold one entry in; strict also computes every price again, and holds it to its cap."""
        if (entry.kind == "ledger") != (entry.seq == 1):
            raise LedgerCorrupt("a ledger's first entry names it, and no other does")
        match entry.kind:
            case "ledger":
                self.identity = str(entry.payload["identity"])
            case "run":
                self._apply_run(Run.from_json(entry.payload), strict)
            case "spend":
                self._apply_spend(entry_key(entry), entry, strict)
            case "output":
                self._apply_output(entry_key(entry), entry)
            case "certificate":
                self.certificates.add(str(entry.payload["sha256"]))
            case _:
                raise LedgerCorrupt(f"entry {entry.seq} is of an unknown kind {entry.kind!r}")

    def _apply_run(self, run: Run, strict: bool) -> None:
        if run.name in self.runs:
            raise LedgerCorrupt(f"run {run.name!r} was declared twice")
        account = self.account(run.dataset)
        if account.opened and run.cap != account.cap:
            raise LedgerCorrupt(f"run {run.name!r} was declared under another cap than the first")
        if strict:
            _require_priced(run)
        account.cap, account.opened = run.cap, True
        self._rows[run.name] = account.rows(run.tasks)
        self._left[run.name] = [count for _, count in run.plan]
        self._place[run.name] = {event: i for i, (event, _) in enumerate(run.plan)}
        self._block_due[run.name] = True
        self.runs[run.name] = run

    def _apply_spend(self, key: Key, entry: Entry, strict: bool) -> None:
        if key in self.spends or key.run not in self.runs:
            raise LedgerCorrupt(f"entry {entry.seq}: a second spend for {key}, or one without run")
        run, event = self.runs[key.run], event_from_json(entry.payload["event"])
        exact = bool(entry.payload["secure"])
        charge = self.charge(run, event, exact)
        if strict:
            self.check(run, charge)
        self._left[run.name][self._planned(run, event)] -= 1
        self._block_due[run.name] &= type(event) not in run.block_kinds
        account, rows = self.accounts[run.dataset], self._rows[run.name]
        charged = rows[run.shares > 0]
        if run.name not in self._begun:
            self._begun.add(run.name)
            account.begin(run, charged)
        account.costs[rows] += charge
        if not exact:
            account.insecure[charged] = True
            self._claim_delta(run, account, rows)
        self.spends[key] = entry.seq

    def _claim_delta(self, run: Run, account: Account, rows: NDArray[np.intp]) -> None:
        """Of noise drawn in floats δ = 0 is not claimed: the budget's δ is, or it is a doubt."""
        if run.name not in self._in_floats:
            added = self._in_floats[run.name] = run.float_delta()
            alone = account.runs[rows] == 1
            account.pairs[rows, 1] += added
            account.first[rows] += np.where(alone, added, 0.0)
            account.doubt(IN_FLOATS, rows[(run.shares > 0) & (run.pairs[:, 1] + added == 0)])

    def _apply_output(self, key: Key, entry: Entry) -> None:
        if key not in self.spends or key in self.outputs:
            raise LedgerCorrupt(f"entry {entry.seq}: an output of {key} that no spend allows")
        self.outputs[key] = Output(entry.payload["sha256"], entry.payload["secure"])

    def charge(self, run: Run, event: Event, exact: bool) -> FloatArray:
        """What one more release costs each task under a cap; LedgerError if none is left."""
        self._planned(run, event)
        charge = self._event_charge(run, event)
        if not exact and run.name not in self._in_floats:
            charge = charge.copy()
            charge[:, 2] += np.where(run.block[:, 2] > 0, 0.0, run.float_delta())
        return charge

    def planned_charge(self, run: Run) -> FloatArray:
        """What the whole plan of a run that has not begun costs each task under a cap."""
        total = self._block_charge(run)
        for event, count in run.plan:
            if type(event) not in run.block_kinds:
                total = total + count * event_charge(event, run.shares)
        return total

    def _event_charge(self, run: Run, event: Event) -> FloatArray:
        if type(event) not in run.block_kinds:
            return event_charge(event, run.shares)
        return self._block_charge(run) if self._block_due[run.name] else np.zeros_like(run.block)

    def _block_charge(self, run: Run) -> FloatArray:
        """What is charged with a run's first release alone."""
        if not run.planned:
            return run.block
        plan, count = run.planned_event()
        rows = self._where(run)  # first: it may add new tasks
        made = self.account(run.dataset).made(plan)[rows]
        over = (run.shares > 0) & (made + count > plan[1])
        if over.any():
            task, cap = run.tasks[int(np.argmax(over))], run.cap[-1] if run.cap else "no cap"
            raise BudgetExceeded(task, 0.0, float(run.pairs[:, 0].max()), cap)
        return np.where((made == 0)[:, None], run.block, 0.0)  # the whole plan, with its first

    def check(self, run: Run, charge: FloatArray) -> None:
        """Does it add up? LedgerError if not; BudgetExceeded if a task's cap cannot afford it.

        Tasks that are not charged must be promised the same too: a statement speaks of all.
        """
        account, rows = self.account(run.dataset), self._where(run)
        before = account.promise[rows]
        known = account.promises.index(run.promise) if run.promise in account.promises else -1
        clash = (before >= 0) & (before != known)
        if clash.any():
            first = int(np.argmax(clash))
            raise LedgerError(
                _mismatch(run.tasks[first], account.promises[before[first]], run.promise)
            )
        refused = refusal(run, account.costs[rows], charge)
        if refused is not None:
            raise refused

    def statement(self, dataset: str, tasks: Sequence[Hashable], runs: Sequence[str]) -> Statement:
        """What everything recorded for these tasks adds up to, with these runs' part beside it."""
        account = self.account(dataset)
        whole = account.statement(account.rows(map(canonical_label, tasks)))
        asked = [self.runs[run] for run in runs if run in self.runs]  # a spent node has none
        if runs and not asked:
            raise LedgerError(f"run {runs[0]!r} is not on this ledger")
        if not asked:
            return whole
        epsilon, delta = np.vstack([self._pairs(run) for run in asked]).max(axis=0).tolist()
        doubts = (*whole.doubts, *([COMPARED] if self._compared(asked[0]) else []))
        return replace(whole, run_epsilon=epsilon, run_delta=delta, doubts=doubts)

    def _pairs(self, run: Run) -> FloatArray:
        """(m, 2): the run's own price, with the δ of noise that was drawn in floats."""
        pairs = run.pairs.copy()
        pairs[:, 1] += self._in_floats.get(run.name, 0.0)
        return pairs

    def spent(self, dataset: str, task: Hashable) -> Cost:
        """What was spent on one task, as a lifetime cap counts it."""
        account = self.account(dataset)
        row = account.rows([canonical_label(task)])
        return Cost(*account.costs[row[0]].tolist())

    def account(self, dataset: str) -> Account:
        """The account of a data set; a new one is empty."""
        return self.accounts.setdefault(dataset, Account())

    def begun(self, run: str) -> bool:
        """Whether anything was spent on a run."""
        return run in self._begun

    def _compared(self, run: Run) -> bool:
        """Whether clones of the run's estimator (family "name/member") have released too."""
        name = run.family.split("/")[0]
        others = (self.runs[each] for each in self._begun)
        members = {r.family for r in others if r.dataset == run.dataset} | {run.family}
        return bool(name) and sum(member.split("/")[0] == name for member in members) > 1

    def _where(self, run: Run) -> NDArray[np.intp]:
        known = self._rows.get(run.name)
        return self.account(run.dataset).rows(run.tasks) if known is None else known

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


def _require_priced(run: Run) -> None:
    """A run's recorded prices are not below those of its plan; libraries may differ in the sixth
    digit."""
    again = priced(run, run.cap)
    for mine, theirs in ((again.pairs, run.pairs), (again.block, run.block)):
        if again.block_kinds != run.block_kinds or not np.all(mine <= theirs * (1 + 1e-6)):
            raise LedgerCorrupt(f"run {run.name!r} was declared at a lower price than its plan's")


def entry_key(entry: Entry) -> Key:
    """The key that a spend or an output names."""
    return Key(entry.payload["run"], entry.payload["round"], entry.payload["party"])


def _mismatch(task: Any, before: Promise, now: Promise) -> str:
    what = next(
        f"{name} {a!r}, this run declares {b!r}"
        for name, a, b in zip(Promise._fields, before, now, strict=True)
        if a != b
    )
    return (
        f"task {str(task)!r} was charged for {what}: the two do not add up; use another data set "
        "id if these are other data; nothing was released"
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
