"""Progress of a fit: on a terminal by itself, elsewhere when asked for."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from tacit import Budget, SharedPrior


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


def fitted(**asked: Any) -> Any:
    rng = np.random.default_rng(0)
    X, y, task = rng.uniform(-1, 1, (60, 2)), rng.uniform(-1, 1, 60), np.repeat(range(12), 5)
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
