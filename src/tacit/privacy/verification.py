"""Recomputing a ledger: what was changed, and what could have been changed unseen."""

from __future__ import annotations

from collections.abc import Mapping

from tacit.privacy.chain import GENESIS, Anchor, Row, Verdict, broken, entry
from tacit.privacy.mechanisms.recorded import other_than_recorded
from tacit.privacy.spending import Spending, fold


def verdict(
    rows: list[Row], digests: Mapping[int, str], anchors: list[Anchor], *, folds: bool = True
) -> Verdict:
    """Hold the rows against their digests, each other and the anchors, and outputs against rows.

    ``digests`` are the SHA-256 of the persisted outputs, by the number of their spend. Rows of an
    older format are held against their digests alone (``folds=False``).
    """
    state = Spending()
    problems = broken(rows)
    for anchor in anchors:
        problems += _misplaced(rows, anchor)
    if folds:
        problems += _unsound(rows, state) or _otherwise(rows, state)
        recorded = {state.spends[key]: output.sha256 for key, output in state.outputs.items()}
        for spend in sorted(recorded.keys() | digests.keys()):
            if recorded.get(spend) != digests.get(spend):
                problems.append(f"the output of entry {spend} was edited, added or removed")
    head = Anchor(rows[-1].digest.hex() if rows else GENESIS.hex(), len(rows))
    return Verdict(not problems, head, tuple(problems), (_unseen(head, anchors),))


def _unsound(rows: list[Row], state: Spending) -> list[str]:
    """The first entry that its predecessors do not allow: a spend too many, an output too early."""
    for row in rows:
        wrong = fold(state, row, strict=True)
        if wrong:
            return [wrong]
    return []


def _otherwise(rows: list[Row], state: Spending) -> list[str]:
    """Spends whose mechanism, as recorded, reveals something else than was charged."""
    found = []
    for each in (entry(row) for row in rows if row.kind == "spend"):
        spend = each.payload
        neighbours = state.runs[spend["run"]].neighbours
        wrong = other_than_recorded(
            spend["mechanism"], spend["event"], bool(spend["secure"]), neighbours
        )
        found += [f"entry {each.seq}: {line}" for line in wrong]
    return found


def _misplaced(rows: list[Row], anchor: Anchor) -> list[str]:
    """Is the anchor's entry where it was?"""
    if len(rows) < anchor.length:
        return [f"truncated: {len(rows)} entries, but {anchor.length} when the anchor was taken"]
    digest = rows[anchor.length - 1].digest if anchor.length else GENESIS
    if digest.hex() != anchor.digest:
        return [f"rewritten: entry {anchor.length} is not the one the anchor was taken at"]
    return []


def _unseen(head: Anchor, anchors: list[Anchor]) -> str:
    """What this verification could not have seen."""
    if not anchors:
        return (
            "no anchor: entries cut off at the end, or a chain rewritten as a whole, "
            "cannot be seen without one"
        )
    younger = head.length - max(anchor.length for anchor in anchors)
    return f"whether entries after the anchor were cut off cannot be seen ({younger} are there)"
