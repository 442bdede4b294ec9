"""S4's sensitivity, measured on the samples: for reproduction."""

from __future__ import annotations

import numpy as np

from tacit.arrays import FloatArray

_BLOCK = 64  # rows against all others at a time


def sample_sensitivity(rows: FloatArray) -> float:
    """Δ̂₁ = max ‖φ − φ'‖₁ over all pairs of rows, exactly.

    In few dimensions it is the largest range over the sign vectors u: max_u (max uᵀφ − min uᵀφ).
    In many, rows far from the mean come first, and by the triangle inequality most pairs need not
    be looked at: ‖φ − φ'‖₁ ≤ ‖φ − μ‖₁ + ‖φ' − μ‖₁.

    >>> sample_sensitivity(np.array([[0.0, 0.0], [1.0, -2.0], [0.5, 0.5]]))
    3.0
    """
    size = rows.shape[1]
    if size > 10:
        return _largest_distance(rows)
    signs = 1.0 - 2 * ((np.arange(2 ** (size - 1))[:, None] >> np.arange(size)) & 1)
    return float(max(np.ptp(rows @ sign) for sign in signs))


def _largest_distance(rows: FloatArray) -> float:
    from scipy.spatial.distance import cdist

    lengths = np.abs(rows - rows.mean(axis=0)).sum(axis=1)
    order = np.argsort(-lengths)
    rows, lengths, best = rows[order], lengths[order], 0.0
    for start in range(0, len(rows), _BLOCK):
        reach = np.searchsorted(-lengths, lengths[start] - best)  # of lengths > best − this one's
        if reach <= start:
            break
        block = cdist(rows[start : start + _BLOCK], rows[:reach], "cityblock")
        best = max(best, float(block.max()))
    return best
