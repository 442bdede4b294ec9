"""Checkpoints of a federated run: damaged, forged with a right digest, or no file at all.

That every bit of damage is seen is attacked in test_bad_files.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import InvalidInput

torch = pytest.importorskip("torch")
from safetensors.torch import save  # noqa: E402 after what may be missing

from tacit.neural.checkpoint import (  # noqa: E402 after what may be missing
    Checkpoint,
    _digest,
    read_checkpoint,
    write_checkpoint,
)

LIKE = Checkpoint(2, torch.ones(1, 3), 1.0, torch.zeros(4, 3))
ABOUT: dict[str, Any] = {"round": 2, "clip_norm": 1.0, "run": "r"}
TENSORS = {"centres": torch.ones(1, 3), "models": torch.zeros(4, 3)}


def forged(path: Path, about: dict[str, Any], tensors: dict[str, Any]) -> None:
    """By somebody who knows how the digest is made."""
    try:
        about = about | {"sha256": _digest(about, tensors)}
    except InvalidInput:  # no digest is made over what is not finite
        about = about | {"sha256": "0" * 64}
    path.write_bytes(save(tensors, metadata={"tacit": json.dumps(about)}))


def test_what_is_forged_below_is_believed_where_nothing_is_wrong_with_it(tmp_path: Path) -> None:
    forged(tmp_path / "c", ABOUT, TENSORS)
    state, run = read_checkpoint(tmp_path / "c", LIKE)
    assert (state.round, state.clip_norm, run) == (2, 1.0, "r")


@pytest.mark.parametrize(
    ("about", "tensors", "said"),
    [
        ({}, {"models": torch.full((4, 3), math.nan)}, "models are not all finite"),
        ({}, {"centres": torch.full((1, 3), math.inf)}, "centres are not all finite"),
        ({}, {"models": torch.zeros(4, 3, dtype=torch.int32)}, "not all finite numbers"),
        ({}, {"models": torch.zeros(4, 3, dtype=torch.float64)}, "float64; this run has"),
        ({}, {"models": torch.zeros(3, 4)}, r"\(3, 4\) float32; this run has"),
        ({}, {"more": torch.zeros(1)}, "more .1,. float32"),
        ({"round": -1}, {}, "at round -1"),
        ({"round": True}, {}, "it says"),
        ({"round": 1.5}, {}, "it says"),
        ({"round": "2"}, {}, "it says"),
        ({"clip_norm": 0.0}, {}, "clip norm 0"),
        ({"clip_norm": -1.0}, {}, "clip norm -1"),
        ({"clip_norm": math.nan}, {}, "not a checkpoint"),
        ({"clip_norm": math.inf}, {}, "not a checkpoint"),
        ({"run": 7}, {}, "it says"),
        ({"more": 1}, {}, "it says"),
    ],
)
def test_a_forged_checkpoint_is_held_to_what_one_must_be(
    about: dict[str, Any], tensors: dict[str, Any], said: str, tmp_path: Path
) -> None:
    """Of 6,221 spoilt ones 884 were believed before, one with models that were no numbers."""
    forged(tmp_path / "c", ABOUT | about, TENSORS | tensors)
    with pytest.raises(InvalidInput, match=said):
        read_checkpoint(tmp_path / "c", LIKE)


def test_a_checkpoint_without_a_digest_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(save(TENSORS, metadata={"tacit": json.dumps(ABOUT)}))
    with pytest.raises(InvalidInput, match="expected round, clip_norm, run, sha256"):
        read_checkpoint(tmp_path / "c", LIKE)


def test_a_checkpoint_of_short_floats_comes_back(tmp_path: Path) -> None:
    kept = Checkpoint(2, torch.ones(1, 3, dtype=torch.bfloat16), 1.0, None)
    write_checkpoint(tmp_path / "c", kept, "r")
    assert torch.equal(read_checkpoint(tmp_path / "c", kept)[0].centres, kept.centres)


def test_a_pipe_is_not_waited_for_and_a_checkpoint_is_private(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "c")
    with pytest.raises(InvalidInput, match="no plain file"):
        read_checkpoint(tmp_path / "c", LIKE)
    write_checkpoint(tmp_path / "c", LIKE, "r")
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o600
