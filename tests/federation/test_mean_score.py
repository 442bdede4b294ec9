"""One noisy mean of all scores, and only where the budget was planned for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tacit import Budget, folder
from tacit.certificate.checks import checked
from tacit.errors import InvalidInput
from tacit.federation.coordinator import coordinate
from tacit.federation.scores import centred_scores
from tacit.federation.wire import packed, unpacked
from tacit.privacy.ledger import Ledger

Make = Callable[..., Any]


def scored(there: Any, share: float, budget: Budget) -> Any:
    """The same federation with other terms, whose sites are judged by the rows they learn from."""
    made = replace(there, terms=replace(there.terms, scores=share, budget=budget))
    made.terms.write(made.place)
    return made


@pytest.mark.parametrize("relation", ["replace", "zero-out"])
def test_the_mean_and_the_models_together_are_the_budget(federation: Make, relation: Any) -> None:
    budget = Budget(4.0, neighbours=relation)
    there = scored(federation(noise="secure", rounds=2), 0.2, budget)
    coordinate(there.place, there.channel())
    with Ledger(there.place / folder.LEDGER) as ledger:
        found = ledger.statement(there.terms.labels)
        before = [entry.kind for entry in ledger.entries()]
    assert found.proven
    assert 3.99 < found.epsilon <= 4.0
    assert not found.after_output
    assert there.terms.planned_budget.epsilon < 3.9
    finding = checked(there.place / "model", there.terms.coordinator)
    assert finding.verdict.startswith("sound"), finding.problems
    promised = json.loads((there.place / "model" / "certificate.json").read_text())["guarantee"]
    assert promised["epsilon"] == 4.0  # what was planned for the mean is promised from the start
    first = (there.place / "scores.json").read_text()
    coordinate(there.place, there.channel())
    assert (there.place / "scores.json").read_text() == first
    with Ledger(there.place / folder.LEDGER) as ledger:
        assert [entry.kind for entry in ledger.entries()] == before


def test_the_mean_is_that_of_all_tasks_scores(federation: Make) -> None:
    there = scored(federation(noise="secure", rounds=2), 0.5, Budget(1e4))
    coordinate(there.place, there.channel())
    said = json.loads((there.place / "scores.json").read_text())
    each = []
    for name in there.terms.sites:
        site = there.site(name)
        model = site.terms.model().load(site.place / "private")
        each += (centred_scores(model, site.held_out()) + 0.5).ravel().tolist()
    assert said["tasks"] == len(each) == 6
    assert abs(said["mean"] - np.mean(each)) < 6 * said["deviation_of_noise"]  # 2e-9 by chance
    assert said["deviation_of_noise"] < 0.01


def test_without_a_plan_no_site_tells_its_score(federation: Make) -> None:
    there = federation()
    coordinate(there.place, there.channel())
    assert not (there.place / "scores.json").exists()
    request = packed({"kind": "score", "terms": there.terms.digest})
    assert (
        "no mean of scores was planned"
        in unpacked(there.site("west").answer(request))[0]["refused"]
    )


def test_a_mean_is_for_those_who_trust_the_coordinator(federation: Make) -> None:
    with pytest.raises(InvalidInput, match="scores must be in"):
        replace(federation(fewest=4, noise="secure").terms, scores=0.1)


def test_scores_of_a_task_without_rows_or_spread_say_nothing(federation: Make) -> None:
    there = federation()
    model = there.terms.model(Ledger.in_memory()).fit_tasks(there.everything, there.terms.schema)
    flat = replace(there.everything, y=np.ones(len(there.everything.y)))
    assert np.array_equal(centred_scores(model, flat), np.zeros((6, 1)))
    good = replace(there.everything, y=model.scores_of(there.everything))
    assert np.allclose(centred_scores(model, good), 0.5)
