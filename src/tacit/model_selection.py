"""Splitting and scoring with scikit-learn's tools, where every row belongs to a task.

Both ask for ``task`` by scikit-learn's metadata routing::

    with sklearn.config_context(enable_metadata_routing=True):
        cross_validate(model, X, y, cv=TaskKFold(5), scoring=TaskScorer("nmse"), params={"task": t})

Every fit of a private learner spends, on the same ledger: a search over k folds costs k fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.metadata_routing import MetadataRequest

from tacit.arrays import IntArray
from tacit.errors import InvalidInput, nearest
from tacit.metrics import accuracy, auc_per_task, nmse, nmse_per_task
from tacit.parameters import Seed
from tacit.tasks import task_codes


class TaskKFold(BaseEstimator):  # type: ignore[misc] # scikit-learn ships no types
    """K folds in which every task has about the same share of its rows.

    A task with fewer rows than folds is in the test part of some folds only, and with a single row
    in that of none: it is then always learned from.

    >>> folds = TaskKFold(2).split(np.zeros((5, 1)), task=["a", "a", "b", "b", "c"])
    >>> next(test.tolist() for _, test in folds)
    [0, 2]
    """

    __metadata_request__split: ClassVar = {"task": True}

    def __init__(self, n_splits: int = 5, *, random_state: Seed | None = None) -> None:
        self.n_splits = n_splits
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, task: Any = None) -> int:
        """K."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, task: Any = None) -> Iterator[tuple[IntArray, IntArray]]:
        """Rows to learn from and rows to be judged by, K times."""
        if self.n_splits < 2:
            raise InvalidInput(f"n_splits must be at least 2, got {self.n_splits}")
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
