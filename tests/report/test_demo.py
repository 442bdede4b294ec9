"""The demo leaves a folder as `tacit fit` does, and may be run again."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_examples import example

from tacit.cli.verify import judged
from tacit.privacy.ledger import Ledger
from tacit.report import demo


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "demo_data", lambda: example(n_tasks=20))
    monkeypatch.setattr(demo, "CURVE", (1.0,))
    monkeypatch.setattr("tacit.report.leakage.MOST_TASKS", 1)
    monkeypatch.setattr("tacit.report.leakage.MOST_DRAWS", 4)


@pytest.mark.usefixtures("small")
def test_the_demo_can_be_repeated_and_its_folder_verified(tmp_path: Path) -> None:
    told: list[str] = []
    written = [
        {path.name for path in demo.write_demo(demo.run_demo(told.append, tmp_path), tmp_path)}
        for _ in range(2)
    ]
    assert len(told) == 2 * demo.STEPS
    beside = {f"ledger.sqlite.{end}" for end in ("head", "signing")}
    assert written[0] == written[1] == {path.name for path in tmp_path.iterdir()} - beside
    assert {"report.html", "report.local.html", "ledger.sqlite"} <= written[0]
    kind, found = judged(tmp_path)
    assert (kind, found.problems, found.fingerprint is None) == ("trusted side", (), False)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        runs = [entry for entry in ledger.entries() if entry.kind == "run"]
    assert len(runs) == 2


@pytest.mark.usefixtures("small")
def test_without_a_folder_nothing_is_recorded(tmp_path: Path) -> None:
    outcome = demo.run_demo()
    names = {path.name for path in demo.write_demo(outcome, tmp_path)}
    assert "ledger.sqlite" not in names
    assert "run.json" not in names
    assert outcome.rows[0].learner == "each task alone"
