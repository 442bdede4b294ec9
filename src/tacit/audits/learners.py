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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tacit.arrays import FloatArray
from tacit.audits.cases import OTHER_TASKS, TASK, Asked, Audit, Case
from tacit.errors import InvalidInput
from tacit.estimator import MultiTaskEstimator
from tacit.learners.averaged_model import AveragedModel
from tacit.learners.covariance_prior import CovariancePrior
from tacit.learners.mean_regularized import MeanRegularized
from tacit.learners.model_protected import Decomposed, GroupSparse, LowRank
from tacit.learners.task_relationship import TaskRelationship
from tacit.privacy.accounting import Gaussian
from tacit.privacy.auditing import AuditResult, Claim, Side, above, audit_one_run
from tacit.privacy.budget import Budget
from tacit.privacy.ledger import Key, Ledger, Mechanism, Release, new_run
from tacit.privacy.mechanisms import (
    DiagonalGaussian,
    EachRow,
    GaussianSum,
    SymmetricGaussian,
    clip_rows,
    svec,
)

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
    ) -> Release:
        """As Ledger.release, and noted."""
        release = super().release(mechanism, contributions, key=key, rng=rng)
        inner = mechanism.row if isinstance(mechanism, EachRow) else mechanism
        if not isinstance(inner, GaussianSum | SymmetricGaussian | DiagonalGaussian):
            raise InvalidInput(f"the likelihood of {type(inner).__name__} is not known here")
        rows = np.asarray(contributions, dtype=np.float64).reshape(len(contributions), -1)
        sent = in_noise_coordinates(mechanism, clip_rows(rows, inner.clip_norm))
        value = np.asarray(release.value)
        symmetric = isinstance(inner, SymmetricGaussian)
        self.seen.append(Seen(inner.sigma, sent, svec(value) if symmetric else value.ravel()))
        return release


def in_noise_coordinates(mechanism: Mechanism, rows: FloatArray) -> FloatArray:
    """What each task adds to the release (m, D), in coordinates where the noise is isotropic."""
    if isinstance(mechanism, SymmetricGaussian):
        return np.stack([svec(np.outer(row, row)) for row in rows])
    if isinstance(mechanism, EachRow):  # every task has coordinates of its own
        return np.stack(
            [np.outer(unit, row).ravel() for unit, row in zip(np.eye(len(rows)), rows, strict=True)]
        )
    return rows**2 if isinstance(mechanism, DiagonalGaussian) else rows


@dataclass(frozen=True)
class Data:
    """Rows of all tasks."""

    X: FloatArray
    y: FloatArray
    task: np.ndarray[Any, np.dtype[np.int64]]


def fitted(
    learner: Any, data: Data, budget: Budget, seed: int, ledger: Recorder, run: str, **more: Any
) -> MultiTaskEstimator:
    """The learner with simulated noise; the same run on the same ledger is a replay."""
    ranges: dict[int | str, Any] = dict.fromkeys(range(data.X.shape[1]), (-1.0, 1.0))
    model: MultiTaskEstimator = learner(
        budget=budget,
        ledger=ledger,
        noise="simulated",
        ranges=ranges | {"target": (-1.0, 1.0)},
        run=run,
        random_state=seed,
        **more,
    )
    return model.fit(data.X, data.y, task=data.task)


# --- the worst pairs -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """A learner, and the change of one task that turns its contribution as far as it goes."""

    learner: Any
    tasks: Callable[[int], Data]
    said: str
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"rounds": 1})

    @property
    def name(self) -> str:
        """The learner's name."""
        return str(self.learner.__name__)

    def fitted(
        self, side: int, budget: Budget, seed: int, ledger: Recorder, run: str
    ) -> MultiTaskEstimator:
        """A run on one side of the pair."""
        return fitted(self.learner, self.tasks(side), budget, seed, ledger, run, **self.parameters)


def opposite_tasks(side: int) -> Data:
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


def orthogonal_tasks(side: int) -> Data:
    """Every task depends on one of two features; the last one changes the feature.

    Its model turns by a right angle, where ‖wwᵀ − vvᵀ‖_F reaches √2 K².
    """
    corners = np.vstack([np.eye(DIM), -np.eye(DIM)])
    feature = np.arange(TASKS) % DIM
    feature[-1] = side
    y = np.concatenate([corners[:, j] for j in feature])
    return Data(np.tile(corners, (TASKS, 1)), y, np.repeat(np.arange(TASKS), len(corners)))


