"""Whatever is in the file: an answer, or one line and exit status 2. Never a traceback."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tacit.certificate import seal
from tacit.certificate.documents import rendered, signed
from tacit.errors import InvalidInput

RANGES = """
[columns.t]
type = "ignore"
[columns.x]
type = "number"
low = 0
high = 9
[columns.c]
type = "categories"
categories = ["a", "b"]
missing = "category"
[columns.y]
type = "unbounded"
"""

CELL = st.one_of(
    st.integers(-(10**30), 10**30).map(str),
    st.floats().map(repr),
    st.sampled_from(["", "a", "b", "t1", '"', '""', '"a', 'a"b', "\x00", "1e999", "NaN", "é", " "]),
    st.text(max_size=5),
    st.integers(1, 40).map(lambda n: "9" * 10 * n),
    st.just("z" * 70_000),
)
ROW = st.one_of(st.lists(CELL, max_size=6), st.lists(CELL, min_size=4, max_size=4))
ENCODING = st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1", "cp1252"])
NEWLINE = st.sampled_from(["\n", "\r\n", "\r"])


def text_of(rows: list[list[str]], header: bool, newline: str, quoted: bool) -> str:
    def cell(text: str) -> str:
        return '"' + text.replace('"', '""') + '"' if quoted else text

    lines = [["t", "x", "c", "y"], *rows] if header else rows
    return newline.join(",".join(map(cell, line)) for line in lines)


TABLES = st.builds(text_of, st.lists(ROW, max_size=5), st.booleans(), NEWLINE, st.booleans())
FILES = st.one_of(
    st.builds(lambda text, code: text.encode(code, "replace"), TABLES, ENCODING),
    st.binary(max_size=200),
)


def outcome(*arguments: object) -> tuple[int, str]:
    """Exit code and stderr of a command in this process; any other exception is a failure."""
    from tacit.cli import main

    told = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stderr(told),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        patch.setattr(sys, "argv", ["tacit", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
    code = left.value.code
    return (code if isinstance(code, int) else 0), told.getvalue()


def require_answer(code: int, told: str) -> None:
    assert code in (0, 2)
    if code:
        lines = [line for line in told.splitlines() if not line.startswith("tacit: warning")]
        assert len(lines) == 1, told
        assert lines[0].startswith("tacit: ")


@settings(max_examples=50, deadline=None)
@given(content=FILES)
@example(content=b"")
@example(content=b"\xef\xbb\xbft,x,c,y\nt1,1,a,1\nt1,2,b,2\n")
@example(content=b't,x,c,y\n"t1,1,a,1\n')
@example(content=b"t,x,c,y\nt1,1,a\nt1,1,a,1,1,1\n")
@example(content=b"t,x,c,y\nt1,\x00,a,1\n")
@example(content=b"t,t,t,t\n1,2,3,4\n")
@example(content=b"t,x,c,y\nt1,99999999999999999999,a,1\n")
def test_any_csv_gives_an_answer_or_one_line(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table, ranges = Path(folder) / "t.csv", Path(folder) / "r.toml"
        table.write_bytes(content)
        ranges.write_text(RANGES)
        require_answer(*outcome("ranges", table))
        options = ["--task", "t", "--target", "y", "--epsilon", 1, "--ranges", ranges]
        require_answer(*outcome("fit", table, *options, "--holdout", 0, "--out", f"{folder}/m"))


@settings(max_examples=20, deadline=None)
@given(content=st.binary(max_size=300))
@example(content=b"PAR1")
def test_any_parquet_gives_an_answer_or_one_line(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "t.parquet"
        table.write_bytes(content)
        require_answer(*outcome("ranges", table))


@settings(max_examples=25, deadline=None)
@given(rows=st.lists(st.lists(CELL, min_size=4, max_size=4), max_size=4))
@example(rows=[["s00", "9" * 20, "f", "1"]])
def test_any_new_table_is_predicted_or_refused_in_one_line(
    rows: list[list[str]], fitted_once: Path
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "new.csv"
        lines = [["school", "age", "sex", "score"], *rows]
        table.write_text("\n".join(map(",".join, lines)), "utf-8", "replace")
        code, told = outcome("predict", fitted_once / "model", table, "--unknown", "shared")
        require_answer(code, told)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
NAMED = st.sampled_from(
    [
        *(None, "guarantee", "steps", "ledger", "run", "data", "tasks", "tacit", "dataset"),
        *("options", "accounts", "digests", "says", "format", "signature", "budget"),
    ]
)


def written(path: Path, value: object, sealed_again: bool) -> None:
    """The file as somebody leaves it who edits it, or who strips signatures and seals anew."""
    if not (sealed_again and isinstance(value, dict) and path.name == "certificate.json"):
        path.write_text(json.dumps(value))
        return
    with contextlib.suppress(InvalidInput, UnicodeError):  # what cannot be written is not
        path.write_bytes(rendered(signed(value, None)))
        seal(path.parent, None)


@settings(max_examples=60, deadline=None)
@given(
    file=st.sampled_from(["certificate.json", "run.json", "seal.json"]),
    name=NAMED,
    new=JSON,
    sealed_again=st.booleans(),
)
@example(file="certificate.json", name="steps", new=[1], sealed_again=True)
@example(file="certificate.json", name="tasks", new="x", sealed_again=True)
@example(file="certificate.json", name="guarantee", new={"epsilon": "x"}, sealed_again=True)
@example(file="certificate.json", name="ledger", new={"digest": 1, "length": -1}, sealed_again=True)
@example(file="certificate.json", name="accounts", new=[{"tasks": 1}], sealed_again=True)
@example(file="certificate.json", name="accounts", new={"a": None}, sealed_again=True)
@example(file="certificate.json", name="accounts", new=[], sealed_again=True)
@example(file="certificate.json", name="signature", new={"public_key": "é"}, sealed_again=False)
@example(file="seal.json", name="files", new={"\x00": "x"}, sealed_again=False)
@example(file="run.json", name="ledger", new="../nothing", sealed_again=False)
@example(file="run.json", name="fingerprint", new=None, sealed_again=False)
def test_any_certificate_is_judged_without_a_traceback(
    file: str, name: str | None, new: object, sealed_again: bool, fitted_once: Path
) -> None:
    """``name`` None: the whole file is something else."""
    with tempfile.TemporaryDirectory() as home:
        for kept in fitted_once.glob("pupils.csv*"):
            shutil.copy(kept, home)
        folder = Path(home) / "model"
        shutil.copytree(fitted_once / "model", folder, ignore=shutil.ignore_patterns("*.html"))
        seal(folder, None)
        path = folder / file
        old = json.loads(path.read_text())
        written(path, new if name is None else old | {name: new}, sealed_again)
        assert outcome("verify", folder)[0] in (0, 1)
        code, told = outcome("predict", folder, fitted_once / "pupils.csv")
        assert code in (0, 1, 2), told
