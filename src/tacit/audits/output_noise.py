"""C: S1's output perturbation has its fraction upside down.

Liang et al., Algorithm 5, step 4, adds b with p(b) ∝ exp(−(2K/ε)‖b‖₂) to a model of norm at most K
and claims ε. Two models differ by at most 2K, so the densities differ by exp((2K/ε)·2K): the true
ε is 4K²/ε. At ε = 0.1, K = 1 that is 40. Upright, p(b) ∝ exp(−(ε/2K)‖b‖₂), it is ε.
"""

from __future__ import annotations

import numpy as np

from tacit.arrays import FloatArray
from tacit.audits.cases import Asked, Audit, Case, task_claim
from tacit.privacy.auditing import AuditResult, Side, above

DIM, CLIP = 5, 1.0
CENTRES = (CLIP * np.eye(DIM)[0], -CLIP * np.eye(DIM)[0])


def radial_noise(n: int, rate: float, rng: np.random.Generator) -> FloatArray:
    """n vectors (n, d) with density ∝ exp(−rate‖b‖₂): radius Gamma(d, 1/rate), any direction."""
    direction = rng.standard_normal((n, DIM))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    return np.asarray(direction * (rng.gamma(DIM, 1 / rate, size=n)[:, None]))


def _audit(asked: Asked, rate: float, *, published: bool) -> AuditResult:
    def draw(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
        y = CENTRES[side] + radial_noise(n, rate, rng)
        first, second = (np.linalg.norm(y - centre, axis=1) for centre in CENTRES)
        return np.asarray(rate * (second - first))

    return asked.audit(
        draw,
        task_claim(
            asked.event(),
            "S1 Proposition 4" if published else "2K over the scale 2K/ε",
            proven=not published,
            adversary="the curator, who sees the perturbed model",
        ),
        events=above(0.0) if published else None,
        pair=f"a model K·e₁ (d = {DIM}, K = {CLIP:g}) becomes −K·e₁",
        statistic="exact log density ratio",
    )


def published(asked: Asked) -> AuditResult:
    """p(b) ∝ exp(−(2K/ε)‖b‖)."""
    return _audit(asked, 2 * CLIP / asked.epsilon, published=True)


def repaired(asked: Asked) -> AuditResult:
    """p(b) ∝ exp(−(ε/2K)‖b‖)."""
    return _audit(asked, asked.epsilon / (2 * CLIP), published=False)


def output_noise_audits() -> tuple[Audit, ...]:
    """C."""
    return (
        Audit(
            "C",
            "S1's noise on a model has its fraction upside down: 4K²/ε instead of ε",
            (
                Case("C, as published", published, 0.1, samples=100_000, flawed=True),
                Case("C, repaired", repaired, 0.1, samples=100_000),
            ),
        ),
    )
