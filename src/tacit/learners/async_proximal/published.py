"""Algorithm 1's second noise, which the door adds: claimed per message, and not private."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np

from tacit.linear.losses import FloatArray
from tacit.privacy.accounting import Pure
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms.clipping import as_rows, check_positive
from tacit.privacy.mechanisms.grid import snapped
from tacit.privacy.noise import knorm, system_generator

UNSOUND = (
    "as published: q was never privatised, so the sensitivity is not one step's; "
    "the single-task start has no noise; the total is the sum of what is claimed per message"
)


@dataclass(frozen=True)
class PublishedNoise:
    """Algorithm 1, line 13: the gradient plus z₂ of density ∝ exp(−ε₂‖z‖/S₂), S₂ = 2C₁C₂/n.

    It clips nothing; the event is what Theorem 3.5 claims for one message, ε₁ + ε₂.

    >>> PublishedNoise(sensitivity=0.1, epsilon_1=0.1, epsilon_2=0.2).event("replace")
    Pure(epsilon=0.30000000000000004)
    """

    sensitivity: float  # S₂
    epsilon_1: float
    epsilon_2: float
    pure: ClassVar[bool] = True
    proven: ClassVar[bool] = False
    reason: ClassVar[str] = UNSOUND

    def __post_init__(self) -> None:
        check_positive("sensitivity", self.sensitivity)
        check_positive("epsilon_1", self.epsilon_1)
        check_positive("epsilon_2", self.epsilon_2)

    def event(self, neighbours: Neighbours) -> Pure:
        """What is claimed."""
        return Pure(self.epsilon_1 + self.epsilon_2)

    def release(
        self,
        contributions: FloatArray,
        rng: np.random.Generator | None,
        shares: FloatArray | None = None,
    ) -> FloatArray:
        """The one row plus z₂."""
        (row,) = as_rows(contributions, vectors=True)
        scale = self.sensitivity / self.epsilon_2
        return snapped(row + scale * knorm(len(row), rng or system_generator()), scale)

    def secure(self, rng: np.random.Generator | None) -> bool:
        """Never: floating-point noise."""
        return False

    def values(self, shape: tuple[int, ...]) -> int:
        """Noise values of one release: a direction and a radius."""
        return shape[-1] + 1

    def to_dict(self) -> dict[str, object]:
        """Name and parameters."""
        return {"name": type(self).__name__} | asdict(self)
