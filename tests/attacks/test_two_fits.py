"""Two commands that write one folder at the same time: one wins, and its folder is sound."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness import answer

from tacit import files, folder
from tacit.errors import InvalidInput

RANGES = """
[columns.age]
type = "number"
low = 4
high = 19
[columns.score]
type = "number"
low = 0
high = 70
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    rows = [f"s{i % 5},{4 + i % 15},{30 + i % 7}" for i in range(60)]
    (tmp_path / "pupils.csv").write_text("\n".join(["school,age,score", *rows]) + "\n")
    (tmp_path / "ranges.toml").write_text(RANGES)
    return tmp_path


def started(home: Path, *arguments: object) -> subprocess.Popen[str]:
    code = "from tacit.cli import main; main()"
    whole = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(
        whole, cwd=home, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


OPTIONS = ("--task", "school", "--target", "score", "--epsilon", 1, "--ranges", "ranges.toml")


def fit(home: Path, *more: object) -> subprocess.Popen[str]:
    return started(home, "fit", "pupils.csv", *OPTIONS, "--out", "model", *more)


def test_of_two_fits_into_one_folder_one_is_refused_and_the_others_folder_is_sound(
    home: Path,
) -> None:
    """The loser used to remove the winner's run.json. Both start at once, twice, with
    different options: whoever comes second must not touch the folder."""
    for _ in range(2):
        pair = [fit(home, "--holdout", 0), fit(home, "--holdout", 0.2)]
        told = [process.communicate(timeout=120)[1] for process in pair]
        codes = [process.returncode for process in pair]
        assert sorted(codes) == [0, 2], told
        (line,) = told[codes.index(2)].splitlines()
        assert line.startswith("tacit: ")
        verified = started(home, "verify", "model")
        assert verified.communicate(timeout=120)[0]
        assert verified.returncode == 0
        for path in (home / "model").iterdir():
            path.unlink()
        (home / "model").rmdir()


def test_whoever_comes_second_is_told_in_one_line_and_touches_nothing(home: Path) -> None:
    out = home / "model"
    with folder.held(out):
        (out / "run.json").write_text("somebody's")
        process = fit(home)
        said, told = process.communicate(timeout=120)
        assert (process.returncode, said) == (2, "")
        assert len(told.splitlines()) == 1
        assert "another process is writing into model" in told
        assert (out / "run.json").read_text() == "somebody's"
    assert not list(home.glob("*.sqlite*"))  # not even a ledger was opened


def test_a_fit_that_is_refused_removes_the_folder_that_it_made_and_no_other(home: Path) -> None:
    (home / "kept").mkdir()
    for out in ("new/inner", "kept"):
        process = fit(home, "--task", "nothing", "--out", out)
        assert "no task column" in process.communicate(timeout=120)[1]
    assert [path.name for path in home.iterdir() if path.is_dir()] == ["kept"]


def test_a_lock_ends_with_its_process_and_with_its_block(tmp_path: Path) -> None:
    place = tmp_path / "model"
    code = (
        "import os, sys; from pathlib import Path; from tacit import folder\n"
        "with folder.held(Path(sys.argv[1])):\n"
        "    (Path(sys.argv[1]) / 'x').touch(); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, place], check=False).returncode == -9
    assert (place / "x").exists()
    for _ in range(2):
        with folder.held(place), pytest.raises(InvalidInput, match="another process is writing"):
            folder.held(place).__enter__()


def test_a_folder_that_was_removed_while_somebody_waited_for_it_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock would be one on a folder that has no name any more, which keeps nobody out."""
    place, once = tmp_path / "model", iter([True])
    openat = os.open

    def opened_too_early(path: Path, *rest: int) -> int:
        handle = openat(path, *rest)
        if path == place and next(once, False):
            place.rmdir()
        return handle

    monkeypatch.setattr("os.open", opened_too_early)
    with folder.held(place), pytest.raises(InvalidInput, match="another process is writing"):
        folder.held(place).__enter__()


def test_a_fit_that_is_killed_anywhere_is_taken_up_and_its_folder_is_sound(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kill -9 once each of the files that it writes is there: what it began, ``--resume`` ends."""
    monkeypatch.chdir(home)
    for name in ("run.json", "model.safetensors", "seal.json", "report.html"):
        out = home / name.partition(".")[0]
        process = fit(home, "--out", out, "--holdout", 0)
        until = time.monotonic() + 60
        while process.poll() is None and not (out / name).exists():
            assert time.monotonic() < until
            time.sleep(0.001)
        process.kill()
        process.communicate()
        interrupted = not folder.RunState.read(out).complete
        how = ("--resume",) if interrupted else ()
        again = answer("fit", "pupils.csv", *OPTIONS, "--out", out, "--holdout", 0, *how)
        assert (again.code, again.problem) == (0 if interrupted else 2, ""), again
        assert answer("verify", out).code == 0
        assert not list(out.glob(files.PARTIAL))
