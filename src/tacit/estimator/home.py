"""The tasks as they look at home."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tacit.arrays import BoolArray
from tacit.linear.batched import Problems
from tacit.linear.losses import Loss


@dataclass(frozen=True)
class Home:
    """Private rows, scaled as declared, with a last column for the intercept."""

    problems: Problems
    loss: Loss
    declared_features: BoolArray  # (d,), by column
    declared_target: bool

    def select(self, tasks: Sequence[int]) -> Home:
        """These tasks only, in this order."""
        return replace(self, problems=self.problems.select(tasks))
