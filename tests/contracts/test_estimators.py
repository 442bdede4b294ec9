"""What every learner must do, whatever it learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.utils.estimator_checks import estimator_checks_generator
from toy import MeanTarget

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
from tacit.datasets import related_tasks
from tacit.datasets.generators import Generated
from tacit.engine import Outcome, Unprotected
from tacit.errors import (
    BudgetExceeded,
    InvalidInput,
    MissingValues,
    NotPure,
    PrivacyWarning,
    TacitError,
    UndeclaredValue,
    UnknownTask,
    UntrustedMessage,
)
from tacit.privacy.release import Declared, Release

MODEL_PROTECTED = [LowRank, GroupSparse, Decomposed, TaskRelationship, AveragedModel]
RELEASED_MODELS = [TaskRelationship, AveragedModel, AsyncProximal]  # coef_ is itself a release
PRIVATE: list[Any] = [
    MeanRegularized,
    SharedPrior,
    *MODEL_PROTECTED,
    AsyncProximal,
    MeanTarget,
]
LEARNERS = [SingleTask, Pooled, *PRIVATE]
CANNOT = {
    "check_dtype_object": "a dict in a cell is an InvalidInput (a ValueError), not a TypeError",
    "check_fit2d_1sample": "a task with one row is allowed, and so is one row in all",
}


@pytest.fixture(scope="module")
def data() -> Generated:
    return related_tasks(40, (3, 12), 4, test_rows=5, rng=np.random.default_rng(1))


def private(learner: Any, data: Generated, epsilon: float = 2.0, **more: Any) -> Any:
    return learner(budget=Budget(epsilon), ranges=data.ranges, **more)


def labelled(data: Generated) -> Any:
    return np.array([f"school {t}" for t in data.task])


def _checks() -> list[Any]:
    cases = []
    for learner in LEARNERS:
        for estimator, check in estimator_checks_generator(learner(), mark=None):
            name = getattr(check, "func", check).__name__
            cases.append(pytest.param(estimator, check, name, id=f"{learner.__name__}-{name}"))
    return cases


@pytest.mark.parametrize(("estimator", "check", "name"), _checks())
def test_scikit_learn_accepts_the_estimator(estimator: Any, check: Any, name: str) -> None:
    if name in CANNOT:
        pytest.skip(CANNOT[name])
    check(estimator)


@pytest.mark.parametrize("learner", LEARNERS)
def test_any_label_predicts_its_own_rows(learner: Any, data: Generated) -> None:
    model = learner(ranges=data.ranges).fit(data.X, data.y, task=labelled(data))
    assert model.coef_.shape == (4, 40)
    assert model.intercept_.shape == (40,)
    row = data.X[:1]
    label = labelled(data)[:1]
    by_hand = (
        row @ model.coef_[:, model.tasks_.index(label[0])]
        + model.intercept_[model.tasks_.index(label[0])]
    )
    np.testing.assert_allclose(model.predict(row, task=label), by_hand, rtol=1e-9)


@pytest.mark.parametrize("learner", LEARNERS)
def test_the_order_of_rows_does_not_matter(learner: Any, data: Generated) -> None:
    shuffled = np.random.default_rng(0).permutation(len(data.y))
    one = learner(ranges=data.ranges).fit(data.X, data.y, task=data.task)
    other = learner(ranges=data.ranges).fit(
        data.X[shuffled], data.y[shuffled], task=data.task[shuffled]
    )
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("learner", LEARNERS)
def test_an_unknown_task_is_an_error_or_gets_the_shared_model(
    learner: Any, data: Generated
) -> None:
    model = learner(ranges=data.ranges).fit(data.X, data.y, task=data.task)
    with pytest.raises(UnknownTask, match="nobody"):
        model.predict(data.X[:2], task=["nobody", "nobody"])
    shared = model.predict(data.X[:2], task=["nobody", "nobody"], unknown="shared")
    assert np.isfinite(shared).all()
    np.testing.assert_array_equal(model.predict(data.X[:2], unknown="shared"), shared)
    for use in (model.predict, lambda X: model.score(X, data.y[:2])):
        with pytest.raises(InvalidInput, match=r"task is None, but each of the .* fitted tasks"):
            use(data.X[:2])


@pytest.mark.parametrize("learner", LEARNERS)
def test_saving_and_loading_predicts_the_same(
    learner: Any, data: Generated, tmp_path: Path
) -> None:
    model = learner(ranges=data.ranges).fit(data.X, data.y, task=labelled(data))
    again = learner.load(model.save(tmp_path / "model"))
    rows, labels = data.X[:9], labelled(data)[:9]
    np.testing.assert_array_equal(again.predict(rows, labels), model.predict(rows, labels))
    assert again.guarantee_ == model.guarantee_


@pytest.mark.parametrize("learner", LEARNERS)
def test_logistic_models_give_labels_and_probabilities(learner: Any) -> None:
    data = related_tasks(20, (4, 9), 3, loss="logistic", rng=np.random.default_rng(2))
    said = np.where(data.y > 0, "yes", "no")
    ranges = {**data.ranges, "target": ["no", "yes"]}
    model = learner(loss="logistic", ranges=ranges).fit(data.X, said, task=data.task)
    probability = model.predict_proba(data.X, task=data.task)
    np.testing.assert_allclose(probability.sum(1), 1)
    assert set(model.predict(data.X, task=data.task)) <= {"no", "yes"}
    assert model.score(data.X, said, task=data.task) > 0.6


@pytest.mark.parametrize("learner", LEARNERS)
def test_bad_input_is_refused_with_where_and_what(learner: Any, data: Generated) -> None:
    X, y, task = data.X.copy(), data.y.copy(), data.task
    X[3, 1] = np.nan
    with pytest.raises(MissingValues, match="1 missing value"):
        learner().fit(X, y, task=task)
    X[3, 1] = np.inf
    with pytest.raises(InvalidInput, match="inf"):
        learner().fit(X, y, task=task)
    with pytest.raises(InvalidInput):
        learner().fit(data.X, y[:-1], task=task)
    with pytest.raises(InvalidInput):
        learner().fit(data.X, y, task=task[:-1])
    if not learner()._takes_several:
        with pytest.raises(InvalidInput, match=r"neural\.FederatedMTL"):
            learner(loss="logistic").fit(data.X, np.arange(len(y)) % 3, task=task)
    with pytest.raises(InvalidInput, match="loss"):
        learner(loss="hinge").fit(data.X, y, task=task)
    ranges = {"target": ["no", "yes"]}
    with pytest.raises(UndeclaredValue):
        learner(loss="logistic", ranges=ranges).fit(data.X, ["perhaps"] * len(y), task=task)


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_constant_targets_one_row_and_identical_rows_give_a_finite_model(
    learner: Any, loss: str
) -> None:
    X = np.array([[0.0, 1.0], [0.0, 1.0], [0.5, -1.0]])
    for y in ([1, 1, 1], [1, -1, 1], [0.0, 0.0, 0.0]):
        if loss == "logistic" and y == [0.0, 0.0, 0.0]:
            continue
        ranges = {"target": [-1, 1]} if loss == "logistic" else None
        model = learner(loss=loss, ranges=ranges).fit(X, y, task=[0, 0, 1])
        assert np.isfinite(model.coef_).all()
        assert np.isfinite(model.intercept_).all()


# --- private learners ----------------------------------------------------------------------------


@pytest.mark.parametrize("learner", PRIVATE)
def test_the_guarantee_is_the_budget_and_said_in_full(learner: Any, data: Generated) -> None:
    model = private(learner, data).fit(data.X, data.y, task=data.task)
    promised = model.guarantee_
    assert 1.99 < promised.epsilon <= 2.0
    assert promised.delta == 1e-5
    assert promised.proven
    assert promised.secure_noise
    assert promised.not_covered
    assert model.history_[-1]["epsilon"] <= 2.0
    assert model.ledger_.verify(model.ledger_.head()).ok


@pytest.mark.parametrize("learner", PRIVATE)
def test_what_is_shared_went_through_the_door_or_was_declared(
    learner: Any, data: Generated
) -> None:
    model = private(learner, data).fit(data.X, data.y, task=data.task)
    assert all(isinstance(part, Release | Declared) for part in model.shared_.values())
    assert any(isinstance(part, Release) for part in model.shared_.values())
    for _, _, message in model.transcript_:
        assert all(isinstance(part, Release | Declared) for part in message.values())
    twin = learner(ranges=data.ranges).fit(data.X, data.y, task=data.task)
    assert any(isinstance(part, Unprotected) for part in twin.shared_.values())
    assert not twin.guarantee_.proven
    assert twin.guarantee_.epsilon == float("inf")


@pytest.mark.parametrize("learner", PRIVATE)
def test_doubts_are_said(learner: Any, data: Generated) -> None:
    simulated = private(learner, data, noise="simulated", random_state=0)
    assert "simulated" in simulated.fit(data.X, data.y, task=data.task).guarantee_.reason
    measured = learner(budget=Budget(2.0), ranges="from-data")
    fitted = measured.fit(data.X, data.y, task=data.task)
    assert not fitted.guarantee_.proven
    assert "from-data" in fitted.guarantee_.reason


@pytest.mark.parametrize("learner", PRIVATE)
def test_a_simulation_is_reproducible_and_secure_noise_is_not(
    learner: Any, data: Generated
) -> None:
    def released(**more: Any) -> list[str]:
        model = private(learner, data, random_state=3, **more)
        entries = model.fit(data.X, data.y, task=data.task).ledger_.entries()
        return [entry.payload["sha256"] for entry in entries if entry.kind == "output"]

    assert released(noise="simulated") == released(noise="simulated")
    assert not set(released()) & set(released())


@pytest.mark.parametrize("learner", PRIVATE)
def test_a_spent_cap_stops_the_second_fit_before_any_noise(
    learner: Any, data: Generated, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger(path, cap=Budget(1.2)) as ledger:
        private(learner, data, 1.0, ledger=ledger).fit(data.X, data.y, task=data.task)
        before = ledger.head()
    with pytest.raises(BudgetExceeded, match="left of"):
        private(learner, data, 1.0, ledger=path).fit(data.X, data.y, task=data.task)
    with Ledger(path) as ledger:
        assert ledger.head() == before


@pytest.mark.parametrize("learner", PRIVATE)
def test_two_fits_on_one_ledger_add_up_in_epsilon_and_delta(
    learner: Any, data: Generated, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.sqlite"
    first = private(learner, data, 1.0, ledger=path).fit(data.X, data.y, task=data.task)
    second = private(learner, data, 2.0, ledger=path).fit(data.X, data.y, task=data.task)
    assert 0.99 < first.guarantee_.epsilon <= 1.0
    assert 1.99 < second.guarantee_.run_epsilon <= 2.0
    whole = first.guarantee_.epsilon + second.guarantee_.run_epsilon
    assert second.guarantee_.epsilon == pytest.approx(whole)
    assert second.guarantee_.delta == pytest.approx(2e-5)
    assert second.guarantee_.runs == 2
    assert second.guarantee_.after_output
    assert "chosen after seeing output" in str(second.guarantee_)


@pytest.mark.parametrize("learner", PRIVATE)
def test_fits_under_a_cap_stay_within_it(learner: Any, data: Generated) -> None:
    with Ledger.in_memory(cap=Budget(2.0)) as ledger:
        for epsilon in (1.0, 1.2):
            model = private(learner, data, epsilon, ledger=ledger)
            model.fit(data.X, data.y, task=data.task)
    assert model.guarantee_.epsilon == 2.0
    assert model.guarantee_.delta == pytest.approx(2e-5)  # the first fit's own price is a rung too
    assert not model.guarantee_.after_output


@pytest.mark.parametrize("learner", PRIVATE)
def test_a_doubtful_fit_makes_later_ones_doubtful(learner: Any, data: Generated) -> None:
    ledger = Ledger.in_memory()
    private(learner, data, ledger=ledger, noise="simulated").fit(data.X, data.y, task=data.task)
    model = private(learner, data, ledger=ledger).fit(data.X, data.y, task=data.task)
    assert not model.guarantee_.proven
    assert not model.guarantee_.secure_noise
    assert "simulated noise" in model.guarantee_.reason


@pytest.mark.parametrize("learner", PRIVATE)
def test_refits_and_clones_without_a_ledger_add_up_and_say_so(
    learner: Any, data: Generated
) -> None:
    model = private(learner, data).fit(data.X, data.y, task=data.task)
    assert model.guarantee_.proven
    with pytest.warns(PrivacyWarning, match="add up"):
        model.fit(data.X, data.y, task=data.task)
    assert model.guarantee_.runs == 2
    assert model.guarantee_.proven
    twin = clone(model)
    with pytest.warns(PrivacyWarning, match="3 fits"):
        twin.fit(data.X, data.y, task=data.task)
    assert twin.guarantee_.runs == 3
    assert "grid search" in twin.guarantee_.reason
    assert not twin.guarantee_.proven


@pytest.mark.parametrize("learner", PRIVATE)
def test_the_same_run_resumes_with_the_same_numbers_and_spends_once(
    learner: Any, data: Generated, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.sqlite"
    first = private(learner, data, ledger=path, run="one").fit(data.X, data.y, task=data.task)
    again = private(learner, data, ledger=path, run="one").fit(data.X, data.y, task=data.task)
    np.testing.assert_array_equal(first.coef_, again.coef_)
    assert again.guarantee_.epsilon == first.guarantee_.epsilon


@pytest.mark.parametrize("learner", PRIVATE)
def test_tasks_may_have_different_budgets(learner: Any, data: Generated) -> None:
    budgets = {t: Budget(0.5 if t == 0 else 2.0) for t in range(40)}
    model = learner(budget=budgets, ranges=data.ranges).fit(data.X, data.y, task=data.task)
    assert model.ledger_.statement([0]).epsilon <= 0.5
    assert 1.99 < model.ledger_.statement([1]).epsilon <= 2.0
    del budgets[39]
    with pytest.raises(InvalidInput, match="no budget for task 39"):
        learner(budget=budgets, ranges=data.ranges).fit(data.X, data.y, task=data.task)


@pytest.mark.parametrize("learner", PRIVATE)
def test_delta_zero_names_the_pure_mechanisms(learner: Any, data: Generated) -> None:
    with pytest.raises(NotPure, match="LaplaceSum"):
        learner(budget=Budget(1.0, 0.0)).fit(data.X, data.y, task=data.task)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan"), float("inf"), "1"])
def test_a_budget_needs_a_positive_epsilon(epsilon: Any) -> None:
    with pytest.raises(TacitError, match="epsilon"):
        Budget(epsilon)


@pytest.mark.parametrize("delta", [-1e-9, 1.0, float("nan")])
def test_a_budget_needs_a_delta_below_one(delta: float) -> None:
    with pytest.raises(TacitError, match="delta"):
        Budget(1.0, delta)


@pytest.mark.parametrize("learner", PRIVATE)
def test_a_new_task_adapts_for_free(learner: Any, data: Generated) -> None:
    model = private(learner, data).fit(data.X, data.y, task=data.task)
    head = model.ledger_.head()
    others = model.coef_.copy()
    model.adapt(data.X_test[:5], data.y_test[:5], task="new")
    assert model.ledger_.head() == head
    np.testing.assert_array_equal(model.coef_[:, :-1], others)
    assert np.isfinite(model.predict(data.X_test[:1], task=["new"])).all()
    with pytest.raises(InvalidInput, match="took part"):
        model.adapt(data.X_test[:5], data.y_test[:5], task=0)


def _numbers(folder: Path) -> set[bytes]:
    """Every float64 of the folder's files, at every byte offset."""
    content = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
    return {content[i : i + 8] for i in range(len(content) - 7)}


