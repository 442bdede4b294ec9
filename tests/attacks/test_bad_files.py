"""Files of a folder, tables and declarations, spoilt at random; and what is no file at all.

One seed is fixed; the other is drawn as noise is in tests, and told where something did not hold.
"""

from __future__ import annotations

import math
import os
import random
import secrets
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import polars
import pytest
from harness import answer
from harness_files import ATTACKS, OPTIONS, RANGES, desk, pupils

from tacit import folder
from tacit.certificate import seal
from tacit.certificate.documents import rendered, signed
from tacit.errors import InvalidInput

TIMES = dict.fromkeys(ATTACKS, 30) | {"a checkpoint": 180, "ranges": 60, "CSV": 40}
"""Attempts with each of the two seeds: 1,040 in all."""


KEY = os.environ.get("TACIT_TEST_NOISE", "")
DRAWN = secrets.randbits(32) if KEY == "fresh" else random.Random(KEY).getrandbits(32)


@pytest.mark.parametrize("seed", [16, DRAWN], ids=["fixed", "drawn"])
@pytest.mark.parametrize("name", ATTACKS)
def test_a_spoilt_file_is_answered_and_believed_by_nobody(
    name: str, seed: int, tmp_path: Path
) -> None:
    attempts = islice(ATTACKS[name](tmp_path, random.Random(seed)), TIMES[name])
    failed = [problem for problem in attempts if problem]
    assert not failed, f"seed {seed}, {len(failed)} of {TIMES[name]}: {failed[0]}"


# --- what is no file -----------------------------------------------------------------------------


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_folder(path: Path) -> None:
    path.mkdir()


def a_link_to_itself(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize("strange", [a_pipe, a_device, a_folder, a_link_to_itself])
def test_nothing_waits_for_what_is_no_file(strange: Callable[[Path], None], tmp_path: Path) -> None:
    """In place of every file that a command reads: refused, and at once."""
    desk(tmp_path, random.Random(0))
    model, table = tmp_path / "model", tmp_path / "pupils.csv"
    strange(tmp_path / "odd.csv")
    asked = {"--ranges": tmp_path / "ranges.toml", "--out": tmp_path / "new"}
    odd = tmp_path / "odd.csv"
    for command in (
        ("ranges", odd),
        ("predict", model, odd),
        ("fit", odd, *OPTIONS, *_flat(asked)),
        ("fit", table, *OPTIONS, *_flat(asked | {"--ranges": odd})),
        ("fit", table, *OPTIONS, *_flat(asked | {"--signing-key": odd})),
        ("fit", table, *OPTIONS, *_flat(asked | {"--ledger": odd})),
        ("ledger", "show", odd),
        ("ledger", "verify", tmp_path / "ledger.sqlite", "--certificate", odd),
        ("hand-out", model, "--task", "s2", "--out", tmp_path / "s2", "--signing-key", odd),
    ):
        said = answer(*command)
        assert (said.code, said.problem) == (2, ""), (command, said)
    assert not (tmp_path / "new").exists()
    for name in (folder.MODEL, folder.CERTIFICATE, folder.SEAL, folder.RUN):
        (model / name).rename(tmp_path / "kept")
        strange(model / name)
        assert answer("verify", model).code in (1, 2)
        for command in (("verify", model), ("predict", model, table), ("report", model)):
            assert not answer(*command).problem, (name, command)
        (model / name).rmdir() if (model / name).is_dir() else (model / name).unlink()
        (tmp_path / "kept").rename(model / name)
    assert answer("verify", model).code == 0


def _flat(options: dict[str, Path]) -> list[object]:
    return [word for pair in options.items() for word in pair]


def test_a_table_at_which_its_reader_panics_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a Parquet file whose bits end before its rows do."""

    def panics(_: object) -> None:
        raise polars.exceptions.PanicException("assertion failed: offset + length <= self.length")

    monkeypatch.setattr(polars, "read_parquet", panics)
    (tmp_path / "pupils.parquet").write_bytes(b"PAR1")
    said = answer("fit", tmp_path / "pupils.parquet", *OPTIONS, "--out", tmp_path / "new")
    assert (said.code, said.problem) == (2, "")
    assert "pupils.parquet cannot be read as a table" in said.err


# --- one by one ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b'{"a": ' + b"[" * 60 + b"]" * 60 + b"}",
        b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a": 1e400}',
        b'{"a": -1e999}',
        b'{"a": "\\ud800"}',
        b'{"a": ' + b"9" * 5_000 + b"}",
        b"\xef\xbb\xbf{}",
    ],
)
def test_json_that_nobody_could_write_again_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(InvalidInput, match=r"x\.json"):
        folder.read_json(tmp_path / "x.json")


@pytest.mark.parametrize(
    "ranges",
    [
        "x = " + "[" * 5_000 + "]" * 5_000,
        "x = " + "{a=" * 5_000 + "1" + "}" * 5_000,
        "[" + ".".join("a" * 5_000) + "]",
        RANGES.replace("low = 4", "low = " + "[" * 200 + "]" * 200),
        RANGES.replace('["f", "m"]', '["f", [["m"]]]'),
        RANGES.replace("low = 4", "low = 1e400"),
        RANGES.replace("low = 4", "low = " + "9" * 4_000),
        RANGES.replace("low = 4", "low = 2020-01-01"),
    ],
)
def test_declarations_that_nobody_means_are_refused_in_one_line(
    ranges: str, tmp_path: Path
) -> None:
    (tmp_path / "pupils.csv").write_text(pupils(random.Random(0)))
    (tmp_path / "ranges.toml").write_text(ranges)
    places = ("--ranges", tmp_path / "ranges.toml", "--out", tmp_path / "model")
    said = answer("fit", tmp_path / "pupils.csv", *OPTIONS, *places)
    assert (said.code, said.problem) == (2, "")


def test_predictions_are_not_written_over_a_folder(tmp_path: Path) -> None:
    desk(tmp_path, random.Random(0))
    for out in ("", ".", tmp_path):
        said = answer("predict", tmp_path / "model", tmp_path / "pupils.csv", "--out", out)
        assert (said.code, said.problem) == (2, "")
        assert "Is a directory" in said.err


def test_predict_needs_no_ledger_for_a_hand_out_and_writes_none(tmp_path: Path) -> None:
    desk(tmp_path, random.Random(0))
    for left in tmp_path.glob("ledger.sqlite*"):
        left.unlink()
    said = answer("predict", tmp_path / "s1", tmp_path / "pupils.csv", "--unknown", "shared")
    assert (said.code, said.problem) == (0, "")
    assert not list(tmp_path.glob("ledger.sqlite*"))


@pytest.mark.parametrize("odd", [math.nan, math.inf, 1e308])
def test_a_forged_model_that_gives_no_numbers_is_used_by_nobody(odd: float, tmp_path: Path) -> None:
    desk(tmp_path, random.Random(0))
    received = tmp_path / "s1"
    description, arrays, certificate = folder.read(received)
    arrays["models"][0, :2] = odd, -odd
    folder.write_model(received, description, arrays)
    (received / folder.CERTIFICATE).write_bytes(rendered(signed(certificate, None)))
    seal(received, None, tasks=["s1"])
    said = answer("predict", received, tmp_path / "pupils.csv", "--unknown", "shared")
    assert (said.code, said.problem) == (2, "")
    assert "models are not all finite" in said.err
    assert answer("verify", received).code == 1
