"""One more engine: the rounds of the in-process one, over sites that are somewhere else.

The coordinator's process has every task by name and nobody's rows. So the participant that its own
learner makes contributes what tasks without rows do, zero, in the shape of the step: these are the
rows of whoever is not heard. What sites answer takes its place, and everything else, the door, the
ledger, the edge, the transcript, is ``run_rounds`` (engine/rounds.py). Each site holds one of its
tasks against the same task alone before its first answer; here nobody could.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit.arrays import Array, FloatArray, IntArray
from tacit.engine import Coordinator, Message, Outcome, Participant, Progress, Step, run_rounds
from tacit.federation.own_tasks import Planned
from tacit.federation.sites import Sites
from tacit.privacy.planning import Door


@dataclass(frozen=True)
class Elsewhere:
    """The participant of all sites together."""

    sites: Sites
    silent: Participant  # of all tasks, without their rows
    steps: tuple[Step, ...]
    planned: Planned
    told: list[Message]  # what was shared before each step so far

    def contribute(self, step: Step, shared: Message, state: Any) -> tuple[FloatArray, Any]:
        """The rows of all tasks, as far as their sites were heard."""
        number = self.steps.index(step)
        silence, kept = self.silent.contribute(step, shared, state)
        return self.rows(number, np.asarray(silence), np.arange(len(silence))), kept

    def rows(self, number: int, silence: Array, units: IntArray) -> Array:
        """Those of these units, as far as their sites were heard."""
        return self.sites.rows(number, self.broadcast, self.planned, silence, units)

    def broadcast(self, site: str, number: int) -> dict[str, Array]:
        """What a site is told before a release."""
        return {name: np.asarray(part.value) for name, part in self.told[number].items()}

    def select(self, units: Sequence[int]) -> Elsewhere:
        """Those who are not these units stay silent: a site checks its own."""
        return replace(self, silent=self.silent.select(units))

    def tell(self, shared: Message, _: Any) -> None:
        """What the next step begins with."""
        self.told.append(shared)


@dataclass(frozen=True)
class OverSites:
    """An engine with the duties of ``run_rounds``."""

    sites: Sites

    def halves(
        self, participant: Participant, coordinator: Coordinator, door: Door
    ) -> tuple[Elsewhere, Coordinator]:
        """Both halves, the first of them elsewhere."""
        planned = Planned(door.mu, door.pure)
        told = [coordinator.start()]
        return Elsewhere(self.sites, participant, coordinator.steps, planned, told), coordinator

    def __call__(
        self,
        participant: Participant,
        coordinator: Coordinator,
        door: Door,
        *,
        progress: Progress = None,
    ) -> Outcome:
        """Runs all steps; what is shared after the last. What was released before is not asked for
        again, so a coordinator that died goes on where its ledger ends."""
        there, here = self.halves(participant, coordinator, door)
        return run_rounds(there, here, door, isolated=False, after=there.tell, progress=progress)