@pytest.mark.parametrize("learner", [each for each in PRIVATE if each is not AsyncProximal])
def test_an_export_holds_no_number_of_another_task(
    learner: Any, data: Generated, tmp_path: Path
) -> None:
    model = private(learner, data).fit(data.X, data.y, task=labelled(data))
    own = model.tasks_.index("school 3")
    exported = _numbers(model.export("school 3", tmp_path / "one"))
    public = _numbers(model.save(tmp_path / "all", public=True))
    everything = _numbers(model.save(tmp_path / "private"))
    stored = getattr(model._models, "models", model._models)  # of networks: their parameters
    for i, column in enumerate(np.asarray(stored)):
        found = [number.tobytes() in exported for number in column]
        assert all(found) if i == own else not any(found)
        assert not any(number.tobytes() in public for number in column)
        assert all(number.tobytes() in everything for number in column)
    text = b"".join(path.read_bytes() for path in (tmp_path / "one").iterdir())
    assert b"school 3" in text
    assert b"school 4" not in text
    loaded = learner.load(tmp_path / "one")
    rows = data.X_test[:3]
    np.testing.assert_array_equal(
        loaded.predict(rows, ["school 3"] * 3), model.predict(rows, ["school 3"] * 3)
    )


@pytest.mark.parametrize("learner", PRIVATE)
def test_no_other_tasks_model_changes_given_the_same_releases(
    learner: Any, data: Generated
) -> None:
    """The billboard lemma, literally: others see a task through the releases alone."""
    model = private(learner, data).fit(data.X, data.y, task=data.task)
    y = data.y.copy()
    y[data.task == 0] = -y[data.task == 0]
    other = private(learner, data)
    other._run = lambda home, door, progress: Outcome(model.shared_)
    other._recorded_runs = lambda door: []
    other.fit(data.X, y, task=data.task)
    np.testing.assert_array_equal(other.coef_[:, 1:], model.coef_[:, 1:])
    if learner not in RELEASED_MODELS:
        assert not np.allclose(other.coef_[:, 0], model.coef_[:, 0])


