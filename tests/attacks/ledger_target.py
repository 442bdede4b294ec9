"""Attacks on a ledger from inside a process whose disk faulty_disk.c controls.

    LD_PRELOAD=faulty_disk.so python ledger_target.py ATTACK FOLDER SEED [MUTANT]

prints one line of JSON for each attempt, without end: "" where everything held, else what did not.
Each attempt is a child's: it publishes what it released through a pipe, and dies or not. What was
published must be on record, bit for bit, as an independent reader finds it; never more than the
cap; and the library must open the file again and find it intact.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import random
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from independent_reader import Found, Unsound, read
from power_cuts import Disk, noted

from tacit.errors import BudgetExceeded, TacitError
from tacit.privacy import snapshot, store
from tacit.privacy.accounting import Pure
from tacit.privacy.asking import Asked
from tacit.privacy.budget import Budget
from tacit.privacy.ledger import Key, Ledger, Release
from tacit.privacy.mechanisms import LaplaceSum
from tacit.privacy.spending import Spending

OFF, COUNT, KILL_BEFORE, KILL_AFTER, FAIL, HALF, NOTE = range(7)
MECHANISM, COST, AFFORDED = LaplaceSum(1.0, 20.0), 0.1, 20
CAP = Budget(AFFORDED * COST + COST / 2, 0.0)
SECONDS = 60
"""After which a child hangs: longer than SQLite waits for a lock."""

Publish = Callable[[str, int, bytes], None]


class Control:
    """The disk's switch; without the preloaded library it does nothing."""

    def __init__(self) -> None:
        self._library: Any = ctypes.CDLL(None)

    def arm(
        self,
        folder: Path,
        how: int,
        *,
        at: int = 0,
        error: int = 0,
        lasting: bool = False,
        notes: int = -1,
    ) -> None:
        text = os.fsencode(folder)
        self._library.disk_arm(text, how, ctypes.c_long(at), error, int(lasting), notes)

    def calls(self) -> int:
        self._library.disk_calls.restype = ctypes.c_long
        return int(self._library.disk_calls())


class Case:
    """A ledger under attack, and what the world has seen of it."""

    def __init__(self, folder: Path, runs: int = 1) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder, self.path = folder, folder / "ledger.sqlite"
        self.seen: dict[tuple[str, int], bytes] = {}
        with Ledger(self.path, cap=CAP) as ledger:
            for run in range(runs):
                ledger.open_run(str(run), ["a", "b"], CAP, [Pure(COST)] * AFFORDED)

    @property
    def used_up(self) -> bool:
        return len(self.seen) >= AFFORDED

    def next(self, run: str = "0") -> int:
        """The first key of a run that nobody has seen."""
        return sum(1 for name, _ in self.seen if name == run)

    def publish(self, line: bytes) -> str:
        """Take in what a child has published."""
        run, number, value = json.loads(line)
        at, new = (run, number), bytes.fromhex(value)
        if self.seen.setdefault(at, new) != new:
            return f"{at} was released twice, with different noise"
        return ""

    def problem(self) -> str:
        """Why the ledger does not hold, if it does not."""
        try:
            with Ledger(self.path) as ledger:  # also recovers what the death left, as anybody would
                verdict = ledger.verify()
                spent = {task: ledger.spent(task).epsilon for task in ("a", "b")}
            found = read(self.path)
        except (TacitError, Unsound) as error:
            return f"it does not open: {error!r}"
        if not verdict.ok:
            return f"not intact: {verdict.problems}"
        return self._lost(found) or _overspent(found, spent)

    def _lost(self, found: Found) -> str:
        for (run, number), value in self.seen.items():
            key = (run, number, "x")
            if key not in found.spends or value not in found.outputs.get(key, b""):
                return f"{key} was released and is not on record"
        return ""


def _overspent(found: Found, spent: dict[str, float]) -> str:
    for task, epsilon in found.epsilon.items():
        if epsilon > CAP.epsilon * (1 + 1e-9):
            return f"task {task} spent {epsilon} of {CAP.epsilon}"
        if abs(spent[task] - epsilon) > 1e-9:
            return f"task {task} spent {epsilon}, and the ledger says {spent[task]}"
    return ""


# --- children ------------------------------------------------------------------------------------


