"""Files of a fitted folder: whole or not at all, and errors that name them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tacit import files, folder
from tacit.errors import InvalidInput


def test_json_comes_back(tmp_path: Path) -> None:
    value = {"ε": [1, 2.5, None], "a": {"b": "é"}}
    folder.write_json(tmp_path / "x.json", value)
    assert folder.read_json(tmp_path / "x.json") == value
    assert json.loads((tmp_path / "x.json").read_text()) == value


@pytest.mark.parametrize(
    ("content", "said"), [(b"{", "not JSON"), (b"[1]", "holds list"), (b"\xff", "not JSON")]
)
def test_what_is_no_object_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(InvalidInput, match=said):
        folder.read_json(tmp_path / "x.json")


def test_what_is_no_plain_file_of_a_moderate_size_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with (tmp_path / "long").open("wb") as file:
        file.truncate(files.MOST_JSON + 1)
    for name, said in (("pipe", "no plain file"), ("folder", "no plain"), ("long", "more than")):
        with pytest.raises(InvalidInput, match=said):
            folder.read_json(tmp_path / name)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no file"):
        folder.read_json(tmp_path / "x.json")


def test_a_write_that_fails_leaves_the_old_file_and_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.json"
    folder.write_json(file, {"old": 1})

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left") as error:
        folder.write_json(file, {"new": 1})
    assert error.value.filename == str(file)
    assert folder.read_json(file) == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_a_folder_comes_back(tmp_path: Path) -> None:
    arrays = {"models": np.arange(6.0).reshape(2, 3)}
    written = folder.write_model(tmp_path / "m", {"learner": "X"}, arrays)
    folder.write_json(written / folder.CERTIFICATE, {"guarantee": 1})
    description, read, certificate = folder.read(tmp_path / "m")
    assert (description, certificate) == ({"learner": "X"}, {"guarantee": 1})
    np.testing.assert_array_equal(read["models"], arrays["models"])


@pytest.mark.parametrize("left_over", [False, True])
def test_a_private_file_is_for_its_owner_only(tmp_path: Path, left_over: bool) -> None:
    path = tmp_path / "local.json"
    if left_over:
        path.with_name("local.json.partial").write_bytes(b"from a write that was killed")
    files.replace_file(path, b"{}", private=True)
    assert path.read_bytes() == b"{}"
    assert path.stat().st_mode & 0o777 == 0o600
