"""The door under attack: kills, races, edits, full disks, files that are something else."""

from __future__ import annotations

import os
import random
import resource
import signal
import sqlite3
import stat
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tacit.errors import BudgetExceeded, LedgerCorrupt, LedgerError
from tacit.privacy import store
from tacit.privacy.accounting import Event, Gaussian, Pure
from tacit.privacy.asking import Asked
from tacit.privacy.budget import Budget, Neighbours
from tacit.privacy.chain import Row, canonical, link
from tacit.privacy.committing import Caller, Line
from tacit.privacy.ledger import Anchor, Key, Ledger, Release
from tacit.privacy.mechanisms import GaussianSum
from tacit.privacy.store import IndexedKey, Store

KILLS = 200


@dataclass
class Fake:
    """A mechanism with fresh noise in every process."""

    what: Event

    def event(self, neighbours: Neighbours) -> Event:
        return self.what

    def release(
        self,
        contributions: Any,
        rng: np.random.Generator | None,
        shares: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        return np.frombuffer(os.urandom(16), dtype=np.uint64).astype(np.float64)

    def secure(self, rng: np.random.Generator | None) -> bool:
        return rng is None

    def to_dict(self) -> dict[str, object]:
        return {"name": "fake"}


SMALL = Fake(Gaussian(1e-3))


def key(number: int) -> Key:
    return Key("run", number, "curator")


def opened(path: Path, releases: int = 0, *, planned: int = 10_000) -> Ledger:
    ledger = Ledger(path)
    ledger.open_run("run", ["a"], Budget(1.0), [SMALL.what] * planned)
    for number in range(releases):
        ledger.release(SMALL, None, key=key(number))
    return ledger


def fork(work: Callable[[], None]) -> int:
    """Start work in a child, which exits with 0 if it returns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12+: threads of BLAS
        child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return child


def exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


# --- kill -9 -------------------------------------------------------------------------------------


def publish(ledger: Ledger, outside: int, first: int) -> None:
    """Release key after key, and tell the outside each value as soon as it is returned."""
    for number in range(first, first + 1000):
        value = ledger.release(SMALL, None, key=key(number)).value
        os.write(outside, f"{number} {value.tobytes().hex()}\n".encode())


def killed_at_random(ledger: Ledger, seen: Path, kills: int) -> None:
    """Kill a publishing child again and again, until so many of them had begun something."""
    delays, longest = random.Random(0), 0.02
    with open(seen, "ab", buffering=0) as outside:
        while kills:
            before = ledger.head()
            first = len(seen.read_text().splitlines())
            child = fork(lambda first=first: publish(ledger, outside.fileno(), first))  # type: ignore[misc]
            time.sleep(delays.uniform(0, longest))
            os.kill(child, signal.SIGKILL)
            assert exit_code(child) == -signal.SIGKILL
            begun = ledger.head() != before
            longest *= 0.95 if begun else 1.15  # follows the speed of the machine
            kills -= begun


def unrecorded(ledger: Ledger, seen: Path) -> list[str]:
    """What the outside saw and the ledger does not have under that key, bit by bit."""
    outputs = {e.payload["round"] for e in ledger.entries() if e.kind == "output"}
    recorded = {
        f"{number} {ledger.release(SMALL, None, key=key(number)).value.tobytes().hex()}"
        for number in outputs
    }
    return [line for line in seen.read_text().splitlines() if line not in recorded]


def test_no_release_is_unrecorded_whenever_the_process_is_killed(path: Path) -> None:
    seen = path.with_name("seen")
    with opened(path) as ledger:
        killed_at_random(ledger, seen, KILLS)
        assert unrecorded(ledger, seen) == []
        spends = [e.payload["round"] for e in ledger.entries() if e.kind == "spend"]
        assert len(spends) == len(set(spends)) >= KILLS / 2
        assert ledger.spent("a").mu_squared == pytest.approx(len(spends) * 1e-6)
        assert ledger.verify(ledger.head()).ok
        for number in range(len(spends) + 5):  # resuming: what was spent is not spent again
            ledger.release(SMALL, None, key=key(number))
        assert ledger.spent("a").mu_squared == pytest.approx((len(spends) + 5) * 1e-6)
    with Ledger(path) as again:
        assert again.verify().ok


def test_the_kill_test_finds_a_ledger_that_returns_before_it_persists(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    persist = Ledger._persist
    late: list[tuple[Asked, NDArray[Any]]] = []

    def hasty(self: Ledger, asked: Asked, value: NDArray[Any]) -> Release:
        """Persists each with the next one."""
        for earlier in late:
            persist(self, *earlier)
        late[:] = [(asked, value)]
        return Release(value, (asked.key,), asked.secure)

    monkeypatch.setattr(Ledger, "_persist", hasty)
    seen = path.with_name("seen")
    with opened(path) as ledger:
        killed_at_random(ledger, seen, 20)
        assert unrecorded(ledger, seen) != []


def test_verify_finds_a_ledger_that_forgets_a_spend(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant keeps the spend in the index only, and writes the output behind it."""

    def forgetful(self: Ledger, kind: str, payload: dict[str, Any]) -> None:
        if kind != "spend":
            text = canonical(payload)
            row = Row(self._next, kind, text, link(self._fold.digest, kind, text))
            self._store.append(row)

    with opened(path) as ledger, monkeypatch.context() as mutant:
        mutant.setattr(Ledger, "_append", forgetful)
        mutant.setattr(Ledger, "_catch_up", lambda self: None)
        mutant.setattr(Ledger, "_output", lambda self, at, place: None)
        ledger.release(SMALL, None, key=key(0))
        problems = ledger.verify().problems
        assert any("an output of" in p and "no spend allows" in p for p in problems)
    with pytest.raises(LedgerCorrupt, match="no spend allows"):
        Ledger(path)


@pytest.mark.parametrize("instant", ["before spend", "before draw", "after draw", "before output"])
def test_a_crash_at_each_instant_is_resumed_with_one_spend(path: Path, instant: str) -> None:
    def die(*_: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    class Dying(Fake):
        def release(self, *given: Any) -> NDArray[np.float64]:
            if instant == "after draw":
                super().release(*given)
            return np.asarray(die())

    def crash() -> None:
        wrong = {"before spend": "spend", "before output": "output"}.get(instant)
        append = Ledger._append

        def appended(self: Ledger, kind: str, payload: dict[str, Any]) -> None:
            append(self, kind, payload)
            if kind == wrong:  # written, not committed
                die()

        Ledger._append = appended  # type: ignore[method-assign,assignment]
        ledger.release(SMALL if wrong else Dying(SMALL.what), None, key=key(0))

    with opened(path) as ledger:
        assert exit_code(fork(crash)) == -signal.SIGKILL
        assert [e.kind for e in ledger.entries()][1:] == ["run"]  # both, or neither
        ledger.release(SMALL, None, key=key(0))
        assert [e.kind for e in ledger.entries()][1:] == ["run", "spend", "output"]
        assert ledger.verify().ok


# --- races ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_that_race_never_overspend_together(path: Path, processes: int) -> None:
    """ε = 0.1 each, 3.05 in all: exactly 30 fit, whoever gets them."""
    event, counted = Pure(0.1), path.with_name("released")
    gate, opener = os.pipe()
    cap = Budget(3.05, 0.0)
    with Ledger(path, cap=cap) as ledger, open(counted, "ab", buffering=0) as outside:

        def greedy(name: str) -> None:
            os.close(opener)
            ledger.open_run(name, ["a"], cap, [event] * 30)
            os.read(gate, 1)  # until all have been started
            with suppress(BudgetExceeded):
                for number in range(30):
                    ledger.release(Fake(event), None, key=Key(name, number, "x"))
                    os.write(outside.fileno(), name.encode())
                    wait_until(lambda: counted.stat().st_size >= processes)  # none gets them all

        children = [fork(lambda i=i: greedy(str(i))) for i in range(processes)]  # type: ignore[misc]
        wait_until(lambda: sum(e.kind == "run" for e in ledger.entries()) == processes)
        os.close(opener)
        assert [exit_code(child) for child in children] == [0] * processes
        os.close(gate)
        assert len(counted.read_bytes()) == 30
        assert len(set(counted.read_bytes())) > 1
        assert ledger.spent("a").epsilon == pytest.approx(3.0)
        assert sum(e.kind == "output" for e in ledger.entries()) == 30
        assert ledger.verify(ledger.head()).ok


def test_threads_share_a_ledger(path: Path) -> None:
    with opened(path) as ledger:

        def work(first: int) -> None:
            for number in range(first, first + 10):
                ledger.release(SMALL, None, key=key(number))

        threads = [threading.Thread(target=work, args=(10 * i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ledger.spent("a").mu_squared == pytest.approx(40e-6)
        assert ledger.verify().ok


def test_a_child_forked_while_a_thread_writes_finds_a_sound_file(path: Path) -> None:
    with opened(path) as ledger:
        stop = threading.Event()

        def writing() -> None:
            number = 0
            while not stop.is_set():
                ledger.release(SMALL, None, key=key(number))
                number += 1
                time.sleep(0.002)

        thread = threading.Thread(target=writing)
        thread.start()
        try:
            for child in range(10):
                at = Key("run", child, "child")
                child_id = fork(lambda at=at: void(ledger.release(SMALL, None, key=at)))  # type: ignore[misc]
                assert exit_code(child_id) == 0
        finally:
            stop.set()
            thread.join()
        assert ledger.verify().ok
        assert sum(e.payload.get("party") == "child" for e in ledger.entries()) == 20


def void(_: object) -> None:
    pass


def test_a_ledger_locked_for_too_long_releases_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(path).close()
    monkeypatch.setattr(store, "BUSY_SECONDS", 0.05)
    with Ledger(path) as ledger, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match=r"locked; nothing was released"):
            ledger.release(SMALL, None, key=key(0))
        other.execute("ROLLBACK")
        ledger.release(SMALL, None, key=key(0))


# --- edits ---------------------------------------------------------------------------------------


def edit(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


EDITS = {  # entry 1 names the ledger, 2 is the run, 3, 5 and 7 are spends
    "an edited payload": ["UPDATE entries SET payload = replace(payload, '0.001', '0.0001')"],
    "an edited digest": ["UPDATE entries SET digest = zeroblob(32) WHERE seq = 4"],
    "a renumbered entry": ["UPDATE entries SET seq = 10 WHERE seq = 8"],
    "an edited kind": ["UPDATE entries SET kind = 'output' WHERE seq = 3"],
    "text that is no text": ["UPDATE entries SET payload = x'ff' WHERE seq = 3"],
    "a removed spend": ["DELETE FROM entries WHERE seq = 5"],
    "a removed and renumbered spend": [
        "DELETE FROM entries WHERE seq = 5",
        "UPDATE entries SET seq = seq - 1 WHERE seq > 5",
    ],
    "a removed first entry": ["DELETE FROM entries WHERE seq = 1"],
    "another name": [
        "UPDATE entries SET payload = replace(payload, 'identity', 'identitY') WHERE seq = 1"
    ],
    "two spends in another order": [
        "UPDATE entries SET seq = -3 WHERE seq = 3",
        "UPDATE entries SET seq = 3 WHERE seq = 5",
        "UPDATE entries SET seq = 5 WHERE seq = -3",
    ],
    "an added entry": ["INSERT INTO entries VALUES (9, 'spend', '{}', zeroblob(32))"],
    "an edited output": ["UPDATE outputs SET value = zeroblob(length(value)) WHERE spend = 3"],
    "a removed output": ["DELETE FROM outputs WHERE spend = 3"],
    "an exchanged output": [
        "UPDATE outputs SET spend = -3 WHERE spend = 3",
        "UPDATE outputs SET spend = 3 WHERE spend = 5",
        "UPDATE outputs SET spend = 5 WHERE spend = -3",
    ],
    "an added output": ["INSERT INTO outputs VALUES (99, zeroblob(8))"],
    "a key without its output": ["UPDATE keys SET output = NULL WHERE spend = 3"],
    "a removed key of an output": ["DELETE FROM keys WHERE spend = 5"],
    "an added key of an output": ["INSERT INTO keys VALUES ('\"run\"', '[9,\"curator\"]', 3, 4)"],
}


@pytest.mark.parametrize("what", EDITS)
def test_verify_finds(path: Path, what: str) -> None:
    with opened(path, 3) as ledger:
        anchor = ledger.head()
        assert ledger.verify().ok
        assert ledger.verify(anchor).ok
        edit(path, *EDITS[what])
        assert not ledger.verify().ok
        assert not ledger.verify(anchor).ok


@pytest.mark.parametrize("what", [name for name in EDITS if "output" not in name])
def test_a_broken_chain_does_not_open(path: Path, what: str) -> None:
    opened(path, 3).close()
    edit(path, *EDITS[what])
    with pytest.raises(LedgerCorrupt, match="nothing was released"):
        Ledger(path)


def test_an_edited_output_is_not_returned(path: Path) -> None:
    with opened(path, 2) as ledger:
        edit(path, *EDITS["an edited output"])
        with pytest.raises(LedgerCorrupt, match="edited or removed"):
            ledger.release(SMALL, None, key=key(0))


def forget_head(path: Path) -> None:
    path.with_name(path.name + ".head").unlink()


CUT_OFF = [
    "DELETE FROM entries WHERE seq > 6",
    "DELETE FROM outputs WHERE spend > 6",
    "DELETE FROM keys WHERE spend > 6",
]


def test_truncation_is_seen_with_an_anchor_and_admitted_without(path: Path) -> None:
    with opened(path, 3) as ledger:
        anchor = ledger.head()
        assert anchor.length == 8
    edit(path, *CUT_OFF)
    forget_head(path)
    with Ledger(path) as ledger:
        without = ledger.verify()
        assert without.ok
        assert "cannot be seen" in without.notes[0]
        found = ledger.verify(anchor)
        assert not found.ok
        assert "truncated: 6 entries, but 8" in str(found)


def test_a_restored_backup_is_no_refund(path: Path) -> None:
    """The head lies beside the file too: what was released since the backup stays spent."""
    backup = path.with_name("backup")
    with opened(path, 1) as ledger:
        backup.write_bytes(path.read_bytes())
        ledger.release(SMALL, None, key=key(1))
    path.write_bytes(backup.read_bytes())
    with pytest.raises(LedgerCorrupt, match="an older copy was put in its place"):
        Ledger(path)
    with Ledger(path, read_only=True) as ledger:
        assert "truncated: 4 entries, but 6" in ledger.verify().problems[0]


def test_an_older_head_is_as_true(path: Path) -> None:
    """A crash between a commit and the note of its head forgets nothing that matters."""
    head = path.with_name(path.name + ".head")
    with opened(path, 1) as ledger:
        before = head.read_bytes()
        ledger.release(SMALL, None, key=key(1))
    head.write_bytes(before)
    with Ledger(path) as ledger:
        assert ledger.verify().ok
    head.write_bytes(b"{}")
    with pytest.raises(LedgerCorrupt, match="not the head of a ledger"):
        Ledger(path)


@pytest.mark.parametrize("left", [".head", ".key", ".signing"])
def test_a_lost_ledger_is_not_a_new_one(path: Path, left: str) -> None:
    path.with_name(path.name + left).write_text("something")
    with pytest.raises(LedgerError, match="a lost ledger is not a new one"):
        Ledger(path)
    assert not path.exists()


def test_an_empty_file_is_a_ledger_that_lost_its_entries(path: Path) -> None:
    path.touch()
    with pytest.raises(LedgerCorrupt, match="is empty"):
        Ledger(path)
    assert path.read_bytes() == b""


def test_reading_only_writes_nothing_and_makes_nothing(path: Path) -> None:
    with pytest.raises(LedgerError, match="there is no ledger"):
        Ledger(path, read_only=True)
    assert not path.exists()
    opened(path, 1).close()
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    with Ledger(path, read_only=True) as ledger:
        assert ledger.verify().ok
        assert len(ledger.entries()) == 4
        with pytest.raises(LedgerError, match="readonly database; nothing was released"):
            ledger.release(SMALL, None, key=key(5))
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


def half_written(path: Path, place: Path) -> Path:
    """A copy of the ledger, and of its journal, in the middle of a transaction: as after a kill."""
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA cache_size = 1")  # pages reach the file before the commit
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM entries")
        writer.execute("INSERT INTO blobs VALUES ('x', zeroblob(100000))")
        for file in (path, path.with_name(f"{path.name}-journal")):
            (place / file.name).write_bytes(file.read_bytes())
        writer.execute("ROLLBACK")
    return place / path.name


def test_who_only_reads_can_read_after_a_kill(path: Path, tmp_path_factory: Any) -> None:
    opened(path, 1).close()
    killed = half_written(path, tmp_path_factory.mktemp("killed"))
    with Ledger(killed, read_only=True) as ledger:
        assert ledger.verify().ok
        assert len(ledger.entries()) == 4
    assert not killed.with_name(f"{killed.name}-journal").exists()


def test_who_may_not_write_is_told_that_a_process_was_killed(path: Path, public: Path) -> None:
    opened(path, 1).close()
    killed = half_written(path, public)
    for file in public.iterdir():
        os.chmod(file, 0o444)
    os.chmod(public, 0o555)
    with nobody(), pytest.raises(LedgerError, match="was killed while it wrote"):
        Ledger(killed, read_only=True)


def test_of_processes_that_make_a_ledger_at_once_one_makes_it(path: Path) -> None:
    gate, opener = os.pipe()

    def make() -> None:
        os.close(opener)
        os.read(gate, 1)
        Ledger(path).close()

    children = [fork(make) for _ in range(4)]
    os.close(opener)
    assert [exit_code(child) for child in children] == [0] * 4
    os.close(gate)
    with Ledger(path) as ledger:
        assert [entry.kind for entry in ledger.entries()] == ["ledger"]
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_chain_rewritten_as_a_whole_is_seen_with_an_anchor_only(path: Path) -> None:
    with opened(path, 1) as ledger:
        anchor = ledger.head()
    with closing(sqlite3.connect(path)) as connection:
        previous = bytes(32)
        for seq, kind, text in connection.execute(
            "SELECT seq, kind, payload FROM entries"
        ).fetchall():
            payload = text.replace("0.001", "0.0001")  # a tenth of what was spent
            previous = link(previous, kind, payload)
            new = (payload, previous, seq)
            connection.execute("UPDATE entries SET payload = ?, digest = ? WHERE seq = ?", new)
        connection.commit()
    forget_head(path)
    with Ledger(path) as ledger:
        assert ledger.verify().ok
        assert "rewritten" in ledger.verify(anchor).problems[0]


def test_an_old_anchor_vouches_for_what_was_there(path: Path) -> None:
    with opened(path, 1) as ledger:
        anchor = ledger.head()
        ledger.release(SMALL, None, key=key(7))
        assert "0 are there" in ledger.verify(anchor).notes[0]  # the newest head lies beside it
        forget_head(path)
        assert ledger.verify(anchor).ok
        assert "2 are there" in ledger.verify(anchor).notes[0]
        assert ledger.verify(Anchor(bytes(32).hex(), 0)).ok
        assert not ledger.verify(Anchor("00" * 32, 3)).ok


def test_a_backup_put_back_under_a_living_ledger_is_noticed(path: Path) -> None:
    with opened(path, 3) as ledger:
        edit(path, "DELETE FROM entries WHERE seq > 6", "DELETE FROM outputs WHERE spend > 6")
        with pytest.raises(LedgerCorrupt, match="no longer what it was"):
            ledger.release(SMALL, None, key=key(9))


def test_verify_finds_a_run_that_was_declared_too_cheap(path: Path) -> None:
    with opened(path) as ledger:
        payload = ledger.entries()[1].payload
        cheap = payload | {"run": "cheap", "pairs": [payload["pairs"][0] / 2, 1e-5]}
        ledger._transact(lambda: ledger._append("run", cheap))
        assert "declared at a lower price" in ledger.verify().problems[0]


def rewritten(path: Path, old: str, new: str) -> None:
    """Every entry edited and every digest made again: only sense can find it."""
    with closing(sqlite3.connect(path)) as connection:
        previous = bytes(32)
        query = "SELECT seq, kind, payload FROM entries ORDER BY seq"
        for seq, kind, text in connection.execute(query).fetchall():
            payload = text.replace(old, new)
            previous = link(previous, kind, payload)
            update = "UPDATE entries SET payload = ?, digest = ? WHERE seq = ?"
            connection.execute(update, (payload, previous, seq))
        connection.commit()
    forget_head(path)


REFUNDS = {
    "a price that is not charged": ('"kinds":["Poisson","Visible"]', '"kinds":["Gaussian"]'),
    "a count below zero": ("},2]", "},-5]"),
    "a share below zero": ('"shares":1.0', '"shares":-1.0'),
    "an event that the mechanism is not": ('"mu":0.5', '"mu":0.005'),
    "noise that cannot be exact": ('"name":"GaussianSum"', '"name":"KNormSum"'),
    "a price that is no number": ('"pairs":[', '"pairs":[NaN,'),
}


@pytest.mark.parametrize("what", REFUNDS)
def test_verify_finds_a_refund_in_a_chain_that_was_made_again(path: Path, what: str) -> None:
    with Ledger(path) as ledger:
        sums = GaussianSum(1.0, 4.0)
        ledger.open_run("run", ["a"], Budget(9.0), [sums.event("replace")] * 2)
        for number in range(2):
            ledger.release(sums, np.ones((1, 2)), key=key(number))
        assert ledger.verify().ok
    rewritten(path, *REFUNDS[what])
    with Ledger(path, read_only=True) if _opens(path) else suppress(LedgerCorrupt) as found:
        assert found is None or not found.verify().ok


def _opens(path: Path) -> bool:
    with suppress(LedgerCorrupt):
        Ledger(path, read_only=True).close()
        return True
    return False


def test_verify_finds_a_spend_beyond_the_cap(path: Path) -> None:
    """As a process would write it that does not check: its digests are right."""
    with Ledger(path, cap=Budget(1.0, 0.0)) as ledger:
        ledger.open_run("run", ["a"], Budget(1.0, 0.0), [Pure(0.6)])
        ledger.open_run("other", ["a"], Budget(1.0, 0.0), [Pure(0.6)])
        ledger.release(Fake(Pure(0.6)), None, key=key(0))
        payload = ledger.entries()[-2].payload | {"run": "other"}

        def unchecked() -> None:
            ledger._store.put_spend(IndexedKey.of(Key("other", 0, "curator")), ledger._next)
            ledger._append("spend", payload)

        ledger._transact(unchecked)
        assert "has epsilon 0.4 left" in ledger.verify().problems[0]


@given(st.integers(1, 8), st.sampled_from(["kind", "payload", "digest"]), st.data())
@settings(max_examples=60, deadline=None)
def test_verify_finds_any_changed_byte(seq: int, column: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.sqlite"
        with opened(path, 3) as ledger, closing(sqlite3.connect(path)) as connection:
            connection.text_factory = bytes
            query = f"SELECT {column} FROM entries WHERE seq = ?"
            before = connection.execute(query, (seq,)).fetchone()[0]
            place = data.draw(st.integers(0, len(before) - 1))
            after = bytearray(before)
            after[place] ^= data.draw(st.integers(1, 127))
            value = bytes(after) if column == "digest" else after.decode("latin-1")
            update = f"UPDATE entries SET {column} = ? WHERE seq = ?"
            connection.execute(update, (value, seq))
            connection.commit()
            assert not ledger.verify().ok


# --- files that do not take it -------------------------------------------------------------------


@contextmanager
def nobody() -> Iterator[None]:
    """Root may write anywhere, so it steps down for a moment."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def public() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)
        os.chmod(folder, 0o755)


def test_a_read_only_ledger_can_be_read_and_releases_nothing(public: Path) -> None:
    path = public / "ledger.sqlite"
    opened(path, 2).close()
    os.chmod(path, 0o444)
    os.chmod(public, 0o555)
    with nobody(), Ledger(path) as ledger:
        assert ledger.spent("a").mu_squared == pytest.approx(2e-6)
        assert ledger.verify().ok
        assert len(ledger.entries()) == 6
        with pytest.raises(LedgerError, match="nothing was released"):
            ledger.release(SMALL, None, key=key(5))


def test_a_read_only_folder_cannot_hold_a_new_ledger(public: Path) -> None:
    os.chmod(public, 0o555)
    with nobody(), pytest.raises(LedgerError, match=r"ledger.sqlite.*nothing was released"):
        Ledger(public / "ledger.sqlite")


def test_a_folder_that_is_missing_or_a_folder_instead_of_a_file_is_no_ledger(path: Path) -> None:
    with pytest.raises(LedgerError, match="nothing was released"):
        Ledger(path / "nowhere" / "ledger.sqlite")
    with pytest.raises(LedgerError, match="nothing was released"):
        Ledger(path.parent)


def test_a_file_of_something_else_is_not_touched(path: Path) -> None:
    path.write_bytes(b"name,grade\nAnna,1\n" * 100)
    before = path.read_bytes()
    with pytest.raises(LedgerCorrupt, match="is not a tacit ledger"):
        Ledger(path)
    assert path.read_bytes() == before


def test_a_database_of_something_else_is_not_touched(path: Path) -> None:
    edit(path, "CREATE TABLE people (name TEXT)")
    with pytest.raises(LedgerCorrupt, match="a database of another kind"):
        Ledger(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("people",)]


def test_a_ledger_of_another_version_says_so(path: Path) -> None:
    opened(path).close()
    edit(path, "PRAGMA user_version = 4")
    with pytest.raises(LedgerError, match="of format 4; this tacit writes format 3"):
        Ledger(path)


def test_damaged_pages_are_found(path: Path) -> None:
    opened(path, 30).close()
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(os.urandom(size - 4096))
    with pytest.raises(LedgerCorrupt):
        Ledger(path)


def test_a_file_removed_under_a_living_ledger_releases_nothing(path: Path) -> None:
    with opened(path, 1) as ledger:
        path.unlink()
        with pytest.raises(LedgerError, match="nothing was released"):
            ledger.release(SMALL, None, key=key(5))


def test_a_closed_ledger_releases_nothing(path: Path) -> None:
    ledger = opened(path, 1)
    ledger.close()
    with pytest.raises(LedgerError, match="nothing was released"):
        ledger.release(SMALL, None, key=key(0))


def test_a_ledger_is_for_its_owner_only(path: Path) -> None:
    with Ledger(path) as ledger:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert ledger.head().length == 1
        assert len(ledger.identity) == 32


def releases(ledger: Ledger) -> None:
    for number in range(1, 200):
        ledger.release(SMALL, None, key=key(number))


def test_a_full_disk_leaves_nothing_half_written(path: Path) -> None:
    """The database may grow by two pages only."""
    with opened(path, 1) as ledger:
        pages = ledger._store._pragma("page_count")
        ledger._store._connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(LedgerError, match="full; nothing was released"):
            releases(ledger)
        stopped = ledger.entries()[-1].payload["round"] + (ledger.entries()[-1].kind == "output")
        assert 1 < stopped < 60
        assert ledger.verify(ledger.head()).ok
        recorded = [e.payload.get("round") for e in ledger.entries() if e.kind == "output"]
        assert recorded == list(range(stopped))
        ledger._store._connection.execute("PRAGMA max_page_count = 100000")
        ledger.release(SMALL, None, key=key(stopped))
        assert ledger.verify().ok


def test_a_file_that_may_not_grow_leaves_nothing_half_written(path: Path) -> None:
    def limited() -> None:
        size = path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 4096, size + 4096))
        with pytest.raises(LedgerError, match="nothing was released"):
            releases(ledger)
        assert ledger.verify().ok

    with opened(path, 1) as ledger:
        assert exit_code(fork(limited)) == 0
        assert ledger.verify().ok
        ledger.release(SMALL, None, key=key(500))


def test_the_file_is_synced_to_the_folder_at_every_commit(path: Path) -> None:
    """EXTRA is per connection: also of one that was reopened after a fork."""

    def settings_of(found: Store) -> tuple[int, str]:
        mode = found._current().execute("PRAGMA journal_mode").fetchone()[0]
        return found._pragma("synchronous"), mode

    with opened(path) as ledger:
        assert settings_of(ledger._store) == (3, "delete")

        def forked() -> None:
            parents = ledger._store._connection
            assert ledger._store._current() is not parents
            assert settings_of(ledger._store) == (3, "delete")

        assert exit_code(fork(forked)) == 0


def test_a_digest_covers_kind_payload_and_everything_before() -> None:
    start = link(bytes(32), "spend", "{}")
    others = [
        link(bytes(32), "output", "{}"),
        link(bytes(32), "spend", "[]"),
        link(start, "spend", "{}"),
    ]
    assert start not in others


def test_an_entry_number_is_used_once(path: Path) -> None:
    with opened(path) as ledger, pytest.raises(LedgerError, match="UNIQUE"):
        ledger._store.append(Row(1, "run", "{}", bytes(32)))


def test_who_was_interrupted_while_leaving_keeps_nobody_waiting() -> None:
    """Ctrl-C a moment after a commit: the process had waited for itself ever after."""
    line, led = Line(), []

    def twice() -> None:
        for _ in range(2):  # and does not leave
            caller = Caller(int)
            line.join(caller)
            assert line.take() == [caller]
            led.append(caller.leads)

    thread = threading.Thread(target=twice, daemon=True)
    thread.start()
    thread.join(10)
    assert led == [True, True]


def test_whoever_waits_behind_one_who_was_interrupted_leads_next() -> None:
    line, first, again, behind = Line(), Caller(int), Caller(int), Caller(int)
    line.join(first)
    line.take()
    behind.thread = -1  # of another thread
    line._waiting.append(behind)
    again.call()  # so that it need not wait here
    line.join(again)
    assert behind.leads
    assert not again.leads
