"""Where the ledger of a table is: beside it, so that every fit of the same file adds up.

SQLite's locks do not hold on network file systems: two machines could spend the same budget, and
a lost lock may lose an entry. So a ledger there is refused.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

from tacit.errors import InvalidInput

ENDING = ".ledger.sqlite"
NETWORK = ("nfs*", "cifs", "smb*", "afs", "ceph", "lustre", "gluster*", "fuse.sshfs")
"""Kinds of file systems as Linux names them."""

MOUNTS = Path("/proc/self/mountinfo")


def ledger_beside(table: Path) -> Path:
    """The ledger of a table that names no other.

    >>> ledger_beside(Path("data/pupils.csv")).as_posix()
    'data/pupils.csv.ledger.sqlite'
    """
    return table.with_name(table.name + ENDING)


def dataset_place(table: Path) -> Path:
    """The table itself, wherever links lead; of a pattern of files, their folder.

    >>> dataset_place(Path("/data/*.parquet")).as_posix()
    '/data'
    """
    named = table.parent if any(mark in table.name for mark in "*?[") else table
    return Path(os.path.realpath(named))


def require_place(ledger: Path) -> None:
    """Refuse a place where a ledger cannot be kept; the error says how to name another."""
    home = ledger.absolute().parent
    if not home.is_dir():
        raise InvalidInput(f"there is no folder {home} for the ledger; name a place with --ledger")
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(ledger.stat().st_mode):
            raise InvalidInput(f"{ledger} is no plain file; name another place with --ledger")
    if not os.access(ledger if ledger.exists() else home, os.W_OK):
        raise InvalidInput(
            f"the ledger {ledger} is not writable here; name another place with --ledger"
        )
    kind = file_system(home)
    if kind is not None and any(fnmatch(kind, pattern) for pattern in NETWORK):
        raise InvalidInput(
            f"the ledger {ledger} would lie on a network file system ({kind}), where its locks do "
            "not hold; name a place on this machine with --ledger"
        )


def file_system(place: Path) -> str | None:
    """The kind of file system that a folder lies on; None where the system does not tell.

    A line of mountinfo: id parent major:minor root *mount point* options ... - *kind* source ...
    The longest mount point above the folder is its own, the last of equals.
    """
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    inside, best, kind = Path(os.path.realpath(place)), -1, None
    for line in lines:
        left, dash, right = line.partition(" - ")
        fields = left.split()
        if not dash or len(fields) < 5:
            continue
        point = Path(re.sub(r"\\([0-7]{3})", _character, fields[4]))  # a space is written \040
        if inside.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), right.split()[0]
    return kind


def _character(octal: re.Match[str]) -> str:
    return chr(int(octal[1], 8))
