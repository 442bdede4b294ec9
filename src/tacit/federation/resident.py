"""A process of a site that stays: Flower starts a process for every message, and this one answers.

What Flower starts passes the request on through a socket in the site's folder, which only its owner
can open, and loads nothing of ours but this file; the resident has the learner loaded, so a message
costs what a bare one does. It has no memory that counts: whatever a site must not forget is on its
disk (records.py). One that died is started again with the next message; one that nobody asks ends.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, suppress
from pathlib import Path

SOCKET, LOCK, LOG = "resident.sock", "resident.lock", "resident.log"
IDLE = 900.0
"""Seconds without a request after which a resident ends."""
START = 120.0
"""Seconds that it may take to load."""
LENGTH = 8
"""Bytes of the length before every message."""


def ask(place: Path, module: str, request: bytes) -> bytes:
    """What the resident of this folder answers; ``python -m module FOLDER`` starts one if there is
    none. One that dies is asked again once, since a site answers the same again."""
    with chdir(place):
        try:
            return _asked(module, request)
        except (ConnectionError, EOFError):
            return _asked(module, request)


def _asked(module: str, request: bytes) -> bytes:
    with _connected(module) as connection:
        _send(connection, request)
        return _received(connection)


@contextmanager
def _connected(module: str) -> Iterator[socket.socket]:
    until, started = time.monotonic() + START, False
    while True:
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(SOCKET)  # relative: a whole path may be too long for a socket
            except (FileNotFoundError, ConnectionRefusedError):
                if time.monotonic() > until:
                    raise
            else:
                yield connection
                return
        if not started:
            _start(module)
            started = True
        time.sleep(0.05)


def _start(module: str) -> None:
    """It outlives whoever starts it, and ends with the node's group of processes."""
    log = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", module, "."],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, LOG, log, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
    )


def serve(place: Path, answer: Callable[[bytes], bytes], idle: float = IDLE) -> None:
    """Answers request after request, until nobody asks; at once if another resident is there."""
    with chdir(place), open(LOCK, "r+" if Path(LOCK).exists() else "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        lock.write(f"{os.getpid()}\n")  # by which its owner stops it
        lock.flush()
        Path(SOCKET).unlink(missing_ok=True)  # of one that was killed
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(SOCKET)
            os.chmod(SOCKET, 0o600)
            listening.listen()
            listening.settimeout(idle)
            try:
                while True:
                    _answer(listening.accept()[0], answer)
            except TimeoutError:
                Path(SOCKET).unlink(missing_ok=True)


def _answer(connection: socket.socket, answer: Callable[[bytes], bytes]) -> None:
    connection.settimeout(None)
    with connection, suppress(ConnectionError, EOFError):  # whoever asked is gone
        _send(connection, answer(_received(connection)))


def _send(connection: socket.socket, content: bytes) -> None:
    connection.sendall(len(content).to_bytes(LENGTH, "big") + content)


def _received(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as stream:
        length = int.from_bytes(stream.read(LENGTH), "big")
        content = stream.read(length)
    if not length or len(content) < length:
        raise EOFError("the other side ended in the middle of a message")
    return content
