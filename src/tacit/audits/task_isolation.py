"""Isolation: what one task sends depends on that task alone. Our own flaw, and what holds now.

Every sensitivity assumes that replacing one task changes one contribution. Our solver padded tasks
of similar length to the longest of their block, and took one of two formulas by that length. One
row more in one task sent all of its neighbours through the other formula: the same numbers up to
rounding, 1e-17. But contributions were divided by their norms, and where a task's data show no
effect at all, rounding is all there is to divide. Four rows coded ±1 in balance are enough.

A start of S1's algorithms that was given as a function saw all tasks at once, and could pool them.

The attacks replace one task by whatever an adversary likes, and count the sum before the noise, in
exact integers. A Gaussian release whose centre moves by v reveals μ = ‖v‖/σ, given what was
broadcast before: no sampling is needed. Most of the other tasks show no effect, so that rounding
which depends on a neighbour would be seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tacit.arrays import FloatArray
from tacit.audits.cases import Asked, Audit, Case, task_claim
from tacit.audits.replays import Recorder
from tacit.engine import Facts, Step
from tacit.estimator import Home
from tacit.learners.mean_regularized import Curator, MeanRegularized, Tasks
from tacit.learners.model_protected import Decomposed, GroupSparse, LowRank
from tacit.learners.model_protected.averaged_model import AveragedModel
from tacit.learners.model_protected.task_relationship import TaskRelationship
from tacit.learners.shared_prior import SharedPrior
from tacit.linear.batched import Problems
from tacit.linear.losses import Loss, Squared
from tacit.linear.model_averaging import default_penalty
from tacit.linear.single_task_fits import best_alone
from tacit.privacy.accounting import Gaussian, gaussian_epsilon, gaussian_mu
from tacit.privacy.auditing import AuditResult, Claim, Side, above
from tacit.privacy.budget import Budget
from tacit.privacy.ledger import new_run
from tacit.privacy.mechanisms import GaussianSum, SymmetricGaussian
from tacit.privacy.noise import RESOLUTION

TASKS, SMALL = 200, 12  # of the block that was seen, and of a fit
CODED = np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
MIXED = np.array(
    [[1.0, 0.5, 0.25, 0.0], [0.0, 0.5, -0.75, 1.0]]
)  # the features are mixtures of two

Rows = tuple[FloatArray, FloatArray]
"""X (n, d) and y (n,) of one task."""


# --- data, and what an adversary makes of one task -----------------------------------------------


def no_effect() -> Rows:
    """Four rows with Xᵀy = 0, exactly: the targets are an interaction, the features main effects.

    >>> X, y = no_effect()
    >>> X.T @ y
    array([0., 0., 0., 0.])
    """
    return CODED @ MIXED, 0.5 * CODED[:, 0] * CODED[:, 1]


def _longer(rows: int) -> Rows:
    X, y = no_effect()
    index = np.arange(rows) % len(y)
    return X[index], y[index]


def _ordinary(rows: int) -> Rows:
    rng = np.random.default_rng(rows)
    X = rng.uniform(-1, 1, (rows, 4))
    return X, np.where(X[:, 0] + 0.3 * rng.uniform(-1, 1, rows) > 0, 0.5, -0.5)


ATTACKS: dict[str, Callable[[], Rows]] = {
    "one row more": partial(_longer, 5),
    "one row": partial(_longer, 1),
    "300 rows": partial(_longer, 300),
    "an effect": partial(_ordinary, 7),
    "an effect, 100 rows": partial(_ordinary, 100),
    "features of 1e10, all alike": lambda: (np.full((4, 4), 1e10), no_effect()[1]),
    "features of 1e59": lambda: (1e59 * no_effect()[0], no_effect()[1]),
    "features of 1e-59": lambda: (1e-59 * no_effect()[0], no_effect()[1]),
    "one class": lambda: (no_effect()[0], np.full(4, 0.5)),
}


@dataclass(frozen=True)
class AttackedLearner:
    """A private learner, and with which parameters it is attacked."""

    learner: Any
    loss: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    how: str = ""

    @property
    def name(self) -> str:
        """As it is listed."""
        return f"isolation, {self.learner.__name__}, {self.loss}{self.how}"

    def fitted(self, last: Rows, budget: Budget, ledger: Recorder, run: str) -> None:
        """A fit of SMALL tasks, the last one as given; the same run again is a replay."""
        tasks = [no_effect()] * (SMALL - 4) + [_ordinary(n) for n in (3, 5, 9)] + [last]
        y = np.concatenate([y for _, y in tasks])
        labels = np.repeat(np.arange(SMALL), [len(y) for _, y in tasks])
        model = self.learner(
            loss=self.loss,
            budget=budget,
            ledger=ledger,
            run=run,
            noise="simulated",
            random_state=0,
            **self.parameters,
        )
        target = y if self.loss == "squared" else np.where(y > 0, 1, 0)
        model.fit(np.vstack([X for X, _ in tasks]), target, task=labels)


AUDITED = tuple(
    AttackedLearner(learner, loss, parameters)
    for learner, parameters in (
        (MeanRegularized, {"rounds": 2}),
        (SharedPrior, {}),
        (LowRank, {"rounds": 2}),
        (GroupSparse, {"rounds": 2}),
        (Decomposed, {"rounds": 2}),
        (AveragedModel, {}),
        (TaskRelationship, {"rounds": 2}),
    )
    for loss in ("squared", "logistic")
)


# --- sums before the noise -----------------------------------------------------------------------


def moved(mechanism: Any, before: Any, after: Any) -> float:
    """μ of a release whose contributions were exchanged: ‖change of the integer sum‖/2^26.

    >>> rows = np.eye(3)[:2]
    >>> round(moved(GaussianSum(1.0, 4.0), rows, -rows[[0, 0]]), 6)
    0.790569
    """
    first, second = (mechanism.counts(rows).tolist() for rows in (before, after))
    square = sum((a - b) ** 2 for a, b in zip(first, second, strict=True))
    return math.sqrt(square) / RESOLUTION


def worst_of(subject: AttackedLearner, budget: Budget) -> tuple[float, float, str]:
    """Over all steps of a fit and all attacks: how far the sum moved and what was claimed, as μ,
    where their ratio is largest; and which attack that was."""
    ledger, run = Recorder(), new_run()
    subject.fitted(no_effect(), budget, ledger, run)
    steps, found = ledger.noted, (0.0, 1.0, "none")
    for name, last in ATTACKS.items():
        ledger.noted = []
        subject.fitted(last(), budget, ledger, run)
        for (mechanism, before, _), (_, after, _) in zip(steps, ledger.noted, strict=True):
            mu = moved(mechanism, before, after)
            claimed = mechanism.event(budget.neighbours).mu
            found = max(found, (mu, claimed, name), key=lambda one: one[0] / one[1])
    return found


def attacked(subject: AttackedLearner, asked: Asked) -> AuditResult:
    """The worst attack on a learner, at its worst release."""
    mu, claimed, attack = worst_of(subject, Budget(asked.epsilon, asked.delta))
    source = f"{subject.learner.__name__}.guarantee_"
    claim = task_claim(Gaussian(claimed), source, read_at=asked.delta)
    return exact(mu, claim, attack)


def exact(mu: float, claim: Claim, attack: str) -> AuditResult:
    """That a release moved by μ, without sampling."""
    return AuditResult(
        name="isolation",
        claim=claim,
        pair=f"one task becomes another: {attack}",
        statistic="the sum before the noise, in exact integers, over σ",
        event="the release at which it moves most, of all steps and attacks",
        counts=(),
        epsilon_low=gaussian_epsilon(claim.read_at, mu),
        mu_low=mu,
        confidence=1.0,
        seed=None,
    )


# --- the block that was seen ---------------------------------------------------------------------


def block(side: Side) -> Problems:
    """TASKS tasks without an effect; on side 1 the first of them has one row more."""
    first = _longer(5) if side == 1 else no_effect()
    tasks = [first, *[no_effect()] * (TASKS - 1)]
    X = np.vstack([np.column_stack([X, np.ones(len(y))]) for X, y in tasks])
    offsets = np.concatenate([[0], np.cumsum([len(y) for _, y in tasks])])
    return Problems(X, np.concatenate([y for _, y in tasks]), offsets)


def by_the_longest(problems: Problems) -> FloatArray:
    """Each task's direction as it was computed: padded, and branched, by the longest of the block,
    and divided by its norm however small that was."""
    sizes, d = problems.sizes, problems.X.shape[1]
    n, penalty = int(sizes.max()), default_penalty(d)
    real = np.arange(n) < sizes[:, None]
    rows = np.where(real, problems.offsets[:-1, None] + np.arange(n), 0)
    Z, y = problems.X[rows] * real[:, :, None], problems.y[rows] * real
    Zt = Z.transpose(0, 2, 1)
    if n < d:
        values, Q = np.linalg.eigh(Z @ Zt)
        scores = np.einsum("bnk,bn->bk", Q, y) / (np.maximum(values, 0.0) + penalty)
        w = (Zt @ (Q @ scores[:, :, None]))[:, :, 0]
    else:
        values, V = np.linalg.eigh(Zt @ Z)
        scores = np.einsum("bnk,bn->bk", Z @ V, y) / (np.maximum(values, 0.0) + penalty)
        w = (V @ scores[:, :, None])[:, :, 0]
    norms = np.linalg.norm(w, axis=1, keepdims=True)
    return np.asarray(np.divide(w, norms, out=np.zeros_like(w), where=norms > 0))


def by_its_own(problems: Problems) -> FloatArray:
    """Each task's direction as MeanRegularized sends it."""
    declared, m = np.ones(problems.X.shape[1] - 1, dtype=bool), problems.n_tasks
    home = Home(problems, Squared(), declared, True)
    facts = Facts(tuple(range(m)), len(declared) + 1, Squared(), declared, True, "replace", 1.0)
    curator = Curator.planned(facts, 1)
    step = Step("direction 0", curator.steps[0].mechanism)
    return Tasks(home, None).contribute(step, curator.start(), None)[0]


