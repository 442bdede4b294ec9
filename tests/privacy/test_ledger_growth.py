"""A ledger that grows: snapshots and who believes them, formats, lists, shared transactions."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.errors import BudgetExceeded, InvalidInput, LedgerCorrupt, LedgerError
from tacit.privacy import snapshot
from tacit.privacy.accounting import Gaussian, Pure
from tacit.privacy.budget import Budget
from tacit.privacy.chain import canonical, link, sha256
from tacit.privacy.ledger import Key, Ledger
from tacit.privacy.ledger_rows import Fold
from tacit.privacy.mechanisms import GaussianSum, LaplaceSum
from tacit.privacy.runs import RunTerms
from tacit.privacy.store import Store

GOLDEN = Path(__file__).parents[1] / "golden" / "v2" / "pupils.csv.ledger.sqlite"
SUMS = GaussianSum(1.0, 400.0)
CAP = Budget(3.0, 1e-5)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot every ten entries."""
    monkeypatch.setattr(snapshot, "FEWEST", 10)
    monkeypatch.setattr(snapshot, "BYTES_AN_ENTRY", 10**6)


BEGUN: list[Fold] = []
"""The folds that began with a snapshot."""


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    begin_with = Fold.begin_with

    def begin(self: Fold, *what: Any) -> None:
        begin_with(self, *what)
        BEGUN.append(self)

    BEGUN.clear()
    monkeypatch.setattr(Fold, "begin_with", begin)


def began_with_a_snapshot(ledger: Ledger) -> bool:
    return any(fold is ledger._fold for fold in BEGUN)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


def key(number: int, run: str = "run") -> Key:
    return Key(run, number, "curator")


def grown(path: Path, releases: int = 20) -> None:
    """Two data sets, several runs, shares, doubts, simulated noise, a planned event."""
    with Ledger(path, cap=CAP) as ledger:
        ledger.open_run("run", ["a", "b"], Budget(1.0), [SUMS.event("replace")] * 100)
        ledger.open_run(
            "uneven", ["b", "c", "d"], [Budget(1.0), Budget(0.5), None],
            [Gaussian(0.005)] * 3, RunTerms(secure=False, doubts=["a doubt"], family="family/one"),
            shares=[1.0, 0.5, 0.0],
        )  # fmt: skip
        coarse = GaussianSum(1.0, 400.0)
        for number in range(3):
            rng = np.random.default_rng(number)
            ledger.release(coarse, np.ones((3, 2)), key=key(number, "uneven"), rng=rng)
        ledger.record_certificate("ab" * 32)
        other = ledger.beside("other", cap=Budget(1.0))
        other.open_run(
            "planned", ["x"], Budget(1.0), [Pure(0.1)], RunTerms(planned=3, secure=False)
        )
        other.release(
            LaplaceSum(1.0, 20.0), np.zeros((1, 1)), key=key(0, "planned"),
            rng=np.random.default_rng(0),
        )  # fmt: skip
        for number in range(releases):
            ledger.release(SUMS, np.ones((2, 3)), key=key(number))


def released(path: Path, number: int) -> None:
    """One more release, by somebody who has just opened the ledger."""
    with Ledger(path) as ledger:
        ledger.release(SUMS, np.ones((2, 3)), key=key(number))


