"""Encoders stand against users far outside their sample; the published one does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.audits.cases import Case, Settings
from tacit.audits.local_encoders import K, local_encoder_audits, public_rows, users
from tacit.encoders.linear_encoder import TaskAwareEncoder
from tacit.errors import InvalidInput
from tacit.privacy.budget import Budget
from tacit.privacy.mechanisms import statistics
from tacit.privacy.mechanisms.local import LocalKNorm

ALPHA = 1e-6
CASES = {case.name: case for audit in local_encoder_audits() for case in audit.cases}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_each_encoder_is_what_it_says(case: Case) -> None:
    result = case.audit(Settings(seed=0, samples=5_000, confidence=1 - ALPHA))
    assert case.as_expected(result), result.lines()
    assert result.claim.proven == (not case.flawed)


def test_the_audit_is_sharp() -> None:
    result = CASES["TaskAwareEncoder, privunit"].audit(Settings(seed=1))
    assert 0.8 <= result.epsilon_low <= 1.0


def test_a_batch_that_one_row_stops_is_refuted() -> None:
    """Nobody's report comes, or everybody's: all of the draws tell the two apart."""
    found = CASES["TaskAwareEncoder, a batch refused for one row"].audit(Settings(seed=0))
    assert found.refuted
    assert found.epsilon_low > 5.0
    sound = CASES["TaskAwareEncoder, a row that cannot be read"].audit(Settings(seed=0))
    assert 0.3 <= sound.epsilon_low <= 1.0  # the centre of the ball is half as far as its other end


def test_an_encoder_that_refuses_again_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: a NaN row is an error in transform, as it once was."""
    sound = TaskAwareEncoder._rows

    def refusing(self: Any, X: Any, *, fitting: bool = False) -> Any:
        if np.isnan(np.asarray(X)).any():
            raise InvalidInput("NaN")
        return sound(self, X, fitting=fitting)

    monkeypatch.setattr(TaskAwareEncoder, "_rows", refusing)
    case = CASES["TaskAwareEncoder, a row that cannot be read"]
    assert case.audit(Settings(seed=0, samples=1_000)).refuted


def test_the_users_lie_far_outside_the_ball() -> None:
    encoder = TaskAwareEncoder(Budget(1.0, 0.0)).fit(public_rows(), target=K)
    assert encoder.mechanism_ is not None
    lengths = np.linalg.norm(encoder.encode(np.stack(users(encoder))), axis=1)
    np.testing.assert_allclose(lengths, 10 * encoder.mechanism_.radius)


def test_a_mechanism_that_forgets_to_clip_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    def unclipped(rows: Any, *_: Any, **__: Any) -> Any:
        return np.asarray(rows)

    monkeypatch.setattr(statistics, "clip_rows", unclipped)
    assert LocalKNorm(1.0, 1.0).release(np.full((1, 1), 99.0), np.random.default_rng(0)) > 50
    result = CASES["TaskAwareEncoder, knorm"].audit(Settings(seed=0, samples=5_000))
    assert result.refuted
