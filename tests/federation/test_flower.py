"""The same over Flower: SuperLink and SuperNodes on loopback, with TLS and keys of the nodes."""

from __future__ import annotations

import http.client
import importlib.util
from pathlib import Path

import numpy as np
import pytest

import tacit
from tacit import folder
from tacit.certificate.checks import checked
from tacit.cli.federate_init import write_example, write_terms
from tacit.federation.coordinator import JOURNAL, Journal
from tacit.federation.project import Project
from tacit.federation.terms import Terms
from tacit.privacy.ledger import Ledger
from tacit.tasks import TaskSet

pytestmark = pytest.mark.skipif(importlib.util.find_spec("flwr") is None, reason="needs Flower")

WAIT = 240.0
"""Seconds after which a run is taken to hang."""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "federation")
    write_example(made, 2)
    write_terms(made)
    return made


def _whole(project: Project, terms: Terms) -> TaskSet:
    """Everybody's rows in one process, as each site splits and reads them."""
    from tacit.cli.federated_site import training_rows
    from tacit.federation.own_tasks import among

    parts = [
        among(training_rows(project.sites / name, terms), terms.labels) for name in terms.sites
    ]
    X = np.concatenate([part.X[part.task_index == i] for i in range(6) for part in parts])
    y = np.concatenate([part.y[part.task_index == i] for i in range(6) for part in parts])
    sizes = sum(part.sizes for part in parts)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return TaskSet(X, y, offsets, terms.labels, np.arange(len(y)), parts[0].feature_names)


def _in_plain_text(port: int) -> None:
    plain = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    plain.request("GET", "/")
    plain.getresponse()


def test_sites_learn_over_flower_and_strangers_stay_out(project: Project) -> None:
    from tacit.federation.trial import run, started

    terms = Terms.read(project.coordinator)
    with started(project) as trial:
        with pytest.raises((http.client.HTTPException, OSError)):
            _in_plain_text(trial.port)
        project.write_node_key("stranger")  # a key that nobody registered
        trial.supernode("stranger")
        ended = run(trial, WAIT)
        if ended["missing"]:  # a slow machine: what is missing is asked for again
            ended = run(trial, WAIT)
    assert ended["whole"] == sorted(terms.sites)

    lines = Journal(project.coordinator / JOURNAL).lines()
    agreed = {line["site"] for line in lines if line["what"] == "agreed"}
    assert agreed == {"site-1", "site-2"}
    with Ledger(project.coordinator / folder.LEDGER, dataset=terms.dataset) as ledger:
        kinds = [entry.kind for entry in ledger.entries()]
        whole = terms.model(ledger).fit_tasks(_whole(project, terms), terms.schema)
        assert kinds == [entry.kind for entry in ledger.entries()]
    assert kinds.count("spend") == kinds.count("output") == len(whole.history_)
    for name in terms.sites:
        own = getattr(tacit, terms.learner).load(project.sites / name / "private")
        assert np.array_equal(own._models, whole._models[terms.places[name]])
        for hand_out in (project.sites / name / "hand-outs").iterdir():
            assert checked(hand_out, terms.coordinator).verdict.startswith("sound")
