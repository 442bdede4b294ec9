"""The engine of silos that trust nobody: in every round each releases for itself, all read it.

::

    silo j                                             coordinator
    shared  ◀─────── Edge (everybody may see it) ───────  start(), absorb(...)
    select([j]).contribute(step, shared) → rows
    its own door, its own mechanism → released
    released  ─────── Edge (nobody outside is trusted) ──▶  absorb(step, shared, releases)

A silo's plan is fixed before the first round, on a ledger run of its own. One that may spend
nothing says nothing, and the others go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from tacit.engine.protocol import Outcome, Participant, Progress, Public, Step
from tacit.engine.trust import Edge
from tacit.linear.threads import one_blas_thread
from tacit.privacy.planning import Door
from tacit.privacy.release import Release

COORDINATOR, SILOS = "coordinator", "silos"


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


def run_silos(
    participant: Participant,
    coordinator: SiloCoordinator,
    doors: Sequence[Door],
    *,
    progress: Progress = None,
) -> Outcome:
    """Runs all steps of all silos; what is shared after the last."""
    outcome, those = Outcome({}), speaking(doors)
    plans = {j: coordinator.steps(j) for j in those}
    for j in those:
        doors[j].open([step.mechanism.event(doors[j].neighbours) for step in plans[j]])
    to_all = Edge(COORDINATOR, SILOS, False, outcome.transcript)
    shared = coordinator.start()
    names = [step.name for step in plans[those[0]]]
    for number, name in enumerate(names):
        message, releases = to_all.send(shared), []
        for j in those:
            silo, step = f"silo {j}", plans[j][number]
            with one_blas_thread():
                rows, _ = participant.select([j]).contribute(step, message, None)
            released = doors[j].release(number, silo, step.mechanism, rows)
            Edge(silo, COORDINATOR, False, outcome.transcript).send({name: released})
            releases.append(released)
        shared = coordinator.absorb(name, shared, releases)
        if progress is not None:
            progress(name, number + 1, len(names))
    return replace(outcome, shared=to_all.send(shared))