def edit(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def asked(ledger: Ledger) -> list[Any]:
    """Every question whose answer a snapshot could change."""
    other = ledger.beside("other")
    return [
        ledger.identity,
        ledger.head(),
        [ledger.spent(task) for task in "abcd"],
        ledger.statement(["a", "b", "c", "d"], ["run"]),
        ledger.statement(["c"], ["uneven"]),
        other.statement(["x"], ["planned"]),
        ledger.lifetime(),
        other.lifetime(),
        [ledger.begun(run) for run in ("run", "uneven", "planned", "nobody's")],
        [entry.payload for entry in ledger.spends("run")],
        ledger.remaining("b"),
    ]


# --- snapshots -----------------------------------------------------------------------------------


def test_who_begins_with_a_snapshot_knows_what_the_entries_add_up_to(path: Path) -> None:
    grown(path)
    with Ledger(path) as short:
        assert began_with_a_snapshot(short)
        path.with_name(path.name + ".head").rename(path.with_name("head"))
        with Ledger(path) as whole:
            assert not began_with_a_snapshot(whole)
            right, state = asked(whole), snapshot.written(whole._state)
        path.with_name("head").rename(path.with_name(path.name + ".head"))
        assert asked(short) == right
        assert snapshot.written(short._state) == state
        assert short.verify().ok


def test_questions_about_strangers_do_not_change_a_snapshot(path: Path) -> None:
    grown(path)
    with Ledger(path) as ledger:
        before = snapshot.written(ledger._state)
        ledger.spent("nobody")
        ledger.statement(["nobody", "a"])
        ledger.beside("nothing").spent("a")
        with pytest.raises(BudgetExceeded):
            ledger.open_run("greedy", ["new", "a"], Budget(9.0), [Pure(5.0)])
        assert snapshot.written(ledger._state) == before


def test_a_ledger_goes_on_from_a_snapshot_under_the_same_cap(path: Path) -> None:
    with Ledger(path, cap=Budget(3.05, 0.0)) as ledger:
        ledger.open_run("run", ["a"], Budget(3.05, 0.0), [Pure(0.1)] * 30)
        ledger.open_run("greedy", ["a"], Budget(3.05, 0.0), [Pure(0.1)] * 30)
    for number in range(30):
        with Ledger(path) as ledger:  # every release by somebody who has just opened it
            laplace(ledger, number)
    with Ledger(path) as ledger:
        assert began_with_a_snapshot(ledger)
        assert ledger.verify().ok
        with pytest.raises(BudgetExceeded):
            laplace(ledger, 30)


def laplace(ledger: Ledger, number: int) -> None:
    at = key(number, "run" if number % 2 else "greedy")
    ledger.release(LaplaceSum(1.0, 20.0), np.zeros((1, 1)), key=at)


def newest(path: Path) -> tuple[int, str]:
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT seq, payload FROM entries WHERE kind = 'snapshot' ORDER BY seq DESC"
        seq, text = connection.execute(query).fetchone()
        assert connection.execute("SELECT count(*) FROM blobs").fetchone() == (1,)
    return seq, json.loads(text)["sha256"]


def lowered(path: Path) -> tuple[bytes, str]:
    """The newest snapshot, with nothing spent in it."""
    _, digest = newest(path)
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT value FROM blobs WHERE sha256 = ?"
        fields = json.loads(connection.execute(query, (digest,)).fetchone()[0])
    for account in fields["accounts"]:
        account["numbers"][:5] = [0.0] * 5
    blob = canonical(fields).encode()
    return blob, sha256(blob)


def forge_blob(path: Path) -> None:
    """Another blob under the digest of the old one."""
    _, digest = newest(path)
    blob, _ = lowered(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE blobs SET value = ? WHERE sha256 = ?", (blob, digest))
        connection.commit()


def forge_entry(path: Path, *, seq: int | None = None) -> None:
    """Another blob, and another entry that names it, with every digest from there on made again."""
    at = newest(path)[0] if seq is None else seq
    blob, digest = lowered(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO blobs VALUES (?, ?)", (digest, blob))
        query = "SELECT seq, kind, payload, digest FROM entries WHERE seq >= ? ORDER BY seq"
        before, *after = connection.execute(query, (at - 1,)).fetchall()
        entries = [(at, "snapshot", canonical({"sha256": digest})), *(row[:3] for row in after[1:])]
        previous = before[3]
        for number, kind, text in entries:
            previous = link(previous, kind, text)
            update = "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)"
            connection.execute(update, (number, kind, text, previous))
        connection.commit()


def forge_appended(path: Path) -> None:
    """One more entry at the end: nothing that was there is touched."""
    with closing(sqlite3.connect(path)) as connection:
        (length,) = connection.execute("SELECT max(seq) FROM entries").fetchone()
    forge_entry(path, seq=length + 1)


LOST: dict[str, Callable[[Path], None]] = {
    "a blob": forge_blob,
    "a removed blob": lambda path: edit(path, "DELETE FROM blobs"),
}


@pytest.mark.parametrize("what", LOST)
def test_a_forged_snapshot_is_not_believed_and_is_found(path: Path, what: str) -> None:
    """The file is changed, the head beside it is not: everything is folded from the beginning."""
    grown(path)
    with Ledger(path) as ledger:
        right = [ledger.spent(task) for task in "abcd"]
    LOST[what](path)
    with Ledger(path) as ledger:
        assert not began_with_a_snapshot(ledger)
        assert [ledger.spent(task) for task in "abcd"] == right
        assert "the snapshot of entry" in ledger.verify().problems[0]


@pytest.mark.parametrize("forge", [forge_entry, forge_appended])
@pytest.mark.parametrize("read_only", [False, True])
def test_whoever_folds_a_snapshot_that_is_not_true_stops(
    path: Path, forge: Callable[[Path], None], read_only: bool
) -> None:
    """Passed over, it would be believed by the next one: the head kept of what follows names it."""
    grown(path, 21)
    forge(path)
    with pytest.raises(LedgerCorrupt, match="says something else than the entries before it"):
        Ledger(path, read_only=read_only)


def test_who_forges_the_head_too_is_found_by_verify(path: Path) -> None:
    """What no opener sees: the file and the head beside it, both made again."""
    grown(path)
    with Ledger(path) as ledger:
        right = ledger.spent("a")
    forge_appended(path)
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT seq, digest FROM entries ORDER BY seq DESC LIMIT 1"
        length, digest = connection.execute(query).fetchone()
    head = path.with_name(path.name + ".head")
    head.write_text(json.dumps({"digest": digest.hex(), "length": length}))
    with Ledger(path) as ledger:
        assert ledger.spent("a").mu_squared < right.mu_squared
        assert "says something else than the entries before it" in ledger.verify().problems[0]


def test_without_a_kept_head_no_snapshot_is_believed(path: Path) -> None:
    grown(path)
    path.with_name(path.name + ".head").unlink()
    with Ledger(path) as ledger:
        assert not began_with_a_snapshot(ledger)
        ledger.release(SUMS, np.ones((2, 3)), key=key(50))
    with Ledger(path) as ledger:
        assert began_with_a_snapshot(ledger)


def test_an_edited_entry_before_the_snapshot_refunds_nothing_and_verify_finds_it(
    path: Path,
) -> None:
    grown(path)
    with Ledger(path) as ledger:
        right = ledger.spent("a")
    edit(path, "UPDATE entries SET payload = replace(payload, '0.005', '0.001') WHERE seq = 4")
    with Ledger(path) as ledger:
        assert began_with_a_snapshot(ledger)
        assert ledger.spent("a") == right
        assert "entry 4 does not match its digest" in ledger.verify().problems[0]


def test_a_run_edited_before_the_snapshot_is_not_used(path: Path) -> None:
    grown(path)
    edit(path, "UPDATE entries SET payload = replace(payload, '100', '900') WHERE seq = 2")
    with pytest.raises(LedgerCorrupt, match="entry 2 is no longer what was recorded"):
        released(path, 50)


FIRST = """run = '"run"' AND name = '[0,"curator"]'"""
HIDDEN = {
    "the index": [f"UPDATE keys SET output = NULL WHERE {FIRST}"],
    "the output": [
        f"DELETE FROM entries WHERE seq = (SELECT output FROM keys WHERE {FIRST})",
        f"UPDATE keys SET output = NULL WHERE {FIRST}",
    ],
}


@pytest.mark.parametrize("what", HIDDEN)
def test_nobody_draws_again_on_the_word_of_an_index(path: Path, what: str) -> None:
    """Another draw for one spend would reveal more than was charged."""
    grown(path)
    edit(path, *HIDDEN[what])
    with Ledger(path) as ledger:
        assert began_with_a_snapshot(ledger)
        with pytest.raises(LedgerCorrupt):
            ledger.release(SUMS, np.ones((2, 3)), key=key(0))


def test_a_spend_before_the_snapshot_is_drawn_again_once_everything_was_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> Any:
        raise KeyboardInterrupt

    with Ledger(path) as ledger:
        ledger.open_run("run", ["a"], Budget(1.0), [SUMS.event("replace")] * 100)
        with monkeypatch.context() as broken:
            broken.setattr(GaussianSum, "release", dies)
            with pytest.raises(KeyboardInterrupt):
                ledger.release(SUMS, np.ones((1, 3)), key=key(0))
        for number in range(1, 10):
            ledger.release(SUMS, np.ones((1, 3)), key=key(number))
    with Ledger(path) as ledger:
        assert began_with_a_snapshot(ledger)
        before = ledger.spent("a")
        first = ledger.release(SUMS, np.ones((1, 3)), key=key(0))
        assert not began_with_a_snapshot(ledger)
        assert ledger.spent("a") == before
        assert np.array_equal(ledger.release(SUMS, np.ones((1, 3)), key=key(0)).value, first.value)
        assert ledger.verify().ok


def test_only_the_newest_snapshot_is_kept(path: Path) -> None:
    grown(path, 60)
    with Ledger(path) as ledger:
        assert sum(entry.kind == "snapshot" for entry in ledger.entries()) > 5
        assert ledger._store._found("SELECT count(*) FROM blobs") == [(1,)]
        assert ledger.verify().ok


def test_a_ledger_in_memory_has_no_snapshots() -> None:
    with Ledger.in_memory() as ledger:
        ledger.open_run("run", ["a"], Budget(1.0), [SUMS.event("replace")] * 30)
        for number in range(30):
            ledger.release(SUMS, np.ones((1, 3)), key=key(number))
        assert {entry.kind for entry in ledger.entries()} == {"ledger", "run", "spend", "output"}


# --- formats -------------------------------------------------------------------------------------


@pytest.fixture
def second(path: Path) -> Path:
    shutil.copy(GOLDEN, path)
    return path


def test_format_2_is_read_as_it_is(second: Path) -> None:
    before = second.read_bytes()
    with Ledger(second, read_only=True) as ledger:
        assert ledger.verify().ok
        spend = next(entry for entry in ledger.entries() if entry.kind == "spend")
        assert ledger.spends(spend.payload["run"])[0] == spend
        at = Key(*(spend.payload[name] for name in ("run", "round", "party")))
        assert ledger.released(at) is not None
    assert second.read_bytes() == before


def test_format_2_becomes_3_when_it_is_written_and_its_entries_stay(second: Path) -> None:
    with Ledger(second, read_only=True) as ledger:
        before, identity = ledger.entries(), ledger.identity
    with Ledger(second, dataset="new") as ledger:
        assert ledger._store.version == 3
        assert (ledger.entries(), ledger.identity) == (before, identity)
        ledger.open_run("run", ["a"], Budget(1.0), [SUMS.event("replace")])
        ledger.release(SUMS, np.ones((1, 3)), key=key(0))
        assert ledger.verify().ok
    with Ledger(second, read_only=True) as ledger:
        assert ledger.entries()[: len(before)] == before


def test_a_broken_ledger_of_format_2_stays_what_it_was(second: Path) -> None:
    edit(second, "UPDATE entries SET payload = replace(payload, 'spend', 'spent')",
         "UPDATE entries SET payload = replace(payload, '1', '2') WHERE seq = 4")  # fmt: skip
    before = second.read_bytes()
    with pytest.raises(LedgerCorrupt):
        Ledger(second)
    assert second.read_bytes() == before


# --- long lists ----------------------------------------------------------------------------------


def test_the_shares_of_many_tasks_are_stored_once(path: Path) -> None:
    tasks, shares = [f"task {i}" for i in range(2_000)], np.linspace(0.1, 1.0, 2_000)
    with Ledger(path) as ledger:
        for number in range(5):
            run = f"run {number}"
            ledger.open_run(run, tasks, Budget(1.0), [Gaussian(0.01)], shares=shares)
        assert ledger._state.runs["run 4"].tasks == tuple(tasks)
    with Ledger(path) as ledger:
        assert np.array_equal(ledger._state.runs["run 0"].shares, shares)
        longest = ledger._store._found("SELECT max(length(payload)) FROM entries")[0][0]
        assert longest < 2_000
        assert len(ledger.entries()[1].payload["tasks"]) == 2_000
        assert ledger.verify().ok
        edit(path, "UPDATE blobs SET value = replace(value, 'task 7', 'task 8')")
        assert "a list" in ledger.verify().problems[0]
    with pytest.raises(LedgerCorrupt, match="edited or removed"):
        Ledger(path)


def test_what_would_be_read_as_a_long_list_is_not_written(path: Path) -> None:
    with Ledger(path) as ledger, pytest.raises(InvalidInput, match="means a long list"):
        ledger._transact(lambda: ledger._append("run", {"list": "x" * 5_000}))


# --- shared transactions -------------------------------------------------------------------------


def together(count: int, work: Callable[[int], None]) -> list[BaseException]:
    """Run so many threads at once; what they raised."""
    raised: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def commits(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many callers each transaction had, from now on."""
    found: list[int] = []
    commit = Ledger._commit

    def counted(self: Ledger, callers: Any, first: Any) -> None:
        found.append(len(callers))
        commit(self, callers, first)

    monkeypatch.setattr(Ledger, "_commit", counted)
    return found


def test_threads_that_wait_together_share_a_commit_and_each_is_durable(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger(path) as ledger:
        ledger.open_run("run", ["a"], Budget(1.0), [SUMS.event("replace")] * 320)
        sizes = commits(ledger, monkeypatch)

        def work(number: int) -> None:
            for each in range(5):
                at = key(5 * number + each)
                value = ledger.release(SUMS, np.ones((1, 3)), key=at).value
                with closing(sqlite3.connect(path)) as other:  # what another process sees now
                    query = "SELECT value FROM outputs JOIN keys USING (spend) WHERE name = ?"
                    stored = other.execute(query, (canonical([at.round, at.party]),)).fetchone()
                assert value.tobytes() in stored[0]

        assert together(64, work) == []
        assert sum(sizes) == 320 > 2 * len(sizes)
        assert ledger.verify().ok
        assert ledger.spent("a").mu_squared == pytest.approx(320 * SUMS.event("replace").mu ** 2)


def test_threads_that_race_for_a_budget_never_overspend(path: Path) -> None:
    with Ledger(path, cap=Budget(1.05, 0.0)) as ledger:
        for number in range(16):
            ledger.open_run(str(number), ["a"], Budget(1.05, 0.0), [Pure(0.1)] * 10)
        released = []

        def greedy(number: int) -> None:
            for each in range(10):
                ledger.release(LaplaceSum(1.0, 20.0), np.zeros((1, 1)), key=key(each, str(number)))
                released.append(number)

        refused = together(16, greedy)
        assert len(released) == 10
        assert {type(error) for error in refused} == {BudgetExceeded}
        assert ledger.spent("a").epsilon == pytest.approx(1.0)
        assert ledger.verify().ok


def test_one_key_asked_for_by_many_threads_is_spent_and_drawn_once_for_all(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.open_run("run", ["a"], Budget(1.0), [SUMS.event("replace")] * 2)
        seen: set[bytes] = set()

        def ask(_: int) -> None:
            seen.add(ledger.release(SUMS, np.ones((1, 3)), key=key(0)).value.tobytes())

        assert together(16, ask) == []
        assert len(seen) == 1
        assert [entry.kind for entry in ledger.entries()[2:]] == ["spend", "output"]


def test_a_commit_that_fails_fails_for_all_and_is_not_remembered(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger(path) as ledger:
        ledger.open_run("run", ["a"], Budget(1.0), [SUMS.event("replace")] * 100)
        gate = threading.Barrier(8)
        appended = Ledger._append

        def full(self: Ledger, kind: str, payload: Any) -> None:
            appended(self, kind, payload)
            if payload.get("round") == 7:
                raise LedgerError("the disk is full; nothing was released")

        def ask(number: int) -> None:
            gate.wait()
            ledger.release(SUMS, np.ones((1, 3)), key=key(number))

        with monkeypatch.context() as broken:
            broken.setattr(Ledger, "_append", full)
            raised = together(8, ask)
        assert raised
        assert all("nothing was released" in str(error) for error in raised)
        assert len({id(error) for error in raised}) == len(raised)
        spends = [entry.payload["round"] for entry in ledger.spends("run")]
        assert 7 not in spends
        assert ledger.spent("a").mu_squared == pytest.approx(
            len(spends) * SUMS.event("replace").mu ** 2
        )
        assert together(8, lambda n: void(ledger.release(SUMS, np.ones((1, 3)), key=key(n)))) == []
        assert sorted(e.payload["round"] for e in ledger.spends("run")) == list(range(8))
        assert ledger.verify().ok


def test_a_refusal_is_the_refused_callers_alone(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.open_run("run", ["a"], Budget(1.0), [SUMS.event("replace")] * 100)
        ledger.release(SUMS, np.ones((1, 3)), key=key(0))

        def ask(number: int) -> None:
            mechanism = SUMS if number % 2 else GaussianSum(1.0, 300.0)  # not in the plan
            ledger.release(mechanism, np.ones((1, 3)), key=key(number + 1))

        raised = together(16, ask)
        assert len(raised) == 8
        assert all("planned no further" in str(error) for error in raised)
        assert len(ledger.spends("run")) == 9
        assert ledger.verify().ok


def test_an_interrupt_undoes_what_was_not_committed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Store, at: Key, seq: int) -> None:
        raise KeyboardInterrupt

    with Ledger(path) as ledger:
        ledger.open_run("run", ["a"], Budget(1.0), [SUMS.event("replace")] * 100)
        before = ledger.head()
        with monkeypatch.context() as broken:
            broken.setattr(Store, "put_spend", interrupted)
            with pytest.raises(KeyboardInterrupt):
                ledger.release(SUMS, np.ones((1, 3)), key=key(0))
        assert ledger.head() == before
        ledger.release(SUMS, np.ones((1, 3)), key=key(0))
        assert ledger.verify().ok


def test_who_waits_for_a_leader_that_is_interrupted_is_told_and_goes_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between taking the others in and committing for them: nothing was spent for any."""
    with Ledger(path) as ledger:
        ledger.open_run("run", ["a"], Budget(1.0), [SUMS.event("replace")] * 100)
        commit, interrupted = Ledger._commit, threading.Event()

        def dies(self: Ledger, callers: Any, first: Any) -> None:
            if len(callers) > 1 and not interrupted.is_set():
                interrupted.set()
                raise KeyboardInterrupt
            time.sleep(0.01)  # so that others gather
            commit(self, callers, first)

        monkeypatch.setattr(Ledger, "_commit", dies)

        def ask(number: int) -> None:
            for each in range(5):
                assert ledger.release(SUMS, np.ones((1, 3)), key=key(5 * number + each)) is not None

        raised = together(8, ask)
        assert interrupted.is_set()
        assert {type(error) for error in raised} == {KeyboardInterrupt, LedgerError}
        assert all("undone" in str(error) for error in raised if isinstance(error, LedgerError))
        outputs = sum(entry.kind == "output" for entry in ledger.entries())
        assert outputs >= len(ledger.spends("run")) - len(raised)
        assert ledger.verify().ok


def void(_: object) -> None:
    pass
