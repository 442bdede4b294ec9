"""The in-process engine: rounds of broadcast, contribution and release, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tacit.engine.protocol import (
    Contributions,
    Coordinator,
    Message,
    Outcome,
    Participant,
    Progress,
    Released,
    Step,
    Unprotected,
)
from tacit.engine.trust import Edge
from tacit.privacy.isolation import require_alone
from tacit.privacy.planning import Door
from tacit.privacy.release import Mechanism

CURATOR, TASKS = "curator", "tasks"

After = Callable[[Message, Any], None] | None
"""Called after each release with what is shared and what the participant keeps: for the trusted
side, which has both in one process."""


def run_rounds(
    participant: Participant,
    coordinator: Coordinator,
    door: Door | None,
    *,
    isolated: bool = True,
    after: After = None,
    progress: Progress = None,
) -> Outcome:
    """Runs all steps of the coordinator; what is shared after the last.

    The steps are fixed before the first: their events are the run's plan, which the ledger checks
    before any noise is drawn. ``door=None``: the non-private twin. ``isolated=False``: the
    participant is known not to keep its units apart, the door was told so, and nobody is checked.
    """
    if door is not None:
        _open(coordinator, door)
    outcome, steps = Outcome({}), coordinator.steps
    to_tasks = Edge(CURATOR, TASKS, door is None, outcome.transcript)
    shared: Any = coordinator.start()
    state, to_check = None, isolated and door is not None
    for number, step in enumerate(steps):
        message = to_tasks.send(shared)
        mechanism = step.given(message)
        found: Any = None if door is None else door.released(number, CURATOR, mechanism)
        if found is None:
            contributions, kept = participant.contribute(step, message, state)
            if to_check and len(contributions):
                require_isolation(participant, step, message, state, contributions)
                to_check = False
            found, state = _released(door, number, step, mechanism, contributions), kept
        shared = coordinator.absorb(step, shared, found)
        if after is not None:
            after(shared, state)
        if progress is not None:
            progress(step.name, number + 1, len(steps))
    return replace(outcome, shared=to_tasks.send(shared), state=state)


def _open(coordinator: Coordinator, door: Door) -> None:
    """Declares the run, and that of what tasks add at home; BudgetExceeded if it does not fit."""
    door.open([step.mechanism for step in coordinator.steps])
    if door.at_home is not None:
        door.at_home.open([s.at_home for s in coordinator.steps if s.at_home is not None])


def require_isolation(
    participant: Participant, step: Step, shared: Message, state: Any, together: Contributions
) -> None:
    """Before the first release one unit, chosen in secret, contributes once more by itself."""

    def alone(units: slice) -> Contributions:
        chosen = range(len(together))[units]
        return participant.select(chosen).contribute(step, shared, state)[0]

    require_alone("a contribution", alone, together)


def _released(
    door: Door | None, number: int, step: Step, mechanism: Mechanism, contributions: Any
) -> Released:
    """The sum through the door, after what tasks add at home; without a door, as it is."""
    if door is None:
        return Unprotected(mechanism.release(contributions, None))
    if door.at_home is not None and step.at_home is not None:
        contributions = door.at_home.release(number, TASKS, step.at_home, contributions).value
    return door.release(number, CURATOR, mechanism, contributions)
