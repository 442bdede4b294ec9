r"""The public plan of a private run: who is protected from whom, what a node may spend, clip norm,
steps, releases, levels. Never a look at X.

Everything here is a function of what is declared or public: the budget, the rows of each node
(public under replace; a declared divisor under zero-out), the number D of columns, the number T of
nodes, and that features and target are scaled to their declared ranges.

**Rows of norm one.** Under privacy a node weighs example i by 1/‖x_i‖². The gradient of an example
is then ℓ′(x·w; y) x/‖x‖², and the curvature of the node's loss is (1/n) Σ ℓ″ uuᵀ with ‖u‖ = 1: at
most c = 1 (squared) or ¼ (logistic), whatever the data are. With a step α for p and κα for q,
ψ = ½‖p‖² + ½‖q‖²/κ − α·loss(p + q) is convex (updates.py) for α = 1/((1 + κ)c), which needs no look
at X; declared ranges of the features alone would only give a D-th of it.

**Clip norm.** C = y₀/R: R² = (D − 1)/3 + 1 is ‖x‖² of features uniform on their ranges and y₀ = 1/6
the size of a residual (½ for the logistic slope at zero). A clip too low loses time only (the sum
of directions points the same way), one too high adds noise in proportion: so y₀ is low.

**Time.** Let a message be the mean gradient plus noise of deviation s√K in each coordinate when K
messages share the budget, and let the curvature be spread evenly, c/D. After K steps α, with
τ = Kαc/D,

.. math:: \frac{E‖w − w_*‖²}{‖w_*‖²} ≈ e^{−2τ} + ν² τ (1 − e^{−2τ})/2,   ν = sD/C,        (1)

where ‖w_*‖ = C√D/c: the gradient at zero is what the clip norm lets through. ν² = ν_noise² + ω²D/n,
the second term being the scatter of n examples. The plan minimises (1) over τ and K ≥ τD/(αc). For
Gaussian noise ν does not depend on K. Strong noise gives τ = 1/ν²: a short walk is the shrinkage
that noise demands. Learning together, the noise of D·T coefficients of rank r is that of r(D + T),
so (1) is taken at ν/√(DT/r(D + T)), r = 3 as in S3 §4.1.

**Levels.** The sum of all messages of node t carries noise N_t = Kαs in each coordinate; the
spectral norm of the noise of all nodes is about √D max N_t + √(Σ N_t²). The level of P ends at a
share θ of it: 0.7, or more up to 1 where (1) expects more noise than signal. q is a ridge: with
noise s and coefficients of size ‖q_*‖² = φ‖w_*‖², the best is cν²/(φD). A ridge does nothing on a
short walk, so q steps shorter too: κ = 1/(1 + ν²), the share of signal in one node's messages.

θ, φ, ω, y₀ and r were set on generated tasks with other seeds than those of the benchmarks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.stats import chi2, gamma

from tacit.arrays import FloatArray
from tacit.learners.async_proximal.node_mechanisms import Sampled
from tacit.linear.losses import Loss
from tacit.linear.penalties import Penalty
from tacit.privacy.accounting import gaussian_mu, per_report_epsilon, poisson_noise_multiplier
from tacit.privacy.budget import Budget, Neighbours
from tacit.privacy.mechanisms import GaussianSum, KNormSum, sum_sensitivity
from tacit.privacy.planning import UNIT, Door
from tacit.privacy.release import Mechanism

MOST_RELEASES = 100
CANDIDATES = (1, 2, 3, 5, 8, 12, 18, 27, 40, 60, 80, MOST_RELEASES)
RESIDUAL = {"squared": 1 / 6, "logistic": 1 / 2}  # y₀
SCATTER = 0.5  # ω
RANK = 3  # r
THRESHOLD = 0.7  # the least θ
OWN_SHARE = 0.25  # φ
QUANTILE = 1e-9  # an honest message is refused with this probability
TIMES = np.geomspace(1e-6, 4.0, 600)  # τ

ADVERSARY = replace(
    UNIT,
    unit="one example in one node's data",
    adversary="the server and all other nodes, who see every message of the node",
    not_covered=(
        "a person with examples in two nodes: their losses add up, and ε is the largest of a node",
        "the node itself, and its home model (home_coef_): hand it to nobody else",
        "the labels, the number of nodes, when a node sends, and every declared range and class",
        "the number of rows of each node, under replace",
    ),
)
"""S3: nobody is trusted."""

TRUSTED = replace(
    ADVERSARY,
    adversary="all other nodes together, who see everything the server sends",
    not_covered=("the operator of the server, who sees every gradient", *ADVERSARY.not_covered),
)
"""The server is trusted; the nodes are not."""

ASSUMED = (
    "Poisson sampling with replace neighbours: that the antipodal pair dominates is assumed, not "
    "proven; zero-out needs no such assumption"
)
COINS = "seeded coins of the sample: no amplification against whoever knows the seed"


@dataclass(frozen=True)
class Setting:
    """What is public about the run before it starts."""

    loss: Loss
    width: int  # D, with the intercept
    n_nodes: int
    neighbours: Neighbours
    clip_norm: float
    noise: Literal["gaussian", "gamma"] = "gaussian"
    sampling_rate: float | None = None
    releases: int | None = None  # None: by (1)
    coupled: bool = True  # False: P stays zero

    @property
    def curvature(self) -> float:
        """c."""
        return self.loss.most_curvature

    def own_share(self, noise: float) -> float:
        """κ, by how much q's steps are shorter; 1 where q is all there is."""
        return 1 / (1 + noise**2) if self.coupled else 1.0

    def longest_step(self, noise: float) -> float:
        """α = 1/((1 + κ)c), and 1/c without p."""
        both = 1 + self.own_share(noise) if self.coupled else 1.0
        return 1 / (both * self.curvature)

    @property
    def gain(self) -> float:
        """By how much learning together divides the noise."""
        D, T = self.width, self.n_nodes
        return max(1.0, math.sqrt(D * T / (RANK * (D + T)))) if self.coupled else 1.0


