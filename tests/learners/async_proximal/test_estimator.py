"""AsyncProximal as a user sees it: what is released, what stays at home, and what is promised."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit import AsyncProximal, Budget, Ledger, SingleTask
from tacit.datasets import related_tasks
from tacit.datasets.generators import Generated
from tacit.engine import Unprotected
from tacit.engine.arrivals import Moment, Parties, run_arrivals
from tacit.engine.latencies import Pareto, Straggler, Uniform
from tacit.errors import BudgetExceeded, InvalidInput, UntrustedMessage
from tacit.learners.async_proximal.formulations import FORMULATIONS
from tacit.learners.async_proximal.refit import others_of_each, others_of_newcomer
from tacit.metrics import nmse_per_task
from tacit.privacy.accounting import gaussian_mu
from tacit.privacy.node_runs import node_run
from tacit.privacy.release import Declared, Release

NODES = 6


@pytest.fixture(scope="module")
def data() -> Generated:
    return related_tasks(NODES, 40, 4, test_rows=40, rng=np.random.default_rng(7))


def fitted(data: Generated, budget: Any = None, **more: Any) -> Any:
    known: dict[str, Any] = {"budget": budget or Budget(4.0), "ranges": data.ranges, "releases": 3}
    return AsyncProximal(**(known | more)).fit(data.X, data.y, task=data.task)


def simulated(data: Generated, **more: Any) -> Any:
    return fitted(data, noise="simulated", random_state=5, **more)


# --- nothing but the mechanism -------------------------------------------------------------------


def test_one_example_changes_nothing_that_is_carried_between_rounds() -> None:
    """Given the same noisy messages: P, Q, the transcript and the order are the same bits."""
    data = related_tasks(NODES, 40, 4, rng=np.random.default_rng(7))
    ledger = Ledger.in_memory()
    one = fitted(data, ledger=ledger, run="run")
    spent = [ledger.spent(t) for t in range(NODES)]
    X, y = data.X.copy(), data.y.copy()
    X[0], y[0] = 1.0, -y[0]
    other = AsyncProximal(
        budget=Budget(4.0), ranges=data.ranges, releases=3, ledger=ledger, run="run"
    ).fit(X, y, task=data.task)
    for name in ("P", "Q", "trust"):
        np.testing.assert_array_equal(one.shared_[name].value, other.shared_[name].value)
    assert [sent for sent, _, _ in one.transcript_] == [sent for sent, _, _ in other.transcript_]
    for (_, _, a), (_, _, b) in zip(one.transcript_, other.transcript_, strict=True):
        np.testing.assert_array_equal(a["gradient"].value, b["gradient"].value)
    assert [ledger.spent(t) for t in range(NODES)] == spent
    assert not np.array_equal(one.home_coef_[:, 0], other.home_coef_[:, 0])
    np.testing.assert_array_equal(one.home_coef_[:, 1:], other.home_coef_[:, 1:])


def test_p_and_q_are_made_of_the_messages_and_are_what_the_run_ended_with(data: Generated) -> None:
    found: dict[str, Any] = {}

    def watched(parties: Parties, schedule: Any) -> Moment:
        end = run_arrivals(parties, schedule)
        found.update(P=parties.server.shared(end.server), nodes=end.nodes)  # type: ignore[attr-defined]  # ours has it
        return end

    model = AsyncProximal(
        budget=Budget(4.0),
        ranges=data.ranges,
        releases=5,
        noise="simulated",
        random_state=5,
    )
    model._engine = watched
    model.fit(data.X, data.y, task=data.task)
    P = model.shared_["P"]
    assert isinstance(P, Release)
    np.testing.assert_array_equal(P.value, found["P"])
    assert len(P.source) == 5 * NODES
    for q, column in zip(found["nodes"], model.shared_["Q"].value.T, strict=True):
        assert len({key.run for key in q.source}) == 1
        np.testing.assert_array_equal(q.value, column)


def test_the_plan_does_not_look_at_the_data() -> None:
    rng = np.random.default_rng(0)
    data = related_tasks(NODES, 40, 4, rng=rng)
    loud = AsyncProximal(budget=Budget(4.0), ranges=data.ranges).fit(
        np.sign(data.X), np.sign(data.y), task=data.task
    )
    quiet = AsyncProximal(budget=Budget(4.0), ranges=data.ranges).fit(
        data.X * 1e-3, data.y * 0, task=data.task
    )
    for one, other in zip(loud.history_, quiet.history_, strict=True):
        assert one["mechanism"] == other["mechanism"]
        assert one["count"] == other["count"]
    np.testing.assert_array_equal(loud.shared_["trust"].value, quiet.shared_["trust"].value)


def test_everything_that_reaches_the_server_is_a_release(data: Generated) -> None:
    model = fitted(data)
    assert len(model.transcript_) == 3 * NODES
    for sender, receiver, message in model.transcript_:
        assert sender.startswith("node")
        assert receiver == "server"
        assert all(isinstance(part, Release) for part in message.values())
    assert isinstance(model.shared_["P"], Release)
    assert len(model.shared_["P"].source) == 3 * NODES


def test_a_replay_gives_the_same_bits(data: Generated) -> None:
    one, other = simulated(data), simulated(data)
    np.testing.assert_array_equal(one.coef_, other.coef_)
    np.testing.assert_array_equal(one.home_coef_, other.home_coef_)
    slow = simulated(data, latency=Straggler(Uniform(), slow=(2,)))
    assert not np.array_equal(one.coef_, slow.coef_)  # another order of arrival
    assert [line["count"] for line in slow.history_] == [3] * NODES


# --- spending ------------------------------------------------------------------------------------


def test_every_node_has_a_run_of_its_own_and_spends_what_it_sent(data: Generated) -> None:
    budgets = {t: Budget(1.0 if t == 2 else 4.0) for t in range(NODES)}
    model = fitted(data, budgets, latency=Pareto())
    entries = model.ledger_.entries()
    for t in range(NODES):
        runs = [e for e in entries if e.kind == "run" and e.payload["tasks"] == [str(t)]]
        assert [e.payload["run"] for e in runs] == [node_run(model.run_, t)]
        assert model.ledger_.spent(t).epsilon_at(1e-5) == pytest.approx(budgets[t].epsilon)
    assert model.guarantee_.epsilon == pytest.approx(4.0)  # the largest of all nodes
    assert model.ledger_.verify().ok


def test_a_node_that_has_spent_its_cap_stops_and_the_others_go_on(data: Generated) -> None:
    ledger = Ledger.in_memory(cap=Budget(3.0))
    fitted(data, {t: Budget(3.0 if t == 2 else 1.0) for t in range(NODES)}, ledger=ledger)
    with pytest.raises(BudgetExceeded, match="2"):
        fitted(data, Budget(1.0), ledger=ledger)
    model = fitted(data, dict.fromkeys(range(NODES), Budget(1.0)), ledger=ledger)
    assert [line["node"] for line in model.history_] == [0, 1, 3, 4, 5]
    assert ledger.spent(2).epsilon_at(1e-5) == pytest.approx(3.0)
    assert ledger.spent(3).mu_squared == pytest.approx(2 * gaussian_mu(1.0, 1e-5) ** 2)
    assert np.isfinite(model.coef_).all()


# --- variants ------------------------------------------------------------------------------------


def test_the_guarantee_is_said_in_full(data: Generated) -> None:
    promised = fitted(data).guarantee_
    assert promised.unit == "one example in one node's data"
    assert promised.neighbours == "replace"
    assert promised.adversary.startswith("the server and all other nodes")
    assert any("two nodes" in line for line in promised.not_covered)
    assert promised.proven
    assert promised.secure_noise
    trusted = fitted(data, server="trusted").guarantee_
    assert trusted.adversary.startswith("all other nodes")
    assert any("operator of the server" in line for line in trusted.not_covered)


def test_gamma_noise_is_pure_as_far_as_floats_are(data: Generated) -> None:
    model = fitted(data, Budget(4.0, 0.0), mechanism="gamma")
    assert model.guarantee_.epsilon == pytest.approx(4.0)
    assert model.guarantee_.delta == 0
    assert not model.guarantee_.secure_noise
    assert not model.guarantee_.proven
    assert "δ = 0 holds of the ideal mechanism" in model.guarantee_.reason
    composed = fitted(data, Budget(4.0), mechanism="gamma", releases=40)
    assert composed.guarantee_.epsilon == pytest.approx(4.0, rel=1e-3)
    assert (composed.guarantee_.delta, composed.guarantee_.proven) == (1e-5, True)


def test_a_secret_sample_is_amplified_and_its_assumption_is_said(data: Generated) -> None:
    budget = Budget(0.3, neighbours="zero-out")  # strong noise: its PLD is quick
    model = fitted(data, budget, sampling_rate=0.3, rows=40, releases=2)
    assert model.guarantee_.proven
    assert 0.295 < model.guarantee_.epsilon <= 0.3
    sampled = model.history_[0]["mechanism"]["of"]["sigma"] / 0.3
    whole = fitted(data, budget, rows=40, releases=2).history_[0]["mechanism"]["sigma"]
    assert sampled < 3 * whole  # against 1/0.3 without amplification
    doubted = simulated(data, budget=Budget(0.3), sampling_rate=0.3, releases=2).guarantee_
    assert not doubted.proven
    assert "assumed, not proven" in doubted.reason
    assert "seeded coins" in doubted.reason


def test_under_zero_out_the_number_of_rows_is_declared(data: Generated) -> None:
    budget = Budget(2.0, neighbours="zero-out")
    with pytest.raises(InvalidInput, match="declare rows"):
        fitted(data, budget)
    with pytest.raises(InvalidInput, match="no number for node 5"):
        fitted(data, budget, rows=dict.fromkeys(range(5), 40))
    half = fitted(data, budget, rows=dict.fromkeys(map(str, range(6)), 40))  # found by their text
    assert half.guarantee_.neighbours == "zero-out"


def test_a_trusted_server_adds_noise_once_for_all_nodes(data: Generated) -> None:
    budgets = {t: Budget(1.0 if t == 2 else 4.0) for t in range(NODES)}
    model = fitted(data, budgets, server="trusted")
    runs = [e for e in model.ledger_.entries() if e.kind == "run"]
    assert len(runs) == 1
    assert model.ledger_.spent(2).epsilon_at(1e-5) == pytest.approx(1.0)
    assert model.ledger_.spent(3).epsilon_at(1e-5) == pytest.approx(4.0)
    np.testing.assert_array_equal(model.coef_[:, 0], model.coef_[:, 1])
    with pytest.raises(InvalidInput, match="sampling_rate"):
        fitted(data, server="trusted", sampling_rate=0.5)


def test_the_published_algorithm_is_only_a_claim(data: Generated, tmp_path: Path) -> None:
    model = fitted(data, as_published=True, releases=5)
    promised = model.guarantee_
    assert not promised.proven
    assert "never privatised" in promised.reason
    assert promised.epsilon == pytest.approx(4.0)  # claimed, message by message
    assert isinstance(model.shared_["P"], Release)
    assert isinstance(model.shared_["Q"], Unprotected)
    with pytest.raises(UntrustedMessage):
        model.save(tmp_path / "public", public=True)


@pytest.mark.parametrize("penalty", [*FORMULATIONS, None])
def test_every_formulation_fits(data: Generated, penalty: Any) -> None:
    model = simulated(data, penalty=penalty)
    assert np.isfinite(model.coef_).all()
    if penalty is None:
        assert not np.asarray(model.shared_["P"].value).any()


@pytest.mark.parametrize(
    "wrong",
    [
        {"mechanism": "laplace"},
        {"server": "honest"},
        {"releases": 0},
        {"clip_norm": -1.0},
        {"sampling_rate": 1.5},
        {"penalty": "nuclear"},
        {"mechanism": "gamma", "sampling_rate": 0.5},
    ],
)
def test_wrong_parameters_are_refused_by_name(data: Generated, wrong: dict[str, Any]) -> None:
    name = list(wrong)[-1]
    with pytest.raises(InvalidInput, match=name):
        fitted(data, **wrong)


# --- at home -------------------------------------------------------------------------------------


def test_a_node_leaves_its_own_column_out() -> None:
    P = np.random.default_rng(0).standard_normal((4, 5))
    changed = P.copy()
    changed[:, 2] *= 10
    before, after = (others_of_each(each, np.ones(5)) for each in (P, changed))
    assert before.factors is not None
    assert after.factors is not None
    np.testing.assert_allclose(before.mean[2], after.mean[2])
    S = [np.matmul(each.factors[2], each.factors[2].T) for each in (before, after)]  # type: ignore[index] # checked above
    np.testing.assert_allclose(S[0], S[1], atol=1e-9)
    assert not np.allclose(before.mean[1], after.mean[1])
    newcomer = others_of_newcomer(P, np.ones(5))
    np.testing.assert_allclose(newcomer.mean[0], P.mean(axis=1))


def test_noise_leaves_a_node_with_its_own_model(data: Generated) -> None:
    """ε = 0.01: home models are no more than 1% worse than alone without privacy."""
    model = simulated(data, budget=Budget(0.01), releases="auto")
    alone = SingleTask(ranges=data.ranges).fit(data.X, data.y, task=data.task)
    errors = [
        nmse_per_task(data.y_test, predict(data.X_test, task=data.task_test), data.task_test)
        for predict in (model.predict_at_home, alone.predict)
    ]
    assert errors[0] <= 1.01 * errors[1]


def test_joining_pays_where_messages_are_clear() -> None:
    """Tasks that are all but the same, and a large budget."""
    data = related_tasks(10, 25, 10, spread=0.05, test_rows=60, rng=np.random.default_rng(3))
    model = simulated(data, budget=Budget(50.0), releases="auto")
    alone = SingleTask(ranges=data.ranges).fit(data.X, data.y, task=data.task)
    errors = [
        nmse_per_task(data.y_test, predict(data.X_test, task=data.task_test), data.task_test)
        for predict in (model.predict_at_home, model.predict, alone.predict)
    ]
    assert errors[0] < 0.95 * errors[2]


def test_released_classifiers_know_something() -> None:
    data = related_tasks(8, 300, 4, loss="logistic", test_rows=100, rng=np.random.default_rng(3))
    model = simulated(data, loss="logistic", budget=Budget(8.0), releases="auto")
    assert model.score(data.X_test, data.y_test, task=data.task_test) > 0.65
    assert set(model.predict_at_home(data.X_test, task=data.task_test)) <= {-1, 1}


def test_one_node_learns_alone() -> None:
    data = related_tasks(1, 50, 3, rng=np.random.default_rng(0))
    model = simulated(data)
    assert model.coef_.shape == (3, 1)
    alone = fitted(data, penalty=None, noise="simulated", random_state=5)
    np.testing.assert_allclose(model.home_coef_, alone.home_coef_)


def test_an_export_holds_the_node_s_home_model_and_a_public_save_holds_none(
    data: Generated, tmp_path: Path
) -> None:
    model = fitted(data)
    rows, task = data.X_test[:3], [4, 4, 4]
    loaded = AsyncProximal.load(model.export(4, tmp_path / "four"))
    np.testing.assert_array_equal(loaded.predict(rows, task), model.predict(rows, task))
    np.testing.assert_array_equal(
        loaded.predict_at_home(rows, task), model.predict_at_home(rows, task)
    )
    np.testing.assert_array_equal(loaded.coef_[:, 0], model.coef_[:, 4])  # still the released one
    again = AsyncProximal.load(model.save(tmp_path / "all"))
    np.testing.assert_array_equal(again.predict(rows, task), model.predict(rows, task))
    np.testing.assert_array_equal(again.home_coef_, model.home_coef_)
    assert all(isinstance(part, Declared) for part in loaded.shared_.values())
    exported = _numbers(tmp_path / "four")
    public = _numbers(model.save(tmp_path / "public", public=True))
    for t, own in enumerate(model._home_models):
        assert all(number.tobytes() in exported for number in own) == (t == 4)
        assert not any(number.tobytes() in public for number in own)


def _numbers(folder: Path) -> set[bytes]:
    """Every float64 of the folder's files, at every byte offset."""
    content = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
    return {content[i : i + 8] for i in range(len(content) - 7)}


