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

from collections.abc import Callable
from functools import partial

import numpy as np

from tacit.arrays import FloatArray
from tacit.audits.cases import Asked, Audit, Case
from tacit.privacy.auditing import AuditResult, Claim, audit_exact

TRAINING, NEXT, REPEATS, DEGREES = 1_000, 10_000, 301, 1.5
DECLARED = 4.0  # the repaired encoder's range is [−4, 4], whatever the data
MEASURED = "S4 Eq. (6), Δ measured"

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


def _exact(
    asked: Asked, factor: float, *, seed: int, source: str, pair: str, how: str = ""
) -> AuditResult:
    claim = Claim(
        asked.event(),
        unit="one user's report",
        neighbours="any two users",
        adversary="whoever sees the report",
        proven=source != MEASURED,
        source=source,
    )
    said = f"exact log density ratio, ε × {factor:.3g}{how}"
    return audit_exact(asked.epsilon * factor, claim, pair=pair, statistic=said, seed=seed)


def published(law: Law, asked: Asked) -> AuditResult:
    """The farthest of the next users, and the sample's other end."""
    seed = asked.some_seed()
    factor = typical_excess(law, np.random.default_rng(seed))
    pair = f"the farthest of {NEXT:,} next users, and the farthest of {TRAINING:,} samples"
    how = f" (median of {REPEATS} repeats)"
    return _exact(asked, factor, seed=seed, source=MEASURED, pair=pair, how=how)


def repaired(law: Law, asked: Asked) -> AuditResult:
    """The same users, clipped to the declared range."""
    seed = asked.some_seed()
    users = np.clip(law(np.random.default_rng(seed), NEXT), -DECLARED, DECLARED)
    factor = float(np.ptp(users)) / (2 * DECLARED)
    pair = f"the two farthest of {NEXT:,} users, clipped to [−{DECLARED:g}, {DECLARED:g}]"
    return _exact(asked, factor, seed=seed, source="declared range, clipped", pair=pair)


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
