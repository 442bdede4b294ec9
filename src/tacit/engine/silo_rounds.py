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

from collections.abc import Iterable, Sequence
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


def run_silos(
    participant: SiloParticipant,
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
    shared, those_at_home = coordinator.start(), participant.select(those)
    names = [step.name for step in plans[those[0]]]
    for number, name in enumerate(names):
        message, releases = to_all.send(shared), []
        with one_blas_thread():
            each, _ = those_at_home.contribute(plans[those[0]][number], message, None)
            for j, rows in zip(those, each, strict=True):
                silo, step = f"silo {j}", plans[j][number]
                released = doors[j].release(number, silo, step.mechanism, rows)
                Edge(silo, COORDINATOR, False, outcome.transcript).send({name: released})
                releases.append(released)
        shared = coordinator.absorb(name, shared, releases)
        if progress is not None:
            progress(name, number + 1, len(names))
    return replace(outcome, shared=to_all.send(shared))
