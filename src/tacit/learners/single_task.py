"""Every task by itself: the limit that joining is judged against. Nothing is shared."""

from __future__ import annotations

from typing import Literal

import numpy as np

from tacit.arrays import FloatArray
from tacit.engine import Message
from tacit.estimator import Home, MultiTaskEstimator, learner
from tacit.linear.proximal import lasso_alone
from tacit.linear.single_task_fits import best_alone


@learner
class SingleTask(MultiTaskEstimator):
    """Ridge or logistic regression per task; the penalty by leave-one-out, at home.

    penalty="l1" is the lasso, its level by held-out rows.

    >>> X, y = [[0.0], [1.0], [0.0], [1.0]], [0, 1, 1, 0]
    >>> model = SingleTask().fit(X, y, task=["a", "a", "b", "b"])
    >>> model.coef_.shape
    (1, 2)
    """

    penalty: Literal["l2", "l1"] = "l2"

    @property
    def _takes_several(self) -> bool:
        return True

    def _open(self, home: Home) -> Message:
        return {}

    def _at_home(self, home: Home, shared: Message) -> FloatArray:
        alone = best_alone if self.penalty == "l2" else lasso_alone
        return alone(home.problems, home.loss)

    def _shared_model(self, shared: Message) -> FloatArray:
        return np.zeros(len(self._schema.feature_names_out) + 1)
