r"""Noise that nobody knows: every site adds a share, and h honest ones make up the whole.

A site adds rounded Gaussian noise of deviation s = σ/√h, exact, on the grid g = s/R (R = 2^26), to
its contributions, which are clipped and cut toward zero onto the same grid. What the others cannot
subtract is the noise of the honest sites that were heard, h at least: variance hs² = σ² or more,
and more noise is post-processing. Shares of σ²/n would leave less to those who know the others'.

**Closeness.** The sum of h rounded Gaussians N_r(s) is no rounded Gaussian; it is close to one. In
steps of g (so s = R), with N_Z(s) the discrete Gaussian and φ_s the density:

1. N_r(s)(k) = ∫_{k−½}^{k+½} φ_s = φ_s(k)(1 + (z² − 1)/24s² + …), z = k/s, and N_Z(s)(k) = φ_s(k)
   up to a factor 1 ± 2e^{−2π²s²}: TV(N_r(s), N_Z(s)) ≤ E|z² − 1|/48s² + … < 0.0203/s².
2. The sum of h of N_Z(s) and N_Z(√h s) differ by a factor e^{±τ}, τ = 10 Σ_k e^{−2π²s²k/(k+1)}
   (Kairouz, Liu, Steinke, ICML 2021, Theorem 10), with s = 2^26 below any number that we write.
3. As in 1, TV(N_Z(√h s), N_r(√h s)) < 0.0203/hs².

Distances add over independent parts, so a coordinate of the sum is within η = (h + 1) · 0.021/R² of
rounded N(0, σ²), which is the Gaussian mechanism post-processed: exact GDP with μ = Δ/σ. Over N
coordinates of a run that is (ε, δ + (1 + e^ε) N η)-DP. A fixed part of δ is kept for it
(``SPARED``), and a run for which that is not enough is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tacit.arrays import Array, FloatArray, IntArray
from tacit.errors import InvalidInput
from tacit.federation.arrived import Arrived
from tacit.federation.masking import Masks
from tacit.privacy.budget import OTHER_TASKS, Budget, Guarantee
from tacit.privacy.mechanisms.grid import grid
from tacit.privacy.mechanisms.products import WithGaussianNoise
from tacit.privacy.noise import RESOLUTION
from tacit.privacy.planning import UNIT

SPARED = 2.0**-10
"""The part of δ that is kept for the closeness of the noise."""


def hidden_promise(sites: int, fewest: int) -> Guarantee:
    """Task-level DP against the operator too, who sees sums alone."""
    return replace(
        UNIT,
        adversary=f"the operator and {OTHER_TASKS}",
        not_covered=(
            f"more than {sites - fewest} of {sites} sites colluding with the operator or dropping "
            "out, those whom it leaves out among them",
            "the site of a task, which has its rows",
            *UNIT.not_covered[1:],
        ),
    )


def closeness(fewest: int) -> float:
    """η: of one coordinate of a sum, from the rounded Gaussian that is accounted for."""
    return (fewest + 1) * 0.021 / RESOLUTION**2


def planned_budget(budget: Budget) -> Budget:
    """What the events of a run may spend."""
    return replace(budget, delta=budget.delta * (1 - SPARED))


def require_close(budget: Budget, fewest: int, coordinates: int) -> None:
    """InvalidInput where the spared part of δ does not cover so many numbers."""
    needed = (1 + math.exp(budget.epsilon)) * coordinates * closeness(fewest)
    if not needed <= budget.delta * SPARED:
        raise InvalidInput(
            f"{coordinates} numbers of noise in shares need {needed:.2g} of delta, and "
            f"{budget.delta * SPARED:.2g} are spared for it"
        )


def threshold(sites: int, fewest: int) -> int:
    """How many shares open a secret: 2t > 2n − h, so that a coordinator with n − h sites on its
    side cannot get both secrets of an honest one by telling two stories about who was heard."""
    return sites - math.ceil(fewest / 2) + 1


def enough(sites: int, fewest: int) -> int:
    """How many sites must be heard before anything is opened."""
    return max(fewest, threshold(sites, fewest))


def gaussian(mechanism: Any) -> WithGaussianNoise:
    """The mechanism, if its noise comes in shares; InvalidInput for another law's."""
    if not isinstance(mechanism, WithGaussianNoise):
        raise InvalidInput(f"noise in shares is Gaussian, not that of {type(mechanism).__name__}")
    return mechanism


def share(mechanism: WithGaussianNoise, fewest: int) -> WithGaussianNoise:
    """The mechanism of one site: the same statistic, noise of σ/√h."""
    return replace(mechanism, sigma=mechanism.sigma / math.sqrt(fewest))


@dataclass(frozen=True)
class Masked(Arrived):
    """A site's sum, with its share of the noise, under its masks: what its own ledger releases.

    It reveals what the whole mechanism does, as long as h honest sites are heard.
    """

    takes_rows: ClassVar = True

    fewest: int
    masks: Masks

    def release(self, contributions: FloatArray, rng: Any, shares: Any = None) -> Array:
        """(size,), modulo 2^64."""
        part = share(gaussian(self.of), self.fewest)
        counts: IntArray = part.counts(contributions, shares)
        noisy = counts + part.noise.rounded(counts.shape)
        return np.asarray(noisy.astype(np.uint64) + self.masks)


def shaped(mechanism: WithGaussianNoise, fewest: int, total: Masks, shape: Any) -> FloatArray:
    """From grid steps modulo 2^64 to what a mechanism releases, for contributions of this shape."""
    part = share(mechanism, fewest)
    steps = total.astype(np.int64) * grid(part.noise.scale)
    return part.statistic.shaped(np.asarray(steps), shape)