TURNED_ROUND = f"one of {TASKS} tasks with {ROWS} rows each, y = x₁, becomes y = −x₁"
TURNED = f"one of {TASKS} tasks with {2 * DIM} rows each, y = x₁, becomes y = x₂"
OPPOSITE = Pair(MeanRegularized, opposite_tasks, TURNED_ROUND)
PAIRS = (
    Pair(CovariancePrior, orthogonal_tasks, TURNED),
    Pair(LowRank, orthogonal_tasks, TURNED),
    Pair(GroupSparse, orthogonal_tasks, TURNED),
    Pair(Decomposed, orthogonal_tasks, TURNED, {"rounds": 1, "refit": False}),  # refit stays home
    Pair(AveragedModel, opposite_tasks, TURNED_ROUND, {}),
    Pair(TaskRelationship, opposite_tasks, TURNED_ROUND),
)


# --- the sharp audit -----------------------------------------------------------------------------


def log_ratio(seen: Sequence[Seen], replayed: Sequence[Seen]) -> float:
    """Σ_t (‖r_t − c′_t‖² − ‖r_t − c_t‖²)/(2σ_t²), c of the run, c′ of its replay."""
    total = 0.0
    for one, other in zip(seen, replayed, strict=True):
        here, there = (one.value - s.sent.sum(axis=0) for s in (one, other))
        total += float(there @ there - here @ here) / (2 * one.sigma**2)
    return total


def run_log_ratio(pair: Pair, side: Side, budget: Budget, seed: int) -> float:
    """The log likelihood ratio of candidate 0 against candidate 1 after a fit with ``side``."""
    ledger, run = Recorder(), new_run()
    pair.fitted(side, budget, seed, ledger, run)
    steps = len(ledger.seen)
    pair.fitted(1 - side, budget, seed, ledger, run)
    ratio = log_ratio(ledger.seen[:steps], ledger.seen[steps:])
    return ratio if side == 0 else -ratio


def whole_run(pair: Pair, asked: Asked) -> AuditResult:
    """All releases of a fit."""
    budget = Budget(asked.epsilon, asked.delta)

    def draw(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
        seeds = rng.integers(2**32, size=n)
        return np.array([run_log_ratio(pair, side, budget, int(seed)) for seed in seeds])

    return asked.audit(
        draw,
        _tiny_claim(pair, asked),
        events=above(0.0),
        pair=pair.said,
        statistic="log likelihood ratio of all releases of a fit, by replay",
    )


def _claim(name: str, ledger: Recorder, label: int, asked: Asked) -> Claim:
    """What the ledger says that a run spent on a task; the certificate says the same."""
    return Claim(
        Gaussian(math.sqrt(ledger.spent(label).mu_squared)),
        unit=TASK,
        adversary=OTHER_TASKS,
        source=f"{name}.guarantee_",
        read_at=asked.delta,
    )


def _tiny_claim(pair: Pair, asked: Asked) -> Claim:
    ledger = Recorder()
    pair.fitted(0, Budget(asked.epsilon, asked.delta), 0, ledger, new_run())
    return _claim(pair.name, ledger, TASKS - 1, asked)


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


def transcript(pair: Pair, asked: Asked) -> AuditResult:
    """A classifier on the transcript."""
    budget = Budget(asked.epsilon, asked.delta)

    def draw(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
        models = (
            pair.fitted(side, budget, int(seed), Recorder(), new_run())
            for seed in rng.integers(2**32, size=n)
        )
        return np.stack([transcript_features(model) for model in models])

    return asked.audit(
        draw,
        _tiny_claim(pair, asked),
        pair=pair.said,
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
        fitted(MeanRegularized, canary_tasks(worlds), budget, noise, ledger, run, rounds=1)
    steps = len(ledger.seen) // 3
    runs = [ledger.seen[i * steps : (i + 1) * steps] for i in range(3)]
    return audit_one_run(
        canary_scores(*runs),
        coins,
        _claim("MeanRegularized", ledger, 0, asked),
        guesses=max(2, round(GUESSED * asked.samples)),
        confidence=asked.confidence,
        seed=seed,
        pair=f"{asked.samples} canary tasks, y = x or y = −x on a feature of their own, by coin",
        statistic="each canary's log likelihood ratio after one fit, by replay",
    )


def learner_audits() -> tuple[Audit, ...]:
    """One for each private learner."""
    sees = "everything the other tasks see in a fit: by replay, by a classifier"
    return (
        Audit(
            "MeanRegularized",
            f"{sees}, in one run",
            (
                *_pair_cases(OPPOSITE),
                Case("MeanRegularized, one run", one_run, 8.0, 1e-5, CANARIES),
            ),
        ),
        *(Audit(pair.name, sees, _pair_cases(pair)) for pair in PAIRS),
    )


def _pair_cases(pair: Pair) -> tuple[Case, Case]:
    return (
        Case(f"{pair.name}, whole run", partial(whole_run, pair), 8.0, 1e-5, 300),
        Case(f"{pair.name}, transcript", partial(transcript, pair), 8.0, 1e-5, 300),
    )
