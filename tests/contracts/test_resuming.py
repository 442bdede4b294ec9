"""A run that was interrupted goes on as if nothing had happened: the same contributions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit import (
    AveragedModel,
    Budget,
    Decomposed,
    GroupSparse,
    Ledger,
    LowRank,
    MeanRegularized,
    SharedPrior,
    TaskRelationship,
)
from tacit.audits.replays import Recorder
from tacit.datasets import related_tasks
from tacit.datasets.generators import Generated

LEARNERS: list[Any] = [
    SharedPrior, MeanRegularized, LowRank, GroupSparse, Decomposed,
    TaskRelationship, AveragedModel,
]  # fmt: skip


class Noting(Recorder):
    """Notes contributions, of releases that are not on it yet; ``replay``: of all again."""

    replay = False

    def released(self, key: Any) -> Any:
        return None if self.replay else Ledger.released(self, key)

    @property
    def rows(self) -> list[Any]:
        sent = (rows for _, rows, _ in self.noted if rows is not None)
        return [np.stack([rows[i] for i in range(len(rows))]) for rows in sent]


@pytest.fixture(scope="module")
def data() -> Generated:
    return related_tasks(30, (3, 12), 4, test_rows=1, rng=np.random.default_rng(1))


class Interrupted(Exception):
    """Somebody pressed Ctrl-C."""


def stop_after(last: int) -> Any:
    def progress(_: str, done: int, __: int) -> None:
        if done == last:
            raise Interrupted

    return progress


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("last", [1, 2])
def test_an_interrupted_run_contributes_what_it_would_have(
    learner: Any, last: int, data: Generated
) -> None:
    ledger = Noting()

    def fit(**more: Any) -> Any:
        model = learner(
            budget=Budget(8.0),
            ranges=data.ranges,
            noise="simulated",
            random_state=0,  # of the coins that choose batches, too
            ledger=ledger,
            run="one",
        )
        return model.fit(data.X, data.y, task=data.task, **more)

    try:
        fit(progress=stop_after(last))
    except Interrupted:
        fit()
    sent = ledger.rows
    ledger.replay = True
    fit()
    assert len(ledger.rows) == 2 * len(sent)
    for once, again in zip(sent, ledger.rows[len(sent) :], strict=True):
        np.testing.assert_array_equal(once, again)
