"""Sites that learn over Flower, on loopback, with TLS and keys. Whatever dies or hangs: the run
ends, its models are those of the recorded releases, and every release was spent once. One
federation meets all of it, since Flower takes a minute to miss a node."""

from __future__ import annotations

import http.client
import importlib.util
import os
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
from tacit import Budget, folder
from tacit.certificate.checks import checked
from tacit.cli.federate_init import write_example, write_terms
from tacit.federation.coordinator import JOURNAL, Journal
from tacit.federation.project import SERVER, Project
from tacit.federation.resident import LOCK
from tacit.federation.site import COULD_NOT
from tacit.federation.terms import Terms
from tacit.federation.trial import Trial, run, started
from tacit.privacy.ledger import Ledger

pytestmark = pytest.mark.skipif(importlib.util.find_spec("flwr") is None, reason="needs Flower")

WAIT = 240.0
"""Seconds after which something is taken to hang."""

DYING = """
import os, signal
from pathlib import Path
from tacit.privacy.ledger import Ledger

persist = Ledger._persist

def dying(self, *given):
    found = persist(self, *given) if {after} else None
    Path({marker!r}).touch()
    os.kill(os.getpid(), signal.SIGKILL)
    return found

Ledger._persist = dying
"""
"""A coordinator that is killed at its first release: before or after it is on the ledger."""

A_DAY_AHEAD = """
import datetime
from flwr.supercore import date

right = date.now
date.now = lambda: right() + datetime.timedelta(days=1)
"""


def await_(what: Callable[[], Any], seconds: float = WAIT) -> Any:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := what():
            return found
        time.sleep(0.2)
    raise AssertionError(f"{what} did not happen in {seconds} s")


class Live:
    """A federation that runs, and what is known about it from outside."""

    def __init__(self, project: Project, trial: Trial) -> None:
        self.project, self.trial = project, trial
        self.terms = Terms.read(project.coordinator)

    def lines(self, what: str) -> list[dict[str, Any]]:
        lines = Journal(self.project.coordinator / JOURNAL).lines()
        return [line for line in lines if line["what"] == what]

    def serve_by(self, code: str) -> None:
        (self.project.app / "federated" / "server.py").write_text(code + SERVER)

    def begin(self) -> None:
        self.trial.flwr("run", str(self.project.app), "tacit")

    def resident(self, site: str) -> int:
        return int((self.project.sites / site / LOCK).read_text())

    def kinds(self) -> list[str]:
        with Ledger(self.project.coordinator / folder.LEDGER, dataset=self.terms.dataset) as found:
            return [entry.kind for entry in found.entries()]

    def readmitted(self, site: str) -> bool:
        """Starts the node again, if it was turned away: its place is kept until the SuperLink has
        missed two of its heartbeats."""
        process = self.trial.processes[site]
        log = (self.project.flower / "logs" / f"{site}.log").read_text()
        if process.poll() is not None:
            self.trial.supernode(site)
            return False
        return log.rpartition("Starting Flower SuperNode")[2].count("SuperNode ID") > 0


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "federation")
    write_example(made, 3)
    config = made.place / "config.toml"
    config.write_text(config.read_text().replace("seconds = 120.0", "seconds = 15.0"))
    write_terms(made)
    return made


