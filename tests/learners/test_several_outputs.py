"""Several targets, and more than two classes: one contribution, one release a step, one promise."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tacit import AsyncProximal, Budget, LowRank, MeanRegularized, SharedPrior
from tacit.arrays import Array, FloatArray
from tacit.engine import Step
from tacit.errors import InvalidInput, UndeclaredValue
from tacit.estimator import outputs
from tacit.learners.pooled import Pooled
from tacit.learners.single_task import SingleTask
from tacit.privacy.accounting import gaussian_mu
from tacit.privacy.ledger import Ledger

EVERY: Any = (SharedPrior, MeanRegularized, SingleTask, Pooled)
PRIVATE: Any = (SharedPrior, MeanRegularized)
M, ROWS, D, K = 40, 12, 3, 3
FEATURES: dict[Any, Any] = dict.fromkeys(range(D), (-1.0, 1.0))
CLASSES = ["blue", "green", "red"]


def data(seed: int = 0) -> tuple[FloatArray, FloatArray, Array, Array]:
    """X, three targets within ±9, three classes, and whose the rows are."""
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(M), ROWS)
    X = rng.uniform(-1, 1, (M * ROWS, D))
    W = rng.normal(size=(K, D)) + 0.3 * rng.normal(size=(M, K, D))
    Y = np.clip(np.einsum("nd,nkd->nk", X, W[task]) + 0.1 * rng.normal(size=(M * ROWS, K)), -9, 9)
    return X, Y, np.array(CLASSES)[Y.argmax(axis=1)], task


def ranges_of_targets(count: int = K) -> dict[Any, Any]:
    return FEATURES | {f"target{k}": (-9.0, 9.0) for k in range(count)}


def private(learner: Any, **more: Any) -> Any:
    return learner(budget=Budget(3.0), noise="simulated", random_state=0, **more)


# --- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", EVERY)
@pytest.mark.parametrize("declared", [True, False])
def test_targets_without_privacy_are_learned_as_if_each_were_alone(
    learner: Any, declared: bool
) -> None:
    X, Y, _, task = data()
    both = learner(ranges=ranges_of_targets() if declared else None).fit(X, Y, task=task)
    alone = FEATURES | {"target": (-9.0, 9.0)} if declared else None
    for k in range(K):
        one = learner(ranges=alone).fit(X, Y[:, k], task=task)
        np.testing.assert_array_equal(both.coef_[:, :, k], one.coef_)
        np.testing.assert_array_equal(both.intercept_[:, k], one.intercept_)
        np.testing.assert_array_equal(both.predict(X, task)[:, k], one.predict(X, task))


@pytest.mark.parametrize("learner", EVERY)
def test_classes_without_privacy_are_each_told_from_the_others(learner: Any) -> None:
    X, _, y, task = data()
    model = learner(loss="logistic", ranges=FEATURES | {"target": CLASSES}).fit(X, y, task=task)
    for k, name in enumerate(CLASSES):
        one = learner(loss="logistic", ranges=FEATURES | {"target": [0, 1]})
        one.fit(X, (y == name).astype(int), task=task)
        np.testing.assert_array_equal(model.coef_[:, :, k], one.coef_)
    scores = model.decision_function(X, task)
    np.testing.assert_array_equal(model.predict(X, task), model.classes_[scores.argmax(axis=1)])
    likely = model.predict_proba(X, task)
    np.testing.assert_allclose(likely.sum(axis=1), 1.0)
    np.testing.assert_array_equal(likely.argmax(axis=1), scores.argmax(axis=1))
    assert model.score(X, y, task) > 0.7


@pytest.mark.parametrize("learner", PRIVATE)
def test_one_target_in_two_dimensions_is_one_target(learner: Any) -> None:
    X, Y, _, task = data()
    ranges = FEATURES | {"target": (-9.0, 9.0)}
    flat = private(learner, ranges=ranges).fit(X, Y[:, 0], task=task)
    column = private(learner, ranges=ranges).fit(X, Y[:, :1], task=task)
    np.testing.assert_array_equal(flat.coef_, column.coef_)


@pytest.mark.parametrize("learner", PRIVATE)
def test_two_classes_are_the_binary_case(learner: Any) -> None:
    X, Y, _, task = data()
    names, signs = np.where(Y[:, 0] > 0, "yes", "no"), (Y[:, 0] > 0).astype(int)
    first, second = (
        private(learner, loss="logistic", ranges=FEATURES | {"target": classes})
        for classes in (["no", "yes"], [0, 1])
    )
    first.fit(X, names, task=task)
    second.fit(X, signs, task=task)
    np.testing.assert_array_equal(first.coef_, second.coef_)
    assert first.coef_.shape == (D, M)


# --- what is released ----------------------------------------------------------------------------


@pytest.mark.parametrize("learner", PRIVATE)
@pytest.mark.parametrize("classes", [True, False])
def test_a_step_is_one_release_and_the_run_reveals_its_budget(learner: Any, classes: bool) -> None:
    X, Y, y, task = data()
    one = private(learner, ranges=FEATURES | {"target": (-9.0, 9.0)}).fit(X, Y[:, 0], task=task)
    if classes:
        model = private(learner, loss="logistic", ranges=FEATURES | {"target": CLASSES})
        model.fit(X, y, task=task)
    else:
        model = private(learner, ranges=ranges_of_targets()).fit(X, Y, task=task)
    steps = model.history_
    assert {step["mechanism"]["name"] for step in steps} == {"SideBySide"}
    assert all(step["mechanism"]["count"] == K for step in steps)
    spent = math.sqrt(sum(step["event"]["mu"] ** 2 for step in steps))
    assert spent == pytest.approx(gaussian_mu(3.0, 1e-5), rel=1e-9)
    assert model.guarantee_.epsilon == pytest.approx(one.guarantee_.epsilon, rel=1e-9)
    assert len(steps) <= 2 * len(one.history_)  # not one a target


@pytest.mark.parametrize("learner", PRIVATE)
def test_a_joint_contribution_is_the_same_alone(learner: Any) -> None:
    """The engine holds one task of each run against itself; here all of them, at the first step."""
    X, Y, _, task = data()
    seen: list[Any] = []

    class Noting(outputs.JointTasks):
        def contribute(self, step: Step, shared: Any, state: Any) -> tuple[FloatArray, Any]:
            seen.append((self, step, shared, state))
            return super().contribute(step, shared, state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outputs, "JointTasks", Noting)
        private(learner, ranges=ranges_of_targets()).fit(X, Y, task=task)
    for tasks, step, shared, state in [seen[0], seen[-1]]:
        whole = outputs.JointTasks(tasks.each)
        rows, _ = whole.contribute(step, shared, state)
        if len(rows) == M:
            assert rows.shape[:2] == (M, K)
            for i in (0, 7, M - 1):
                alone, _ = whole.select([i]).contribute(step, shared, state)
                np.testing.assert_array_equal(alone[0], rows[i])


def test_ranges_of_several_targets_are_found_privately() -> None:
    X, Y, _, task = data()
    model = SharedPrior(budget=Budget(30.0), noise="simulated", random_state=0, ranges="private")
    model.fit(X, Y * [1.0, 100.0, 0.01], task=task)
    assert np.asarray(model.shared_["bounds"].value).shape == (D + K, 2)
    assert model.score(X, Y * [1.0, 100.0, 0.01], task) > 0.5


# --- in use --------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [{}, {"target": list(CLASSES)}])
def test_features_have_private_ranges_beside_classes(target: dict[Any, Any]) -> None:
    X, _, labels, task = data()
    ranges: Any = {0: "private", **dict.fromkeys(range(1, D), (-9, 9)), **target}
    model = SharedPrior("logistic", Budget(30.0), ranges=ranges, noise="simulated", random_state=0)
    assert np.shape(model.fit(X, labels, task=task).coef_) == (K, M, D)


@pytest.mark.parametrize("learner", PRIVATE)
def test_classes_join_travel_and_come_back(learner: Any, tmp_path: Path) -> None:
    X, _, y, task = data()
    model = learner(
        loss="logistic", budget=Budget(3.0), ranges=FEATURES | {"target": CLASSES},
        ledger=Ledger.in_memory(),
    ).fit(X, y, task=task)  # fmt: skip
    model.adapt(X[:ROWS], y[:ROWS], task="new")
    again = learner.load(model.save(tmp_path / "all"))
    np.testing.assert_array_equal(again.predict(X, task), model.predict(X, task))
    assert tuple(again.classes_) == tuple(CLASSES)
    own = learner.load(model.export(3, tmp_path / "three"))
    mine = X[task == 3]
    np.testing.assert_array_equal(own.predict_proba(mine), model.predict_proba(mine, [3] * ROWS))
    assert own.coef_.shape == (D, 1, K)
    assert model.predict(X[:2], ["new", "stranger"], unknown="shared").shape == (2,)
    assert model.guarantee_.proven


def test_targets_of_a_frame_are_declared_by_their_names() -> None:
    X, Y, _, task = data()
    frame = pd.DataFrame(Y[:, :2], columns=["maths", "reading"])
    model = SingleTask(ranges=FEATURES | {"maths": (-9, 9), "reading": (-9, 9)})
    found = model.fit(X, frame, task=task).predict(X, task)
    plain = SingleTask(ranges=ranges_of_targets(2)).fit(X, Y[:, :2], task=task)
    np.testing.assert_array_equal(found, plain.predict(X, task))
    joined = model.adapt(X[:3], frame[:3], task="new")
    assert joined.predict(X[:1], ["new"]).shape == (1, 2)


# --- refusals ------------------------------------------------------------------------------------


def test_an_undeclared_class_is_named_with_its_row() -> None:
    X, _, y, task = data()
    y = y.astype(object)
    y[4] = "grey"
    with pytest.raises(UndeclaredValue, match="'grey' in row 4"):
        SharedPrior("logistic", ranges=FEATURES | {"target": CLASSES}).fit(X, y, task=task)


def test_classes_taken_from_the_data_prove_nothing() -> None:
    X, _, y, task = data()
    model = SharedPrior("logistic", Budget(3.0), ranges=FEATURES).fit(X, y, task=task)
    assert not model.guarantee_.proven
    assert "classes taken from the data" in model.guarantee_.reason


@pytest.mark.parametrize(
    "model",
    [
        LowRank(budget=Budget(1.0)),
        AsyncProximal(budget=Budget(1.0)),
        SharedPrior(budget=Budget(1.0), unit="example"),
        MeanRegularized(penalty=1.0),
    ],
)
def test_whoever_has_one_model_a_task_says_so(model: Any) -> None:
    X, Y, y, task = data()
    with pytest.raises(InvalidInput, match="y has 3 targets; SharedPrior in one process"):
        model.set_params(ranges=ranges_of_targets()).fit(X, Y, task=task)
    with pytest.raises(InvalidInput, match="Only binary classification is supported"):
        model.set_params(loss="logistic", ranges=FEATURES | {"target": CLASSES}).fit(X, y, task)


def test_several_targets_are_all_found_or_all_declared() -> None:
    X, Y, _, task = data()
    model = SharedPrior(budget=Budget(3.0), ranges=FEATURES | {"target0": "private"})
    with pytest.raises(InvalidInput, match="declare the range of every target"):
        model.fit(X, Y, task=task)
