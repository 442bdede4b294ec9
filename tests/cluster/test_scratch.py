"""What is put aside comes back as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tacit.cluster.scratch import Scratch
from tacit.linear.threads import on_all_cores


def test_values_come_back_as_they_were_put(tmp_path: Path) -> None:
    values = [
        {"mask": np.arange(k) % 2 == 0, "X": np.arange(3.0 * k).reshape(k, 3)} for k in (1, 9)
    ]
    with Scratch.within(tmp_path / "not yet" / "there") as scratch:
        taken = list(on_all_cores(scratch.put, values * 50))
        for take, value in zip(taken, values * 50, strict=True):
            found = take()
            assert found["X"].flags.aligned
            for name, array in value.items():
                np.testing.assert_array_equal(found[name], array)


def test_nobody_sees_the_file_and_nothing_is_left(tmp_path: Path) -> None:
    with Scratch.within(tmp_path) as scratch:
        take = scratch.put(np.ones(1000))
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(ValueError, match="read-only"):
            take()[0] = 2.0
    assert list(tmp_path.iterdir()) == []
