"""What the entries of a ledger add up to."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.privacy.accounting import Cost
from tacit.privacy.ledger import Entry
from tacit.privacy.spending import Spending


def epsilon_spent(entries: Sequence[Entry], run: str, delta: float) -> float:
    """The most that these entries spent on a task of the run, by this and all other runs; 0 if
    they do not declare it."""
    state = Spending()
    for entry in entries:
        state.apply(entry)
    if run not in state.runs:
        return 0.0
    spent = {tuple(row) for row in state.costs(state.runs[run]).tolist()}
    return max(Cost(*each).epsilon_at(delta) for each in spent)
