"""Silos whose people are protected: what is promised, what is released, what stays at home."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from tacit import Budget, Ledger, MeanRegularized, SharedPrior
from tacit.arrays import FloatArray
from tacit.datasets import related_tasks
from tacit.datasets.generators import Generated
from tacit.engine import Unprotected
from tacit.errors import BudgetExceeded, InvalidInput, LedgerError, PrivacyWarning, UntrustedMessage
from tacit.privacy.node_runs import node_run
from tacit.privacy.release import Release


@pytest.fixture(scope="module")
def data() -> Generated:
    return related_tasks(12, (20, 60), 3, test_rows=20, rng=np.random.default_rng(1))


EVERY_LEARNER = pytest.mark.parametrize("learner", [SharedPrior, MeanRegularized])


def silos(
    data: Generated, epsilon: float | None = 3.0, learner: Any = SharedPrior, **more: Any
) -> Any:
    budget = None if epsilon is None else Budget(epsilon)
    given: dict[str, Any] = {"noise": "simulated", "random_state": 0} | more
    return learner(unit="example", budget=budget, ranges=data.ranges, **given)


def fitted(
    data: Generated, epsilon: float | None = 3.0, learner: Any = SharedPrior, **more: Any
) -> Any:
    return silos(data, epsilon, learner, **more).fit(data.X, data.y, task=data.task)


def error(predicted: FloatArray, data: Generated) -> float:
    return float(np.mean((predicted - data.y_test) ** 2))


# --- what is promised ----------------------------------------------------------------------------


@EVERY_LEARNER
def test_the_guarantee_is_of_people_against_everybody_outside(
    learner: Any, data: Generated
) -> None:
    found = fitted(data, learner=learner, noise="secure", random_state=None).guarantee_
    assert found.epsilon == pytest.approx(3.0, rel=1e-6)
    assert found.proven
    assert found.secure_noise
    assert found.unit == "one row in one silo's data, taken as one person"
    assert found.adversary.startswith("everybody outside the silo: the coordinator")
    assert any("home model" in sentence for sentence in found.not_covered)
    assert found.not_covered[-1].startswith(f"delta: one of {len(data.y)} people may leak")


def test_every_silo_spends_from_a_run_of_its_own(data: Generated) -> None:
    ledger = Ledger.in_memory()
    model = fitted(data, ledger=ledger)
    assert model.run_ is not None
    spends = [e.payload["run"] for e in ledger.entries() if e.kind == "spend"]
    assert sorted(set(spends)) == sorted(node_run(model.run_, j) for j in range(12))
    assert all(spends.count(run) == 2 for run in spends)


@EVERY_LEARNER
def test_only_releases_cross_to_others(learner: Any, data: Generated) -> None:
    model = fitted(data, learner=learner)
    sent = [message for sender, _, message in model.transcript_ if sender.startswith("silo")]
    assert len(sent) == 24
    assert all(isinstance(part, Release) for message in sent for part in message.values())
    assert all(isinstance(part, Release) for part in model.shared_.values())


@EVERY_LEARNER
def test_a_silo_that_has_spent_stops_and_the_others_go_on(learner: Any, data: Generated) -> None:
    ledger = Ledger.in_memory(cap=Budget(3.0))
    labels = np.unique(data.task).tolist()
    first = data.task == labels[0]
    silos(data, ledger=ledger).fit(data.X[first], data.y[first], task=data.task[first])
    with pytest.raises(BudgetExceeded):
        fitted(data, ledger=ledger)
    each = {label: Budget(2.0) for label in labels}
    model = learner(
        unit="example",
        budget=each,
        ranges=data.ranges,
        ledger=ledger,
        noise="simulated",
        random_state=0,
    ).fit(data.X, data.y, task=data.task)
    senders = {sender for sender, _, _ in model.transcript_}
    assert "silo 0" not in senders
    assert "silo 1" in senders
    np.testing.assert_allclose(model._models[0], np.asarray(model.shared_["mean"].value))
    assert np.isfinite(model.predict_at_home(data.X_test, task=data.task_test)).all()


def test_a_stricter_silo_spends_less(data: Generated) -> None:
    labels = np.unique(data.task).tolist()
    budgets = {label: Budget(0.5 if label == labels[3] else 3.0) for label in labels}
    ledger = Ledger.in_memory()
    SharedPrior(
        unit="example",
        budget=budgets,
        ranges=data.ranges,
        ledger=ledger,
        noise="simulated",
        random_state=0,
    ).fit(data.X, data.y, task=data.task)
    spent = [ledger.statement([label]).epsilon for label in labels]
    assert spent[3] == pytest.approx(0.5, rel=1e-6)
    assert max(spent) == pytest.approx(3.0, rel=1e-6)


# --- whose rows ----------------------------------------------------------------------------------


def test_rows_that_name_their_person_count_once(data: Generated) -> None:
    """Every row three times over by the same person is the same release."""
    three = np.repeat(np.arange(len(data.y)), 3)
    whose = [f"patient {i}" for i in three]
    once = fitted(data)
    thrice = silos(data).fit(data.X[three], data.y[three], task=data.task[three], person=whose)
    assert thrice.guarantee_.unit == "one person in one silo's data, with all rows that name them"
    for name in ("moments", "scores"):
        np.testing.assert_allclose(thrice.shared_[name].value, once.shared_[name].value, atol=1e-6)


def test_a_person_in_several_silos_is_paid_for_if_declared(data: Generated) -> None:
    one, four = (fitted(data, silos_per_person=count) for count in (1, 4))
    assert four.guarantee_.epsilon == pytest.approx(one.guarantee_.epsilon)
    assert "up to 4 silos" in four.guarantee_.unit
    spread = [np.std(m.shared_["moments"].value - exact(data)) for m in (one, four)]
    assert spread[1] == pytest.approx(2 * spread[0], rel=1e-3)


def exact(data: Generated) -> FloatArray:
    """The moments that silos of ``data`` have, by a release with next to no noise."""
    return np.asarray(fitted(data, 1e6).shared_["moments"].value)


def test_a_silo_that_is_left_out_counts_for_its_people(data: Generated) -> None:
    """What it released before is on the ledger, and a person may be there too: a statement about
    the others alone would say 0.1 where 1.4 was revealed."""
    ledger, one = Ledger.in_memory(), data.task == data.task[0]
    parts = [(Budget(2.0), one), (Budget(0.1), ~one)]

    def fit_part(budget: Budget, rows: Any, among: int) -> Any:
        model = silos(data, ledger=ledger.beside(f"{among}"), silos_per_person=among)
        model.budget = budget
        return model.fit(data.X[rows], data.y[rows], task=data.task[rows])

    for budget, rows in parts:
        assert fit_part(budget, rows, 1).guarantee_.epsilon == pytest.approx(budget.epsilon)
    fit_part(*parts[0], 2)
    with pytest.raises(InvalidInput, match="on the ledger but not in this run"):
        fit_part(*parts[1], 2)
    everybody = fit_part(Budget(0.1), one | ~one, 2)
    assert everybody.guarantee_.epsilon == pytest.approx(2.1)


@pytest.mark.parametrize("first", [1, 2])
def test_where_somebody_may_be_in_several_silos_no_other_promise_is_made(
    data: Generated, first: int
) -> None:
    """A person of the first silos and of a new one: 1 would be said where 10.05 was revealed."""
    ledger, one = Ledger.in_memory(), data.task == data.task[0]

    def fit_part(rows: Any, among: int) -> Any:
        model = silos(data, ledger=ledger, silos_per_person=among)
        return model.fit(data.X[rows], data.y[rows], task=data.task[rows])

    fit_part(~one, first)
    with pytest.raises((InvalidInput, LedgerError), match=r"do not add up|not in this run"):
        fit_part(one, 3 - first)


def test_people_in_several_silos_need_one_budget(data: Generated) -> None:
    budgets = {label: Budget(0.1 + 0.9 * (label == data.task[0])) for label in set(data.task)}
    model = SharedPrior(unit="example", budget=budgets, ranges=data.ranges, silos_per_person=2)
    with pytest.raises(InvalidInput, match="spend the same"):
        model.fit(data.X, data.y, task=data.task)


def test_a_person_in_more_silos_than_declared_is_warned_of(data: Generated) -> None:
    whose = np.arange(len(data.y))
    whose[[0, -1]] = len(data.y)
    given = {"task": data.task, "person": whose}
    with pytest.warns(
        PrivacyWarning, match=r"1 names of people .* more than 1 .*_person=2 charges"
    ):
        silos(data).fit(data.X, data.y, **given)
    silos(data, silos_per_person=2).fit(data.X, data.y, **given)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_a_column_of_a_frame_may_say_whose_row_each_is(data: Generated, frame: Any) -> None:
    columns = {f"x{j}": column for j, column in enumerate(data.X.T)}
    whose = [f"{at}, patient {i // 2}" for i, at in enumerate(data.task)]
    named = frame(columns | {"clinic": data.task, "patient": whose})
    one = silos(data).fit(named, data.y, task="clinic", person="patient")
    two = silos(data).fit(data.X, data.y, task=data.task, person=whose)
    assert one.feature_names_in_.tolist() == list(columns)
    np.testing.assert_array_equal(one.coef_, two.coef_)
    assert one.guarantee_ == two.guarantee_


def test_a_name_of_no_column_or_of_the_tasks_is_refused_as_a_person(data: Generated) -> None:
    frame = pl.DataFrame({"x": data.y, "clinic": data.task})
    for given, said in (
        ("patient", "person is 'patient', and X has no such column"),
        ("clinic", "task and person are both 'clinic'"),
    ):
        with pytest.raises(InvalidInput, match=said):
            silos(data).fit(frame, data.y, task="clinic", person=given)


def test_a_missing_name_is_told_as_one(data: Generated) -> None:
    whose = [None, *range(1, len(data.y))]
    with pytest.raises(InvalidInput, match="person has 1 missing value"):
        silos(data).fit(data.X, data.y, task=data.task, person=whose)


@pytest.mark.parametrize("more", [-5, 5])
def test_persons_must_be_named_for_every_row(data: Generated, more: int) -> None:
    with pytest.raises(InvalidInput, match=f"person names {len(data.y) + more} rows"):
        silos(data).fit(data.X, data.y, task=data.task, person=range(len(data.y) + more))


# --- isolation -----------------------------------------------------------------------------------


def test_a_silos_release_is_a_function_of_its_own_rows(data: Generated) -> None:
    """Moments: whatever the others hold. Simulated noise is each silo's own, so bits compare."""
    base = fitted(data)
    others = data.task != np.unique(data.task)[5]
    X, y = data.X.copy(), data.y.copy()
    X[others], y[others] = X[others][::-1] * 0.5, -y[others]
    changed = silos(data).fit(X, y, task=data.task)
    mine, theirs = (np.asarray(m.shared_["moments"].value) for m in (base, changed))
    np.testing.assert_array_equal(mine[5], theirs[5])
    assert (mine[np.arange(12) != 5] != theirs[np.arange(12) != 5]).any()


