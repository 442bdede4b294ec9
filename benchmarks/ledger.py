"""The ledger as it grows, and how many releases a second reach the disk.

    python benchmarks/ledger.py [--entries 10000 100000 1000000] [--callers 1 64] [--seconds 5]

prints one line of JSON each:

growth    of a file with so many entries, in a new process each: seconds to open it (imports not
          counted, warm cache; the median of five), with its snapshot and without; seconds and peak
          memory of `verify`, beside the memory of a process that has only opened it; bytes.
durable   releases a second by so many threads of one process, every spend and every output synced
          before its call returns; the disk's bare rate of `pwrite` + `fsync` of one page in the
          same folder, before and after; the rate of a ledger in memory, which is what the
          arithmetic alone would allow; and the floor, what the syncs alone would: a release waits
          for one commit of five syncs (store.py), however many share it.

What a user would do instead is a file of one's own with an fsync for each release: the bare rate.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from tacit.privacy.budget import Budget
from tacit.privacy.chain import event_to_json, sha256
from tacit.privacy.ledger import Key, Ledger
from tacit.privacy.mechanisms import GaussianSum
from tacit.privacy.store import IndexedKey

SUMS = GaussianSum(1.0, 4_000.0)
SYNCS = 5
"""That a release waits for, one after another."""

EACH = 400
"""Releases that are written in one transaction while a file is grown."""

MEASURED = """
import json, resource, sys, time
from pathlib import Path
from tacit.privacy.ledger import Ledger
from tacit.privacy.ledger_rows import Fold
begin_with, begun = Fold.begin_with, []
Fold.begin_with = lambda *what: begun.append(begin_with(*what))
start = time.perf_counter()
ledger = Ledger(Path(sys.argv[1]))
found = {"open_s": time.perf_counter() - start, "believed": bool(begun)}
if sys.argv[2] == "verify":
    start = time.perf_counter()
    found["ok"] = ledger.verify().ok
    found["verify_s"] = time.perf_counter() - start
found["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps(found))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--callers", type=int, nargs="*", default=[1, 64])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--folder", type=Path, help="on the disk to measure; else a temporary one")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        for entries in asked.entries:
            told("growth", growth(Path(folder) / f"{entries}.sqlite", entries))
        for callers in asked.callers:
            told("durable", durable(Path(folder), callers, asked.seconds))


def told(what: str, found: dict[str, Any]) -> None:
    print(json.dumps({"what": what} | found), flush=True)


# --- growth --------------------------------------------------------------------------------------


def growth(path: Path, entries: int) -> dict[str, Any]:
    """Opening and verifying a file of so many entries."""
    grown(path, entries // 2)
    opened = [measured(path, "open") for _ in range(5)]
    verified = measured(path, "verify")
    head = path.with_name(path.name + ".head")
    kept = head.read_bytes()
    head.unlink()  # without it no snapshot is believed
    folded = measured(path, "open")
    head.write_bytes(kept)
    assert all(each["believed"] for each in opened)
    assert verified["ok"]
    assert not folded["believed"]
    return {
        "entries": entries,
        "mib": round(path.stat().st_size / 2**20, 1),
        "open_s": round(statistics.median(each["open_s"] for each in opened), 4),
        "open_without_snapshot_s": round(folded["open_s"], 2),
        "verify_s": round(verified["verify_s"], 2),
        "open_peak_mib": round(opened[0]["peak_mib"], 1),
        "verify_peak_mib": round(verified["peak_mib"], 1),
    }


def measured(path: Path, what: str) -> dict[str, Any]:
    """In a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(path), what],
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def grown(path: Path, releases: int) -> None:
    """So many spends and outputs, as releases write them, many in one transaction."""
    with Ledger(path) as ledger:
        event = SUMS.event("replace")
        ledger.open_run("run", ["a"], Budget(9.0), [event] * releases)
        terms = {"mechanism": SUMS.to_dict(), "event": event_to_json(event), "secure": True}
        value = io.BytesIO()
        np.save(value, np.ones(4))

        def some(first: int) -> None:
            for number in range(first, min(first + EACH, releases)):
                written(ledger, Key("run", number, "curator"), terms, value.getvalue())

        for first in range(0, releases, EACH):
            ledger._transact(lambda first=first: some(first))  # type: ignore[misc]  # at once


def written(ledger: Ledger, key: Key, terms: dict[str, Any], value: bytes) -> None:
    """One release without its noise."""
    spend = ledger._next
    ledger._store.put_spend(IndexedKey.of(key), spend)
    ledger._append("spend", key._asdict() | terms)
    ledger._store.put_value(spend, value)
    ledger._store.put_output(IndexedKey.of(key), ledger._next)
    ledger._append("output", key._asdict() | {"sha256": sha256(value), "secure": True})


# --- durable releases ----------------------------------------------------------------------------


def durable(folder: Path, callers: int, seconds: float) -> dict[str, Any]:
    """Releases a second, beside what disk and arithmetic allow."""
    before = bare_rate(folder, seconds / 4)
    with tempfile.TemporaryDirectory(dir=folder) as new:  # keys that are known would be replayed
        rate = release_rate(Path(new) / "ledger.sqlite", callers, seconds)
    after = bare_rate(folder, seconds / 4)
    bare = statistics.mean([before, after])
    return {
        "callers": callers,
        "releases_per_s": round(rate),
        "in_memory_per_s": round(release_rate(None, callers, seconds / 2)),
        "bare_fsync_per_s": [round(before), round(after)],
        "over_bare_fsync": round(rate / bare, 2),
        "floor_per_s": round(callers * bare / SYNCS),
    }


def release_rate(path: Path | None, callers: int, seconds: float) -> float:
    """Releases a second of so many threads, each of which waits for its own."""
    with Ledger(path) as ledger:
        planned = [SUMS.event("replace")] * 1_000_000
        ledger.open_run("run", ["a"], Budget(90.0), planned)
        rows, counts = np.ones((1, 4)), [0] * callers
        end = time.perf_counter() + seconds

        def work(caller: int) -> None:
            while time.perf_counter() < end:
                key = Key("run", counts[caller], str(caller))
                ledger.release(SUMS, rows, key=key)
                counts[caller] += 1

        threads = [threading.Thread(target=work, args=(i,)) for i in range(callers)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts) / (time.perf_counter() - start)


def bare_rate(folder: Path, seconds: float) -> float:
    """A page written and synced, again and again."""
    file = os.open(folder / "bare", os.O_RDWR | os.O_CREAT)
    try:
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            os.pwrite(file, bytes(4096), 0)
            os.fsync(file)
            count += 1
        return count / (time.perf_counter() - start)
    finally:
        os.close(file)


if __name__ == "__main__":
    main()
