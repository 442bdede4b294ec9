"""The in-process engine: rounds of broadcast, contribution and release, one after the other."""

from __future__ import annotations

from tacit.engine.trust import Edge
from tacit.estimator import Coordinator, Door, Message, Participant, Progress, Step
from tacit.linear.losses import FloatArray
from tacit.privacy.isolation import require_alone
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
        message = to_tasks.send(shared)
        contributions, state = participant.contribute(step, message, state)
        if number == 0:
            _require_isolation(participant, step, message, contributions)
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


def _require_isolation(
    participant: Participant, step: Step, shared: Message, together: FloatArray
) -> None:
    """Before the first release one unit, chosen in secret, contributes once more by itself."""

    def alone(units: slice) -> FloatArray:
        chosen = range(len(together))[units]
        return participant.select(chosen).contribute(step, shared, None)[0]

    require_alone("a contribution", alone, together)
