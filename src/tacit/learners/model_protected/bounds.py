"""S1's bounds and rules, as numbers: Lemmas 1 and 2, Theorems 2–16, Table 2, the T they suggest.

An O(·) or Θ(·) of the paper is the value inside it, its constant taken as 1: good for comparing
settings, not a guarantee of an error. They bound the published algorithms, whose noise is not
private (docs/privacy.md, A); the schedules that minimise them are what ``recommended`` returns.

**Symbols**: m ``n_tasks``, d ``dim``, k ``rank`` (of a group-sparse pattern: its active rows), K
``clip_norm``, L ``smoothness``, μ/L ``ratio``; Q₀ = 1 − μ/L, Q₀′ = 1 − √(μ/L).

The text that we have of the paper reads √(mε) and √(|2α + 1|ε) where its proofs (Lemma 9) and its
Assumption 1 need √m·ε and √|2α + 1|·ε; and Table 2 says 2/9 and 1/3 for accelerated steps and
strong convexity, where Theorems 11 and 6 say 1. Here it is what the theorems say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tacit.arrays import FloatArray
from tacit.errors import InvalidInput
from tacit.learners.model_protected.covariance_schedule import recommended

# --- one proximal step ---------------------------------------------------------------------------


def low_rank_error(C: FloatArray, E: FloatArray, step: float, penalty: float) -> float:
    """Lemma 1, Eq. (9): how far the noisy step is from the prox of λ‖·‖_* at C (d, m), at most.

    Its condition 2σ₁(E) ≤ √σ_j(C) − √σ_{j+1}(C), j ≤ k, is the caller's to see to.

    >>> round(low_rank_error(np.diag([4.0, 1.0]), 0.01 * np.eye(2), 1.0, 2.0), 6)  # k = 1, r = 2
    1.5
    """
    level, sizes = step * penalty, np.linalg.svd(C, compute_uv=False)
    k, rank = int((sizes > level).sum()), int(np.linalg.matrix_rank(C))
    noise = float(np.linalg.norm(E, 2))
    moved = (k**2 / level + 2 * k) * noise + max(0, rank - k) * math.sqrt(noise)
    return float((sizes[0] ** 2 / level + sizes[0]) * moved / step)


def group_sparse_error(C: FloatArray, E: FloatArray, step: float, penalty: float) -> float:
    """Lemma 2, Eq. (10): the same for λ‖·‖_{2,1}; of E only the diagonal counts.

    >>> round(group_sparse_error(np.diag([4.0, 1.0]), 0.01 * np.eye(2), 1.0, 2.0), 6)
    2.05
    """
    level, sizes = step * penalty, np.linalg.norm(C, axis=1)
    k, active, largest = int((sizes >= level).sum()), int((sizes > 0).sum()), float(sizes.max())
    noise = float(np.abs(np.diag(E)).max())
    moved = k / (2 * level) * noise + max(0, active - k) * math.sqrt(noise)
    return (active / level * largest**2 + largest) * moved / step


# --- a run ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """The public sizes of a run, and how its ε_t compose.

    ``composition`` "sum" is Σε_t (δ = 0; Theorems 7–11), "log 1/δ" (12–16) and "log e + ε/δ" (2–6)
    are the other two terms of Definition 7; "auto" the sum where δ = 0, else Theorems 2–6.
    """

    pattern: Literal["low rank", "group sparse"]
    n_tasks: int
    dim: int
    rank: int
    epsilon: float
    delta: float
    clip_norm: float = 1.0
    smoothness: float = 1.0
    composition: Literal["auto", "sum", "log 1/δ", "log e + ε/δ"] = "auto"

    def __post_init__(self) -> None:
        if self.delta == 0 and not self.adds_up:
            raise InvalidInput(f"with delta = 0 all ε_t add up: {self.composition!r} is infinite")
        if not 1 <= self.rank <= self.dim:
            raise InvalidInput(f"rank must be from 1 to dim = {self.dim}, got {self.rank}")

    @property
    def adds_up(self) -> bool:
        """Σε_t = ε."""
        return self.composition == "sum" or (self.composition == "auto" and self.delta == 0)

    @property
    def price(self) -> float:
        """What composition multiplies the noise by: 1, or √(log(·) + 2ε), over ε (Lemma 9)."""
        if self.adds_up:
            return 1 / self.epsilon
        inside = 1 / self.delta
        if self.composition != "log 1/δ":
            inside = math.e + self.epsilon / (math.sqrt(2) * self.delta)
        return math.sqrt(math.log(inside) + 2 * self.epsilon) / self.epsilon

    @property
    def size(self) -> float:
        """K k d log d/√m, or k log d/m: what M has beside M₀."""
        if self.pattern == "group sparse":
            return self.rank * math.log(self.dim) / self.n_tasks
        whole = self.clip_norm * self.rank * self.dim * math.log(self.dim)
        return whole / math.sqrt(self.n_tasks)

    @property
    def tasks_needed(self) -> float:
        """Assumption 1: m must exceed a constant times this.

        >>> low_rank = Setting("low rank", 320, 30, 5, 1.0, 5.4e-4)
        >>> round(low_rank.tasks_needed), round(Setting("group sparse", 320, 30, 5, 1.0, 5.4e-4)
        ...                                     .tasks_needed, 1)
        (95570, 10.3)
        """
        noise = self.price * math.log(self.dim)
        if self.pattern == "group sparse":
            return noise
        return (self.clip_norm * self.dim * noise) ** 2

    @property
    def most_epsilon(self) -> float:
        """The largest ε_t that the theorems allow; infinite where k = d and rows are sparse."""
        k, d, K = self.rank, self.dim, self.clip_norm
        if self.pattern == "low rank":
            return 4 * K * k**2 * d * math.log(d) / min(d, self.n_tasks) ** 2
        spread = 4 * K * d * (d - k) ** 2 * self.n_tasks
        return k**2 * math.log(d) / spread if spread else math.inf


# --- convex losses: Theorems 2, 3, 7, 8, 12, 13 --------------------------------------------------


def convex_exponent(alpha: float, *, accelerated: bool, adds_up: bool) -> float:
    """φ(α): Eq. (12), (14), (25), (27), (35), (37).

    >>> convex_exponent(0.4, accelerated=True, adds_up=False) == 4 / 9
    True
    """
    fast = 2 if accelerated else 1
    edge, slow = (-1.0, alpha + 1) if adds_up else (-0.5, (2 * alpha + 1) / 2)
    if alpha > 2 * fast:
        return fast / slow
    if alpha > edge:
        return fast / (2 * fast - edge)
    return fast / (2 * fast - alpha)


def _convex(setting: Setting, alpha: float, accelerated: bool) -> tuple[float, float]:
    """(α/2 − 1)²/M, or (α/2 − 2)²/M; and φ."""
    if setting.adds_up:
        noise = setting.price / abs(alpha + 1)
    else:
        noise = setting.price / math.sqrt(abs(2 * alpha + 1))
    room = (alpha / 2 - (2 if accelerated else 1)) ** 2
    phi = convex_exponent(alpha, accelerated=accelerated, adds_up=setting.adds_up)
    return room / (noise * setting.size), phi


def convex_error(setting: Setting, alpha: float, *, accelerated: bool) -> float:
    """Eq. (11), (13), (15), (16), (24)–(29), (34)–(39): K²L (M/(α/2 − c)²)^φ, c = 1 or 2."""
    ratio, phi = _convex(setting, alpha, accelerated)
    return float(setting.clip_norm**2 * setting.smoothness * ratio**-phi)


def convex_rounds(setting: Setting, alpha: float, *, accelerated: bool) -> float:
    """The T at which that error is reached: ((α/2 − c)²/M)^φ, or its root if accelerated."""
    ratio, phi = _convex(setting, alpha, accelerated)
    return float(ratio ** (phi / (2 if accelerated else 1)))


# --- strongly convex losses: Theorems 4, 5, 9, 10, 14, 15 ----------------------------------------


def contraction(Q: float, Q0: float) -> float:
    """ψ(Q, Q̃), Eq. (18).

    >>> contraction(0.2, 0.5), contraction(0.7, 0.5), contraction(2.0, 0.5)
    (0.2, 0.5, 0.25)
    """
    return Q0 / Q if Q > 1 else min(Q, Q0)


def _strongly_convex(
    setting: Setting, Q: float, ratio: float, accelerated: bool
) -> tuple[float, float, float]:
    """(√Q̃/√Q − 1)²/M, ψ(Q, Q̃) and log_ψ of the rate; Q̃ = Q₀², or Q₀′; ratio = μ/L."""
    rate = 1 - math.sqrt(ratio) if accelerated else 1 - ratio
    tilde = rate if accelerated else rate**2
    room = (math.sqrt(tilde / Q) - 1) ** 2
    noise = setting.price / (abs(1 - Q) if setting.adds_up else math.sqrt(abs(1 - Q**2)))
    psi = contraction(Q, tilde)
    return room / (noise * setting.size), psi, math.log(rate) / math.log(psi)


def strongly_convex_error(setting: Setting, Q: float, ratio: float, *, accelerated: bool) -> float:
    """Eq. (17), (19)–(21), (30)–(33), (40)–(43): K (M/(√Q̃/√Q − 1)²)^{log_ψ rate}; ratio = μ/L."""
    room, _, power = _strongly_convex(setting, Q, ratio, accelerated)
    return float(setting.clip_norm * room**-power)


def strongly_convex_rounds(setting: Setting, Q: float, ratio: float, *, accelerated: bool) -> float:
    """The T at which that error is reached: log_{1/ψ}((√Q̃/√Q − 1)²/M)."""
    room, psi, _ = _strongly_convex(setting, Q, ratio, accelerated)
    return math.log(room) / math.log(1 / psi)


# --- what follows: Theorems 6, 11 and 16, Table 2 ------------------------------------------------


def suggested_rounds(setting: Setting, *, accelerated: bool, ratio: float = 0.0) -> int:
    """T at the recommended α or Q, at least 1; ratio = μ/L, 0 where f is only convex."""
    _, best = recommended(accelerated, ratio, delta=0.0 if setting.adds_up else 1.0)
    if ratio == 0:
        found = convex_rounds(setting, best, accelerated=accelerated)
    else:
        found = strongly_convex_rounds(setting, best, ratio, accelerated=accelerated)
    return max(1, round(found))


def table_2_exponent(*, accelerated: bool, strongly_convex: bool, adds_up: bool) -> float:
    """The power of d log d/(√m ε), or of log d/(m ε), at the recommended schedule.

    >>> [table_2_exponent(accelerated=a, strongly_convex=False, adds_up=False) for a in (0, 1)]
    [0.4, 0.4444444444444444]
    """
    if strongly_convex:
        return 1.0 if accelerated else 0.5
    _, alpha = recommended(accelerated, 0.0, delta=0.0 if adds_up else 1.0)
    return convex_exponent(alpha, accelerated=accelerated, adds_up=adds_up)


def table_2(setting: Setting, *, accelerated: bool, strongly_convex: bool) -> float:
    """A cell of Table 2: (d log d/(√m ε))^p, or (log d/(m ε))^p."""
    power = table_2_exponent(
        accelerated=accelerated, strongly_convex=strongly_convex, adds_up=setting.adds_up
    )
    bare = setting.size / (setting.rank * setting.epsilon)
    return float((bare / (setting.clip_norm if setting.pattern == "low rank" else 1.0)) ** power)
