"""Mechanisms: each clips what it is given, sums it, and adds noise that its clip norm justifies.

=====================  =====================  ======================  ===================  ======
mechanism              releases               Δ (replace, zero-out)   reveals              secure
=====================  =====================  ======================  ===================  ======
``GaussianSum``        Σ x                    ℓ2: 2C, C               Gaussian(Δ/σ)        yes
``VoteSum``            Σ x, x ≥ 0             ℓ2: √2 C, C             Gaussian(Δ/σ)        yes
``SymmetricGaussian``  Σ wwᵀ                  ‖·‖_F: √2 K², K²        Gaussian(Δ/σ)        yes
``DiagonalGaussian``   Σ w∘w                  ℓ2: √2 K², K²           Gaussian(Δ/σ)        yes
``GramGaussian``       WᵀW                    ‖·‖_F, grows with √m    Gaussian(Δ/σ)        yes
``LaplaceSum``         Σ x                    ℓ1: 2C, C               Pure(Δ/scale)        yes
``KNormSum``           Σ x                    ℓ2: 2C, C               Pure(Δ/scale)        no
``TwoSidedWishart``    Σ wwᵀ                  ‖·‖_*: 2K², K²          Pure(Δ/2·scale)      no
``PublishedWishart``   Σ wwᵀ                  none: not private       Pure(ε), a claim     no
=====================  =====================  ======================  ===================  ======

Those of ``mechanisms.local`` sum nothing: each row becomes a report of its own.
``rng=None`` draws secure noise from the operating system; a generator means a simulation.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

import numpy as np

from tacit.privacy.accounting import Event
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms.covariances import (
    DiagonalGaussian,
    GramGaussian,
    SymmetricGaussian,
    covariance_sensitivity,
    sensitivity_gram,
)
from tacit.privacy.mechanisms.rows import clip_rows, smat, svec
from tacit.privacy.mechanisms.sums import (
    GaussianSum,
    KNormSum,
    LaplaceSum,
    VoteSum,
    sum_sensitivity,
    vote_sensitivity,
)
from tacit.privacy.mechanisms.wishart import (
    PublishedWishart,
    TwoSidedWishart,
    nuclear_sensitivity,
)
from tacit.privacy.noise import FloatArray

PURE = ("LaplaceSum", "KNormSum", "TwoSidedWishart")
"""The mechanisms that may be used with delta = 0. It is claimed where the noise is drawn exactly
(``secure``): of ``LaplaceSum``. Of the others it holds in real numbers, and a guarantee says so."""


class Mechanism(Protocol):
    """A frozen set of public parameters that can release. It is given no sensitivity: it clips."""

    pure: ClassVar[bool]  # may be used with delta = 0, which is claimed only if it is secure too
    proven: ClassVar[bool]  # False: the event is only what a paper claims
    reason: ClassVar[str]  # why the event is not proven or the noise not secure; or ""

    def event(self, neighbours: Neighbours) -> Event:
        """What one release reveals about one unit whose share is 1."""
        ...

    def release(
        self,
        contributions: FloatArray,
        rng: np.random.Generator | None,
        shares: FloatArray | None = None,
    ) -> FloatArray:
        """Clip each row, sum, add noise. Unit i, with a share in [0, 1], reveals shares[i] · event.

        A row that is not finite contributes zero. No rows at all: the noise alone.
        """
        ...

    def secure(self, rng: np.random.Generator | None) -> bool:
        """Does a release with this rng have exact noise from the operating system?"""
        ...

    def values(self, shape: tuple[int, ...]) -> int:
        """How many noise values one release of contributions of this shape draws."""
        ...

    def to_dict(self) -> dict[str, object]:
        """Name and parameters as JSON, for the ledger and the certificate."""
        ...


__all__ = [
    "PURE",
    "DiagonalGaussian",
    "GaussianSum",
    "GramGaussian",
    "KNormSum",
    "LaplaceSum",
    "Mechanism",
    "PublishedWishart",
    "SymmetricGaussian",
    "TwoSidedWishart",
    "VoteSum",
    "clip_rows",
    "covariance_sensitivity",
    "nuclear_sensitivity",
    "sensitivity_gram",
    "smat",
    "sum_sensitivity",
    "svec",
    "vote_sensitivity",
]
