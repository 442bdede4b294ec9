"""tacit fit: what it writes, what adds up, what an interruption leaves."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tacit import Budget, Ledger, MeanRegularized
from tacit.cli.choice import automatic
from tacit.privacy.release import Key

if TYPE_CHECKING:
    from tests.cli.conftest import Command, Desk

FILES = {
    "model.safetensors",
    "certificate.json",
    "ledger.sqlite",
    "ledger.sqlite.key",
    "run.json",
    "local.json",
    "report.html",
    "report.local.html",
}

INTERRUPT = """
import os, signal
from tacit.privacy.ledger import Ledger
release = Ledger.release
def interrupted(*arguments, **named):
    found = release(*arguments, **named)
    os.kill(os.getpid(), signal.SIGINT)
    return found
Ledger.release = interrupted
"""


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def outputs(ledger: Path) -> dict[Key, str]:
    with Ledger(ledger) as opened:
        found = [entry.payload for entry in opened.entries() if entry.kind == "output"]
    return {Key(p["run"], p["round"], p["party"]): p["sha256"] for p in found}


def test_a_fit_writes_the_whole_folder_and_json_says_so(desk: Desk, command: Command) -> None:
    done = command(*desk.fit(json=True))
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert {path.name for path in (desk.path / "model").iterdir()} == FILES
    assert said["guarantee"]["proven"]
    assert (said["tasks"], said["features"], said["learner"]) == (12, 2, "mean")
    assert said["guarantee"]["epsilon"] == pytest.approx(1.0)


def test_the_certificate_says_what_was_declared_and_nothing_private(fitted: Desk) -> None:
    found = read(fitted.path / "model" / "certificate.json")
    assert found["tasks"] == {"column": "school", "count": 12}
    assert found["target"] == "score"
    assert found["budget"] == {"epsilon": 1.0, "delta": 1e-5, "neighbours": "replace"}
    assert found["ledger"]["length"] > 0
    assert found["guarantee"]["not_covered"]
    assert all(step["mechanism"] for step in found["steps"])
    assert str(fitted.path) not in json.dumps(found)


def test_key_and_ledger_are_for_their_owner_only(desk: Desk, command: Command) -> None:
    command(*desk.fit(ledger=desk.path / "all.sqlite"))
    for name in ("all.sqlite", "all.sqlite.key"):
        assert stat.S_IMODE((desk.path / name).stat().st_mode) == 0o600
    assert stat.S_IMODE((desk.path / "model").stat().st_mode) == 0o700
    assert not (desk.path / "model" / "ledger.sqlite").exists()


def test_fits_on_one_ledger_add_up_and_a_spent_budget_is_exit_3(
    desk: Desk, command: Command
) -> None:
    ledger = desk.path / "all.sqlite"
    assert command(*desk.fit(ledger=ledger, dataset="pupils")).code == 0
    before = ledger.read_bytes()
    refused = command(*desk.fit("second", ledger=ledger, dataset="pupils", json=True))
    assert refused.code == 3
    said = json.loads(refused.out)
    assert said["left"] < 1e-6
    assert "left" in said["error"]
    assert "left" in refused.err
    assert ledger.read_bytes() == before
    assert not (desk.path / "second").exists()
    more = command(*desk.fit("second", ledger=ledger, dataset="pupils", epsilon=2, json=True))
    assert json.loads(more.out)["guarantee"]["epsilon"] == pytest.approx(2.0)
    other = command(*desk.fit("third", ledger=ledger, dataset="teachers"))
    assert other.code == 0


def test_the_same_data_has_an_unrelated_fingerprint_in_each_certificate(
    desk: Desk, command: Command
) -> None:
    for name, epsilon in (("a", 1), ("b", 2)):
        command(*desk.fit(name, ledger=desk.path / "all.sqlite", epsilon=epsilon))
    prints = {read(desk.path / n / "certificate.json")["data"]["fingerprint"] for n in "ab"}
    assert len(prints) == 2


def test_ctrl_c_leaves_a_valid_ledger_and_resume_reuses_its_releases(
    desk: Desk, command: Command, process: Command
) -> None:
    stopped = process(*desk.fit(learner="covariance"), before=INTERRUPT)
    assert stopped.code == 130, stopped.err
    assert "--resume" in stopped.err
    assert "Traceback" not in stopped.err
    ledger = desk.path / "model" / "ledger.sqlite"
    kept = outputs(ledger)
    assert len(kept) == 1
    assert not (desk.path / "model" / "model.safetensors").exists()
    assert command("ledger", "verify", ledger).code == 0
    again = command(*desk.fit(learner="covariance"))
    assert (again.code, "--resume" in again.err) == (2, True)
    resumed = command(*desk.fit(learner="covariance", resume=True, json=True))
    assert resumed.code == 0, resumed.err
    assert json.loads(resumed.out)["guarantee"]["epsilon"] == pytest.approx(1.0)
    assert outputs(ledger).items() > kept.items()
    assert command("verify", desk.path / "model").code == 0


def test_resuming_a_finished_run_changes_no_model(fitted: Desk, command: Command) -> None:
    model = fitted.path / "model" / "model.safetensors"
    before, releases = model.read_bytes(), outputs(fitted.path / "model" / "ledger.sqlite")
    assert command(*fitted.fit(resume=True)).code == 0
    assert model.read_bytes() == before
    assert outputs(fitted.path / "model" / "ledger.sqlite") == releases


def test_resume_refuses_other_options_and_other_data(fitted: Desk, command: Command) -> None:
    other = command(*fitted.fit(resume=True, epsilon=2))
    assert (other.code, "epsilon was 1.0, is 2.0" in other.err) == (2, True)
    with fitted.table.open("a") as file:
        file.write("s00,9,f,40\n")
    changed = command(*fitted.fit(resume=True))
    assert (changed.code, "the table is another one" in changed.err) == (2, True)


def test_a_spend_beside_the_fit_is_in_its_certificate(
    desk: Desk, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process spends on the same tasks between our last release and our certificate."""
    file, save = desk.path / "all.sqlite", MeanRegularized.save
    tasks = [f"s{school:02d}" for school in range(12)]

    def spend_then_save(model: Any, directory: Path) -> Path:
        with Ledger(file) as ledger:
            other = MeanRegularized(budget=Budget(2.0), ledger=ledger)
            other.fit([[float(i % 5)] for i in range(24)], list(range(24)), task=tasks * 2)
        return save(model, directory)

    monkeypatch.setattr(MeanRegularized, "save", spend_then_save)
    assert command(*desk.fit(ledger=file)).code == 0
    certificate = read(desk.path / "model" / "certificate.json")
    assert certificate["guarantee"]["epsilon"] == pytest.approx(2.0)
    assert command("verify", desk.path / "model").code == 0


