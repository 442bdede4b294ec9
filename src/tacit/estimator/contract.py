"""The estimator contract: what every learner has, whatever it shares.

A learner is a class with parameters (scikit-learn's contract), and a few functions:

``_coordinator``    of public facts: which releases, and what is shared after each
``_participant``    of private rows: what each task contributes to a release
``_open``           what is shared without a budget: the non-private twin
``_at_home``        what one task makes of it: a model per task, free of charge
``_shared_model``   the model for a task that nobody knows

The contract hands both halves to an engine. Fitting, prediction, joining later, exporting and
saving are the same for all of them, here.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import column_or_1d

from tacit.engine import Coordinator, Facts, Message, Outcome, Participant, Progress, run_rounds
from tacit.engine.slices import run_in_slices
from tacit.errors import InvalidInput
from tacit.estimator.fitted import has_classes
from tacit.estimator.home import Home, require_moderate
from tacit.estimator.outputs import (
    jointly,
    opened,
    require_one_output,
    solved,
)
from tacit.estimator.prediction import Predicting
from tacit.estimator.private_bounds import BOUNDS, bounded, open_bounds, with_bounds
from tacit.estimator.progress import Asked, shown
from tacit.linear.losses import LossName, loss_named
from tacit.linear.threads import isolated
from tacit.parameters import Seed, learner, require_parameters
from tacit.privacy.budget import Budget, Guarantee
from tacit.privacy.ledger import Ledger
from tacit.privacy.planning import UNIT, Door, history, open_door, stated
from tacit.tasks import (
    Column,
    Schema,
    TaskSet,
    as_schema,
    column_names,
)
from tacit.tasks.tables import has_names, require_labels, rows_and_labels
from tacit.tasks.targets import is_conventional


@learner
class MultiTaskEstimator(Predicting):
    """One linear model per task. Learners add what is shared and how it is used at home."""

    loss: LossName = field(default="squared", kw_only=False)
    ranges: Mapping[Any, Any] | Literal["private", "from-data"] | None = None  # see tacit.tasks
    fit_intercept: bool = True

    @property
    def _engines(self) -> Literal["rounds", "arrivals", "silos"] | None:
        """Which engines can run its halves; None: with these parameters none but its own."""
        return "rounds"

    @property
    def _adds_up(self) -> bool:
        """Whether tasks may contribute apart from each other, and their parts be added up."""
        return self._engines == "rounds" and not getattr(self, "as_published", False)

    @property
    def _places_matter(self) -> bool:
        """Whether a task at home asks where it stands among all tasks."""
        return False

    # --- what a learner provides ---------------------------------------------------------------

    def _open(self, home: Home) -> Message:
        """What is shared without a budget: from all tasks at once, and unprotected."""
        raise NotImplementedError

    def _coordinator(self, facts: Facts) -> Coordinator:
        """The half that is given no data."""
        raise NotImplementedError

    def _participant(self, home: Home, facts: Facts) -> Participant:
        """The half that is at home with the tasks."""
        raise NotImplementedError

    def _check(self) -> None:
        """Refuses parameters that mean nothing together; each by itself is as it was declared."""

    def _unit(self) -> Guarantee:
        """Who is protected from whom, before anything is known about the run."""
        return self._promise

    def _is_pure(self) -> bool:
        """Whether all releases are pure: then ε is planned instead of μ, and δ may be 0."""
        return False

    def _accountant(self) -> str:
        """How the run's releases are added up, in words."""
        return "exact Gaussian DP"

    def _claimed_only(self) -> str:
        """Why ε is no more than a paper's claim; or "" where it is proven."""
        return ""

    # --- fitting -------------------------------------------------------------------------------

    def fit(
        self, X: Any, y: Any, task: Any = None, *, progress: Asked = None
    ) -> MultiTaskEstimator:
        """Learns from all tasks. ``task`` labels the rows, or names the column of a frame that
        does; None: all rows are one task. ``progress`` is told (step, done, of) after each release;
        None: a terminal shows it; False: nobody is told."""
        X, task = rows_and_labels(X, task)
        require_labels(task)
        schema, tasks = self._declare(X, y, task)
        self.fit_tasks(tasks, schema, progress=shown(progress))
        if has_names(X):
            self.feature_names_in_ = np.asarray(schema.feature_names, dtype=object)
        return self

    def fit_tasks(
        self, tasks: TaskSet, schema: Schema, *, progress: Progress = None
    ) -> MultiTaskEstimator:
        """As fit, from tasks that were already read and scaled by ``schema``."""
        require_parameters(self)
        self._require_own_ledger()
        self._check()
        require_moderate(tasks, schema)
        if tasks.classes is not None:
            self.classes_ = np.asarray(tasks.classes)
        self.n_features_in_ = len(schema.feature_names)
        home = self._home(tasks, schema, loss_named(self.loss))
        if not self._takes_several or self._engine is not None:
            require_one_output(home, tasks.classes)
        door = self._door(tasks.labels, schema)
        outcome = self._twin(home) if door is None else self._run(home, door, progress)
        if home.open_columns.any():
            bounds = np.asarray(outcome.shared[BOUNDS].value)
            home, schema = bounded(home, bounds), schema.bounded(bounds)
        self._remember(schema, tasks, outcome, door)
        if outcome.elsewhere:
            self._set_models(np.zeros((0, *home.problems.X.shape[1:])), ())
            return self
        with isolated():  # nothing in the data stops a run, or warns, after its releases
            self._set_models(solved(self._at_home, home, outcome.shared), tasks.labels)
        return self

    def _twin(self, home: Home) -> Outcome:
        """Without a budget."""
        if not home.open_columns.any():
            return Outcome(opened(self._open, home))
        found = open_bounds(home)
        return Outcome({**opened(self._open, bounded(home, found.value)), BOUNDS: found})

    def _run(self, home: Home, door: Door, progress: Progress) -> Outcome:
        """Both halves, by the engine of this process or by another."""
        facts = facts_of(home, door)
        participant: Any = self._participant
        coordinator: Any = self._coordinator
        if home.n_outputs > 1:
            participant, coordinator = jointly(participant, coordinator, home.n_outputs)
        if home.open_columns.any():
            halves = with_bounds(home, facts, participant, coordinator)
        else:
            halves = participant(home, facts), coordinator(facts)
        engine = self._engine or (run_in_slices if self._adds_up else run_rounds)
        return engine(*halves, door, progress=progress)

    def _declare(self, X: Any, y: Any, task: Any) -> tuple[Schema, TaskSet]:
        """The declarations, and the tasks scaled by them."""
        require_parameters(self)
        if y is None:
            raise InvalidInput("fit requires y to be passed, but the target y is None")
        if getattr(y, "ndim", 1) == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=not self._takes_several)
        schema = as_schema(self.ranges, column_names(X), X, y)
        classes = None
        if loss_named(self.loss).targets_are_classes:
            if schema.target.is_open:
                schema = replace(schema, target=Column())
            classes = schema.classes or "from-data"
        return schema, TaskSet.from_arrays(X, y, task, classes=classes, schema=schema)

    def _door(self, labels: tuple[Hashable, ...], schema: Schema) -> Door | None:
        """Where its releases go; None: there are none."""
        return None

    def _part(self, run: str, number: int) -> str:
        """The name under which the ledger knows task ``number``'s part of the run."""
        return run

    def _remember(
        self, schema: Schema, tasks: TaskSet, outcome: Outcome, door: Door | None
    ) -> None:
        self._schema = schema
        self.shared_ = outcome.shared
        self.tasks_ = self._charged = tasks.labels
        self._certificate = None
        self.ledger_ = None if door is None else door.ledger
        self.run_ = None if door is None else door.run
        self.transcript_ = outcome.transcript
        self.guarantee_ = self._guarantee(door)
        self.history_ = [] if door is None else history(door)

    def _guarantee(self, door: Door | None) -> Guarantee:
        """What this run, with all others recorded for these tasks, reveals about one of them."""
        if door is None:
            return replace(self._unit(), reason="budget=None: no privacy at all")
        found = stated(
            self._unit(),
            door.ledger,
            door.labels,
            self._recorded_runs(door),
            neighbours=door.neighbours,
            accountant=self._accountant(),
        )
        self._warn_of_refits(found)
        return found

    def _recorded_runs(self, door: Door) -> list[str]:
        """The names under which the ledger knows this run: of those who are charged."""
        if self._part(door.run, 0) == door.run:
            return [door.run]
        charged = [i for i, budget in enumerate(door.budgets) if budget is not None]
        return list(dict.fromkeys(map(partial(self._part, door.run), charged)))


