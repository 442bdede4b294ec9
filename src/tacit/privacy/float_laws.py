"""Laws drawn in floating point, for mechanisms that have no exact sampler: they snap to a grid."""

from __future__ import annotations

import numpy as np

from tacit.arrays import FloatArray


def knorm(shape: int | tuple[int, ...], rng: np.random.Generator) -> FloatArray:
    """Vectors along the last axis with density ∝ exp(−‖b‖₂): direction uniform, radius Gamma.

    >>> knorm(3, np.random.default_rng(0)).shape
    (3,)
    """
    vectors = rng.standard_normal(shape)
    if vectors.size:
        length = np.sqrt(np.einsum("...i,...i->...", vectors, vectors))
        radius = rng.gamma(vectors.shape[-1], size=np.shape(length))
        vectors *= np.asarray(radius / length)[..., None]
    return vectors


def wishart(dim: int, rng: np.random.Generator) -> FloatArray:
    """W_d(d+1, I): the sum of d + 1 outer products of standard normal vectors.

    >>> bool(np.linalg.eigvalsh(wishart(3, np.random.default_rng(0))).min() > 0)
    True
    """
    factor = rng.standard_normal((dim, dim + 1))
    return np.asarray(factor @ factor.T)
