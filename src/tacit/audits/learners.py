"""Whole-run audits of learners: everything the other tasks see in a ``fit``, all rounds together.

**The sharp one.** The adversary knows all data but the target's, and two candidates for that. Each
release r_t is Gaussian around the sum c_t of clipped contributions, which depends on the data and
on the releases before it, so the log likelihood ratio of a whole run is

    Σ_t (‖r_t − c′_t‖² − ‖r_t − c_t‖²) / (2σ_t²),

c_t and c′_t being what the tasks *would have sent* under either candidate, given what was broadcast
before. We get them by replay: the same run fitted again with the other candidate. The ledger
returns the releases that it persisted and spends nothing; our recording one notes what was sent.

**The blunt one** trains a classifier on the transcript, as if nothing were known.

**The one for slow learners** (Steinke, Nasr, Jagielski 2023): one run, many canary tasks, each with
one of two data sets by its own coin; the replay gives each a likelihood ratio, and the adversary
guesses the coins of the most extreme ones.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.audits.cases import OTHER_TASKS, TASK, Asked, Audit, Case, FloatArray
from tacit.errors import InvalidInput
from tacit.estimator import MultiTaskEstimator
from tacit.learners.mean_regularized import MeanRegularized
from tacit.privacy.accounting import Gaussian
from tacit.privacy.auditing import AuditResult, Claim, Side, above, audit_one_run
from tacit.privacy.budget import Budget
from tacit.privacy.ledger import Key, Ledger, Mechanism, Release, new_run
from tacit.privacy.mechanisms import GaussianSum

TASKS, ROWS, DIM = 4, 3, 2
CANARIES, GUESSED = 200, 0.3


# --- runs that can be replayed -------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """One release: its noise, what each task sent (m, d), clipped, and what came out."""

    sigma: float
    sent: FloatArray
    value: FloatArray


class Recorder(Ledger):
    """An in-memory ledger that notes what went into each release. For audits only."""

    def __init__(self) -> None:
        super().__init__(None)
        self.seen: list[Seen] = []

    def release(
        self,
        mechanism: Mechanism,
        contributions: Any,
        *,
        key: Key,
        rng: np.random.Generator | None = None,
        shares: Sequence[float] | FloatArray | None = None,
    ) -> Release:
        """As Ledger.release, and noted."""
        release = super().release(mechanism, contributions, key=key, rng=rng, shares=shares)
        if not isinstance(mechanism, GaussianSum):
            raise InvalidInput(f"the likelihood of {type(mechanism).__name__} is not known here")
        rows = np.asarray(contributions, dtype=np.float64).reshape(len(contributions), -1)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        sent = rows / np.maximum(1.0, norms / mechanism.clip_norm)
        self.seen.append(Seen(mechanism.sigma, sent, np.asarray(release.value).ravel()))
        return release


@dataclass(frozen=True)
class Data:
    """Rows of all tasks."""

    X: FloatArray
    y: FloatArray
    task: np.ndarray[Any, np.dtype[np.int64]]


def fitted(
    data: Data, budget: Budget, seed: int, ledger: Recorder, run: str, rounds: int = 1
) -> MultiTaskEstimator:
    """MeanRegularized with simulated noise; the same run on the same ledger is a replay."""
    names = dict.fromkeys(range(data.X.shape[1]), (-1.0, 1.0))
    learner = MeanRegularized(
        budget=budget,
        rounds=rounds,
        ledger=ledger,
        noise="simulated",
        ranges={**names, "target": (-1.0, 1.0)},
        run=run,
        random_state=seed,
    )
    return learner.fit(data.X, data.y, task=data.task)


# --- the worst pair ------------------------------------------------------------------------------


def tiny_tasks(side: int) -> Data:
    """TASKS tasks that lie on opposite lines; the last one changes the line it lies on.

    Its targets are x₁ or −x₁, as large as the declared ranges allow: its pull on the mean is turned
    round, and its votes on the step change sign.
    """
    x = np.linspace(-1.0, 1.0, ROWS)
    signs = np.array([1.0, -1.0] * (TASKS // 2))
    signs[-1] = 1.0 if side == 0 else -1.0
    X = np.zeros((TASKS * ROWS, DIM))
    X[:, 0] = np.tile(x, TASKS)
    return Data(X, np.outer(signs, x).ravel(), np.repeat(np.arange(TASKS), ROWS))


PAIR = f"one of {TASKS} tasks with {ROWS} rows each, y = x₁, becomes y = −x₁"


# --- the sharp audit -----------------------------------------------------------------------------


def log_ratio(seen: Sequence[Seen], replayed: Sequence[Seen]) -> float:
    """Σ_t (‖r_t − c′_t‖² − ‖r_t − c_t‖²)/(2σ_t²), c of the run, c′ of its replay."""
    total = 0.0
    for one, other in zip(seen, replayed, strict=True):
        here, there = (one.value - s.sent.sum(axis=0) for s in (one, other))
        total += float(there @ there - here @ here) / (2 * one.sigma**2)
    return total


def run_log_ratio(side: Side, budget: Budget, seed: int) -> float:
    """The log likelihood ratio of candidate 0 against candidate 1 after a fit with ``side``."""
    ledger, run = Recorder(), new_run()
    fitted(tiny_tasks(side), budget, seed, ledger, run)
    steps = len(ledger.seen)
    fitted(tiny_tasks(1 - side), budget, seed, ledger, run)
    ratio = log_ratio(ledger.seen[:steps], ledger.seen[steps:])
    return ratio if side == 0 else -ratio


def whole_run(asked: Asked) -> AuditResult:
    """All releases of a fit."""
    budget = Budget(asked.epsilon, asked.delta)

    def draw(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
        seeds = rng.integers(2**32, size=n)
        return np.array([run_log_ratio(side, budget, int(seed)) for seed in seeds])

    return asked.audit(
        draw,
        _tiny_claim(asked),
        events=above(0.0),
        pair=PAIR,
        statistic="log likelihood ratio of all releases of a fit, by replay",
    )


def _claim(ledger: Recorder, label: int, asked: Asked) -> Claim:
    """What the ledger says that a run spent on a task; the certificate says the same."""
    return Claim(
        Gaussian(math.sqrt(ledger.spent(label).mu_squared)),
        unit=TASK,
        adversary=OTHER_TASKS,
        source="MeanRegularized.guarantee_",
        read_at=asked.delta,
    )


def _tiny_claim(asked: Asked) -> Claim:
    ledger = Recorder()
    fitted(tiny_tasks(0), Budget(asked.epsilon, asked.delta), 0, ledger, new_run())
    return _claim(ledger, TASKS - 1, asked)


# --- the blunt audit -----------------------------------------------------------------------------


def transcript_features(model: MultiTaskEstimator) -> FloatArray:
    """Every number that crossed an untrusted edge and is no declared constant, in order."""
    parts = [
        np.ravel(part.value)
        for _, _, message in model.transcript_
        for _, part in sorted(message.items())
        if isinstance(part, Release)
    ]
    return np.concatenate(parts).astype(np.float64)


def transcript(asked: Asked) -> AuditResult:
    """A classifier on the transcript."""
    budget = Budget(asked.epsilon, asked.delta)

    def draw(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
        data = tiny_tasks(side)
        models = (
            fitted(data, budget, int(seed), Recorder(), new_run())
            for seed in rng.integers(2**32, size=n)
        )
        return np.stack([transcript_features(model) for model in models])

    return asked.audit(
        draw,
        _tiny_claim(asked),
        pair=PAIR,
        statistic="log odds by a classifier on everything in transcript_",
    )


# --- one run -------------------------------------------------------------------------------------


def canary_tasks(coins: np.ndarray[Any, np.dtype[np.bool_]]) -> Data:
    """One task per coin, each along a feature of its own: y = x or y = −x, at x = ±1."""
    slopes = np.where(coins, 1.0, -1.0)
    X = np.vstack([np.eye(len(coins)), -np.eye(len(coins))])
    return Data(X, np.concatenate([slopes, -slopes]), np.tile(np.arange(len(coins)), 2))


def canary_scores(run: Sequence[Seen], heads: Sequence[Seen], tails: Sequence[Seen]) -> FloatArray:
    """(m,): each canary's log likelihood ratio, the other coins taken for undecided.

    Σ_t ⟨c⁺_it − c⁻_it, r_t − Σ_j (c⁺_jt + c⁻_jt)/2⟩/σ_t².
    """
    total = np.zeros(len(run[0].sent))
    for one, plus, minus in zip(run, heads, tails, strict=True):
        centre = (plus.sent + minus.sent).sum(axis=0) / 2
        total += (plus.sent - minus.sent) @ (one.value - centre) / one.sigma**2
    return total


def one_run(asked: Asked) -> AuditResult:
    """As many canary tasks as samples were asked for, in a single fit."""
    seed = secrets.randbits(32) if asked.seed is None else asked.seed
    rng = np.random.default_rng(seed)
    coins = rng.random(asked.samples) < 0.5
    ledger, run = Recorder(), new_run()
    budget, noise = Budget(asked.epsilon, asked.delta), int(rng.integers(2**32))
    for worlds in (coins, np.ones_like(coins), np.zeros_like(coins)):
        fitted(canary_tasks(worlds), budget, noise, ledger, run)
    steps = len(ledger.seen) // 3
    runs = [ledger.seen[i * steps : (i + 1) * steps] for i in range(3)]
    return audit_one_run(
        canary_scores(*runs),
        coins,
        _claim(ledger, 0, asked),
        guesses=max(2, round(GUESSED * asked.samples)),
        confidence=asked.confidence,
        seed=seed,
        pair=f"{asked.samples} canary tasks, y = x or y = −x on a feature of their own, by coin",
        statistic="each canary's log likelihood ratio after one fit, by replay",
    )


def learner_audits() -> tuple[Audit, ...]:
    """One for each private learner."""
    return (
        Audit(
            "MeanRegularized",
            "everything the other tasks see in a fit: by replay, by a classifier, in one run",
            (
                Case("MeanRegularized, whole run", whole_run, 8.0, 1e-5, 300),
                Case("MeanRegularized, transcript", transcript, 8.0, 1e-5, 300),
                Case("MeanRegularized, one run", one_run, 8.0, 1e-5, CANARIES),
            ),
        ),
    )
