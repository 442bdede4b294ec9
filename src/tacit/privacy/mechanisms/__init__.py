"""Mechanisms: each is a statistic of clipped rows × a noise that the clip norm justifies.

=====================  =====================  ======================  ===================  ======
mechanism              releases               Δ (replace, zero-out)   reveals              secure
=====================  =====================  ======================  ===================  ======
``GaussianSum``        Σ x                    ℓ2: 2C, C               Gaussian(Δ/σ)        yes
``VoteSum``            Σ x, x ≥ 0             ℓ2: √2 C, C             Gaussian(Δ/σ)        yes
``SymmetricGaussian``  Σ wwᵀ                  ‖·‖_F: √2 K², K²        Gaussian(Δ/σ)        yes
``DiagonalGaussian``   Σ w∘w                  ℓ2: √2 K², K²           Gaussian(Δ/σ)        yes
``GramGaussian``       WᵀW                    ‖·‖_F, grows with √m    Gaussian(Δ/σ)        yes
``MomentsGaussian``    Σ zzᵀ of coded rows    ℓ2: block_moments.py    Gaussian(Δ/σ)        yes
``SideBySide``         k of the first three   √k times theirs         Gaussian(Δ/σ)        yes
``LaplaceSum``         Σ x                    ℓ1: 2C, C               Pure(Δ/scale)        yes
``DiagonalLaplace``    Σ w∘w                  ℓ1: 2K², K²             Pure(Δ/scale)        yes
``KNormSum``           Σ x                    ℓ2: 2C, C               Pure(Δ/scale)        no
``TwoSidedWishart``    Σ wwᵀ                  ‖·‖_*: 2K², K²          Pure(Δ/2·scale)      no
``PublishedWishart``   Σ wwᵀ or WᵀW           none: not private       Pure(ε), a claim     no
=====================  =====================  ======================  ===================  ======

``EachRow`` releases every row of a sum by itself. Those of ``mechanisms.local`` sum nothing: each
row becomes a report of its own. ``rng=None`` draws secure noise from the operating system; a
generator means a simulation.
"""

from __future__ import annotations

from typing import Any

from tacit.privacy.mechanisms.block_moments import Blocks
from tacit.privacy.mechanisms.clipping import clip_rows
from tacit.privacy.mechanisms.grid import svec
from tacit.privacy.mechanisms.noisy_statistic import NoisyStatistic
from tacit.privacy.mechanisms.products import (
    DiagonalGaussian,
    DiagonalLaplace,
    EachRow,
    GaussianSum,
    GramGaussian,
    KNormSum,
    LaplaceSum,
    MomentsGaussian,
    PublishedWishart,
    SymmetricGaussian,
    TwoSidedWishart,
    VoteSum,
)
from tacit.privacy.mechanisms.sensitivities import sum_sensitivity
from tacit.privacy.mechanisms.side_by_side import SideBySide

NAMED: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        GaussianSum, VoteSum, SymmetricGaussian, DiagonalGaussian, GramGaussian,
        MomentsGaussian, SideBySide, LaplaceSum, DiagonalLaplace, KNormSum, TwoSidedWishart,
        PublishedWishart,
    )
}  # fmt: skip
"""By the name in their record: whoever has that can compute their event again."""

PURE = tuple(name for name, kind in NAMED.items() if kind.law.pure and kind.law.proven)
"""The mechanisms that may be used with delta = 0. It is claimed where the noise is drawn exactly
(``secure``): of Laplace noise. Of the others it holds in real numbers, and a guarantee says so."""

__all__ = [
    "NAMED",
    "PURE",
    "Blocks",
    "DiagonalGaussian",
    "DiagonalLaplace",
    "EachRow",
    "GaussianSum",
    "GramGaussian",
    "KNormSum",
    "LaplaceSum",
    "MomentsGaussian",
    "NoisyStatistic",
    "PublishedWishart",
    "SideBySide",
    "SymmetricGaussian",
    "TwoSidedWishart",
    "VoteSum",
    "clip_rows",
    "sum_sensitivity",
    "svec",
]
