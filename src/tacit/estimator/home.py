"""The tasks as they look at home."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

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
    open_columns: BoolArray = field(  # (d + 1,), the target last; or (0,): all have a scale
        default_factory=lambda: np.zeros(0, dtype=bool), kw_only=True
    )

    def select(self, tasks: Sequence[int]) -> Home:
        """These tasks only, in this order."""
        return replace(self, problems=self.problems.select(tasks))
