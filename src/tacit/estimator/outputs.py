"""Several models for every task, one for each target or class: learned side by side, in one run.

Each of the k outputs is learned by both halves of the learner as if it were the only one, at μ/√k.
What a task says of all of them in one step is one contribution, and one release: its blocks have
the noise of μ/√k each, and together, as one unit changes all of them at once, exactly the μ that
the step may spend (docs/several_targets.md). What is shared has one more axis, of length k, first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit.arrays import FloatArray
from tacit.engine import Coordinator, Facts, Message, Participant, Public, Step
from tacit.engine.protocol import combined
from tacit.errors import InvalidInput
from tacit.estimator.home import Home
from tacit.estimator.private_bounds import without_bounds
from tacit.privacy.mechanisms import SideBySide
from tacit.privacy.release import Declared, Release
from tacit.tasks import Schema
from tacit.tasks.labels import Classes, listed


def of_output(shared: Mapping[str, Any], k: int) -> Message:
    """What is shared about output k; ranges of columns are of no output.

    >>> of_output({"mean": Declared(np.array([[1.0], [2.0]]))}, 1)["mean"].value
    array([2.])
    """
    return {name: _block(part, k) for name, part in without_bounds(shared).items()}


def _block(part: Any, k: int) -> Any:
    if isinstance(part, Declared):
        return Declared(np.asarray(part.value)[k])
    return combined(lambda value: np.asarray(value)[k], part)


def stacked(messages: Sequence[Message]) -> Message:
    """Its inverse: one message of those about each output, which have the same names."""
    return {name: _stack([each[name] for each in messages]) for name in messages[0]}


def _stack(parts: Sequence[Any]) -> Any:
    if all(isinstance(part, Declared) for part in parts):
        return Declared(np.stack([np.asarray(part.value) for part in parts]))
    return combined(lambda *values: np.stack(values), *parts)


@dataclass(frozen=True)
class JointStep(Step):
    """A step of all outputs at once; ``part`` is that of one."""

    part: Step | None = None

    @classmethod
    def of(cls, part: Step, count: int) -> JointStep:
        """So many of the same."""
        if part.at_home is not None:
            raise InvalidInput(f"{part.name}: noise at home is added for one output at a time")
        return cls(part.name, SideBySide.of(part.mechanism, count), part=part)


@dataclass(frozen=True)
class JointCoordinator:
    """The coordinator of one output, as often as there are outputs."""

    one: Coordinator
    count: int

    @property
    def steps(self) -> tuple[JointStep, ...]:
        """All releases of the run, in order."""
        return tuple(JointStep.of(step, self.count) for step in self.one.steps)

    def start(self) -> Message:
        """Declared constants, the same for all."""
        return stacked([self.one.start()] * self.count)

    def absorb(self, step: Step, shared: Public, release: Release) -> Message:
        """What each output's block teaches."""
        part, parts = _part(step), range(self.count)
        told: Any = [(of_output(shared, k), _block(release, k)) for k in parts]
        return stacked([self.one.absorb(part, *each) for each in told])


@dataclass(frozen=True)
class JointTasks:
    """The participants of all outputs, of the same tasks."""

    each: tuple[Participant, ...]

    def select(self, units: Sequence[int]) -> JointTasks:
        """These tasks only, in this order."""
        return JointTasks(tuple(one.select(units) for one in self.each))

    def contribute(self, step: Step, shared: Message, state: Any) -> tuple[FloatArray, Any]:
        """(m, k, ...): what each task says of each output."""
        part, states = _part(step), state or (None,) * len(self.each)
        said = [
            one.contribute(part, of_output(shared, k), kept)
            for k, (one, kept) in enumerate(zip(self.each, states, strict=True))
        ]
        return np.stack([np.asarray(rows) for rows, _ in said], axis=1), tuple(s for _, s in said)


def _part(step: Step) -> Step:
    assert isinstance(step, JointStep)
    assert step.part is not None
    return step.part


def jointly(
    participant: Callable[[Home, Facts], Participant],
    coordinator: Callable[[Facts], Coordinator],
    count: int,
) -> tuple[Callable[[Home, Facts], Participant], Callable[[Facts], Coordinator]]:
    """Both halves of a learner of one output, made those of so many."""

    def tasks(home: Home, facts: Facts) -> Participant:
        return JointTasks(tuple(participant(h, _of_each(facts, count)) for h in home.outputs()))

    return tasks, lambda facts: JointCoordinator(coordinator(_of_each(facts, count)), count)


def _of_each(facts: Facts, count: int) -> Facts:
    """k outputs at μ/√k together reveal μ."""
    if facts.pure is not None:
        raise InvalidInput(
            "several outputs are released with Gaussian noise, which needs delta > 0"
        )
    return replace(facts, mu=facts.mu / math.sqrt(count))


def opened(one: Callable[[Home], Message], home: Home) -> Message:
    """What is shared without a budget, of each output by itself."""
    return one(home) if home.n_outputs == 1 else stacked([one(each) for each in home.outputs()])


def solved(one: Callable[[Home, Message], FloatArray], home: Home, shared: Message) -> FloatArray:
    """(m, d + 1), or (m, k, d + 1): the models that ``one`` makes for each output."""
    if home.n_outputs == 1:
        return one(home, shared)
    found = [one(each, of_output(shared, k)) for k, each in enumerate(home.outputs())]
    return np.stack(found, axis=1)


def shared_models(one: Callable[[Message], FloatArray], shared: Message, count: int) -> FloatArray:
    """(d + 1,), or (k, d + 1): the shared model of each output."""
    if count == 1:
        return one(shared)
    return np.stack([one(of_output(shared, k)) for k in range(count)])


def unscaled(schema: Schema, models: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Models (m, d + 1) in scaled units as coef (d, m) and intercept (m,) in units of X and y; of
    several outputs (m, k, d + 1) as (d, m, k) and (m, k)."""
    if models.ndim == 2:
        coef, intercept = schema.unscale(models[:, :-1].T, models[:, -1])
        return coef, np.atleast_1d(intercept)
    each = [schema.of_output(k) for k in range(models.shape[1])]
    found = [one.unscale(models[:, k, :-1].T, models[:, k, -1]) for k, one in enumerate(each)]
    return np.stack([c for c, _ in found], axis=-1), np.stack([b for _, b in found], axis=-1)


def require_one_output(home: Home, classes: Classes | None) -> None:
    """Refuse several targets, or more than two classes, where a task has one model."""
    if home.n_outputs == 1:
        return
    if classes is not None:
        raise InvalidInput(
            "Only binary classification is supported. The type of the target is multiclass, "
            f"{len(classes)} classes: {listed(classes)}; SharedPrior in one process takes more, "
            "and so does neural.FederatedMTL"
        )
    raise InvalidInput(
        f"y has {home.n_outputs} targets; SharedPrior in one process takes several, and here each "
        "is fitted by itself"
    )
