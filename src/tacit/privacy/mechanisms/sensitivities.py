"""By how much one unit can move a statistic of rows that are clipped.

Let x → x' be one unit's row before and after, both clipped to norm C. A sum changes by x' − x, so
by the triangle inequality its sensitivity in the norm of the clip is 2C under replace (reached at
x' = −x), and C under zero-out (x' = 0). Cutting rows onto the grid keeps ‖x‖ ≤ C, so it also
holds of secure sums, exactly. Rows without negative entries, such as votes, are nearer to each
other: ‖x' − x‖₂² = ‖x'‖² + ‖x‖² − 2⟨x', x⟩ ≤ 2C², on the grid too, as no entry changes its sign.
"""

from __future__ import annotations

import math

from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms.clipping import by_neighbours


def sum_sensitivity(clip_norm: float, neighbours: Neighbours) -> float:
    """Of a sum of rows of norm ≤ C, in that norm: 2C (replace), C (zero-out).

    >>> sum_sensitivity(1.5, "replace"), sum_sensitivity(1.5, "zero-out")
    (3.0, 1.5)
    """
    return by_neighbours(neighbours, replace=2 * clip_norm, zero_out=clip_norm)


def vote_sensitivity(clip_norm: float, neighbours: Neighbours) -> float:
    """Of a sum of rows of ℓ2 norm ≤ C without negative entries: √2 C (replace), C (zero-out).

    √2 C is reached by two votes that have nothing in common, C e₁ and C e₂.

    >>> round(vote_sensitivity(1.0, "replace"), 6), vote_sensitivity(1.0, "zero-out")
    (1.414214, 1.0)
    """
    return by_neighbours(neighbours, replace=math.sqrt(2) * clip_norm, zero_out=clip_norm)


def covariance_sensitivity(clip_norm: float, neighbours: Neighbours) -> float:
    """Of Σ wwᵀ in Frobenius norm, and of its diagonal in ℓ2: √2 K² (replace), K² (zero-out).

    ‖wwᵀ − vvᵀ‖_F² = ‖w‖⁴ + ‖v‖⁴ − 2(wᵀv)² ≤ 2K⁴, reached by orthogonal w, v of norm K; with v = 0
    it is ‖w‖⁴ ≤ K⁴. The diagonal is part of the matrix, and w = K e₁, v = K e₂ are all diagonal.

    >>> round(covariance_sensitivity(2.0, "replace"), 6), covariance_sensitivity(2.0, "zero-out")
    (5.656854, 4.0)
    """
    square = clip_norm**2
    return by_neighbours(neighbours, replace=math.sqrt(2) * square, zero_out=square)


def nuclear_sensitivity(clip_norm: float, neighbours: Neighbours) -> float:
    """Of Σ wwᵀ in nuclear norm: ‖wwᵀ − vvᵀ‖_* ≤ ‖w‖² + ‖v‖² ≤ 2K² (replace), ‖w‖² ≤ K² (zero-out).

    Orthogonal w, v of norm K reach it: the eigenvalues are K² and −K². The same numbers bound the
    diagonal in ℓ1, a sum of rows w∘w with ‖w∘w‖₁ = ‖w‖₂² ≤ K².

    >>> nuclear_sensitivity(2.0, "replace"), nuclear_sensitivity(2.0, "zero-out")
    (8.0, 4.0)
    """
    square = clip_norm**2
    return by_neighbours(neighbours, replace=2 * square, zero_out=square)


def sensitivity_gram(clip_norm: float, units: int, neighbours: Neighbours) -> float:
    """Of WᵀW (m×m) in Frobenius norm: K²√(8(m−1)) (replace), K²√(2m−1) (zero-out).

    Replacing column w by v changes a row and a column: with a = ‖w‖, b = ‖v‖,
    Δ² = 2 Σ_j (w_jᵀ(w−v))² + (a²−b²)² ≤ (a+b)² (2(m−1)K² + (a−b)²). With t = |a−b|, a+b ≤ 2K−t, and
    (2K−t)²(2(m−1)K² + t²) falls with t for m ≥ 2: at most 8(m−1)K⁴, reached where all w_j = w = −v.
    With v = 0: 2(m−1)K²a² + a⁴ ≤ (2m−1)K⁴. A single unit has only the diagonal: K² for both.

    >>> sensitivity_gram(1.0, 3, "replace"), round(sensitivity_gram(1.0, 3, "zero-out"), 6)
    (4.0, 2.236068)
    """
    square = clip_norm**2
    return by_neighbours(
        neighbours,
        replace=square * math.sqrt(8 * (units - 1)) if units > 1 else square,
        zero_out=square * math.sqrt(2 * units - 1),
    )
