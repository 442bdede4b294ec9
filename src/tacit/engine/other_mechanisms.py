"""A learner's own plan, whose releases are made by others' hands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tacit.engine.protocol import Coordinator, Message, Public, Step
from tacit.privacy.release import Release


@dataclass(frozen=True)
class OtherMechanisms:
    """The same coordinator; each step is released by another mechanism of the same event."""

    of: Coordinator
    by: Callable[[Any], Any]  # of a step's own mechanism

    @property
    def steps(self) -> tuple[Step, ...]:
        """With the same events."""
        return tuple(replace(step, mechanism=self.by(step.mechanism)) for step in self.of.steps)

    def start(self) -> Message:
        """As it is."""
        return self.of.start()

    def absorb(self, step: Step, shared: Public, release: Release, /) -> Message:
        """By the step as the learner planned it."""
        return self.of.absorb(self.of.steps[self.steps.index(step)], shared, release)
