"""Mean-regularised multi-task learning for linear models, under task-level joint DP.

S2: Hu, Wu, Smith, "Private Multi-Task Learning: Formulation and Applications to Federated
Learning", arXiv 2108.12978. Objective (2): Σ_k [Σ_i l_k(x_i, w_k) + λ/2 ‖w_k − w̄‖²].

**Symbols**

====  =====================  ==============================================================
w_k   ``coef``               one model per task, intercept last
w̄     ``mean``               the shared mean
λ     ``penalty``            how strongly a task is held to the mean
γ     ``clip_norm``          the norm to which a contribution is clipped
T     ``rounds``             pairs of a direction and a step
σ     ``sigma``              noise on a sum of contributions
====  =====================  ==============================================================

**Differs from the paper in**

1. Each task solves Eq. (3) exactly at home (the paper: E steps of SGD); linear models allow it.
2. A round is a *private line search*. Every task sends the direction in which its own solution
   pulls the mean, at norm one (a clip norm below every update: the sum then loses no signal to a
   clip that is too wide, in any units); then, along the noisy mean direction v, every task sends
   two numbers that determine the best step (the slope and curvature of its leave-one-out loss).
   A sum of clipped updates (Algorithm 1, line 8) needs many rounds to reach the mean's length;
   this needs one.
3. A last release asks all tasks how strongly to hold on to the mean: each sends, at norm one, how
   well each penalty predicts its held-out rows, with and without the mean. Two dozen numbers, so
   they survive a small budget in which a mean of d numbers would drown. When the predicted noise
   of a direction exceeds its signal (``quietest``), only this is released.
4. Full participation, fixed denominator m, exact Gaussian DP (docs/privacy.md, E): S2's fixed-size
   sampling is not amplified when the other tasks can count themselves.
5. What a task does at home is free (billboard lemma): it mixes the models along the penalty path,
   around the mean and on its own, by their leave-one-out likelihood times a public prior.

**Sensitivity.** Every release is a sum of rows clipped to norm one: Δ₂ = 2 (replace), 1 (zero-out);
the votes on scales, which are one-hot, √2 and 1.
All noise levels, the number of rounds and all constants below are functions of (ε, δ, m, d) alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from tacit.arrays import FloatArray
from tacit.engine import Facts, Message, Public, Step, Unprotected
from tacit.errors import InvalidInput
from tacit.estimator import Home, PrivateLearner, learner
from tacit.linear.batched import shared_mean, solve_path
from tacit.linear.losses import Loss
from tacit.linear.model_averaging import (
    STRONGEST,
    ballots,
    default_penalty,
    log_evidence,
    mixture,
    prior_of_votes,
    usual_penalties,
)
from tacit.linear.problems import Problems
from tacit.linear.row_algebra import directed, or_zero, row_sums
from tacit.linear.single_task_fits import PENALTIES, in_own_units, own_path
from tacit.linear.threads import isolated
from tacit.privacy.mechanisms import GaussianSum, VoteSum
from tacit.privacy.release import Declared, Release

VOTED = PENALTIES[2:-1:2]  # 0.1, 1, ..., 10⁴: the coarser path on which tasks vote
LEAST_TRUST = 0.02
SHARES = {"direction": 0.65, "step": 0.2, "vote": 0.15}  # of μ², over all rounds
SCALE_SHARE = 0.1  # of μ², when the declared ranges leave the scale open
DYADIC = np.arange(-20, 21)  # candidate scales 2^k
QUIETEST = 0.9  # no direction is released when its predicted noise-to-signal exceeds this
SECOND_ROUND = 0.1  # a further round must keep it below this
MOST_ROUNDS = 4
FIRST_STEP = 0.5  # the unit of length of the first step, in scaled units


@learner
class MeanRegularized(PrivateLearner):
    """One linear model per task, held to a shared mean as strongly as the data ask for.

    budget=None solves S2's objective (2) exactly and chooses λ by leave-one-out over all tasks.

    >>> from tacit.datasets import related_tasks
    >>> from tacit.privacy.budget import Budget
    >>> data = related_tasks(60, rng=np.random.default_rng(0))
    >>> model = MeanRegularized(budget=Budget(2.0), ranges=data.ranges, noise="simulated",
    ...                         random_state=0).fit(data.X, data.y, task=data.task)
    >>> model.coef_.shape
    (10, 60)
    """

    rounds: int | Literal["auto"] = "auto"
    clip_norm: float | Literal["auto"] = "auto"

    def _open(self, home: Home) -> Message:
        return open_optimum(home)

    def _coordinator(self, facts: Facts) -> Curator:
        return Curator.planned(facts, None if self.rounds == "auto" else self.rounds)

    def _participant(self, home: Home, facts: Facts) -> Tasks:
        return Tasks(home, None if self.clip_norm == "auto" else self.clip_norm)

    def _at_home(self, home: Home, shared: Message) -> FloatArray:
        return Prior.of(shared).mixture(home)

    def _shared_model(self, shared: Message) -> FloatArray:
        prior = Prior.of(shared)
        return np.asarray(prior.mean * prior.target_scale / prior.column_scale())


# --- what every task believes, given what was shared ---------------------------------------------


@dataclass(frozen=True)
class Prior:
    """What the shared state says to a task: a mean, how far to trust it, and penalties."""

    mean: FloatArray  # (D,), D = d + 1, in scaled units
    joined: bool  # whether there is a mean at all
    trust: float  # in [0, 1], the share of the mean that is not noise; at 0 it is not used
    own_units: bool  # no common scale is known: every task scales by itself
    vote: FloatArray  # (2, L), log prior of each penalty: on its own, around the mean
    target_scale: float
    feature_scale: FloatArray  # (d,)

    @classmethod
    def of(cls, shared: Message) -> Prior:
        """Read from the shared state."""
        parts = {name: part.value for name, part in shared.items()}
        return cls(
            parts["mean"],
            bool(parts["joined"]),
            float(parts["trust"]),
            bool(parts["own_units"]),
            parts["vote"],
            float(parts["target_scale"]),
            np.asarray(parts["feature_scale"]),
        )

    def column_scale(self) -> FloatArray:
        """(D,): what each column of the home problem is divided by."""
        return np.append(self.feature_scale, 1.0)

    def scaled(self, home: Home) -> Problems:
        """The home problem in the shared units."""
        p = home.problems
        if self.target_scale == 1.0 and np.all(self.feature_scale == 1.0):
            return p
        y = p.y if home.loss.name == "logistic" else p.y / self.target_scale
        return Problems(p.X / self.column_scale(), y, p.offsets)

    def options(self, problems: Problems, loss: Loss) -> tuple[FloatArray, FloatArray]:
        """Models (m, A, L, D) and their log evidence (m, A, L): alone, around the mean."""
        if self.own_units:
            scaled, back = in_own_units(problems, loss)
            own = own_path(scaled, loss)
            coef, evidence = [own.coef * back[:, None]], [log_evidence(scaled, own, loss)]
        else:
            own = own_path(problems, loss)
            coef, evidence = [own.coef], [log_evidence(problems, own, loss)]
        if self.joined:
            around = solve_path(problems, PENALTIES, loss=loss, mean=self.mean)
            coef.append(around.coef)
            evidence.append(log_evidence(problems, around, loss))
        return np.stack(coef, axis=1), np.stack(evidence, axis=1)

    def log_prior(self) -> FloatArray:
        """(A, L), public: how far the mean is trusted, and which penalties are usual."""
        usual = usual_penalties(PENALTIES, len(self.mean))
        if not self.joined:
            return usual[None]
        around = math.log(max(self.trust, LEAST_TRUST)) if self.trust > 0 else -math.inf
        return np.stack([math.log(max(1 - self.trust, LEAST_TRUST)) + usual, around + usual])

    def mixture(self, home: Home) -> FloatArray:
        """Each task's model (m, D) in the units of home: the options weighed by their posterior."""
        problems = self.scaled(home)
        coef, evidence = self.options(problems, home.loss)
        prior = self.log_prior() + self.vote[: evidence.shape[1]]
        mixed = mixture(coef, evidence + prior)
        target = 1.0 if home.loss.name == "logistic" else self.target_scale
        return np.asarray(mixed * target / self.column_scale())


