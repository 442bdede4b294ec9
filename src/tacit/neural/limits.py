"""Networks that share nothing, or everything: the limits that a fitted one is judged against."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
from torch import Tensor

from tacit.neural.client_choice import settled
from tacit.neural.federated import FederatedMTL
from tacit.neural.secret_streams import Coins
from tacit.tasks import TaskSet


def limits(model: FederatedMTL, tasks: TaskSet) -> dict[str, FederatedMTL]:
    """The same networks of the same clients, each learned "alone" from its own of these rows, or
    "pooled", one for all, from the public start. Not private."""
    everybody = replace(tasks, offsets=np.array([0, tasks.n_rows]), labels=("all",))
    found = {"alone": _own(model, tasks), "pooled": _own(model, everybody)}
    return {name: _exchanged(model, networks) for name, networks in found.items()}


def _own(model: FederatedMTL, tasks: TaskSet) -> Tensor:
    """(m, d): what clients make of their rows where they hear of nobody."""
    trainer, _, _ = model._from_tasks(tasks)
    start = trainer.stacked.start()
    nothing = start.expand(tasks.n_tasks, -1)
    return settled(trainer, start, nothing, nothing, Coins.named("limits")).models


def _exchanged(model: FederatedMTL, networks: Tensor) -> FederatedMTL:
    found, clients = copy.copy(model), len(model.tasks_)
    found._models = model._models.exchanged(networks.expand(clients, -1).cpu())
    found._home_models = None  # theirs are no others
    return found
