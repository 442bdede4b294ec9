"""CONTRIBUTING.md's recipes for a mechanism and an audit, followed with toys, as toy.py follows
that for a learner: nothing is touched but the lists that they name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tacit import Budget, Ledger
from tacit.arrays import FloatArray
from tacit.audits import named
from tacit.audits.cases import Asked, Audit, Case, Settings, task_claim
from tacit.audits.single_releases import (
    AUDITED,
    CLIP,
    AuditedMechanism,
    mechanism_audits,
    projection,
    sum_pair,
)
from tacit.privacy.accounting import gaussian_mu
from tacit.privacy.auditing import AuditResult, Side, above
from tacit.privacy.mechanisms import NAMED
from tacit.privacy.mechanisms.products import WithGaussianNoise
from tacit.privacy.mechanisms.statistics import Sum
from tacit.privacy.release import Key

ALPHA = 1e-6


@dataclass(frozen=True)
class Directions(Sum):
    """Σ of the rows' directions, at norm C: a sum of clipped rows, so Δ₂ = 2C, and C."""

    def terms(self, rows: FloatArray, clips: FloatArray) -> FloatArray:
        """Each row far beyond the clip norm, and so clipped to it, unless it is zero."""
        return super().terms(1e6 * rows, clips)


@dataclass(frozen=True)
class Forgetful(Directions):
    """A broken twin: nothing is clipped."""

    def terms(self, rows: FloatArray, clips: FloatArray) -> FloatArray:
        """As they are."""
        return rows


class DirectionSum(WithGaussianNoise):
    """A product: that statistic, and Gaussian noise."""

    kind = Directions


@pytest.fixture
def cases(monkeypatch: pytest.MonkeyPatch) -> dict[str, Case]:
    """Of the toy mechanism, once it is in the two lists."""
    subject = AuditedMechanism(
        lambda e, d, n: DirectionSum.for_mu(CLIP, gaussian_mu(e, d), n),
        sum_pair, lambda rows: rows.sum(0), projection, "the projection", above(0.0),
    )  # fmt: skip
    monkeypatch.setitem(NAMED, "DirectionSum", DirectionSum)
    monkeypatch.setitem(AUDITED, DirectionSum, subject)
    return {case.name: case for case in mechanism_audits()[-1].cases}


def test_a_mechanism_of_two_lines_is_audited_and_verified(cases: dict[str, Case]) -> None:
    assert list(cases) == [
        f"DirectionSum, {how}" for how in ("replace", "zero-out", "secure noise")
    ]
    for case in cases.values():
        result = case.audit(Settings(seed=0, samples=1_000, confidence=1 - ALPHA))
        assert case.as_expected(result), result.lines()
    mechanism = DirectionSum.for_mu(1.0, 0.2, "replace")
    with Ledger.in_memory() as ledger:
        ledger.open_run("one", ["a", "b"], Budget(1.0), [mechanism.event("replace")])
        ledger.release(mechanism, np.eye(2), key=Key("one", 0, "curator"))
        assert ledger.verify().ok


def test_a_broken_twin_is_refuted(cases: dict[str, Case], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DirectionSum, "kind", Forgetful)
    result = cases["DirectionSum, replace"].audit(Settings(seed=0, samples=1_000))
    assert result.refuted


def coin(told: float, asked: Asked) -> AuditResult:
    """A toy audit: somebody's bit is told with probability ``told``, else the other."""

    def draw(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
        return np.where(rng.random(n) < told, float(side), 1.0 - side)

    return asked.audit(
        draw,
        task_claim(asked.event(), "randomised response"),
        events=above(0.5, under=1),
        pair="a bit is 0, or 1",
        statistic="what is told",
    )


def toy_audits() -> tuple[Audit, ...]:
    """What audits/named.py would register."""
    told = np.e / (1 + np.e)  # ε = 1
    sound = Case("a coin", lambda asked: coin(told, asked))
    flawed = Case("no coin", lambda asked: coin(0.999, asked), flawed=True)
    return (Audit("toy", "randomised response", (sound, flawed)),)


def test_an_audit_is_a_case_with_a_claim_and_one_registration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(named, "door_audits", toy_audits)
    found = {audit.name: audit for audit in named.every_audit()}["toy"]
    assert found.published
    for case in found.cases:
        assert case.as_expected(case.audit(Settings(seed=0, samples=2_000)))
