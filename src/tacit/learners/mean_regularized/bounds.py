"""S2's convergence bounds as numbers: an O(·) is the value inside it, its constant taken as 1.

The text that we have of the paper has damaged formulas here, and its appendix (the formal
statements) is missing. They are read so that Corollaries 4 and 6 are their cases σ = 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from tacit.errors import InvalidInput


def nonconvex_bound(
    losses: Sequence[float],
    *,
    n_tasks: int,
    share: float,
    smoothness: float,
    penalty: float,
    dim: int,
    sigma: float,
) -> float:
    """Theorem 3, Eq. (8): of the mean squared gradient (1/mT) Σ_t Σ_k ‖∇f_k(w_k^t; w̃^t)‖².

    1/(mT) + (L + λ + p²) Σ_t B_{t+1}/T + dσ²; ``losses`` are B_t = max_k f_k(w_k^t; w̃^t), one a
    round. σ = 0 is Corollary 4.

    >>> nonconvex_bound([2.0, 1.0], n_tasks=10, share=0.5, smoothness=1.0, penalty=0.75, dim=4,
    ...                 sigma=0.5)
    4.05
    """
    rounds = len(losses)
    if not rounds:
        raise InvalidInput("a bound on rounds needs at least one")
    drift = (smoothness + penalty + share**2) * sum(losses) / rounds
    return 1 / (n_tasks * rounds) + drift + dim * sigma**2


def strongly_convex_bound(
    first_gap: float,
    rounds: int,
    *,
    largest_loss: float,
    step: float,
    share: float,
    margin: float,
    strong_convexity: float,
    smoothness: float,
    penalty: float,
    dim: int,
    sigma: float,
) -> float:
    """Theorem 5, Eq. (12): Δ_T/m ≤ r^T (Δ₀/m − C) + C, r = 1 − ηp(c − 2)(μ + λ).

    ``first_gap`` is Δ₀/m, the mean of f_k(w_k⁰; w̃⁰) − f_k(w_k*; w̃*); ``margin`` c − 2;
    C = (B + (L + λ) dσ²)/(1 − r), so that σ = 0 is Corollary 6. 0 ≤ 1 − r ≤ 1 is the condition.

    >>> strongly_convex_bound(5.0, 1, largest_loss=1.0, step=0.1, share=0.5, margin=2.0,
    ...                       strong_convexity=1.0, smoothness=2.0, penalty=1.0, dim=3, sigma=0.0)
    5.0
    """
    shrunk = step * share * margin * (strong_convexity + penalty)
    if not 0 < shrunk <= 1:
        raise InvalidInput(f"ηp(c − 2)(μ + λ) must be in (0, 1], got {shrunk:g}")
    rest = (largest_loss + (smoothness + penalty) * dim * sigma**2) / shrunk
    return (1 - shrunk) ** rounds * (first_gap - rest) + rest
