"""Ranges that a run finds: what a vote can move, what it costs, and that the ranges are of use."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tacit import AsyncProximal, Budget, Column, GroupSparse, Ledger, MeanRegularized, SharedPrior
from tacit.errors import BudgetExceeded, InvalidInput
from tacit.estimator import Home
from tacit.estimator import private_bounds as pb
from tacit.learners.single_task import SingleTask
from tacit.linear.losses import Squared
from tacit.linear.problems import Problems
from tacit.privacy.accounting import gaussian_mu

ALL = np.array([True, True, True])


def home(*tasks: Any) -> Home:
    """Tasks of rows (x0, x1, y)."""
    rows = [np.asarray(task, dtype=float).reshape(-1, 3) for task in tasks]
    cells, sizes = np.concatenate(rows), [len(each) for each in rows]
    X = np.column_stack([cells[:, :2], np.ones(len(cells))])
    p = Problems(X, cells[:, 2], np.concatenate([[0], np.cumsum(sizes)]))
    return Home(p, Squared(), np.zeros(2, dtype=bool), False, open_columns=ALL)


def schools(m: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """Columns of sizes that have nothing in common, one of them far from zero."""
    rng = np.random.default_rng(seed)
    n = 10
    task, N = np.repeat(np.arange(m), n), m * n
    X = np.column_stack([rng.integers(4, 20, N), 1e4 * rng.random(N), rng.integers(1990, 2021, N)])
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    W = np.array([1.0, 0.6, -0.5]) + 0.3 * rng.normal(size=(m, 3))
    return X, 500 + 80 * ((Z * W[task]).sum(axis=1) + 0.5 * rng.normal(size=N)), task


# --- the votes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("votes", [pb.spread_votes, lambda h, c: pb.place_votes(h, c, np.ones(3))])
def test_a_vote_moves_the_sum_by_root_two_at_most_whatever_the_cells_hold(votes: Any) -> None:
    rng = np.random.default_rng(0)
    wild = [
        rng.choice([0.0, 1.0, -1.0, 1e-30, 1e90, -1e90, np.nan], (int(n), 3))
        for n in rng.integers(1, 9, 60)
    ]
    rows = votes(home(*wild), ALL)
    assert rows.min() == 0
    gaps = np.linalg.norm(rows[:, None] - rows[None], axis=2)
    assert gaps.max() <= math.sqrt(2) * (1 + 1e-12)
    apart = votes(home([[1.0, 1, 1], [3, 3, 3]], [[100.0, 100, 100], [400, 400, 400]]), ALL)
    assert np.linalg.norm(apart[0] - apart[1]) == pytest.approx(math.sqrt(2))


def test_a_task_votes_by_its_own_cells_alone() -> None:
    one, other = [[1.0, 2, 3], [4, 5, 6], [7, 8, 9]], [[1e9, -5, 0], [np.nan, 2, 1]]
    both, alone = home(one, other), home(one)
    for votes in (pb.spread_votes, lambda h, c: pb.place_votes(h, c, np.full(3, 0.7))):
        assert np.array_equal(votes(both, ALL)[0], votes(alone, ALL)[0])


def test_a_task_without_a_number_votes_for_nothing() -> None:
    assert not pb.spread_votes(home(np.full((4, 3), np.nan)), ALL).any()


# --- the price -----------------------------------------------------------------------------------


def test_the_share_follows_the_formula_and_is_refused_above_the_most() -> None:
    mu = gaussian_mu(1.0, 1e-5)
    expected = 16 * pb.STANDS_OUT**2 * 4 * 2 / (mu * 400) ** 2
    assert pb.share(mu, 400, 4, "replace") == pytest.approx(expected)
    assert pb.share(mu, 400, 4, "zero-out") == pytest.approx(expected / 2)
    assert pb.share(mu, 100_000, 4, "replace") == pb.LEAST
    with pytest.raises(InvalidInput, match="would be noise: 40 tasks"):
        pb.share(mu, 40, 4, "replace")


def test_the_ranges_and_what_is_learned_add_up_to_the_budget() -> None:
    X, y, task = schools(300)
    with Ledger.in_memory() as ledger:
        model = SharedPrior(budget=Budget(1.0), ranges="private", ledger=ledger)
        model.fit(X, y, task=task)
        first, second, *rest = model.history_
        mus = [step["event"]["mu"] for step in model.history_]
    assert model.guarantee_.epsilon == pytest.approx(1.0)
    assert model.guarantee_.proven
    taken = pb.bounds_share(Budget(1.0), 300, 4)
    total = gaussian_mu(1.0, 1e-5)
    assert mus[0] == mus[1] == pytest.approx(total * math.sqrt(taken / 2))
    assert first["mechanism"]["name"] == second["mechanism"]["name"] == "VoteSum"
    assert math.hypot(*mus[2:]) == pytest.approx(total * math.sqrt(1 - taken))
    assert rest


def test_ranges_for_nothing_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: the learner keeps the whole budget. The ledger's plan exceeds it."""
    planned = pb.Bounds.planned

    def spendthrift(facts: Any, columns: Any) -> Any:
        return replace(planned(facts, columns), left=facts.mu)

    monkeypatch.setattr(pb.Bounds, "planned", spendthrift)
    X, y, task = schools(300)
    with pytest.raises(BudgetExceeded, match="nothing was spent"):
        SharedPrior(budget=Budget(1.0), ranges="private").fit(X, y, task=task)


