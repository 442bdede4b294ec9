"""The trusted side's measurements, against loops that say what is meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_examples import crowd, example, task_sets
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

import tacit
from tacit.errors import InvalidInput
from tacit.json_converter import from_json, to_json
from tacit.privacy.budget import Budget
from tacit.report.leakage import guess_rate, plan, replaced
from tacit.report.local_page import MOST_POINTS, local_page
from tacit.report.local_view import LocalView, measure, read_local
from tacit.report.public_view import public_facts
from tacit.report.refits import variant
from tacit.tasks import TaskSet


def private(loss: Any = "squared", ranges: Any = None) -> Any:
    return tacit.MeanRegularized(
        loss, budget=Budget(2.0), ranges=ranges, noise="simulated", random_state=0
    )


def test_squared_errors_are_those_of_a_loop_over_tasks() -> None:
    data = example()
    training, held_out, schema = task_sets(data)
    model = private(ranges=data.ranges).fit(data.X, data.y, task=data.task)
    view = measure(model, training, held_out, schema)
    predicted = model.predict(data.X_test, task=data.task_test)
    inside = np.clip(data.y_test, schema.target.low, schema.target.high)
    for i, label in enumerate(model.tasks_):
        rows = data.task_test == label
        expected = np.sqrt(np.mean((predicted[rows] - inside[rows]) ** 2))
        assert view.scores["together"].errors[i] == pytest.approx(expected)
    expected = tacit.metrics.nmse(inside, predicted)
    assert view.scores["together"].overall == pytest.approx(expected)


def test_who_has_two_models_is_judged_by_the_one_at_home() -> None:
    data = example()
    training, held_out, schema = task_sets(data)
    kept: dict[str, Any] = {"ranges": data.ranges, "noise": "simulated", "random_state": 0}
    model = tacit.AsyncProximal(budget=Budget(1.0), **kept)
    model.fit(data.X, data.y, task=data.task)
    scores = measure(model, training, held_out, schema).scores
    inside = np.clip(data.y_test, schema.target.low, schema.target.high)
    for way, there in (("together", model._with_home_models()), ("public", model)):
        expected = tacit.metrics.nmse(inside, there.predict(data.X_test, task=data.task_test))
        assert scores[way].overall == pytest.approx(expected)
    assert scores["public"] != scores["together"]


def test_who_has_one_model_has_it_at_home() -> None:
    data = example()
    model = tacit.SharedPrior(ranges=data.ranges).fit(data.X, data.y, task=data.task)
    asked = (data.X_test, data.task_test)
    np.testing.assert_array_equal(model.predict_at_home(*asked), model.predict(*asked))


def test_alone_is_single_task_learning_on_the_same_rows() -> None:
    data = example()
    training, held_out, schema = task_sets(data)
    model = private(ranges=data.ranges).fit(data.X, data.y, task=data.task)
    alone = tacit.SingleTask(ranges=data.ranges).fit(data.X, data.y, task=data.task)
    expected = tacit.metrics.nmse(data.y_test, alone.predict(data.X_test, task=data.task_test))
    found = measure(model, training, held_out, schema).scores["alone"].overall
    assert found == pytest.approx(expected, rel=1e-6)


def test_classes_are_judged_by_accuracy_and_auc() -> None:
    data = example(loss="logistic")
    ranges = {name: value for name, value in data.ranges.items() if name != "target"}
    ranges["target"] = tacit.Column(categories=(-1, 1))
    training, held_out, schema = task_sets(data, ranges)
    model = private("logistic", ranges).fit(data.X, data.y, task=data.task)
    score = measure(model, training, held_out, schema).scores["together"]
    predicted = model.predict(data.X_test, task=data.task_test)
    assert score.overall == pytest.approx(np.mean(predicted == data.y_test))
    areas, shares = [], []
    decided = model.decision_function(data.X_test, task=data.task_test)
    for label in model.tasks_:
        rows = data.task_test == label
        shares.append(np.mean(predicted[rows] != data.y_test[rows]))
        if len(set(data.y_test[rows])) == 2:
            areas.append(roc_auc_score(data.y_test[rows], decided[rows]))
    assert score.errors == pytest.approx(shares)
    assert score.auc == pytest.approx(np.mean(areas))


def test_a_task_without_held_out_rows_has_no_score() -> None:
    data = example()
    training, _, schema = task_sets(data)
    keep = training.select(range(training.n_tasks))
    train, rest = keep.split(0.95, np.random.default_rng(0))
    model = private(ranges=data.ranges).fit_tasks(train, schema)
    view = measure(model, train, rest, schema)
    assert (rest.sizes == 0).any()
    errors = view.scores["together"].errors
    assert [e is None for e in errors] == list(rest.sizes == 0)
    json.dumps(to_json(view), allow_nan=False)


def test_no_held_out_rows_at_all_is_said_on_the_page(fitted_folder: Path) -> None:
    data = example()
    training, _, schema = task_sets(data)
    none = TaskSet(
        training.X[:0], training.y[:0], 0 * training.offsets, training.labels,
        training.order[:0], training.feature_names,
    )  # fmt: skip
    model = private(ranges=data.ranges).fit_tasks(training, schema)
    view = measure(model, training, none, schema)
    assert view.scores["together"].overall is None
    assert "No rows were held out" in local_page(public_facts(fitted_folder), view).html()


def test_other_labels_than_the_model_s_are_refused() -> None:
    data = example()
    training, held_out, schema = task_sets(data)
    model = private(ranges=data.ranges).fit_tasks(training, schema)
    with pytest.raises(InvalidInput, match="equal labels"):
        measure(model, training.select([0, 1]), held_out.select([0, 1]), schema)


def test_a_refit_is_the_fit_of_the_same_rows() -> None:
    data = example()
    training, held_out, schema = task_sets(data)
    model = private(ranges=data.ranges).fit(data.X, data.y, task=data.task)
    again = variant(model, Budget(2.0), 0).fit_tasks(training, schema)
    np.testing.assert_array_equal(again.coef_, model.coef_)
    expected = model.predict(data.X_test, task=data.task_test)
    found = schema.inverse_target(again.scores_of(held_out))
    np.testing.assert_allclose(found[np.argsort(held_out.order)], expected)


def test_a_variant_spends_nothing_on_the_model_s_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.report.leakage.MOST_TASKS", 1)
    monkeypatch.setattr("tacit.report.leakage.MOST_DRAWS", 4)
    data = example()
    training, held_out, schema = task_sets(data)
    with tacit.Ledger(tmp_path / "ledger.sqlite") as ledger:
        model = private(ranges=data.ranges).set_params(ledger=ledger)
        model.fit(data.X, data.y, task=data.task)
        before = ledger.head()
        measure(model, training, held_out, schema, curve=True, epsilons=(1.0,))
        assert ledger.head() == before


def test_measurements_survive_json(fitted_folder: Path) -> None:
    view = read_local(fitted_folder)
    assert view.leakage is not None
    assert from_json(LocalView, json.loads(json.dumps(to_json(view))), "view") == view


@pytest.mark.parametrize("kept", [{}, {"leakage": None, "curve": [1], "scores": {}}])
def test_something_else_is_not_taken_for_measurements(kept: Any) -> None:
    with pytest.raises(InvalidInput, match="needs the entry"):
        from_json(LocalView, kept, "view")


def test_the_curve_leads_from_alone_to_the_twin(fitted_folder: Path) -> None:
    view = read_local(fitted_folder)
    means = [float(np.mean(point.overall)) for point in view.curve]
    alone, open_ = view.scores["alone"].overall, view.scores["open"].overall
    assert alone is not None
    assert open_ is not None
    assert means[-1] < means[0] < alone + 0.05
    assert abs(means[-1] - open_) < abs(means[0] - open_)


# --- leakage -------------------------------------------------------------------------------------


def test_a_replaced_task_differs_and_no_other_does() -> None:
    training, _, _ = task_sets(example())
    other = replaced(training, 3)
    for i in range(training.n_tasks):
        same = all(
            np.array_equal(a, b) for a, b in zip(training.task(i), other.task(i), strict=True)
        )
        assert same == (i != 3)


@pytest.mark.parametrize("shift", [0.0, 0.5, 2.0])
def test_the_observer_guesses_as_the_best_one_does_for_a_gaussian(shift: float) -> None:
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((4000, 3))
    direction = np.array([1.0, 2.0, -2.0]) / 3
    found = guess_rate(noise, noise + shift * direction)
    assert found == pytest.approx(norm.cdf(shift / 2), abs=0.02)


def test_without_noise_the_observer_is_always_right() -> None:
    before = np.zeros((4, 2))
    assert guess_rate(before, before + 1) == 1.0
    assert guess_rate(before, before) == 0.5


def test_the_picture_shows_a_trace_without_protection_and_noise_with_it(
    fitted_folder: Path,
) -> None:
    leakage = read_local(fitted_folder).leakage
    assert leakage is not None
    assert all(leak.change > 0 for leak in leakage.leaks)
    assert all(leak.guess_open == 1.0 for leak in leakage.leaks)
    assert all(leak.guess < leakage.bound for leak in leakage.leaks)
    shown = leakage.picture
    assert shown.task not in shown.others
    replaced_, noise = np.asarray(shown.protected), np.asarray(shown.noise)
    assert 0.2 < np.linalg.norm(replaced_) / np.linalg.norm(noise) < 5


@pytest.mark.parametrize(("n_tasks", "rows"), [(2, 5), (30, 10), (5000, 160), (3, 2_000_000)])
def test_the_number_of_refits_is_bounded(n_tasks: int, rows: int) -> None:
    offsets = np.arange(n_tasks + 1) * rows
    n = n_tasks * rows
    tasks = TaskSet(np.zeros((n, 0)), np.zeros(n), offsets, tuple(range(n_tasks)), np.arange(n), ())
    chosen, draws = plan(tasks)
    assert 1 <= len(chosen) <= n_tasks
    assert draws >= 4
    assert (len(chosen) + 1) * draws * n <= max(1.2e7, 8 * n)


# --- the page ------------------------------------------------------------------------------------


@pytest.mark.parametrize("extra", [0, 1])
def test_above_two_thousand_tasks_no_task_is_on_the_page(extra: int, fitted_folder: Path) -> None:
    judged = MOST_POINTS + extra
    view = crowd(judged * 100 // 99 + 1)  # every hundredth has no held-out row
    said = local_page(public_facts(fitted_folder), view).html()
    n_judged = sum(e is not None for e in view.scores["alone"].errors)
    assert ("secret-label" in said) == (n_judged <= MOST_POINTS)
    assert n_judged in (MOST_POINTS, MOST_POINTS + 1)
    assert n_judged == judged


def test_gains_are_counted_right(fitted_folder: Path) -> None:
    view = read_local(fitted_folder)
    pairs = zip(view.scores["alone"].errors, view.scores["together"].errors, strict=True)
    better = sum(a > t for a, t in pairs if a is not None and t is not None)
    said = (fitted_folder / "report.local.html").read_text(encoding="utf-8")
    assert f"<strong>{better}</strong>schools predict better together" in said