def one_row_more(sent: Callable[[Problems], FloatArray], flawed: bool, asked: Asked) -> AuditResult:
    """Releases of the sum of all directions; the adversary knows both sums."""
    rows = [sent(block(side)) for side in (0, 1)]
    mechanism = GaussianSum.for_mu(1.0, gaussian_mu(asked.epsilon, asked.delta), "replace")
    source = "certified, and false" if flawed else "MeanRegularized"
    return told_apart(
        asked,
        lambda side, rng: mechanism.release(rows[side], rng),
        [each.sum(axis=0) for each in rows],
        task_claim(asked.event(), source, proven=not flawed),
        pair=f"the first of {TASKS} tasks without an effect has four rows, or five",
        what="directions",
    )


def told_apart(
    asked: Asked,
    release: Callable[[Side, np.random.Generator], FloatArray],
    centres: Sequence[FloatArray],
    claim: Claim,
    *,
    pair: str,
    what: str,
) -> AuditResult:
    """Releases of a sum by an adversary who knows both sums without noise, the centres."""
    middle, apart = (centres[0] + centres[1]) / 2, centres[0] - centres[1]

    def draw(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
        released = np.stack([release(side, rng) for _ in range(n)])
        return np.asarray(np.round((released - middle) @ apart, 9))

    said = f"the sum of all {what}, on the difference of what it is without noise"
    return asked.audit(draw, claim, events=above(0.0), pair=pair, statistic=said)


# --- a start that sees everybody -----------------------------------------------------------------


def pooled(problems: Problems, loss: Loss) -> FloatArray:
    """(m, D): one model of all the rows that it is shown, for each task."""
    everything = Problems(problems.X, problems.y, np.array([0, len(problems.y)]))
    return np.tile(best_alone(everything, loss), (problems.n_tasks, 1))


def a_pooled_start(asked: Asked) -> AuditResult:
    """SMALL tasks that all start from one model of all rows, most of which are the last task's."""
    mechanism = SymmetricGaussian.for_mu(1.0, gaussian_mu(asked.epsilon, asked.delta), "replace")
    X = np.vstack([np.eye(4)] * (SMALL - 1) + [np.tile(np.eye(4), (100, 1))])
    offsets = np.append(np.arange(0, 4 * SMALL, 4), len(X))
    rows = [pooled(Problems(X, X[:, side], offsets), Squared()) for side in (0, 1)]
    event = mechanism.event("replace")
    claim = task_claim(event, "certified, and false", proven=False, read_at=asked.delta)
    return exact(moved(mechanism, *rows), claim, "y = x₁ or x₂, 400 rows")


def task_isolation_audits() -> tuple[Audit, ...]:
    """What was seen, what holds now, and the attack on every private learner."""
    seen = (
        Case(
            "isolation, by the longest task",
            partial(one_row_more, by_the_longest, True),
            delta=1e-5,
            samples=300,
            flawed=True,
        ),
        Case("isolation, a pooled start", a_pooled_start, delta=1e-5, flawed=True),
        Case(
            "isolation, by its own length",
            partial(one_row_more, by_its_own, False),
            delta=1e-5,
            samples=300,
        ),
    )
    pooling = AttackedLearner(
        LowRank, "squared", {"rounds": 1, "start": pooled}, ", a start that pools"
    )
    attacks = tuple(
        Case(subject.name, partial(attacked, subject), delta=1e-5)
        for subject in (*AUDITED, pooling)
    )
    about = "one task is replaced adversarially; the sum may move by its contribution alone"
    return (Audit("isolation", about, (*seen, *attacks)),)
