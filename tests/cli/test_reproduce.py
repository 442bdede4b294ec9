"""``tacit reproduce``: names, files, one object under --json, and errors in one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]


def test_the_list_names_the_figures_of_every_paper(command: Command) -> None:
    rows = json.loads(command("reproduce", "--list", "--json").out)["figures"]
    assert {row["name"].split("-")[0] for row in rows} == {"S1", "S2", "S3", "S4"}
    assert "S4-fig3" in command("reproduce", "--list").out


def test_a_figure_is_written_and_told(tmp_path: Path, command: Command) -> None:
    done = command("reproduce", "S4-fig3", "--quick", "--out", tmp_path, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert [figure["figure"] for figure in found["figures"]] == ["S4-fig3"]
    assert {file.name for file in (tmp_path / "S4-fig3").iterdir()} == {
        *("data.csv", "result.json", "page.html", "plot.svg")
    }
    assert Path(found["page"]).is_file()
    again = command("reproduce", "S4-fig3", "--quick", "--out", tmp_path)
    assert "holds: It is never behind the privacy-agnostic one." in again.out


def test_a_wrong_name_suggests_near_ones_and_exits_2(command: Command) -> None:
    done = command("reproduce", "S4-fig33")
    assert done.code == 2
    assert "did you mean" in done.err
    assert done.err.count("\n") == 1


def test_a_missing_data_file_is_one_line(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    done = command("reproduce", "S4-fig4a", "--quick", "--out", tmp_path)
    assert done.code == 2
    assert "it was made of parthshinde1221/" in done.err
    assert "(GitHub)" in done.err
    assert "expected SHA-256 c2a9cb4a" in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("words", [(), ("S4-fig3", "--list")])
def test_a_name_or_the_list(words: tuple[str, ...], command: Command) -> None:
    assert command("reproduce", *words).code == 2


def test_several_figures_are_one_page_with_the_repetitions_asked_for(
    tmp_path: Path, command: Command
) -> None:
    done = command("reproduce", "S4-fig1", "S1-table2", "--repetitions", 2, "--out", tmp_path)
    assert done.code == 0, done.err
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert page.count("\n## ") == 2
    assert "2 repetitions;" in page


def test_what_is_missing_is_told_before_anything_is_measured(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    done = command("reproduce", "S4-fig3", "S4-fig4a", "--quick", "--out", tmp_path / "out")
    assert done.code == 2
    assert "household_power_daily_hourly.npz" in done.err
    assert not done.out
    assert not (tmp_path / "out").exists()


def test_two_jobs_are_interrupted_without_a_word_of_theirs(tmp_path: Path) -> None:
    """As Ctrl-C does it: every process of the group is told."""
    words = ["reproduce", "S1-fig4", "--quick", "--jobs", "2", "--out", str(tmp_path)]
    run = subprocess.Popen(
        [sys.executable, "-m", "tacit.cli", *words],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not (tmp_path / "kept").exists():
        time.sleep(0.01)
    for _ in range(20):  # workers are being started: a moment in which nobody listens
        time.sleep(0.5)
        os.killpg(run.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            _, told = run.communicate(timeout=10)
            break
    assert run.returncode == 130
    assert "Traceback" not in told
