"""The in-process engine: rounds of broadcast, contribution and release, one after the other."""

from __future__ import annotations

from dataclasses import replace

from tacit.arrays import FloatArray
from tacit.engine.protocol import Coordinator, Message, Outcome, Participant, Progress, Step
from tacit.engine.trust import Edge
from tacit.privacy.isolation import require_alone
from tacit.privacy.planning import Door

CURATOR, TASKS = "curator", "tasks"


def run_rounds(
    participant: Participant,
    coordinator: Coordinator,
    door: Door,
    *,
    trusted: frozenset[str] = frozenset({CURATOR}),
    progress: Progress = None,
) -> Outcome:
    """Runs all steps of the coordinator; what is shared after the last.

    The steps are fixed before the first: their events are the run's plan, which the ledger checks
    before any noise is drawn.
    """
    _open(coordinator, door)
    outcome = Outcome({})
    to_tasks = Edge(CURATOR, TASKS, TASKS in trusted, outcome.transcript)
    shared, state = coordinator.start(), None
    for number, step in enumerate(coordinator.steps):
        message = to_tasks.send(shared)
        contributions, state = participant.contribute(step, message, state)
        if number == 0:
            _require_isolation(participant, step, message, contributions)
        if door.at_home is not None and step.at_home is not None:
            contributions = door.at_home.release(number, TASKS, step.at_home, contributions).value
        release = door.release(number, CURATOR, step.mechanism, contributions)
        shared = coordinator.absorb(step, shared, release)
        if progress is not None:
            progress(step.name, number + 1, len(coordinator.steps))
    return replace(outcome, shared=to_tasks.send(shared))


def _open(coordinator: Coordinator, door: Door) -> None:
    """Declares the run, and that of what tasks add at home; BudgetExceeded if it does not fit."""
    door.open([step.mechanism.event(door.neighbours) for step in coordinator.steps])
    if door.at_home is not None:
        own = [step.at_home for step in coordinator.steps if step.at_home is not None]
        door.at_home.open([mechanism.event(door.at_home.neighbours) for mechanism in own])


def _require_isolation(
    participant: Participant, step: Step, shared: Message, together: FloatArray
) -> None:
    """Before the first release one unit, chosen in secret, contributes once more by itself."""

    def alone(units: slice) -> FloatArray:
        chosen = range(len(together))[units]
        return participant.select(chosen).contribute(step, shared, None)[0]

    require_alone("a contribution", alone, together)
