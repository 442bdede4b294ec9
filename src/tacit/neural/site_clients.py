"""The clients of one site of a run: its own rows and models, and rounds that somebody else runs.

The trusted side draws the cohorts and tells each site which of its own clients take part: nobody
else learns it. What a site keeps between rounds is its clients' models, as plain numbers. All
clients of the run are there by name, without rows, so that a pass has the public shape that it has
in one process, and every client draws its own coins: the bits are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from tacit.arrays import Array, IntArray
from tacit.engine import Message, Step
from tacit.neural.federated import FederatedMTL
from tacit.neural.inputs import Classes
from tacit.neural.personal import PersonalModels, require_usable
from tacit.neural.pmtl import FederatedClients
from tacit.tasks import TaskSet

COHORT = "cohort"
"""What a site is told beside what is shared: of its clients, in order, who takes part."""

SOME_NOISE = 1.0
"""How much is the trusted side's to know; here it only says that nobody's rows stop a round."""


@dataclass(frozen=True, eq=False)
class SiteClients:
    """A participant: the clients in these places of all."""

    model: FederatedMTL
    clients: FederatedClients
    places: IntArray
    classes: Classes | None
    steps: tuple[Step, ...]
    among: tuple[int, ...] | None = None  # of a cohort only those in these places

    @classmethod
    def of(cls, model: FederatedMTL, tasks: TaskSet, places: Sequence[int]) -> SiteClients:
        """Of all tasks of the run, those of others without rows; InvalidInput if the module does
        not take the rows."""
        model._check()
        trainer, labels, classes = model._from_tasks(tasks)
        require_usable(trainer.stacked, trainer.examples.X)
        plan, planned = model._planned(len(labels), trainer.stacked)
        plan = replace(plan, noise_multiplier=SOME_NOISE)
        coins, _ = model._coins_and_noise()
        server, clients, _ = model._halves(plan, planned, trainer, coins, None)
        return cls(model, clients, np.array(places), classes, server.steps)

    def select(self, units: Sequence[int]) -> SiteClients:
        """Those in these places of each cohort."""
        return replace(self, among=tuple(units))

    def contribute(
        self, step: Step, shared: Message, state: Array | None
    ) -> tuple[Array, Array | None]:
        """(k, d): the updates of those who take part; and the models of all of the site's clients,
        if they keep any."""
        members = self.places[np.flatnonzero(shared[COHORT].value)]
        if self.among is not None:
            members = members[list(self.among)]
        models = self._among_all(state)
        done = self.clients.worked(shared, models, members)
        kept = done.kept(models)
        values = done.updates.values.cpu().numpy()
        return values, None if kept is None else kept[self.places].cpu().numpy()

    def _among_all(self, state: Array | None) -> torch.Tensor | None:
        """(m, d): the site's models in their places."""
        models = self.clients.models
        if models is None or state is None:
            return models
        found = models.clone()
        found[self.places] = torch.from_numpy(state).to(models)
        return found

    def at_home(self, shared: Message, state: Array | None) -> PersonalModels:
        """What each client makes of what was shared; of the others what they heard."""
        clients, model = self.clients, self.model
        start = clients.current(shared, self._among_all(state))
        heard, trainer = clients.heard(shared), clients.trainer
        own = replace(trainer, examples=trainer.examples.select(self.places), chunk=trainer.slots())
        coins = clients.coins.of("at home")
        mine: Any = torch.from_numpy(self.places)
        found, model.private_home_ = model._at_home(own, start[mine], heard[mine], coins)
        models = heard.clone()
        models[mine] = found
        around = model._models_around(clients, shared, self.classes)
        return replace(around, centres=clients.centres(shared), models=models)
