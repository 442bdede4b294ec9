"""Help, completion, the demo and the ledger's own commands."""

from __future__ import annotations

import json
import math
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tacit
from tacit.privacy.accounting import gaussian_epsilon, gaussian_mu

if TYPE_CHECKING:
    from tests.cli.conftest import Command, Desk

COMMANDS = [
    *("demo", "plan", "ranges", "fit", "predict", "report", "compare", "hand-out", "adapt"),
    *("verify", "audit", "reproduce"),
]
GROUPED = [
    *("ledger show", "ledger plan", "ledger verify", "encode fit", "encode run", "encode decode"),
]
MAN_PAGES = Path(__file__).parents[2] / "docs" / "commands"


def test_the_demo_writes_a_whole_folder_and_json_is_one_object(
    tmp_path: Path, process: Command, command: Command
) -> None:
    done = process("demo", "--out", tmp_path, "--json")
    assert done.code == 0, done.err
    rows = json.loads(done.out)["rows"]
    errors = {row["learner"]: row["nmse"] for row in rows}
    assert errors["together, private, ε = 10"] < errors["each task alone"]
    assert json.loads((tmp_path / "certificate.json").read_text())["guarantee"]["proven"]
    for page in ("report.html", "report.local.html"):
        assert (tmp_path / page).is_file()
    assert command("verify", tmp_path).code == 0


