"""Whole commands in a subprocess."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tacit import Budget, Ledger, MeanRegularized


def tacit(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from tacit.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def fitted(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    X, task = rng.uniform(-1, 1, (60, 2)), np.repeat(np.arange(20), 3)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        model = MeanRegularized(budget=Budget(1.0), ledger=ledger).fit(X, X[:, 0], task=task)
        model.save(tmp_path / "model")
    return tmp_path


def test_the_demo_writes_its_files_and_says_what_it_promises(tmp_path: Path) -> None:
    done = tacit("demo", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "not covered" in done.stdout
    rows = json.loads((tmp_path / "results.json").read_text())
    errors = {row["learner"]: row["nmse"] for row in rows}
    assert errors["together, private, ε = 10"] < errors["each task alone"]
    assert json.loads((tmp_path / "certificate.json").read_text())["guarantee"]["proven"]
    assert "<svg" in (tmp_path / "demo.svg").read_text()


def test_json_is_one_object_and_nothing_else(tmp_path: Path) -> None:
    done = tacit("demo", "--out", tmp_path, "--json")
    assert len(json.loads(done.stdout)["rows"]) == 6


def test_the_ledger_is_shown_and_verified_against_its_certificate(fitted: Path) -> None:
    shown = tacit("ledger", "show", fitted / "ledger.sqlite", "--json")
    assert {entry["kind"] for entry in json.loads(shown.stdout)["entries"]} == {
        "run",
        "spend",
        "output",
    }
    certificate = fitted / "model" / "certificate.json"
    good = tacit("ledger", "verify", fitted / "ledger.sqlite", "--certificate", certificate)
    assert good.returncode == 0, good.stdout


def test_an_edited_ledger_is_a_negative_verdict_or_refused(fitted: Path) -> None:
    import sqlite3

    connection = sqlite3.connect(fitted / "ledger.sqlite")
    connection.execute("DELETE FROM entries WHERE seq = (SELECT max(seq) FROM entries)")
    connection.commit()
    connection.close()
    certificate = fitted / "model" / "certificate.json"
    bad = tacit("ledger", "verify", fitted / "ledger.sqlite", "--certificate", certificate)
    assert bad.returncode == 1
    assert "Traceback" not in bad.stderr


@pytest.mark.parametrize("command", [["ledger", "show"], ["ledger", "verify"]])
def test_no_ledger_there_is_one_line_and_exit_2(command: list[str], tmp_path: Path) -> None:
    done = tacit(*command, tmp_path / "nothing.sqlite")
    assert done.returncode == 2
    assert done.stderr.startswith("tacit: ")
    assert not (tmp_path / "nothing.sqlite").exists()
