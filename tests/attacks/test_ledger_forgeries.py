"""A ledger that somebody else made: nothing is refunded, nothing hangs, and errors are ours."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import answer, impatient

from tacit.errors import LedgerCorrupt, TacitError
from tacit.privacy import store
from tacit.privacy.budget import Budget
from tacit.privacy.chain import canonical, link, sha256
from tacit.privacy.ledger import Key, Ledger
from tacit.privacy.mechanisms import GaussianSum
from tacit.privacy.snapshot import written

SUMS = GaussianSum(1.0, 40.0)


def key(number: int) -> Key:
    return Key("run", number, "x")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with a cap and six releases."""
    path = tmp_path / "ledger.sqlite"
    with Ledger(path, cap=Budget(4.0)) as ledger:
        ledger.open_run("run", ["a"], Budget(1.0), [SUMS.event("replace")] * 20)
        for number in range(6):
            ledger.release(SUMS, np.ones((1, 2)), key=key(number))
    return path


def edit(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def append(path: Path, kind: str, text: str, blob: bytes = b"") -> None:
    """One more entry, linked as it should be: a chain has no secret."""
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT seq, digest FROM entries ORDER BY seq DESC LIMIT 1"
        seq, digest = connection.execute(query).fetchone()
        row = (seq + 1, kind, text, link(digest, kind, text))
        connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?)", row)
        if kind == "spend":
            told = json.loads(text)
            named = canonical(told["run"]), canonical([told["round"], told["party"]])
            connection.execute("INSERT INTO keys VALUES (?, ?, ?, NULL)", (*named, seq + 1))
        connection.execute("INSERT OR IGNORE INTO blobs VALUES (?, ?)", (sha256(blob), blob))
        connection.commit()


# --- refunds -------------------------------------------------------------------------------------


def test_an_appended_snapshot_is_believed_by_nobody_after_an_honest_release(path: Path) -> None:
    """The next head would name it: whoever came then began with nothing spent."""
    with Ledger(path) as ledger:
        fields = json.loads(written(ledger._state))
    for account in fields["accounts"]:
        account["numbers"] = [0.0] * len(account["numbers"])
    blob = canonical(fields).encode()
    append(path, "snapshot", canonical({"sha256": sha256(blob)}), blob)
    for _ in range(2):
        with pytest.raises(LedgerCorrupt, match="a snapshot that says something else"):
            Ledger(path)


REFUNDS: list[dict[str, Any]] = [
    {"kind": "Pure", "epsilon": -100.0},
    {"kind": "Approximate", "epsilon": "-100", "delta": 0.0},
    {"kind": "Approximate", "epsilon": 0.0, "delta": -1.0},
    {"kind": "Gaussian", "mu": float("nan")},
    {"kind": "Gaussian", "mu": float("inf")},
]


@pytest.mark.parametrize("event", REFUNDS, ids=str)
def test_no_appended_event_refunds(event: dict[str, Any], path: Path) -> None:
    """An appended run with a release of ε = −100 gave everybody another 100, and verify agreed."""
    with Ledger(path) as ledger:
        (declared,) = (each.payload for each in ledger.entries() if each.kind == "run")
    append(path, "run", json.dumps(declared | {"run": "more", "plan": [[event, 1]]}))
    spend = {"run": "more", "round": 0, "party": "x", "mechanism": {}, "secure": True}
    append(path, "spend", json.dumps(spend | {"event": event}))
    with pytest.raises(LedgerCorrupt):
        Ledger(path)


def test_an_entry_edited_while_a_process_runs_allows_no_draw(path: Path) -> None:
    """An old spend, edited into the next key's: it was drawn for, and nothing was charged."""
    with Ledger(path) as ledger:
        with closing(sqlite3.connect(path)) as connection:
            query = "SELECT seq, payload FROM entries WHERE kind = 'spend' LIMIT 1"
            seq, text = connection.execute(query).fetchone()
        payload = canonical(json.loads(text) | {"round": 11})
        edit(
            path,
            f"UPDATE entries SET payload = '{payload}' WHERE seq = {seq}",
            f"DELETE FROM outputs WHERE spend = {seq}",
            f"UPDATE keys SET name = '{canonical([11, 'x'])}', output = NULL WHERE spend = {seq}",
        )
        with pytest.raises(LedgerCorrupt, match="does not match its digest"):
            ledger.release(SUMS, np.ones((1, 2)), key=key(11))


def test_an_entry_that_is_no_snapshot_is_not_begun_with(path: Path) -> None:
    """Somebody's certificate has the digest of a state in which nothing was spent, and a forged
    index calls it the newest snapshot."""
    with Ledger(path) as ledger:
        right = ledger.spent("a")
        fields = json.loads(written(ledger._state))
        for account in fields["accounts"]:
            account["numbers"] = [0.0] * len(account["numbers"])
        blob = canonical(fields).encode()
        ledger.record_certificate(sha256(blob))
        certificate = ledger._store.row(ledger.head().length)
        ledger._store.put_blob(blob)
    with Ledger(path) as ledger, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger._store, "newest_snapshot", lambda: certificate)
        ledger._forget()
        assert ledger.spent("a") == right


