"""LEAF's JSON: what it holds is read, what it should not hold is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.datasets import read_leaf
from tacit.errors import DataUnavailable, InvalidInput, TacitError


def leaf(**users: tuple[list[Any], list[Any]]) -> dict[str, Any]:
    return {
        "users": list(users),
        "num_samples": [len(x) for x, _ in users.values()],
        "user_data": {name: {"x": x, "y": y} for name, (x, y) in users.items()},
    }


def written(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


A, B = ([[0.0, 1.0], [2.0, 3.0]], [4, 5]), ([[6.0, 7.0]], [8])


def test_a_file_gives_rows_targets_and_whose_they_are(tmp_path: Path) -> None:
    data = read_leaf(written(tmp_path / "data.json", leaf(b=B, a=A)))
    np.testing.assert_array_equal(data.X, [[6, 7], [0, 1], [2, 3]])
    np.testing.assert_array_equal(data.y, [8, 4, 5])
    assert data.y.dtype.kind == "i"
    assert data.task.tolist() == [0, 1, 1]
    assert data.users == ("b", "a")


def test_a_folder_is_its_files_in_order(tmp_path: Path) -> None:
    written(tmp_path / "2.json", leaf(a=A))
    written(tmp_path / "1.json", leaf(b=B))
    (tmp_path / "notes.txt").write_text("not data")
    data = read_leaf(tmp_path)
    assert data.users == ("b", "a")
    assert data.task.tolist() == [0, 1, 1]


def test_images_keep_their_axes_and_a_user_without_rows_its_name(tmp_path: Path) -> None:
    image = [[[0.5, 1.0], [0.0, 0.25]]]
    data = read_leaf(written(tmp_path / "x.json", leaf(empty=([], []), a=(image, [1.5]))))
    assert data.X.shape == (1, 2, 2)
    assert data.y.tolist() == [1.5]
    assert data.users == ("empty", "a")
    assert data.task.tolist() == [1]


BROKEN: list[tuple[Any, str]] = [
    ([1, 2], "no 'users'"),
    ({"users": [], "num_samples": []}, "no 'user_data'"),
    (leaf(), "no rows"),
    (leaf(a=([], [])), "no rows"),
    (leaf(a=A) | {"num_samples": []}, "1 users, but 0 num_samples"),
    (leaf(a=A) | {"num_samples": [3]}, "'a' has 2 x and 2 y, num_samples says 3"),
    (leaf(a=A) | {"user_data": {}}, "'a' has no x and y"),
    (leaf(a=(A[0], [1])), "2 x and 1 y"),
    (leaf(a=A, c=([[1.0]], [0])), r"'c' have shape \(1,\), earlier ones \(2,\)"),
    (leaf(a=([[0.0, 1.0], [2.0]], [0, 1])), "'a', x holds rows of different lengths"),
    (leaf(a=([["to be"]], [0])), "'to be', not a number"),
    (leaf(a=([[1.0]], [[0]])), "one number a sample"),
    (leaf(a=([[float("nan")]], [0])), "'a', x holds values that are not finite"),
]


@pytest.mark.parametrize(("content", "words"), BROKEN, ids=[words for _, words in BROKEN])
def test_what_is_wrong_is_said_with_the_user(tmp_path: Path, content: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        read_leaf(written(tmp_path / "data.json", content))


def test_a_user_in_two_files_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "1.json", leaf(a=A))
    written(tmp_path / "2.json", leaf(a=A))
    with pytest.raises(InvalidInput, match=r"2\.json: the user 'a' occurs twice"):
        read_leaf(tmp_path)


def test_what_is_no_file_is_unavailable(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "absent.json"):
        with pytest.raises(DataUnavailable, match="neither a LEAF file nor a folder"):
            read_leaf(place)
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(InvalidInput, match=r"broken\.json is not JSON"):
        read_leaf(tmp_path)
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TacitError):
        read_leaf(tmp_path / "bytes.json")
