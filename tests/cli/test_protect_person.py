"""tacit fit --protect person: people inside tasks, from the table to the verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Command

RANGES = """
[columns."age"]
type = "number"
low = 0
high = 100

[columns."ward"]
type = "categories"
categories = ["a", "b", "c"]

[columns."days"]
type = "number"
low = 0
high = 20
"""


@pytest.fixture
def visits(tmp_path: Path) -> tuple[str, ...]:
    """A table of visits, its ranges, and the command that learns from it."""
    rng = np.random.default_rng(0)
    lines = ["hospital,patient,age,ward,days"]
    for _ in range(400):
        age, ward = rng.uniform(0, 100), rng.choice(["a", "b", "c"])
        days = 5 + 0.05 * age + 2 * (ward == "a") + rng.normal()
        hospital = rng.integers(4)
        person = f"p{hospital}-{rng.integers(40)}"
        lines.append(f"h{hospital},{person},{age:.1f},{ward},{days:.2f}")
    (tmp_path / "visits.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "ranges.toml").write_text(RANGES)
    return (
        "fit", str(tmp_path / "visits.csv"), "--task", "hospital", "--target", "days",
        "--epsilon", "2", "--delta", "1e-6", "--ranges", str(tmp_path / "ranges.toml"),
        "--out", str(tmp_path / "model"),
    )  # fmt: skip


@pytest.mark.parametrize(("learner", "named"), [("auto", "shared"), ("mean", "mean")])
def test_people_are_protected_from_the_table_to_the_verdict(
    learner: str, named: str, visits: tuple[str, ...], command: Command, tmp_path: Path
) -> None:
    people = ("--protect", "person", "--person", "patient")
    done = command(*visits, *people, "--learner", learner, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["learner"] == named
    guarantee = found["guarantee"]
    assert found["features"] == 4  # age, and one for each ward
    assert guarantee["unit"] == "one person in one silo's data, with all rows that name them"
    assert guarantee["adversary"].startswith("everybody outside the silo")
    assert any(" people may leak" in sentence for sentence in guarantee["not_covered"])
    verdict = command("verify", str(tmp_path / "model"))
    assert verdict.code == 0, verdict.err
    page = (tmp_path / "model" / "report.html").read_text()
    assert "one person in one silo" in page


def test_a_certificate_that_hides_what_is_open_is_refused(
    visits: tuple[str, ...], command: Command, tmp_path: Path
) -> None:
    assert command(*visits, "--protect", "person", "--person", "patient").code == 0
    file = tmp_path / "model" / "certificate.json"
    certificate = json.loads(file.read_text())
    said = certificate["guarantee"]["not_covered"]
    certificate["guarantee"]["not_covered"] = [s for s in said if "predict_at_home" not in s]
    file.write_text(json.dumps(certificate))
    verdict = command("verify", str(tmp_path / "model"))
    assert verdict.code == 1
    assert "predict_at_home" in verdict.out + verdict.err


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--person", "patient"), "--person goes with --protect person"),
        (("--silos-per-person", "2"), "--silos-per-person goes with --protect person"),
        (("--protect", "everybody"), "expected task or person"),
        (("--protect", "person", "--person", "nobody"), "nobody"),
        (("--protect", "person", "--person", "days"), "--person and --task or --target"),
        (("--protect", "person", "--learner", "low-rank"), "--learner shared or mean"),
        (("--protect", "person", "--neighbours", "zero-out"), "use replace"),
    ],
    ids=["task", "silos", "unknown", "no column", "target", "learner", "zero-out"],
)
def test_what_means_nothing_is_refused(
    visits: tuple[str, ...], command: Command, more: tuple[str, ...], told: str
) -> None:
    done = command(*visits, *more)
    assert done.code == 2
    assert told in done.err


def test_a_delta_that_reveals_somebody_is_warned_of(
    visits: tuple[str, ...], command: Command
) -> None:
    some = [each if each != "1e-6" else "1e-3" for each in visits]
    done = command(*some, "--protect", "person", "--person", "patient")
    assert done.code == 0, done.err
    assert "one person of m may leak" in done.err


@pytest.mark.filterwarnings("default")
def test_names_that_are_in_two_silos_are_told_in_a_line(
    visits: tuple[str, ...], command: Command, tmp_path: Path
) -> None:
    table = tmp_path / "visits.csv"
    table.write_text(table.read_text().replace("h0,p0-", "h0,p1-"))
    done = command(*visits, "--protect", "person", "--person", "patient")
    assert done.code == 0, done.err
    (line,) = [line for line in done.err.splitlines() if "names of people" in line]
    assert line.startswith("tacit: warning: ")
    assert "are in more than 1 of the silos: if they are the same people" in line


def test_people_who_may_be_in_two_silos_are_charged_together(
    visits: tuple[str, ...], command: Command, tmp_path: Path
) -> None:
    table = tmp_path / "visits.csv"
    table.write_text(table.read_text().replace("h0,p0-", "h0,p1-"))
    named = (*visits, "--protect", "person", "--person", "patient", "--silos-per-person", "2")
    done = command(*named)
    assert done.code == 0, done.err
    assert "names of people" not in done.err
    found = json.loads((tmp_path / "model" / "certificate.json").read_text())
    assert "the data of up to 2 silos" in found["guarantee"]["unit"]
    assert found["guarantee"]["epsilon"] <= found["budget"]["epsilon"] * (1 + 1e-9)
    verdict = command("verify", str(tmp_path / "model"))
    assert verdict.code == 0, verdict.err
    other = command(*named[:-1], "3", "--resume")
    assert other.code == 2
    assert "silos_per_person was 2, is 3" in other.err


def test_silos_that_did_the_same_are_one_line_of_the_inventory(
    visits: tuple[str, ...], command: Command, tmp_path: Path
) -> None:
    assert command(*visits, "--protect", "person", "--person", "patient").code == 0
    shown = command("ledger", "show", tmp_path / "visits.csv.ledger.sqlite").out
    assert shown.count("one person in one silo's data") == 1
    assert shown.rstrip().endswith(", each of 4 nodes")


def test_nothing_is_held_out_where_people_have_several_rows(
    visits: tuple[str, ...], command: Command, tmp_path: Path
) -> None:
    """Who is drawn would follow from how many rows somebody else has."""
    assert command(*visits, "--protect", "person", "--person", "patient").code == 0
    assert not (tmp_path / "model" / "local.json").exists()


DECLARED = ("--range", "age=0:100", "--categories", "ward=a,b,c", "--range", "days=0:20")


def without_file(visits: tuple[str, ...]) -> tuple[str, ...]:
    """The same command, with everything declared on the command line."""
    at = visits.index("--ranges")
    return (*visits[:at], *visits[at + 2 :], *DECLARED, "--protect", "person")


def test_a_target_declared_on_the_command_line_drops_no_row(
    visits: tuple[str, ...], command: Command
) -> None:
    done = command(*without_file(visits), "--person", "patient")
    assert done.code == 0, done.err


def test_an_empty_target_is_told_where_no_row_may_be_dropped(
    visits: tuple[str, ...], command: Command, tmp_path: Path
) -> None:
    table = tmp_path / "visits.csv"
    lines = table.read_text().splitlines()
    lines[7] = lines[7].rpartition(",")[0] + ","
    table.write_text("\n".join(lines) + "\n")
    done = command(*without_file(visits), "--person", "patient")
    assert done.code == 2
    assert "column 'days' has 1 empty cell(s); drop those rows" in done.err
    assert 'missing = "drop"' not in done.err
    assert not (tmp_path / "model" / "run.json").exists()
