"""SharedPrior, ours: one Gaussian prior of all task models, its mean and covariance released with
noise; Bayes at home."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np

from tacit.arrays import FloatArray
from tacit.engine import Facts, Message, Progress, Unprotected
from tacit.errors import InvalidInput
from tacit.estimator import Home, PrivateLearner, learner
from tacit.estimator.open_scale import in_shared_units, units_of
from tacit.learners.shared_prior.apart import APART, NothingShared, must_stay_apart
from tacit.learners.shared_prior.curator import Curator
from tacit.learners.shared_prior.lessons import values_of
from tacit.learners.shared_prior.participant import Tasks
from tacit.learners.shared_prior.posterior_mixture import Priors
from tacit.linear.losses import Loss, loss_named
from tacit.linear.problems import Problems, of_each_chunk
from tacit.linear.single_task_fits import best_alone
from tacit.linear.threads import isolated, one_blas_thread
from tacit.parameters import require_parameters
from tacit.privacy.mechanisms.products import WithGaussianNoise
from tacit.privacy.planning import UNIT
from tacit.silos.silo_learner import InsideSilos
from tacit.tasks import Schema, TaskSet

__all__ = ["Curator", "SharedPrior", "Tasks"]


@learner
class BetweenTasks(PrivateLearner):
    """``unit="task"``: a whole task is protected from all others, and a curator is trusted.

    ``device``: where tasks compute: "cpu" (numpy), or "cuda", "cuda:1", ... (PyTorch; "torch-cpu"
    is its CPU, to try it). What is released, and what is promised, is the same."""

    device: str = "cpu"

    _device = None  # while a fit lasts (on_device.py)

    @property
    def _takes_several(self) -> bool:
        return True

    def fit_tasks(self, tasks: TaskSet, schema: Schema, *, progress: Progress = None) -> Self:
        """As of any learner; on a device its memory is given back at the end."""
        self._device = None if self.device == "cpu" else self._found_device(tasks, schema)
        try:
            super().fit_tasks(tasks, schema, progress=progress)
        finally:
            if self._device is not None:
                self._device.close()
            self._device = None
        return self

    def _found_device(self, tasks: TaskSet, schema: Schema) -> Any:
        from tacit.learners.shared_prior.on_device import Device, device_named

        require_parameters(self)
        refused = {
            "is for the squared loss": loss_named(self.loss).targets_are_classes,
            "is for unit='task'": self._unit().unit != UNIT.unit,
            "takes one target": tasks.y.ndim > 1,
            "takes no private ranges: declare the ranges": schema.open_columns.any(),
            "is for tasks of this process": self._engine is not None,
        }
        for why, holds in refused.items():
            if holds:
                raise InvalidInput(f"device={self.device!r} {why}, or use device='cpu'")
        return Device(device_named(self.device), tasks.n_tasks, tasks.n_features + 1)

    def _doubts(self, schema: Schema) -> list[str]:
        found = "" if self._device is None else self._device.doubt()
        return [*super()._doubts(schema), *([found] if found else [])]

    def _open(self, home: Home) -> Message:
        return open_prior(home, self._tasks(home, home.problems.n_tasks))

    def _coordinator(self, facts: Facts) -> Curator | NothingShared:
        return NothingShared() if must_stay_apart(facts) else Curator.planned(facts)

    def _participant(self, home: Home, facts: Facts) -> Tasks:
        return self._tasks(home, facts.n_tasks)

    def _look_at(self, home: Home) -> None:
        super()._look_at(home)
        home.weighed  # noqa: B018  # it stays with them

    def _tasks(self, home: Home, n_tasks: int) -> Tasks:
        if self._device is None:
            self._look_at(home)  # before anything leaves; it stays with home
            return Tasks(home, n_tasks)
        found: Tasks = self._device.tasks(home, n_tasks)
        return found

    def _at_home(self, home: Home, shared: Message) -> FloatArray:
        if not is_shared(shared):
            return self._allowed(best_alone(home.problems, home.loss))
        if self._device is None:
            return self._allowed(made_at_home(home, shared))
        with self._device.computing():
            made: Any = made_at_home(home, shared, problems=self._device.moments_of(home))
        return self._allowed(made if isinstance(made, np.ndarray) else made.host())

    def _spreads(self, home: Home, shared: Message) -> FloatArray:
        if not (is_shared(shared) and home.loss.quadratic):
            return super()._spreads(home, shared)
        return made_at_home(home, shared, Priors.spreads_at_home)

    def _shared_model(self, shared: Message) -> FloatArray:
        if APART in shared:
            return np.zeros(len(self._schema.feature_names_out) + 1)
        values = values_of(shared)
        target, features = float(values["target_scale"]), values["feature_scale"]
        units = units_of(loss_named(self.loss), target, features)
        return self._allowed(np.asarray(values["means"][0] * units))

    def _allowed(self, models: FloatArray) -> FloatArray:
        """Without the intercept that noise gave to the shared mean, where there is to be none."""
        last = np.arange(models.shape[-1]) == models.shape[-1] - 1
        return models if self.fit_intercept else np.where(last, 0.0, models)


@learner
class SharedPrior(InsideSilos, BetweenTasks):
    """One linear model per task under a prior that all share, as far as it helps.

    A whole task is protected from the others, or with ``unit="example"`` every person inside a
    task, a silo, from everybody outside it (tacit.silos).

    Parameters
    ----------
    loss: "squared" for numbers, "logistic" for classes.
    budget: the most that this fit may reveal; of each task, ``{label: Budget(...)}``; None: no
        privacy.
    ranges: what is publicly known of columns, ``{"age": (4, 19), "sex": ["f", "m"]}``, and of
        "target"; a ``Column`` also says what a missing value means. "private": the run finds them,
        at a part of its budget; "from-data": measured, and nothing is proven.
    fit_intercept: whether models have a constant.
    ledger: a Ledger, or a file, where fits add up; None: in memory, shared with clones.
    noise: "secure", of the system's randomness, or "simulated", repeatable, and nothing is proven.
    run: a name, by which an interrupted fit on the same ledger goes on; None: a new one.
    random_state: of simulated noise.
    device: "cpu", or "cuda" for the tasks' half (needs PyTorch).
    unit: "task", or "example": every person inside a task.
    people: with unit="example", how many each task has, where its rows are not here.
    silos_per_person: with unit="example", the most tasks that one person has rows in.

    >>> from tacit.datasets import related_tasks
    >>> from tacit.privacy.budget import Budget
    >>> data = related_tasks(60, rng=np.random.default_rng(0))
    >>> model = SharedPrior(budget=Budget(2.0), ranges=data.ranges, noise="simulated",
    ...                     random_state=0).fit(data.X, data.y, task=data.task)
    >>> model.coef_.shape
    (10, 60)
    """


Making = Callable[[Priors, Problems, Loss], FloatArray]
"""What each task makes of a prior and its rows: numbers of its columns, the intercept's or not."""


