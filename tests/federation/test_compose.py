"""docs/compose.yaml, followed command by command: silos and networks that learn over Flower.

There are no containers here. Each service is a process with its command and environment as they
are written there, but for what a container has of its own: its paths, which become the folders that
are mounted, its home, its name and its ports.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit import folder
from tacit.certificate.checks import checked
from tacit.cli.federate_init import write_example, write_terms
from tacit.federation.coordinator import JOURNAL, Journal
from tacit.federation.hand_outs import HAND_OUTS, PRIVATE
from tacit.federation.project import LOOPBACK, Project
from tacit.federation.terms import Terms
from tacit.federation.trial import SWIFT, free_port
from tacit.privacy.ledger import Ledger

pytestmark = pytest.mark.skipif(importlib.util.find_spec("flwr") is None, reason="needs Flower")

COMPOSE = Path(__file__).parents[2] / "docs" / "compose.yaml"
WAIT = 400.0
"""Seconds after which something is taken to hang."""
OPERATOR = "operator"
PORT = 8000
"""Of the SuperLink, in its container."""


@dataclass
class Containers:
    """The services of the file, beside a folder ``study``."""

    services: dict[str, Any]
    place: Path
    port: int = field(default_factory=free_port)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """One process, in a group of its own, so that what it starts ends with it."""
        home = self.place / name
        home.mkdir(exist_ok=True)
        paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        own = {k: self._outside(name, v) for k, v in self.services[name]["environment"].items()}
        with (home / "log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                self._command(name),
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | SWIFT | {"HOME": str(home), "PATH": paths} | own,
                start_new_session=True,
            )
        return self.running[name]

    def _command(self, name: str) -> list[str]:
        service = self.services[name]
        given = service["command"]
        words = [*service.get("entrypoint", []), *([given] if isinstance(given, str) else given)]
        command = [self._outside(name, word) for word in words]
        if "entrypoint" in service:
            return command
        (line,) = command
        own = ["--host", LOOPBACK, "--port", str(free_port())] if name.startswith("site") else []
        return [*shlex.split(line), *own]

    def _outside(self, name: str, text: str) -> str:
        """What is written for a container, for this machine."""
        for volume in sorted(self.services[name]["volumes"], key=len, reverse=True):
            host, inside = volume.split(":")[:2]
            mounted = str(self.place / Path(host).relative_to(".."))
            text = re.sub(rf"(?<![\w./-]){inside}(?![\w.-])", mounted, text)
        text = text.replace("coordinator:", f"{LOOPBACK}:").replace("0.0.0.0", LOOPBACK)
        return text.replace(str(PORT), str(self.port)).replace("$$", "$")

    def up(self) -> None:
        """Everybody but who waits for a profile, at once; then who failed again, as declared."""
        for name, service in self.services.items():
            process = self.running.get(name)
            if "profiles" not in service and (process is None or process.poll()):
                self.start(name)

    def run(self, name: str) -> int:
        """Its exit status, while the others are kept up."""
        until = time.monotonic() + WAIT
        while not all(map(self._healthy, self.services[name]["depends_on"])):
            assert time.monotonic() < until, f"{name} waits for whom it needs: {self.told()}"
            time.sleep(0.5)
        asked = self.start(name)
        while asked.poll() is None:
            assert time.monotonic() < until, f"{name} did not end: {self.told()}"
            self.up()
            time.sleep(0.5)
        return asked.returncode

    def _healthy(self, name: str) -> bool:
        kind, program, *words = self.services[name]["healthcheck"]["test"]
        assert (kind, program) == ("CMD", "python")
        command = [sys.executable, *(self._outside(name, word) for word in words)]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    def told(self) -> str:
        """The ends of all logs."""
        return "\n".join(f"{log}:\n{log.read_text()[-1500:]}" for log in self.place.glob("*/log"))

    def down(self) -> None:
        for process in self.running.values():
            for how in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, how)
                    process.wait(10)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    continue
            process.wait()


@contextmanager
def composed(place: Path) -> Iterator[Containers]:
    yaml = pytest.importorskip("yaml")
    made = Containers(yaml.safe_load(COMPOSE.read_text())["services"], place)
    assert all(service["restart"] == "on-failure" for service in made.services.values())
    try:
        yield made
    finally:
        made.down()


def written(project: Project, learner: str, parameters: str) -> Terms:
    """The steps before the first command: init, the coordinator's name, init again."""
    write_example(project, 2)
    config = project.place / "config.toml"
    text = config.read_text().replace('"SharedPrior"', f'"{learner}"')
    text = re.sub(r"hosts = \[.*\]", 'hosts = ["coordinator"]', text)
    config.write_text(text.replace("[parameters] ", f"[parameters]\n{parameters}\n# "))
    return write_terms(project)


def learned(containers: Containers, project: Project, terms: Terms) -> None:
    """One run by the operator, after which every party has what is its own."""
    config = project.flower / "config.toml"
    assert f'"coordinator:{PORT}"' in config.read_text()
    config.write_text(
        config.read_text().replace(f"coordinator:{PORT}", f"{LOOPBACK}:{containers.port}")
    )
    assert containers.run(OPERATOR) == 0, containers.told()
    lines = Journal(project.coordinator / JOURNAL).lines()
    assert lines[-1]["what"] == "finished", containers.told()
    assert lines[-1]["whole"] == ["site-1", "site-2"]
    for site in terms.sites:
        own = project.sites / site
        for hand_out in (own / HAND_OUTS).iterdir():
            assert checked(hand_out, terms.coordinator).verdict.startswith("sound")
        task = terms.sites[site].tasks[0]
        assert np.isfinite(terms.load(own / PRIVATE).predict(np.zeros((1, 4)), task=[task])).all()


def outputs(place: Path, terms: Terms) -> int:
    """How many releases are on the ledger there."""
    with Ledger(place / folder.LEDGER, dataset=terms.dataset, read_only=True) as ledger:
        return [entry.kind for entry in ledger.entries()].count("output")


def test_silos_and_networks_learn_by_the_commands_of_the_compose_file(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    project = Project(tmp_path / "study")
    with composed(tmp_path) as containers:
        terms = written(project, "SharedPrior", 'unit = "example"\npeople = 32')
        shutil.copytree(project.place, tmp_path / "before")
        containers.up()
        learned(containers, project, terms)
        for site in terms.sites:
            assert outputs(project.sites / site, terms) == 2 * 3  # of each of three silos
        assert outputs(project.coordinator, terms) == 2 * 6

        project.place.rename(tmp_path / "after")
        shutil.copytree(tmp_path / "before", project.place)  # another study of the same nodes
        network = 'model = {hidden = [3]}\nrounds = 1\nfinetune = "mean"'
        terms = written(project, "neural.FederatedMTL", network)
        learned(containers, project, terms)
        assert outputs(project.coordinator, terms) == 1