@pytest.mark.parametrize("learner", LEARNERS)
def test_data_frames_and_missing_categories_work(learner: Any) -> None:
    import pandas as pd

    frame = pd.DataFrame(
        {"age": [20.0, 30.0, 40.0, 50.0], "plan": ["a", "b", None, "a"], "school": list("xxyy")}
    )
    from tacit import Column

    ranges = {"age": (0, 100), "plan": Column(categories=("a", "b"), missing="category")}
    model = learner(ranges=ranges).fit(frame[["age", "plan"]], [1.0, 2, 3, 4], task=frame["school"])
    assert model.predict(frame[["age", "plan"]], task=frame["school"]).shape == (4,)
    assert list(model.feature_names_in_) == ["age", "plan"]


VALUES = st.sampled_from([0.0, 1.0, -1.0, 0.5, 1e-300, 1e90, 1e300, -1e300])


@st.composite
def inputs(draw: Any) -> tuple[Any, Any, Any]:
    """Mostly well formed, so that the values are what is tried; sometimes spoilt in one place."""
    n = draw(st.integers(1, 6))
    rows = draw(st.lists(st.lists(VALUES, min_size=2, max_size=2), min_size=n, max_size=n))
    y: list[Any] = draw(st.lists(VALUES, min_size=n, max_size=n))
    task: list[Any] = draw(st.lists(st.sampled_from(["a", "b", 3]), min_size=n, max_size=n))
    spoilt = draw(st.sampled_from(["nothing", "nothing", "row", "y", "task", "length"]))
    if spoilt == "row":
        rows[0][1] = draw(st.sampled_from([np.nan, np.inf, None, "text"]))
    elif spoilt == "y":
        y[0] = draw(st.sampled_from([np.nan, -np.inf, None, "text"]))
    elif spoilt == "task":
        task[0] = draw(st.sampled_from([None, float("nan"), ("x", 1)]))
    elif spoilt == "length":
        y.append(1.0)
    return rows, y, task


@settings(max_examples=150)
@given(given_input=inputs(), private=st.booleans(), learner=st.sampled_from(LEARNERS))
def test_any_input_gives_a_finite_model_or_an_error_of_ours(
    given_input: Any, private: bool, learner: Any
) -> None:
    rows, y, task = given_input
    model = learner(budget=Budget(1.0)) if private and learner in PRIVATE else learner()
    try:
        model.fit(rows, y, task=task)
    except TacitError:
        return
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.intercept_).all()


@pytest.mark.parametrize("learner", PRIVATE)
def test_nothing_of_a_twin_leaves_the_trusted_side(
    learner: Any, data: Generated, tmp_path: Path
) -> None:
    twin = learner(ranges=data.ranges).fit(data.X, data.y, task=data.task)
    with pytest.raises(UntrustedMessage, match="without a budget"):
        twin.save(tmp_path / "public", public=True)
    with pytest.raises(UntrustedMessage, match="without a budget"):
        twin.export(3, tmp_path / "one")
    assert not list(tmp_path.iterdir())
    twin.save(tmp_path / "private")
