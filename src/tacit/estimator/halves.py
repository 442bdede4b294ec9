"""The two halves of a collaborative learner, and what may pass between them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np

from tacit.linear.batched import Problems
from tacit.linear.losses import FloatArray, Loss
from tacit.privacy.accounting import Cost, Event
from tacit.privacy.budget import Budget, Guarantee
from tacit.privacy.ledger import Ledger
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
class Home:
    """The tasks as they look at home: scaled as declared, a last column for the intercept."""

    problems: Problems
    loss: Loss
    declared_features: np.ndarray[Any, np.dtype[np.bool_]]  # (d,), by column
    declared_target: bool

    def select(self, tasks: Sequence[int]) -> Home:
        """These tasks only, in this order."""
        return replace(self, problems=self.problems.select(tasks))


@dataclass(frozen=True)
class Door:
    """What a run needs to release anything."""

    ledger: Ledger
    run: str
    labels: tuple[Hashable, ...]
    budgets: tuple[Budget | None, ...]  # per task; None: not charged, contributes zero
    shares: FloatArray  # (m,), each task's clip norm relative to the most generous budget
    mu: float  # what the most generous task spends, as μ-GDP; 0 in a pure run
    rng: np.random.Generator | None  # None: secure noise
    pure: Cost | None = None  # in a pure run: the ε and δ of the most generous task
    promise: Guarantee | None = None  # whom the run protects from whom; None: joint DP
    doubts: tuple[str, ...] = ()  # why nothing is proven
    family: str = ""
    at_home: Door | None = None  # of what tasks release to the curator, if he is not trusted either
    transcript: Transcript = field(default_factory=list)

    def open(self, plan: Sequence[Event]) -> None:
        """Declares the run on the ledger; BudgetExceeded before any noise is drawn."""
        self.ledger.open_run(
            self.run, self.labels, self.budgets, plan, shares=self.shares, **self.terms()
        )

    def terms(self) -> dict[str, Any]:
        """What every run through this door declares beside its budgets and its plan."""
        promised = {} if self.promise is None else {
            "unit": self.promise.unit, "adversary": self.promise.adversary
        }  # fmt: skip
        return promised | {
            "secure": self.rng is None,
            "doubts": self.doubts,
            "family": self.family,
        }

    @property
    def neighbours(self) -> Literal["replace", "zero-out"]:
        """The relation of all budgets of the run."""
        return next(budget.neighbours for budget in self.budgets if budget is not None)
