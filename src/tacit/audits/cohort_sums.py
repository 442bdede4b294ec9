"""Audits of a federated round: real releases of ``CohortSum``, against what its sampler states.

The target's update is −e₁, ten times as long as the clip norm, or nothing (zero-out). The adversary
is all other clients together: they know their own updates and who of *them* took part, and subtract
that. What is left, over σ, is N(μ·coin, 1) against N(0, 1), and the event {it exceeds t} is fixed
in advance by these laws.

Three mistakes that were made in print or are easily made must be refuted by the same adversary:

==========================  =====================================================================
a cohort of fixed size,     the others count themselves: the target's coin is no secret (E)
claimed as amplified
bit and update claimed as   they share one coin: one Poisson event of 1/z² = 1/z_u² + 1/z_b², not
two Poisson events          two events that would each be amplified by a coin of their own
a relation Ω with the       a client moves every row that others hear, √(m−1) times as much in all
noise of a single mean
==========================  =====================================================================

PyTorch is imported when an audit runs; where it is not installed there are no such audits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from tacit.arrays import FloatArray, IntArray
from tacit.audits.cases import Asked, Audit, Case, task_claim
from tacit.audits.participation import COUNTING, best_threshold
from tacit.audits.round_isolation import round_isolation_audits
from tacit.neural import mixing
from tacit.neural.sampling import Everyone, Fixed, Sampler, SecretCoins
from tacit.privacy.accounting import Approximate, Event, Gaussian, epsilon
from tacit.privacy.auditing import AuditResult, Claim, Side, above

if TYPE_CHECKING:
    from tacit.neural.cohort import CohortSum

CLIENTS, DIM, CLIP, OVERSIZE = 10, 2, 0.7, 10.0
TARGET = CLIENTS - 1
RATE, MULTIPLIER, DELTA = 0.1, 0.5, 1e-2
PAIR = "a client whose update is −e₁, beyond the clip norm, takes no part; the others are e₁"
AMPLIFIED, VISIBLE, TWICE, ONCE = 1.687, 3.808, 2.414, 4.520  # ε at δ = 10⁻²; claimed and true


@dataclass(frozen=True)
class AuditedRound:
    """A mechanism as it runs, and the events that are claimed of one of its releases."""

    sampler: Sampler
    multiplier: float  # z of update and bit together
    claimed: tuple[Event, ...]
    relation: mixing.Mixing
    bit: float | None = None
    covered: bool = True  # is the noise scaled by the relation's reach?

    def mechanism(self) -> CohortSum:
        """As a round would build it."""
        from tacit.neural.cohort import CohortSum

        reach = self.relation.reach if self.covered else 1.0
        return CohortSum(CLIP, self.multiplier, self.sampler, CLIENTS, reach, self.bit)

    @property
    def mu(self) -> float:
        """How far a client that takes part moves what the others see, over σ: the truth."""
        return (1.0 if self.covered else self.relation.reach) / self.multiplier


def updates() -> FloatArray:
    """(m, d), before clipping."""
    rows = np.tile(np.eye(DIM)[0], (CLIENTS, 1))
    rows[TARGET] = -OVERSIZE * np.eye(DIM)[0]
    return np.asarray(OVERSIZE * CLIP * rows)


def statistics(
    subject: AuditedRound, side: Side, rng: np.random.Generator, n: int, *, secure: bool = False
) -> FloatArray:
    """n releases as the others see them: N(μ·coin, 1), or N(0, 1) without the target's update.

    Where participation is visible, of rounds that the target was drawn for. One at a time, on
    purpose: what is audited is ``release``, not a copy of it.
    """
    import torch

    from tacit.neural.cohort import Updates

    mechanism, values = subject.mechanism(), torch.from_numpy(updates())
    B = subject.relation.weights
    others = np.delete(np.arange(CLIENTS), TARGET)
    heard = np.unique(subject.relation.listens[others])
    found = np.empty(n)
    for i in range(n):
        cohort = _cohort(subject.sampler, rng)
        sent = cohort if side == 0 else cohort[cohort != TARGET]
        given = Updates(values[sent], B[:, sent])
        known = B[:, cohort[cohort != TARGET]].sum(axis=1)[heard] * CLIP  # all along e₁
        released = mechanism.release(given, None if secure else rng)
        found[i] = _seen(mechanism, released, heard, known, int((cohort != TARGET).sum()))
    return np.round(found, 9)  # low bits of floating-point noise are another flaw's evidence (G)


def _cohort(sampler: Sampler, rng: np.random.Generator) -> IntArray:
    """Under fixed size only rounds that the target was drawn for: the others can tell."""
    cohort = sampler.cohort(CLIENTS, rng)
    while isinstance(sampler, Fixed) and TARGET not in cohort:
        cohort = sampler.cohort(CLIENTS, rng)
    return cohort


def _seen(
    mechanism: CohortSum,
    released: FloatArray,
    heard: IntArray,
    known: FloatArray,
    others: int,
) -> float:
    """The release less the others' part, along what the target adds, over its deviation."""
    rows = len(released) if mechanism.bit_multiplier is None else 1
    flat = released if mechanism.bit_multiplier is None else released[:-1]
    along = -(flat.reshape(rows, DIM)[heard, 0] - known) / mechanism.sigma
    update = float(along.sum()) / math.sqrt(len(known))
    if mechanism.bit_multiplier is None:
        return update
    # Everybody's update is clipped: each bit is −½. Its noise has the deviation z_bit/2.
    bit = -(float(released[-1]) + others / 2) / (mechanism.bit_multiplier / 2)
    weights = 1 / mechanism.update_multiplier, 1 / mechanism.bit_multiplier
    return (weights[0] * update + weights[1] * bit) / math.hypot(*weights)


