"""The coordinator of silos that trust nobody: it reads releases, and its ledger repeats them.

All silos that speak are needed in every round: what one released is judged by what all of them did.
So a silo that is not heard after ``PATIENCE`` requests ends the run, by name; run again it goes on
where the ledger ends, and nothing is spent twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.arrays import Array
from tacit.engine import Message, Outcome, Progress, Step
from tacit.engine.silo_rounds import SiloCoordinator, run_spoken, silo
from tacit.errors import Refused
from tacit.federation.arrived import Arrived
from tacit.federation.sites import PATIENCE, ROOM, Sites
from tacit.federation.wire import packed
from tacit.privacy.planning import Door
from tacit.privacy.release import Release

LARGEST = 64 * ROOM
"""Bytes of the releases of one site's silos: moments of a thousand columns are a tenth of it."""


@dataclass(frozen=True)
class OverSilos:
    """An engine with the duties of ``run_silos``."""

    sites: Sites

    def __call__(
        self,
        _: object,
        coordinator: SiloCoordinator,
        doors: Sequence[Door],
        *,
        progress: Progress = None,
    ) -> Outcome:
        """Runs all steps of all silos; what is shared after the last."""

        def speak(number: int, shared: Message, steps: Mapping[int, Step]) -> dict[int, Release]:
            mechanisms = {j: Arrived(step.mechanism) for j, step in steps.items()}
            return self.releases(number, shared, mechanisms, doors)

        return run_spoken(speak, coordinator, doors, progress=progress)

    def releases(
        self, number: int, shared: Message, mechanisms: Mapping[int, Arrived], doors: Sequence[Door]
    ) -> dict[int, Release]:
        """Of all silos that speak: from the ledger, or as they arrive."""
        found = {
            j: doors[j].released(number, silo(j), mechanism) for j, mechanism in mechanisms.items()
        }
        for _ in range(PATIENCE):
            missing = [j for j, each in found.items() if each is None]
            for j, value in self.asked(number, shared, missing).items():
                found[j] = doors[j].release(number, silo(j), mechanisms[j], value)
        silent = self.owners([j for j, each in found.items() if each is None])
        self.sites.note("round", round=number, heard=self.owners(found), silent=silent)
        if silent:
            raise Refused(", ".join(silent), f"not heard in round {number}; run it again")
        return {j: each for j, each in found.items() if each is not None}

    def owners(self, places: Sequence[int] | Mapping[int, Any]) -> list[str]:
        """The sites that have these silos."""
        every = self.sites.terms.places
        return sorted(name for name, own in every.items() if set(own) & set(places))

    def asked(self, number: int, shared: Message, places: Sequence[int]) -> dict[int, Array]:
        """What sites answer for these silos."""
        if not places:
            return {}
        self.sites.meet()
        about = {"kind": "release", "terms": self.sites.terms.digest, "number": number}
        told = {f"{number}/{name}": np.asarray(part.value) for name, part in shared.items()}
        there = [name for name in self.owners(places) if name in self.sites.address]
        requests = dict.fromkeys(there, packed(about, told))
        found: dict[int, Array] = {}
        for name, _, arrays in self.sites.sound_answers(requests, LARGEST):
            own = self.sites.terms.places[name]
            if arrays.keys() != {str(place) for place in own}:
                self.sites.note("refused", site=name, why=f"it releases for {sorted(arrays)}")
                continue
            found |= {place: arrays[str(place)] for place in own if place in places}
        return found