def test_a_newcomer_joins_at_home_even_where_one_node_was_fitted() -> None:
    data = related_tasks(2, 30, 3, rng=np.random.default_rng(0))
    first = data.task == 0
    model = AsyncProximal(budget=Budget(4.0), ranges=data.ranges).fit(
        data.X[first], data.y[first], task=data.task[first]
    )
    model.adapt(data.X[~first], data.y[~first], task="new")
    assert model.coef_.shape == model.home_coef_.shape == (3, 2)
    assert not np.allclose(model.home_coef_[:, 0], model.home_coef_[:, 1])


def test_what_a_newcomer_learns_is_not_in_coef(data: Generated, tmp_path: Path) -> None:
    """coef_ may be shown to anyone, and a newcomer has released nothing: any data give the same."""
    models = []
    for sign in (1.0, -1.0):
        model = simulated(data)
        model.adapt(data.X[:40], sign * data.y[:40], task="new")
        models.append(model)
    one, other = models
    np.testing.assert_array_equal(one.coef_, other.coef_)
    np.testing.assert_array_equal(one.intercept_, other.intercept_)
    np.testing.assert_allclose(one.coef_[:, -1], one.coef_[:, :-1].mean(axis=1))
    assert not np.allclose(one.home_coef_[:, -1], other.home_coef_[:, -1])
    rows = data.X_test[:5]
    np.testing.assert_array_equal(
        one.predict(rows, ["new"] * 5), one.predict(rows, ["never seen"] * 5, unknown="shared")
    )
    at_home = one.predict_at_home(rows, ["new"] * 5)
    assert not np.allclose(at_home, one.predict(rows, ["new"] * 5))
    loaded = AsyncProximal.load(one.save(tmp_path / "all"))
    np.testing.assert_array_equal(loaded.coef_, one.coef_)
    np.testing.assert_array_equal(loaded.predict_at_home(rows, ["new"] * 5), at_home)


def test_without_a_budget_a_newcomer_keeps_nothing_from_anybody(data: Generated) -> None:
    model = AsyncProximal(ranges=data.ranges).fit(data.X, data.y, task=data.task)
    model.adapt(data.X[:40], data.y[:40], task="new")
    np.testing.assert_array_equal(model.coef_, model.home_coef_)


def test_without_a_budget_nothing_is_promised(data: Generated) -> None:
    model = AsyncProximal(ranges=data.ranges).fit(data.X, data.y, task=data.task)
    assert model.guarantee_.epsilon == math.inf
    np.testing.assert_array_equal(model.coef_, model.home_coef_)