# --- the claims ----------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def claimed_epsilon(events: tuple[Event, ...], delta: float) -> float:
    """What the accountant makes of the events that are claimed."""
    return epsilon(events, delta)


def sampled_audit(
    subject: AuditedRound,
    stated: float,
    asked: Asked,
    *,
    flawed: bool = False,
    secure: bool = False,
) -> AuditResult:
    """One round over a sampled cohort, against (ε, δ); ``stated`` is ε at the case's own δ."""
    said = asked.epsilon
    if asked.epsilon == stated and asked.delta != DELTA:
        said = claimed_epsilon(subject.claimed, asked.delta)
    visible = isinstance(subject.sampler, Fixed)
    rate = subject.sampler.share(CLIENTS)
    threshold = best_threshold(subject.mu, rate, asked.delta, asked.samples, visible=visible)
    return asked.audit(
        partial(statistics, subject, secure=secure),
        _claim(Approximate(said, asked.delta), subject, flawed=flawed),
        events=above(threshold),
        reproducible=not secure,
        stratum=rate if visible else 1.0,
        pair=PAIR,
        statistic="the release less the others' part, over σ",
    )


def relation_audit(subject: AuditedRound, asked: Asked, *, flawed: bool = False) -> AuditResult:
    """One round of all clients, each hearing its own row of Ω, against μ."""
    (event,) = subject.claimed
    assert isinstance(event, Gaussian)
    return asked.audit(
        partial(statistics, subject),
        _claim(event, subject, flawed=flawed),
        events=above(subject.mu / 2),
        pair=PAIR,
        statistic="all rows that others hear, less the others' part, over σ",
    )


def _claim(event: Approximate | Gaussian, subject: AuditedRound, *, flawed: bool) -> Claim:
    source = " and ".join(dict.fromkeys(type(each).__name__ for each in subject.claimed))
    return task_claim(event, source, proven=not flawed, neighbours="zero-out", adversary=COUNTING)


# --- the cases -----------------------------------------------------------------------------------

MEAN, OMEGA = mixing.mean(CLIENTS), mixing.relationship(np.ones((CLIENTS, CLIENTS)))
SECRET, VISIBLY = SecretCoins(RATE), Fixed(round(RATE * CLIENTS))
BOTH = MULTIPLIER / math.sqrt(2)  # of update and bit, MULTIPLIER each


def _event(sampler: Sampler, multiplier: float) -> Event:
    return sampler.event(CLIENTS, multiplier, "zero-out")


POISSON = AuditedRound(SECRET, MULTIPLIER, (_event(SECRET, MULTIPLIER),), MEAN)
FIXED = AuditedRound(VISIBLY, MULTIPLIER, (_event(VISIBLY, MULTIPLIER),), MEAN)
FIXED_AMPLIFIED = AuditedRound(VISIBLY, MULTIPLIER, (_event(SECRET, MULTIPLIER),), MEAN)
BIT = AuditedRound(SECRET, BOTH, (_event(SECRET, BOTH),), MEAN, bit=MULTIPLIER)
BIT_APART = AuditedRound(SECRET, BOTH, (_event(SECRET, MULTIPLIER),) * 2, MEAN, bit=MULTIPLIER)
RELATED = AuditedRound(Everyone(), 2.0, (_event(Everyone(), 2.0),), OMEGA)
UNCOVERED = AuditedRound(Everyone(), 2.0, (_event(Everyone(), 2.0),), OMEGA, covered=False)


def cohort_sum_audits() -> tuple[Audit, ...]:
    """CohortSum as it is, three mistakes, and attacks on runs; none without PyTorch."""
    if find_spec("torch") is None:
        return ()

    def sampled(
        name: str,
        subject: AuditedRound,
        stated: float,
        samples: int = 10_000,
        *,
        flawed: bool = False,
        secure: bool = False,
    ) -> Case:
        run = partial(sampled_audit, subject, stated, flawed=flawed, secure=secure)
        return Case(f"CohortSum, {name}", run, stated, DELTA, samples, flawed)

    def related(name: str, subject: AuditedRound, *, flawed: bool = False) -> Case:
        run = partial(relation_audit, subject, flawed=flawed)
        return Case(f"CohortSum, {name}", run, delta=1e-5, samples=2_000, flawed=flawed)

    cases = (
        sampled("Poisson", POISSON, AMPLIFIED),
        sampled("Poisson, secure noise", POISSON, AMPLIFIED, 4_000, secure=True),
        sampled("fixed size", FIXED, VISIBLE),
        sampled("fixed size claimed as amplified", FIXED_AMPLIFIED, AMPLIFIED, flawed=True),
        sampled("update and bit", BIT, ONCE),
        sampled("update and bit as two events", BIT_APART, TWICE, 20_000, flawed=True),
        related("relation", RELATED),
        related("relation with the noise of one mean", UNCOVERED, flawed=True),
    )
    about = "rounds of federated learning, sampled or not, against the sampler's own event"
    return (Audit("CohortSum", about, cases), *round_isolation_audits())
