"""F: S4's sensitivity, measured on training samples, does not hold for the next user.

Cheng, Tang, Chinchali, "Task-aware Privacy Preservation for Multi-dimensional Data", add Laplace
noise of scale Δ̂/ε to an encoding g(x), Δ̂ = max ‖g(x) − g(x′)‖₁ over the samples at hand. The next
user is no sample. The log density ratio between two users is exactly

    sup_y log p(y | x)/p(y | x′) = ‖g(x) − g(x′)‖₁ / (Δ̂/ε) = ε · ‖g(x) − g(x′)‖₁ / Δ̂,

so a user farther out than everybody before has more than ε, by the factor ‖g(x) − g(x′)‖₁/Δ̂.
Gaussian data hide this well (the range of n samples grows like √(log n)); heavy tails do not.

Repaired: the range is declared, and what lies outside it is clipped where the noise is added.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial

import numpy as np

from tacit.arrays import FloatArray
from tacit.audits.cases import Asked, Audit, Case
from tacit.privacy.auditing import AuditResult, Claim, audit_exact

TRAINING, NEXT, REPEATS, DEGREES = 1_000, 10_000, 301, 1.5
DECLARED = 4.0  # the repaired encoder's range is [−4, 4], whatever the data

Law = Callable[[np.random.Generator, int], FloatArray]


def gaussian_data(rng: np.random.Generator, n: int) -> FloatArray:
    """Standard normal."""
    return np.asarray(rng.standard_normal(n))


def heavy_tailed_data(rng: np.random.Generator, n: int) -> FloatArray:
    """Student's t with 1.5 degrees of freedom: a mean, no variance."""
    return np.asarray(rng.standard_t(DEGREES, n))


def excess(sample: FloatArray, users: FloatArray) -> float:
    """How far the users reach, together with the sample, over the sample's own range.

    >>> excess(np.array([0.0, 1.0]), np.array([1.5, 0.5]))
    1.5
    """
    low, high = float(sample.min()), float(sample.max())
    farthest = max(float(users.max()) - low, high - float(users.min()), high - low)
    return farthest / (high - low)


def typical_excess(law: Law, rng: np.random.Generator) -> float:
    """The median, over repeats, of the worst among the next users."""
    found = [excess(law(rng, TRAINING), law(rng, NEXT)) for _ in range(REPEATS)]
    return float(np.median(found))


def _claim(asked: Asked, *, published: bool) -> Claim:
    return Claim(
        asked.event(),
        unit="one user's report",
        neighbours="any two users",
        adversary="whoever sees the report",
        proven=not published,
        source="S4 Eq. (6), Δ measured" if published else "declared range, clipped",
    )


def published(law: Law, asked: Asked) -> AuditResult:
    """The farthest of the next users, and the sample's other end."""
    seed = secrets.randbits(32) if asked.seed is None else asked.seed
    factor = typical_excess(law, np.random.default_rng(seed))
    return audit_exact(
        asked.epsilon * factor,
        _claim(asked, published=True),
        name="F",
        pair=f"the farthest of {NEXT:,} next users, and the farthest of {TRAINING:,} samples",
        statistic=f"exact log density ratio, ε × {factor:.3g} (median of {REPEATS} repeats)",
        seed=seed,
    )


def repaired(law: Law, asked: Asked) -> AuditResult:
    """The same users, clipped to the declared range."""
    seed = secrets.randbits(32) if asked.seed is None else asked.seed
    users = np.clip(law(np.random.default_rng(seed), NEXT), -DECLARED, DECLARED)
    factor = float(np.ptp(users)) / (2 * DECLARED)
    return audit_exact(
        asked.epsilon * factor,
        _claim(asked, published=False),
        name="F",
        pair=f"the two farthest of {NEXT:,} users, clipped to [−{DECLARED:g}, {DECLARED:g}]",
        statistic=f"exact log density ratio, ε × {factor:.3g}",
        seed=seed,
    )


def measured_bound_audits() -> tuple[Audit, ...]:
    """F, on Gaussian and on heavy-tailed data."""
    laws: dict[str, Law] = {"Gaussian": gaussian_data, "heavy-tailed": heavy_tailed_data}
    cases = [
        Case(f"F, as published, {name} data", partial(published, law), flawed=True)
        for name, law in laws.items()
    ]
    cases += [
        Case(f"F, repaired, {name} data", partial(repaired, law)) for name, law in laws.items()
    ]
    return (
        Audit("F", "S4 measures the sensitivity on samples; the next user is none", tuple(cases)),
    )
