"""A design: the linear map before the noise, the mechanism, and the linear decoder after it.

    φ = A x + b,    report = clip(φ, r) + w,    x̂ = C report + d.

Given A, b and the mechanism, the decoder is the best linear one for *clipped* reports (Proposition
1 with the moments of what is really sent):

    C = Cov(x, φ_r) (Cov(φ_r) + Cov(w))⁻¹,   d = E[x] − C E[φ_r],

φ_r = clip(φ, r) and Cov(w) diagonal, from the mechanism's closed form. Its loss on the rows that
gave the moments is exact, clipping bias included, for all mechanisms here: their noise has mean
zero and a covariance that does not depend on the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.privacy.isolation import products
from tacit.privacy.mechanisms.local import LocalMechanism
from tacit.privacy.mechanisms.rows import clip_rows
from tacit.privacy.noise import FloatArray


@dataclass(frozen=True, eq=False)
class Design:
    """An encoder and its decoder; ``mechanism`` None: reports are exact (no budget) or empty."""

    matrix: FloatArray  # (Z, n), A
    bias: FloatArray  # (Z,), b
    mechanism: LocalMechanism | None
    decoder: FloatArray  # (n, Z), C
    offset: FloatArray  # (n,), d

    def encoded(self, X: Any) -> FloatArray:
        """φ (rows, Z) of dense or sparse rows, each by itself; nothing is densified.

        A user's φ must not depend on who else reports. scipy's product walks through a sparse row
        by itself; numpy's takes dense ones in groups.
        """
        dense = isinstance(X, np.ndarray)
        phi = products(X, self.matrix) if dense else np.asarray(X @ self.matrix.T)
        phi += self.bias
        return phi

    def decoded(self, reports: FloatArray) -> FloatArray:
        """x̂ (rows, n)."""
        return np.asarray(reports @ self.decoder.T + self.offset)

    def loss(self, X: FloatArray, K: FloatArray) -> float:
        """E‖K(x̂ − x)‖² over these rows and the noise: exact, no draw."""
        phi = self.encoded(X)
        noise = np.zeros(len(self.bias))
        if self.mechanism is not None:
            phi = clip_rows(phi, self.mechanism.radius)
            noise = self.mechanism.variance(len(self.bias))
        errors = (self.decoded(phi) - X) @ K.T
        spread = (K @ self.decoder) ** 2 @ noise
        return float((errors**2).sum(axis=1).mean() + spread.sum())


def nothing(mean: FloatArray) -> Design:
    """No report at all; everybody is estimated by the mean."""
    n = len(mean)
    return Design(np.zeros((0, n)), np.zeros(0), None, np.zeros((n, 0)), mean)


def with_best_decoder(
    X: Any,
    mean: FloatArray,
    matrix: FloatArray,
    bias: FloatArray,
    mechanism: LocalMechanism | None,
) -> Design:
    """The design whose decoder is best for these rows (dense or sparse)."""
    phi = np.asarray(X @ matrix.T) + bias
    noise = np.zeros(len(bias))
    if mechanism is not None:
        phi = clip_rows(phi, mechanism.radius)
        noise = mechanism.variance(len(bias))
    level = phi.mean(axis=0)
    centred = phi - level
    spread = centred.T @ centred / len(phi) + np.diag(noise)
    cross = np.asarray(X.T @ centred) / len(phi)  # (n, Z), Cov(x, φ_r): centred has mean zero
    C = np.linalg.lstsq(spread, cross.T, rcond=None)[0].T
    return Design(matrix, bias, mechanism, C, mean - C @ level)
