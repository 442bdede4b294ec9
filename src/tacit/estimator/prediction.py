"""Using a fitted model: predictions, scores, and a task that joins later."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar, Literal, Self

import numpy as np
from scipy.special import expit
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from tacit.arrays import FloatArray
from tacit.engine import Message
from tacit.errors import InvalidInput, UnknownTask
from tacit.estimator.home import Home
from tacit.estimator.leaving import Saved
from tacit.linear.losses import Loss, LossName, loss_named
from tacit.metrics import nmse
from tacit.tasks import Schema, TaskSet, canonical_label, column_names, task_codes


def _is_logistic(estimator: Any) -> bool:
    """Whether the estimator is a classifier."""
    return bool(estimator.loss == "logistic")


class Predicting(Saved):
    """One linear model per task, in scaled units, and a shared one for tasks that nobody knows."""

    __metadata_request__fit: ClassVar = {"task": True}
    __metadata_request__predict: ClassVar = {"task": True}
    __metadata_request__predict_proba: ClassVar = {"task": True}
    __metadata_request__score: ClassVar = {"task": True}

    loss: LossName
    _column: dict[str, int]  # of each task, by its canonical text

    def _home(self, tasks: TaskSet, schema: Schema, loss: Loss) -> Home:
        raise NotImplementedError

    def _shared_model(self, shared: Message) -> FloatArray:
        """(d + 1,), the intercept last."""
        raise NotImplementedError

    def _newcomer(self, home: Home, shared: Message) -> FloatArray:
        """The model of a task that joins after training, (1, d + 1)."""
        raise NotImplementedError

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

    def scores_of(self, tasks: TaskSet) -> FloatArray:
        """(N,), xᵀw + b in scaled units, of tasks scaled by the schema of the fit."""
        check_is_fitted(self, "coef_")
        columns = [self._column_of(label) for label in tasks.labels]
        models = np.repeat(self._models[columns], np.diff(tasks.offsets), axis=0)
        return np.asarray(np.einsum("nd,nd->n", tasks.X, models[:, :-1]) + models[:, -1])

    def score(self, X: Any, y: Any, task: Any = None) -> float:
        """R² of predict, or accuracy when loss="logistic"; over all rows."""
        predicted = self.predict(X, task)
        if self.loss == "logistic":
            return float(np.mean(predicted == np.asarray(y)))
        return 1.0 - nmse(np.asarray(y, dtype=np.float64), predicted)

    def adapt(self, X: Any, y: Any, task: Hashable) -> Self:
        """A new task joins after training: solved at home from shared_, free for the others."""
        check_is_fitted(self, "coef_")
        if canonical_label(task) in self._column:
            raise InvalidInput(f"task {task!r} took part in the fit; fit again to change its data")
        loss = loss_named(self.loss)
        classes = tuple(self.classes_) if loss.name == "logistic" else None
        joined = TaskSet.from_arrays(self._named(X), y, None, classes=classes, schema=self._schema)
        models = self._newcomer(self._home(joined, self._schema, loss), self.shared_)
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
        columns = np.array([self._column.get(canonical_label(label), -1) for label in labels])
        if (columns >= 0).all():
            return np.asarray(self._models[columns[codes]])
        if unknown == "error":
            raise UnknownTask(labels[int(np.argmin(columns))], len(self.tasks_))
        models = np.vstack([self._models, self._shared_model(self.shared_)])
        return np.asarray(models[columns[codes]])  # -1 is the last row, the shared model

    def _column_of(self, task: Hashable) -> int:
        """The column of a fitted task, found by its canonical text."""
        column = self._column.get(canonical_label(task))
        if column is None:
            raise UnknownTask(task, len(self.tasks_))
        return column

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
