"""The silos of one site of a run: its own people's rows, and rounds that somebody else runs.

All silos of the run are there by name, without rows, so that plans and passes are those of one
process, and every silo has its own coins: the bits are the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tacit.device.installation import installation
from tacit.engine import Message
from tacit.errors import IsolationError
from tacit.neural.client_training import Trainer
from tacit.neural.federated import FederatedMTL
from tacit.neural.inputs import Classes
from tacit.neural.personal import PersonalModels, require_usable
from tacit.neural.silos.inside_silos import NetworkHalves, public_models
from tacit.tasks import Schema, TaskSet


@dataclass(frozen=True, eq=False)
class SiteSilos:
    """The silos in these places of all."""

    model: FederatedMTL
    trainer: Trainer
    labels: tuple[Hashable, ...]
    classes: Classes | None
    places: tuple[int, ...]

    @classmethod
    def of(
        cls, model: FederatedMTL, tasks: TaskSet, schema: Schema, places: Sequence[int]
    ) -> SiteSilos:
        """Of all tasks of the run, those of others without rows; InvalidInput if the module does
        not take the rows."""
        model._check()
        model._require_declared(schema)
        trainer, labels, classes = model._from_tasks(tasks)
        require_usable(trainer.stacked, trainer.examples.X)
        return cls(model, trainer, labels, classes, tuple(places))

    def halves(self) -> NetworkHalves:
        """Both halves of the run, of which its own silos are here. IsolationError where rows may
        not be kept apart: whoever states the guarantee could not know it."""
        found = self.model._silo_halves(self.trainer, self.labels, None, self.classes)
        if not found.silos.isolated:
            raise IsolationError("a row's gradient", installation(self.trainer.device))
        return found

    def at_home(self, shared: Message) -> tuple[PersonalModels, Tensor]:
        """What anybody may see; and what each silo makes of it, of the others what they heard."""
        everybody = range(len(self.labels))
        models = public_models(self.trainer, everybody, shared, self.labels, self.classes)
        mine: Any = torch.tensor(self.places)
        examples = self.trainer.examples.select(mine.numpy())
        own = replace(self.trainer, examples=examples, chunk=self.trainer.slots())
        home, heard = models.models.clone(), models.models[mine]
        coins = self.model._coins_and_noise()[0].of("at home")
        home[mine], self.model.private_home_ = self.model._at_home(own, heard, heard, coins)
        return models, home
