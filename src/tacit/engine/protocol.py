"""The two halves of a collaborative learner, and what may pass between them.

A ``Participant`` has private data and makes contributions of it; a ``Coordinator`` is made of
public facts and makes shared state of releases. Neither knows who runs them: an engine does, in one
process (rounds.py), by simulated arrivals (arrivals.py), or over a network. An engine of rounds

1. declares all steps at the door before anything is computed;
2. sends what is shared to the tasks, for every step, across an ``Edge`` that is not trusted;
3. takes a release that is on the ledger as it is: nobody contributes to it again;
4. else lets the units contribute, all of them or those whom secret coins of the trusted side chose,
   and releases the sum by ``step.given(shared)``, under the step's number;
5. lets the coordinator absorb what was released;
6. before its first release holds one unit's row against the same unit alone.

Without a door there is no privacy: the same halves run with mechanisms that add nothing, what
comes out is ``Unprotected``, and everybody is trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tacit.arrays import BoolArray
from tacit.linear.losses import Loss
from tacit.privacy.accounting import Cost
from tacit.privacy.budget import Neighbours
from tacit.privacy.release import Declared, Mechanism, Release


@dataclass(frozen=True)
class Unprotected:
    """A number computed from private data without a mechanism. It may not cross an edge."""

    value: Any


Released = Release | Unprotected
"""What became of contributions: through the door, or without one."""

Public = Mapping[str, Release | Declared]
"""What may be sent to anybody."""

Message = Mapping[str, Release | Declared | Unprotected]
"""What a learner shares; of a non-private twin it may hold unprotected numbers."""

Transcript = list[tuple[str, str, Message]]
"""Everything that crossed an untrusted edge: (sender, receiver, message), in order."""

Progress = Callable[[str, int, int], None] | None
"""Called with (step, done, of) after each release."""


def combined(function: Callable[..., Any], *parts: Release | Declared | Unprotected) -> Released:
    """function(value, value, ...): a Release, or Unprotected if one of the parts is.

    >>> combined(lambda a, b: a + b, Unprotected(1), Declared(2))
    Unprotected(value=3)
    """
    safe = [part for part in parts if not isinstance(part, Unprotected)]
    if len(safe) < len(parts):
        return Unprotected(function(*(part.value for part in parts)))
    return Release.combine(function, *safe)


@dataclass(frozen=True)
class Step:
    """One release of a run, fixed before it starts."""

    name: str
    mechanism: Mechanism
    at_home: Mechanism | None = None  # noise of each task's own, before the curator sees anything

    def given(self, shared: Message) -> Mechanism:
        """The mechanism, where it follows from what was shared: its event is the planned one, and
        the ledger refuses any other."""
        return self.mechanism


class Contributions(Protocol):
    """One row for each unit that takes part: an array, or whatever the mechanism knows to sum."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: int, /) -> Any:
        """One unit's row, as an array."""


class Participant(Protocol):
    """Private data in, contribution out; on a batch of tasks at once. No I/O, no clock.

    A row is, bit for bit, a function of that unit's data and what is shared: the same alone, and in
    any batch and order.
    """

    def contribute(self, step: Step, shared: Message, state: Any) -> tuple[Contributions, Any]:
        """One row for each unit (a task) that takes part, and the participant's own state for its
        next step; it is None before the first."""

    def select(self, units: Sequence[int]) -> Participant:
        """The participant of these units alone, in this order; where coins decide who takes part:
        of these among them."""


class Coordinator(Protocol):
    """Releases in, shared state out. No I/O, no clock, no private data.

    One that serves its non-private twin too takes, and then gives, unprotected numbers.
    """

    @property
    def steps(self) -> tuple[Step, ...]:
        """All releases of the run, in order."""

    def start(self) -> Message:
        """The shared state before the first release: declared constants."""

    def absorb(self, step: Step, shared: Public, release: Release, /) -> Message:
        """The shared state after one more release."""


@dataclass(frozen=True)
class Facts:
    """Everything public about a run before it starts: all that a coordinator is made of."""

    labels: Sequence[Hashable]
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
    """What a run shared, everything that crossed an untrusted edge on the way, and what the
    participant kept for itself."""

    shared: Message
    transcript: Transcript = field(default_factory=list)
    state: Any = None
    elsewhere: bool = False  # whether the rows are, so that models are made there
