"""What was spent: a pure fold over the entries of a ledger.

There is no table of totals that could disagree with the history: each process folds the entries it
has not seen yet into arrays, one row a task, and asks those.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import BudgetExceeded, LedgerCorrupt, LedgerError, TacitError
from tacit.privacy.accounting import Cost, Event
from tacit.privacy.chain import Entry, Row, agree, entry, event_from_json
from tacit.privacy.release import FloatArray, Key
from tacit.privacy.runs import Cap, Promise, Run, event_charge, priced, refusal, with_slack
from tacit.tasks.labels import canonical_label

IN_FLOATS = (
    "pure noise drawn in floating point: δ = 0 holds of the ideal mechanism, and is not claimed of "
    "this one"
)


COMPARED = (
    "one of several fits by clones of one estimator, as in a grid search: the scores by which they "
    "were compared are looks at private data that nothing counts"
)


ROUNDING = 1e-6
"""Runs that share a cap out exactly add up to it, but for this."""


@dataclass(frozen=True)
class Statement:
    """What everything recorded for some tasks reveals of the worst of them, all told."""

    epsilon: float
    delta: float
    runs: int  # the most on one task
    after_output: bool  # several runs' own prices, added: the sum was not fixed beforehand
    cap: Cap
    secure_noise: bool  # of all of them
    doubts: tuple[str, ...]  # of all of them; nothing is proven where there is one
    run_epsilon: float = 0.0  # of the run asked about, by itself
    run_delta: float = 0.0

    @property
    def proven(self) -> bool:
        """Whether nothing is doubtful."""
        return not self.doubts


class Account:
    """What was spent on each task of one data set, for whom, and what is doubtful about it."""

    def __init__(self) -> None:
        self._row: dict[str, int] = {}
        self.costs = np.zeros((0, 3))  # μ², ε, δ₀: what a lifetime cap is held against
        self.pairs = np.zeros((0, 2))  # Σε and Σδ of the runs' own prices
        self.runs = np.zeros(0, dtype=np.intp)
        self.promise = np.zeros(0, dtype=np.intp)  # of ``promises``; −1 until something is charged
        self.insecure = np.zeros(0, dtype=np.bool_)
        self.promises: list[Promise] = []
        self.doubts: dict[str, NDArray[np.bool_]] = {}
        self.cap: Cap = ()
        self.opened = False  # whether a run was declared: from then on the cap is fixed

    def rows(self, labels: Iterable[str]) -> NDArray[np.intp]:
        """Where these tasks are; a new one has spent nothing."""
        row = self._row
        found = [row.setdefault(label, len(row)) for label in labels]
        new = len(row) - len(self.costs)
        if new:
            self.costs = np.vstack([self.costs, np.zeros((new, 3))])
            self.pairs = np.vstack([self.pairs, np.zeros((new, 2))])
            self.runs = np.append(self.runs, np.zeros(new, dtype=np.intp))
            self.promise = np.append(self.promise, np.full(new, -1))
            self.insecure = np.append(self.insecure, np.zeros(new, dtype=np.bool_))
            pad = np.zeros(new, dtype=np.bool_)
            self.doubts = {text: np.append(mask, pad) for text, mask in self.doubts.items()}
        return np.array(found, dtype=np.intp)

    @property
    def labels(self) -> list[str]:
        """All tasks that a run ever declared, by row."""
        return list(self._row)

    def begin(self, run: Run, rows: NDArray[np.intp]) -> None:
        """The first release of a run: its own price, and its doubts, for all that it charges."""
        if run.promise not in self.promises:
            self.promises.append(run.promise)
        self.pairs[rows] += run.pairs[run.shares > 0]
        self.runs[rows] += 1
        self.promise[rows] = self.promises.index(run.promise)
        for text in run.doubts:
            self.doubt(text, rows)

    def doubt(self, text: str, rows: NDArray[np.intp]) -> None:
        """From now on something is doubtful about these tasks."""
        if rows.size:
            self.doubts.setdefault(text, np.zeros(len(self.costs), dtype=np.bool_))[rows] = True

    def statement(self, rows: NDArray[np.intp]) -> Statement:
        """Everything that was spent on these tasks, of the worst of them."""
        runs = self.runs[rows]
        found = {
            self._pair(int(n), tuple(pair), tuple(cost))
            for n, pair, cost in zip(
                runs.tolist(), self.pairs[rows].tolist(), self.costs[rows].tolist(), strict=True
            )
        }
        return Statement(
            epsilon=max((pair[0] for pair in found), default=0.0),
            delta=max((pair[1] for pair in found), default=0.0),
            runs=int(runs.max(initial=0)),
            after_output=any(pair[2] for pair in found),
            cap=self.cap,
            secure_noise=not self.insecure[rows].any(),
            doubts=tuple(text for text, mask in self.doubts.items() if mask[rows].any()),
        )

    def _pair(
        self, runs: int, pair: tuple[float, ...], cost: tuple[float, ...]
    ) -> tuple[float, float, bool]:
        """(ε, δ) of one task, and whether it is a sum that was not fixed beforehand.

        One run states its own price. Several state their sum, or the rung of the cap's ladder that
        they have reached, whichever is less. For a rung k, what is seen while it is not passed is
        (ε_k, δ_k)-DP (a filter); summed over the rungs on which one may stop, δ is their sum.
        """
        if runs <= 1 or not self.cap:
            return pair[0], pair[1], runs > 1
        reached = next((r for r in self.cap if Cost(*cost).within(with_slack(r))), self.cap[-1])
        if reached.epsilon <= pair[0] * (1 + ROUNDING):
            return reached.epsilon, sum(rung.delta for rung in self.cap), False
        return pair[0], pair[1], True


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
        charge = self.charge(run, event)
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
        if not entry.payload["secure"]:
            account.insecure[charged] = True
            self._claim_delta(run, account, rows)
        self.spends[key] = entry.seq

    def _claim_delta(self, run: Run, account: Account, rows: NDArray[np.intp]) -> None:
        """Of noise drawn in floats δ = 0 is not claimed: the budget's δ is, or it is a doubt."""
        if run.name in self._in_floats or run.pairs[:, 1].all():
            return
        budgets = np.array([*(budget.delta for budget in run.budgets), 0.0])[run.budget_of]
        added = np.where((run.shares > 0) & (run.pairs[:, 1] == 0), budgets, 0.0)
        self._in_floats[run.name] = added
        account.pairs[rows, 1] += added
        account.doubt(IN_FLOATS, rows[(run.shares > 0) & (run.pairs[:, 1] + added == 0)])

    def _apply_output(self, key: Key, entry: Entry) -> None:
        if key not in self.spends or key in self.outputs:
            raise LedgerCorrupt(f"entry {entry.seq}: an output of {key} that no spend allows")
        self.outputs[key] = Output(entry.payload["sha256"], entry.payload["secure"])

    def charge(self, run: Run, event: Event) -> FloatArray:
        """What one more release costs each task under a cap; LedgerError if none is left."""
        self._planned(run, event)
        if type(event) not in run.block_kinds:
            return event_charge(event, run.shares)
        return run.block if self._block_due[run.name] else np.zeros_like(run.block)

    def check(self, run: Run, charge: FloatArray) -> None:
        """Does it add up? LedgerError if not; BudgetExceeded if a task's cap cannot afford it."""
        account, rows = self.account(run.dataset), self._where(run)
        charged = rows[run.shares > 0]
        before = account.promise[charged]
        known = account.promises.index(run.promise) if run.promise in account.promises else -1
        clash = (before >= 0) & (before != known)
        if clash.any():
            first = int(np.argmax(clash))
            raise LedgerError(
                _mismatch(
                    np.array(run.tasks)[run.shares > 0][first],
                    account.promises[before[first]],
                    run.promise,
                )
            )
        refused = refusal(run, account.costs[rows], charge)
        if refused is not None:
            raise refused

    def statement(self, dataset: str, tasks: Sequence[Hashable], runs: Sequence[str]) -> Statement:
        """What everything recorded for these tasks adds up to, with these runs' part beside it."""
        account = self.account(dataset)
        whole = account.statement(account.rows(map(canonical_label, tasks)))
        asked = [self.runs[run] for run in runs if run in self.runs]
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
        if np.any(mine > theirs * (1 + 1e-6)):
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
