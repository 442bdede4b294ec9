"""What was recorded for a certificate's tasks after it was made.

A certificate is made once, so that all recipients hold the same; it states the total at its anchor
in the ledger. Who runs again on the same tasks raises the total of everybody who was told less. So
the trusted side is told what it is now, and a hand-out's seal says it to its recipient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tacit.certificate.accounts import charged_by, folded, parts_of
from tacit.folder import RunState
from tacit.privacy.budget import Guarantee
from tacit.privacy.dataset_account import Statement
from tacit.privacy.ledger import Ledger

Since = dict[str, Any]


def ledger_of(directory: Path) -> Ledger:
    """The ledger of a folder of the trusted side, to be read."""
    state = RunState.read(directory)
    return Ledger(state.ledger_path(directory), dataset=state.dataset, read_only=True)


def recorded_since(ledger: Ledger, certificate: Mapping[str, Any]) -> Since | None:
    """The total now of the tasks of the certificate's run; None where the certificate says it."""
    entries, run = ledger.entries(), str(certificate["run"])
    spending = folded(entries)
    tasks = charged_by(spending, ledger.dataset, run)
    total = spending.statement(ledger.dataset, tasks, parts_of(spending, ledger.dataset, run))
    if not _more(certificate["guarantee"], total):
        return None
    return {
        "entry": len(entries),
        "runs": total.runs,
        "epsilon": total.epsilon,
        "delta": total.delta,
        "doubts": list(total.doubts),
    }


def _more(said: Mapping[str, Any], total: Statement) -> bool:
    higher = total.epsilon > float(said["epsilon"]) or total.delta > float(said["delta"])
    return higher or total.runs > said["runs"] or bool(said["proven"] and total.doubts)


def as_of_now(guarantee: Guarantee, since: Mapping[str, Any] | None) -> Guarantee:
    """The guarantee with the total of later runs on the same tasks, not proven where one is
    doubtful. They came after its output: whether a cap was fixed before, a seal does not say."""
    if since is None:
        return guarantee
    doubts = "; ".join(since["doubts"])
    return replace(
        guarantee,
        epsilon=since["epsilon"],
        delta=since["delta"],
        runs=since["runs"],
        run_epsilon=guarantee.run_epsilon or guarantee.epsilon,
        run_delta=guarantee.run_delta or guarantee.delta,
        after_output=True,
        proven=guarantee.proven and not doubts,
        reason=doubts or guarantee.reason,
    )
