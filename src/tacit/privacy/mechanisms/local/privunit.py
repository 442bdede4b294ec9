"""PrivUnitG: a normal vector that leans towards the user's direction.

Asi, Feldman, Talwar, "Optimal Algorithms for Mean Estimation under Local Differential Privacy",
ICML 2022. A vector of the ball becomes one of the sphere: with t = h/r,

    v = (t, √(1 − ‖t‖²)) ∈ R^{Z+1},   ‖v‖ = 1.

The report is u with u − v⟨u, v⟩ ~ N(0, I − vvᵀ) and α = ⟨u, v⟩ a normal number that is above the
threshold γ with probability p, else below it. Let Q = P(N(0, 1) ≥ γ) and c = 1 − Q.

**ε.** Relative to N(0, I) the density of u is p/Q where ⟨u, v⟩ ≥ γ and (1 − p)/c elsewhere:
two values, whatever v is. So between any two users the ratio is at most

    (p/Q) / ((1 − p)/c) = pc/((1 − p)Q) = e^ε   ⟺   p = Q/(Q + c e^−ε).

**Mean.** E[α | α ≥ γ] = φ(γ)/Q and E[α | α < γ] = −φ(γ)/c, so with κ = 1/(e^ε − 1)

    s := E[α] = φ(γ)(p/Q − (1 − p)/c) = φ(γ)/(κ + Q),

and u/s is unbiased for v, r u/s for r v. In no formula is there the dimension.

**Variance.** E[α² | α ≥ γ] = 1 + γφ(γ)/Q, E[α² | α < γ] = 1 − γφ(γ)/c: E[α²] = 1 + γs, and

    Cov(u/s) = (I − vvᵀ)/s² + vvᵀ (1 + γs − s²)/s² = I/s² + (γ/s − 1) vvᵀ.

s is largest where its derivative vanishes: φ(γ) = γ(κ + Q), that is *γ = s*. There the second term
is gone: every report has covariance (r/s)² I, whatever the user's vector.

**Marginal.** The last coordinate is dropped (post-processing). Given the others, w ∈ R^Z, it is
N(0, 1) under the base measure, so the report's density relative to N(0, I_Z) is

    (1 − p)/c + (p/Q − (1 − p)/c) Φ((⟨w, t⟩ − γ)/√(1 − ‖t‖²)).

**Exactly, in integers** (``rng=None``). v becomes an integer vector M ≈ 2^20 v, and the base
measure π the law of rounded normal vectors U/R (``noise``), which has an exact sampler. The
half-space is H = {⟨U, M⟩ ≥ T}, T ≈ γ‖M‖R, decided in 64-bit integers. For a report outside of it U
is drawn until it is there. For one inside, U + kM is drawn, with a public k ≈ γR/‖M‖, and kept in H
with probability e^−x, x = k(⟨U, M⟩ − T)/R² ≥ 0, by an exact coin: π(U − kM) e^−x = constant · π(U),
up to a factor e^θ. In n = Z + 1 dimensions

    |θ| ≤ ‖kM‖₁/(2R²) ≤ (γ + 0.01)τ,   τ = √n/(2R),

since inside a cell of π each coordinate is off by at most 1/(2R). So ⟨U, M⟩/(‖M‖R) is within τ of
a normal number, and π(H) between its tails beyond γ ± τ: within a factor 1 ± τ(γ + 1) of Q (the
hazard at γ is at most γ + 1), and π outside H within 1 ± τ of c. The level p/Q is met up to
e^{±2θ}, too. Hence with the p of ε − 8τ(γ + 1) the ratio of *any* two reports, however rare, is at
most e^ε: δ = 0. (M is rounded, so that a report's mean is off by about 10^−6 r.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri

from tacit.arrays import BoolArray, FloatArray, IntArray
from tacit.errors import InvalidInput
from tacit.privacy.coins import falls
from tacit.privacy.mechanisms.clipping import clip_rows
from tacit.privacy.mechanisms.grid import grid
from tacit.privacy.mechanisms.local.mechanism import PureReport
from tacit.privacy.noise import RESOLUTION, Rng, SecureSource, Source, rounded_gaussian

MOST_EPSILON = 500.0
"""Beyond it e^−ε and the tail of the normal law leave the floating-point numbers."""

_UNIT = 2.0**20  # of directions in integers


def expected_lean(threshold: float, epsilon: float) -> float:
    """s = φ(γ)/(κ + Q(γ)), κ = 1/(e^ε − 1).

    >>> round(expected_lean(0.0, 1.0), 6)  # φ(0)/(κ + ½) = 2φ(0) tanh(ε/2)
    0.368716
    """
    density = math.exp(-(threshold**2) / 2) / math.sqrt(2 * math.pi)
    return density / (1 / math.expm1(epsilon) + float(ndtr(-threshold)))


@lru_cache(maxsize=256)
def best_threshold(epsilon: float) -> float:
    """The γ with the largest s, which is the γ with s = γ.

    >>> round(best_threshold(1.0), 4)  # 30/γ² ≈ 190, the squared error in 30 dimensions
    0.3975
    """
    upper = math.sqrt(2 * epsilon) + 2
    root = brentq(lambda x: expected_lean(x, epsilon) - x, 0.0, upper, xtol=1e-15)
    return float(root)


class PrivUnitG(PureReport):
    """h clipped to the ball, reported as r u/s (see the module); s depends on ε only.

    Each coordinate's variance is (r/s)², about r²/2ε for a large ε, in any dimension.

    >>> mechanism = PrivUnitG(1.0, 5.0)
    >>> mechanism.release(np.zeros((2, 3)), np.random.default_rng(0)).shape
    (2, 3)
    >>> mechanism.variance(2).round(3)
    array([0.292, 0.292])
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epsilon > MOST_EPSILON:
            raise InvalidInput(f"epsilon must be at most {MOST_EPSILON:g}, got {self.epsilon:g}")

    @property
    def lean(self) -> float:
        """s = γ."""
        return best_threshold(self.epsilon)

    @property
    def above(self) -> float:
        """p = Q/(Q + c e^−ε), rounded down: that lowers the ratio."""
        return _above(self.lean, self.epsilon)

    def reports(self, rows: FloatArray, rng: Rng) -> FloatArray:
        """On the grid of noise of scale r/s, if they are exact."""
        scale, t = self.radius / self.lean, clip_rows(rows, self.radius) / self.radius
        if rng is not None:
            return self._leaning(t, rng) * scale
        exactly = _Leaning.of(self, t.shape[1] + 1)
        return np.asarray(exactly.reports(_lifted(t), SecureSource())[:, :-1] * grid(scale))

    def _leaning(self, t: FloatArray, rng: np.random.Generator) -> FloatArray:
        """z + v(α − ⟨z, v⟩) without its last coordinate, z ~ N(0, I) in Z + 1 dimensions."""
        v = _lifted(t)
        z = rng.standard_normal(v.shape)
        z += v * (self._alpha(len(t), rng) - np.einsum("ij,ij->i", z, v))[:, None]
        return np.asarray(z[:, :-1])

    def _alpha(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Normal numbers above γ with probability p, else below; by inversion."""
        tail = float(ndtr(-self.lean))
        above = rng.random(count) < self.above
        uniform = 1 - rng.random(count)  # in (0, 1]
        drawn = ndtri(uniform * np.where(above, tail, 1 - tail))
        return np.asarray(np.where(above, -drawn, drawn))

    def on_device(self) -> dict[str, object]:
        """With r/s, the chance p of leaning, and the weight of the upper tail."""
        tail = float(ndtr(-self.lean))
        return self.to_dict() | {
            "scale": self.radius / self.lean,
            "above": self.above,
            "tail": tail,
        }

    def variance(self, dim: int) -> FloatArray:
        """(r/s)²."""
        return np.full(dim, (self.radius / self.lean) ** 2)

    def log_density(self, reports: FloatArray, row: FloatArray) -> FloatArray:
        """Of the marginal; with ‖h‖ = r the normal law Φ is a step."""
        scale, t = self.radius / self.lean, row / self.radius
        w = reports / scale
        base = -(w**2 / 2 + math.log(scale * math.sqrt(2 * math.pi))).sum(axis=-1)
        rest = math.sqrt(max(0.0, 1 - float(t @ t)))
        beyond = w @ t - self.lean
        with np.errstate(divide="ignore"):  # ±∞ is what a step needs
            over = ndtr(np.divide(beyond, rest)) if rest else (beyond >= 0).astype(np.float64)
        low, high = self._log_levels()
        return np.asarray(base + low + np.log1p(np.expm1(high - low) * over))

    def _log_levels(self) -> tuple[float, float]:
        """log (1 − p)/c and log p/Q: the density of u relative to the normal law."""
        p = self.above
        return (
            math.log1p(-p) - float(log_ndtr(self.lean)),
            math.log(p) - float(log_ndtr(-self.lean)),
        )


def _above(threshold: float, epsilon: float) -> float:
    """p = Q/(Q + c e^−ε), rounded down."""
    tail = float(ndtr(-threshold))
    exact = tail / (tail + (1 - tail) * math.exp(-epsilon))
    return exact * (1 - 2.0**-40)


def _lifted(t: FloatArray) -> FloatArray:
    """v = (t, √(1 − ‖t‖²)), each on the sphere of one dimension more."""
    squares = np.multiply(t, t, order="C").sum(axis=1)  # of each row by itself: see clip_rows
    rest = np.sqrt(np.maximum(0.0, 1 - squares))
    return np.column_stack([t, rest])


@dataclass(frozen=True)
class _Leaning:
    """The exact sampler of the module: γ, p in units of 2^−64, and the shift k."""

    threshold: float
    above: int
    shift: int

    @classmethod
    def of(cls, law: PrivUnitG, dim: int) -> _Leaning:
        """For vectors of the sphere in dim dimensions."""
        gamma = law.lean
        slack = 8 * (gamma + 1) * math.sqrt(dim) / (2 * RESOLUTION)
        if law.epsilon <= 2 * slack:
            raise InvalidInput(
                f"epsilon = {law.epsilon:g} is too small for secure reports of {dim - 1} numbers"
            )
        above = math.floor(math.ldexp(_above(gamma, law.epsilon - slack), 64))
        return cls(gamma, above, round(gamma * RESOLUTION / _UNIT))

    def reports(self, v: FloatArray, source: Source) -> IntArray:
        """U for each direction, in steps of the grid."""
        M = np.rint(v * _UNIT).astype(np.int64)
        T = np.rint(self.threshold * RESOLUTION * np.sqrt(np.einsum("ij,ij->i", M, M)))
        T = T.astype(np.int64)
        above = source.words(len(v)) < np.uint64(self.above)
        U = np.empty(M.shape, dtype=np.int64)
        again = np.arange(len(v))
        while again.size:
            U[again] = rounded_gaussian((again.size, M.shape[1]), source)
            U[again] += self.shift * above[again, None] * M[again]
            beyond = np.einsum("ij,ij->i", U[again], M[again]) - T[again]
            again = again[~self._kept(beyond, above[again], source)]
        return U

    def _kept(self, beyond: IntArray, above: BoolArray, source: Source) -> BoolArray:
        """Outside H if it shall be; else in H, and one of e^−x of them; x in units of R^−2."""
        fallen = falls(self.shift * np.maximum(beyond, 0), source)
        return np.where(above, (beyond >= 0) & fallen, beyond < 0)
