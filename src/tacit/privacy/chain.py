"""The hash chain: an append-only list in which no entry can be changed, removed or moved unseen.

digest_k = SHA-256(digest_{k−1} ‖ kind_k ‖ 0 ‖ payload_k), digest_0 = 0, payloads as canonical JSON.

The chain has no secret. Whoever can write the file can cut its end off, or rewrite an entry and
every digest after it; that is seen only by comparing with an ``Anchor`` kept somewhere else, for
instance in a certificate.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tacit.errors import InvalidInput
from tacit.privacy.accounting import Approximate, Event, Gaussian, Poisson, Pure, Visible

GENESIS = bytes(32)
RELATIVE = 1e-12
"""Two numbers closer than this are the same number computed twice."""


class Row(NamedTuple):
    """An entry as it is stored."""

    seq: int
    kind: str
    payload: str
    digest: bytes


class Anchor(NamedTuple):
    """The head of a chain: its digest and its length."""

    digest: str
    length: int


@dataclass(frozen=True)
class Entry:
    """An entry as it is read.

    Its kind is "ledger", "run", "spend", "output", "certificate" or "snapshot".
    """

    seq: int
    kind: str
    payload: dict[str, Any]
    digest: str


@dataclass(frozen=True)
class Verdict:
    """What verify found, and what it could not have found."""

    ok: bool
    head: Anchor
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        state = "intact" if self.ok else "NOT intact"
        lines = [f"{self.head.length} entries, {state}, head {self.head.digest[:16]}"]
        return "\n".join(lines + [f"  {line}" for line in self.problems + self.notes])


def link(previous: bytes, kind: str, payload: str) -> bytes:
    """The digest of an entry.

    >>> link(GENESIS, "run", "{}").hex()[:16]
    '356ba197dc894657'
    """
    return hashlib.sha256(previous + kind.encode() + b"\0" + payload.encode()).digest()


def sha256(value: bytes) -> str:
    """The digest of a persisted output, in hex."""
    return hashlib.sha256(value).hexdigest()


def linked(row: Row, seq: int, previous: bytes) -> str | None:
    """What is wrong with the row that follows entry ``seq``, whose digest is ``previous``."""
    if row.seq != seq + 1:
        return f"entry {seq + 1} is missing: the next one is numbered {row.seq}"
    if link(previous, row.kind, row.payload) != row.digest:
        return (
            f"entry {row.seq} does not match its digest: it was edited, "
            "or one before it was removed, added or moved"
        )
    return None


# --- what the payloads are made of ---------------------------------------------------------------


def canonical(value: object) -> str:
    """JSON with sorted keys and no spaces; numbers are finite, floats keep every bit.

    >>> canonical({"b": 0.1, "a": np.int64(2)})
    '{"a":2,"b":0.1}'
    """
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"this cannot be written into a ledger: {error}") from None


def parsed(text: str | bytes) -> Any:
    """Inverse of canonical; ValueError where it is no JSON, or a number in it is not finite.

    >>> parsed('{"a":[1,0.5]}')
    {'a': [1, 0.5]}
    """
    return _DECODER.decode(text if isinstance(text, str) else text.decode())


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is no finite number")
    return number


def _plain(value: object) -> object:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no JSON")


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain)
_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)
"""Both are made once: every release writes and reads several texts."""


def agree(a: object, b: object) -> bool:
    """Equal JSON, numbers up to RELATIVE: a resumed run may recompute its noise with other BLAS.

    >>> agree({"mu": [0.1]}, {"mu": [0.1 + 1e-17]}), agree([1], [1, 2])
    (True, False)
    """
    if a == b:
        return True
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(agree(a[name], b[name]) for name in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(agree, a, b))
    if isinstance(a, int | float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=RELATIVE)
    return False


_EVENTS: dict[str, type] = {
    kind.__name__: kind for kind in (Gaussian, Pure, Approximate, Poisson, Visible)
}


def event_to_json(event: Event) -> dict[str, Any]:
    """An event as JSON. Its numbers are finite and not negative: no event refunds.

    >>> event_to_json(Gaussian(0.5))
    {'kind': 'Gaussian', 'mu': 0.5}
    """
    if type(event).__name__ not in _EVENTS:
        raise InvalidInput(f"an event is one of {', '.join(_EVENTS)}; got {event!r}")
    fields = {k: v if k == "neighbours" else float(v) for k, v in vars(event).items()}
    numbers = [value for name, value in fields.items() if name != "neighbours"]
    if not all(0 <= number < math.inf for number in numbers):
        raise InvalidInput(f"the numbers of an event are finite and not negative, got {event}")
    return {"kind": type(event).__name__, **fields}


def event_from_json(fields: dict[str, Any]) -> Event:
    """Inverse of event_to_json; InvalidInput for what it never wrote: whoever appends an event with
    a negative ε would be refunded.

    >>> event_from_json({"kind": "Pure", "epsilon": -1.0})
    Traceback (most recent call last):
    tacit.errors.InvalidInput: a ledger has no event {'kind': 'Pure', 'epsilon': -1.0}
    """
    found: Event = _EVENTS[fields["kind"]](**{k: v for k, v in fields.items() if k != "kind"})
    try:
        written = event_to_json(found)
    except (TypeError, ValueError, OverflowError):
        written = {}
    if written != fields:
        raise InvalidInput(f"a ledger has no event {fields}")
    return found
