"""The two halves of a collaborative learner, and what may pass between them.

A ``Participant`` has private data and makes contributions of it; a ``Coordinator`` is made of
``Facts`` and makes shared state of releases. Neither knows who runs them: an engine does, in one
process (rounds.py), by simulated arrivals (arrivals.py), or over a network.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tacit.arrays import BoolArray, FloatArray
from tacit.linear.losses import Loss
from tacit.privacy.accounting import Cost
from tacit.privacy.budget import Neighbours
from tacit.privacy.release import Declared, Mechanism, Release


@dataclass(frozen=True)
class Unprotected:
    """A number computed from private data without a mechanism. It may not cross an edge."""

    value: Any


Public = Mapping[str, Release | Declared]
"""What may be sent to anybody."""

Message = Mapping[str, Release | Declared | Unprotected]
"""What a learner shares; of a non-private twin it may hold unprotected numbers."""

Transcript = list[tuple[str, str, Message]]
"""Everything that crossed an untrusted edge: (sender, receiver, message), in order."""

Progress = Callable[[str, int, int], None] | None
"""Called with (step, done, of) after each release."""


@dataclass(frozen=True)
class Step:
    """One release of a run, fixed before it starts."""

    name: str
    mechanism: Mechanism
    at_home: Mechanism | None = None  # noise of each task's own, before the curator sees anything


class Participant(Protocol):
    """Private data in, contribution out; on a batch of tasks at once. No I/O, no clock.

    A row is, bit for bit, a function of that unit's data and what is shared: the same alone, and in
    any batch and order.
    """

    def contribute(self, step: Step, shared: Message, state: Any) -> tuple[FloatArray, Any]:
        """One row per unit (a task), and the participant's state for its next step."""

    def select(self, units: Sequence[int]) -> Participant:
        """The participant of these units alone, in this order."""


class Coordinator(Protocol):
    """Releases in, shared state out. No I/O, no clock, no private data."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """All releases of the run, in order."""

    def start(self) -> Public:
        """The shared state before the first release: declared constants."""

    def absorb(self, step: Step, shared: Public, release: Release) -> Public:
        """The shared state after one more release."""


@dataclass(frozen=True)
class Facts:
    """Everything public about a run before it starts: all that a coordinator is made of."""

    labels: tuple[Hashable, ...]
    width: int  # D, the columns of a model with its intercept
    loss: Loss
    declared_features: BoolArray  # (d,), by column
    declared_target: bool
    neighbours: Neighbours
    mu: float  # what the most generous task spends, as μ-GDP; 0 in a pure run
    pure: Cost | None = None  # in a pure run: the ε and δ of the most generous task

    @property
    def n_tasks(self) -> int:
        """m."""
        return len(self.labels)


@dataclass(frozen=True)
class Outcome:
    """What a run shared, and everything that crossed an untrusted edge on the way."""

    shared: Message
    transcript: Transcript = field(default_factory=list)
