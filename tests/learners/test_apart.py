"""Far more columns than tasks: nothing is shared, nothing is spent, and each task is by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest

from tacit import Budget, Ledger, SharedPrior, SingleTask
from tacit.certificate import checked


def streets(n_streets: int, n_tasks: int = 12) -> tuple[Any, Any, Any, Any]:
    rng = np.random.default_rng(0)
    task = np.repeat(np.arange(n_tasks), 20)
    x = rng.uniform(-1, 1, len(task))
    street = rng.integers(0, n_streets, len(task))
    frame = polars.DataFrame({"x": x, "street": [f"s{each}" for each in street]})
    ranges = {"x": (-1, 1), "street": [f"s{i}" for i in range(n_streets)], "target": (-4, 4)}
    return frame, x + 0.3 * rng.normal(size=len(x)), task, ranges


def test_many_streets_and_few_schools_spend_nothing_and_do_as_well_as_alone(tmp_path: Path) -> None:
    X, y, task, ranges = streets(400)
    model = SharedPrior(budget=Budget(1.0), ranges=ranges).fit(X, y, task=task)
    alone = SingleTask(ranges=ranges).fit(X, y, task=task)
    assert np.array_equal(model.coef_, alone.coef_)
    assert (model.guarantee_.epsilon, model.guarantee_.delta) == (0.0, 0.0)
    assert model.history_ == []
    model.save(tmp_path / "m")
    found = checked(tmp_path / "m")
    assert found.ok, found.problems
    assert json.loads((tmp_path / "m" / "certificate.json").read_text())["steps"] == []
    again = SharedPrior.load(tmp_path / "m")
    again.adapt(X[:20], y[:20], task="new")
    assert np.allclose(again.coef_[:, -1], model.coef_[:, 0])
    assert model.predict(X[:2], task=["?", "?"], unknown="shared") == pytest.approx([0.0, 0.0])


@pytest.mark.parametrize(("n_streets", "epsilon"), [(40, 1.0), (400, 1e5)])
def test_fewer_columns_or_a_large_budget_share(n_streets: int, epsilon: float) -> None:
    from tacit.engine import Facts
    from tacit.learners.shared_prior.apart import must_stay_apart
    from tacit.linear.losses import Squared

    declared = np.ones(n_streets, dtype=bool)
    mu = epsilon / 4
    facts = Facts(tuple(range(12)), n_streets + 1, Squared(), declared, True, "replace", mu)
    assert not must_stay_apart(facts)


def test_a_run_without_releases_is_on_the_ledger() -> None:
    X, y, task, ranges = streets(300)
    with Ledger.in_memory() as ledger:
        SharedPrior(budget=Budget(1.0), ranges=ranges, ledger=ledger).fit(X, y, task=task)
        assert [entry.kind for entry in ledger.entries()].count("run") == 1
        assert ledger.statement(tuple(range(12))).epsilon == 0.0
