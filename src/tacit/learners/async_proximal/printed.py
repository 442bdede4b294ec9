r"""S3 as it is printed: every letter of Algorithm 1 and of its experiments, as a parameter.

``AsyncProximal(as_published=Printed(...))`` runs Algorithm 1, or Eq. (6)–(9), letter by letter;
``as_published=True`` is ``Printed()``, the settings of §4.1. With a budget every message carries
both noises, and nothing is proven (paper_nodes.py); with ``budget=None`` it is the paper's ε = ∞.

=======  =================  =====================================================================
letter   parameter
=======  =================  =====================================================================
α₁, α₂   ``own_step``       of q at the node (line 9), and ``shared_step`` of P at the server
λ        ``level``          of r in Eq. (1), and of (λ/2)‖q‖² in line 8
τ        ``own_level``      of g in Eq. (2), where it is not λ; g = ½‖q‖², or the formulation's
μ        ``threshold``      of the prox, Eq. (5). Algorithm 1 has α₂λ; §4.1 sets it by itself, so
                            that P has rank 3: 1.5·10⁻³ where α₂λ is 10⁻⁴ or 10⁻⁶
C₁       ``row_norm``       ‖x‖ ≤ C₁. Rows that are longer are cut to it
C₂       ``slope_bound``    |ℓ′| ≤ C₂
C₃, C₄   ``model_bounds``   of ‖p + q‖ and ‖p + q + z₁‖ (Theorem 3.6), assumed
ε₁, ε₂   ``epsilons``       of one message
ν        ``stop``           ends the run when ‖W⁽ᵏ⁺¹⁾ − W⁽ᵏ⁾‖ ≤ ν (§3.4)
MAX      ``releases``       of the estimator, as the delays are: ``latency``
=======  =================  =====================================================================

An iteration is as many messages as there are nodes. S3's least squares is (x·w − y)², without our
½ (Theorem 3.6), so that its steps and λ mean here what they mean there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from tacit.arrays import FloatArray
from tacit.errors import InvalidInput
from tacit.learners.async_proximal.formulations import Formulation
from tacit.linear.losses import Loss, Squared
from tacit.linear.penalties import Penalty
from tacit.parameters import Between, Checked, Count, NonNegative, Positive
from tacit.privacy.budget import Budget

LEVEL = {"squared": 1e-5, "logistic": 1e-3}  # λ, S3 §4.1
ROUNDING = 1e-9  # of a sum of equal claims


class LeastSquares(Squared):
    """ℓ = (η − y)², as S3 has it: twice ours.

    >>> LeastSquares().slope(3.0, 1.0)
    4.0
    """

    most_curvature = 2.0

    def value(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        return 2 * super().value(eta, y)

    def slope(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        return 2 * super().slope(eta, y)

    def curvature(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        return 2 * super().curvature(eta, y)


def as_printed(loss: Loss) -> Loss:
    """In S3's units."""
    return LeastSquares() if loss.quadratic else loss


@dataclass(frozen=True, kw_only=True)
class Printed(Checked):
    """S3's letters; the defaults are §4.1's for its synthetic data.

    ``order`` "gauss-seidel" sends the gradient at the new q, Eq. (9) and Algorithm 1, "jacobi" at
    the old one, Eq. (6)–(7); ``own`` "single" is one step of q, "exact" Eq. (8). ``start`` is q⁽⁰⁾:
    a single-task model, or zero. ``server`` "last-gradients" is Algorithm 1's, which applies
    everybody's last gradient once more on each arrival; "descent", without privacy only, is the one
    that provably converges whatever the delay (updates.py), and knows its "safe" step.
    ``staleness`` 0 is the synchronous schedule. ``record_every``: iterations from one line of the
    trajectory to the next.

    >>> Printed(epsilons=(0.5, 1.0)).claimed(releases=100).epsilon > 150
    True
    """

    own_step: Positive | Literal["safe"] = 0.1
    shared_step: Positive | Literal["safe"] = 0.1
    level: NonNegative | None = None  # None: that of §4.1, by the loss
    own_level: NonNegative | None = None  # None: λ
    threshold: NonNegative | None = 1.5e-3  # None: α₂λ
    row_norm: Positive | None = None  # None: √D, of features in [−1, 1]
    slope_bound: Positive | None = None  # None: 1 (logistic) or 2(C₁C₃ + 1)
    model_bounds: tuple[Positive, Positive] = (1.0, 1.0)
    epsilons: tuple[Positive, Positive] | None = None  # None: equal parts of the budget
    order: Literal["gauss-seidel", "jacobi"] = "gauss-seidel"
    own: Literal["single", "exact"] = "single"
    start: Literal["single-task", "zero"] = "single-task"
    server: Literal["last-gradients", "descent"] = "last-gradients"
    stop: NonNegative = 0.0
    staleness: Annotated[int, Between(0, 2**31 - 1)] | None = None
    record_every: Count = 1

    def require(self, *, private: bool) -> None:
        """InvalidInput where these letters mean nothing together."""
        safe = "safe" in (self.own_step, self.shared_step)
        if safe and self.server != "descent":
            raise InvalidInput("a 'safe' step is known of server='descent' only")
        if private and self.server == "descent":
            raise InvalidInput("server='descent' is without privacy: it takes budget=None")
        if self.epsilons is not None and not private:
            raise InvalidInput("epsilons are of a run with a budget: that of claimed(releases)")

    def claimed(self, releases: int) -> Budget:
        """What Theorem 3.5's claim per message adds up to over all messages of a node."""
        return Budget((1 + ROUNDING) * releases * sum(self.epsilons or ()), 0.0)

    def formulation(self, shared: Penalty, own: Penalty, loss: Loss, step: float) -> Formulation:
        """Eq. (2), its λ being what the prox at μ makes it: μ/α₂."""
        level = self.eq1_level(loss) if self.threshold is None else self.threshold / step
        return Formulation(shared, level, own, self.eq2_own_level(own, loss))

    def eq2_own_level(self, own: Penalty, loss: Loss) -> float:
        """τ of g; half of it where g is our ‖q‖², twice S3's."""
        tau = self.eq1_level(loss) if self.own_level is None else self.own_level
        return tau / 2 if own.is_ridge else tau

    def eq1_level(self, loss: Loss) -> float:
        """λ."""
        return LEVEL[loss.name] if self.level is None else self.level

    def longest_row(self, width: int) -> float:
        """C₁."""
        return math.sqrt(width) if self.row_norm is None else self.row_norm

    def sensitivities(self, loss: Loss, width: int, rows: int, step: float) -> tuple[float, float]:
        """S₁ = 2α₁C₁C₂/n (Lemma 1, which is wrong) and S₂ = 2C₁C₂/n (Lemma 2)."""
        C1, n = self.longest_row(width), max(rows, 1)
        slopes = [1.0 if loss.targets_are_classes else 2 * (C1 * C + 1) for C in self.model_bounds]
        if self.slope_bound is not None:
            slopes = [self.slope_bound, self.slope_bound]
        return 2 * step * C1 * slopes[0] / n, 2 * C1 * slopes[1] / n
