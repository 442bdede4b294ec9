"""What the trusted side does after each round: a checkpoint, and a look at rows that it watches."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from tacit.engine import Message
from tacit.estimator.fitted import column_by_text, columns_of
from tacit.neural.checkpoint import Checkpoint, write_checkpoint
from tacit.neural.client_training import RowLoss
from tacit.neural.personal import PersonalModels
from tacit.neural.pmtl import FederatedClients
from tacit.neural.round_costs import epsilon_of
from tacit.privacy.budget import Budget

Scored = Callable[[Tensor], dict[str, float]] | None
"""Loss and accuracy of models (m, d)."""


def watched(
    models: PersonalModels, labels: tuple[Hashable, ...], watch: Any, row_loss: RowLoss
) -> Scored:
    """Scores on the rows ``watch=(X, y, task)``, which are refused here, if at all."""
    if watch is None:
        return None
    X, y, task = watch
    rows, targets = models.rows(X), models.targets(y)
    columns = columns_of(column_by_text(labels), task, len(rows))

    def scored(now: Tensor) -> dict[str, float]:
        return replace(models, models=now).scored(row_loss, rows, targets, columns)

    scored(models.models)
    return scored


@dataclass(frozen=True, eq=False)
class AfterRound:
    """Called by the engine with what is shared and what the clients keep."""

    clients: FederatedClients
    budget: Budget | None
    run: str
    rounds: int
    scored: Scored
    checkpoint: Path | None
    every: int  # rounds between two checkpoints; there is one after the last
    saved: Checkpoint | None  # the checkpoint that the run began with
    lines: list[dict[str, float]] = field(default_factory=list)

    def __call__(self, shared: Message, kept: Tensor | None) -> None:
        """What was done before the checkpoint is not done again, but must agree with it."""
        number = int(shared["round"].value)
        if self.saved is not None and number <= self.saved.round:
            if number == self.saved.round:
                self.saved.require_following(shared)
            return
        if self.checkpoint is not None and (number == self.rounds or number % self.every == 0):
            models = self.clients.models if kept is None else kept
            write_checkpoint(self.checkpoint, Checkpoint.of(shared, models), self.run)
        if self.scored is not None:
            line = {"round": float(number)} | self.scored(self.clients.current(shared, kept))
            line["epsilon"] = epsilon_of(self.clients.plan, number, self.budget)
            self.lines.append(line)
