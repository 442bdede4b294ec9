"""The engine of sites whose clients have networks of their own (S2).

The coordinator, whom the clients trust, draws the cohorts, and tells each site who of its clients
takes part; a site answers with one update for each of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.arrays import Array
from tacit.engine import Coordinator, Message, Participant, Step
from tacit.errors import InvalidInput
from tacit.federation.engine import Elsewhere, OverSites
from tacit.privacy.planning import Door


@dataclass(frozen=True)
class ElsewhereClients(Elsewhere):
    """The clients of all sites together."""

    def contribute(self, step: Step, shared: Message, state: Any) -> tuple[Any, None]:
        """The updates of the cohort, as far as their sites were heard."""
        silent: Any = self.silent
        number = int(shared["round"].value)
        silence, _ = silent.contribute(step, shared, None)
        cohort = silent.cohort(number)
        return silence.of(self.rows(number, silence.values.cpu().numpy(), cohort)), None

    def broadcast(self, site: str, number: int) -> dict[str, Array]:
        """With who of the site's clients takes part: nobody else is told."""
        from tacit.neural.site_clients import COHORT

        silent: Any = self.silent
        chosen = np.isin(self.sites.terms.places[site], silent.cohort(number))
        return super().broadcast(site, number) | {COHORT: chosen}


@dataclass(frozen=True)
class OverClients(OverSites):
    """The same engine, for sites whose clients take part by the coordinator's coins."""

    def halves(
        self, participant: Participant, coordinator: Coordinator, door: Door
    ) -> tuple[Elsewhere, Coordinator]:
        """Both halves, the first of them elsewhere."""
        clients: Any = participant
        if not clients.plan.mixing.public:
            raise InvalidInput("each broadcast of this relation is for one client's eyes only")
        there, here = super().halves(participant, coordinator, door)
        return ElsewhereClients(**vars(there)), here