@learner
class PrivateLearner(MultiTaskEstimator):
    """A learner with a budget: its parameters, and the door that it spends through."""

    budget: Budget | Mapping[Any, Budget] | None = field(default=None, kw_only=False)  # None: twin
    ledger: Ledger | Path | str | None = None  # None: in memory, shared by clones
    noise: Literal["secure", "simulated"] = "secure"
    run: str | None = None  # of one fit, by which it is taken up: its releases stay as they are
    random_state: Seed | None = None  # of simulated noise only

    def _door(self, labels: tuple[Hashable, ...], schema: Schema) -> Door | None:
        if self.budget is None:
            return None
        self._require_declared(schema)
        require_fixed_rows(schema, self._unit())
        return open_door(
            self._spends_from(),
            self.run,
            labels,
            self.budget,
            np.random.default_rng(self.random_state) if self.noise == "simulated" else None,
            pure=self._is_pure(),
            promise=self._unit(),
            doubts=self._doubts(schema),
            family=self._member(),
            part=self._part,
        )

    def _require_declared(self, schema: Schema) -> None:
        """Ranges are voted on by whole tasks, where a curator has all of them."""
        if schema.open_columns.any() and (self._unit().unit != UNIT.unit or self._engine):
            raise InvalidInput(
                "private ranges are a vote of whole tasks at one trusted curator; declare the "
                "ranges where people inside tasks are protected, or tasks are elsewhere"
            )

    def _doubts(self, schema: Schema) -> list[str]:
        """Why the guarantee is not proven, if it is not."""
        doubts = [*([self._claimed_only()] if self._claimed_only() else []), *self._uncounted()]
        if schema.from_data:
            doubts.append("ranges measured on the data (ranges='from-data')")
        measured = has_classes(self) and schema.classes is None
        if measured and not is_conventional(tuple(self.classes_)):
            doubts.append("classes taken from the data: declare them as ranges={'target': [...]}")
        return doubts


def facts_of(home: Home, door: Door) -> Facts:
    """Everything public about a run through this door."""
    return Facts(
        labels=door.labels,
        width=home.problems.X.shape[1],
        loss=home.loss,
        declared_features=home.declared_features,
        declared_target=home.declared_target,
        neighbours=door.neighbours,
        mu=door.mu,
        pure=door.pure,
    )


def require_fixed_rows(schema: Schema, unit: Guarantee) -> None:
    """Rows are dropped for what they hold. Where a whole task is protected, their number is its own
    affair; where one example is, it is public and divides the sensitivity: replacing one example by
    one that is dropped would change all others' weight, which no noise was made for."""
    if schema.drops and unit.unit != UNIT.unit:
        raise InvalidInput(
            f'missing="drop" makes the number of rows depend on the data, which is public where '
            f"{unit.unit} is protected: declare a value that replaces missing ones, or nothing of "
            "them where no cell is empty"
        )