def test_nothing_to_resume_is_said(desk: Desk, command: Command) -> None:
    done = command(*desk.fit(resume=True))
    assert (done.code, "no run to resume" in done.err) == (2, True)


def test_a_terminal_sees_rounds_spend_and_time_left(
    desk: Desk, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes stderr for a terminal
    done = command(*desk.fit(learner="covariance", json=True))
    shown = re.sub("\x1b[^a-zA-Z]*[a-zA-Z]", "", done.err)
    assert "2/2 ε 1 spent 0:00:00" in shown
    assert json.loads(done.out)["tasks"] == 12


def test_elsewhere_nothing_is_shown(desk: Desk, command: Command) -> None:
    assert command(*desk.fit()).err == ""


def test_two_declared_categories_make_a_classifier(desk: Desk, command: Command) -> None:
    done = command(*desk.fit(target="sex", json=True))
    assert json.loads(done.out)["loss"] == "logistic"
    predicted = command("predict", desk.path / "model", desk.table)
    assert predicted.out.splitlines()[0] == "school,prediction,probability of m"


def test_a_large_delta_is_warned_of(desk: Desk, command: Command) -> None:
    done = command(*desk.fit(delta=0.05, json=True))
    assert "delta" in json.loads(done.out)["warnings"][0]
    assert "tacit: warning" in done.err


def test_simulated_noise_is_not_proven(desk: Desk, command: Command) -> None:
    done = command(*desk.fit(noise="simulated", seed=1, json=True))
    assert json.loads(done.out)["guarantee"]["proven"] is False


@pytest.mark.parametrize(
    ("n_tasks", "n_columns", "loss", "learner"),
    [
        (199, 2, "squared", "mean"),
        (200, 13, "squared", "covariance"),
        (200, 14, "squared", "mean"),
        (5000, 18, "logistic", "mean"),
    ],
)
def test_auto_is_a_rule_of_public_facts(
    n_tasks: int, n_columns: int, loss: Any, learner: str
) -> None:
    assert automatic(n_tasks, n_columns, loss) == learner
