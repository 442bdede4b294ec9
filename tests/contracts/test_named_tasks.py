"""Every learner finds a task by its canonical text, and takes no class from the data unsaid."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from tacit import (
    AsyncProximal,
    AveragedModel,
    Budget,
    Decomposed,
    GroupSparse,
    Ledger,
    LowRank,
    MeanRegularized,
    Pooled,
    SharedPrior,
    SingleTask,
    TaskRelationship,
)
from tacit.errors import InvalidInput, UnknownTask
from tacit.tasks import TaskSet

PRIVATE: list[Any] = [
    MeanRegularized,
    SharedPrior,
    LowRank,
    GroupSparse,
    Decomposed,
    TaskRelationship,
    AveragedModel,
    AsyncProximal,
]
LEARNERS = [SingleTask, Pooled, *PRIVATE]
RANGES = {0: (-1, 1), 1: (-1, 1), "target": (-2, 2)}
TASK = np.repeat([1, 2, 7], 8)
RNG = np.random.default_rng(5)
X = RNG.uniform(-1, 1, (24, 2))
Y = X @ [1.0, -0.5] + 0.1 * RNG.normal(size=24)


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_task_is_found_however_its_label_is_written(learner: Any) -> None:
    model = learner(ranges=RANGES).fit(X, Y, task=TASK)
    assert model.tasks_ == (1, 2, 7)
    rows = X[:3]
    as_fitted = model.predict(rows, task=[1, 2, 7])
    for asked in (
        ["1", "2", "7"],
        [1.0, 2.0, 7.0],
        np.array([" 1", "2 ", "7"]),
        [1, "2", Decimal(7)],
    ):
        np.testing.assert_array_equal(model.predict(rows, task=asked), as_fitted)
    with pytest.raises(UnknownTask, match="'007'"):
        model.predict(rows, task=["1", "2", "007"])


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_task_cannot_join_again_under_another_spelling(learner: Any) -> None:
    model = learner(ranges=RANGES).fit(X, Y, task=TASK)
    for label in ("7", 7.0, " 7 "):
        with pytest.raises(InvalidInput, match="took part"):
            model.adapt(X[:4], Y[:4], task=label)
    with pytest.raises(InvalidInput, match="expected text"):
        model.adapt(X[:4], Y[:4], task=frozenset("7"))


@pytest.mark.parametrize("learner", PRIVATE)
def test_an_export_finds_the_task_and_keeps_its_label(learner: Any, tmp_path: Path) -> None:
    model = learner(budget=Budget(1.0), ranges=RANGES).fit(X, Y, task=TASK)
    loaded = learner.load(model.export("7", tmp_path / "one"))
    assert loaded.tasks_ == (7,)
    np.testing.assert_array_equal(loaded.predict(X[:2], task=["7", "7"]), loaded.predict(X[:2]))
    with pytest.raises(UnknownTask):
        model.export("07", tmp_path / "none")


@pytest.mark.parametrize("learner", LEARNERS)
def test_scores_of_tasks_go_by_text(learner: Any) -> None:
    model = learner(ranges=RANGES).fit(X, Y, task=TASK)
    schema = model._schema
    numbers = TaskSet.from_arrays(X, Y, TASK, schema=schema)
    texts = TaskSet.from_arrays(X, Y, TASK.astype(str), schema=schema)
    np.testing.assert_array_equal(model.scores_of(numbers), model.scores_of(texts))


def test_a_budget_is_found_by_text() -> None:
    budgets = {"1": Budget(0.5), 2.0: Budget(1.0), "7": Budget(1.0)}
    model: Any = MeanRegularized(budget=budgets, ranges=RANGES).fit(X, Y, task=TASK)
    assert (
        model.ledger_.spent("1").epsilon_at(1e-5) <= 0.5 < model.ledger_.spent(7).epsilon_at(1e-5)
    )


def test_a_budget_for_two_spellings_of_one_task_is_refused() -> None:
    budgets = {1: Budget(0.5), "1": Budget(1.0), 2: Budget(1.0), 7: Budget(1.0)}
    with pytest.raises(InvalidInput, match="budget holds 1 and '1', which are one task"):
        MeanRegularized(budget=budgets, ranges=RANGES).fit(X, Y, task=TASK)


@pytest.mark.parametrize("learner", PRIVATE)
def test_a_new_school_called_a7_gives_nobody_a_new_budget(learner: Any) -> None:
    """With school A7 the column is text: what was spent on 1, 2 and 7 stays spent."""
    ledger = Ledger.in_memory()
    learner(budget=Budget(1.0), ranges=RANGES, ledger=ledger).fit(X, Y, task=TASK)
    more = np.append(TASK.astype(str), ["A7"] * 8)
    second = learner(budget=Budget(1.0), ranges=RANGES, ledger=ledger)
    second.fit(np.vstack([X, X[:8]]), np.append(Y, Y[:8]), task=more)
    assert second.guarantee_.epsilon > 1.99
    assert [ledger.spent(7), ledger.spent("1")] == [ledger.spent("7"), ledger.spent(1.0)]


@pytest.mark.parametrize(
    "labels", [[datetime.date(2020, 1, d) for d in (1, 2, 3)], [Decimal("1.5"), Decimal(2), 3]]
)
def test_labels_that_json_does_not_know_are_kept_by_their_text(labels: Any, tmp_path: Path) -> None:
    task = [label for label in labels for _ in range(8)]
    model = SingleTask(ranges=RANGES).fit(X, Y, task=task)
    again = SingleTask.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict(X, task=task), model.predict(X, task=task))


@pytest.mark.parametrize("learner", LEARNERS)
def test_two_spellings_of_one_task_are_refused_before_anything_is_spent(learner: Any) -> None:
    with pytest.raises(InvalidInput, match="one task"):
        learner(ranges=RANGES).fit(X, Y, task=[1] * 12 + ["1"] * 12)


# Classes


def _classifier_checks() -> list[Any]:
    return [
        pytest.param(estimator, check, id=f"{type(estimator).__name__}-{check.func.__name__}")
        for learner in (SingleTask, MeanRegularized)
        for estimator, check in estimator_checks_generator(learner(loss="logistic"), mark=None)
        if "classif" in check.func.__name__ or "class_" in check.func.__name__
    ]


@pytest.mark.parametrize(("estimator", "check"), _classifier_checks())
def test_scikit_learn_accepts_the_classifier(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("learner", PRIVATE)
@pytest.mark.parametrize("only", [0, 1, 0.0, True, False])
def test_a_fit_does_not_depend_on_which_of_two_conventional_classes_occur(
    learner: Any, only: Any
) -> None:
    model = learner(loss="logistic", budget=Budget(1.0)).fit(X, [only] * 24, task=TASK)
    assert model.classes_.tolist() == [0, 1]
    assert model.guarantee_.proven, model.guarantee_.reason
    assert set(model.predict(X, task=TASK).tolist()) <= {0, 1}


@pytest.mark.parametrize("classes", [(-1, 1), ("no", "yes"), (1, 2)])
def test_other_classes_are_declared_or_a_doubt(classes: Any) -> None:
    y = np.array(classes)[(Y > 0).astype(int)]
    doubted = MeanRegularized(loss="logistic", budget=Budget(1.0)).fit(X, y, task=TASK).guarantee_
    assert (doubted.proven, "classes taken from the data" in doubted.reason) == (False, True)
    for seen in (y, y[[0] * 24]):
        declared = MeanRegularized("logistic", budget=Budget(1.0), ranges={"target": [*classes]})
        assert declared.fit(X, seen, task=TASK).guarantee_.proven