def test_whatever_happens_the_run_ends_and_every_release_was_spent_once(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with started(project) as trial:
        live = Live(project, trial)
        _strangers_stay_out(live)
        _other_terms_are_refused(live)
        for after in (False, True):
            _a_coordinator_that_dies_goes_on(live, after)
        live.serve_by("")
        live.begin()
        _a_node_is_killed_and_returns(live, monkeypatch, tmp_path)
        if live.lines("finished")[-1]["missing"]:
            run(trial, WAIT)
    assert live.lines("finished")[-1]["whole"] == sorted(live.terms.sites)
    assert {line["site"] for line in live.lines("agreed")} == set(live.terms.sites)
    _require_replay(live)


def _strangers_stay_out(live: Live) -> None:
    """Who speaks in plain text, and a node whose key nobody registered."""
    with pytest.raises((http.client.HTTPException, OSError)):
        _said_in_plain_text(live.trial.port)
    live.project.write_node_key("stranger")
    live.trial.supernode("stranger")


def _said_in_plain_text(port: int) -> None:
    plain = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    plain.request("GET", "/")
    plain.getresponse()


def _other_terms_are_refused(live: Live) -> None:
    """A coordinator that asks with another budget than the sites have in their copies."""
    replace(live.terms, budget=Budget(9.0)).write(live.project.coordinator)
    live.begin()
    assert "other terms than ours: budget" in await_(lambda: live.lines("failed"))[-1]["why"]
    live.terms.write(live.project.coordinator)


def _a_coordinator_that_dies_goes_on(live: Live, after: bool) -> None:
    marker = live.project.place / f"died {after}"
    live.serve_by(DYING.format(after=after, marker=str(marker)))
    live.begin()
    await_(marker.exists)
    kinds = live.kinds()
    assert kinds.count("spend") == kinds.count("output") == after  # both, or neither


def _a_node_is_killed_and_returns(
    live: Live, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trial, home = live.trial, live.project.sites / "site-2"
    await_(lambda: list(home.glob("runs/*/00001.round")))  # in the middle of a round
    trial.stop("site-2", signal.SIGKILL)
    _a_site_never_answers(live, "site-3")  # what needs a round comes first: there are few of them
    _a_disk_is_full(live, "site-1")
    with monkeypatch.context() as patched:
        (tmp_path / "sitecustomize.py").write_text(A_DAY_AHEAD)
        paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        patched.setenv("PYTHONPATH", paths)
        trial.supernode("site-2")
        await_(lambda: trial.processes["site-2"].poll() is not None)  # refused at the door
    await_(lambda: live.readmitted("site-2"))
    await_(lambda: live.lines("finished"))
    silent = [name for line in live.lines("round") for name in line["silent"]]
    assert set(silent) == set(live.terms.sites)  # each missed a round, and none stopped the run


def _a_disk_is_full(live: Live, site: str) -> None:
    resident, unlimited = live.resident(site), resource.RLIM_INFINITY
    resource.prlimit(resident, resource.RLIMIT_FSIZE, (0, unlimited))
    await_(lambda: any(COULD_NOT in line["why"] for line in live.lines("refused")))
    resource.prlimit(resident, resource.RLIMIT_FSIZE, (unlimited, unlimited))


def _a_site_never_answers(live: Live, site: str) -> None:
    group = live.trial.processes[site].pid
    os.killpg(group, signal.SIGSTOP)
    await_(lambda: any(site in line["silent"] for line in live.lines("round")))
    os.killpg(group, signal.SIGCONT)


def _require_replay(live: Live) -> None:
    from tacit.cli.federated_site import rows_of
    from tacit.federation.own_tasks import among
    from tacit.tasks import TaskSet

    terms = live.terms
    homes = {name: live.project.sites / name for name in terms.sites}
    parts = [among(rows_of(home, terms)[0], terms.labels) for home in homes.values()]
    X, y = (
        np.concatenate(
            [getattr(part, of)[part.task_index == i] for i in range(6) for part in parts]
        )
        for of in ("X", "y")
    )
    offsets = np.concatenate([[0], np.cumsum(sum(part.sizes for part in parts))])
    every = TaskSet(X, y, offsets, terms.labels, np.arange(len(y)), parts[0].feature_names)
    before = live.kinds()
    with Ledger(live.project.coordinator / folder.LEDGER, dataset=terms.dataset) as ledger:
        whole = terms.model(ledger).fit_tasks(every, terms.schema)
    assert live.kinds() == before  # nothing was drawn for it, and nothing spent
    assert before.count("spend") == before.count("output") == len(whole.history_)
    for name, home in homes.items():
        own = getattr(tacit, terms.learner).load(home / "private")
        assert np.array_equal(own._models, whole._models[terms.places[name]])
        for hand_out in (home / "hand-outs").iterdir():
            assert checked(hand_out, terms.coordinator).verdict.startswith("sound")
