"""Every task by itself: the limit that joining is judged against. Nothing is shared."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from tacit.estimator import Door, Home, Message, MultiTaskEstimator, Progress
from tacit.linear.alone import best_alone
from tacit.linear.losses import FloatArray


class SingleTask(MultiTaskEstimator):
    """Ridge or logistic regression per task; the penalty by leave-one-out, at home.

    >>> X, y = [[0.0], [1.0], [0.0], [1.0]], [0, 1, 1, 0]
    >>> model = SingleTask().fit(X, y, task=["a", "a", "b", "b"])
    >>> model.coef_.shape
    (1, 2)
    """

    def __init__(
        self,
        loss: Literal["squared", "logistic"] = "squared",
        ranges: Any = None,
        fit_intercept: bool = True,
    ) -> None:
        self.loss = loss
        self.ranges = ranges
        self.fit_intercept = fit_intercept

    def _learn(self, home: Home, door: Door | None, progress: Progress) -> Message:
        return {}

    def _at_home(self, home: Home, shared: Message) -> FloatArray:
        return best_alone(home.problems, home.loss)

    def _shared_model(self, shared: Message) -> FloatArray:
        return np.zeros(len(self._schema.feature_names_out) + 1)
