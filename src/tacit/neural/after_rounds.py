"""What the trusted side does after each round: a checkpoint, and a look at rows that it watches;
and what it says after the last."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from tacit.engine import Message, Progress
from tacit.errors import NoiseWarning
from tacit.estimator.fitted import column_by_text, columns_of
from tacit.estimator.progress import on_terminal
from tacit.neural.checkpoint import Checkpoint, write_checkpoint
from tacit.neural.client_choice import WAYS
from tacit.neural.client_training import RowLoss
from tacit.neural.personal import PersonalModels
from tacit.neural.pmtl import FederatedClients
from tacit.neural.round_costs import epsilon_of
from tacit.privacy.budget import Budget

DIVERGED = 1e6
"""Larger than a parameter of rows of order one ever is."""

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


def warn_of_divergence(shared: Message) -> None:
    """NoiseWarning if the centres, which follow from the releases, are far from any network's."""
    largest = float(np.abs(shared["centres"].value).max())
    if not largest <= DIVERGED:
        warnings.warn(
            f"the run diverged: a parameter that is shared is {largest:.1e}, and helps nobody; a "
            "smaller pull or rate, more budget or, as printed, as_published=False would help",
            NoiseWarning,
            stacklevel=3,
        )


def say(home: Mapping[str, float], progress: Progress) -> None:
    """On a terminal that was shown the rounds: what joining brought, which is the trusted side's
    own view."""
    if home and progress is on_terminal:
        sys.stderr.write(in_words(home) + "\n")
        sys.stderr.flush()


def in_words(home: Mapping[str, float]) -> str:
    """What clients took home (``private_home_``), and what that brought on rows held out.

    >>> in_words({"own": 8, "shared": 50, "open": 2, "own_errors": 0.46, "taken_errors": 0.2})
    '52 of 60 clients take home what was shared; of rows held out .200 are wrong, alone .460'
    >>> in_words({"own": 60, "shared": 0, "open": 0})
    'all 60 clients take home models of their own'
    """
    joined = sum(round(home.get(way, 0)) for way in WAYS if way != "own")
    clients = joined + round(home["own"])
    if not joined:
        return f"all {clients} clients take home models of their own"
    said = f"{joined} of {clients} clients take home what was shared"
    for name, what in (("errors", "of rows held out {} are wrong"), ("loss", "loss held out {}")):
        own, taken = (home.get(f"{whose}_{name}", float("nan")) for whose in ("own", "taken"))
        if own == own and taken == taken:  # numbers know no errors
            shares = [f"{share:.3f}".removeprefix("0") for share in (taken, own)]
            return f"{said}; {what.format(shares[0])}, alone {shares[1]}"
    return f"{said}"