def test_shuffled_rows_release_the_same_bits(data: Generated) -> None:
    order = np.random.default_rng(3).permutation(len(data.y))
    base = fitted(data, noise="secure", random_state=None, run="one", ledger=Ledger.in_memory())
    again = silos(data, noise="secure", random_state=None, run="one", ledger=base.ledger_)
    again.fit(data.X[order], data.y[order], task=data.task[order])
    for name, part in base.shared_.items():
        np.testing.assert_array_equal(part.value, again.shared_[name].value)


# --- models --------------------------------------------------------------------------------------


@EVERY_LEARNER
def test_much_budget_is_the_twin(learner: Any, data: Generated) -> None:
    rich, twin = fitted(data, 1e5, learner), fitted(data, None, learner)
    assert isinstance(twin.shared_["mean"], Unprotected)
    np.testing.assert_allclose(rich.home_coef_, twin.coef_, atol=0.02)
    apart = rich.predict(data.X_test, task=data.task_test) - twin.predict(
        data.X_test, task=data.task_test
    )
    assert np.sqrt(np.mean(apart**2)) < 0.1 * np.std(data.y_test)


@EVERY_LEARNER
def test_the_home_model_beats_the_public_one_under_noise(learner: Any, data: Generated) -> None:
    model = fitted(data, 0.5, learner)
    home = model.predict_at_home(data.X_test, task=data.task_test)
    public = model.predict(data.X_test, task=data.task_test)
    assert error(home, data) < error(public, data)


