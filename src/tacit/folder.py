"""The folder of a fitted model: model.safetensors (never pickle) and certificate.json."""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Callable, Collection, Hashable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tacit.arrays import Array
from tacit.errors import InvalidInput

MODEL, CERTIFICATE, SEAL = "model.safetensors", "certificate.json", "seal.json"
LEDGER, RUN, LOCAL = "ledger.sqlite", "run.json", "local.json"
PUBLIC_PAGE, LOCAL_PAGE = "report.html", "report.local.html"
TRUSTED = (f"*{LEDGER}*", "*.signing", RUN, LOCAL, LOCAL_PAGE)
"""What belongs to the trusted side alone, and never into what a task receives."""

MOST_JSON, MOST_MODEL = 64 * 2**20, 8 * 2**30
"""Bytes that are read of a file somebody sent: no certificate is longer, and no model of ours."""

Arrays = Mapping[str, Array]


def plain(label: Any) -> Any:
    """A label as JSON knows it: numpy scalars become Python's, tuples become lists.

    >>> plain(np.int64(3)), plain(("a", 1))
    (3, ['a', 1])
    """
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, tuple):
        return [plain(part) for part in label]
    if isinstance(label, str | int | float | bool) or label is None:
        return label
    raise InvalidInput(f"label {label!r} cannot be written; use text, numbers or tuples of them")


def hashable(label: Any) -> Hashable:
    """Inverse of plain.

    >>> hashable(["a", 1])
    ('a', 1)
    """
    return tuple(map(hashable, label)) if isinstance(label, list) else label


def write(
    directory: str | Path, description: Mapping[str, Any], arrays: Arrays, certificate: Any
) -> Path:
    """Writes both files, each whole or not at all."""
    folder = write_model(directory, description, arrays)
    write_json(folder / CERTIFICATE, certificate)
    return folder


def write_model(directory: str | Path, description: Mapping[str, Any], arrays: Arrays) -> Path:
    """Writes model.safetensors, whole or not at all; the folder is made if it is not there."""
    from safetensors.numpy import save

    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: np.array(array, order="C") for name, array in arrays.items()}
    replace_file(folder / MODEL, save(tensors, metadata={"tacit": json.dumps(description)}))
    return folder


def write_json(path: Path, value: Any) -> None:
    """Writes the file whole or not at all; keys sorted, readable by people."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
    replace_file(path, (text + "\n").encode())


def opened(path: Path, most: int = MOST_MODEL) -> BufferedReader:
    """A regular file of at most so many bytes, to be read; InvalidInput: it is none.

    Not blocking, because to open somebody's pipe would wait for its other end for ever.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except (FileNotFoundError, NotADirectoryError):
        raise InvalidInput(f"there is no file {str(path)!r}") from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_size > most:
        os.close(handle)
        why = f"has more than {most:,} bytes" if stat.S_ISREG(found.st_mode) else "is no plain file"
        raise InvalidInput(f"{path} {why}")
    return os.fdopen(handle, "rb")


def read_bytes(path: Path) -> bytes:
    """What a JSON file holds, unless it is longer than any of ours."""
    with opened(path, MOST_JSON) as file:
        return file.read(MOST_JSON)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file; InvalidInput if there is none."""
    return parsed(read_bytes(path), path)


def parsed(content: bytes, path: Path) -> dict[str, Any]:
    """The object in what was read from a file."""
    try:
        value = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidInput(f"{path} holds {type(value).__name__}, expected an object")
    return value


def read(directory: str | Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Description, arrays and certificate."""
    folder = Path(directory)
    try:
        certificate = read_json(folder / CERTIFICATE)
        description, arrays = read_tensors(folder / MODEL)
    except InvalidInput as error:
        raise InvalidInput(f"{folder} is not a tacit model: {error}") from error
    return description, arrays, certificate


def read_tensors(
    path: Path,
    wanted: Callable[[dict[str, Any]], Collection[str]] | None = None,
    *,
    framework: Literal["numpy", "pt"] = "numpy",
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a safetensors file says of itself, and its tensors: all, or those that ``wanted`` names
    of what it says. InvalidInput: it holds no such thing."""
    from safetensors import SafetensorError, safe_open

    opened(path).close()  # it is a plain file, of a moderate size
    try:
        with safe_open(path, framework=framework) as file:
            description = parsed(file.metadata()["tacit"].encode(), path)
            names = file.keys() if wanted is None else wanted(description)
            return description, {name: file.get_tensor(name) for name in names}
    except (OSError, LookupError, TypeError, AttributeError, SafetensorError) as error:
        raise InvalidInput(f"{path.name} holds no tensors of tacit: {error}") from error


def read_as(learner: str, directory: str | Path) -> tuple[dict[str, Any], ...]:
    """Description, arrays and certificate of a folder that this learner wrote."""
    found = read(directory)
    name = found[0].get("learner")
    if name != learner:
        raise InvalidInput(f"{directory} holds a {name}; load it with tacit.{name}.load")
    return found


@dataclass(frozen=True)
class RunState:
    """What a run was declared with: run.json, which ``--resume`` needs. It holds no data."""

    run: str
    options: Mapping[str, Any]  # everything declared, as JSON
    ledger: str  # its path; relative to the folder if it lies there
    dataset: str
    fingerprint: str
    complete: bool = False

    def write(self, directory: Path) -> None:
        """Writes directory/run.json, whole or not at all."""
        write_json(directory / RUN, asdict(self))

    @classmethod
    def read(cls, directory: Path) -> RunState:
        """Inverse of write."""
        found = read_json(directory / RUN)
        try:
            return cls(**found)
        except TypeError as error:
            raise InvalidInput(f"{directory / RUN} is not a run of tacit: {error}") from None

    def ledger_path(self, directory: Path) -> Path:
        """Where the ledger is."""
        return directory / self.ledger


def replace_file(path: Path, content: bytes, *, private: bool = False) -> None:
    """The new content appears under its name at once, or the old one stays.

    ``private``: only its owner may read it.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        if private:
            partial.touch(mode=0o600)
            partial.chmod(0o600)  # it may be left over from a write that was killed
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        error.filename = error.filename or str(path)
        raise


def made_once(path: Path, content: bytes) -> bytes:
    """What the file holds: this content if nobody made it before. For its owner's eyes only.

    Of two processes that make it at the same instant one is faster, and both get its content.
    """
    if not path.exists():
        partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        handle = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(partial, path)
        finally:
            partial.unlink()
    return path.read_bytes()
