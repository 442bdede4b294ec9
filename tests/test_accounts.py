"""Whose ledger a Python user spends from, without having thought of one."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import tacit
from tacit.datasets import related_tasks
from tacit.errors import PrivacyWarning

DATA = related_tasks(30, (8, 12), 3, rng=np.random.default_rng(0))


def learner(**more: Any) -> Any:
    return tacit.MeanRegularized(budget=tacit.Budget(1.0), ranges=DATA.ranges, **more)


def test_every_fit_of_a_grid_search_counts() -> None:
    rows = np.arange(len(DATA.y))
    halves = [(rows[::2], rows[1::2]), (rows[1::2], rows[::2])]  # every task in both
    search = GridSearchCV(learner(), {"rounds": [1, 2]}, cv=halves)
    with pytest.warns(PrivacyWarning, match="fits of this estimator and its clones"):
        search.fit(DATA.X, DATA.y, task=DATA.task)
    winner = search.best_estimator_.guarantee_
    assert winner.runs == 5  # two folds of two candidates, and the refit
    assert winner.epsilon == pytest.approx(5.0, rel=1e-6)
    assert winner.delta == pytest.approx(5e-5)
    assert not winner.proven
    assert "nothing counts" in winner.reason


def test_clones_of_clones_share_one_ledger_and_strangers_do_not() -> None:
    first, stranger = learner(), learner()
    second = clone(clone(first))
    first.fit(DATA.X, DATA.y, task=DATA.task)
    with pytest.warns(PrivacyWarning):
        second.fit(DATA.X, DATA.y, task=DATA.task)
    stranger.fit(DATA.X, DATA.y, task=DATA.task)
    assert (first.ledger_ is second.ledger_, first.ledger_ is stranger.ledger_) == (True, False)
    assert stranger.guarantee_.runs == 1


def test_a_ledger_of_ones_own_gives_no_warning() -> None:
    ledger = tacit.Ledger.in_memory()
    for _ in range(2):
        model = learner(ledger=ledger).fit(DATA.X, DATA.y, task=DATA.task)
    assert model.guarantee_.runs == 2


def test_a_fitted_model_pickles_without_its_ledger_in_memory() -> None:
    model = learner().fit(DATA.X, DATA.y, task=DATA.task)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.coef_, model.coef_)
    assert again.ledger_ is None
    assert again.guarantee_ == model.guarantee_


def test_twins_without_a_budget_spend_nothing() -> None:
    model = tacit.MeanRegularized(ranges=DATA.ranges)
    for _ in range(2):
        model.fit(DATA.X, DATA.y, task=DATA.task)
    assert model.ledger_ is None
