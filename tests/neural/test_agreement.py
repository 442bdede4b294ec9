"""What is fixed before the first round."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tacit.errors import InvalidInput
from tacit.neural.agreement import generators, run_of


def test_seeded_coins_and_noise_share_no_stream() -> None:
    coins, noise = generators("simulated", True, 0)
    assert noise is not None
    assert not np.intersect1d(coins.generator().random(1000), noise.random(1000)).size
    assert coins == generators("simulated", True, 0)[0] != generators("simulated", True, 1)[0]


def test_secure_coins_are_fresh_and_secure_noise_has_no_generator() -> None:
    (one, none), (other, _) = (generators("secure", True, 0) for _ in "ab")
    assert none is None
    assert one != other


def test_without_a_budget_there_is_no_noise_and_the_seed_holds() -> None:
    (one, none), (other, _) = (generators("secure", False, 0) for _ in "ab")
    assert none is None
    assert one == other


def test_a_run_has_the_name_that_was_asked_for_unless_a_checkpoint_names_it(tmp_path: Path) -> None:
    assert run_of(None, None) is None
    assert run_of(None, "mine") == "mine"
    assert run_of(tmp_path / "absent", "mine") == "mine"
    (tmp_path / "text").write_text("hello")
    with pytest.raises(InvalidInput, match="text is not a checkpoint"):
        run_of(tmp_path / "text", None)