# --- the participant half ------------------------------------------------------------------------


@dataclass(frozen=True)
class Tasks:
    """All tasks of this process at once: private data in, contributions of norm one out."""

    home: Home
    clip_norm: float | None

    def select(self, units: Sequence[int]) -> Tasks:
        """These tasks only, in this order."""
        return replace(self, home=self.home.select(units))

    @isolated()
    def contribute(self, step: Step, shared: Message, state: Any) -> tuple[FloatArray, Any]:
        """One row per task; the mechanism clips it to norm one whatever it is."""
        speaks = self.home.problems.speak(self.home.loss)
        return or_zero(self._said(step, shared), speaks), None

    def _said(self, step: Step, shared: Message) -> FloatArray:
        if step.name == "scale":
            return scale_votes(self.home)
        prior = Prior.of(shared)
        problems = prior.scaled(self.home)
        kind = step.name.split()[0]
        if kind == "direction":
            return directions(problems, self.home.loss, prior.mean, self.clip_norm)
        if kind == "step":
            along = np.asarray(shared["direction"].value)
            unit = float(shared["step_unit"].value)
            return step_votes(problems, self.home.loss, prior.mean, along, unit)
        return penalty_votes(prior, problems, self.home.loss)


def scale_votes(home: Home) -> FloatArray:
    """One-hot (m, 2B): the dyadic size of the targets and of the undeclared features."""
    p = home.problems
    undeclared = ~home.declared_features
    sizes = np.maximum(p.sizes, 1)
    target = np.sqrt(p.sum_rows(p.y**2) / sizes)
    squares = row_sums(p.X[:, :-1][:, undeclared] ** 2) / max(1, int(undeclared.sum()))
    feature = np.sqrt(p.sum_rows(squares) / sizes)
    votes = np.zeros((p.n_tasks, 2, len(DYADIC)))
    for block, size in enumerate((target, feature)):
        with np.errstate(divide="ignore"):
            exponent = np.clip(np.ceil(np.log2(size)), DYADIC[0], DYADIC[-1])
        said = size > 0
        votes[said, block, (exponent[said] - DYADIC[0]).astype(int)] = 1.0
    return votes.reshape(p.n_tasks, -1) / math.sqrt(2)


