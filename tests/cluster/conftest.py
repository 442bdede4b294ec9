"""Data sets of several files, and noise that can be compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
from divided import FRAME, Write

from tacit.arrays import IntArray
from tacit.privacy.mechanisms.noises import GaussianNoise


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Divides the table by task, in no order, into so many files; the pattern of their names."""

    def written(n_files: int, frame: Any = FRAME) -> str:
        home = tmp_path / f"in_{n_files}"
        home.mkdir()
        labels = np.random.default_rng(n_files).permutation(frame["person"].unique().to_numpy())
        for i, some in enumerate(np.array_split(labels, n_files)):
            part = frame.filter(polars.col("person").is_in(some.tolist()))
            part.write_parquet(home / f"part-{i}.parquet")
        return str(home / "*.parquet")

    return written


@pytest.fixture
def known_noise(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Noise that follows from its scale and shape, so that two fits can be compared; the shapes
    that were drawn, in this process."""
    drawn: list[tuple[int, ...]] = []

    def rounded(self: GaussianNoise, shape: tuple[int, ...]) -> IntArray:
        drawn.append(shape)
        seed = abs(hash((self.scale, shape))) % 2**32
        return np.random.default_rng(seed).integers(-(2**27), 2**27, shape)

    monkeypatch.setattr(GaussianNoise, "rounded", rounded)
    return drawn
