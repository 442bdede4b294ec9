"""The examples run as they stand, and are short enough to be read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs_and_prints_its_guarantee(example: Path, tmp_path: Path) -> None:
    if "torch" in example.read_text():
        pytest.importorskip("torch", reason="this example is about networks")
    done = subprocess.run(
        [sys.executable, "-W", "error", example], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "-DP for" in done.stdout
    assert len(example.read_text().splitlines()) < 60


def test_there_is_one_for_each_trust_setting() -> None:
    assert {path.stem for path in EXAMPLES} >= {"schools", "phones", "nodes", "devices"}
