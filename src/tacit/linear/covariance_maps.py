"""From a noisy covariance of models to what tasks can use: S1 Algorithm 1, step 6."""

from __future__ import annotations

import numpy as np

from tacit.arrays import FloatArray
from tacit.linear.row_algebra import times_each
from tacit.linear.thresholds import shrunk

FLOOR = 0.02  # of the largest variance: what no release can take from a direction


def trace_map(covariance: FloatArray, level: float, most: int | None = None) -> FloatArray:
    """M = U max(0, 1 − ηλ/√Λ) Uᵀ (d, d), of Σ = UΛUᵀ; S1 Algorithm 2, steps 6–8.

    ``most`` keeps only that many of the largest eigenvalues, as printed: min(d, m).

    >>> trace_map(np.diag([4.0, 0.25]), 1.0).round(12) + 0.0
    array([[0.5, 0. ],
           [0. , 0. ]])
    """
    values, U = np.linalg.eigh(covariance)
    factors = shrunk(np.sqrt(np.maximum(values, 0.0)), level)
    if most is not None:
        factors[: max(0, len(factors) - most)] = 0.0  # eigh: ascending
    return np.asarray((U * factors) @ U.T)


def group_map(diagonal: FloatArray, level: float) -> FloatArray:
    """The diagonal of M, max(0, 1 − ηλ/√|Σ_jj|); S1 Algorithm 3, steps 6–7.

    >>> group_map(np.array([4.0, 0.25]), 1.0)
    array([0.5, 0. ])
    """
    return shrunk(np.sqrt(np.abs(diagonal)), level)


def applied(shared_map: FloatArray, W: FloatArray) -> FloatArray:
    """M w for every row w of W (m, d); M is (d, d), (d,) for a diagonal, or (m, 1) by task."""
    if shared_map.shape == (W.shape[1],) * 2:
        return times_each(W, shared_map)
    return np.asarray(W * shared_map)


def spread(covariance: FloatArray, threshold: float) -> FloatArray:
    """The prior covariance that a trace-norm or ℓ2,1 penalty implies: (Σ − threshold)₊^½.

    Of a matrix (d, d) or a diagonal (d,); at least FLOOR of its largest, scaled to mean one. At the
    optimum of Σ L_i + λ‖W‖_* every column solves L_i + (λ/2) wᵀ(WWᵀ)^{−½}w.

    >>> spread(np.array([9.0, 1.0, 1.0]), 1.0).round(3)
    array([2.885, 0.058, 0.058])
    """
    if covariance.ndim == 1:
        return _normalised(np.sqrt(np.maximum(covariance - threshold, 0.0)))
    values, U = np.linalg.eigh(covariance)
    return np.asarray((U * _normalised(np.sqrt(np.maximum(values - threshold, 0.0)))) @ U.T)


def _normalised(sizes: FloatArray) -> FloatArray:
    largest = float(sizes.max(initial=0.0))
    if largest <= 0:
        return np.ones_like(sizes)
    raised = np.maximum(sizes, FLOOR * largest)
    return np.asarray(raised / raised.mean())
