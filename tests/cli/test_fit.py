"""tacit fit: what it writes, what adds up, what an interruption leaves."""

from __future__ import annotations

import json
import re
import shlex
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tacit import Budget, Ledger, MeanRegularized
from tacit.privacy.release import Key

if TYPE_CHECKING:
    from tests.cli.conftest import Command, Desk

FILES = {
    "model.safetensors",
    "certificate.json",
    "seal.json",
    "run.json",
    "local.json",
    "report.html",
    "report.local.html",
}

BESIDE = {
    "pupils.csv",
    "ranges.toml",
    *(f"pupils.csv.ledger.sqlite{end}" for end in ("", ".key", ".head", ".signing")),
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
    with Ledger(ledger, read_only=True) as opened:
        found = [entry.payload for entry in opened.entries() if entry.kind == "output"]
    return {Key(p["run"], p["round"], p["party"]): p["sha256"] for p in found}


def test_a_fit_writes_the_whole_folder_and_json_says_so(desk: Desk, command: Command) -> None:
    done = command(*desk.fit(json=True))
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert {path.name for path in (desk.path / "model").iterdir()} == FILES
    assert said["guarantee"]["proven"]
    assert (said["tasks"], said["features"], said["learner"]) == (12, 2, "shared")
    assert said["guarantee"]["epsilon"] == pytest.approx(1.0)
    assert (said["ledger"], said["dataset"]) == (str(desk.ledger), "pupils.csv")
    assert {path.name for path in desk.path.iterdir() if path.is_file()} == BESIDE


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
    for name in ("all.sqlite", "all.sqlite.key", "all.sqlite.signing"):
        assert stat.S_IMODE((desk.path / name).stat().st_mode) == 0o600
    assert stat.S_IMODE((desk.path / "model").stat().st_mode) == 0o700
    assert not desk.ledger.exists()


def test_a_second_fit_in_another_folder_adds_up_without_being_told(
    desk: Desk, command: Command
) -> None:
    """ε is each run's own; the certificate's is the total, chosen after seeing output."""
    first = command(*desk.fit())
    assert first.out.startswith(f"Ledger: {desk.ledger}, data set 'pupils.csv'\n")
    second = json.loads(command(*desk.fit("second", epsilon=2, json=True)).out)["guarantee"]
    assert second["epsilon"] == pytest.approx(3.0)
    assert second["delta"] == pytest.approx(2e-5)
    assert second["run_epsilon"] == pytest.approx(2.0)
    assert (second["runs"], second["after_output"]) == (2, True)
    for name in ("model", "second"):
        assert command("verify", desk.path / name).code == 0
    other = command(*desk.fit("third", dataset="teachers", json=True))
    assert json.loads(other.out)["guarantee"]["epsilon"] == pytest.approx(1.0)


def test_a_link_to_the_table_is_the_same_table(desk: Desk, command: Command) -> None:
    command(*desk.fit())
    (desk.path / "elsewhere").mkdir()
    (desk.path / "elsewhere" / "other.csv").symlink_to(desk.table)
    done = command(
        *desk.fit("second", json=True)[:1],
        desk.path / "elsewhere" / "other.csv",
        *desk.fit("second", json=True)[2:],
    )
    assert json.loads(done.out)["guarantee"]["runs"] == 2


def test_a_lifetime_cap_is_fixed_with_the_first_run_and_refuses_beyond_it(
    desk: Desk, command: Command
) -> None:
    assert command(*desk.fit(cap=1.6)).code == 0
    raised = command(*desk.fit("second", cap=5))
    assert (raised.code, "fixed with its first run" in raised.err) == (2, True)
    before = desk.ledger.read_bytes()
    refused = command(*desk.fit("second", epsilon=1.9, json=True))
    assert refused.code == 3
    said = json.loads(refused.out)
    assert 0 < said["left"] < 1.5
    assert "left" in refused.err
    assert desk.ledger.read_bytes() == before
    assert not (desk.path / "second").exists()
    more = json.loads(command(*desk.fit("second", json=True)).out)["guarantee"]
    assert more["epsilon"] == 1.6  # added up it would be 2
    assert more["delta"] == pytest.approx(2e-5)  # the first run's own price is a rung too
    assert (more["runs"], more["after_output"]) == (2, False)
    assert command("verify", desk.path / "second").code == 0


def test_the_delta_of_a_cap_needs_a_cap(desk: Desk, command: Command) -> None:
    done = command(*desk.fit(cap_delta=1e-6))
    assert (done.code, "--cap" in done.err) == (2, True)
    assert not desk.ledger.exists()


def test_what_was_done_before_is_attested_or_listed_as_not_covered(
    desk: Desk, command: Command
) -> None:
    plain = json.loads(command(*desk.fit(json=True)).out)["guarantee"]["not_covered"]
    assert any(line.startswith("preprocessing outside tacit: a scaler") for line in plain)
    done = command(*desk.fit("second", json=True, attest="ages come from the register. B. Lee"))
    said = json.loads(done.out)["guarantee"]["not_covered"]
    attested = "attested by the operator, not checked: ages come from the register. B. Lee"
    assert any(line.endswith(attested) for line in said)
    assert not any(line.startswith("preprocessing outside tacit: a scaler") for line in said)
    assert command("verify", desk.path / "second").code == 0


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
    stopped = process(*desk.fit(learner="shared"), before=INTERRUPT)
    assert stopped.code == 130, stopped.err
    assert "--resume" in stopped.err
    assert "Traceback" not in stopped.err
    ledger = desk.ledger
    kept = outputs(ledger)
    assert len(kept) == 1
    assert not (desk.path / "model" / "model.safetensors").exists()
    assert command("ledger", "verify", ledger).code == 0
    again = command(*desk.fit(learner="shared"))
    assert (again.code, "--resume" in again.err) == (2, True)
    resumed = command(*desk.fit(learner="shared", resume=True, json=True))
    assert resumed.code == 0, resumed.err
    assert json.loads(resumed.out)["guarantee"]["epsilon"] == pytest.approx(1.0)
    assert outputs(ledger).items() > kept.items()
    assert command("verify", desk.path / "model").code == 0


def test_resuming_a_finished_run_changes_no_model(fitted: Desk, command: Command) -> None:
    model = fitted.path / "model" / "model.safetensors"
    before, releases = model.read_bytes(), outputs(fitted.ledger)
    assert command(*fitted.fit(resume=True)).code == 0
    assert model.read_bytes() == before
    assert outputs(fitted.ledger) == releases
    assert command("verify", fitted.path / "model").code == 0


@pytest.mark.parametrize("left", ["", ".key"])
def test_a_lost_ledger_is_not_a_new_one(left: str, fitted: Desk, command: Command) -> None:
    """Neither for the run that it recorded, nor for the next one."""
    fitted.ledger.unlink()
    done = command(*fitted.fit(resume=True))
    assert (done.code, "put it back" in done.err) == (2, True)
    for end in {".key", ".head", ".signing"} - {left}:
        fitted.ledger.with_name(fitted.ledger.name + end).unlink()
    again = command(*fitted.fit("second"))
    assert again.code == (2 if left else 0), again.err
    assert ("a lost ledger is not a new one" in again.err) == bool(left)


def test_a_restored_backup_is_refused_with_what_to_do(fitted: Desk, command: Command) -> None:
    backup = fitted.ledger.read_bytes()
    assert command(*fitted.fit("second")).code == 0
    fitted.ledger.write_bytes(backup)
    done = command(*fitted.fit("third"))
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "older copy" in done.err
    assert "Put the newest copy back" in done.err
    assert command("verify", fitted.path / "second").code == 1
    assert command("ledger", "verify", fitted.ledger).code == 1


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
    file, certify = desk.path / "all.sqlite", MeanRegularized.certify
    tasks = [f"s{school:02d}" for school in range(12)]

    def spend_then_certify(model: Any, *arguments: Any, **declared: Any) -> Any:
        with Ledger(file, dataset="pupils.csv") as ledger:
            if len(ledger.entries()) < 5:
                other = MeanRegularized(budget=Budget(2.0), ledger=ledger)
                other.fit([[float(i % 5)] for i in range(24)], list(range(24)), task=tasks * 2)
        return certify(model, *arguments, **declared)

    monkeypatch.setattr(MeanRegularized, "certify", spend_then_certify)
    assert command(*desk.fit(ledger=file, learner="mean")).code == 0
    certificate = read(desk.path / "model" / "certificate.json")
    assert certificate["guarantee"]["epsilon"] == pytest.approx(3.0)
    assert command("verify", desk.path / "model").code == 0


def test_nothing_to_resume_is_said(desk: Desk, command: Command) -> None:
    done = command(*desk.fit(resume=True))
    assert (done.code, "no run to resume" in done.err) == (2, True)


def test_a_terminal_sees_rounds_spend_and_time_left(
    desk: Desk, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes stderr for a terminal
    done = command(*desk.fit(learner="shared", json=True))
    shown = re.sub("\x1b[^a-zA-Z]*[a-zA-Z]", "", done.err)
    assert "4/4 ε 1 spent 0:00:00" in shown
    assert json.loads(done.out)["tasks"] == 12


def test_elsewhere_nothing_is_shown_but_warnings(desk: Desk, command: Command) -> None:
    shown = command(*desk.fit()).err.splitlines()
    assert all(line.startswith("tacit: warning: joining") for line in shown)  # noise decides


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


def test_data_that_cannot_be_measured_at_home_stop_nothing(
    desk: Desk, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the page is there, and anybody is handed anything, must not tell of one task's
    rows: a spread of denormals, a curve without points."""

    def fails(*given: Any, **named: Any) -> Any:
        raise ZeroDivisionError("a spread of nothing")

    monkeypatch.setattr("tacit.report.local_view.measure", fails)
    done = command(*desk.fit())
    assert done.code == 0
    assert "nothing was measured at home" in done.err
    assert (desk.path / "model" / "report.html").is_file()
    assert command("verify", desk.path / "model").code == 0


def test_the_examples_work_one_after_the_other(
    desk: Desk, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tacit.cli.fit import EXAMPLES

    monkeypatch.chdir(desk.path)
    lines = [shlex.split(line) for line in EXAMPLES.splitlines() if line.startswith("tacit fit")]
    for _, *arguments in lines:
        done = command(*arguments)
        assert done.code == 0, done.err
    assert len(lines) == 3
