"""Folds that keep every task, and scores that know whose rows they judge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import config_context
from sklearn.model_selection import GridSearchCV, cross_validate

from tacit import SharedPrior, SingleTask
from tacit.datasets import related_tasks
from tacit.errors import InvalidInput
from tacit.metrics import auc_per_task, nmse
from tacit.model_selection import TaskKFold, TaskScorer


def data(loss: Any = "squared") -> Any:
    return related_tasks(12, rows=(4, 9), n_features=3, loss=loss, rng=np.random.default_rng(0))


@pytest.mark.parametrize("seed", [None, 3])
def test_every_task_is_in_every_fold_and_every_row_is_judged_once(seed: int | None) -> None:
    d = data()
    judged = np.zeros(len(d.y), dtype=int)
    for train, test in TaskKFold(4, random_state=seed).split(d.X, d.y, task=d.task):
        assert set(d.task[train]) == set(d.task[test]) == set(range(12))
        assert not set(train) & set(test)
        judged[test] += 1
    assert (judged == 1).all()


def test_a_lonely_row_is_always_learned_from() -> None:
    for train, test in TaskKFold(3).split(np.zeros((7, 1)), task=[0, 1, 1, 1, 2, 2, 2]):
        assert 0 in train
        assert 0 not in test


def test_cross_validation_tells_the_model_whose_rows_they_are() -> None:
    d = data()
    fold = TaskKFold(3)
    with config_context(enable_metadata_routing=True):
        found = cross_validate(
            SharedPrior(ranges=d.ranges),
            d.X,
            d.y,
            cv=fold,
            scoring=TaskScorer("nmse"),
            params={"task": d.task},
        )
    by_hand = []
    for train, test in fold.split(d.X, task=d.task):
        model = SharedPrior(ranges=d.ranges).fit(d.X[train], d.y[train], task=d.task[train])
        by_hand.append(-nmse(d.y[test], model.predict(d.X[test], task=d.task[test])))
    assert found["test_score"] == pytest.approx(by_hand)


def test_a_search_uses_both() -> None:
    d = data("logistic")
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            SingleTask(loss="logistic", ranges=d.ranges),
            {"fit_intercept": [True, False]},
            cv=TaskKFold(2),
            scoring=TaskScorer("auc_per_task"),
        )
        search.fit(d.X, d.y, task=d.task)
    assert 0 < search.best_score_ <= 1


def test_scores_of_classes_are_those_of_the_decision_function() -> None:
    d = data("logistic")
    model = SingleTask(loss="logistic", ranges=d.ranges).fit(d.X, d.y, task=d.task)
    found = TaskScorer("auc_per_task")(model, d.X, d.y, task=d.task)
    assert found == auc_per_task(d.y, model.decision_function(d.X, task=d.task), d.task)
    custom = TaskScorer(lambda y, predicted, task: float(np.mean(y == predicted)))
    assert custom(model, d.X, d.y, task=d.task) == TaskScorer("accuracy")(
        model, d.X, d.y, task=d.task
    )


def test_wrong_parameters_are_refused() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'nmse'"):
        TaskScorer("nmsee")
    with pytest.raises(InvalidInput, match="at least 2"):
        next(TaskKFold(1).split(np.zeros((3, 1)), task=[0, 0, 1]))
