"""How good predictions are, over all rows and task by task.

The normalised error and the mean AUC over tasks are those of Liang et al., Model-Protected
Multi-Task Learning, section 5.3.
"""

from __future__ import annotations

import numpy as np

from tacit.arrays import Array, BoolArray, FloatArray, IntArray
from tacit.errors import InvalidInput
from tacit.tasks import task_codes
from tacit.tasks.labels import distinct, positions, require_present
from tacit.tasks.tables import as_vector
from tacit.tasks.targets import target_numbers


def nmse(y_true: object, y_pred: object) -> float:
    """Mean squared error over the variance of the target: mean((y - ŷ)²) / mean((y - ȳ)²).

    1 is the error of the mean. A constant target gives 0 if it is met exactly, else infinity.

    >>> nmse([1, 2, 3], [1, 2, 3])
    0.0
    >>> nmse([1, 2, 3], [2, 2, 2])
    1.0
    """
    true, predicted = _number_pair(y_true, y_pred)
    ratio = _error_ratios(true, predicted, np.zeros(len(true), dtype=np.int64))
    return float(ratio[0])


def nmse_per_task(y_true: object, y_pred: object, task: object) -> float:
    """The mean over tasks of each task's own nmse.

    A task with a constant target (one row is enough) has no variance to compare with and is left
    out; if all are, there is nothing to average and `InvalidInput` is raised.

    >>> nmse_per_task([1, 3, 5, 7], [1, 3, 6, 6], task=["a", "a", "b", "b"])
    0.5
    """
    true, predicted = _number_pair(y_true, y_pred)
    _, codes = task_codes(task, len(true))
    varies = _varies(true, codes)
    if not varies.any():
        raise InvalidInput("the target is constant in every task: no variance to divide by")
    return float(np.mean(_error_ratios(true, predicted, codes)[varies]))


def share_gained(errors_alone: object, errors_together: object) -> float:
    """The share of tasks whose error got smaller by learning together. A tie is no gain.

    >>> share_gained([1.0, 2.0, 3.0, 4.0], [0.5, 2.0, 3.5, 1.0])
    0.5
    """
    alone, together = _number_pair(errors_alone, errors_together)
    return float(np.mean(together < alone))


def auc_per_task(y_true: object, scores: object, task: object) -> float:
    """The mean area under the ROC curve over the tasks that have both classes.

        AUC = (R₊ - n₊(n₊ + 1)/2) / (n₊ n₋),  R₊ the rank sum of the positives, ties averaged.

    Rows with y_true > 0 are positive. `InvalidInput` if no task has both classes.

    >>> auc_per_task([-1, 1, -1, 1], [0.1, 0.9, 0.8, 0.2], task=["a", "a", "b", "b"])
    0.5
    """
    true, score = _number_pair(y_true, scores)
    if len(np.unique(true)) > 2:
        raise InvalidInput("y_true must hold two classes")
    labels, codes = task_codes(task, len(true))
    positive = true > 0
    n_positive = np.bincount(codes, positive, len(labels))
    n_negative = np.bincount(codes, ~positive, len(labels))
    both = (n_positive > 0) & (n_negative > 0)
    if not both.any():
        raise InvalidInput("no task has both classes, so no AUC is defined")
    rank_sum = np.bincount(codes, positive * _ranks(score, codes), len(labels))
    wins = (rank_sum - n_positive * (n_positive + 1) / 2)[both]
    return float(np.mean(wins / (n_positive * n_negative)[both]))


def accuracy(y_true: object, y_pred: object) -> float:
    """The share of rows whose label was met.

    >>> accuracy(["a", "b", "b"], ["a", "b", "a"]) == 2 / 3
    True
    """
    true, predicted = as_vector(y_true, "y_true"), as_vector(y_pred, "y_pred")
    _require_same_length(true, predicted)
    require_present(true, "y_true")
    require_present(predicted, "y_pred")
    labels, codes = distinct(true, "y_true")
    return float(np.mean(positions(predicted, labels, "y_pred") == codes))


def _number_pair(y_true: object, y_pred: object) -> tuple[FloatArray, FloatArray]:
    true, predicted = target_numbers(y_true), target_numbers(y_pred)
    _require_same_length(true, predicted)
    return true, predicted


def _require_same_length(true: Array, predicted: Array) -> None:
    if len(true) != len(predicted) or len(true) == 0:
        raise InvalidInput(f"expected equally many values, got {len(true)} and {len(predicted)}")


def _error_ratios(true: FloatArray, predicted: FloatArray, codes: IntArray) -> FloatArray:
    """Squared error over squared deviation from the mean, for each task. (m,)"""
    mean = np.bincount(codes, true) / np.bincount(codes)
    spread = np.bincount(codes, (true - mean[codes]) ** 2)
    deviation = np.where(_varies(true, codes), spread, 0.0)  # rounding makes the sum positive
    error = np.bincount(codes, (true - predicted) ** 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(error == 0, 0.0, error / deviation)


def _varies(values: FloatArray, codes: IntArray) -> BoolArray:
    """Whether a task holds two different values. (m,)"""
    order = np.lexsort((values, codes))
    first = np.flatnonzero(np.r_[True, np.diff(codes[order]) > 0])
    last = np.r_[first[1:], len(order)] - 1
    return np.asarray(values[order[first]] < values[order[last]])


def _ranks(scores: FloatArray, codes: IntArray) -> FloatArray:
    """The rank of each score in its task, from 1, ties averaged. (N,)"""
    order = np.lexsort((scores, codes))
    task, score = codes[order], scores[order]
    new = np.r_[True, (task[1:] != task[:-1]) | (score[1:] != score[:-1])]
    group = np.cumsum(new) - 1
    first = np.flatnonzero(new)
    last = np.r_[first[1:], len(order)] - 1
    task_start = np.searchsorted(task, task)
    ranks = np.empty(len(order))
    ranks[order] = (first + last)[group] / 2 - task_start + 1
    return ranks
