"""What is claimed, in full, and what an audit found."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from tacit.privacy.accounting import Approximate, Gaussian, Pure, gaussian_epsilon
from tacit.privacy.auditing.lower_bounds import Counts
from tacit.rounding import rounded_down, rounded_up


@dataclass(frozen=True)
class Claim:
    """A privacy claim: how much, about which unit, against whom, and whether it is said proven.

    ``read_at`` is the δ at which a claim of μ-GDP is also read as an ε.

    >>> print(Claim(Pure(0.1), unit="a task", neighbours="zero-out", adversary="all other tasks"))
    ε = 0.1 for a task, zero-out, against all other tasks (proven)
    """

    event: Gaussian | Pure | Approximate
    unit: str = "one unit"
    neighbours: str = "replace"
    adversary: str = "whoever sees the output"
    proven: bool = True
    source: str = ""  # who says so
    read_at: float = 1e-5

    @property
    def delta(self) -> float:
        """The δ of the claim."""
        return self.read_at if isinstance(self.event, Gaussian) else self.event.delta

    @property
    def epsilon(self) -> float:
        """The ε of the claim, at its δ."""
        if isinstance(self.event, Gaussian):
            return gaussian_epsilon(self.read_at, self.event.mu)
        return self.event.epsilon

    def amount(self) -> str:
        """The number that is claimed."""
        at = f" at δ = {rounded_up(self.delta)}" if self.delta else ""
        said = f"ε = {rounded_up(self.epsilon)}{at}"
        if isinstance(self.event, Gaussian):
            return f"μ = {rounded_up(self.event.mu)} ({said})"
        return said

    def __str__(self) -> str:
        said = f", {self.source}" if self.source else ""
        status = "proven" if self.proven else "claimed, not proven"
        whom = f"for {self.unit}, {self.neighbours}, against {self.adversary}"
        return f"{self.amount()} {whom} ({status}{said})"

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        mu = self.event.mu if isinstance(self.event, Gaussian) else None
        kept = {k: v for k, v in asdict(self).items() if k not in ("event", "read_at")}
        return {"epsilon": self.epsilon, "delta": self.delta, "mu": mu, "text": str(self)} | kept


@dataclass(frozen=True)
class Histogram:
    """How the statistic is distributed under both neighbours; the ends hold what lies beyond."""

    edges: tuple[float, ...]  # one more than bars
    first: tuple[int, ...]
    second: tuple[int, ...]


@dataclass(frozen=True)
class AuditResult:
    """What was claimed, how it was tested, and what was found.

    ``epsilon_low`` is a lower bound on ε at the claim's δ with this confidence. For a claim of
    μ-GDP it is ``mu_low`` read as an ε, which only a μ-GDP claim answers for.
    """

    claim: Claim
    pair: str  # the two neighbours
    statistic: str
    event: str
    counts: tuple[Counts, ...]  # under the first neighbour, under the second
    epsilon_low: float
    mu_low: float | None
    confidence: float  # 1: exact, no sampling
    seed: int | None  # None: secure noise, or nothing was drawn
    histogram: Histogram | None = field(default=None, repr=False)
    name: str = "audit"

    @property
    def refuted(self) -> bool:
        """Is the claim false, with this confidence?"""
        if isinstance(self.claim.event, Gaussian) and self.mu_low is not None:
            return bool(self.mu_low > self.claim.event.mu)
        return bool(self.epsilon_low > self.claim.epsilon * (1 + 1e-9))

    @property
    def verdict(self) -> str:
        """consistent, or REFUTED and by how much."""
        if not self.refuted:
            return "consistent"
        sure = "exactly" if self.confidence == 1 else f"with {self.sureness} confidence"
        said, found = f"ε={rounded_up(self.claim.epsilon, 3)}", self.epsilon_low
        if isinstance(self.claim.event, Gaussian) and self.mu_low is not None:
            said, found = f"μ={rounded_up(self.claim.event.mu, 3)}", self.mu_low
        return f"REFUTED: the claim {said} is false, at least {rounded_down(found, 3)} {sure}"

    @property
    def sureness(self) -> str:
        """The confidence in percent."""
        return f"{100 * self.confidence:.6g}%"

    def lines(self) -> list[str]:
        """All of it, as a person reads it."""
        shown = [
            f"claim      {self.claim}",
            f"pair       {self.pair}",
            f"statistic  {self.statistic}",
            f"event      {self.event}",
        ]
        if self.counts:
            hits = " against ".join(f"{c.hits:,} of {c.trials:,}" for c in self.counts)
            shown.append(f"counts     {hits}")
        form = "" if self.mu_low is None else f" (μ ≥ {rounded_down(self.mu_low)})"
        how = "exact" if self.confidence == 1 else f"with {self.sureness} confidence"
        shown.append(f"found      ε ≥ {rounded_down(self.epsilon_low)}{form}, {how}")
        if self.seed is not None:
            shown.append(f"seed       {self.seed}")
        return [*shown, f"verdict    {self.verdict}"]

    def to_dict(self) -> dict[str, Any]:
        """As JSON; an infinite bound is written as null."""
        return {
            "name": self.name,
            "claim": self.claim.to_dict(),
            "pair": self.pair,
            "statistic": self.statistic,
            "event": self.event,
            "counts": [asdict(c) for c in self.counts],
            "epsilon_low": self.epsilon_low if math.isfinite(self.epsilon_low) else None,
            "mu_low": self.mu_low,
            "confidence": self.confidence,
            "seed": self.seed,
            "refuted": self.refuted,
            "verdict": self.verdict,
            "histogram": None if self.histogram is None else asdict(self.histogram),
        }
