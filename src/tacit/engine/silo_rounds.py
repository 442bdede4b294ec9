"""The engine of silos that trust nobody: in every round each releases for itself, all read it.

::

    silo j                                             coordinator
    shared  ◀─────── Edge (everybody may see it) ───────  start(), absorb(...)
    contribute(step, shared) → its people's rows
    its own door, its own mechanism → released
    released  ─────── Edge (nobody outside is trusted) ──▶  absorb(step, shared, releases)

A silo's plan is fixed before the first round, on a ledger run of its own. One that may spend
nothing says nothing, and the others go on. In one process the silos that speak compute together, on
a node one is all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from tacit.engine.protocol import Message, Outcome, Progress, Public, Step
from tacit.engine.trust import Edge
from tacit.linear.threads import one_blas_thread
from tacit.privacy.planning import Door
from tacit.privacy.release import Release

COORDINATOR, SILOS = "coordinator", "silos"


class SiloParticipant(Protocol):
    """People's rows in, contributions out, of several silos at once. No I/O, no clock.

    A person's part is, bit for bit, a function of their own rows and of what is shared.
    """

    def contribute(self, step: Step, shared: Message, state: None) -> tuple[Iterable[Any], None]:
        """Of each silo in turn what its mechanism takes."""

    def select(self, units: Sequence[int]) -> SiloParticipant:
        """These silos only, in this order."""


class SiloCoordinator(Protocol):
    """Releases of all silos in, shared state out; made of public facts alone."""

    def steps(self, silo: int) -> tuple[Step, ...]:
        """What this silo releases, in order; the names are the same for all."""

    def start(self) -> Public:
        """Before the first release: declared constants."""

    def absorb(self, step: str, shared: Public, releases: Sequence[Release]) -> Public:
        """After one more release of every silo that speaks, in their order."""


def speaking(doors: Sequence[Door]) -> list[int]:
    """The silos that may spend anything."""
    return [j for j, door in enumerate(doors) if door.budgets[0] is not None]


Speak = Callable[[int, Message, Mapping[int, Step]], Mapping[int, Release]]
"""(round, what everybody sees, each silo's step) → what each released, in their order."""


def silo(place: int) -> str:
    """The name under which a silo releases, in every ledger."""
    return f"silo {place}"


def run_silos(
    participant: SiloParticipant,
    coordinator: SiloCoordinator,
    doors: Sequence[Door],
    *,
    progress: Progress = None,
) -> Outcome:
    """Runs all steps of all silos; what is shared after the last."""
    at_home = participant.select(speaking(doors))

    def speak(number: int, shared: Message, steps: Mapping[int, Step]) -> dict[int, Release]:
        with one_blas_thread():
            each, _ = at_home.contribute(next(iter(steps.values())), shared, None)
            return {
                j: doors[j].release(number, silo(j), step.mechanism, rows)
                for (j, step), rows in zip(steps.items(), each, strict=True)
            }

    return run_spoken(speak, coordinator, doors, progress=progress)


def run_spoken(
    speak: Speak,
    coordinator: SiloCoordinator,
    doors: Sequence[Door],
    *,
    progress: Progress = None,
) -> Outcome:
    """The same, of silos that speak wherever they are."""
    outcome, those = Outcome({}), speaking(doors)
    plans = {j: coordinator.steps(j) for j in those}
    for j in those:
        doors[j].open([step.mechanism for step in plans[j]])
    to_all = Edge(COORDINATOR, SILOS, False, outcome.transcript)
    shared = coordinator.start()
    names = [step.name for step in plans[those[0]]]
    for number, name in enumerate(names):
        steps = {j: plan[number] for j, plan in plans.items()}
        releases = speak(number, to_all.send(shared), steps)
        for j, released in releases.items():
            Edge(silo(j), COORDINATOR, False, outcome.transcript).send({name: released})
        shared = coordinator.absorb(name, shared, list(releases.values()))
        if progress is not None:
            progress(name, number + 1, len(names))
    return replace(outcome, shared=to_all.send(shared))
