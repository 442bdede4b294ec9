"""Whose ledger a Python user spends from, without having thought of one."""

from __future__ import annotations

import copy
import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import tacit
from tacit.datasets import related_tasks
from tacit.errors import PrivacyWarning
from tacit.estimator.families import ELSEWHERE

DATA = related_tasks(30, (8, 12), 3, rng=np.random.default_rng(0))


def learner(**more: Any) -> Any:
    return tacit.MeanRegularized(budget=tacit.Budget(1.0), ranges=DATA.ranges, **more)


def test_every_fit_of_a_grid_search_counts() -> None:
    rows = np.arange(len(DATA.y))
    halves = [(rows[::2], rows[1::2]), (rows[1::2], rows[::2])]  # every task in both
    search = GridSearchCV(learner(), {"rounds": [1, 2]}, cv=halves)
    with (
        config_context(enable_metadata_routing=True),
        pytest.warns(PrivacyWarning, match="fits of this estimator and its clones"),
    ):
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


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_is_no_refund(copied: Any) -> None:
    model = learner().fit(DATA.X, DATA.y, task=DATA.task)
    twin = copied(model)
    with pytest.warns(PrivacyWarning):
        twin.fit(DATA.X, DATA.y, task=DATA.task)
    assert twin.guarantee_.runs == 2
    assert not twin.guarantee_.proven  # two estimators: compared


def test_fits_of_one_estimator_with_other_parameters_are_compared() -> None:
    ledger = tacit.Ledger.in_memory()
    model = learner(ledger=ledger)
    for rounds in (1, 2):
        model.set_params(rounds=rounds).fit(DATA.X, DATA.y, task=DATA.task)
    assert "grid search" in model.guarantee_.reason


def test_the_first_of_several_clones_is_certified_as_one_of_them() -> None:
    first = learner(ledger=tacit.Ledger.in_memory()).fit(DATA.X, DATA.y, task=DATA.task)
    clone(first).fit(DATA.X, DATA.y, task=DATA.task)
    certificate = first.certificate()
    assert not certificate["guarantee"]["proven"]
    assert "grid search" in certificate["guarantee"]["reason"]


def test_what_is_fitted_in_another_process_is_not_counted_and_not_proven() -> None:
    """As joblib sends a clone to a worker; the refit at home then knows of nothing."""
    base = learner()
    sent = pickle.loads(pickle.dumps(clone(base)))
    sent.fit(DATA.X, DATA.y, task=DATA.task)
    assert "several processes" in sent.guarantee_.reason
    at_home = clone(base).fit(DATA.X, DATA.y, task=DATA.task)
    assert "several processes" in at_home.guarantee_.reason
    assert not at_home.guarantee_.proven


@pytest.mark.parametrize("before", [True, False], ids=["after a fit", "before any fit"])
def test_what_is_fitted_in_a_fork_is_not_counted_and_not_proven(before: bool) -> None:
    """A fork had a copy of the ledger in memory, or began one: each child certified what it alone
    had spent."""
    model = learner()
    if before:
        model.fit(DATA.X, DATA.y, task=DATA.task)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12+: threads of BLAS
        child = os.fork()
    if child == 0:
        again = model.fit(DATA.X, DATA.y, task=DATA.task).guarantee_
        os._exit(0 if again.reason == ELSEWHERE and not again.proven else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    if not before:
        model.fit(DATA.X, DATA.y, task=DATA.task)
    assert model.guarantee_.proven


def test_a_file_counts_whatever_process_fits(tmp_path: Path) -> None:
    base = learner(ledger=tmp_path / "ledger.sqlite")
    sent = pickle.loads(pickle.dumps(clone(base)))
    sent.fit(DATA.X, DATA.y, task=DATA.task)
    at_home = clone(base).fit(DATA.X, DATA.y, task=DATA.task)
    assert at_home.guarantee_.runs == 2
    assert "grid search" in at_home.guarantee_.reason
    assert "several processes" not in at_home.guarantee_.reason
