"""What models are worth on rows that their site kept: one number in [0, 1] for each task."""

from __future__ import annotations

import numpy as np

from tacit.arrays import FloatArray
from tacit.estimator import MultiTaskEstimator
from tacit.tasks import TaskSet

HALF = 0.5


def centred_scores(model: MultiTaskEstimator, tasks: TaskSet) -> FloatArray:
    """(m, 1): the score of each task less ½; 0 of one without rows, or without spread."""
    found = np.zeros((tasks.n_tasks, 1))
    cuts = tasks.offsets[1:-1]
    right = np.split(model.scores_of(tasks), cuts)
    for i, (y, predicted) in enumerate(zip(np.split(tasks.y, cuts), right, strict=True)):
        spread = float(np.sum((y - y.mean()) ** 2)) if len(y) else 0.0
        if tasks.classes is not None and len(y):
            found[i] = np.mean(np.sign(predicted) == y) - HALF
        elif spread > 0:
            found[i] = HALF - min(1.0, float(np.sum((y - predicted) ** 2)) / spread)
    return found
