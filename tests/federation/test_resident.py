"""A site's resident answers for processes that come and go, and loses nothing when it dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tacit.federation.resident import SOCKET, ask

MODULE = """
import os, sys
from pathlib import Path
from tacit.federation.resident import serve

def answer(request):
    if request == b"die":
        os.kill(os.getpid(), 9)
    return b"%d %s" % (os.getpid(), request)

serve(Path(sys.argv[1]), answer, idle=float(os.environ.get("IDLE", "20")))
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a site, whose name is longer than a socket's may be."""
    (tmp_path / "echo_resident.py").write_text(MODULE)
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    found = tmp_path / ("a long name " * 10)
    found.mkdir()
    return found


def asked(home: Path, request: bytes) -> tuple[int, bytes]:
    number, _, said = ask(home, "echo_resident", request).partition(b" ")
    return int(number), said


def test_one_resident_answers_whoever_asks_and_only_its_owner_can(home: Path) -> None:
    first, said = asked(home, b"x" * 2**20)
    assert said == b"x" * 2**20
    assert asked(home, b"again") == (first, b"again")
    assert (home / SOCKET).stat().st_mode & 0o077 == 0
    second = subprocess.run(
        [sys.executable, "-m", "echo_resident", str(home)], timeout=60, check=False
    )
    assert second.returncode == 0  # there is one already
    assert asked(home, b"still")[0] == first
    os.kill(first, signal.SIGTERM)


def test_one_that_was_killed_is_started_again(home: Path) -> None:
    first, _ = asked(home, b"hello")
    with pytest.raises((EOFError, ConnectionError)):
        asked(home, b"die")
    second, said = asked(home, b"hello")
    assert said == b"hello"
    assert second != first
    os.kill(second, signal.SIGTERM)


def test_one_that_nobody_asks_ends(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDLE", "0.2")
    asked(home, b"hello")
    until = time.monotonic() + 30
    while (home / SOCKET).exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not (home / SOCKET).exists()
