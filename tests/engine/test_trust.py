"""Nothing but Releases and declared constants crosses an untrusted edge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tacit import Budget
from tacit.engine import Edge, Message, Public, Step, Unprotected, run_rounds
from tacit.errors import UntrustedMessage
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import GaussianSum
from tacit.privacy.planning import Door
from tacit.privacy.release import Declared, Key, Release


@pytest.mark.parametrize("leak", [np.ones(2), 3.0, Unprotected(1.0), "text", None])
def test_a_number_that_is_no_release_does_not_cross(leak: Any) -> None:
    transcript: list[Any] = []
    edge = Edge("curator", "tasks", trusted=False, transcript=transcript)
    with pytest.raises(UntrustedMessage, match="mean"):
        edge.send({"fine": Declared(1.0), "mean": leak})
    assert transcript == []


def test_releases_and_constants_cross_and_are_written_down() -> None:
    transcript: list[Any] = []
    message: Message = {"a": Declared(1.0), "b": Release(np.ones(2), (Key("r", 0, "c"),), True)}
    assert Edge("curator", "tasks", trusted=False, transcript=transcript).send(message) is message
    assert transcript == [("curator", "tasks", message)]


def test_a_trusted_receiver_gets_anything() -> None:
    assert Edge("tasks", "curator", trusted=True, transcript=[]).send({"w": Unprotected(1)})


class _Tasks:
    def select(self, units: Sequence[int]) -> Any:
        return self

    def contribute(self, step: Step, shared: Message, state: Any) -> tuple[Any, Any]:
        return np.ones((3, 2)), (state or 0) + 1


class _Leaky:
    """A coordinator that tries to pass on a number of its own."""

    @property
    def steps(self) -> tuple[Step, ...]:
        return (Step("one", GaussianSum.for_mu(1.0, 0.1, "replace")),) * 2

    def start(self) -> Public:
        return {}

    def absorb(self, step: Step, shared: Public, release: Release) -> Public:
        return {"stolen": release.value}  # type: ignore[dict-item] # the leak under test


def test_the_engine_refuses_a_leak_in_the_middle_of_a_run() -> None:
    budgets = (Budget(1.0),) * 3
    door = Door(Ledger.in_memory(), "run", ("a", "b", "c"), budgets, np.ones(3), 0.2, None)
    with pytest.raises(UntrustedMessage, match="'stolen' from curator to tasks"):
        run_rounds(_Tasks(), _Leaky(), door)
    assert door.ledger.released(Key("run", 1, "curator")) is None  # the first release alone
