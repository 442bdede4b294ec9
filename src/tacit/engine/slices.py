"""Many tasks in one memory: the rounds of the in-process engine, a slice of the tasks on each core.

What a slice's tasks contribute is clipped, cut onto the grid and added up where it was computed, in
whole numbers (privacy/mechanisms/in_parts.py). So the rows of a release are never all in memory, no
core waits for another to add them up, and the sum is the same bits as of all tasks at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from tacit.arrays import FloatArray
from tacit.engine.other_mechanisms import OtherMechanisms
from tacit.engine.protocol import Coordinator, Message, Outcome, Participant, Progress, Step
from tacit.engine.rounds import require_isolation, run_rounds
from tacit.linear.threads import on_all_cores
from tacit.privacy.mechanisms.in_parts import InParts, Part, why_whole
from tacit.privacy.planning import Door

SLICE = 4096
"""Tasks in a slice: those of them who vote, one in a hundred of a million, are still a batch."""


@dataclass(frozen=True)
class Said:
    """What some tasks said in a step."""

    part: Part
    kept: Any  # for their next step


def said(
    participant: Participant,
    step: Step,
    shared: Message,
    shares: FloatArray | None,
    before: Said | None,
) -> Said:
    """The sum of what the tasks contribute; before their first answer one of them is held against
    the same task alone."""
    kept = None if before is None else before.kept
    rows, now = participant.contribute(step, shared, kept)
    if before is None and len(rows):
        require_isolation(participant, step, shared, kept, rows)
    assert isinstance(step.mechanism, InParts)
    return Said(step.mechanism.part(rows, shares), now)


def whole(found: Sequence[Said]) -> Part:
    """Of all tasks together."""
    return reduce(add, (each.part for each in found))


@dataclass(frozen=True)
class AllSlices:
    """The participant of all tasks, slice by slice."""

    slices: Sequence[Participant]
    shares: Sequence[FloatArray | None]  # of the tasks of each

    def contribute(self, step: Step, shared: Message, state: Any) -> tuple[Any, Any]:
        """A ``Part``, the sum over all tasks; and what each slice said."""

        def one(tasks: Participant, shares: FloatArray | None, before: Said | None) -> Said:
            return said(tasks, step, shared, shares, before)

        before = state or [None] * len(self.slices)
        found = list(on_all_cores(one, self.slices, self.shares, before))
        return whole(found), found

    def select(self, units: Sequence[int]) -> Participant:
        """Each slice has its own: nobody asks."""
        raise NotImplementedError


def run_in_slices(
    participant: Participant, coordinator: Coordinator, door: Door, *, progress: Progress = None
) -> Outcome:
    """As ``run_rounds``; of few tasks, or where a release is no sum over tasks, all at once."""
    m = len(door.labels)
    size = getattr(participant, "together", SLICE)  # some have passes of their own, on a device
    if m <= SLICE or not all(_is_a_sum(step) for step in coordinator.steps):
        return run_rounds(participant, coordinator, door, progress=progress)
    ranges = [range(start, min(start + size, m)) for start in range(0, m, size)]
    shares = shares_of(door, [len(each) for each in ranges])
    slices = AllSlices([participant.select(each) for each in ranges], shares)
    sums = OtherMechanisms(coordinator, InParts)
    return run_rounds(slices, sums, door, isolated=False, progress=progress)


def _is_a_sum(step: Step) -> bool:
    return step.at_home is None and not why_whole(step.mechanism)


def shares_of(door: Door, sizes: Sequence[int]) -> Sequence[FloatArray | None]:
    """Those of the tasks of each part; None where nobody has less than the others."""
    if np.all(door.shares == 1):
        return [None] * len(sizes)
    return np.split(door.shares, np.cumsum(sizes)[:-1])