def test_the_demo_says_what_it_promises(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tacit.report import demo

    row = demo.DemoRow("each task alone", None, 0.5, None)
    outcome = type("Outcome", (), {"rows": (row,), "guarantee": "not covered: the operator"})
    monkeypatch.setattr(demo, "run_demo", lambda progress, out: outcome)
    monkeypatch.setattr(demo, "write_demo", lambda outcome, out: [out / "report.html"])
    done = command("demo", "--out", tmp_path)
    assert "not covered" in done.out
    assert "each task alone" in done.out


@pytest.mark.parametrize("name", [*COMMANDS, *GROUPED])
def test_help_ends_with_examples_and_the_docs_have_a_page(name: str, command: Command) -> None:
    done = command(*name.split(), "--help")
    assert done.code == 0
    assert "Examples:" in done.out
    assert f"tacit {name}" in done.out.split("Examples:")[1]
    page = (MAN_PAGES / f"{name.split()[0]}.md").read_text()
    assert all(heading in page for heading in ("## Synopsis", "## Exit status", "## Examples"))


def test_every_option_is_in_the_man_page() -> None:
    from typer.main import get_command

    from tacit.cli.app import app

    commands = get_command(app).commands  # type: ignore[attr-defined] # a group has it
    found = [(name, commands[name]) for name in COMMANDS]
    found += [("encode", command) for command in commands["encode"].commands.values()]
    for name, command in found:
        page = (MAN_PAGES / f"{name}.md").read_text()
        for parameter in command.params:
            for option in parameter.opts:
                assert option in page or option == parameter.name, (name, option)


def test_the_shell_completes_commands_and_learners(process: Command) -> None:
    words = {"_TACIT_COMPLETE": "complete_bash", "PATH": "/usr/bin:/bin"}
    before = "import sys; sys.argv = ['tacit']"
    some = process(before=before, env=words | {"COMP_WORDS": "tacit ra", "COMP_CWORD": "1"})
    assert some.out.split() == ["ranges"]
    learner = "tacit fit --learner gr"
    some = process(before=before, env=words | {"COMP_WORDS": learner, "COMP_CWORD": "3"})
    assert some.out.split() == ["group-sparse"]


def test_help_imports_nothing_heavy(process: Command) -> None:
    after = "import atexit, sys\n"
    after += "heavy = {'numpy', 'scipy', 'sklearn', 'polars', 'plotly'}\n"
    after += "atexit.register(lambda: print(sorted(heavy & set(sys.modules)), file=sys.stderr))"
    done = process("--help", before=after)
    assert done.code == 0
    assert done.err == "[]\n"


# --- the ledger's own commands -------------------------------------------------------------------


def test_the_ledger_is_shown_and_verified_against_its_certificate(
    fitted: Desk, command: Command
) -> None:
    shown = command("ledger", "show", fitted.ledger, "--json")
    (ledger,) = json.loads(shown.out)["ledgers"]
    kinds = {entry["kind"] for entry in ledger["entries"]}
    assert kinds == {"ledger", "run", "spend", "output", "certificate"}
    certificate = fitted.path / "model" / "certificate.json"
    assert ledger["identity"] == json.loads(certificate.read_text())["ledger"]["identity"]
    assert command("ledger", "verify", fitted.ledger, "--certificate", certificate).code == 0


def test_the_inventory_says_what_was_spent_by_whom_and_what_is_left(
    desk: Desk, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "lee")
    command(*desk.fit(cap=1.6))
    command(*desk.fit("second", noise="simulated", seed=1))
    command(*desk.fit("third", dataset="teachers"))
    monkeypatch.chdir(desk.path)
    said = command("ledger", "show").out
    capped, each = (gaussian_mu(epsilon, 1e-5) ** 2 for epsilon in (1.6, 1.0))
    left = math.floor(100 * gaussian_epsilon(1e-5, math.sqrt(capped - 2 * each))) / 100
    for text in (
        "pupils.csv.ledger.sqlite: ledger ",
        "data set 'pupils.csv', 12 tasks",
        "lifetime cap  ε 1.6, δ 1e-05",
        f"left          ε {left:.2f}",
        "over 2 runs",
        "NOT proven (simulated noise",
        "NO secure noise",
        "data set 'teachers', 12 tasks",
        "lifetime cap  none: runs add up without end",
        "over 1 run\n    standing      proven, secure noise",
        "lee@",
        "4 of 4",
        "a whole task: its data and its model (replace)",
    ):
        assert text in said, text
    assert said.count("lee@") == 3
    assert f"{datetime.now(UTC):%Y-%m}" in said


def test_without_a_ledger_here_show_asks_for_one(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = command("ledger", "show")
    assert (done.code, "name a ledger" in done.err) == (2, True)
    assert not list(tmp_path.iterdir())


def test_a_shortened_ledger_is_a_negative_verdict(fitted: Desk, command: Command) -> None:
    with closing(sqlite3.connect(fitted.ledger)) as connection, connection:
        connection.execute("DELETE FROM entries WHERE seq >= (SELECT max(seq) - 1 FROM entries)")
    certificate = fitted.path / "model" / "certificate.json"
    for given in (("--certificate", certificate), ()):  # the head is kept beside it too
        bad = command("ledger", "verify", fitted.ledger, *given)
        assert (bad.code, "Traceback" in bad.err) == (1, False)


def test_a_shortened_ledger_is_shown_as_one(fitted: Desk, command: Command) -> None:
    with closing(sqlite3.connect(fitted.ledger)) as connection, connection:
        connection.execute("DELETE FROM entries WHERE seq = (SELECT max(seq) FROM entries)")
    shown = command("ledger", "show", fitted.ledger)
    assert (shown.code, "NOT INTACT" in shown.out) == (1, True)
    told = command("ledger", "show", fitted.ledger, "--json")
    assert (told.code, bool(json.loads(told.out)["ledgers"][0]["problems"])) == (1, True)


def test_the_version_is_printed_and_the_command_is_a_module_too(command: Command) -> None:
    said = f"tacit {tacit.__version__}\n"
    assert (command("--version").code, command("--version").out) == (0, said)
    whole = [sys.executable, "-m", "tacit.cli", "--version"]
    assert subprocess.run(whole, capture_output=True, text=True, check=True).stdout == said


@pytest.mark.parametrize("name", ["show", "verify"])
def test_no_ledger_there_is_one_line_and_exit_2(
    name: str, tmp_path: Path, command: Command
) -> None:
    done = command("ledger", name, tmp_path / "nothing.sqlite")
    assert done.code == 2
    assert done.err.startswith("tacit: ")
    assert not (tmp_path / "nothing.sqlite").exists()


@pytest.mark.parametrize("content", ["{}", "{", "[]", '{"ledger": {"digest": "x"}}'])
def test_a_certificate_without_an_anchor_is_exit_2(
    content: str, fitted: Desk, command: Command
) -> None:
    wrong = fitted.path / "wrong.json"
    wrong.write_text(content)
    assert command("ledger", "verify", fitted.ledger, "--certificate", wrong).code == 2
