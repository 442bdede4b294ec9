"""A second reader of a ledger's file, written from docs/ledger.md: sqlite3, hashlib and json alone.

It shares no line with the library. What it counts is what was spent, whatever the library says.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class Unsound(Exception):
    """The file is not what it should be."""


@dataclass
class Found:
    """What a ledger records: each key's spend, its persisted bytes, and ε and μ² of each task."""

    spends: dict[tuple[str, int, str], dict[str, Any]] = field(default_factory=dict)
    outputs: dict[tuple[str, int, str], bytes] = field(default_factory=dict)
    epsilon: Counter[str] = field(default_factory=Counter)
    mu_squared: Counter[str] = field(default_factory=Counter)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    length: int = 0
    head: str = ""


def read(path: Path) -> Found:
    """Everything in the file; Unsound where the chain, a key or an output does not hold."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as file:
        (state,) = file.execute("PRAGMA integrity_check").fetchone()
        _require(state == "ok", f"SQLite: {state}")
        return _Reader(file).found()


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Unsound(otherwise)


def _key(payload: dict[str, Any]) -> tuple[str, int, str]:
    return payload["run"], payload["round"], payload["party"]


class _Reader:
    def __init__(self, file: sqlite3.Connection) -> None:
        self._file, self._found = file, Found()
        self._numbers: dict[tuple[str, int, str], int] = {}
        self._snapshots: list[str] = []

    def found(self) -> Found:
        previous, found = bytes(32), self._found
        query = "SELECT seq, kind, payload, digest FROM entries ORDER BY seq"
        for number, (seq, kind, text, digest) in enumerate(self._file.execute(query), start=1):
            _require(seq == number, f"entry {number} is missing")
            made = hashlib.sha256(previous + kind.encode() + b"\0" + text.encode()).digest()
            _require(made == digest, f"entry {seq} does not have its digest")
            self._take(seq, kind, self._long(json.loads(text)))
            previous, found.length, found.head = digest, seq, digest.hex()
        stored = self._file.execute("SELECT count(*) FROM outputs").fetchone()[0]
        _require(stored == len(found.outputs), f"{stored} values for {len(found.outputs)} outputs")
        if self._snapshots:
            self._blob(self._snapshots[-1])
        return found

    def _take(self, seq: int, kind: str, payload: dict[str, Any]) -> None:
        _require((kind == "ledger") == (seq == 1), f"entry {seq} is a {kind}")
        match kind:
            case "run":
                _require(payload["run"] not in self._found.runs, "a run was declared twice")
                self._found.runs[payload["run"]] = payload
            case "spend":
                self._spend(seq, payload)
            case "output":
                self._output(payload)
            case "snapshot":
                self._snapshots.append(payload["sha256"])

    def _spend(self, seq: int, payload: dict[str, Any]) -> None:
        key, found = _key(payload), self._found
        _require(key not in found.spends, f"{key} was spent twice")
        found.spends[key], self._numbers[key] = payload, seq
        run, event = found.runs[payload["run"]], payload["event"]
        for i, task in enumerate(run["tasks"]):
            share = run["shares"][i] if isinstance(run["shares"], list) else run["shares"]
            found.epsilon[task] += event.get("epsilon", 0.0) * share
            found.mu_squared[task] += (event.get("mu", 0.0) * share) ** 2

    def _output(self, payload: dict[str, Any]) -> None:
        key, found = _key(payload), self._found
        _require(key in found.spends and key not in found.outputs, f"an output of {key} too many")
        query = "SELECT value FROM outputs WHERE spend = ?"
        (value,) = self._file.execute(query, (self._numbers[key],)).fetchone() or (b"",)
        same = hashlib.sha256(value).hexdigest() == payload["sha256"]
        _require(same, f"the value of {key} is another one")
        found.outputs[key] = value

    def _long(self, value: Any) -> Any:
        """JSON with its long lists put back."""
        if isinstance(value, dict) and value.keys() == {"list"}:
            return json.loads(self._blob(value["list"]))
        if isinstance(value, dict):
            return {name: self._long(each) for name, each in value.items()}
        return [self._long(each) for each in value] if isinstance(value, list) else value

    def _blob(self, digest: str) -> bytes:
        query = "SELECT value FROM blobs WHERE sha256 = ?"
        (value,) = self._file.execute(query, (digest,)).fetchone() or (b"",)
        same = isinstance(value, bytes) and hashlib.sha256(value).hexdigest() == digest
        _require(same, f"the blob {digest[:16]} is another one, or gone")
        return bytes(value)
