"""Encoders stand against users far outside their sample; the published one does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.audits.cases import Case, Settings
from tacit.audits.local_encoders import K, local_encoder_audits, public_rows, users
from tacit.learners.task_aware import TaskAwareEncoder
from tacit.privacy.budget import Budget
from tacit.privacy.mechanisms.local import LocalKNorm, additive

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


def test_the_users_lie_far_outside_the_ball() -> None:
    encoder = TaskAwareEncoder(Budget(1.0, 0.0)).fit(public_rows(), target=K)
    assert encoder.mechanism_ is not None
    lengths = np.linalg.norm(encoder.design_.encoded(np.stack(users(encoder))), axis=1)
    np.testing.assert_allclose(lengths, 10 * encoder.mechanism_.radius)


def test_a_mechanism_that_forgets_to_clip_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    def unclipped(rows: Any, radius: float, report: Any) -> Any:
        return report(np.asarray(rows))

    monkeypatch.setattr(additive, "each_block", unclipped)
    assert LocalKNorm(1.0, 1.0).release(np.full((1, 1), 99.0), np.random.default_rng(0)) > 50
    result = CASES["TaskAwareEncoder, knorm"].audit(Settings(seed=0, samples=5_000))
    assert result.refuted