@EVERY_LEARNER
def test_a_silo_that_joins_later_learns_at_home(learner: Any, data: Generated) -> None:
    last = data.task == np.unique(data.task)[-1]
    model = silos(data, learner=learner).fit(data.X[~last], data.y[~last], task=data.task[~last])
    model.adapt(data.X[last], data.y[last], task="new")
    np.testing.assert_allclose(model._models[-1], np.asarray(model.shared_["mean"].value))
    assert np.abs(model._home_models[-1] - model._models[-1]).max() > 0


def test_a_folder_keeps_home_models_and_a_public_one_does_not(
    data: Generated, tmp_path: Path
) -> None:
    model = fitted(data, noise="secure", random_state=None)
    model.save(tmp_path / "all")
    back = SharedPrior.load(tmp_path / "all")
    np.testing.assert_allclose(back.home_coef_, model.home_coef_)
    model.save(tmp_path / "public", public=True)
    assert len(SharedPrior.load(tmp_path / "public")._home_models) == 0
    with pytest.raises(UntrustedMessage):
        fitted(data, None).save(tmp_path / "twin", public=True)


@EVERY_LEARNER
def test_classes_are_learned_by_their_log_odds(learner: Any) -> None:
    rng = np.random.default_rng(4)
    task, X = np.repeat(np.arange(30), 200), rng.uniform(-1, 1, (6000, 2))
    eta = X @ np.array([2.0, -1.0]) + 0.5 + rng.normal(size=30)[task] * 0.5
    y = (rng.random(6000) < 1 / (1 + np.exp(-eta))).astype(int)
    ranges = {0: (-1, 1), 1: (-1, 1), "target": [0, 1]}
    twin = learner("logistic", unit="example", ranges=ranges).fit(X, y, task=task)
    shown = np.asarray(twin.shared_["mean"].value)
    np.testing.assert_allclose(shown, [2.0, -1.0, 0.5], atol=0.3)
    model = learner(
        "logistic", Budget(4.0), unit="example", ranges=ranges, noise="simulated", random_state=0
    )
    model.fit(X, y, task=task)
    assert [line["count"] for line in model.history_[:2]] == [1, 1]  # moments, then scores
    np.testing.assert_allclose(np.asarray(model.shared_["mean"].value), [2.0, -1.0, 0.5], atol=0.5)
    assert model.score(X, y, task=task) > 0.7


