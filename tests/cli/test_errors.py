"""Errors as people meet them: a process of its own, one line on stderr, exit status 2."""

from __future__ import annotations

import ctypes
import json
import resource
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Command, Desk, Done

GOLDEN = Path(__file__).parents[1] / "golden" / "v1"
Arguments = list[Any]
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2


def require_one_line(done: Done, *said: str) -> None:
    assert done.code == 2, (done.code, done.out, done.err)
    assert done.err.startswith("tacit: ")
    assert done.err.count("\n") == 1, done.err
    for text in said:
        assert text in done.err


def wrong_column(desk: Desk) -> tuple[Arguments, str]:
    return desk.fit(task="scool"), "there is no task column 'scool'; did you mean 'school'?"


def undeclared_category(desk: Desk) -> tuple[Arguments, str]:
    with desk.table.open("a") as file:
        file.write("s00,9,x,40\n")
    return desk.fit(), "column 'sex' holds 'x' in row"


def two_ways_of_writing_a_task(desk: Desk) -> tuple[Arguments, str]:
    with desk.table.open("a") as file:
        file.write(" s00,9,f,40\n")
    return desk.fit(), "which are one task, 's00': write it in one way"


def text_for_a_number(desk: Desk) -> tuple[Arguments, str]:
    lines = desk.table.read_text().splitlines()
    lines[8] = "s01,nine,f,40"
    desk.table.write_text("\n".join(lines))
    return desk.fit(), "column 'age' holds 'nine' in row 9; expected a number"


def empty_cell(desk: Desk) -> tuple[Arguments, str]:
    with desk.table.open("a") as file:
        file.write("s00,,f,40\n")
    return desk.fit(), "column 'age' has 1 empty cell(s); drop those rows, or say what one means"


def text_for_the_target(desk: Desk) -> tuple[Arguments, str]:
    with desk.table.open("a") as file:
        file.write("s00,9,f,many\n")
    return desk.fit(), "column 'score' holds 'many' in row"


def no_table(desk: Desk) -> tuple[Arguments, str]:
    desk.table.write_bytes(bytes(range(256)) * 10)
    return desk.fit(), "pupils.csv cannot be read as a table"


def empty_file(desk: Desk) -> tuple[Arguments, str]:
    desk.table.write_text("")
    return desk.fit(), "pupils.csv"


def header_only(desk: Desk) -> tuple[Arguments, str]:
    desk.table.write_text("school,age,sex,score\n")
    return desk.fit(), "has no rows"


def picture(desk: Desk) -> tuple[Arguments, str]:
    (desk.path / "cat.png").write_bytes(b"\x89PNG")
    return ["ranges", desk.path / "cat.png"], "cat.png is no table"


def no_file(desk: Desk) -> tuple[Arguments, str]:
    return ["ranges", desk.path / "nothing.csv"], "there is no file"


def no_ranges(desk: Desk) -> tuple[Arguments, str]:
    return desk.fit(ranges=desk.path / "nothing.toml"), "`tacit ranges TABLE"


def no_model(desk: Desk) -> tuple[Arguments, str]:
    return ["predict", desk.path, desk.table], "is not a tacit model"


def file_for_a_model(desk: Desk) -> tuple[Arguments, str]:
    return ["hand-out", desk.table, "--task", "s00", "--out", desk.path / "h"], "is a file"


def verify_of_nothing(desk: Desk) -> tuple[Arguments, str]:
    return ["verify", desk.path / "nothing"], "is not there"


def report_of_nothing(desk: Desk) -> tuple[Arguments, str]:
    return ["report", desk.path, "--no-open"], "is not a tacit model"


def out_is_a_file(desk: Desk) -> tuple[Arguments, str]:
    return desk.fit(out="pupils.csv"), "is a file; --out names a folder"


def negative_epsilon(desk: Desk) -> tuple[Arguments, str]:
    return desk.fit(epsilon=-1), "epsilon must be a number from 1e-09 to 1e+09"


def unknown_learner(desk: Desk) -> tuple[Arguments, str]:
    return desk.fit(learner="lowrank"), "did you mean 'low-rank'?"


def no_ledger(desk: Desk) -> tuple[Arguments, str]:
    return desk.fit(ledger=desk.table), "is not a tacit ledger"


def empty_ledger(desk: Desk) -> tuple[Arguments, str]:
    desk.ledger.write_bytes(b"")
    return desk.fit(), "a ledger that lost its entries, not a new one"


def no_place_for_a_ledger(desk: Desk) -> tuple[Arguments, str]:
    return desk.fit(ledger=desk.path / "nowhere" / "l.sqlite"), "name a place with --ledger"


def ledger_of_the_first_format(desk: Desk) -> tuple[Arguments, str]:
    shutil.copy(GOLDEN / "labels.sqlite", desk.ledger)
    return desk.fit(), "is a ledger of format 1"


def no_signing_key(desk: Desk) -> tuple[Arguments, str]:
    return desk.fit(signing_key=desk.table), "holds no Ed25519 private key"


