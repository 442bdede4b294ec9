"""The engine over sites is the engine of one process, bit for bit."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
from tacit import Budget, folder
from tacit.certificate.checks import checked
from tacit.cli.loading import load_model
from tacit.errors import InvalidInput
from tacit.federation.coordinator import coordinate
from tacit.privacy.ledger import Ledger

LEARNERS: list[tuple[str, dict[str, Any]]] = [
    ("MeanRegularized", {"rounds": 2}),
    ("SharedPrior", {}),
    ("LowRank", {"rounds": 3}),
    ("LowRank", {"rounds": 2, "covariance": "tasks"}),
    ("GroupSparse", {"rounds": 2}),
    ("Decomposed", {"rounds": 2}),
    ("AveragedModel", {}),
    ("TaskRelationship", {}),
]


@pytest.mark.parametrize(("learner", "parameters"), LEARNERS, ids=lambda each: str(each))
def test_sites_learn_the_same_bits_as_one_process(
    federation: Callable[..., Any], learner: str, parameters: dict[str, Any]
) -> None:
    there = federation(learner, **parameters)
    out = coordinate(there.place, there.channel())

    here = there.terms.model(Ledger.in_memory()).fit_tasks(there.everything, there.terms.schema)
    here.note_spreads_of(there.everything)
    _, arrays, _ = folder.read(out)
    for name, part in here.shared_.items():
        assert np.array_equal(arrays[f"shared.{name}"], np.asarray(part.value)), name
    for name, home in there.homes.items():
        own = getattr(tacit, learner).load(home / "private")
        assert np.array_equal(own._models, here._models[there.terms.places[name]])
        assert np.array_equal(own._spread, here._spread[there.terms.places[name]])
        assert own._spread.any() == (learner == "SharedPrior")


def test_algorithm_1_of_all_tasks_stays_in_one_process(federation: Callable[..., Any]) -> None:
    """Its cohorts are drawn among all tasks; a site would draw others."""
    inputs = {"rounds": 2, "clip_norm": 1.0, "penalty": 1.0, "step": 0.01}
    there = federation("MeanRegularized", as_published=True, **inputs)
    with pytest.raises(InvalidInput, match="one process only"):
        coordinate(there.place, there.channel())
    with Ledger(there.place / folder.LEDGER) as ledger:
        assert "spend" not in {entry.kind for entry in ledger.entries()}


def hand_outs(home: Path) -> list[Path]:
    """Of a site's tasks."""
    return sorted((home / "hand-outs").iterdir())


def test_nobodys_model_is_at_the_coordinator_and_every_folder_is_sound(
    federation: Callable[..., Any],
) -> None:
    there = federation(noise="secure")
    out = coordinate(there.place, there.channel())
    model = tacit.MeanRegularized.load(out)
    assert model.tasks_ == ()
    assert model._models.shape == (0, 4)
    assert model.guarantee_.proven
    assert model.guarantee_.secure_noise
    assert any("when a site answers" in line for line in model.guarantee_.not_covered)
    for place in (out, *(each for home in there.homes.values() for each in hand_outs(home))):
        finding = checked(place, there.terms.coordinator)
        assert finding.verdict.startswith("sound"), finding.problems
    there.require_replay()


def test_a_newcomer_joins_from_what_a_site_or_the_coordinator_has(
    federation: Callable[..., Any],
) -> None:
    there = federation()
    out = coordinate(there.place, there.channel())
    X, y = there.data.X[:10], there.data.y[:10]
    for place in (out, *hand_outs(there.homes["south"])):
        model = tacit.MeanRegularized.load(place).adapt(X, y, task="new")
        assert np.isfinite(model.predict(X, task=["new"] * 10)).all()


def test_no_learner_knows_of_a_network() -> None:
    home = Path(tacit.__file__).parent
    for source in (*home.glob("learners/**/*.py"), *home.glob("neural/**/*.py")):
        for node in ast.walk(ast.parse(source.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.startswith(("flwr", "tacit.federation")) for name in names), source


@pytest.mark.parametrize(
    "parameters",
    [
        {"rounds": 2},
        {"method": "mtl", "rounds": 3, "participation": 0.5, "finetune": None},
        {"method": "mtl", "rounds": 2, "sampling": "auto", "finetune": "mean"},
    ],
    ids=["everybody", "samples", "finetuned"],
)
def test_networks_at_sites_learn_the_same_bits_as_one_process(
    federation: Callable[..., Any], parameters: dict[str, Any]
) -> None:
    """Personal models stay at their site between rounds, whose processes end after each."""
    pytest.importorskip("torch")
    given = {"model": {"hidden": [4]}, "loss": "squared", "local_steps": 3, "learning_rate": 0.05}
    budget = Budget(8.0, neighbours="replace" if "sampling" in parameters else "zero-out")
    there = federation("neural.FederatedMTL", budget=budget, seconds=60.0, **given, **parameters)
    out = coordinate(there.place, there.channel())

    here = there.terms.model(Ledger.in_memory()).fit_tasks(there.everything, there.terms.schema)
    _, arrays, _ = folder.read(out)
    assert np.array_equal(arrays["shared.centres"], here.shared_["centres"].value)
    for name, home in there.homes.items():
        _, own, _ = folder.read(home / "private")
        places = there.terms.places[name]
        assert np.array_equal(own["models"], here._models.models[places].numpy())
        received = load_model(there.site(name).hand_outs.of(places[0]))  # as tacit predict reads it
        rows, label = there.data.X[:5], there.terms.labels[places[0]]
        np.testing.assert_array_equal(
            received.predict(rows, [label] * 5), here.predict(rows, [label] * 5)
        )
