"""The ledger under attack: nothing overspent, nothing lost, no foreign error, no hang."""

from __future__ import annotations

import os
import random
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from harness import impatient
from harness_ledger import MISSING, attempts
from independent_reader import Unsound, read

from tacit.errors import LedgerCorrupt, TacitError
from tacit.privacy import snapshot
from tacit.privacy.budget import Budget
from tacit.privacy.ledger import Key, Ledger
from tacit.privacy.mechanisms import GaussianSum

COUNTS = {"kills": 200, "faults": 200, "crowds": 60, "races": 4, "power cuts": 500}
FOUND = {
    "nothing is synced": "power cuts",
    "the folder is not synced": "power cuts",
    "outputs are returned before they are persisted": "kills",
    "no cap is checked": "races",
}
MUTATED = 300
"""Files with a changed byte."""

controlled = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.fixture
def disk() -> Iterator[Path]:
    """A folder in memory, where there is one: what is synced is the attack's to say."""
    memory = Path("/dev/shm")
    where = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as folder:
        yield Path(folder)


@controlled
@pytest.mark.parametrize("attack", COUNTS)
def test_a_ledger_holds_under(attack: str, disk: Path) -> None:
    found = islice(attempts(attack, disk, random.Random(0)), COUNTS[attack])
    assert [problem for problem in found if problem] == []


@controlled
@pytest.mark.parametrize("mutant", FOUND)
def test_the_attack_finds_a_ledger_in_which(mutant: str, disk: Path) -> None:
    attack = FOUND[mutant]
    found = islice(attempts(attack, disk, random.Random(0), mutant), COUNTS[attack])
    assert any(found)


# --- the second reader, and single bytes ---------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger with runs, shares, long lists, outputs and snapshots."""
    monkeypatch.setattr(snapshot, "FEWEST", 10)
    path, sums = tmp_path / "ledger.sqlite", GaussianSum(1.0, 40.0)
    with Ledger(path) as ledger:
        many = [f"task {i}" for i in range(300)]
        shares = np.linspace(0.5, 1.0, 300)
        ledger.open_run("many", many, Budget(1.0), [sums.event("replace")], shares=shares)
        ledger.release(sums, np.ones((300, 2)), key=Key("many", 0, "x"))
        ledger.open_run("run", ["a"], Budget(1.0), [sums.event("replace")] * 20)
        for number in range(12):
            ledger.release(sums, np.ones((1, 2)), key=Key("run", number, "x"))
    return path


def test_a_second_reader_of_the_file_counts_the_same(path: Path) -> None:
    found = read(path)
    with Ledger(path) as ledger:
        assert (found.head, found.length) == ledger.head()
        for task in ("a", "task 0", "task 299"):
            assert found.mu_squared[task] == pytest.approx(ledger.spent(task).mu_squared)
        for key, value in found.outputs.items():
            kept = ledger.released(Key(*key))
            assert kept is not None
            assert kept.value.tobytes() in value
    assert len(found.spends) == len(found.outputs) == 13


EDITS = {
    "a payload": "UPDATE entries SET payload = replace(payload, '0.05', '0.01') WHERE seq = 6",
    "a removed entry": "DELETE FROM entries WHERE seq = 9",
    "a value": "UPDATE outputs SET value = zeroblob(length(value)) WHERE spend = 6",
    "a list": "UPDATE blobs SET value = replace(value, 'task 7', 'task 8')",
}


@pytest.mark.parametrize("what", EDITS)
def test_the_second_reader_finds(what: str, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(EDITS[what])
        connection.commit()
    with pytest.raises(Unsound):
        read(path)


def test_any_changed_byte_is_an_error_of_ours_or_changes_nothing(path: Path) -> None:
    rng, before = random.Random(0), path.read_bytes()
    head = path.with_name(path.name + ".head").read_bytes()
    with Ledger(path) as ledger:
        right = ledger.spent("a").mu_squared
    for attempt in range(MUTATED):
        spoilt = bytearray(before)
        spoilt[rng.randrange(rng.choice((len(spoilt), 4096)))] ^= 1 << rng.randrange(8)
        path.write_bytes(spoilt)
        path.with_name(path.name + ".head").write_bytes(head)
        with impatient(), suppress(TacitError), Ledger(path) as ledger:
            assert ledger.spent("a").mu_squared >= right, attempt
            ledger.verify()
            ledger.entries()
            ledger.release(GaussianSum(1.0, 40.0), np.ones((1, 2)), key=Key("run", 3, "x"))


def test_a_schema_that_is_no_text_is_an_error_of_ours(path: Path) -> None:
    """SQLite quotes it in its message, which is then no text either."""
    damaged = path.read_bytes().replace(b"CREATE TABLE outputs", b"CREATE T\xc2BLE outputs")
    path.write_bytes(damaged)
    with pytest.raises(LedgerCorrupt, match="no longer a tacit ledger"):
        Ledger(path)