@dataclass(frozen=True)
class Allowance:
    """What a node may spend in this run: μ of Gaussian releases, or (ε, δ) of others."""

    mu: float
    rest: Budget


def allowances(door: Door, sampling_rate: float | None) -> list[Allowance]:
    """What each node may spend: its share of the most generous budget, or its budget itself."""
    if door.pure is not None:
        epsilons = [max(float(share) * door.pure.epsilon, 1e-12) for share in door.shares]
        delta, relation = door.pure.delta, door.neighbours
        return [Allowance(0.0, Budget(each, delta, neighbours=relation)) for each in epsilons]
    rests = [budget or Budget(1.0) for budget in door.budgets]  # of a node that will be silent
    if sampling_rate is None:
        return [Allowance(float(s) * door.mu, r) for s, r in zip(door.shares, rests, strict=True)]
    return [Allowance(gaussian_mu(rest.epsilon, rest.delta), rest) for rest in rests]


@dataclass(frozen=True)
class NodePlan:
    """All that a node does, fixed before it starts. By default nothing: it has spent its budget,
    and no message in its name is small enough to be taken in."""

    releases: int = 0
    step: float = 1.0  # α
    own_step: float = 1.0  # κα
    mechanism: Mechanism | None = None
    divisor: float = 1.0  # of the sum: the rows of the node, or of a sample
    noise: float = math.inf  # ν
    error: float = 1.0  # predicted, by (1), in [0, 1]
    deviation: float = 0.0  # θN, N: of the sum of all its messages, times α, in each coordinate
    largest: float = math.ulp(0.0)  # the norm of an honest message, but for QUANTILE


SILENT = NodePlan()


def public_clip_norm(loss: Loss, width: int) -> float:
    """C = y₀/R."""
    return RESIDUAL[loss.name] / math.sqrt((width - 1) / 3 + 1)


def predicted_error(tau: FloatArray, noise: float) -> FloatArray:
    """(1): what is left of the signal, and the noise that was walked into.

    >>> predicted_error(np.array([0.0, 1.0]), 0.0).round(3)
    array([1.   , 0.135])
    """
    return np.asarray(np.exp(-2 * tau) - noise**2 * tau * np.expm1(-2 * tau) / 2)


def node_plans(setting: Setting, rows: Sequence[float], door: Door) -> list[NodePlan]:
    """Each node's own, from its (public) number of rows; one that has nothing left is silent."""
    given = zip(rows, allowances(door, setting.sampling_rate), door.budgets, strict=True)
    return [SILENT if left is None else node_plan(setting, n, may) for n, may, left in given]