def directions(
    problems: Problems, loss: Loss, mean: FloatArray, clip_norm: float | None
) -> FloatArray:
    """The pull of each task on the mean: w_k − w̄ at λ₀, at norm one, or shorter where it is next
    to nothing (``directed``); or divided by clip_norm."""
    penalty = np.array([default_penalty(problems.X.shape[1])])
    update = solve_path(problems, penalty, loss=loss, mean=mean).coef[:, 0] - mean
    return directed(update) if clip_norm is None else update / clip_norm


def step_votes(
    problems: Problems, loss: Loss, mean: FloatArray, along: FloatArray, unit: float
) -> FloatArray:
    """(−slope, unit · curvature) of the leave-one-out loss of w̄ + a·v at a = 0, at norm one.

    Held-out predictions at λ₀ are linear in the prior mean (squared loss), so the loss is a
    parabola in a, and the sum of these votes has its minimum at a = unit · first/second.
    """
    penalty = np.array([default_penalty(problems.X.shape[1])])
    here = solve_path(problems, penalty, loss=loss, mean=mean).held_out[:, 0]
    there = solve_path(problems, penalty, loss=loss, mean=mean + unit * along).held_out[:, 0]
    change = (there - here) / unit
    slope = problems.sum_rows(loss.slope(here, problems.y) * change)
    curvature = problems.sum_rows(loss.curvature(here, problems.y) * change**2)
    return directed(np.stack([-slope, unit * curvature], axis=1))


def penalty_votes(prior: Prior, problems: Problems, loss: Loss) -> FloatArray:
    """What each task says of the voted penalties (m, A·V), alone and around the mean."""
    _, evidence = prior.options(problems, loss)
    return ballots((evidence + prior.log_prior())[:, :, np.isin(PENALTIES, VOTED)])


