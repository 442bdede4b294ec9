"""Files that other versions wrote. Format 1 is used where that is safe, and never called verified;
format 2 is verified for ever."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tacit import Ledger, MeanRegularized
from tacit.errors import LedgerError, UntrustedMessage

if TYPE_CHECKING:
    from tests.cli.conftest import Command

GOLDEN = Path(__file__).parents[1] / "golden" / "v1"
SECOND = GOLDEN.parent / "v2"
FINGERPRINT = "ae89-037c-4f23-382c-f3bd-1fac-9376-2f30-efd8-701f-ceb8-785a-40d6-5588-7081-e0f9"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    shutil.copytree(GOLDEN, tmp_path / "v1")
    return tmp_path / "v1"


@pytest.mark.parametrize("name", ["model", "hand-out", "public"])
def test_verify_says_that_it_cannot(name: str, old: Path, command: Command) -> None:
    done = command("verify", old / name, "--json")
    told = json.loads(done.out)
    assert (done.code, told["ok"], told["kind"]) == (1, False, "format 1")
    assert "older format, which cannot be verified" in told["verdict"]
    assert "sound" not in told["verdict"]


@pytest.mark.parametrize("name", ["model", "hand-out"])
def test_predict_works_as_it_did(name: str, old: Path, command: Command) -> None:
    table = old / "new.csv"
    lines = (old / "pupils.csv").read_text().splitlines()
    table.write_text("\n".join([lines[0], *(line for line in lines if line.startswith("s01"))]))
    done = command("predict", old / name, table)
    assert done.code == 0, done.err
    assert len(done.out.splitlines()) == len(table.read_text().splitlines())
    assert ("cannot be verified" in done.err) == (name == "model")


def test_what_nobody_can_verify_is_not_handed_out(old: Path, command: Command) -> None:
    done = command("hand-out", old / "model", "--task", "s01", "--out", old / "h")
    assert (done.code, "older format" in done.err) == (2, True)
    with pytest.raises(UntrustedMessage, match="older format"):
        MeanRegularized.load(old / "model").export("s01", old / "h")
    assert not (old / "h").exists()


def test_a_page_is_made_of_it(old: Path, command: Command) -> None:
    assert command("report", old / "model", "--no-open").code == 0
    assert (old / "model" / "report.html").is_file()
    assert not (old / "model" / "seal.json").exists()


LEDGERS = ["model/ledger.sqlite", "labels.sqlite", "asynchronous.sqlite"]


@pytest.mark.parametrize("name", LEDGERS)
def test_an_old_ledger_is_shown_and_nothing_is_added_to_it(
    name: str, old: Path, command: Command
) -> None:
    before = (old / name).read_bytes()
    shown = command("ledger", "show", old / name)
    assert (shown.code, "format 1" in shown.out) == (0, True)
    everything = json.loads(command("ledger", "show", old / name, "--json").out)["ledgers"][0]
    assert {entry["kind"] for entry in everything["entries"]} == {"run", "spend", "output"}
    assert command("ledger", "verify", old / name).code == 0
    with pytest.raises(LedgerError, match="format 1"):
        Ledger(old / name)
    assert (old / name).read_bytes() == before


def test_a_run_of_the_first_format_is_not_taken_up(old: Path, command: Command) -> None:
    options = ["--task", "school", "--target", "score", "--epsilon", 1, "--holdout", 0]
    done = command(
        *("fit", old / "pupils.csv", *options, "--ranges", old / "ranges.toml"),
        *("--out", old / "model", "--ledger", old / "model" / "ledger.sqlite", "--resume"),
    )
    assert (done.code, "format 1" in done.err) == (2, True)


# --- format 2 ------------------------------------------------------------------------------------


def test_what_was_signed_in_format_2_is_sound_for_ever(command: Command) -> None:
    done = command("verify", SECOND / "hand-out", "--key", FINGERPRINT, "--json")
    told = json.loads(done.out)
    assert (done.code, told["problems"]) == (0, [])
    assert told["verdict"] == f"sound: signed by {FINGERPRINT}"
    assert told["digest"] == "ba8f2ef36eee99034cc7142529a5bc6ee5f336ad1c1264f021c27edc09653721"


def test_a_ledger_of_format_2_is_shown_and_verified(tmp_path: Path, command: Command) -> None:
    file = shutil.copy(SECOND / "pupils.csv.ledger.sqlite", tmp_path)
    certificate = SECOND / "hand-out" / "certificate.json"
    assert command("ledger", "verify", file, "--certificate", certificate).code == 0
    (found,) = json.loads(command("ledger", "show", file, "--json").out)["ledgers"]
    (data,) = found["datasets"]
    assert (data["dataset"], data["total"]["runs"], len(data["runs"])) == ("pupils.csv", 2, 2)
    assert data["total"]["epsilon"] == pytest.approx(2.0)