def is_shared(shared: Message) -> bool:
    """Whether tasks have anything of each other: not where no common scale is known."""
    return APART not in shared and not bool(shared["own_units"].value)


@isolated()
def made_at_home(
    home: Home, shared: Message, make: Making = Priors.at_home, problems: Any = None
) -> FloatArray:
    """(m, D): each task's mixture, or what else it is to make. ``problems``: those of home, on a
    device."""
    values = values_of(shared)
    priors = Priors.of(values).worth_trying()
    target, features = float(values["target_scale"]), values["feature_scale"]
    if problems is None:
        scaled = in_shared_units(home.weighed, target, features)
    else:
        scaled = problems.scaled(target, features)
    found = of_each_chunk(scaled, lambda problems: make(priors, problems, home.loss))
    return found * units_of(home.loss, target, features)[: found.shape[1]]


# --- the non-private twin ------------------------------------------------------------------------

UNLIMITED = 1e9
"""μ at which the twin is planned: nothing is added to its sums."""


@one_blas_thread()  # all along: to limit it anew in each step would take longer than small steps do
def open_prior(home: Home, tasks: Tasks) -> Message:
    """The same steps, summed exactly."""
    labels, width = tuple(range(home.problems.n_tasks)), home.problems.X.shape[1]
    declared = home.declared_features, home.declared_target
    facts = Facts(labels, width, home.loss, *declared, neighbours="replace", mu=UNLIMITED)
    coordinator = Curator.planned(facts)
    shared: Message = coordinator.start()
    state = None
    for step in coordinator.steps:
        assert isinstance(step.mechanism, WithGaussianNoise)
        rows, state = tasks.contribute(step, shared, state)
        statistic = step.mechanism.statistic
        total = statistic.total(*statistic.checked(rows, None))
        found = coordinator.after(step, values_of(shared), total, 0.0)
        opened = {name: Unprotected(value) for name, value in found.items()}
        shared = {**coordinator.needed(step, shared), **opened}
    return shared