def node_plan(setting: Setting, rows: float, allowed: Allowance) -> NodePlan:
    """The plan of one node with this (public) number of rows."""
    D, C = setting.width, setting.clip_norm
    divisor = rows * (setting.sampling_rate or 1.0)
    scatter = SCATTER * math.sqrt(D / rows)

    def noise(releases: int) -> float:
        spread = deviation(setting, allowed, releases) / math.sqrt(releases)
        return math.hypot(spread * D / divisor, scatter)

    if setting.sampling_rate is not None and setting.releases is None:  # one calibration, not many
        whole = replace(setting, sampling_rate=None)
        setting = replace(setting, releases=node_plan(whole, rows, allowed).releases)
    releases, tau = _best(setting, noise)
    step = tau * D / (setting.curvature * releases)
    nu = noise(releases)
    threshold = min(max(THRESHOLD, nu / setting.gain), 1.0)
    return NodePlan(
        releases=releases,
        step=step,
        own_step=step * setting.own_share(nu),
        mechanism=node_mechanism(setting, allowed, releases),
        divisor=divisor,
        noise=nu,
        error=float(predicted_error(np.array([tau]), nu / setting.gain)[0]),
        deviation=threshold * releases * step * C * nu / D,
        largest=C * (rows + _longest_noise(setting, allowed, releases)) / divisor,
    )


def _best(setting: Setting, noise: Callable[[int], float]) -> tuple[int, float]:
    """K and τ that minimise (1); of almost equal ones the smallest K."""
    candidates = CANDIDATES if setting.releases is None else (setting.releases,)
    found = [_best_time(setting, noise(releases), releases) for releases in candidates]
    least = min(error for error, _ in found)
    pairs = zip(candidates, found, strict=True)
    return next((k, tau) for k, (error, tau) in pairs if error <= least * (1 + 1e-3))


def _best_time(setting: Setting, noise: float, releases: int) -> tuple[float, float]:
    """The least error within so many of the longest steps, and its τ."""
    reach = releases * setting.longest_step(noise) * setting.curvature / setting.width
    times = np.append(TIMES[reach > TIMES], min(reach, TIMES[-1]))
    errors = predicted_error(times, noise / setting.gain)
    best = int(errors.argmin())
    return float(errors[best]), float(times[best])


def deviation(setting: Setting, allowed: Allowance, releases: int) -> float:
    """Of the noise on a sum in each coordinate, in units of C, when so many releases share all."""
    sensitivity = sum_sensitivity(1.0, setting.neighbours)
    if setting.noise == "gamma":  # radius Gamma(D, b): variance b²(D + 1) a coordinate
        scale = sensitivity / per_report_epsilon(releases, allowed.rest)
        return scale * math.sqrt(setting.width + 1)
    if setting.sampling_rate is not None:
        return poisson_noise_multiplier(setting.sampling_rate, releases, allowed.rest)
    return sensitivity * math.sqrt(releases) / allowed.mu


def node_mechanism(setting: Setting, allowed: Allowance, releases: int) -> Mechanism:
    """What every message of the node goes through."""
    C = setting.clip_norm
    if setting.noise == "gamma":
        share = per_report_epsilon(releases, allowed.rest)
        return KNormSum.for_epsilon(C, share, setting.neighbours)
    if setting.sampling_rate is not None:
        multiplier = poisson_noise_multiplier(setting.sampling_rate, releases, allowed.rest)
        return Sampled(GaussianSum(C, C * multiplier), setting.sampling_rate)
    return GaussianSum.for_mu(C, allowed.mu / math.sqrt(releases), setting.neighbours)


def _longest_noise(setting: Setting, allowed: Allowance, releases: int) -> float:
    """The 1 − 10⁻⁹ quantile of ‖noise‖, in units of C."""
    D, spread = setting.width, deviation(setting, allowed, releases)
    if setting.noise == "gamma":
        return spread / math.sqrt(D + 1) * float(gamma.isf(QUANTILE, D))
    return spread * math.sqrt(float(chi2.isf(QUANTILE, D)))


# --- levels --------------------------------------------------------------------------------------


def shared_level(penalty: Penalty | None, plans: Sequence[NodePlan], width: int) -> float:
    """Λ: the level of P at the end, the size of the noise of all messages in its dual norm."""
    if penalty is None:
        return 0.0
    return penalty.noise_size(np.array([plan.deviation for plan in plans]), width)


def own_level(own: Penalty, plan: NodePlan, setting: Setting) -> float:
    """The level of a node's own part: a ridge, or a threshold at the noise of its mean message."""
    D = setting.width
    if not setting.coupled:
        return 0.0
    if own.is_ridge:  # τ‖q‖²: half of the ridge
        return setting.curvature * plan.noise**2 / (OWN_SHARE * D) / 2
    return own.noise_size(np.array([plan.noise * setting.clip_norm / D]), D)
