"""Splitting and scoring with scikit-learn's tools, where every row belongs to a task.

Where the task is a column of X, every tool works as it does with any estimator::

    cross_val_score(TaskColumn(model, "school"), frame, y, cv=TaskKFold(5, column="school"))

Where it lies beside X, they ask for it by scikit-learn's metadata routing::

    with sklearn.config_context(enable_metadata_routing=True):
        cross_validate(model, X, y, cv=TaskKFold(5), scoring=TaskScorer("nmse"), params={"task": t})

Every fit of a private learner spends, on the same ledger: a search over k folds costs k fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import MetadataRequest
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from tacit.arrays import IntArray
from tacit.errors import InvalidInput, UnknownTask, nearest
from tacit.estimator.fitted import Unknown
from tacit.metrics import accuracy, auc_per_task, nmse, nmse_per_task
from tacit.parameters import Seed
from tacit.tasks import task_codes
from tacit.tasks.tables import require_labels, rows_and_labels


class TaskKFold(BaseEstimator):  # type: ignore[misc] # scikit-learn ships no types
    """K folds in which every task has about the same share of its rows.

    A task with fewer rows than folds is in the test part of some folds only, and with a single row
    in that of none: it is then always learned from.

    >>> folds = TaskKFold(2).split(np.zeros((5, 1)), task=["a", "a", "b", "b", "c"])
    >>> next(test.tolist() for _, test in folds)
    [0, 2]

    ``column``: that of X which names the task, where ``split`` is told nothing.
    """

    __metadata_request__split: ClassVar = {"task": True}

    def __init__(
        self,
        n_splits: int = 5,
        *,
        random_state: Seed | None = None,
        column: str | int | None = None,
    ) -> None:
        self.n_splits = n_splits
        self.random_state = random_state
        self.column = column

    def get_n_splits(
        self, X: Any = None, y: Any = None, task: Any = None, groups: Any = None
    ) -> int:
        """K."""
        return self.n_splits

    def split(
        self, X: Any, y: Any = None, task: Any = None, groups: Any = None
    ) -> Iterator[tuple[IntArray, IntArray]]:
        """Rows to learn from and rows to be judged by, K times. ``groups``: the tasks, as tools
        that route nothing call them."""
        task = groups if task is None else task
        if self.n_splits < 2:
            raise InvalidInput(f"n_splits must be at least 2, got {self.n_splits}")
        if task is None and self.column is not None:
            _, task = apart(X, self.column)
        _, codes = task_codes(task, len(X) if hasattr(X, "__len__") else X.shape[0])
        fold = self._folds(codes)
        for k in range(self.n_splits):
            yield np.flatnonzero(fold != k), np.flatnonzero(fold == k)

    def _folds(self, codes: IntArray) -> IntArray:
        """(N,): the fold of each row; −1: always learned from."""
        rng = None if self.random_state is None else np.random.default_rng(self.random_state)
        fold = np.full(len(codes), -1)
        for code in range(int(codes.max()) + 1):
            rows = np.flatnonzero(codes == code)
            if len(rows) > 1:
                order = rows if rng is None else rng.permutation(rows)
                fold[order] = np.arange(len(rows)) % self.n_splits
        return fold


class TaskColumn(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn ships no types
    """An estimator of ours that finds the task in a column of X, so that tools which know of X and
    y alone can use it: cross_val_score, GridSearchCV, learning_curve, permutation_importance.
    Once fitted, ``estimator_`` is the learner, with its guarantee_, export and save.

    ``column`` is a name, or a number where X is an array. Its own parameters are searched as
    ``estimator__...``. ``unknown="shared"`` predicts rows of tasks that were not fitted.

    >>> from tacit import SingleTask
    >>> X = np.array([[0, 1.0], [0, 2.0], [0, 3.0], [1, 1.0], [1, 2.0], [1, 3.0]])
    >>> TaskColumn(SingleTask(), 0).fit(X, [1, 2, 3, 3, 2, 1]).estimator_.tasks_
    (0.0, 1.0)
    """

    def __init__(self, estimator: Any, column: str | int, *, unknown: Unknown = "error") -> None:
        self.estimator = estimator
        self.column = column
        self.unknown = unknown

    def fit(self, X: Any, y: Any) -> TaskColumn:
        """Each row to the task that its column names."""
        rows, task = apart(X, self.column)
        self.estimator_ = clone(self.estimator).fit(rows, y, task=task)
        if hasattr(self.estimator_, "classes_"):
            self.classes_ = self.estimator_.classes_
        return self

    def predict(self, X: Any) -> Any:
        """Of each row by the model of its task."""
        return self._asked("predict", X)

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))  # type: ignore[untyped-decorator] # scikit-learn ships no types
    def predict_proba(self, X: Any) -> Any:
        """(N, classes)."""
        return self._asked("predict_proba", X)

    @available_if(lambda self: hasattr(self.estimator, "decision_function"))  # type: ignore[untyped-decorator] # scikit-learn ships no types
    def decision_function(self, X: Any) -> Any:
        """As that of the estimator."""
        return self._asked("decision_function", X)

    def _asked(self, method: str, X: Any) -> Any:
        check_is_fitted(self, "estimator_")
        rows, task = apart(X, self.column)
        try:
            return getattr(self.estimator_, method)(rows, task=task, unknown=self.unknown)
        except UnknownTask as error:
            raise error.with_hint(
                "TaskKFold has each task in every fold, and TaskColumn(..., unknown='shared') "
                "judges tasks that were not learned from"
            ) from None

    def score(self, X: Any, y: Any) -> float:
        """As that of the estimator: R², or accuracy."""
        score = accuracy_score if hasattr(self, "classes_") else r2_score
        return float(score(y, self.predict(X)))

    def __sklearn_tags__(self) -> Any:
        return get_tags(self.estimator)


def apart(X: Any, column: str | int) -> tuple[Any, Any]:
    """The rows without the column, and the column."""
    if isinstance(column, str):
        rows, task = rows_and_labels(X, column)
        require_labels(task)
        return rows, task
    cells = np.asarray(X)
    if cells.ndim != 2 or not 0 <= column < cells.shape[1]:
        raise InvalidInput(f"there is no column {column} in X, whose shape is {cells.shape}")
    return np.delete(cells, column, axis=1), cells[:, column]


Metric = Callable[[Any, Any, Any], float]

METRICS: dict[str, tuple[Metric, bool]] = {
    "nmse": (lambda y, found, task: -nmse(y, found), False),
    "nmse_per_task": (lambda y, found, task: -nmse_per_task(y, found, task), False),
    "accuracy": (lambda y, found, task: accuracy(y, found), False),
    "auc_per_task": (auc_per_task, True),
}
"""By name: larger is better, and whether it judges scores instead of predictions."""


class TaskScorer:
    """A score that tells the model whose rows they are: larger is better.

    ``metric`` is "nmse" or "nmse_per_task" (both turned round), "accuracy", "auc_per_task", or a
    function of (y, predictions, task).
    """

    def __init__(self, metric: str | Metric = "nmse") -> None:
        if isinstance(metric, str) and metric not in METRICS:
            known = ", ".join(METRICS)
            raise InvalidInput(f"metric is {metric!r}{nearest(metric, METRICS)}; expected {known}")
        self.metric = metric

    def get_metadata_routing(self) -> MetadataRequest:
        """It asks for ``task``."""
        request = MetadataRequest(owner=self)
        request.score.add_request(param="task", alias=True)
        return request

    def __call__(self, estimator: Any, X: Any, y: Any, *, task: Any = None) -> float:
        """The score of a fitted estimator on these rows."""
        known = METRICS[self.metric] if isinstance(self.metric, str) else (self.metric, False)
        judge, of_scores = known
        predict = estimator.decision_function if of_scores else estimator.predict
        return float(judge(y, predict(X, task=task), task))
