"""What a named audit is: cases with a claim each, and what is expected of them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tacit.errors import InvalidInput
from tacit.privacy.accounting import Approximate, Gaussian, Pure
from tacit.privacy.auditing import AuditResult, Claim, Draw, Progress, Region, audit
from tacit.privacy.budget import A_TASK, OTHER_TASKS


def task_claim(
    event: Gaussian | Pure | Approximate,
    source: str,
    *,
    proven: bool = True,
    neighbours: str = "replace",
    adversary: str = OTHER_TASKS,
    read_at: float = 1e-5,
) -> Claim:
    """What somebody says that one task's model and data are protected by."""
    return Claim(event, A_TASK, neighbours, adversary, proven, source, read_at)


@dataclass(frozen=True)
class Settings:
    """What a user may change of a case; None leaves its own value."""

    epsilon: float | None = None
    delta: float | None = None
    samples: int | None = None
    confidence: float = 0.95
    seed: int | None = None
    progress: Progress = None


@dataclass(frozen=True)
class Asked:
    """Settings with every number filled in."""

    epsilon: float
    delta: float
    samples: int
    confidence: float
    seed: int | None
    progress: Progress

    def event(self) -> Pure | Approximate:
        """(ε, δ)-DP at these numbers."""
        return Pure(self.epsilon) if self.delta == 0 else Approximate(self.epsilon, self.delta)

    def some_seed(self) -> int:
        """The seed that was asked for, or one that is drawn now."""
        return secrets.randbits(32) if self.seed is None else self.seed

    def audit(
        self,
        draw: Draw,
        claim: Claim,
        *,
        pair: str,
        statistic: str,
        events: Region | Sequence[Region] | None = None,
        reproducible: bool = True,
        stratum: float = 1.0,
    ) -> AuditResult:
        """``auditing.audit`` with these numbers."""
        return audit(
            draw,
            claim,
            samples=self.samples,
            events=events,
            confidence=self.confidence,
            seed=self.seed,
            reproducible=reproducible,
            stratum=stratum,
            pair=pair,
            statistic=statistic,
            progress=self.progress,
        )


@dataclass(frozen=True)
class Case:
    """One claim and how it is tested. ``flawed``: known to be false, so refutation is expected."""

    name: str
    run: Callable[[Asked], AuditResult]
    epsilon: float = 1.0
    delta: float = 0.0
    samples: int = 20_000
    flawed: bool = False

    def audit(self, settings: Settings | None = None) -> AuditResult:
        """The audit at the case's own numbers, or at those asked for."""
        s = settings or Settings()
        asked = Asked(
            self.epsilon if s.epsilon is None else s.epsilon,
            self.delta if s.delta is None else s.delta,
            self.samples if s.samples is None else s.samples,
            s.confidence,
            s.seed,
            s.progress,
        )
        if not asked.epsilon > 0 or not 0 <= asked.delta < 1:
            raise InvalidInput(
                f"epsilon must be positive and delta in [0, 1), "
                f"got {asked.epsilon!r} and {asked.delta!r}"
            )
        return replace(self.run(asked), name=self.name)

    def as_expected(self, result: AuditResult) -> bool:
        """A known flaw is refuted; everything else is not."""
        return result.refuted == self.flawed


@dataclass(frozen=True)
class Audit:
    """What is typed: a name, a line about it, and its cases."""

    name: str
    about: str
    cases: tuple[Case, ...]

    @property
    def published(self) -> bool:
        """Does it show that a published analysis fails?"""
        return any(case.flawed for case in self.cases)
