"""A and A′: S1's Wishart noise is not private, because its support depends on the data.

Liang et al., "Model-Protected Multi-Task Learning", Algorithms 1–4, add E ~ W_d(d+1, vI),
v = K²/(2ε), to Σ = WWᵀ and claim (ε, 0)-DP from the ratio of densities exp(−tr E/2v). The ratio is
right only where both densities are positive. E is positive definite, so a release S proves
S − Σ ⪰ 0: without the task, whose Σ is smaller by wwᵀ,

    P(λ_min(S − Σ_with) < 0) = 1 − P(E ⪰ wwᵀ) = 1 − exp(−‖w‖²/2v) = 1 − e^−ε,

since {E ⪰ wwᵀ} is the cone moved by wwᵀ, on which the density is e^{−‖w‖²/2v} times itself. With
the task the same event has probability 0: no ε holds. (T rounds: 1 − exp(−Σ ε_t).)

For WᵀW (their Case 2) they put the difference on the diagonal only. Replacing column w by −w where
all columns are w changes a whole row and column, with eigenvalues ±2K²√(m−1): the event has
probability up to 1 − exp(−2ε√(m−1)), and no noise scaled by K² alone can hide it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from tacit.arrays import FloatArray
from tacit.audits.cases import Asked, Audit, Case, task_claim
from tacit.audits.single_releases import release_audit, smallest_eigenvalue
from tacit.privacy.auditing import AuditResult, Side, below
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms import GramGaussian, SymmetricGaussian, TwoSidedWishart

DIM, TASKS, CLIP = 5, 10, 1.0
EVENT = below(0.0, under=1)
STATISTIC = "λ_min(S − Σ_with), Σ_with the matrix with the task"
SOURCE = "S1 Theorem 1"


def wishart_noise(n: int, dim: int, epsilon: float, rng: np.random.Generator) -> FloatArray:
    """n draws (n, d, d) of W_d(d+1, K²/(2ε) I), S1 Algorithm 1, step 5."""
    factor = rng.standard_normal((n, dim, dim + 1))
    return np.asarray(CLIP**2 / (2 * epsilon) * (factor @ factor.transpose(0, 2, 1)))


def _published(
    asked: Asked, with_task: FloatArray, without: FloatArray, neighbours: str, pair: str
) -> AuditResult:
    centres = (with_task, without)

    def draw(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
        noise = wishart_noise(n, len(with_task), asked.epsilon, rng)
        return smallest_eigenvalue(noise + (centres[side] - with_task))

    claim = task_claim(asked.event(), SOURCE, proven=False, neighbours=neighbours)
    return asked.audit(draw, claim, events=EVENT, pair=pair, statistic=STATISTIC)


def published_covariance(asked: Asked) -> AuditResult:
    """WWᵀ (d×d): one task of norm K, and then null."""
    with_task = np.zeros((DIM, DIM))
    with_task[0, 0] = CLIP**2
    pair = f"a task with model K·e₁ (d = {DIM}, K = {CLIP:g}) against no contribution"
    return _published(asked, with_task, np.zeros((DIM, DIM)), "zero-out", pair)


def published_gram(asked: Asked) -> AuditResult:
    """WᵀW (m×m): all tasks equal, and then one of them turned round."""
    signs = np.ones(TASKS)
    signs[-1] = -1
    with_task = np.full((TASKS, TASKS), CLIP**2)
    pair = f"{TASKS} tasks with the same model of norm K = {CLIP:g}; one of them becomes −w"
    return _published(asked, with_task, CLIP**2 * np.outer(signs, signs), "replace", pair)


def wishart_audits() -> tuple[Audit, ...]:
    """A and A′."""

    def published(name: str, run: Callable[[Asked], AuditResult]) -> Case:
        return Case(f"{name}, as published", run, 0.1, samples=10_000, flawed=True)

    def repaired(
        name: str, by: type, neighbours: Neighbours, delta: float = 1e-5, samples: int = 10_000
    ) -> Case:
        run = partial(release_audit, by, neighbours)
        return Case(f"{name}, repaired: {by.__name__}", run, 0.1, delta, samples)

    return (
        Audit(
            "A",
            "S1's Wishart noise on WWᵀ: a task that is absent can be proven absent",
            (
                published("A", published_covariance),
                repaired("A", SymmetricGaussian, "zero-out"),
                repaired("A", TwoSidedWishart, "zero-out", 0.0, 20_000),
            ),
        ),
        Audit(
            "A-gram",
            "S1's Wishart noise on WᵀW: one task is in a whole row and column",
            (published("A′", published_gram), repaired("A′", GramGaussian, "replace")),
        ),
    )
