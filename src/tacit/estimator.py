"""The estimator contract, and the two halves of a collaborative learner.

A learner is a class with parameters (scikit-learn's contract), and three functions:

``_learn``          what is shared: a Message, from all tasks, through the door
``_at_home``        what one task makes of it: a model per task, free of charge
``_shared_model``   the model for a task that nobody knows

Fitting, prediction, joining later, exporting and saving are the same for all of them, here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, column_or_1d

from tacit import folder
from tacit._version import __version__
from tacit.errors import (
    BudgetExceeded,
    InvalidInput,
    NotPure,
    UnknownTask,
    UntrustedMessage,
)
from tacit.linear.batched import Problems
from tacit.linear.losses import FloatArray, Loss, loss_named
from tacit.metrics import nmse
from tacit.privacy.accounting import Cost, cost, remaining_mu
from tacit.privacy.budget import Budget, Guarantee
from tacit.privacy.chain import event_from_json
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import PURE
from tacit.privacy.release import Declared, Mechanism, Release, new_run
from tacit.tasks import Schema, TaskSet, as_schema, column_names, task_codes

LARGEST = 1e60
"""The largest number that a feature or target may hold without a declared range."""


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


class Participant(Protocol):
    """Private data in, contribution out; on a batch of tasks at once. No I/O, no clock."""

    def contribute(self, step: Step, shared: Message, state: Any) -> tuple[FloatArray, Any]:
        """One row per task, and the participant's state for its next step."""


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


@dataclass(frozen=True)
class Door:
    """What a run needs to release anything."""

    ledger: Ledger
    run: str
    labels: tuple[Hashable, ...]
    budgets: tuple[Budget | None, ...]  # per task; None: not charged, contributes zero
    shares: FloatArray  # (m,), each task's clip norm relative to the most generous budget
    mu: float  # all that the most generous task has left, as μ-GDP; 0 in a pure run
    rng: np.random.Generator | None  # None: secure noise
    pure: Cost | None = None  # in a pure run: the ε and δ that the most generous task has left
    transcript: Transcript = field(default_factory=list)

    @property
    def neighbours(self) -> Literal["replace", "zero-out"]:
        """The relation of all budgets of the run."""
        return next(budget.neighbours for budget in self.budgets if budget is not None)


UNIT = Guarantee(
    epsilon=math.inf,
    delta=0.0,
    unit="a whole task: its data and its model",
    neighbours="none",
    adversary="all other tasks together, who see every release and know their own data",
    not_covered=(
        "the operator of the trusted side, who sees everything",
        "a task's own model, which is solved without noise: hand it to nobody but that task",
        "the labels and the number of tasks, and every declared range, category and class",
    ),
    secure_noise=False,
    proven=False,
)
"""Task-level joint DP, before anything is known about the run."""


def _is_logistic(estimator: Any) -> bool:
    """Whether the estimator is a classifier."""
    return bool(estimator.loss == "logistic")


