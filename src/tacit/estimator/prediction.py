"""Linear models, from rows to use: predictions, a task that joins later, and what their folder
holds."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy.special import expit
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from tacit import folder
from tacit.arrays import Array, FloatArray
from tacit.engine import Message
from tacit.errors import InvalidInput
from tacit.estimator.fitted import Fitted, Unknown, has_classes
from tacit.estimator.home import Home, problems_of
from tacit.estimator.outputs import shared_models, solved, unscaled
from tacit.estimator.parted_models import read_parted
from tacit.estimator.private_bounds import BOUNDS
from tacit.json_converter import from_json, to_json
from tacit.linear.losses import Loss, LossName, loss_named
from tacit.linear.threads import isolated
from tacit.tasks import Schema, TaskSet, column_names
from tacit.tasks.tables import has_names, rows_and_labels


class Predicting(Fitted):
    """One linear model per task, in scaled units, and a shared one for tasks that nobody knows."""

    loss: LossName
    fit_intercept: bool
    _schema: Schema
    _models: FloatArray  # (m, d + 1), the intercept last; (m, k, d + 1) of several outputs
    _spread: FloatArray  # (m, d) or (m, k, d), of the slopes; zero where nobody knows

    # --- what a learner provides -----------------------------------------------------------------

    def _at_home(self, home: Home, shared: Message) -> FloatArray:
        """(m, d + 1), the intercept last."""
        raise NotImplementedError

    def _spreads(self, home: Home, shared: Message) -> FloatArray:
        """(m, d): how sure each task may be of its slopes, as standard deviations; zero: nobody
        knows, as where a learner has no posterior."""
        return np.zeros((home.problems.n_tasks, home.problems.X.shape[1] - 1))

    def _newcomer(self, home: Home, shared: Message) -> FloatArray:
        """The model of a task that joins after training, (1, d + 1)."""
        return self._at_home(home, shared)

    def _shared_model(self, shared: Message) -> FloatArray:
        """(d + 1,), the intercept last."""
        raise NotImplementedError

    # --- models, and the rows that they are made of ----------------------------------------------

    def _home(self, tasks: TaskSet, schema: Schema, loss: Loss) -> Home:
        problems = problems_of(tasks, self.fit_intercept)
        known_target = loss.targets_are_classes or all(
            target.low is not None for target in schema.targets
        )
        found = Home(problems, loss, schema.in_range, known_target)
        open_columns = np.zeros(tasks.X.shape[1] + found.n_outputs, dtype=bool)
        open_columns[: len(schema.open_columns)] = schema.open_columns  # classes have no range
        return replace(found, open_columns=open_columns, labels=tasks.labels)

    def _look_at(self, home: Home) -> None:
        """Works out what every step would ask again."""
        home.speaks  # noqa: B018  # it stays with them

    def _set_models(
        self, models: FloatArray, labels: tuple[Hashable, ...], spreads: FloatArray | None = None
    ) -> None:
        """From models (m, d + 1) in scaled units: coef_ (d, m), intercept_ (m,) in units of X. Of
        several outputs (m, k, d + 1): (d, m, k) and (m, k)."""
        self._models = models
        self._spread = np.zeros(models[..., :-1].shape) if spreads is None else spreads
        self._label(labels)
        self.coef_, self.intercept_ = unscaled(self._schema, models)

    @property
    def coef_spread_(self) -> FloatArray:
        """As coef_: how sure each task may be of it, a posterior standard deviation in units of X;
        zero where nobody knows. It is made of the task's rows: as private as its model."""
        check_is_fitted(self, "coef_")
        levels = np.zeros_like(self._models[..., -1:])
        return unscaled(self._schema, np.concatenate([self._spread, levels], axis=-1))[0]

    def note_spreads(self, X: Any, y: Any, task: Any = None) -> Self:
        """Works coef_spread_ out, of the rows that ``fit`` had. Apart from it, as it takes about as
        long as the models at home."""
        check_is_fitted(self, "coef_")
        self.note_spreads_of(self._read(*rows_and_labels(X, task), y))
        return self

    def note_spreads_of(self, tasks: TaskSet) -> None:
        """The same, of the tasks that ``fit_tasks`` had."""
        if tuple(tasks.labels) != tuple(self.tasks_):
            raise InvalidInput(
                f"these are {tasks.n_tasks} tasks, and not in the order of the {len(self.tasks_)} "
                "models: give the tasks that were fitted, or one's spread would be another's"
            )
        self._spread = self._spread_of(self._home(tasks, self._schema, loss_named(self.loss)))

    @isolated()
    def _spread_of(self, home: Home) -> FloatArray:
        """Zero where rows were cut to ranges found by a vote: their models are of what was left."""
        found = solved(self._spreads, home, self.shared_)
        return np.zeros_like(found) if BOUNDS in self.shared_ else found

    # --- in use ----------------------------------------------------------------------------------

    def predict(self, X: Any, task: Any = None, *, unknown: Unknown = "error") -> Any:
        """Targets, or class labels when loss="logistic".

        A row of a task that was not fitted is an error, or gets the shared model.
        """
        scores = self._scores(X, task, unknown)
        if has_classes(self):
            likeliest = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(int)
            return self.classes_[likeliest]
        return self._schema.inverse_target(scores)

    @available_if(has_classes)  # type: ignore[untyped-decorator] # scikit-learn ships no types
    def decision_function(
        self, X: Any, task: Any = None, *, unknown: Unknown = "error"
    ) -> FloatArray:
        """xᵀw + b, positive for the second class; of more than two (N, k), largest for the
        likeliest."""
        return self._scores(X, task, unknown)

    @available_if(has_classes)  # type: ignore[untyped-decorator] # scikit-learn ships no types
    def predict_proba(self, X: Any, task: Any = None, *, unknown: Unknown = "error") -> FloatArray:
        """(N, k), the probability of each class; of more than two each against all others, at a
        sum of one."""
        positive = expit(self._scores(X, task, unknown))
        if positive.ndim == 1:
            return np.stack([1 - positive, positive], axis=1)
        positive = np.maximum(positive, np.finfo(np.float64).tiny)
        return np.asarray(positive / positive.sum(axis=1, keepdims=True))

    def _scores(self, X: Any, task: Any, unknown: str) -> FloatArray:
        """xᵀw + b in scaled units, by the model of each row's task; within the target's range."""
        check_is_fitted(self, "coef_")
        X, task = rows_and_labels(X, task)
        rows = self._schema.transform(self._named(X))
        models = self._models_for(task, len(rows), unknown)
        return self._schema.within_target(_products(rows, models))

    def scores_of(self, tasks: TaskSet) -> FloatArray:
        """(N,) or (N, k), the same of tasks scaled by the schema of the fit."""
        check_is_fitted(self, "coef_")
        columns = [self._column_of(label) for label in tasks.labels]
        models = np.repeat(self._models[columns], np.diff(tasks.offsets), axis=0)
        return self._schema.within_target(_products(tasks.X, models))

    def adapt(self, X: Any, y: Any, task: Any) -> Self:
        """A new task joins after training: solved at home from shared_, free for the others.

        ``task`` is its label; or a label for each row, where several join, or the column of a frame
        that holds them.
        """
        check_is_fitted(self, "coef_")
        X, task = rows_and_labels(X, task)
        labels = task if isinstance(task, list | np.ndarray) else None
        joined = self._read(X, labels, y)
        new = (task,) if labels is None else joined.labels
        for label in new:
            self._require_new(label)
        home = self._home(joined, self._schema, loss_named(self.loss))
        each = [home.select([i]) for i in range(len(new))]
        models = [solved(self._newcomer, alone, self.shared_) for alone in each]
        spreads = [self._spread_of(alone) for alone in each]
        self._set_models(
            np.vstack([self._models, *models]),
            (*self.tasks_, *new),
            np.vstack([self._spread, *spreads]),
        )
        return self

    def _read(self, X: Any, labels: Any, y: Any) -> TaskSet:
        """Rows as tasks, by the schema and the classes of the fit."""
        classes = tuple(self.classes_) if loss_named(self.loss).targets_are_classes else None
        return TaskSet.from_arrays(self._named(X), y, labels, classes=classes, schema=self._schema)

    def _named(self, X: Any) -> Any:
        names = column_names(X)
        if len(names) != self.n_features_in_:
            absent = [name for name in self._schema.feature_names if name not in names]
            raise InvalidInput(
                f"X has {len(names)} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
                + (f": there is no {', '.join(absent)}" if has_names(X) and absent else "")
            )
        return X

    def _models_for(self, task: Any, n_rows: int, unknown: str) -> FloatArray:
        """(N, d + 1) or (N, k, d + 1), the model of each row."""
        columns, models = self._columns(task, n_rows, unknown), self._models
        if (columns < 0).any():
            count = 1 if models.ndim == 2 else models.shape[1]
            shared = shared_models(self._shared_model, self.shared_, count)
            models = np.concatenate([models, shared[None]])
        return np.asarray(models[columns])  # −1 is the last row, the shared model

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True  # written out, up to a limit
        return tags

    # --- its folder ------------------------------------------------------------------------------

    def _description(self) -> dict[str, Any]:
        return {
            "loss": self.loss,
            "fit_intercept": bool(self.fit_intercept),
            "classes": [to_json(c) for c in self.classes_] if has_classes(self) else [],
            "schema": to_json(self._schema),
        }

    def _arrays(self, columns: list[int]) -> dict[str, Array]:
        spread = self._spread[columns]
        return {"models": self._models[columns]} | ({"spreads": spread} if spread.any() else {})

    def _take(self, description: dict[str, Any], arrays: dict[str, Any]) -> None:
        self._schema = from_json(Schema, description["schema"], "schema")
        self.n_features_in_ = len(self._schema.feature_names)
        if description["classes"]:
            self.classes_ = np.asarray(description["classes"])
        models, spreads = arrays["models"], arrays.get("spreads")
        if spreads is not None and spreads.shape[1:] != models[..., :-1].shape[1:]:
            raise InvalidInput(f"its spreads are {spreads.shape}, of models {models.shape}")
        self._set_models(models, self.tasks_, spreads)

    @classmethod
    def load(cls, directory: str | Path) -> Any:
        """A model that save or export wrote: it predicts and adapts, but has no ledger."""
        model = cls.restored(*folder.read_as(cls._known_as(), directory))
        return model.with_parted(Path(directory))

    def with_parted(self, directory: Path) -> Self:
        """With the models of tasks that were too many for one file, if the folder has such."""
        if (directory / folder.MODELS).is_dir():
            labels, models = read_parted(directory, self._schema)
            self._set_models(models, labels)
        return self

    @classmethod
    def restored(
        cls, description: dict[str, Any], arrays: dict[str, Any], certificate: dict[str, Any]
    ) -> Any:
        """The same, of what was read from its folder."""
        model = cls(loss=description["loss"], fit_intercept=description["fit_intercept"])
        return model._filled(description, arrays, certificate)


def _products(rows: FloatArray, models: FloatArray) -> FloatArray:
    """xᵀw + b of each row (N, d) with its own model, or models (N, k, d + 1)."""
    return np.asarray(np.einsum("nd,n...d->n...", rows, models[..., :-1]) + models[..., -1])
