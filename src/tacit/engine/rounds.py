"""The in-process engine: rounds of broadcast, contribution and release, one after the other."""

from __future__ import annotations

from tacit.engine.trust import Edge
from tacit.estimator import Coordinator, Door, Message, Participant, Progress, Step
from tacit.linear.losses import FloatArray
from tacit.privacy.isolation import require_alone
from tacit.privacy.release import Key, Mechanism, Release

CURATOR, TASKS = "curator", "tasks"


def run_rounds(
    participant: Participant,
    coordinator: Coordinator,
    door: Door,
    *,
    trusted: frozenset[str] = frozenset({CURATOR}),
    progress: Progress = None,
) -> Message:
    """Runs all steps of the coordinator and returns the shared state after the last.

    The steps are fixed before the first: their events are the run's plan, which the ledger checks
    before any noise is drawn.
    """
    door.open([step.mechanism.event(door.neighbours) for step in coordinator.steps])
    if door.at_home is not None:
        own = [step.at_home for step in coordinator.steps if step.at_home is not None]
        door.at_home.open([mechanism.event(door.at_home.neighbours) for mechanism in own])
    to_tasks = Edge(CURATOR, TASKS, TASKS in trusted, door.transcript)
    shared, state = coordinator.start(), None
    for number, step in enumerate(coordinator.steps):
        message = to_tasks.send(shared)
        contributions, state = participant.contribute(step, message, state)
        if number == 0:
            _require_isolation(participant, step, message, contributions)
        if door.at_home is not None and step.at_home is not None:
            contributions = _released(
                door.at_home, number, TASKS, step.at_home, contributions
            ).value
        release = _released(door, number, CURATOR, step.mechanism, contributions)
        shared = coordinator.absorb(step, shared, release)
        if progress is not None:
            progress(step.name, number + 1, len(coordinator.steps))
    return to_tasks.send(shared)


def _released(
    door: Door, number: int, party: str, mechanism: Mechanism, contributions: FloatArray
) -> Release:
    return door.ledger.release(
        mechanism, contributions, key=Key(door.run, number, party), rng=door.rng
    )


def _require_isolation(
    participant: Participant, step: Step, shared: Message, together: FloatArray
) -> None:
    """Before the first release one unit, chosen in secret, contributes once more by itself."""

    def alone(units: slice) -> FloatArray:
        chosen = range(len(together))[units]
        return participant.select(chosen).contribute(step, shared, None)[0]

    require_alone("a contribution", alone, together)
