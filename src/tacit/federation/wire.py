"""What travels: a description in JSON and named arrays, in one piece; nothing is unpickled.

The form is safetensors: a length, a header that gives type, shape and place of each array, and the
bytes. Whoever reads it says first how long it may be, and trusts no number before it was looked at.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from tacit.arrays import Array
from tacit.errors import InvalidInput

MOST = 512 * 2**20
"""Bytes of a message: more than any of ours, and as many as Flower carries in one piece."""

KINDS = "fiub"
"""Of numbers: floats, integers, and truth values."""


def packed(description: Mapping[str, Any], arrays: Mapping[str, Array] | None = None) -> bytes:
    """The message.

    >>> unpacked(packed({"kind": "agree"}, {"mean": np.array(2.0)}))
    ({'kind': 'agree'}, {'mean': array(2.)})
    """
    from safetensors.numpy import save

    whole = {name: np.array(array, order="C") for name, array in (arrays or {}).items()}
    about = json.dumps(description, sort_keys=True, separators=(",", ":"))
    return save(whole, metadata={"tacit": about})


def unpacked(content: bytes, most: int = MOST) -> tuple[dict[str, Any], dict[str, Array]]:
    """Description and arrays, every number of them finite; InvalidInput: it is no such message."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    if len(content) > most:
        raise InvalidInput(f"a message of {len(content):,} bytes, where {most:,} are the most")
    try:
        arrays = load(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        description = json.loads(header["__metadata__"]["tacit"])
    except (SafetensorError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the message cannot be read: {error}") from None
    if not isinstance(description, dict):
        raise InvalidInput(f"a message is described by {type(description).__name__}, not an object")
    for name, array in arrays.items():
        if array.dtype.kind not in KINDS or not np.isfinite(array).all():
            raise InvalidInput(f"{name!r} holds something that is no finite number")
    return description, arrays


def is_count(value: Any) -> bool:
    """Whether it is one of 0, 1, 2, …: True is not, though Python takes it for 1.

    >>> is_count(1), is_count(True), is_count(-1)
    (True, False, False)
    """
    return type(value) is int and value >= 0


def digest(content: bytes) -> str:
    """By which an answer names what it answers."""
    return hashlib.sha256(content).hexdigest()


def require_rows(
    arrays: Mapping[str, Array], shape: tuple[int, ...], kind: str = "float64"
) -> Array:
    """The one array of an answer; InvalidInput unless it is what was asked for.

    >>> require_rows({"rows": np.zeros((1, 2))}, (1, 2))
    array([[0., 0.]])
    """
    if arrays.keys() != {"rows"}:
        raise InvalidInput(f"an answer holds 'rows', got {sorted(arrays)}")
    rows = arrays["rows"]
    if rows.dtype != np.dtype(kind) or rows.shape != shape:
        raise InvalidInput(
            f"rows of shape {rows.shape} and type {rows.dtype}, expected {shape} and {kind}"
        )
    return rows
