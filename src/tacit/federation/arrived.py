"""A release whose noise was drawn elsewhere, as the ledger of whoever receives it knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.arrays import Array
from tacit.privacy.accounting import Event
from tacit.privacy.budget import Neighbours
from tacit.privacy.release import Mechanism


@dataclass(frozen=True)
class Arrived:
    """The same event on the record, and the value as it came: nothing is drawn here."""

    of: Mechanism

    def event(self, neighbours: Neighbours) -> Event:
        """That of the mechanism which drew it."""
        return self.of.event(neighbours)

    def release(self, contributions: Any, rng: Any, shares: Any = None) -> Array:
        """What came."""
        return np.asarray(contributions)

    def secure(self, rng: Any) -> bool:
        """As the mechanism says of itself."""
        return self.of.secure(rng)

    def to_dict(self) -> dict[str, object]:
        """The mechanism's."""
        return self.of.to_dict()