def releases(
    case: Case, publish: Publish, first: int, count: int, run: str = "0", *, threads: int = 1
) -> None:
    """Open the ledger and release some keys, in threads that share commits; what is refused by an
    error of ours is asked again."""

    def one(ledger: Ledger, number: int) -> None:
        made = ledger.release(MECHANISM, np.zeros((2, 1)), key=Key(run, number, "x"))
        with store.LOCK:  # so that it is noted before or after a commit, not within
            publish(run, number, made.value.tobytes())

    for _ in range(3):
        try:
            with Ledger(case.path) as ledger, ThreadPoolExecutor(threads) as pool:
                list(pool.map(partial(one, ledger), range(first, first + count)))
            return
        except BudgetExceeded:
            return
        except TacitError:
            continue


class Child:
    """Work in a forked process, whose lines are read from a pipe."""

    def __init__(self, work: Callable[[Publish], None]) -> None:
        self._read, write = os.pipe()
        self.process = os.fork()
        if self.process == 0:
            os.close(self._read)
            status = 1
            try:
                work(lambda *given: _told(write, given))
                status = 0
            except BaseException:
                os.write(write, json.dumps(traceback.format_exc()).encode() + b"\n")
            finally:
                os._exit(status)
        os.close(write)
        self._lines = b""

    def kill(self) -> None:
        os.kill(self.process, signal.SIGKILL)

    def ended(self, case: Case) -> str:
        """Wait for its end, and take in what it published; what went wrong."""
        deadline, wrong = time.monotonic() + SECONDS, ""
        while True:
            ready, _, _ = select.select([self._read], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                self.kill()
                wrong = "a child hangs"
                break
            found = os.read(self._read, 65536)
            if not found:
                break
            self._lines += found
        os.close(self._read)
        os.waitpid(self.process, 0)
        for line in self._lines.split(b"\n")[:-1]:  # a line that was cut off was not published
            said = json.loads(line)
            wrong = wrong or (said if isinstance(said, str) else case.publish(line))
        return wrong


def _told(pipe: int, given: tuple[str, int, bytes]) -> None:
    run, number, value = given
    os.write(pipe, json.dumps([run, number, value.hex()]).encode() + b"\n")


# --- attacks -------------------------------------------------------------------------------------


def at_calls(
    folder: Path, rng: random.Random, control: Control, ways: Callable[[], dict[str, Any]]
) -> Iterator[str]:
    """Something happens at one exact system call of a child that releases two keys."""
    case = Case(folder)
    most = _calls(case, control)
    while True:
        if case.used_up:
            case = Case(folder)
        way, threads = ways() | {"at": rng.randint(1, most)}, rng.choice((1, 2))

        def work(
            publish: Publish, case: Case = case, way: dict[str, Any] = way, threads: int = threads
        ) -> None:
            control.arm(folder, **way)
            releases(case, publish, case.next(), 2, threads=threads)

        yield Child(work).ended(case) or case.problem()


def _calls(case: Case, control: Control) -> int:
    """How many system calls a child makes that nothing happens to."""
    control.arm(case.folder, COUNT)
    releases(case, lambda *given: None, case.next(), 2)
    found = control.calls()
    control.arm(case.folder, OFF)
    return found


def kills(folder: Path, rng: random.Random, control: Control) -> Iterator[str]:
    """Killed before or after one system call."""
    return at_calls(folder, rng, control, lambda: {"how": rng.choice((KILL_BEFORE, KILL_AFTER))})


def faults(folder: Path, rng: random.Random, control: Control) -> Iterator[str]:
    """One system call fails, or all from there on; or writes half."""

    def way() -> dict[str, Any]:
        how, error = rng.choice((FAIL, FAIL, HALF)), rng.choice((errno.EIO, errno.ENOSPC))
        return {"how": how, "error": error, "lasting": rng.random() < 0.3}

    return at_calls(folder, rng, control, way)


def crowds(folder: Path, rng: random.Random, control: Control) -> Iterator[str]:
    """Six processes on one ledger and one budget, killed at random instants."""
    case, longest = Case(folder, 6), 0.2
    while True:
        if case.used_up:
            case = Case(folder, 6)
        before, children = len(case.seen), _crowd(case, 6, 9)
        for child in children:
            time.sleep(rng.uniform(0, longest / 6))
            child.kill()
        yield from [_end(case, children)] + [""] * 5
        longest *= 1.1 if len(case.seen) == before else 0.9  # follows the speed of the machine


def races(folder: Path, rng: random.Random, control: Control) -> Iterator[str]:
    """Four processes want all of one budget: exactly what it affords is released."""
    while True:
        case = Case(folder, 4)
        problem = _end(case, _crowd(case, 4, AFFORDED))
        count = f"{len(case.seen)} releases, not {AFFORDED}"
        yield problem or ("" if len(case.seen) == AFFORDED else count)


def _crowd(case: Case, processes: int, count: int) -> list[Child]:
    """Each goes on with a run of its own."""

    def work(run: str, publish: Publish) -> None:
        releases(case, publish, case.next(run), count, run)

    return [Child(partial(work, str(i))) for i in range(processes)]


def _end(case: Case, children: list[Child]) -> str:
    wrong = [found for found in (child.ended(case) for child in children) if found]
    return wrong[0] if wrong else case.problem()


def power_cuts(folder: Path, rng: random.Random, control: Control) -> Iterator[str]:
    """The power fails at some instant of a child that releases keys."""
    while True:
        case, log = Case(folder / "running"), folder / "log"
        _end(case, _crowd(case, 1, rng.randint(0, 4)))
        shutil.rmtree(folder / "before", ignore_errors=True)
        shutil.copytree(case.folder, folder / "before")

        threads = rng.choice((1, 4))

        def work(
            publish: Publish, case: Case = case, log: Path = log, threads: int = threads
        ) -> None:
            notes = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            mark = os.open(case.folder / "published", os.O_WRONLY | os.O_CREAT)
            control.arm(case.folder, NOTE, notes=notes)
            releases(case, lambda *given: _told(mark, given), case.next(), 4, threads=threads)

        yield Child(work).ended(case)
        calls = list(noted(log.read_bytes()))
        for _ in range(99):
            yield _after_power_cut(folder, case, calls[: rng.randint(0, len(calls))], rng)


def _after_power_cut(folder: Path, case: Case, calls: list[Any], rng: random.Random) -> str:
    disk, found = Disk(folder / "before", case.folder), folder / "after"
    after = Case(found)
    after.path.with_name("ledger.sqlite.head").unlink()
    after.path.unlink()
    after.seen = dict(case.seen)
    for call in calls:
        if call.path.name == "published":
            after.publish(call.data.rstrip())
        else:
            disk.perform(call)
    disk.cut(rng)
    disk.write(found)
    return after.problem()


# --- mutants: what the attacks must find ---------------------------------------------------------


def _synchronous(level: str) -> None:
    connect = store.Store._connect

    def connected(self: store.Store) -> None:
        connect(self)
        self._connection.execute(f"PRAGMA synchronous = {level}")

    store.Store._connect = connected  # type: ignore[method-assign]


def _hasty() -> None:
    def persist(self: Ledger, asked: Asked, value: Any) -> Release:
        return Release(value, (asked.key,), asked.secure)

    Ledger._persist = persist  # type: ignore[method-assign]


def _generous() -> None:
    Spending.check = lambda self, run, charge: None  # type: ignore[method-assign]


def _credulous() -> None:
    """Draws on the word of what it remembers, though the commit failed."""
    Ledger._forget = lambda self: None  # type: ignore[method-assign]


MUTANTS: dict[str, Callable[[], None]] = {
    "nothing is synced": partial(_synchronous, "OFF"),
    "the folder is not synced": partial(_synchronous, "FULL"),
    "outputs are returned before they are persisted": _hasty,
    "no cap is checked": _generous,
    "a failed commit is remembered": _credulous,
}

ATTACKS = {
    "kills": kills,
    "faults": faults,
    "crowds": crowds,
    "races": races,
    "power cuts": power_cuts,
}


def main() -> None:
    name, folder, seed = sys.argv[1], Path(sys.argv[2]).resolve(), int(sys.argv[3])
    snapshot.FEWEST = 7  # so that every attempt meets snapshots
    store.BUSY_SECONDS = 10.0
    for mutant in sys.argv[4:]:
        MUTANTS[mutant]()
    for problem in ATTACKS[name](folder, random.Random(seed), Control()):
        print(json.dumps(problem), flush=True)


if __name__ == "__main__":
    main()
