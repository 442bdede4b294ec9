"""A table in files, and noise that follows from its scale."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from divided import Write, comparable, written


@pytest.fixture
def write(tmp_path: Path) -> Write:
    return partial(written, tmp_path)


@pytest.fixture
def known_noise(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    return comparable(monkeypatch)