class MultiTaskEstimator(BaseEstimator):  # type: ignore[misc] # scikit-learn ships no types
    """One linear model per task. Learners add what is shared and how it is used at home."""

    __metadata_request__fit: ClassVar = {"task": True}
    __metadata_request__predict: ClassVar = {"task": True}
    __metadata_request__predict_proba: ClassVar = {"task": True}
    __metadata_request__score: ClassVar = {"task": True}

    loss: Literal["squared", "logistic"]

    # --- what a learner provides ---------------------------------------------------------------

    def _learn(self, home: Home, door: Door | None, progress: Progress) -> Message:
        raise NotImplementedError

    def _at_home(self, home: Home, shared: Message) -> FloatArray:
        """(m, d + 1), the intercept last."""
        raise NotImplementedError

    def _shared_model(self, shared: Message) -> FloatArray:
        """(d + 1,), the intercept last."""
        raise NotImplementedError

    def _is_pure(self) -> bool:
        """Whether all releases are pure: then ε is planned instead of μ, and δ may be 0."""
        return False

    def _accountant(self) -> str:
        """How the run's releases are added up, in words."""
        return "exact Gaussian DP, added up over all runs on this ledger"

    def _noise_is_exact(self) -> bool:
        """Whether the mechanisms have an exact sampler when noise="secure"."""
        return True

    def _claimed_only(self) -> str:
        """Why ε is no more than a paper's claim; or "" where it is proven."""
        return ""

    # --- fitting -------------------------------------------------------------------------------

    def fit(
        self, X: Any, y: Any, task: Any = None, *, progress: Progress = None
    ) -> MultiTaskEstimator:
        """Learns from all tasks. ``task`` labels the rows; None: all rows are one task."""
        loss = loss_named(self.loss)
        schema, tasks = self._declare(X, y, task, loss)
        home = self._home(tasks, schema, loss)
        door = self._door(tasks.labels)
        shared = self._learn(home, door, progress)
        self._remember(schema, tasks, shared, door)
        self._set_models(self._at_home(home, shared), tasks.labels)
        return self

    def _declare(self, X: Any, y: Any, task: Any, loss: Loss) -> tuple[Schema, TaskSet]:
        """The declarations, and the tasks scaled by them."""
        if y is None:
            raise InvalidInput("fit requires y to be passed, but the target y is None")
        if getattr(y, "ndim", 1) == 2:
            y = column_or_1d(y, warn=True)
        schema = as_schema(getattr(self, "ranges", None), column_names(X), X, y)
        classes = None
        if loss.name == "logistic":
            classes = schema.classes or "from-data"
        tasks = TaskSet.from_arrays(X, y, task, classes=classes, schema=schema)
        _require_moderate(tasks)
        if tasks.classes is not None:
            self.classes_ = np.asarray(tasks.classes)
        self.n_features_in_ = len(schema.feature_names)
        if hasattr(X, "columns"):
            self.feature_names_in_ = np.asarray(schema.feature_names, dtype=object)
        return schema, tasks

    def _home(self, tasks: TaskSet, schema: Schema, loss: Loss) -> Home:
        """Without an intercept the last column is zero, and so is its coefficient."""
        last = np.full((len(tasks.X), 1), float(getattr(self, "fit_intercept", True)))
        problems = Problems(np.hstack([tasks.X, last]), tasks.y, tasks.offsets)
        declared = [column.low is not None or bool(column.coded) for column in schema.columns]
        widths = [len(column.names_out("")) for column in schema.columns]
        known_target = loss.name == "logistic" or schema.target.low is not None
        return Home(problems, loss, np.repeat(declared, widths).astype(bool), known_target)

    def _door(self, labels: tuple[Hashable, ...]) -> Door | None:
        budget = getattr(self, "budget", None)
        if budget is None:
            return None
        if self.noise not in ("secure", "simulated"):
            raise InvalidInput(f"noise must be 'secure' or 'simulated', got {self.noise!r}")
        rng = np.random.default_rng(self.random_state) if self.noise == "simulated" else None
        ledger = _opened(self.ledger)
        budgets = _per_task(budget, labels)
        run = getattr(self, "run", None) or new_run()
        spent = ledger.costs(labels, before=run)
        remaining = _remaining_epsilon if self._is_pure() else remaining_mu
        left = np.array([remaining(*pair) for pair in zip(budgets, spent, strict=True)])
        if not isinstance(budget, Mapping) or not left.any():
            _require_left(labels, budgets, spent, left, self._is_pure())
        charged = tuple(b if mu > 0 else None for b, mu in zip(budgets, left, strict=True))
        top = float(left.max())
        if not self._is_pure():
            return Door(ledger, run, labels, charged, left / top, top, rng)
        pure = Cost(epsilon=top, delta=_composition_delta(budgets, spent))
        return Door(ledger, run, labels, charged, left / top, 0.0, rng, pure)

    def _remember(self, schema: Schema, tasks: TaskSet, shared: Message, door: Door | None) -> None:
        self._schema = schema
        self.shared_ = shared
        self.tasks_ = tasks.labels
        self.ledger_ = None if door is None else door.ledger
        self.run_ = None if door is None else door.run
        self.transcript_ = [] if door is None else door.transcript
        self.guarantee_ = self._guarantee(schema, door)
        self.history_ = [] if door is None else _history(door)

    def _set_models(self, models: FloatArray, labels: tuple[Hashable, ...]) -> None:
        """From models (m, d + 1) in scaled units: coef_ (d, m), intercept_ (m,) in units of X."""
        self._models = models
        self._column = {label: i for i, label in enumerate(labels)}
        self.tasks_ = labels
        coef, intercept = self._schema.unscale(models[:, :-1].T, models[:, -1])
        self.coef_, self.intercept_ = coef, np.atleast_1d(intercept)

    def _guarantee(self, schema: Schema, door: Door | None) -> Guarantee:
        """What this run, with all earlier ones on the same ledger, reveals about one task."""
        if door is None:
            return replace(UNIT, reason="budget=None: no privacy at all")
        delta = max(b.delta for b in door.budgets if b is not None)
        doubts = self._doubts(schema, door)
        return replace(
            UNIT,
            epsilon=max(each.epsilon_at(delta) for each in set(door.ledger.costs(door.labels))),
            delta=delta,
            neighbours=door.neighbours,
            accountant=self._accountant(),
            secure_noise=door.rng is None and self._noise_is_exact(),
            proven=not doubts,
            reason="; ".join(doubts),
        )

    def _doubts(self, schema: Schema, door: Door) -> list[str]:
        """Why the guarantee is not proven, if it is not."""
        doubts = [self._claimed_only()] if self._claimed_only() else []
        if door.rng is not None:
            doubts.append("simulated noise: floating-point draws from a seeded generator")
        if schema.from_data:
            doubts.append("ranges measured on the data (ranges='from-data')")
        if self.loss == "logistic" and schema.classes is None and not _conventional(self.classes_):
            doubts.append("classes taken from the data: declare them as ranges={'target': [...]}")
        return doubts

    # --- using a fitted model --------------------------------------------------------------------

    def predict(
        self, X: Any, task: Any = None, *, unknown: Literal["error", "shared"] = "error"
    ) -> Any:
        """Targets, or class labels when loss="logistic".

        A row of a task that was not fitted is an error, or gets the shared model.
        """
        scores = self._scores(X, task, unknown)
        if self.loss == "logistic":
            return self.classes_[(scores > 0).astype(int)]
        return self._schema.inverse_target(scores)

    @available_if(_is_logistic)  # type: ignore[untyped-decorator] # scikit-learn ships no types
    def decision_function(
        self, X: Any, task: Any = None, *, unknown: Literal["error", "shared"] = "error"
    ) -> FloatArray:
        """xᵀw + b, positive for the second class."""
        return self._scores(X, task, unknown)

    @available_if(_is_logistic)  # type: ignore[untyped-decorator] # scikit-learn ships no types
    def predict_proba(
        self, X: Any, task: Any = None, *, unknown: Literal["error", "shared"] = "error"
    ) -> FloatArray:
        """(N, 2), the probability of each class."""
        positive = expit(self._scores(X, task, unknown))
        return np.stack([1 - positive, positive], axis=1)

    def _scores(self, X: Any, task: Any, unknown: str) -> FloatArray:
        """xᵀw + b in scaled units, by the model of each row's task."""
        check_is_fitted(self, "coef_")
        rows = self._schema.transform(self._named(X))
        models = self._models_for(task, len(rows), unknown)
        return np.asarray(np.einsum("nd,nd->n", rows, models[:, :-1]) + models[:, -1])

    def score(self, X: Any, y: Any, task: Any = None) -> float:
        """R² of predict, or accuracy when loss="logistic"; over all rows."""
        predicted = self.predict(X, task)
        if self.loss == "logistic":
            return float(np.mean(predicted == np.asarray(y)))
        return 1.0 - nmse(np.asarray(y, dtype=np.float64), predicted)

    def adapt(self, X: Any, y: Any, task: Hashable) -> MultiTaskEstimator:
        """A new task joins after training: solved at home from shared_, free for the others."""
        check_is_fitted(self, "coef_")
        if task in self._column:
            raise InvalidInput(f"task {task!r} took part in the fit; fit again to change its data")
        loss = loss_named(self.loss)
        classes = tuple(self.classes_) if loss.name == "logistic" else None
        joined = TaskSet.from_arrays(self._named(X), y, None, classes=classes, schema=self._schema)
        models = self._at_home(self._home(joined, self._schema, loss), self.shared_)
        self._set_models(np.vstack([self._models, models]), (*self.tasks_, task))
        return self

    def _named(self, X: Any) -> Any:
        names = column_names(X)
        if len(names) != self.n_features_in_:
            raise InvalidInput(
                f"X has {len(names)} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )
        return X

    def _models_for(self, task: Any, n_rows: int, unknown: str) -> FloatArray:
        """(N, d + 1), the model of each row."""
        if unknown not in ("error", "shared"):
            raise InvalidInput(f"unknown must be 'error' or 'shared', got {unknown!r}")
        if task is None and len(self.tasks_) == 1:
            return np.broadcast_to(self._models[0], (n_rows, self._models.shape[1]))
        labels, codes = task_codes(task, n_rows)
        columns = np.array([self._column.get(label, -1) for label in labels])
        if (columns >= 0).all():
            return np.asarray(self._models[columns[codes]])
        if unknown == "error":
            raise UnknownTask(labels[int(np.argmin(columns))], len(self.tasks_))
        models = np.vstack([self._models, self._shared_model(self.shared_)])
        return np.asarray(models[columns[codes]])  # -1 is the last row, the shared model

    # --- what may leave ---------------------------------------------------------------------------

    def export(self, task: Hashable, directory: str | FilePath) -> FilePath:
        """Writes what that one task may have: shared_, its own model, the certificate."""
        check_is_fitted(self, "coef_")
        if task not in self._column:
            raise UnknownTask(task, len(self.tasks_))
        self._require_protected()
        column = self._column[task]
        return self._write(directory, (task,), self._models[[column]])

    def save(self, directory: str | FilePath, *, public: bool = False) -> FilePath:
        """Writes everything, for the trusted side; public=True: only shared_ and certificate."""
        check_is_fitted(self, "coef_")
        if public:
            self._require_protected()
            return self._write(directory, (), self._models[:0])
        return self._write(directory, self.tasks_, self._models)

    def _require_protected(self) -> None:
        """What leaves the trusted side went through the door, or was declared."""
        for name, part in self.shared_.items():
            if isinstance(part, Unprotected):
                raise UntrustedMessage(
                    f"shared_[{name!r}] was computed without a budget and may not leave; "
                    "fit with a budget, or save() for the trusted side"
                )

    def _write(
        self, directory: str | FilePath, labels: tuple[Hashable, ...], models: FloatArray
    ) -> FilePath:
        parts = {f"shared.{name}": np.asarray(part.value) for name, part in self.shared_.items()}
        classes = [] if self.loss == "squared" else [folder.plain(c) for c in self.classes_]
        description = {
            "learner": type(self).__name__,
            "loss": self.loss,
            "fit_intercept": bool(getattr(self, "fit_intercept", True)),
            "classes": classes,
            "labels": [folder.plain(label) for label in labels],
            "schema": self._schema.to_dict(),
            "protected": {name: not isinstance(p, Unprotected) for name, p in self.shared_.items()},
        }
        return folder.write(directory, description, {"models": models, **parts}, self.certificate())

    def certificate(self) -> dict[str, Any]:
        """The guarantee in full, with the declared constants and releases it rests on."""
        check_is_fitted(self, "coef_")
        anchor = None if self.ledger_ is None else self.ledger_.head()
        return {
            "tacit": __version__,
            "learner": type(self).__name__,
            "guarantee": json.loads(self.guarantee_.to_json()),
            "steps": self.history_,
            "ledger": None
            if anchor is None
            else {"digest": anchor.digest, "length": anchor.length},
        }

    @classmethod
    def load(cls, directory: str | FilePath) -> MultiTaskEstimator:
        """A model that save or export wrote: it predicts and adapts, but has no ledger."""
        description, arrays, certificate = folder.read(directory)
        if description["learner"] != cls.__name__:
            name = description["learner"]
            raise InvalidInput(f"{directory} holds a {name}; load it with tacit.{name}.load")
        model = cls(loss=description["loss"], fit_intercept=description["fit_intercept"])
        model._schema = Schema.from_dict(description["schema"])
        model.n_features_in_ = len(model._schema.feature_names)
        model.shared_ = {
            name: (Declared if safe else Unprotected)(arrays[f"shared.{name}"])
            for name, safe in description["protected"].items()
        }
        if description["classes"]:
            model.classes_ = np.asarray(description["classes"])
        model.ledger_, model.run_, model.transcript_ = None, None, []
        model.guarantee_ = Guarantee.from_json(json.dumps(certificate["guarantee"]))
        model.history_ = certificate["steps"]
        model._set_models(arrays["models"], tuple(map(folder.hashable, description["labels"])))
        return model

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        if self.loss == "logistic":
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags(multi_class=False)
        else:
            tags.estimator_type = "regressor"
            tags.regressor_tags = RegressorTags()
        return tags


def _require_moderate(tasks: TaskSet) -> None:
    """Numbers whose squares do not overflow."""
    for name, column in zip((*tasks.feature_names, "target"), (*tasks.X.T, tasks.y), strict=True):
        largest = float(np.max(np.abs(column)))
        if largest > LARGEST:
            raise InvalidInput(
                f"column {name!r} reaches {largest:.3g}, more than {LARGEST:.0g}: "
                "declare its range, or use another unit"
            )


def _opened(ledger: Any) -> Ledger:
    if ledger is None:
        return Ledger.in_memory()
    return ledger if isinstance(ledger, Ledger) else Ledger(ledger)


def _per_task(
    budget: Budget | Mapping[Hashable, Budget], labels: Sequence[Hashable]
) -> tuple[Budget, ...]:
    """One budget per task, all with the same neighbours."""
    if isinstance(budget, Budget):
        return (budget,) * len(labels)
    if not isinstance(budget, Mapping):
        raise InvalidInput(
            f"budget must be a Budget, a mapping of labels to Budgets or None, got {budget!r}"
        )
    missing = [label for label in labels if label not in budget]
    if missing:
        raise InvalidInput(
            f"budget names no budget for task {missing[0]!r} ({len(missing)} missing)"
        )
    budgets = tuple(budget[label] for label in labels)
    if len({b.neighbours for b in budgets}) > 1:
        raise InvalidInput("all budgets of a run must have the same neighbours")
    return budgets


def _remaining_epsilon(budget: Budget, spent: Cost) -> float:
    """The largest ε that one more pure run may have on top of what was spent; 0 if none.

    What a calibrated run leaves by rounding is nothing.
    """
    left = budget.epsilon - spent.epsilon_at(budget.delta)
    return left if left > 1e-6 * budget.epsilon else 0.0


def _composition_delta(budgets: Sequence[Budget], spent: Sequence[Cost]) -> float:
    """The δ with which a pure run's releases may be composed; 0, plain addition, unless all tasks
    are alike and nothing else was spent on them."""
    if len(set(budgets)) > 1 or any(cost != Cost() for cost in spent):
        return 0.0
    return budgets[0].delta


def _require_left(
    labels: Sequence[Hashable],
    budgets: Sequence[Budget],
    spent: Sequence[Cost],
    left: FloatArray,
    pure: bool,
) -> None:
    """A task with nothing left stops the run before any noise is drawn."""
    if not pure and any(budget.delta == 0 for budget in budgets):
        raise NotPure(f"delta = 0 with Gaussian releases; pure mechanisms are {', '.join(PURE)}")
    if not left.all():
        i = int(np.argmin(left))
        rest = budgets[i].epsilon - spent[i].epsilon_at(budgets[i].delta)
        raise BudgetExceeded(labels[i], max(0.0, rest), budgets[i].epsilon, budgets[i])


def _history(door: Door) -> list[dict[str, Any]]:
    """Each release of the run: its mechanism, its μ, and the ε of the run after it."""
    delta = max(b.delta for b in door.budgets if b is not None)
    spent, lines = Cost(), []
    for entry in door.ledger.entries():
        if entry.kind == "spend" and entry.payload["run"] == door.run:
            event = event_from_json(entry.payload["event"])
            spent += cost(event) or Cost()
            lines.append(
                {
                    "round": entry.payload["round"],
                    "mechanism": entry.payload["mechanism"],
                    "event": entry.payload["event"],
                    "epsilon": spent.epsilon_at(delta),
                }
            )
    return lines


def _conventional(classes: np.ndarray[Any, Any]) -> bool:
    """Whether the two classes are 0/1, −1/1 or false/true, which tells nothing about the data."""
    return tuple(folder.plain(label) for label in classes) in ((0, 1), (-1, 1), (False, True))