def test_categories_are_learned_with_numbers() -> None:
    rng = np.random.default_rng(5)
    task = np.repeat(np.arange(20), 100)
    level = rng.choice(["a", "b", "c"], 2000)
    effect = {"a": 1.0, "b": 0.0, "c": -1.0}
    y = np.array([effect[each] for each in level]) + 0.3 * rng.normal(size=2000)
    X = np.array(level, dtype=object)[:, None]
    model = SharedPrior(
        unit="example",
        budget=Budget(2.0),
        ranges={0: ["a", "b", "c"], "target": (-2, 2)},
        noise="simulated",
        random_state=0,
    ).fit(X, y, task=task)
    shown = model.predict(np.array([["a"], ["b"], ["c"]], dtype=object), task=np.zeros(3))
    np.testing.assert_allclose(shown, [1.0, 0.0, -1.0], atol=0.3)


# --- bad input -----------------------------------------------------------------------------------


def test_a_missing_range_is_refused_before_anything_is_spent(data: Generated) -> None:
    ledger = Ledger.in_memory()
    without = {k: v for k, v in data.ranges.items() if k != "target"}
    with pytest.raises(InvalidInput, match="'target' has no declared range"):
        SharedPrior(unit="example", budget=Budget(1.0), ranges=without, ledger=ledger).fit(
            data.X, data.y, task=data.task
        )
    assert not [entry for entry in ledger.entries() if entry.kind == "run"]


def test_a_silo_with_one_person_takes_part(data: Generated) -> None:
    some = np.ones(len(data.y), dtype=bool)
    some[np.flatnonzero(data.task == data.task[0])[1:]] = False
    model = silos(data).fit(data.X[some], data.y[some], task=data.task[some])
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.home_coef_).all()


def test_huge_rows_are_clipped(data: Generated) -> None:
    X, y = data.X.copy(), data.y.copy()
    X[0], y[0] = 1e12, -1e12
    model = silos(data).fit(X, y, task=data.task)
    moments = np.asarray(model.shared_["moments"].value) - np.asarray(
        fitted(data).shared_["moments"].value
    )
    from tacit.silos.silo_plan import blocks_for

    assert np.linalg.norm(moments) <= blocks_for((0, 0, 0)).sensitivity("replace")
    assert np.isfinite(model.coef_).all()


def test_a_delta_that_is_not_below_one_over_the_people_is_warned_of(data: Generated) -> None:
    model = SharedPrior(
        unit="example",
        budget=Budget(1.0, 1 / len(data.y)),
        ranges=data.ranges,
        noise="simulated",
        random_state=0,
    )
    with pytest.warns(PrivacyWarning, match="one over the number of people"):
        model.fit(data.X, data.y, task=data.task)


def test_zero_out_neighbours_are_refused(data: Generated) -> None:
    budget = Budget(1.0, neighbours="zero-out")
    with pytest.raises(InvalidInput, match="replace neighbours"):
        SharedPrior(unit="example", budget=budget, ranges=data.ranges).fit(
            data.X, data.y, task=data.task
        )


def test_the_folder_is_verified(data: Generated, tmp_path: Path) -> None:
    from tacit.certificate import checked

    model = fitted(data, noise="secure", random_state=None, silos_per_person=2)
    assert not checked(model.save(tmp_path / "all")).problems
    assert not checked(model.save(tmp_path / "public", public=True)).problems


@EVERY_LEARNER
def test_people_are_named_only_where_they_are_protected(learner: Any, data: Generated) -> None:
    with pytest.raises(InvalidInput, match="unit='example'"):
        learner(ranges=data.ranges).fit(data.X, data.y, task=data.task, person=data.task)


@EVERY_LEARNER
def test_a_loaded_model_goes_on_as_it_was(learner: Any, data: Generated, tmp_path: Path) -> None:
    fitted(data, learner=learner, noise="secure", random_state=None).save(tmp_path / "all")
    back = learner.load(tmp_path / "all")
    assert back.unit == "example"
    back.adapt(data.X[:30], data.y[:30], task="new")
    np.testing.assert_allclose(back._models[-1], np.asarray(back.shared_["mean"].value))
