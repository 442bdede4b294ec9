"""The in-process engine: rounds of broadcast, contribution and release, one after the other."""

from __future__ import annotations

from tacit.engine.trust import Edge
from tacit.estimator import Coordinator, Door, Message, Participant, Progress
from tacit.privacy.release import Key

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
    plan = [step.mechanism.event(door.neighbours) for step in coordinator.steps]
    door.open(plan)
    to_tasks = Edge(CURATOR, TASKS, TASKS in trusted, door.transcript)
    shared, state = coordinator.start(), None
    for number, step in enumerate(coordinator.steps):
        contributions, state = participant.contribute(step, to_tasks.send(shared), state)
        release = door.ledger.release(
            step.mechanism,
            contributions,
            key=Key(door.run, number, CURATOR),
            rng=door.rng,
        )
        shared = coordinator.absorb(step, shared, release)
        if progress is not None:
            progress(step.name, number + 1, len(coordinator.steps))
    return to_tasks.send(shared)
