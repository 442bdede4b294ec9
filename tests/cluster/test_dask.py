"""A cluster on this machine: two workers, one of which is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from divided import DATA, FRAME, NAMES, Write, comparable, require_same, written

from tacit import Budget, LowRank, SharedPrior
from tacit.cluster import OnCluster, connected, fit_partitions
from tacit.errors import InvalidInput

pytest.importorskip("distributed", reason="a cluster needs the extra 'cluster'")

MOST_SECONDS = 120
COLUMNS: dict[str, Any] = {"task": "person", "target": "score"}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    return partial(written, tmp_path)


@pytest.fixture
def known_noise(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    return comparable(monkeypatch)


@pytest.fixture(scope="module")
def cluster() -> Iterator[OnCluster]:
    """Two workers; whoever waits for them for ever is woken."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"the cluster took more than {MOST_SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(MOST_SECONDS)
    try:
        with connected("local", workers=2) as workers:
            yield workers
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_a_worker_that_is_killed_changes_nothing(
    cluster: OnCluster,
    write: Write,
    tmp_path: Path,
    known_noise: list[tuple[int, ...]],
) -> None:
    """A learner whose tasks keep something from step to step: that, too, is made again."""
    asked: dict[str, Any] = {"budget": Budget(2.0), "ranges": DATA.ranges}
    one = LowRank(**asked).fit(FRAME.select(NAMES), DATA.y, task=DATA.task)
    killed: list[int] = []

    def kill(step: str, done: int, of: int) -> None:
        if not killed:
            killed.append(next(iter(cluster.client.run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)

    parted = fit_partitions(
        LowRank(**asked), write(5), tmp_path / "out", **COLUMNS, workers=cluster, progress=kill
    )
    require_same(one, parted, tmp_path / "out")
    assert killed


def test_an_error_of_a_worker_is_told_here(
    cluster: OnCluster, write: Write, tmp_path: Path
) -> None:
    pattern = write(2, FRAME.with_columns(x0=None))
    model = SharedPrior(budget=Budget(2.0), ranges=DATA.ranges)
    with pytest.raises(InvalidInput, match="part-"):
        fit_partitions(model, pattern, tmp_path / "out", **COLUMNS, workers=cluster)


def test_who_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tacit.cluster.workers.CONNECT_SECONDS", 1)
    with pytest.raises(InvalidInput, match=r"tcp://127\.0\.0\.1:1"), connected("tcp://127.0.0.1:1"):
        pass
