"""E: S2's fixed-size sampling is not amplified when the others can count themselves.

Hu, Wu, Smith, "Private Multi-Task Learning", Theorem 1, analyse rounds in which k of m clients take
part as a sampled Gaussian mechanism, whose ε is amplified by the rate k/m because nobody knows who
took part. Under *joint* DP the adversary is all other m − 1 tasks together: k of them took part, so
the target did not; k − 1 of them, so it did. Given that, the release is a plain Gaussian one:

    δ(ε) = Σ_j Bin(j; T, k/m) δ_GDP(ε; √j γ/σ)        (``accounting.visible_delta``).

One round at rate 0.1 and σ/γ = 0.5, zero-out, δ = 10⁻³: the amplified claim is 3.717, the truth
5.998. The event is {the target took part, and y > t}: its first half has probability k/m exactly on
both sides, so we draw only rounds in which the target took part and multiply (``stratum``).

Repaired: Poisson sampling. Every task throws its own secret coin, so the others' number says
nothing, and the amplified ε holds. Or fixed size, with the ε of the mixture above.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import ndtr

from tacit.arrays import FloatArray
from tacit.audits.cases import Asked, Audit, Case, task_claim
from tacit.privacy.accounting import Approximate, poisson_epsilon, visible_epsilon
from tacit.privacy.auditing import AuditResult, Claim, Side, above
from tacit.privacy.budget import OTHER_TASKS

TASKS, COHORT, CLIP, SIGMA = 100, 10, 1.0, 0.5
RATE = COHORT / TASKS
COUNTING = OTHER_TASKS + " and know who of them took part"
AMPLIFIED, TRUE = 3.717, 5.998  # at δ = 10⁻³


@lru_cache(maxsize=8)
def amplified_epsilon(delta: float) -> float:
    """What amplification by sampling claims for one round."""
    return poisson_epsilon(RATE, SIGMA / CLIP, 1, delta)


def true_epsilon(delta: float) -> float:
    """What holds when participation is visible.

    >>> round(true_epsilon(1e-3), 3)
    5.998
    """
    return visible_epsilon(delta, RATE, CLIP / SIGMA, 1)


def best_threshold(mu: float, rate: float, delta: float, samples: int, *, visible: bool) -> float:
    """The t at which {a release over σ exceeds t} shows most, fixed before anything is drawn.

    By the known laws, N(μ·coin, 1) against N(0, 1), each side with two standard errors taken off;
    where participation is visible, of the rounds that the target was drawn for.
    """

    def shown(t: float) -> float:
        with_, without = float(ndtr(mu - t)), float(ndtr(-t))
        p = with_ if visible else rate * with_ + (1 - rate) * without
        p -= 2 * math.sqrt(p / samples)
        q = without + 2 * math.sqrt(without / samples) + 3 / samples
        scale = rate if visible else 1.0
        return math.log(max(scale * p - delta, 1e-300)) - math.log(scale * q)

    return float(minimize_scalar(lambda t: -shown(t), bounds=(0.0, mu + 4), method="bounded").x)


def fixed_size_rounds(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
    """n releases of rounds that the target was drawn for: γ (or 0) + noise, the others known."""
    return np.asarray((CLIP if side == 0 else 0.0) + SIGMA * rng.standard_normal(n))


def poisson_rounds(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
    """n releases under secret coins. The others' number is Binomial(m − 1, rate) on both sides."""
    took_part = rng.random(n) < RATE
    return np.asarray((CLIP if side == 0 else 0.0) * took_part + SIGMA * rng.standard_normal(n))


def _claim(epsilon: float, delta: float, *, proven: bool, source: str) -> Claim:
    event = Approximate(epsilon, delta)
    return task_claim(event, source, proven=proven, neighbours="zero-out", adversary=COUNTING)


def _audit(asked: Asked, claim: Claim, *, visible: bool) -> AuditResult:
    drawn = "the target took part, and " if visible else ""
    most = best_threshold(CLIP / SIGMA, RATE, asked.delta, asked.samples, visible=True) * SIGMA
    return asked.audit(
        fixed_size_rounds if visible else poisson_rounds,
        claim,
        events=above(most) if visible else None,
        stratum=RATE if visible else 1.0,
        pair="a task whose clipped update is γ becomes null; the other updates are known",
        statistic=f"{drawn}the noisy sum less the others' part, over γ (σ/γ = {SIGMA / CLIP:g})",
    )


def _amplified(asked: Asked) -> float:
    """What was asked for, or what amplification claims at the δ that was asked for."""
    return amplified_epsilon(asked.delta) if asked.epsilon == AMPLIFIED else asked.epsilon


def published(asked: Asked) -> AuditResult:
    """Fixed size, with the amplified claim."""
    epsilon = _amplified(asked)
    claim = _claim(epsilon, asked.delta, proven=False, source="S2 Theorem 1, amplified by k/m")
    return _audit(asked, claim, visible=True)


def repaired_poisson(asked: Asked) -> AuditResult:
    """Secret coins, with the same claim."""
    epsilon = _amplified(asked)
    claim = _claim(epsilon, asked.delta, proven=True, source="Poisson sampling, PLD")
    return _audit(asked, claim, visible=False)


def repaired_visible(asked: Asked) -> AuditResult:
    """Fixed size, with the ε of the mixture."""
    epsilon = true_epsilon(asked.delta) if asked.epsilon == TRUE else asked.epsilon
    claim = _claim(epsilon, asked.delta, proven=True, source="binomial mixture")
    return _audit(asked, claim, visible=True)


def participation_audits() -> tuple[Audit, ...]:
    """E."""
    return (
        Audit(
            "E",
            "S2's fixed-size cohorts: the others count themselves, and nothing is amplified",
            (
                Case("E, as published", published, AMPLIFIED, 1e-3, 20_000_000, flawed=True),
                Case("E, repaired: Poisson", repaired_poisson, AMPLIFIED, 1e-3, 4_000_000),
                Case("E, repaired: mixture", repaired_visible, TRUE, 1e-3, 20_000_000),
            ),
        ),
    )
