"""What was spent: a pure fold over the entries of a ledger.

Each process folds the entries it has not seen yet into arrays, one row a task, and asks those. A
snapshot of them (snapshot.py) saves it the first ones.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import FloatArray
from tacit.errors import BudgetExceeded, LedgerCorrupt, LedgerError
from tacit.privacy.accounting import Cost, Event
from tacit.privacy.chain import Entry, agree, event_from_json
from tacit.privacy.dataset_account import COMPARED, IN_FLOATS, Account, Statement
from tacit.privacy.prices import event_charge, priced, refusal
from tacit.privacy.runs import Promise, Run
from tacit.tasks.label_texts import canonical_labels
from tacit.tasks.labels import canonical_label


class DeclaredAt(NamedTuple):
    """The entry that declared a run."""

    seq: int
    digest: str


@dataclass
class RunProgress:
    """How far a run is."""

    declared: DeclaredAt
    left: list[int]  # of each planned event
    begun: bool = False
    block_due: bool = True
    in_floats: bool = False  # whether the δ that its own price lacks was claimed


class Runs(Mapping[str, Run]):
    """The declared runs by name. Those before a snapshot are read when they are asked for."""

    def __init__(self, read: Callable[[DeclaredAt], Run] | None = None) -> None:
        self._read, self._known = read, dict[str, Run]()
        self.progress: dict[str, RunProgress] = {}

    def add(self, run: Run, declared: DeclaredAt) -> None:
        self._known[run.name] = run
        self.progress[run.name] = RunProgress(declared, [count for _, count in run.plan])

    def __getitem__(self, name: str) -> Run:
        declared = self.progress[name].declared
        if name not in self._known and self._read is not None:
            self._known[name] = self._read(declared)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.progress)

    def __len__(self) -> int:
        return len(self.progress)


@dataclass
class Spending:
    """The state of a ledger: apply each entry in order, ask, never write.

    It grows with tasks and runs, not with releases: which key was used is the store's to know.
    """

    identity: str = ""
    runs: Runs = field(default_factory=Runs)
    certificates: set[str] = field(default_factory=set)
    accounts: dict[str, Account] = field(default_factory=dict)
    _rows: dict[str, NDArray[np.intp]] = field(default_factory=dict)  # of each run's tasks
    _slices: dict[str, slice | NDArray[np.intp]] = field(default_factory=dict)  # where they are
    _place: dict[str, dict[Event, int]] = field(default_factory=dict)  # of each event in the plan

    def apply(self, entry: Entry, *, strict: bool = False) -> None:
        """Fold one entry in; strict also computes every price again, and holds it to its cap."""
        if (entry.kind == "ledger") != (entry.seq == 1):
            raise LedgerCorrupt("a ledger's first entry names it, and no other does")
        match entry.kind:
            case "ledger":
                self.identity = str(entry.payload["identity"])
            case "run":
                declared = DeclaredAt(entry.seq, entry.digest)
                self._apply_run(Run.from_json(entry.payload), declared, strict)
            case "spend":
                self._apply_spend(entry, strict)
            case "certificate":
                self.certificates.add(str(entry.payload["sha256"]))
            case "output" | "snapshot":  # they cost nothing
                pass
            case _:
                raise LedgerCorrupt(f"entry {entry.seq} is of an unknown kind {entry.kind!r}")

    def _apply_run(self, run: Run, declared: DeclaredAt, strict: bool) -> None:
        if run.name in self.runs:
            raise LedgerCorrupt(f"run {run.name!r} was declared twice")
        account = self.account(run.dataset)
        if account.opened and run.cap != account.cap:
            raise LedgerCorrupt(f"run {run.name!r} was declared under another cap than the first")
        if strict:
            _require_priced(run)
        account.cap, account.opened = run.cap, True
        self.runs.add(run, declared)
        self._where(run)

    def _apply_spend(self, entry: Entry, strict: bool) -> None:
        name = entry.payload["run"]
        if name not in self.runs:
            raise LedgerCorrupt(f"a spend of run {name!r}, which was not declared")
        run, event = self.runs[name], event_from_json(entry.payload["event"])
        exact = bool(entry.payload["secure"])
        charge = self.charge(run, event, exact)
        if strict:
            self.check(run, charge)
        progress = self.runs.progress[name]
        progress.left[self._planned(run, event)] -= 1
        progress.block_due &= type(event) not in run.block_kinds
        account, rows = self.accounts[run.dataset], self._where(run)
        if not progress.begun:
            progress.begun = True
            account.begin(run, rows[run.shares > 0])
        account.costs[self._side_by_side(run)] += charge
        if not exact:
            account.insecure[rows[run.shares > 0]] = True
            self._claim_delta(run, account, rows)

    def _claim_delta(self, run: Run, account: Account, rows: NDArray[np.intp]) -> None:
        """Of noise drawn in floats δ = 0 is not claimed: the budget's δ is, or it is a doubt."""
        progress = self.runs.progress[run.name]
        if not progress.in_floats:
            progress.in_floats, added = True, run.float_delta()
            alone = account.runs[rows] == 1
            account.pairs[rows, 1] += added
            account.first[rows] += np.where(alone, added, 0.0)
            account.doubt(IN_FLOATS, rows[(run.shares > 0) & (run.pairs[:, 1] + added == 0)])

    def charge(self, run: Run, event: Event, exact: bool) -> FloatArray:
        """What one more release costs each task under a cap; LedgerError if none is left."""
        self._planned(run, event)
        charge = self._event_charge(run, event)
        if not exact and not self.runs.progress[run.name].in_floats:
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
        due = self.runs.progress[run.name].block_due
        return self._block_charge(run) if due else np.zeros_like(run.block)

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

        Tasks that are not charged must be promised the same too: a statement speaks of all. And
        where somebody may be in several silos, every silo of the data set is one they may be in.
        """
        account, rows = self.account(run.dataset), self._side_by_side(run)
        for other in account.promises:
            if other != run.promise and (other.of_several or run.promise.of_several):
                raise LedgerError(_mismatch("this data set", other, run.promise))
        before = account.promise[rows]
        known = account.promises.index(run.promise) if run.promise in account.promises else -1
        clash = (before >= 0) & (before != known)
        if clash.any():
            first = int(np.argmax(clash))
            raise LedgerError(
                _mismatch(
                    f"task {run.tasks[first]!r}", account.promises[before[first]], run.promise
                )
            )
        refused = refusal(run, account.costs[rows], charge)
        if refused is not None:
            raise refused

    def statement(self, dataset: str, tasks: Sequence[Hashable], runs: Sequence[str]) -> Statement:
        """What everything recorded for these tasks adds up to, with these runs' part beside it."""
        account = self.account(dataset)
        whole = account.statement(account.rows(canonical_labels(tasks)))
        asked = [self.runs[run] for run in runs if run in self.runs]  # a spent node has none
        if runs and not asked:
            raise LedgerError(f"run {runs[0]!r} is not on this ledger")
        if not asked:
            return whole
        epsilon, delta = np.vstack([self._pairs(run) for run in asked]).max(axis=0).tolist()
        doubts = (*whole.doubts, *([COMPARED] if account.compared(asked[0]) else []))
        return replace(whole, run_epsilon=epsilon, run_delta=delta, doubts=doubts)

    def _pairs(self, run: Run) -> FloatArray:
        """(m, 2): the run's own price, with the δ of noise that was drawn in floats."""
        pairs = run.pairs.copy()
        if self.runs.progress[run.name].in_floats:
            pairs[:, 1] += run.float_delta()
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
        return run in self.runs and self.runs.progress[run].begun

    def _where(self, run: Run) -> NDArray[np.intp]:
        """The rows of its tasks; of a declared run they are looked up once."""
        if run.name in self._rows:
            return self._rows[run.name]
        rows = self.account(run.dataset).rows(run.tasks)
        if run.name in self.runs:
            self._rows[run.name] = rows
        return rows

    def _side_by_side(self, run: Run) -> slice | NDArray[np.intp]:
        """The same rows: as a slice, of which nothing is copied, where they lie in their order."""
        if run.name not in self._slices:
            rows = self._where(run)
            alike = bool(np.all(np.diff(rows) == 1))
            found = slice(int(rows[0]), int(rows[0]) + len(rows)) if alike else rows
            if run.name not in self.runs:
                return found
            self._slices[run.name] = found
        return self._slices[run.name]

    def _planned(self, run: Run, event: Event) -> int:
        """Which planned event this one is; some of it must be left."""
        if run.name not in self._place:
            self._place[run.name] = {event: i for i, (event, _) in enumerate(run.plan)}
        left, exact = self.runs.progress[run.name].left, self._place[run.name].get(event)
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


def _mismatch(task: str, before: Promise, now: Promise) -> str:
    what = next(
        f"{name} {a!r}, this run declares {b!r}"
        for name, a, b in zip(Promise._fields, before, now, strict=True)
        if a != b
    )
    return (
        f"{task} was charged for {what}: the two do not add up; use another data set "
        "id if these are other data; nothing was released"
    )


def _same(a: Event, b: Event) -> bool:
    return type(a) is type(b) and agree(vars(a), vars(b))
