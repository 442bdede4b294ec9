"""Files that are written whole: under concurrent writers, prepared links, signals and kills."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tacit import files, folder

LETTERS = 2_000_000
WRITER = """
import sys
from pathlib import Path
from tacit.files import replace_file
for _ in range(int(sys.argv[3])):
    replace_file(Path(sys.argv[1]), sys.argv[2].encode() * 2_000_000)
"""


def writer(path: Path, letter: str, times: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(path), letter, str(times)])


def is_whole(content: bytes) -> bool:
    return len(content) == LETTERS and len(set(content)) == 1


def test_whoever_reads_while_three_write_sees_a_whole_file(tmp_path: Path) -> None:
    """With one fixed name for what is being written, a third of the reads saw a mixture."""
    path = tmp_path / "model"
    files.replace_file(path, b"a" * LETTERS)
    reads = 0
    while reads <= 10:  # a busy machine lets the writers end before the reader has had its turns
        writers = [writer(path, letter, 40) for letter in "abc"]
        while any(one.poll() is None for one in writers):
            assert is_whole(path.read_bytes())
            reads += 1
        assert [one.returncode for one in writers] == [0, 0, 0]
    assert [left.name for left in tmp_path.iterdir()] == ["model"]


def test_a_writer_that_is_killed_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "model"
    files.replace_file(path, b"a" * LETTERS)
    for delay in (0.0, 0.01, 0.02, 0.03, 0.05):
        process = writer(path, "b", 10**6)
        until = time.monotonic() + 30
        while process.poll() is None and not list(tmp_path.glob(files.PARTIAL)):
            assert time.monotonic() < until
        time.sleep(delay)
        process.kill()
        process.wait()
        assert is_whole(path.read_bytes())
    with folder.held(tmp_path):  # whoever comes next takes up what is left lying
        assert [left.name for left in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("private", [False, True])
def test_a_link_that_somebody_prepared_is_not_followed(tmp_path: Path, private: bool) -> None:
    """Neither under the file's own name, nor under any name that can be known before."""
    victim, path = tmp_path / "victim", tmp_path / "local.json"
    victim.write_bytes(b"precious")
    for name in ("local.json", "local.json.partial", ".local.json.partial"):
        (tmp_path / name).symlink_to(victim)
    files.replace_file(path, b"{}", private=private)
    assert victim.read_bytes() == b"precious"
    assert not path.is_symlink()
    assert path.read_bytes() == b"{}"


def test_a_private_file_is_private_from_its_first_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever holds ``.partial`` open, made before and readable, must not read along."""
    path, sync, seen = tmp_path / "local.json", os.fsync, []
    path.with_name("local.json.partial").write_bytes(b"")
    spy = path.with_name("local.json.partial").open("rb")

    def watched(handle: int) -> None:
        seen.append(stat.S_IMODE(os.fstat(handle).st_mode))
        sync(handle)

    monkeypatch.setattr("os.fsync", watched)
    before = os.umask(0)
    try:
        files.replace_file(path, b"secret", private=True)
    finally:
        os.umask(before)
    with spy:
        assert spy.read() == b""
    assert seen[0] == stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("write", [files.replace_file, files.made_once])
def test_file_and_directory_reach_the_disk_the_directory_last(
    write: Callable[[Path, bytes], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    path = tmp_path / "key"

    def watched(handle: int) -> None:
        place = Path(os.readlink(f"/proc/self/fd/{handle}"))
        if place.is_dir():
            assert path.exists()  # the name is there before it is made durable
        synced.append(place)

    monkeypatch.setattr("os.fsync", watched)
    write(path, b"content")
    assert [place.is_dir() for place in synced] == [False, True]
    assert synced[-1] == tmp_path


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, MemoryError])
@pytest.mark.parametrize("write", [files.replace_file, files.made_once])
def test_however_a_write_ends_nothing_is_left_lying(
    write: Callable[[Path, bytes], object],
    error: type[BaseException],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stopped(_: int) -> None:
        raise error

    monkeypatch.setattr("os.fsync", stopped)
    with pytest.raises(error):
        write(tmp_path / "local.json", b"secret")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_from_the_keyboard_leaves_nothing_lying(tmp_path: Path) -> None:
    path = tmp_path / "model"
    for _ in range(5):
        process = writer(path, "b", 10**6)
        until = time.monotonic() + 30
        while not list(tmp_path.glob(files.PARTIAL)):
            assert time.monotonic() < until
        process.send_signal(signal.SIGINT)
        process.wait()
        assert list(tmp_path.glob(files.PARTIAL)) == []


def test_no_file_is_written_over_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("", ".", "..", str(tmp_path)):
        with pytest.raises(IsADirectoryError):
            files.replace_file(Path(name), b"x")
    assert list(tmp_path.iterdir()) == []
