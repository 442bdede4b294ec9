"""What a whole run costs as a Gaussian, so that it adds up with runs that are chosen later.

A run is *dominated* by (μ, δ₀) if, in both orders of every two neighbours,

    δ_run(ε) ≤ (1 − δ₀) δ_GDP(ε; μ) + δ₀    for all ε ≥ 0.                                     (1)

The right side is the curve of this pair: with probability δ₀ everything is revealed, else
N(0, 1) or N(μ, 1) is drawn. It is symmetric, so (1) in both orders is the same as domination for
all real ε, and by Blackwell's theorem whatever the run outputs can be computed from that pair.

**Why they add up, whoever chooses the runs, and when.** Let runs be chosen one after another, each
after seeing all outputs so far, while Σμ² ≤ M² and Σδ₀ ≤ D stay within caps that were fixed before
the first. Replace every run by its pair. Let w = Π(1 − δ₀) ≥ 1 − D over the runs of an outcome with
no coin fallen, and P', Q' the laws without coins. For every event S

    P(S) − e^ε Q(S) ≤ D + ∫_S w (dP' − e^ε dQ') ≤ D + ∫ (dP' − e^ε dQ')₊ ≤ D + δ_GDP(ε; M),

the last by the Gaussian filter (Smith and Thakurta 2022; Koskela et al. 2022). Without δ₀ this
would be useless: the tail of a sampled Gaussian is that of the unsampled one.

**Why a grid is enough.** Both sides of (1) fall as ε grows. So on a cell [a, b] it holds if

    δ_run(a) ≤ (1 − δ₀) δ_GDP(b; μ) + δ₀,

and beyond the first ε with δ_run(ε) ≤ δ₀ it always does. The grid covers all of [0, that ε].
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from tacit.arrays import FloatArray
from tacit.privacy.bracket import beyond, rounding
from tacit.privacy.composition import epsilon_at, loss_distribution
from tacit.privacy.events import Approximate, Event, EventCounts, Gaussian, counted
from tacit.privacy.gaussian import gaussian_deltas, gaussian_epsilon, smallest

SHARES = (0.5, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01, 0.001)
"""The parts of δ among which δ₀ is chosen: a public rule, whatever the data are."""

_CELLS = 4096
_COARSER = 10.0  # than the grid of one run's ε: a thousandth of μ is enough here


def dominating(events: Iterable[Event], delta: float, *, runs: int = 1) -> tuple[float, float]:
    """(μ, δ₀) of a run under a cap with this δ: the pair with which ``runs`` such runs cost least.

    >>> mu, lost = dominating([Gaussian(0.3), Gaussian(0.4)], 1e-5)
    >>> round(mu, 12), lost
    (0.5, 0.0)
    """
    counts = counted(events)
    if (mu := _plain(counts)) is not None:
        return mu, 0.0
    return _dominating(counts, delta, runs)


@lru_cache(maxsize=256)
def _dominating(counts: EventCounts, delta: float, runs: int) -> tuple[float, float]:
    sure = _revealed(counts)
    every = [sure + share * (delta / runs - sure) for share in SHARES]
    candidates = [lost for lost in every if lost > sure + 2 * rounding(counts)]
    if not candidates:
        return math.inf, delta / runs
    curve = _curve(counts, min(candidates))
    pairs = [(_smallest_mu(*curve, lost), lost) for lost in candidates]
    return min(
        pairs, key=lambda pair: gaussian_epsilon(delta - runs * pair[1], math.sqrt(runs) * pair[0])
    )


def _plain(counts: EventCounts) -> float | None:
    """μ = √Σμ² without amplification, where that is all: Gaussians, or losses too large for a grid.

    None elsewhere.
    """
    if not (beyond(counts) or all(isinstance(event, Gaussian) for event, _ in counts)):
        return None
    squares = (n * getattr(e, "mu", math.inf) ** 2 for e, n in counts)
    return math.sqrt(sum(squares))


def _revealed(counts: EventCounts) -> float:
    """The probability 1 − Π(1 − δ)^n that (ε, δ)-DP releases may reveal everything: δ₀ is more."""
    kept = (n * math.log1p(-e.delta) for e, n in counts if isinstance(e, Approximate))
    return -math.expm1(math.fsum(kept))


def _curve(counts: EventCounts, least: float) -> tuple[FloatArray, FloatArray]:
    """A grid of ε from 0 to where δ_run ≤ least, and δ_run there at most; no grid if it never is.

    ``least`` is the smallest δ₀ that will be asked for.
    """
    losses, slack = loss_distribution(counts, _COARSER), rounding(counts)
    last = epsilon_at(losses, least - slack) if least > slack else math.inf
    if math.isinf(last):
        return np.zeros(0), np.zeros(0)
    grid = np.linspace(0.0, last, _CELLS + 1)
    return grid, np.asarray(losses.get_delta_for_epsilon(grid)) + slack


def _smallest_mu(grid: FloatArray, deltas: FloatArray, delta0: float) -> float:
    """The smallest μ with (1) on every cell of the grid."""
    if not grid.size:
        return math.inf
    cells = deltas[:-1] > delta0  # δ_run at the left end; where it is less, (1) holds
    needed = (deltas[:-1][cells] - delta0) / (1 - delta0)
    right = grid[1:][cells]
    return smallest(lambda mu: bool(np.all(gaussian_deltas(right, mu) >= needed)), tolerance=1e-10)
