"""A snapshot: the state after some entries, so that who opens a ledger need not fold them again.

It is a blob whose digest is an entry of the chain itself, ``snapshot``: entry s, made of entries
1..s − 1. Whoever opens the file believes it only if

1. the head kept beside the file is of entry h ≥ s, and entry h has that digest,
2. every entry from s to h is linked to the one before it,
3. the blob has the digest that entry s names.

Then by 1 and 2 the digest of entry s is the one that was there when the head was kept, by the links
up to it so is its payload, and by 3 so is the blob: to change any of them is to find a second
preimage of SHA-256. If one does not hold, everything is folded from the first entry.

Whoever folds entries up to a snapshot holds its digest against what they make (ledger_rows.py):
otherwise one that somebody appended after h would be passed over today, and believed tomorrow,
under the head of what was honestly written after it. ``verify`` believes none, and folds all. The
state is written in one canonical way, so that equal states have equal digests.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from tacit.errors import InvalidInput
from tacit.privacy.chain import canonical, event_from_json, event_to_json
from tacit.privacy.dataset_account import Account
from tacit.privacy.runs import Promise, Run, budgets_from_json, budgets_to_json, packed, unpacked
from tacit.privacy.spending import DeclaredAt, RunProgress, Runs, Spending

FORMAT = 1
FEWEST, BYTES_AN_ENTRY = 500, 4_096
"""A snapshot is due after so many entries; after more if it is large, so that writing snapshots
costs each entry a page at most."""


def due(entries: int, size: int) -> bool:
    """Whether so many entries are worth another snapshot, where the last one had this size."""
    return entries >= max(FEWEST, size // BYTES_AN_ENTRY)


def written(state: Spending) -> bytes:
    """The state, in canonical JSON: the same bytes whatever was asked of it meanwhile."""
    progress = state.runs.progress.items()
    accounts = sorted((name, each) for name, each in state.accounts.items() if each.opened)
    return canonical(
        {
            "format": FORMAT,
            "identity": state.identity,
            "certificates": sorted(state.certificates),
            "runs": [
                [name, *run.declared, run.left, run.begun, run.block_due, run.in_floats]
                for name, run in progress
            ],
            "accounts": [_account_to_json(name, account) for name, account in accounts],
        }
    ).encode()


def restored(blob: bytes, read: Callable[[DeclaredAt], Run]) -> Spending:
    """Inverse of written; ``read`` reads the entry that declared a run, when it is needed."""
    fields = json.loads(blob)
    if fields["format"] != FORMAT:
        raise InvalidInput(f"a snapshot of format {fields['format']}, expected {FORMAT}")
    runs = Runs(read)
    for name, seq, digest, *progress in fields["runs"]:
        runs.progress[name] = RunProgress(DeclaredAt(seq, digest), *progress)
    accounts = {each["dataset"]: _account_from_json(each) for each in fields["accounts"]}
    return Spending(fields["identity"], runs, set(fields["certificates"]), accounts)


def _account_to_json(dataset: str, account: Account) -> dict[str, Any]:
    """What was charged, task by task: a task that nothing was charged to is left out."""
    labels, charged = account.labels, (account.runs > 0) | account.costs.any(axis=1)
    order = sorted(np.flatnonzero(charged).tolist(), key=labels.__getitem__)
    rows = np.array(order, dtype=np.intp)
    numbers = np.column_stack([getattr(account, name)[rows] for name in _NUMBERS])
    reports = [
        [event_to_json(event), planned, packed(made[rows])]
        for (event, planned), made in account.reports.items()
        if made.any()
    ]
    return {
        "dataset": dataset,
        "cap": [budgets_to_json(account.cap), account.cap[0].neighbours if account.cap else ""],
        "tasks": [labels[i] for i in order],
        "numbers": [packed(column) for column in numbers.T] if order else [],
        "insecure": packed(account.insecure[rows]) if order else [],
        "promises": [list(promise) for promise in account.promises],
        "doubts": [[text, packed(mask[rows])] for text, mask in account.doubts.items()],
        "reports": sorted(reports, key=canonical),
        "families": {name: sorted(members) for name, members in account.families.items()},
    }


_NUMBERS = {"costs": 3, "pairs": 2, "runs": 1, "promise": 1, "first": 1}
"""The columns of an account's numbers, and how many each has."""


def _account_from_json(fields: dict[str, Any]) -> Account:
    account, m = Account(), len(fields["tasks"])
    account.rows(fields["tasks"])
    account.cap, account.opened = budgets_from_json(*fields["cap"]), True
    if m:
        columns = [unpacked(column, m) for column in fields["numbers"]]
        for name, width in _NUMBERS.items():
            taken, columns = columns[:width], columns[width:]
            like = getattr(account, name)
            setattr(account, name, np.stack(taken, axis=-1).reshape(like.shape).astype(like.dtype))
        account.insecure = unpacked(fields["insecure"], m).astype(np.bool_)
    account.promises = [Promise(*each) for each in fields["promises"]]
    account.doubts = {text: unpacked(mask, m).astype(np.bool_) for text, mask in fields["doubts"]}
    account.reports = {
        (event_from_json(event), planned): unpacked(made, m).astype(np.intp)
        for event, planned, made in fields["reports"]
    }
    account.families = {name: set(members) for name, members in fields["families"].items()}
    return account