def missing_signing_key(desk: Desk) -> tuple[Arguments, str]:
    return desk.fit(signing_key=desk.path / "nothing.pem"), "the signing key: there is no file"


def cap_below_nothing(desk: Desk) -> tuple[Arguments, str]:
    return desk.fit(cap=-1), "epsilon must be a number from 1e-09 to 1e+09"


def no_target(desk: Desk) -> tuple[Arguments, str]:
    return desk.fit(target=None), "--target"


def text_for_an_option(desk: Desk) -> tuple[Arguments, str]:
    return desk.fit(epsilon="one"), "--epsilon"


CASES: list[Callable[[Desk], tuple[Arguments, str]]] = [
    wrong_column,
    undeclared_category,
    two_ways_of_writing_a_task,
    text_for_a_number,
    empty_cell,
    text_for_the_target,
    no_table,
    empty_file,
    header_only,
    picture,
    no_file,
    no_ranges,
    no_model,
    file_for_a_model,
    verify_of_nothing,
    report_of_nothing,
    out_is_a_file,
    negative_epsilon,
    unknown_learner,
    no_ledger,
    empty_ledger,
    no_place_for_a_ledger,
    ledger_of_the_first_format,
    no_signing_key,
    missing_signing_key,
    cap_below_nothing,
    no_target,
    text_for_an_option,
]
IN_A_PROCESS = {
    wrong_column,
    undeclared_category,
    empty_cell,
    text_for_a_number,
    no_table,
    no_model,
}


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_told_in_one_line(
    case: Callable[[Desk], tuple[Arguments, str]], desk: Desk, command: Command, process: Command
) -> None:
    arguments, said = case(desk)
    require_one_line((process if case in IN_A_PROCESS else command)(*arguments), said)
    assert not (desk.path / "model").exists()


@pytest.mark.parametrize("case", [wrong_column, empty_file, no_model, no_target])
def test_under_json_an_error_is_one_object(
    case: Callable[[Desk], tuple[Arguments, str]], desk: Desk, command: Command
) -> None:
    done = command(*case(desk)[0], "--json")
    found = json.loads(done.out)
    assert found["code"] == done.code == 2
    assert done.err == f"tacit: {found['error']}\n"


def test_a_folder_with_another_model_is_left_alone(fitted: Desk, command: Command) -> None:
    before = (fitted.path / "model" / "model.safetensors").read_bytes()
    require_one_line(command(*fitted.fit()), "holds another model")
    assert (fitted.path / "model" / "model.safetensors").read_bytes() == before


def test_a_template_does_not_overwrite_a_filled_one(desk: Desk, command: Command) -> None:
    require_one_line(command("ranges", desk.table, "--out", desk.ranges), "already")


# --- the machine refuses -------------------------------------------------------------------------


def without_override() -> None:
    """Even root then has to ask the permission bits."""
    libc = ctypes.CDLL(None)
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="drops capabilities as Linux has them")
@pytest.mark.parametrize("forbidden", ["table", "folder", "ledger"])
def test_no_permission_is_told_in_one_line(forbidden: str, desk: Desk, process: Command) -> None:
    if forbidden == "table":
        desk.table.chmod(0)
        arguments, said = desk.fit(), "pupils.csv"
    elif forbidden == "ledger":
        (desk.path / "locked").mkdir()
        table = shutil.copy(desk.table, desk.path / "locked")
        (desk.path / "locked").chmod(0o500)
        arguments, said = ["fit", str(table), *desk.fit()[2:]], "name another place with --ledger"
    else:
        (desk.path / "locked").mkdir(mode=0o500)
        arguments, said = desk.fit(out="locked/model"), "locked"
    done = process(*arguments, preexec_fn=without_override)
    require_one_line(done, said)
    assert any(why in done.err for why in ("ermission denied", "not readable", "not writable"))


def small_files(most: int) -> None:
    """A file may grow to so many bytes: what comes after is refused, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def test_a_full_disk_is_told_in_one_line_and_the_run_can_be_resumed(
    desk: Desk, command: Command, process: Command
) -> None:
    """The pages do not fit any more; the releases are on the ledger already."""
    done = process(*desk.fit(), preexec_fn=partial(small_files, 1_000_000))
    require_one_line(done, "File too large")
    resumed = command(*desk.fit(resume=True, json=True))
    assert json.loads(resumed.out)["guarantee"]["epsilon"] == pytest.approx(1.0)


def test_a_disk_too_full_for_the_ledger_releases_nothing(
    desk: Desk, command: Command, process: Command
) -> None:
    done = process(*desk.fit(), preexec_fn=partial(small_files, 20_000))
    require_one_line(done, "nothing was released")
    again = command(*desk.fit(json=True))
    assert json.loads(again.out)["guarantee"]["epsilon"] == pytest.approx(1.0)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_stdout_on_a_full_disk_is_told_in_one_line(fitted: Desk, process: Command) -> None:
    import subprocess

    with open("/dev/full", "w") as full:
        code = "from tacit.cli import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code, "ranges", fitted.table],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "tacit: the output: No space left on device\n"
