"""What the ledger recorded for some tasks, as public steps: enough to compute ε again without it.

A ledger is private: labels, names of runs and data sets, who ran them and when. Its arithmetic is
not. For each different history among the tasks, an account holds every run that charged it, as the
run's own declaration for one nameless unit, and how often each of its events was released:

    {"tasks": 139, "runs": [{"declared": {...}, "released": [[event, secure, count], ...],
                             "this": true}]}

Folding these through the ledger's own code gives the statement that the certificate makes; so a
step left out, a flag dropped or a lower ε is seen by anybody.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tacit.privacy.chain import Entry, canonical
from tacit.privacy.dataset_account import Statement
from tacit.privacy.runs import Run
from tacit.privacy.spending import Spending
from tacit.tasks.labels import canonical_label

UNIT, DATASET = "unit", "data"
"""What the nameless unit and its data set are called while they are folded."""

MOST, MOST_EVENTS = 10**6, 2_000
"""More releases, and more different events, than the runs of any certificate make together: who
writes more wants to keep a verifier busy."""


def public_accounts(
    entries: Sequence[Entry], state: Spending, dataset: str, tasks: Sequence[Hashable], run: str
) -> list[dict[str, Any]]:
    """The different histories of these tasks at the end of the entries, most frequent first.

    ``state`` is what they fold to, ``run`` the one that the certificate is about, with the runs of
    its nodes.
    """
    released, parts = _released(entries), set(parts_of(state, dataset, run))
    histories: dict[str, list[str]] = {canonical_label(task): [] for task in tasks}
    for known in state.runs.values():
        if known.dataset == dataset and known.name in released:
            for task, part in _parts(known, released[known.name], known.name in parts):
                if task in histories:
                    histories[task].append(part)
    different = Counter(tuple(history) for history in histories.values()).most_common()
    return [{"tasks": n, "runs": [json.loads(p) for p in parts]} for parts, n in different]


def parts_of(state: Spending, dataset: str, run: str) -> list[str]:
    """The names under which the ledger knows a run: its own, or those of its nodes."""
    return [
        known.name
        for known in state.runs.values()
        if known.dataset == dataset and (known.name == run or known.name.startswith(f"{run}, "))
    ]


def charged_by(state: Spending, dataset: str, run: str) -> list[str]:
    """The tasks that a run, or the runs of its nodes, were declared for."""
    parts = [state.runs[name] for name in parts_of(state, dataset, run)]
    return list(dict.fromkeys(task for part in parts for task in part.tasks))


def folded(entries: Sequence[Entry]) -> Spending:
    """The state of a ledger after these entries."""
    state = Spending()
    for entry in entries:
        state.apply(entry)
    return state


def _released(entries: Sequence[Entry]) -> Mapping[str, list[list[Any]]]:
    """[event, secure, count] of each run, in the order of their first release."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for entry in entries:
        if entry.kind == "spend":
            event = canonical([entry.payload["event"], entry.payload["secure"]])
            counts[entry.payload["run"]][event] += 1
    return {
        run: [[*json.loads(text), n] for text, n in found.items()] for run, found in counts.items()
    }


def _parts(run: Run, released: list[list[Any]], this: bool) -> Iterator[tuple[str, str]]:
    """What the run was to each task that it charged; tasks of one share and budget are alike."""
    made: dict[tuple[float, int], str] = {}
    for i in np.flatnonzero(run.shares > 0).tolist():
        kind = float(run.shares[i]), int(run.budget_of[i])
        if kind not in made:
            made[kind] = _public(run, i, released, this)
        yield run.tasks[i], made[kind]


def _public(run: Run, i: int, released: list[list[Any]], this: bool) -> str:
    """The run as task ``i`` sees it, without names; canonical, so that equal ones are one."""
    alone = replace(
        run,
        name="",
        dataset=DATASET,
        tasks=(UNIT,),
        budgets=(run.budgets[run.budget_of[i]],),
        budget_of=np.zeros(1, dtype=np.intp),
        shares=run.shares[[i]],
        made=("", ""),
        pairs=run.pairs[[i]],
        block=run.block[[i]],
    )
    return canonical({"declared": alone.to_json(), "released": released, "this": this})


# --- and back ------------------------------------------------------------------------------------


def replayed(account: Mapping[str, Any]) -> tuple[Statement, Run | None]:
    """What an account adds up to, every price computed again from its events; and this run.

    LedgerError, BudgetExceeded, LookupError, TypeError or ValueError where it makes no sense.
    """
    state, this = Spending(), None
    for entry in _as_entries(account["runs"]):
        state.apply(entry, strict=True)
    for number, part in enumerate(account["runs"]):
        if part["this"]:
            this = state.runs[str(number)]
    names = [] if this is None else [this.name]
    if not all(np.all(run.shares > 0) for run in state.runs.values()):
        raise ValueError("a run that charged this unit reveals something of it")
    return state.statement(DATASET, [UNIT], names), this


def _as_entries(runs: Sequence[Mapping[str, Any]]) -> Iterator[Entry]:
    """As a ledger of this one unit would have recorded it."""
    payloads: list[tuple[str, dict[str, Any]]] = [("ledger", {"identity": ""})]
    for number, part in enumerate(runs):
        name = str(number)
        payloads.append(("run", part["declared"] | {"run": name}))
        steps = [(event, secure) for event, secure, n in part["released"] for _ in range(int(n))]
        payloads += [
            (
                "spend",
                {"run": name, "round": i, "party": "", "event": event, "secure": bool(secure)},
            )
            for i, (event, secure) in enumerate(steps)
        ]
    for seq, (kind, payload) in enumerate(payloads, start=1):
        yield Entry(seq, kind, payload, "")


def require_foldable(accounts: Sequence[Mapping[str, Any]]) -> None:
    """ValueError for accounts that nobody could fold in a reasonable time, before that is tried."""
    runs = [part for account in accounts for part in account["runs"]]
    planned = [step for part in runs for step in part["declared"]["plan"]]
    released = [step for part in runs for step in part["released"]]
    counts = [count for *_, count in (*planned, *released)]
    if not all(type(count) is int and 0 < count <= MOST for count in counts):
        raise ValueError(f"a run releases an event between 1 and {MOST:,} times")
    if sum(count for *_, count in released) > MOST:
        raise ValueError(f"more than {MOST:,} releases in all")
    if len({canonical(event) for event, *_ in (*planned, *released)}) > MOST_EVENTS:
        raise ValueError(f"more than {MOST_EVENTS:,} different events")
