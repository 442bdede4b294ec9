"""Metrics against their definitions, against scikit-learn, and at their edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import r2_score, roc_auc_score

from tacit.errors import InvalidInput
from tacit.metrics import accuracy, auc_per_task, nmse, nmse_per_task, share_gained

GRID = st.integers(-5, 5).map(float)


@settings(deadline=None)
@given(hnp.arrays(np.float64, 6, elements=GRID), hnp.arrays(np.float64, 6, elements=GRID))
def test_nmse_is_one_minus_r2(y: Any, predicted: Any) -> None:
    if y.min() < y.max():
        assert nmse(y, predicted) == pytest.approx(1 - r2_score(y, predicted))


def test_a_constant_target_has_error_zero_or_infinity() -> None:
    assert nmse([0.1, 0.1, 0.1], [0.1, 0.1, 0.1]) == 0
    assert nmse([0.1, 0.1, 0.1], [0.1, 0.1, 0.2]) == np.inf
    assert nmse([3], [3]) == 0


def test_nmse_does_not_depend_on_the_units() -> None:
    y, predicted = np.array([1.0, 2.0, 4.0]), np.array([1.0, 3.0, 3.0])
    assert nmse(100 * y + 7, 100 * predicted + 7) == pytest.approx(nmse(y, predicted))


@settings(deadline=None)
@given(
    hnp.arrays(np.float64, 12, elements=GRID),
    hnp.arrays(np.float64, 12, elements=GRID),
    st.lists(st.sampled_from("abc"), min_size=12, max_size=12),
)
def test_nmse_per_task_averages_the_tasks_that_vary(y: Any, predicted: Any, task: Any) -> None:
    labels = np.array(task)
    parts = [(y[labels == t], predicted[labels == t]) for t in set(task)]
    errors = [nmse(a, b) for a, b in parts if a.min() < a.max()]
    if errors:
        assert nmse_per_task(y, predicted, task) == pytest.approx(np.mean(errors))
    else:
        with pytest.raises(InvalidInput, match="constant in every task"):
            nmse_per_task(y, predicted, task)


@settings(deadline=None)
@given(
    hnp.arrays(np.float64, 12, elements=st.sampled_from([-1.0, 1.0])),
    hnp.arrays(np.float64, 12, elements=GRID),
    st.lists(st.sampled_from([7, 8, 9]), min_size=12, max_size=12),
)
def test_auc_per_task_averages_the_tasks_with_both_classes(y: Any, scores: Any, task: Any) -> None:
    labels = np.array(task)
    parts = [(y[labels == t], scores[labels == t]) for t in set(task)]
    areas = [roc_auc_score(a, b) for a, b in parts if a.min() < a.max()]
    if areas:
        assert auc_per_task(y, scores, task) == pytest.approx(np.mean(areas))
    else:
        with pytest.raises(InvalidInput, match="no task has both classes"):
            auc_per_task(y, scores, task)


def test_auc_takes_zero_and_one_too() -> None:
    assert auc_per_task([0, 1, 1], [0.1, 0.2, 0.3], [0, 0, 0]) == 1


def test_auc_refuses_a_third_class() -> None:
    with pytest.raises(InvalidInput, match="two classes"):
        auc_per_task([0, 1, 2], [0.1, 0.2, 0.3], [0, 0, 0])


def test_a_tie_is_no_gain() -> None:
    assert share_gained([1.0, 1.0, 1.0, 1.0], [1.0, 0.5, 2.0, 1.0]) == 0.25


@pytest.mark.parametrize(
    ("y", "predicted", "share"),
    [
        (["a", "b"], ["a", "a"], 0.5),
        ([1, 2, 3], [1.0, 2.0, 4.0], 2 / 3),
        ([1, 2], ["1", "2"], 0.0),
        ([-1.0, 1.0], [-1, 1], 1.0),
    ],
)
def test_accuracy_is_the_share_of_equal_labels(y: Any, predicted: Any, share: float) -> None:
    assert accuracy(y, predicted) == share


@pytest.mark.parametrize("metric", [nmse, share_gained, accuracy])
@pytest.mark.parametrize(("y", "predicted"), [([1, 2], [1]), ([], []), ([1, None], [1, 2])])
def test_metrics_refuse_what_cannot_be_compared(metric: Any, y: Any, predicted: Any) -> None:
    with pytest.raises(InvalidInput):
        metric(y, predicted)
