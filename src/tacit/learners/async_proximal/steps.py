r"""How far the server moves on an arrival, and why that converges under delay.

**The iteration.** Let f_t be convex with L-Lipschitz gradient and α ≤ 1/L. The server keeps V;
P = prox_{αλr}(V). Node t was handed p̂_t, the column of an earlier V̂, and answers ∇f_t(p̂_t). Its
own column of V has not moved meanwhile: nobody else moves it. The server sets

.. math:: v_t⁺ = v_t + η (v_t° − v_t),   v_t° = p̂_t − α ∇f_t(p̂_t).

At η = 1 without delay this is proximal gradient descent, one column at a time.

**What it descends.** With ψ_t(p) = ½‖p‖² − αf_t(p), convex and 1-smooth, ψ_t* is 1-strongly
convex. With E(V) = ½‖V‖² − (Moreau envelope of αλr)(V), convex, ∇E = prox. Toland's dual of the
objective, up to the factor α, is

.. math:: D(V) = Σ_t ψ_t*(v_t) − E(V),

with the same infimum, and stationary where v_t = p_t − α∇f_t(p_t): at the optimum. E is convex, so
−E(V⁺) ≤ −E(V) − ⟨P, V⁺ − V⟩. As p̂_t = ∇ψ_t*(v_t°), strong convexity at v_t° and along the segment
from v_t to v_t° gives, with δ = v_t° − v_t and the drift p̂_t − p_t,

.. math:: D(V⁺) − D(V) ≤ η⟨p̂_t − p_t, δ⟩ − ½η(2 − η)‖δ‖²,   0 ≤ η ≤ 1.        (1)

Columns that move in the same step add up in (1): ψ* is separable and the bound on E is joint. So
any number of queued arrivals may go into one step.

**Descent** (the default). The server knows all of (1): p̂_t (it handed it out), p_t, δ. The η in
[0, 1] that minimises the right-hand side is 1 − ⟨p̂_t − p_t, δ⟩/‖δ‖², cut to [0, 1], and then
D falls by ½η²‖δ‖² at least: at every arrival, in every order, whatever the delay. If delays are
bounded the residuals vanish: Σ‖ηδ‖² < ∞, so what P moves within a window → 0, so the drift → 0;
where ‖δ‖ ≥ c > 0 infinitely often, η → 1 there and ‖ηδ‖ ≥ c/2, a contradiction.

**BoundedDelay**. A constant η that needs no look at the messages. Let no view be older than τ steps
when it is used; Δ_k = V_{k+1} − V_k. The prox is non-expansive, so
‖p̂_t − p_t‖ ≤ Σ_{j in the window} ‖Δ_j‖ and ‖p̂_t − p_t‖² ≤ τ Σ_j ‖Δ_j‖². By (1) with ‖Δ‖ = η‖δ‖
and Young's inequality with weight c, the sum over all steps is

.. math:: Σ_k ‖Δ_k‖² [(2 − η)/(2η) − c/2 − τM/(2c)] ≤ D(V_0) − \inf D,

where M counts the trips whose window holds step k: at most τ, and at most T − 1, because each other
node is on one trip at a time. c = √(τM) leaves a positive bracket exactly if

.. math:: η < 2 / (1 + 2√(τ·\min(τ, T − 1))).

The order of arrivals is arbitrary; ARock's similar bound assumes that it is random.

**And q.** With q solved exactly (8), f_t(p) = min_q loss(p + q) + τg(q), which is convex, and L of
the loss serves: its gradient is that of the loss at the minimiser. If p and q step from one
gradient at one point, ψ_t(p, q) = ½‖p‖² + ½‖q‖² − α·loss(p + q) is convex for α ≤ 1/(2L), the pair
(v_t, u_t) is one block, and (1) holds of it if q moves by the same η.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from tacit.errors import InvalidInput
from tacit.linear.losses import FloatArray


class StepRule(Protocol):
    """η of one arrival."""

    @property
    def staleness(self) -> float:
        """The age, in steps, up to which a view may be used; the server refuses older ones."""

    def relaxation(self, drift: FloatArray, move: FloatArray) -> float:
        """η in [0, 1], from p̂_t − p_t and δ = v_t° − v_t, both (d,)."""


@dataclass(frozen=True)
class Descent:
    """The η that the server can see to be safe.

    >>> import numpy as np
    >>> Descent().relaxation(np.array([0.0]), np.array([2.0]))
    1.0
    >>> Descent().relaxation(np.array([0.5]), np.array([2.0]))
    0.75
    """

    staleness: float = math.inf

    def relaxation(self, drift: FloatArray, move: FloatArray) -> float:
        square = float(move @ move)
        if square == 0:
            return 1.0
        return min(1.0, max(0.0, 1 - float(drift @ move) / square))


DESCENT = Descent()


@dataclass(frozen=True)
class BoundedDelay:
    """The constant η for views of at most so many steps.

    >>> BoundedDelay(staleness=0, n_nodes=20).eta
    1.0
    """

    staleness: int
    n_nodes: int

    def __post_init__(self) -> None:
        if self.staleness < 0 or self.n_nodes < 1:
            raise InvalidInput(
                f"expected staleness ≥ 0 of at least one node, got {self.staleness}, {self.n_nodes}"
            )

    @property
    def eta(self) -> float:
        """1% below the bound, and not above 1."""
        return min(1.0, 0.99 * largest_relaxation(self.staleness, self.n_nodes))

    def relaxation(self, drift: FloatArray, move: FloatArray) -> float:
        return self.eta


def largest_relaxation(staleness: int, n_nodes: int) -> float:
    """2 / (1 + 2√(τ·min(τ, T − 1))): every smaller η converges.

    >>> largest_relaxation(1, 20)
    0.6666666666666666
    """
    return 2 / (1 + 2 * math.sqrt(staleness * min(staleness, n_nodes - 1)))


def largest_step(curvature: float, *, joint: bool = False) -> float:
    """α ≤ 1/L, or 1/(2L) where p and q step from one gradient (Hessian [[H, H], [H, H]]).

    ``curvature`` is L: the largest eigenvalue of X_tᵀX_t/n_t over all nodes for the squared loss, a
    quarter of it for the logistic; of private nodes a declared bound, max‖x‖² or a quarter of it.
    """
    if not 0 < curvature < math.inf:
        raise InvalidInput(f"the largest curvature must be positive and finite, got {curvature}")
    return 1 / (2 * curvature) if joint else 1 / curvature


def curvature_with_own(curvature: float, own_level: float) -> float:
    """L of p ↦ min_q f(p + q) + τ‖q‖²: 1/(1/L + 1/(2τ)), which is small where q is nearly free.

    The conjugate of an infimal convolution is the sum of the conjugates, f* + ‖·‖²/(4τ), whose
    strong convexity is 1/L + 1/(2τ).

    >>> curvature_with_own(1.0, 0.5)
    0.5
    """
    return 1 / (1 / curvature + 1 / (2 * own_level))
