"""tacit encode: an encoder from volunteers, one report a person, estimates back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars
import pytest

from tacit.privacy.ledger import Ledger

if TYPE_CHECKING:
    from tests.cli.conftest import Command

HEADER = "name,morning,noon,evening"


def table(rows: list[list[object]]) -> str:
    return "\n".join([HEADER, *(",".join(map(str, row)) for row in rows)]) + "\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """volunteers.csv, people.csv, and nothing else."""
    rng = np.random.default_rng(0)
    for name, n in (("volunteers", 200), ("people", 60)):
        hours = rng.normal([1.0, 1.0, 2.0], [0.3, 0.3, 1.0], (n, 3)).round(3)
        rows = [[f"{name[0]}{i:02d}", *row] for i, row in enumerate(hours.tolist())]
        (tmp_path / f"{name}.csv").write_text(table(rows))
    return tmp_path


def fit(home: Path, *options: object, epsilon: float = 50.0) -> tuple[object, ...]:
    named = ("--ignore", "name", "--epsilon", epsilon, "--out", home / "encoder")
    return ("encode", "fit", home / "volunteers.csv", *named, *options, "--json")


def run(home: Path, out: str = "reports.csv", where: str = "encoder") -> tuple[object, ...]:
    named = ("--user", "name", "--out", home / out)
    return ("encode", "run", home / where, home / "people.csv", *named, "--json")


def test_what_is_wanted_comes_back_and_the_rest_does_not(home: Path, command: Command) -> None:
    done = command(*fit(home, "--wanted", "evening"))
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["columns"] == ["morning", "noon", "evening"]
    assert found["guarantee"]["proven"]
    assert found["guarantee"]["unit"] == "one user's vector"
    assert command(*run(home)).code == 0
    decoded = command(
        *("encode", "decode", home / "encoder", home / "reports.csv"),
        *("--out", home / "estimates.csv", "--json"),
    )
    assert decoded.code == 0, decoded.err
    estimates, true = (polars.read_csv(home / f"{n}.csv") for n in ("estimates", "people"))
    assert estimates.columns == HEADER.split(",")
    assert estimates["name"].to_list() == true["name"].to_list()
    columns = HEADER.split(",")[1:]
    off = estimates.select(columns).to_numpy() - true.select(columns).to_numpy()
    errors = dict(zip(columns, (off**2).mean(axis=0).tolist(), strict=True))
    assert errors["evening"] < 0.01  # of a variance of 1
    assert errors["noon"] > 0.05  # of a variance of 0.09


def test_people_report_once(home: Path, command: Command) -> None:
    assert command(*fit(home)).code == 0
    assert command(*run(home)).code == 0
    again = command(*run(home, "again.csv"))
    assert again.code == 3
    assert json.loads(again.out)["left"] == 0
    assert not (home / "again.csv").exists()
    with Ledger(home / "people.csv.ledger.sqlite", read_only=True) as ledger:
        assert ledger.statement(["p00"]).epsilon == 50
        assert len([e for e in ledger.entries() if e.kind == "spend"]) == 1


def test_resume_writes_the_reports_that_were_charged(home: Path, command: Command) -> None:
    """Whatever the rows hold by then."""
    assert command(*fit(home)).code == 0
    assert command(*run(home), "--resume").code == 2  # nothing to take up
    assert not (home / "people.csv.ledger.sqlite").exists()
    assert command(*run(home)).code == 0
    assert "--resume" in command(*run(home, "again.csv")).err
    people = home / "people.csv"
    people.write_text(people.read_text().replace("p00,", "p00,9"))
    assert command(*run(home, "again.csv"), "--resume").code == 0
    assert (home / "again.csv").read_bytes() == (home / "reports.csv").read_bytes()
    with Ledger(home / "people.csv.ledger.sqlite", read_only=True) as ledger:
        assert len([e for e in ledger.entries() if e.kind == "spend"]) == 1


def test_resume_is_for_the_same_people_and_encoder(home: Path, command: Command) -> None:
    assert command(*fit(home)).code == 0
    assert command(*run(home)).code == 0
    people, whole = home / "people.csv", (home / "people.csv").read_text()
    people.write_text(whole + "p99,1,1,2\n")
    assert command(*run(home, "again.csv"), "--resume").code == 2
    people.write_text(whole)
    shutil.rmtree(home / "encoder")
    assert command(*fit(home, "--wanted", "noon")).code == 0
    assert command(*run(home, "again.csv"), "--resume").code == 2
    assert not (home / "again.csv").exists()


def test_a_weights_file_says_which_sums_are_wanted(home: Path, command: Command) -> None:
    (home / "weights.csv").write_text("evening,noon\n1,0\n")
    by_weights = json.loads(command(*fit(home, "--weights", home / "weights.csv")).out)
    shutil.rmtree(home / "encoder")
    by_name = json.loads(command(*fit(home, "--wanted", "evening")).out)
    assert by_weights["predicted_loss"] == by_name["predicted_loss"]


def test_either_folder_travels_alone_and_both_are_verified(home: Path, command: Command) -> None:
    assert command(*fit(home)).code == 0
    assert command("verify", home / "encoder").code == 0
    assert command("verify", home / "encoder" / "device").code == 0
    shutil.copytree(home / "encoder" / "device", home / "phone")
    assert command(*run(home, where="phone")).code == 0
    shutil.copytree(home / "encoder" / "collector", home / "desk")
    decoded = ("encode", "decode", home / "desk", home / "reports.csv", "--out", home / "e.csv")
    assert command(*decoded).code == 0


def test_verify_sees_what_was_changed_in_either_folder(home: Path, command: Command) -> None:
    assert command(*fit(home)).code == 0
    model = home / "encoder" / "collector" / "model.safetensors"
    whole = model.read_bytes()
    model.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    verdict = command("verify", home / "encoder", "--json")
    assert verdict.code == 1
    assert json.loads(verdict.out)["problems"][0].startswith("collector: ")
    model.write_bytes(whole)
    script = home / "encoder" / "device" / "encode.py"
    script.write_text(script.read_text().replace("COINS.gauss(0.0, 1.0)", "0.0"))
    assert command("verify", home / "encoder").code == 1
    assert command(*run(home)).code == 1
    assert not (home / "people.csv.ledger.sqlite").exists()


def test_verify_sees_that_the_folders_are_of_two_encoders(home: Path, command: Command) -> None:
    assert command(*fit(home)).code == 0
    shutil.move(home / "encoder" / "collector", home / "kept")
    shutil.rmtree(home / "encoder")
    assert command(*fit(home, epsilon=40.0)).code == 0
    shutil.rmtree(home / "encoder" / "collector")
    shutil.move(home / "kept", home / "encoder" / "collector")
    verdict = command("verify", home / "encoder", "--json")
    assert verdict.code == 1
    assert json.loads(verdict.out)["problems"] == ["device and collector are of two encoders"]


def test_a_cell_without_a_number_stops_nobody(home: Path, command: Command) -> None:
    (home / "people.csv").write_text(table([["a", 1, 1, 2], ["b", "n/a", 1, ""]]))
    assert command(*fit(home)).code == 0
    done = command(*run(home))
    assert done.code == 0, done.err
    assert np.isfinite(polars.read_csv(home / "reports.csv").drop("name").to_numpy()).all()
    assert "n/a" not in done.out + done.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--wanted", "evenign"), "did you mean 'evening'?"),
        (("--wanted", "noon", "--weights", "weights.csv"), "give one of them"),
        (("--delta", "0", "--mechanism", "privunit"), "delta > 0"),
        (("--mechanism", "lapalce"), "mechanism"),
    ],
)
def test_what_cannot_be_designed_is_refused_in_a_line(
    options: tuple[str, ...], said: str, home: Path, command: Command
) -> None:
    done = command(*fit(home, *options))
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1
    assert not (home / "encoder").exists()


def test_an_encoder_that_would_tell_nothing_is_not_written(home: Path, command: Command) -> None:
    done = command(*fit(home, epsilon=1e-4))
    assert done.code == 2
    assert "a report would tell nothing" in done.err
    assert done.err.count("\n") == 1
    assert not (home / "encoder").exists()


def test_text_among_volunteers_names_the_column_and_the_way_out(
    home: Path, command: Command
) -> None:
    out = ("--epsilon", "4", "--out", home / "encoder")
    done = command("encode", "fit", home / "volunteers.csv", *out)
    assert done.code == 2
    assert "'name'" in done.err
    assert "--ignore" in done.err


@pytest.mark.parametrize(
    ("rows", "out", "said"),
    [
        ([["a", 1, 1, 2], ["a", 1, 1, 2]], "reports.csv", "'a' of column 'name' has 2 rows"),
        ([["a", 1, 1, 2]], "nowhere/reports.csv", "there is no folder"),
        ([["a", 1, 1, 2]], "volunteers.csv", "is there already"),
    ],
)
def test_nothing_is_spent_on_reports_that_cannot_be_made(
    rows: list[list[object]], out: str, said: str, home: Path, command: Command
) -> None:
    assert command(*fit(home)).code == 0
    (home / "people.csv").write_text(table(rows))
    done = command(*run(home, out))
    assert done.code == 2
    assert said in done.err
    assert not (home / "people.csv.ledger.sqlite").exists()