# --- hangs ---------------------------------------------------------------------------------------


VIEW = """CREATE VIEW entries AS WITH RECURSIVE number(n) AS
(SELECT 1 UNION ALL SELECT n + 1 FROM number) SELECT n AS seq, 'a' AS kind, 'b' AS payload,
zeroblob(32) AS digest FROM number WHERE n < 1"""
TRIGGER = "CREATE TRIGGER t AFTER INSERT ON outputs BEGIN DELETE FROM entries WHERE seq > 1; END"


@pytest.mark.parametrize(
    "statements",
    [["ALTER TABLE entries RENAME TO hidden", VIEW], [TRIGGER]],
    ids=["view", "trigger"],
)
def test_a_file_that_computes_its_entries_is_refused(statements: list[str], path: Path) -> None:
    """A view can compute for ever, and nothing could interrupt it."""
    edit(path, *statements)
    for command in (("show", path), ("verify", path)):
        said = answer("ledger", *command)
        assert (said.code in (1, 2), said.problem) == (True, ""), said
    with pytest.raises(LedgerCorrupt, match="a view or trigger"):
        Ledger(path)


def test_a_damaged_tree_is_not_walked_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of entries that go down again: each page would begin where the last one did."""
    monkeypatch.setattr(store, "PAGE", 3)
    with Ledger(path, read_only=True) as ledger:
        rows = ledger._store._found(
            "SELECT seq, kind, payload, digest FROM entries WHERE seq < 4 ORDER BY seq DESC"
        )
        monkeypatch.setattr(ledger._store, "_found", lambda *_: rows)
        with impatient(), pytest.raises(LedgerCorrupt, match="not in order"):
            list(ledger._store.rows(3))


def test_who_is_interrupted_leaves_the_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between being told to lead and leading: everybody after it waited for ever."""
    with Ledger(path) as ledger:
        join = type(ledger._line).join

        def interrupted(*given: Any) -> None:
            join(*given)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(type(ledger._line), "join", interrupted)
            with pytest.raises(KeyboardInterrupt):
                ledger.release(SUMS, np.ones((1, 2)), key=key(7))
        with impatient():
            ledger.release(SUMS, np.ones((1, 2)), key=key(7))


# --- errors of ours ------------------------------------------------------------------------------


def a_circular_link(folder: Path) -> Path:
    (folder / "circle").symlink_to(folder / "circle")
    return folder / "circle"


PLACES: dict[str, Callable[[Path], Any]] = {
    "a circular link": a_circular_link,
    "the root": lambda _: "/",
    "nothing": lambda _: "",
    "a zero byte": lambda folder: f"{folder}/a\0b",
    "a long name": lambda folder: folder / ("n" * 300),
    "a number": lambda _: 7,
    "bytes": lambda folder: os.fsencode(folder / "x"),
    "half a character": lambda folder: f"{folder}/\ud800",
    "a device": lambda _: "/dev/null",
    "in a file": lambda folder: folder / "ledger.sqlite" / "x",
}


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_a_place_for_no_ledger_is_refused(place: str, read_only: bool, path: Path) -> None:
    with impatient(), pytest.raises(TacitError):
        Ledger(PLACES[place](path.parent), read_only=read_only)


def test_a_name_that_is_no_text_can_be_read(path: Path) -> None:
    odd = path.rename(path.with_name("a\udcff?#%41.sqlite"))
    with Ledger(odd, read_only=True) as ledger:
        assert ledger.verify().ok


HEADS = {
    "a huge number": '{"digest": "00", "length": 1' + "0" * 30 + "}",
    "a negative number": '{"digest": "00", "length": -5}',
    "too many digits": '{"digest": "00", "length": ' + "9" * 5000 + "}",
    "a deep list": "[" * 100_000,
}


@pytest.mark.parametrize("head", HEADS)
def test_a_head_that_nobody_kept_is_refused(head: str, path: Path) -> None:
    path.with_name(path.name + ".head").write_text(HEADS[head])
    with pytest.raises(LedgerCorrupt, match="is not the head of a ledger"):
        Ledger(path)


def test_a_pipe_in_place_of_a_head_is_not_waited_for(path: Path) -> None:
    head = path.with_name(path.name + ".head")
    head.unlink()
    os.mkfifo(head)
    with impatient(), pytest.raises(LedgerCorrupt, match="no plain file"):
        Ledger(path)


@pytest.mark.parametrize("odd", ["[" * 900 + "]" * 900, "NaN", "-Infinity", "1e400"])
def test_an_entry_that_nobody_could_write_again_is_refused(odd: str, path: Path) -> None:
    append(path, "certificate", f'{{"sha256": "x", "more": {odd}}}')
    for command in ("show", "verify"):
        said = answer("ledger", command, path, "--json")
        assert (said.code in (1, 2), said.problem) == (True, ""), said
