"""Files that are read up to a limit, and written whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from tacit.errors import InvalidInput

PARTIAL = ".*." + "[0-9a-f]" * 16 + ".partial"
"""How a file is called that is being written; it is found only where a process was killed."""

MOST_JSON, MOST_MODEL = 64 * 2**20, 8 * 2**30
"""Bytes that are read of a file somebody sent: no certificate is longer, and no model of ours."""


def opened(path: Path, most: int | None = MOST_MODEL) -> BufferedReader:
    """A regular file of at most so many bytes (None: however long), to be read; InvalidInput: it is
    none.

    Not blocking, because to open somebody's pipe would wait for its other end for ever.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except (FileNotFoundError, NotADirectoryError):
        raise InvalidInput(f"there is no file {str(path)!r}") from None
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
        why = getattr(error, "strerror", None) or error
        raise InvalidInput(f"{str(path)!r} cannot be read: {why}") from None
    found = os.fstat(handle)
    why = "" if stat.S_ISREG(found.st_mode) else "is no plain file"
    if not why and most is not None and found.st_size > most:
        why = f"has more than {most:,} bytes"
    if why:
        os.close(handle)
        raise InvalidInput(f"{path} {why}")
    return os.fdopen(handle, "rb")


def read_bytes(path: Path) -> bytes:
    """What a JSON file holds, unless it is longer than any of ours."""
    with opened(path, MOST_JSON) as file:
        return file.read(MOST_JSON)


def replace_file(path: Path, content: bytes, *, private: bool = False) -> None:
    """The new content appears under its name at once and stays, or the old one does.

    ``private``: only its owner may ever read it.
    """
    if path.is_dir():  # "" is the folder where we are
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    try:
        with _written_beside(path, content, 0o600 if private else 0o666) as fresh:
            fresh.replace(path)
            sync(path.parent)
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def made_once(path: Path, content: bytes) -> bytes:
    """What the file holds: this content if nobody made it before. For its owner's eyes only.

    Of two processes that make it at the same instant one is faster, and both get its content.
    """
    if not path.exists():
        with _written_beside(path, content, 0o600) as fresh:
            with suppress(FileExistsError):
                os.link(fresh, path)
            sync(path.parent)
    return read_bytes(path)


@contextmanager
def _written_beside(path: Path, content: bytes, mode: int) -> Iterator[Path]:
    """The content on the disk, under a name that nobody could have prepared; gone afterwards,
    however that comes, unless it got another name."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    try:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
        with os.fdopen(os.open(fresh, flags, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield fresh
    finally:
        fresh.unlink(missing_ok=True)


def sync(directory: Path) -> None:
    """The names in a directory reach the disk."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make(directory: Path, mode: int = 0o777) -> list[Path]:
    """Makes a folder and those above it, on the disk; returns what was not there, innermost first.

    ``mode`` is that of the folder itself.
    """
    new = [place for place in (directory, *directory.parents) if not place.exists()]
    directory.mkdir(mode, parents=True, exist_ok=True)
    for place in new:
        sync(place.parent)
    return new
