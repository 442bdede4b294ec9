"""A mechanism around another one: the same but for what a subclass says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tacit.arrays import Array
from tacit.privacy.accounting import Event
from tacit.privacy.budget import Neighbours
from tacit.privacy.noise import Rng
from tacit.privacy.release import Mechanism

Inner = TypeVar("Inner", bound=Mechanism)


@dataclass(frozen=True)
class Wrapping(Generic[Inner]):
    """On the record, too, it is the mechanism that it is around."""

    of: Inner

    def event(self, neighbours: Neighbours) -> Event:
        """The mechanism's."""
        return self.of.event(neighbours)

    def release(self, contributions: Any, rng: Rng, shares: Any = None) -> Array:
        """The mechanism's."""
        return self.of.release(contributions, rng, shares)

    def secure(self, rng: Rng) -> bool:
        """As the mechanism says of itself."""
        return self.of.secure(rng)

    def to_dict(self) -> dict[str, object]:
        """The mechanism's."""
        return self.of.to_dict()
