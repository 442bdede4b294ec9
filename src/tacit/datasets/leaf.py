"""Data in the JSON format of LEAF (Caldas et al., 2018), the usual benchmark of federated learning.

::

    {"users": ["w1", ...], "num_samples": [12, ...],
     "user_data": {"w1": {"x": [[0.0, ...], ...], "y": [3, ...]}, ...}}

One file, or a folder of such files (``train`` and ``test`` are folders of their own). The files are
the user's own: nothing is known about them in advance, so there is no checksum and no range.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit.arrays import Array, FloatArray, IntArray
from tacit.errors import DataUnavailable, InvalidInput

KEYS = ("users", "num_samples", "user_data")


@dataclass(frozen=True, eq=False, repr=False)
class Leaf:
    """Rows with a user each: ``est.fit(data.X, data.y, task=data.task)``."""

    X: FloatArray  # (N, ...)
    y: Array  # (N,), integers if all are, else floats
    task: IntArray  # (N,), the place of the user in users
    users: tuple[str, ...]  # in the order of the files; one without rows is among them


def read_leaf(path: str | Path) -> Leaf:
    """Reads a LEAF file, or all ``*.json`` of a folder in the order of their names.

    Rows of numbers only: text (Shakespeare, Sent140) must be coded first.
    """
    found: dict[str, tuple[Array, Array]] = {}
    shape: tuple[int, ...] | None = None
    for file in _files(Path(path)):
        content = _content(file)
        for user, number in zip(content["users"], content["num_samples"], strict=True):
            if user in found:
                raise InvalidInput(f"{file}: the user {user!r} occurs twice")
            x, y = _rows_of(content["user_data"], user, number, file)
            shape = x.shape[1:] if len(x) and shape is None else shape
            if len(x) and x.shape[1:] != shape:
                raise InvalidInput(
                    f"{file}: rows of the user {user!r} have shape {x.shape[1:]}, "
                    f"earlier ones {shape}"
                )
            found[user] = x, y
    task = np.repeat(np.arange(len(found)), [len(y) for _, y in found.values()])
    rows, targets = (_joined([pair[i] for pair in found.values()]) for i in (0, 1))
    return Leaf(rows, targets, task, tuple(found))


def _joined(parts: list[Array]) -> Array:
    """All rows; a user without any has no shape to agree with."""
    full = [part for part in parts if len(part)]
    if not full:
        raise InvalidInput("there are no rows: no user has a sample")
    return np.concatenate(full)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found = sorted(path.glob("*.json")) if path.is_dir() else []
    if not found:
        raise DataUnavailable(f"{path} is neither a LEAF file nor a folder with *.json in it")
    return found


def _content(file: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataUnavailable(f"{file} cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise InvalidInput(f"{file} is not JSON: {error}") from None
    missing = [key for key in KEYS if not isinstance(content, dict) or key not in content]
    if missing:
        raise InvalidInput(f"{file} is not in LEAF's format: it has no {missing[0]!r}")
    if len(content["users"]) != len(content["num_samples"]):
        raise InvalidInput(
            f"{file}: {len(content['users'])} users, but {len(content['num_samples'])} num_samples"
        )
    return content


def _rows_of(data: Any, user: Any, number: Any, file: Path) -> tuple[Array, Array]:
    """x (n, ...) and y (n,) of one user, checked."""
    where = f"{file}: the user {user!r}"
    try:
        x, y = data[user]["x"], data[user]["y"]
    except (KeyError, TypeError, IndexError):
        raise InvalidInput(f"{where} has no x and y in user_data") from None
    if not len(x) == len(y) == number:
        raise InvalidInput(f"{where} has {len(x)} x and {len(y)} y, num_samples says {number}")
    rows, targets = _numbers(x, f"{where}, x"), _numbers(y, f"{where}, y")
    if targets.ndim != 1:
        raise InvalidInput(f"{where}, y must be one number a sample, got shape {targets.shape}")
    return np.asarray(rows, dtype=np.float64), targets


def _numbers(values: Any, where: str) -> Array:
    """Integers stay integers."""
    try:
        found = np.asarray(values)
    except ValueError:  # lists of different lengths
        raise InvalidInput(f"{where} holds rows of different lengths") from None
    if not len(found):
        return np.zeros(0, dtype=np.int64)
    if found.dtype.kind not in "biuf":
        first = found.ravel().tolist()[0]
        raise InvalidInput(f"{where} holds {first!r}, not a number: code text first")
    if not np.isfinite(found).all():
        raise InvalidInput(f"{where} holds values that are not finite")
    return found
