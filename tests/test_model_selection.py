"""Folds that keep every task, and scores that know whose rows they judge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone, is_classifier
from sklearn.inspection import permutation_importance
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tacit import Budget, SharedPrior, SingleTask
from tacit.datasets import related_tasks
from tacit.errors import InvalidInput, PrivacyWarning, UnknownTask
from tacit.metrics import auc_per_task, nmse
from tacit.model_selection import TaskColumn, TaskKFold, TaskScorer


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


# --- the task as a column of X -------------------------------------------------------------------


def with_column(d: Any, kind: str) -> tuple[Any, Any]:
    """X with the task in it, and the column's name."""
    if kind == "array":
        return np.column_stack([d.X[:, :1], d.task, d.X[:, 1:]]), 1
    columns = {"a": d.X[:, 0], "school": [f"0{t}" for t in d.task], "b": d.X[:, 1], "c": d.X[:, 2]}
    return pytest.importorskip(kind).DataFrame(columns), "school"


@pytest.mark.parametrize("kind", ["array", "pandas", "polars"])
def test_tools_that_know_of_X_and_y_alone_find_the_task_in_its_column(kind: str) -> None:
    d = data()
    X, column = with_column(d, kind)
    folds = TaskKFold(3, random_state=1, column=column)
    found = cross_val_score(TaskColumn(SharedPrior(), column), X, d.y, cv=folds)
    by_hand = []
    task = d.task if kind == "array" else np.array([f"0{t}" for t in d.task])
    for train, test in TaskKFold(3, random_state=1).split(d.X, groups=task):
        model = SharedPrior().fit(d.X[train], d.y[train], task=task[train])
        by_hand.append(model.score(d.X[test], d.y[test], task=task[test]))
    assert found == pytest.approx(by_hand)


def test_a_search_sets_the_learners_own_parameters_and_every_score_is_a_number() -> None:
    d = data("logistic")
    X, column = with_column(d, "pandas")
    model = TaskColumn(SharedPrior(loss="logistic"), column, unknown="shared")
    assert is_classifier(model)
    grid = {"estimator__fit_intercept": [True, False]}
    search = GridSearchCV(model, grid, cv=KFold(3, shuffle=True, random_state=0), scoring="roc_auc")
    search.fit(X, d.y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert set(search.predict(X)) <= set(search.classes_)
    scores = permutation_importance(search.best_estimator_, X, d.y, random_state=0, n_repeats=2)
    assert scores.importances_mean.shape == (4,)


def test_every_private_fit_of_a_validation_is_counted() -> None:
    d = data()
    X, column = with_column(d, "array")
    model = TaskColumn(SharedPrior(budget=Budget(1.0), ranges=d.ranges), column)
    with pytest.warns(PrivacyWarning, match="add up"):
        cross_val_score(model, X, d.y, cv=TaskKFold(2, column=column))
    with pytest.warns(PrivacyWarning, match="3 fits"):
        last = clone(model).fit(X, d.y)
    assert last.estimator_.guarantee_.runs == 3


def test_a_column_that_is_not_there_is_named() -> None:
    d = data()
    for column in ("school", 3, -1):
        with pytest.raises(InvalidInput, match=str(column)):
            TaskColumn(SingleTask(), column).fit(d.X, d.y)


def test_scores_without_a_task_name_both_ways_to_say_it() -> None:
    d = data()
    model = SingleTask().fit(d.X, d.y, task=d.task)
    with pytest.raises(InvalidInput, match=r"enable_metadata_routing, or with .*TaskColumn"):
        model.score(d.X, d.y)


def test_a_pipeline_asks_its_score_with_and_without_weights() -> None:
    d = data()
    weights = np.random.default_rng(1).uniform(1, 2, len(d.y))
    with config_context(enable_metadata_routing=True):
        learner = SingleTask().set_score_request(sample_weight=True)
        model = make_pipeline(StandardScaler(), learner).fit(d.X, d.y, task=d.task)
        found = model.predict(d.X, task=d.task)
        assert model.score(d.X, d.y, task=d.task) == pytest.approx(r2_score(d.y, found))
        weighted = model.score(d.X, d.y, task=d.task, sample_weight=weights)
    assert weighted == pytest.approx(r2_score(d.y, found, sample_weight=weights))


def test_folds_that_leave_tasks_out_are_told_what_keeps_them() -> None:
    d = data()
    X = np.column_stack([d.task, d.X])
    model = TaskColumn(SingleTask(), 0).fit(X[d.task < 6], d.y[d.task < 6])
    with pytest.raises(UnknownTask, match="TaskKFold has each task in every fold"):
        model.predict(X)
