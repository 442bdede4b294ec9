"""What a disk may hold after the power failed: all that was synced, and any part of the rest.

A file's writes since its last sync are there, or not, or in part, sector by sector, in any order. A
name that was made, removed or moved since its folder's last sync was, or was not.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T")
SECTOR = 512


class Call(NamedTuple):
    """A system call, as faulty_disk.c notes it: W, S(ync), T(runcate), U(nlink), R(ename), C."""

    what: str
    path: Path
    offset: int
    data: bytes


def noted(log: bytes) -> Iterator[Call]:
    """The calls, oldest first."""
    at = 0
    while at < len(log):
        what, length = struct.unpack_from("<cI", log, at)
        path = log[at + 5 : at + 5 + length].decode()
        offset, size = struct.unpack_from("<qQ", log, at + 5 + length)
        first = at + 5 + length + 16
        yield Call(what.decode(), Path(path), offset, log[first : first + size])
        at = first + size


@dataclass
class Inode:
    """A file's content on the disk, and what is on its way there."""

    content: bytearray = field(default_factory=bytearray)
    pending: list[Call] = field(default_factory=list)

    def apply(self, call: Call) -> None:
        if call.what == "T":
            del self.content[call.offset :]
            self.content.extend(bytes(call.offset - len(self.content)))
            return
        missing = call.offset - len(self.content)
        self.content.extend(bytes(max(0, missing)))
        self.content[call.offset : call.offset + len(call.data)] = call.data

    def sync(self) -> None:
        for call in self.pending:
            self.apply(call)
        self.pending = []


class Disk:
    """A folder and what is durable of it."""

    def __init__(self, before: Path, folder: Path) -> None:
        """``before`` is what ``folder`` held before the first call."""
        self._folder = folder
        self._names = {each.name: Inode(bytearray(each.read_bytes())) for each in before.iterdir()}
        self._durable = dict(self._names)
        self._pending: list[tuple[str, str, Inode | None]] = []  # what, name, what it names

    def perform(self, call: Call) -> None:
        """As the kernel saw it."""
        name = call.path.name
        if call.path == self._folder:  # a folder's sync
            self._name(self._pending)
            self._pending = []
        elif call.what in "WT" and name in self._names:
            self._names[name].pending.append(call)
        elif call.what == "S" and name in self._names:
            self._names[name].sync()
        elif call.what == "C":
            self._change(("set", name, Inode()))
        elif call.what == "U":
            self._change(("remove", name, None))
        elif call.what == "R":
            self._change(("set", Path(call.data.decode()).name, self._names[name]))
            self._change(("remove", name, None))

    def _change(self, change: tuple[str, str, Inode | None]) -> None:
        self._pending.append(change)
        _named(self._names, change)

    def _name(self, changes: list[tuple[str, str, Inode | None]]) -> None:
        for change in changes:
            _named(self._durable, change)

    def cut(self, rng: random.Random) -> None:
        """The power fails: some of what was on its way has arrived."""
        self._name(_some(self._pending, rng))
        self._pending = []
        for inode in {id(each): each for each in self._durable.values()}.values():
            arrived = _some(inode.pending, rng)
            if rng.random() < 0.3:
                arrived = [torn for call in arrived for torn in _torn(call, rng)]
            inode.pending = arrived
            inode.sync()

    def write(self, folder: Path) -> None:
        """What is found when the machine comes back."""
        for name, inode in self._durable.items():
            (folder / name).write_bytes(inode.content)


def _named(names: dict[str, Inode], change: tuple[str, str, Inode | None]) -> None:
    _, name, inode = change
    if inode is None:
        names.pop(name, None)
    else:
        names[name] = inode


def _some(pending: list[T], rng: random.Random) -> list[T]:
    """None, all, the first ones, or any of them."""
    match rng.randrange(4):
        case 0:
            return []
        case 1:
            return list(pending)
        case 2:
            return pending[: rng.randint(0, len(pending))]
    return [each for each in pending if rng.random() < 0.5]


def _torn(call: Call, rng: random.Random) -> Iterator[Call]:
    if call.what != "W":
        yield call
        return
    for at in range(0, len(call.data), SECTOR):
        if rng.random() < 0.7:
            yield call._replace(offset=call.offset + at, data=call.data[at : at + SECTOR])