# --- the coordinator half ------------------------------------------------------------------------


@dataclass(frozen=True)
class Curator:
    """Post-processing of releases; every number here is public."""

    width: int  # D
    n_tasks: int
    steps: tuple[Step, ...]
    joined: bool  # whether a mean is released
    undeclared: np.ndarray[Any, np.dtype[np.bool_]]  # (d,), columns without a declared range
    declared_target: bool

    @classmethod
    def planned(cls, facts: Facts, rounds: int | None) -> Curator:
        """All steps, from (μ, m, D) and the declarations alone."""
        width, m, mu = facts.width, facts.n_tasks, facts.mu
        undeclared = ~facts.declared_features
        unscaled = bool(undeclared.any() or not facts.declared_target)
        left = mu * math.sqrt(1 - SCALE_SHARE) if unscaled else mu
        rounds = public_rounds(left, m, width) if rounds is None else rounds
        if rounds < 0:
            raise InvalidInput(f"rounds must be 'auto' or at least 0, got {rounds}")
        open_scale = unscaled and rounds > 0
        shares = [("scale", SCALE_SHARE)] if open_scale else []
        rest = 1 - SCALE_SHARE if open_scale else 1.0
        for t in range(rounds):
            shares += [
                (f"{kind} {t}", rest * SHARES[kind] / rounds) for kind in ("direction", "step")
            ]
        shares.append(("vote", rest * (SHARES["vote"] if rounds else 1.0)))
        steps = tuple(
            Step(name, _summed(name).for_mu(1.0, mu * math.sqrt(share), facts.neighbours))
            for name, share in shares
        )
        return cls(width, m, steps, rounds > 0, undeclared, facts.declared_target)

    def start(self) -> Public:
        """Declared constants: no mean, no vote, unit scales."""
        return {
            "mean": Declared(np.zeros(self.width)),
            "joined": Declared(self.joined),
            "trust": Declared(0.0),
            "own_units": Declared(bool(self.undeclared.any() or not self.declared_target)),
            "vote": Declared(np.zeros((2, len(PENALTIES)))),
            "target_scale": Declared(1.0),
            "feature_scale": Declared(np.ones(self.width - 1)),
            "step_unit": Declared(FIRST_STEP),
        }

    def absorb(self, step: Step, shared: Public, release: Release) -> Public:
        """The shared state after one more release."""
        assert isinstance(step.mechanism, GaussianSum)
        sigma = step.mechanism.sigma
        kind = step.name.split()[0]
        if kind == "scale":
            return {**shared, **self._scales(release, sigma)}
        if kind == "direction":
            return {**shared, **self._direction(shared, release, sigma)}
        if kind == "step":
            return {**shared, **self._step(shared, release, sigma)}
        return {**shared, "vote": release.map(lambda total: self._vote(total, sigma))}

    def _scales(self, release: Release, sigma: float) -> Public:
        """Twice the most voted dyadic size; own units if a winner does not stand out of the noise.

        Of 82 noisy counts the largest exceeds 4σ by chance with probability 0.003.
        """
        blocks = [not self.declared_target, bool(self.undeclared.any())]

        def unclear(total: FloatArray) -> FloatArray:
            return np.asarray((total.reshape(2, -1).max(1) < 4 * sigma)[blocks].any())

        def size(total: FloatArray, block: int) -> float:
            if not blocks[block] or bool(unclear(total)):
                return 1.0
            return float(2.0 ** (DYADIC[total.reshape(2, -1)[block].argmax()] + 1))

        return {
            "own_units": release.map(unclear),
            "target_scale": release.map(lambda total: size(total, 0)),
            "feature_scale": release.map(lambda t: np.where(self.undeclared, size(t, 1), 1.0)),
        }

    def _direction(self, shared: Public, release: Release, sigma: float) -> Public:
        """v at norm one, and the share of its length that is not noise, 1 − Dσ²/‖Σ‖²."""

        def signal(total: FloatArray, trust: FloatArray, own_units: FloatArray) -> FloatArray:
            share = max(0.0, 1 - self.width * sigma**2 / max(float(total @ total), 1e-300))
            return np.asarray(0.0 if own_units else 1 - (1 - trust) * (1 - share))

        return {
            "direction": release.map(
                lambda total: total / max(float(np.linalg.norm(total)), 1e-300)
            ),
            "trust": Release.combine(signal, release, shared["trust"], shared["own_units"]),
        }

    def _step(self, shared: Public, release: Release, sigma: float) -> Public:
        """w̄ + a·v, a = unit · B·C/(C² + σ²) from the summed slopes B and curvatures C: the best
        step B/C, shortened as the noise on C demands."""

        def length(total: FloatArray, unit: FloatArray) -> FloatArray:
            slope, curvature = float(total[0]), float(total[1])
            ratio = slope * curvature / (curvature**2 + sigma**2)
            return np.asarray(unit * max(ratio, 0.0))

        step = Release.combine(length, release, shared["step_unit"])
        mean = Release.combine(
            lambda mean, along, a: mean + a * along, shared["mean"], shared["direction"], step
        )
        return {"mean": mean, "step_unit": step.map(lambda a: np.maximum(a, 1e-3))}

    def _vote(self, total: FloatArray, sigma: float) -> FloatArray:
        """The log prior (2, L) that the votes imply."""
        log_prior = prior_of_votes(total, sigma, self.n_tasks).reshape(-1, len(VOTED))
        fine = [np.interp(np.log10(PENALTIES), np.log10(VOTED), row) for row in log_prior]
        return np.stack(fine if self.joined else [*fine, np.zeros(len(PENALTIES))])


