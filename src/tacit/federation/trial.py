"""A trial on this machine: SuperLink and SuperNodes on loopback, started, watched and stopped by
their process ids."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tacit.errors import InvalidInput
from tacit.federation.coordinator import JOURNAL, Journal
from tacit.federation.project import LOOPBACK, Project
from tacit.federation.terms import Terms

QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
"""Nothing of ours is told to anybody but the parties."""
SWIFT = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}
"""Seconds after which a node looks whether a message has come that needs a process."""


def free_port() -> int:
    """One that nobody listens on at this instant."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


@dataclass
class Trial:
    """The processes of a federation, and what they write."""

    project: Project
    port: int
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def _logs(self) -> Path:
        return self.project.flower / "logs"

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """One process, in a group of its own, so that what it starts ends with it."""
        self._logs.mkdir(parents=True, exist_ok=True)
        with (self._logs / f"{name}.log").open("ab") as log:
            found = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment(),
                start_new_session=True,
            )
        self.processes[name] = found
        return found

    def environment(self) -> Mapping[str, str]:
        """Of every process: no telemetry, Flower's files in the project, our Python first."""
        here = str(Path(sys.executable).parent)
        path = os.pathsep.join([here, os.environ.get("PATH", "")])
        return (
            os.environ
            | QUIET
            | SWIFT
            | {"FLWR_HOME": str(self.project.flower.resolve()), "PATH": path}
        )

    def superlink(self) -> None:
        """Waits until it listens."""
        keys = self.project.certificates
        self.start(
            "superlink",
            "flower-superlink",
            *("--ssl-ca-certfile", str(keys / "ca.pem")),
            *("--ssl-certfile", str(keys / "server.pem")),
            *("--ssl-keyfile", str(keys / "server.key")),
            *("--host", LOOPBACK, "--port", str(self.port)),
            "--enable-supernode-auth",
            "--disable-runtime-dependency-installation",
        )
        self.await_port("superlink", self.port)

    def register(self, site: str) -> None:
        """Tells the SuperLink the public key of a site's node: it takes no other."""
        self.flwr("supernode", "register", str(self.project.sites / site / "node.pub"), "tacit")

    def supernode(self, site: str) -> None:
        """The node of a site, with its key."""
        home = (self.project.sites / site).resolve()
        self.start(
            site,
            "flower-supernode",
            *("--root-certificates", str(self.project.certificates / "ca.pem")),
            *("--superlink", f"{LOOPBACK}:{self.port}"),
            *("--auth-supernode-private-key", str(home / "node.key")),
            *("--host", LOOPBACK, "--port", str(free_port())),
            *("--node-config", f'site="{home}"'),
        )

    def flwr(self, *command: str) -> str:
        """What a command of Flower's own says; InvalidInput if it fails."""
        found = subprocess.run(
            [str(Path(sys.executable).parent / "flwr"), *command],
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if found.returncode:
            raise InvalidInput(f"flwr {command[0]}: {(found.stdout + found.stderr).strip()[-500:]}")
        return found.stdout

    def await_port(self, name: str, port: int, seconds: float = 60.0) -> None:
        """Until this process listens; InvalidInput: it does not, or has ended."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.processes[name].poll() is not None:
                break
            with socket.socket() as probe:
                probe.settimeout(1.0)
                if probe.connect_ex((LOOPBACK, port)) == 0:
                    return
            time.sleep(0.2)
        raise InvalidInput(f"the {name} does not listen; see {self._logs / name}.log")

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """One process and those that it started."""
        process = self.processes.pop(name)
        for each in (how, signal.SIGKILL):
            try:
                os.killpg(process.pid, each)
            except ProcessLookupError:
                break
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                continue
        process.wait()


@contextmanager
def started(project: Project, port: int | None = None) -> Iterator[Trial]:
    """SuperLink and a SuperNode for every site, registered; all of them end with the block."""
    port = port or free_port()
    project.write_app(f"{LOOPBACK}:{port}")
    trial = Trial(project, port)
    usual = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        trial.superlink()
        sites = list(Terms.read(project.coordinator).sites)
        with ThreadPoolExecutor() as together:
            list(together.map(trial.register, sites))
        for site in sites:
            trial.supernode(site)
        yield trial
    finally:
        for name in list(trial.processes):
            trial.stop(name)
        signal.signal(signal.SIGTERM, usual)


def run(trial: Trial, seconds: float) -> dict[str, Any]:
    """One run of the app; how it ended. InvalidInput: it failed, or took too long."""
    journal = Journal(trial.project.coordinator / JOURNAL)
    before, until = len(journal.lines()), time.monotonic() + seconds
    trial.flwr("run", str(trial.project.app), "tacit")
    while time.monotonic() < until:
        for line in journal.lines()[before:]:
            if line["what"] == "finished":
                return line
            if line["what"] == "failed":
                raise InvalidInput(f"the run failed: {line['why']}")
        time.sleep(0.5)
    raise InvalidInput(f"the run did not end in {seconds:g} s; see {trial._logs}")