def test_pure_runs_silos_and_few_tasks_are_asked_to_declare() -> None:
    X, y, task = schools(20)
    with pytest.raises(InvalidInput, match="has no declared range"):
        SharedPrior(budget=Budget(1.0), ranges="private", unit="example").fit(X, y, task=task)
    with pytest.raises(InvalidInput, match="a vote of whole tasks"):
        AsyncProximal(budget=Budget(1.0), ranges="private").fit(X, y, task=task)
    with pytest.raises(InvalidInput, match="Gaussian noise"):
        GroupSparse(budget=Budget(1.0), ranges="private", mechanism="laplace").fit(X, y, task=task)
    with pytest.raises(InvalidInput, match="would be noise"):
        MeanRegularized(budget=Budget(1.0), ranges="private").fit(X, y, task=task)


# --- the ranges ----------------------------------------------------------------------------------


def test_private_ranges_serve_nearly_as_well_as_declared_ones() -> None:
    """And far better than none: one scale for columns of every size."""
    X, y, task = schools(400)
    test = np.arange(len(y)) % 10 >= 7
    declared: Any = {0: (4, 19), 1: (0, 1e4), 2: (1990, 2020), "target": (150, 850)}
    errors = {}
    ways: list[tuple[str, Any]] = [("declared", declared), ("private", "private"), ("none", None)]
    for name, ranges in ways:
        model = SharedPrior(
            budget=Budget(1.0), ranges=ranges, noise="simulated", random_state=0
        ).fit(X[~test], y[~test], task=task[~test])
        off = model.predict(X[test], task=task[test]) - y[test]
        errors[name] = float(np.mean(off**2))
    assert errors["private"] < 1.25 * errors["declared"]
    assert errors["private"] < 0.7 * errors["none"]


def test_the_model_is_in_the_units_of_the_table_and_knows_its_ranges() -> None:
    X, y, task = schools(300)
    model = SharedPrior(
        budget=Budget(2.0), ranges="private", noise="simulated", random_state=0
    ).fit(X, y, task=task)
    inside = model._schema.columns
    assert [column.is_open for column in inside] == [False] * 3
    assert inside[2].low is not None
    assert 1950 < inside[2].low < 1995
    assert np.array_equal(
        np.asarray(model.shared_[pb.BOUNDS].value)[:3], np.array([[c.low, c.high] for c in inside])
    )
    straight = X @ model.coef_[:, 5] + model.intercept_[5]
    chosen = (task == 5) & (X[:, 1] < inside[1].high) & (X[:, 1] > inside[1].low)
    assert np.allclose(straight[chosen], model.predict(X, task=np.full(len(X), 5))[chosen])


def test_an_empty_cell_is_the_middle_of_the_released_range() -> None:
    X, y, task = schools(300)
    X = X.astype(float)
    X[3, 1] = np.nan
    model = SharedPrior(
        budget=Budget(2.0), ranges="private", noise="simulated", random_state=0
    ).fit(X, y, task=task)
    low, high = np.asarray(model.shared_[pb.BOUNDS].value)[1]
    filled = X.copy()
    filled[3, 1] = (low + high) / 2
    same = (model.predict(x[3:4], task=task[3:4]) for x in (X, filled))
    assert next(same) == pytest.approx(next(same))


def test_twins_without_a_budget_find_ranges_too() -> None:
    X, y, task = schools(40)
    for model in (SharedPrior(ranges="private"), SingleTask(ranges="private")):
        model.fit(X, y, task=task)
        assert model.score(X, y, task=task) > 0.8


def test_one_column_may_be_private_and_the_others_declared() -> None:
    X, y, task = schools(300)
    ranges = {0: (4, 19), 1: "private", 2: Column(1990, 2020), "target": (0, 1000)}
    model = SharedPrior(budget=Budget(1.0), ranges=ranges, noise="simulated", random_state=1)
    model.fit(X, y, task=task)
    assert np.asarray(model.shared_[pb.BOUNDS].value).shape == (1, 2)
    assert model._schema.columns[0] == Column(4, 19)
