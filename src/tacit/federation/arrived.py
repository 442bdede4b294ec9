"""A release whose noise was drawn elsewhere, as the ledger of whoever receives it knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tacit.arrays import Array
from tacit.privacy.mechanisms.wrapping import Wrapping
from tacit.privacy.release import Mechanism


@dataclass(frozen=True)
class Arrived(Wrapping[Mechanism]):
    """The same event on the record, and the value as it came: nothing is drawn here."""

    takes_rows: ClassVar = False

    def release(self, contributions: Any, rng: Any, shares: Any = None) -> Array:
        """What came."""
        return np.asarray(contributions)
