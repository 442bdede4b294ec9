"""The folder of a fitted model: model.safetensors (never pickle) and certificate.json."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tacit.arrays import Array
from tacit.errors import InvalidInput
from tacit.files import PARTIAL, make, opened, read_bytes, replace_file
from tacit.json_converter import from_json, to_json

MODEL, CERTIFICATE, SEAL = "model.safetensors", "certificate.json", "seal.json"
LEDGER, RUN, LOCAL = "ledger.sqlite", "run.json", "local.json"
MODELS = "models"  # a folder: the tasks' own, where they are too many for one file
PUBLIC_PAGE, LOCAL_PAGE, TASK_PAGE = "report.html", "report.local.html", "model.html"
TRUSTED = (f"*{LEDGER}*", "*.signing", RUN, LOCAL, LOCAL_PAGE, MODELS)
"""What belongs to the trusted side alone, and never into what a task receives."""

LARGEST = 1e150
"""Of the numbers of a model: times a feature, and added up, they stay finite."""

DEEPEST = 50
"""How far lists and objects nest in a file that somebody sent."""

Arrays = Mapping[str, Array]

Contents = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]
"""Of a folder: its description, arrays and certificate."""


def write_model(
    directory: str | Path,
    description: Mapping[str, Any],
    arrays: Arrays,
    *,
    private: bool = False,
) -> Path:
    """Writes model.safetensors, whole or not at all; the folder is made if it is not there.

    ``private``: only its owner may read what is made here.
    """
    from safetensors.numpy import save

    folder = Path(directory)
    make(folder, 0o700 if private else 0o777)
    tensors = {name: np.array(array, order="C") for name, array in arrays.items()}
    content = save(tensors, metadata={"tacit": json.dumps(description)})
    replace_file(folder / MODEL, content, private=private)
    return folder


def write_json(path: Path, value: Any) -> None:
    """Writes the file whole or not at all."""
    replace_file(path, json_text(value, path))


def json_text(value: Any, path: Path | str) -> bytes:
    """For a file: keys sorted, readable by people."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
    try:
        return (text + "\n").encode()
    except UnicodeEncodeError as error:
        half = text[error.start : error.end]
        raise InvalidInput(f"{half!r} is no text, and cannot be written into {path}") from None


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file; InvalidInput if there is none."""
    return parsed(read_bytes(path), path)


def parsed(content: bytes, path: Path) -> dict[str, Any]:
    """The object in what was read from a file."""
    try:
        value = json.loads(content.decode("utf-8"), parse_float=_float64)
        if b"\\u" in content:
            json.dumps(value, ensure_ascii=False).encode()  # half a character is no text
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidInput(f"{path} holds {type(value).__name__}, expected an object")
    if is_deep(value):
        raise InvalidInput(f"{path} nests deeper than {DEEPEST} levels: no file of ours does")
    return value


def _float64(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError(f"{text} is larger than any number of 64 bits")
    return number


def is_deep(value: Any) -> bool:
    """Whether lists and objects nest deeper than whoever reads or writes them could follow."""
    level = [value]
    for _ in range(DEEPEST):
        if not level:
            return False
        parts = [part.values() if isinstance(part, dict) else part for part in level]
        level = [
            inner for part in parts if _may_nest(part) for inner in part if _nests(type(inner))
        ]
    return bool(level)


def _may_nest(part: Iterable[Any]) -> bool:
    """Asked of types first: of a million texts there is one."""
    return any(map(_nests, {*map(type, part)}))


def _nests(kind: type) -> bool:
    return issubclass(kind, dict | list)


def read(directory: str | Path) -> Contents:
    """All of it."""
    folder = Path(directory)
    try:
        certificate = read_json(folder / CERTIFICATE)
        description, arrays = read_tensors(folder / MODEL)
        for name, array in arrays.items():
            if not float(np.abs(array).max(initial=0.0)) <= LARGEST:
                raise InvalidInput(f"its {name} are not all finite, or larger than any of ours")
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
        """Writes directory/run.json, whole or not at all, for its owner's eyes."""
        path = directory / RUN
        replace_file(path, json_text(to_json(self), path), private=True)

    @classmethod
    def read(cls, directory: Path) -> RunState:
        """Inverse of write."""
        return from_json(cls, read_json(directory / RUN), str(directory / RUN))

    def ledger_path(self, directory: Path) -> Path:
        """Where the ledger is."""
        return directory / self.ledger


# --- by one at a time ----------------------------------------------------------------------------


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """The folder, for its owner only if it has to be made, with nobody else in it who writes.

    InvalidInput: somebody is, and nothing was touched. A folder that was made for this and stays
    empty is removed, and so is what a process that was killed had not finished. The lock is the
    system's, on the folder itself: it ends with its process, however that ends. A network file
    system may know no such lock; there it is up to whoever starts two processes.
    """
    handle, new = _locked(directory)
    try:
        for left in directory.glob(PARTIAL):
            left.unlink()
        yield
    finally:
        with suppress(OSError):  # not empty
            for place in new:
                place.rmdir()
        os.close(handle)


def is_held(directory: Path) -> bool:
    """Whether a process writes there now; nothing is touched."""
    import fcntl

    if not directory.exists():
        return False
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _locked(directory: Path) -> tuple[int, list[Path]]:
    """The folder open and locked, and which folders had to be made for it."""
    import fcntl

    new: list[Path] = []
    while True:
        new += [place for place in make(directory, 0o700) if place not in new]
        handle = os.open(directory, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise InvalidInput(
                f"another process is writing into {directory}; wait for it, or name another folder"
            ) from None
        except OSError:  # no such locks here
            return handle, new
        if directory.exists() and os.path.samestat(os.fstat(handle), directory.stat()):
            return handle, new
        os.close(handle)  # whoever had it has removed it: make it again
