"""Whole-run audits of the linear learners: by replay, by a classifier, and in one run.

**The one for slow learners** (Steinke, Nasr, Jagielski 2023): one run, many canary tasks, each with
one of two data sets by its own coin; the replay gives each a likelihood ratio, and the adversary
guesses the coins of the most extreme ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from tacit.arrays import BoolArray, FloatArray
from tacit.audits.cases import Asked, Audit, Case
from tacit.audits.replays import Data, Pair, Recorder, Seen, fitted, pair_cases, spent_claim
from tacit.learners.mean_regularized import MeanRegularized
from tacit.learners.model_protected import Decomposed, GroupSparse, LowRank
from tacit.learners.model_protected.averaged_model import AveragedModel
from tacit.learners.model_protected.task_relationship import TaskRelationship
from tacit.learners.shared_prior import SharedPrior
from tacit.privacy.auditing import AuditResult, audit_one_run
from tacit.privacy.budget import Budget
from tacit.privacy.ledger import new_run

TASKS, ROWS, DIM = 4, 3, 2
MORE = 12  # as many as SharedPrior needs for a second round, whose coordinates releases decide
CANARIES, GUESSED = 200, 0.3


# --- the worst pairs -----------------------------------------------------------------------------


def opposite_tasks(side: int, n_tasks: int = TASKS) -> Data:
    """Tasks that lie on opposite lines; the last one changes the line it lies on.

    Its targets are x₁ or −x₁, as large as the declared ranges allow: its pull on the mean is turned
    round, and its votes on the step change sign.
    """
    x = np.linspace(-1.0, 1.0, ROWS)
    signs = np.array([1.0, -1.0] * (n_tasks // 2))
    signs[-1] = 1.0 if side == 0 else -1.0
    X = np.zeros((n_tasks * ROWS, DIM))
    X[:, 0] = np.tile(x, n_tasks)
    return Data(X, np.outer(signs, x).ravel(), np.repeat(np.arange(n_tasks), ROWS))


def orthogonal_tasks(side: int) -> Data:
    """Every task depends on one of two features; the last one changes the feature.

    Its model turns by a right angle, where ‖wwᵀ − vvᵀ‖_F reaches √2 K².
    """
    corners = np.vstack([np.eye(DIM), -np.eye(DIM)])
    feature = np.arange(TASKS) % DIM
    feature[-1] = side
    y = np.concatenate([corners[:, j] for j in feature])
    return Data(np.tile(corners, (TASKS, 1)), y, np.repeat(np.arange(TASKS), len(corners)))


TURNED_ROUND = "one of {} tasks with {} rows each, y = x₁, becomes y = −x₁".format
TURNED = f"one of {TASKS} tasks with {2 * DIM} rows each, y = x₁, becomes y = x₂"
OPPOSITE = Pair(MeanRegularized, opposite_tasks, TURNED_ROUND(TASKS, ROWS))
ADAPTIVE = Pair(
    SharedPrior, partial(opposite_tasks, n_tasks=MORE), TURNED_ROUND(MORE, ROWS), parameters={}
)
PAIRS = (
    ADAPTIVE,
    Pair(LowRank, orthogonal_tasks, TURNED),
    Pair(GroupSparse, orthogonal_tasks, TURNED),
    Pair(Decomposed, orthogonal_tasks, TURNED, {"rounds": 1, "refit": False}),  # refit stays home
    Pair(AveragedModel, opposite_tasks, TURNED_ROUND(TASKS, ROWS), {}),
    Pair(TaskRelationship, opposite_tasks, TURNED_ROUND(TASKS, ROWS)),
)


# --- one run -------------------------------------------------------------------------------------


def canary_tasks(coins: BoolArray) -> Data:
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
    seed = asked.some_seed()
    rng = np.random.default_rng(seed)
    coins = rng.random(asked.samples) < 0.5
    ledger, run = Recorder(), new_run()
    budget, noise = Budget(asked.epsilon, asked.delta), int(rng.integers(2**32))
    for worlds in (coins, np.ones_like(coins), np.zeros_like(coins)):
        fitted(MeanRegularized, canary_tasks(worlds), budget, noise, ledger, run, rounds=1)
    seen = ledger.seen
    steps = len(seen) // 3
    runs = [seen[i * steps : (i + 1) * steps] for i in range(3)]
    return audit_one_run(
        canary_scores(*runs),
        coins,
        spent_claim("MeanRegularized", ledger, 0, asked),
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
                *pair_cases(OPPOSITE),
                Case("MeanRegularized, one run", one_run, 8.0, 1e-5, CANARIES),
            ),
        ),
        *(Audit(pair.name, sees, pair_cases(pair)) for pair in PAIRS),
    )
