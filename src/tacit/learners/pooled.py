"""One model for all rows, as if there were one task: the other limit. Not private."""

from __future__ import annotations

import numpy as np

from tacit.arrays import FloatArray
from tacit.engine import Message, Unprotected
from tacit.estimator import Home, MultiTaskEstimator, learner
from tacit.linear.batched import Problems
from tacit.linear.single_task_fits import best_alone


@learner
class Pooled(MultiTaskEstimator):
    """Ridge or logistic regression on all rows; the penalty by leave-one-out.

    >>> model = Pooled().fit([[0.0], [1.0], [0.0], [1.0]], [0, 1, 0, 1], task=["a", "a", "b", "b"])
    >>> bool(model.coef_[0, 0] == model.coef_[0, 1])
    True
    """

    @property
    def _takes_several(self) -> bool:
        return True

    def _open(self, home: Home) -> Message:
        p = home.problems
        everything = Problems(p.X, p.y, np.array([0, len(p.y)]))
        return {"model": Unprotected(best_alone(everything, home.loss)[0])}

    def _at_home(self, home: Home, shared: Message) -> FloatArray:
        model = self._shared_model(shared)
        return np.tile(model, (home.problems.n_tasks, 1))

    def _shared_model(self, shared: Message) -> FloatArray:
        return np.asarray(shared["model"].value)
