"""One more engine: the rounds of the in-process one, over partitions of the tasks.

The process that runs it has the door, the coordinator and every task by name, and nobody's rows. A
partition's tasks contribute where they are; there their rows are clipped, cut onto the grid and
added up in whole numbers, so that what arrives is the same bits for any division into partitions
and any number of workers (privacy/mechanisms/in_parts.py). The noise is drawn here, once. Before
the first answer each partition holds one of its tasks against the same task alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tacit.arrays import FloatArray
from tacit.cluster.workers import Workers
from tacit.engine import Coordinator, Facts, Message, Outcome, Participant, Progress, Step
from tacit.engine.other_mechanisms import OtherMechanisms
from tacit.engine.rounds import run_rounds
from tacit.engine.slices import Said, said, shares_of, whole
from tacit.estimator import Home, MultiTaskEstimator
from tacit.estimator.contract import facts_of
from tacit.linear.losses import loss_named
from tacit.privacy.mechanisms.in_parts import InParts
from tacit.privacy.planning import Door
from tacit.tasks import Schema, TaskSet


@dataclass(frozen=True)
class Learning:
    """What whoever has a partition needs to know: the learner, and everything public."""

    model: MultiTaskEstimator  # its parameters, and no ledger
    schema: Schema

    @classmethod
    def of(cls, model: MultiTaskEstimator, schema: Schema) -> Learning:
        """A ledger stays where the door is."""
        return cls(type(model)(**model.get_params(deep=False) | {"ledger": None}), schema)

    def home(self, tasks: TaskSet) -> Home:
        """The tasks as the learner sees them."""
        return self.model._home(tasks, self.schema, loss_named(self.model.loss))


@dataclass(frozen=True)
class Asked:
    """A step, as every partition is told of it."""

    learning: Learning
    facts: Facts
    step: Step
    shared: Message


def said_there(home: Home, asked: Asked, shares: FloatArray | None, before: Said | None) -> Said:
    """The sum of what the tasks of a partition contribute."""
    participant = asked.learning.model._participant(home, asked.facts)
    return said(participant, asked.step, asked.shared, shares, before)


@dataclass(frozen=True)
class AllPartitions:
    """The participant of all partitions together."""

    workers: Workers
    held: Sequence[Any]
    learning: Learning
    facts: Facts
    shares: Sequence[FloatArray | None]  # of the tasks of each

    def contribute(self, step: Step, shared: Message, state: Any) -> tuple[Any, Any]:
        """A ``Part``, the sum over all tasks; what they keep stays with them."""
        asked = Asked(self.learning, self.facts, step, shared)
        before = state or [None] * len(self.held)
        found = self.workers.each(said_there, self.held, asked, self.shares, before)
        return self.workers.reduced(whole, found), found

    def select(self, units: Sequence[int]) -> Participant:
        """Each partition has its own: nobody asks."""
        raise NotImplementedError


@dataclass(frozen=True)
class OverPartitions:
    """An engine with the duties of ``run_rounds``."""

    workers: Workers
    held: Sequence[Any]
    sizes: Sequence[int]  # how many tasks are in each, in the order of the labels
    learning: Learning
    home: Home = field(repr=False)  # of the learner, without anybody's rows

    def __call__(
        self,
        participant: Participant,
        coordinator: Coordinator,
        door: Door,
        *,
        progress: Progress = None,
    ) -> Outcome:
        """Runs all steps; what is shared after the last."""
        # Workers need to know how many tasks there are, and a million labels are long.
        facts = replace(facts_of(self.home, door), labels=range(len(door.labels)))
        shares = shares_of(door, self.sizes)
        there = AllPartitions(self.workers, self.held, self.learning, facts, shares)
        sums = OtherMechanisms(coordinator, InParts)
        outcome = run_rounds(there, sums, door, isolated=False, progress=progress)
        return replace(outcome, state=None, elsewhere=True)
