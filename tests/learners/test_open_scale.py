"""Sizes of columns that nobody declared: voted on one by one, and unused where unclear."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit import Budget, MeanRegularized, SharedPrior, SingleTask
from tacit.arrays import FloatArray
from tacit.estimator.home import Home
from tacit.estimator.open_scale import (
    DYADIC,
    MOST_ASKED,
    asked_about,
    scale_votes,
    unclear,
    voted_scales,
)
from tacit.linear.losses import Squared
from tacit.linear.problems import Problems

TASKS, ROWS, FLAGS = 150, 24, 6
EVERYWHERE = np.ones(FLAGS + 1, dtype=bool)


def answers(rng: np.random.Generator) -> tuple[FloatArray, FloatArray, Any]:
    """A percentage beside flags, as in any table of people; the flags are what matters."""
    task = np.repeat(np.arange(TASKS), ROWS)
    flags = rng.random((len(task), FLAGS)) < 0.4
    share = rng.uniform(20, 60, len(task))
    slopes = 6 * rng.normal(size=FLAGS) + rng.normal(size=(TASKS, FLAGS))
    y = 30 + (flags * slopes[task]).sum(1) + 0.05 * share + 6 * rng.normal(size=len(task))
    return np.column_stack([flags, share]), y, task


def at_home(rng: np.random.Generator) -> Home:
    X, y, _ = answers(rng)
    rows = np.hstack([X, np.ones((len(y), 1))])
    offsets = np.arange(0, len(y) + 1, ROWS)
    return Home(Problems(rows, y, offsets), Squared(), ~EVERYWHERE, False)


@pytest.mark.parametrize("learner", [SharedPrior, MeanRegularized])
@pytest.mark.parametrize("epsilon", [None, 1.0, 10.0, 100.0])
def test_joining_costs_nothing_where_columns_differ_in_size(
    learner: Any, epsilon: float | None
) -> None:
    X, y, task = answers(np.random.default_rng(0))
    learned = np.arange(len(y)) % ROWS < 12
    budget = None if epsilon is None else Budget(epsilon)
    errors = []
    for model in (learner(budget=budget), SingleTask()):
        model.fit(X[learned], y[learned], task=task[learned])
        errors.append(np.mean((model.predict(X[~learned], task=task[~learned]) - y[~learned]) ** 2))
    assert errors[0] < (0.9 if epsilon in (None, 100.0) else 1.01) * errors[1]


def test_a_column_is_scaled_by_its_own_size() -> None:
    total = scale_votes(at_home(np.random.default_rng(0))).sum(0)
    target, scales = voted_scales(total, 0.0, EVERYWHERE, False)
    np.testing.assert_array_equal(scales, [2.0] * FLAGS + [128.0])
    assert target == 128.0


def test_an_unclear_column_among_larger_or_smaller_ones_leaves_all_tasks_alone() -> None:
    total = scale_votes(at_home(np.random.default_rng(0))).sum(0).reshape(-1, len(DYADIC))
    hidden = total.copy()
    hidden[-1] = 0.0  # nobody hears how large the percentage is, but of all features together
    assert not unclear(total.ravel(), 1.0, EVERYWHERE, False)
    assert unclear(hidden.ravel(), 1.0, EVERYWHERE, False)
    alike = hidden.copy()
    alike[1] = np.where(DYADIC == 0, total[1].sum(), 0.0)
    assert not unclear(alike.ravel(), 1.0, EVERYWHERE, False)
    np.testing.assert_array_equal(voted_scales(alike.ravel(), 1.0, EVERYWHERE, False)[1], 2.0)


def test_a_vote_has_norm_one_at_most_and_nothing_negative() -> None:
    rows = scale_votes(at_home(np.random.default_rng(0)))
    assert rows.min() >= 0
    assert np.linalg.norm(rows, axis=1).max() == pytest.approx(1, abs=1e-12)


def test_many_columns_are_asked_about_together() -> None:
    assert not asked_about(np.ones(MOST_ASKED + 1, dtype=bool)).any()
    assert not asked_about(np.array([False, True])).any()


def test_where_no_scale_is_known_every_task_learns_alone() -> None:
    X, y, task = answers(np.random.default_rng(0))
    few = task < 5
    data = X[few], y[few]
    model = SharedPrior(budget=Budget(0.1)).fit(*data, task=task[few])
    assert model.shared_["own_units"].value
    alone = SingleTask().fit(*data, task=task[few])
    np.testing.assert_allclose(model.coef_, alone.coef_, rtol=1e-9, atol=1e-12)
