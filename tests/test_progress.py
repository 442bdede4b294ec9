"""Progress of a fit: on a terminal by itself, elsewhere when asked for."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from tacit import AsyncProximal, Budget, SharedPrior


class Terminal:
    """What was written to it."""

    def __init__(self, interactive: bool) -> None:
        self.interactive, self.text = interactive, ""

    def isatty(self) -> bool:
        return self.interactive

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass


def rows() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    return rng.uniform(-1, 1, (60, 2)), rng.uniform(-1, 1, 60), np.repeat(range(12), 5)


def fitted(**asked: Any) -> Any:
    X, y, task = rows()
    ranges = {0: (-1, 1), 1: (-1, 1), "target": (-1, 1)}
    return SharedPrior(budget=Budget(1.0), ranges=ranges).fit(X, y, task=task, **asked)


@pytest.mark.parametrize(
    ("interactive", "asked", "told"),
    [(True, {}, True), (False, {}, False), (True, {"progress": False}, False)],
)
def test_a_terminal_shows_it_unless_told_not_to(
    interactive: bool, asked: dict[str, Any], told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(interactive)
    monkeypatch.setattr(sys, "stderr", terminal)
    steps = len(fitted(**asked).history_)
    assert terminal.text.count("\n") == told
    assert terminal.text.count("\r") == told * steps
    assert (f"{steps}/{steps}" in terminal.text) == told


def test_whoever_asks_is_told_each_release() -> None:
    told: list[tuple[str, int, int]] = []
    steps = len(fitted(progress=lambda *each: told.append(each)).history_)
    assert [done for _, done, _ in told] == list(range(1, steps + 1))
    assert {of for _, _, of in told} == {steps}


@pytest.mark.parametrize("unit", ["task", "example"])
def test_networks_tell_after_each_round(unit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from tacit.neural import FederatedMTL

    terminal = Terminal(interactive=True)
    monkeypatch.setattr(sys, "stderr", terminal)
    X, y, task = rows()
    chosen: Any = {"method": "fedavg", "rounds": 3, "classes": (0, 1), "unit": unit}
    network = FederatedMTL(torch.nn.Linear(2, 2), budget=Budget(8.0), **chosen)
    network.fit(X, (y > 0).astype(int), task=task)
    assert terminal.text.count("\r") == 3
    assert "3/3" in terminal.text


def test_nodes_tell_how_many_messages_came_a_hundred_times_at_most() -> None:
    told: list[tuple[str, int, int]] = []
    X, y, task = rows()
    nodes = AsyncProximal(budget=Budget(1.0), releases=20)
    nodes.fit(X, y, task=task, progress=lambda *each: told.append(each))
    done = [each[1] for each in told]
    assert told[-1] == ("messages", 240, 240)
    assert done == sorted({*done})
    assert len(done) == 100