def _summed(step: str) -> type[GaussianSum]:
    """One-hot votes differ by √2 at most, other rows of norm one by 2."""
    return VoteSum if step == "scale" else GaussianSum


def public_rounds(mu: float, n_tasks: int, width: int) -> int:
    """How many rounds keep the predicted noise below the signal.

    The noise on the mean direction has norm 2√D/(μ_t m) (replace) against a signal of at most 1.
    """
    noise = 2 * math.sqrt(width) / (mu * math.sqrt(SHARES["direction"]) * n_tasks)
    if noise > QUIETEST:
        return 0
    return max(1, min(MOST_ROUNDS, int((SECOND_ROUND / noise) ** 2)))


# --- the non-private twin ------------------------------------------------------------------------


def open_optimum(home: Home) -> Message:
    """S2's objective (2) solved exactly; λ of the mean by leave-one-out over all tasks together.

    The vote is the exact total log likelihood, as strong as a private one may get.
    """
    problems, loss = home.problems, home.loss
    target = 1.0 if loss.name == "logistic" or home.declared_target else _rms(problems.y)
    undeclared = ~home.declared_features
    columns = problems.X[:, :-1]
    feature = np.where(undeclared, _rms(columns[:, undeclared]), 1.0)
    vote = np.zeros((2, len(PENALTIES)))
    alone = Prior(np.zeros(len(feature) + 1), False, 0.0, False, vote, target, feature)
    scaled = alone.scaled(home)
    mean = max((_joined(scaled, loss, penalty) for penalty in VOTED[1:]), key=lambda f: f[0])[1]
    together = Prior(mean, True, 1 - LEAST_TRUST, False, vote, target, feature)
    total = together.options(scaled, loss)[1].sum(0)
    found = vars(together) | {"vote": np.maximum(total - total.max(), -STRONGEST)}
    return {name: Unprotected(value) for name, value in found.items()}


def _joined(problems: Problems, loss: Loss, penalty: float) -> tuple[float, FloatArray]:
    mean = shared_mean(problems, penalty, loss=loss)
    path = solve_path(problems, np.array([penalty]), loss=loss, mean=mean)
    return float(log_evidence(problems, path, loss).sum()), mean


def _rms(values: FloatArray) -> float:
    size = float(np.sqrt(np.mean(values**2))) if values.size else 0.0
    return 2 * size if size > 0 else 1.0
