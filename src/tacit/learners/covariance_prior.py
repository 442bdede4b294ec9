"""CovariancePrior, ours: one release of the second moment of all task models, then Bayes at home.

S1: Liang et al., "Model-Protected Multi-Task Learning", TPAMI (arXiv 1809.06546), shares the noisy
covariance of the task models in every one of T proximal steps, at a fraction of the budget each.
Here it is released once, at the full budget; every task then solves to convergence at home under
the prior that it implies, and chooses its own shrinkage by leave-one-out, which is free.

**Symbols** (S1's letters)

=====  ===================  ===================================================================
W      ``models``           (m, d), one row per task; the intercept stays home
K      ``clip_norm``        norm to which a model is clipped; "auto" sends directions of norm one
Σ      ``second_moment``    Σ_i w_i w_iᵀ plus noise
M      ``shape``, ``rest``  the prior covariance: kept directions, and what is spread over all
=====  ===================  ===================================================================

**Differs from the paper in**

1. One release (or ``rounds``, averaged), not T: noise √T times smaller. A tenth of μ² buys a vote
   of all tasks on which prior and which penalty are usual.
2. Isotropic Gaussian noise in svec coordinates: S1's Wishart noise is not private
   (docs/privacy.md).
3. The shared matrix is a prior covariance, not a projection: w ~ N(0, τ² (shape + rest·I)), and τ
   is each task's own. Directions lost in noise leave ``rest``, so that high noise gives
   single-task learning and not zero (S1 Prop. 1).

**Sensitivity.** ‖wwᵀ − vvᵀ‖_F ≤ √2 K² (replace), K² (zero-out); the same for the diagonal.

**Denoising** is post-processing. A symmetric Gaussian matrix has its spectrum within
±2s, s² = dσ²/2; a true eigenvalue θ > s shows as y = θ + s²/θ, its vector with squared cosine
c² = 1 − s²/θ² (Benaych-Georges and Nadakuditi 2011). So y > 2s is read as θc² along the observed
vector; what remains of the trace is spread evenly. The edge of d × d noise fluctuates by about
2s·d^(−2/3), so an eigenvalue must clear that as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from tacit.arrays import FloatArray
from tacit.engine import Facts, Message, Public, Step, Unprotected
from tacit.estimator import Home, PrivateLearner, learner
from tacit.linear.batched import solve_path
from tacit.linear.losses import Loss
from tacit.linear.model_averaging import (
    ballots,
    log_evidence,
    mixture,
    prior_of_votes,
    usual_penalties,
)
from tacit.linear.problems import Problems
from tacit.linear.row_algebra import directed, or_zero, row_norms
from tacit.linear.single_task_fits import INTERCEPT_VARIANCE, best_in_own_units, in_own_units
from tacit.linear.threads import isolated
from tacit.parameters import Count, Positive
from tacit.privacy.mechanisms import DiagonalGaussian, GaussianSum, SymmetricGaussian
from tacit.privacy.release import Declared, Release

Structure = Literal["full", "diagonal"]

PENALTIES = 10.0 ** np.arange(-3, 4.25, 0.5)  # λ of the prior, in each task's own units
VOTED = PENALTIES[::2]  # the coarser path on which tasks vote
VOTE_SHARE = 0.1  # of μ²
FLOORS = (1.0, 0.1, 0.01)  # how much of the evenly spread rest a task may believe in
LEAST_FLOOR = 1e-4  # of the average variance, in every direction
DETECTED = 1.0  # σ: a missed feature costs a task far more than one kept for nothing
OPEN_ROUNDS = 6  # of the non-private twin


@learner
class CovariancePrior(PrivateLearner):
    """One linear model per task under a shared prior covariance, released once.

    structure="diagonal" releases only the diagonal (group-sparse problems): d numbers of noise
    instead of d(d+1)/2.

    >>> from tacit.datasets import low_rank_tasks
    >>> from tacit.privacy.budget import Budget
    >>> data = low_rank_tasks(60, rows=8, n_features=6, rank=2, rng=np.random.default_rng(0))
    >>> model = CovariancePrior(budget=Budget(5.0), noise="simulated", random_state=0)
    >>> model.fit(data.X, data.y, task=data.task).coef_.shape
    (6, 60)
    """

    rounds: Count | Literal["auto"] = "auto"
    clip_norm: Positive | Literal["auto"] = "auto"
    structure: Structure = "full"

    def _open(self, home: Home) -> Message:
        rounds = OPEN_ROUNDS if self.rounds == "auto" else int(self.rounds)
        return open_moment(self._tasks(home), self._clip(), self.structure, rounds)

    def _coordinator(self, facts: Facts) -> Curator:
        rounds = 1 if self.rounds == "auto" else int(self.rounds)
        return Curator.planned(facts, rounds, self._clip(), self.structure)

    def _participant(self, home: Home, facts: Facts) -> Tasks:
        return self._tasks(home)

    def _tasks(self, home: Home) -> Tasks:
        return Tasks(home, unit=self.clip_norm == "auto")

    def _clip(self) -> float:
        return 1.0 if self.clip_norm == "auto" else float(self.clip_norm)

    def _at_home(self, home: Home, shared: Message) -> FloatArray:
        return solve_at_home(home, shared)

    def _shared_model(self, shared: Message) -> FloatArray:
        return np.zeros(len(shared["shape"].value) + 1)


# --- at home -------------------------------------------------------------------------------------


def solve_at_home(home: Home, shared: Message) -> FloatArray:
    """(m, d + 1): each task's mixture over priors and penalties."""
    parts = (in_own_mixture(part, home.loss, shared) for part in home.problems.chunks())
    return np.concatenate([models * back for models, back in parts])


def in_own_mixture(
    problems: Problems, loss: Loss, shared: Message
) -> tuple[FloatArray, FloatArray]:
    """The same in each task's own units, and the factor (m, d + 1) that turns it back."""
    scaled, back = in_own_units(problems, loss)
    coef, evidence = options(scaled, loss, shared)
    usual = usual_penalties(PENALTIES, coef.shape[-1])
    return mixture(coef, evidence + usual + np.asarray(shared["vote"].value)), back


def options(scaled: Problems, loss: Loss, shared: Message) -> tuple[FloatArray, FloatArray]:
    """Models (m, A, L, d + 1) and their log evidence (m, A, L) under each prior covariance."""
    covariances = prior_covariances(shared)
    paths = [solve_path(scaled, PENALTIES, loss=loss, covariance=S) for S in covariances]
    coef = np.stack([path.coef for path in paths], axis=1)
    evidence = np.stack([log_evidence(scaled, path, loss) for path in paths], axis=1)
    return coef, evidence


def prior_covariances(shared: Message) -> list[FloatArray]:
    """No structure, and the shared one with more or less of the rest; the intercept free."""
    shape, rest = np.asarray(shared["shape"].value), float(shared["rest"].value)
    d = len(shape)
    covariances = []
    for block in [np.eye(d)] + [shape + max(rest * f, LEAST_FLOOR) * np.eye(d) for f in FLOORS]:
        whole = np.zeros((d + 1, d + 1))
        whole[:d, :d], whole[d, d] = block, INTERCEPT_VARIANCE
        covariances.append(whole)
    return covariances


# --- the participant half ------------------------------------------------------------------------


@dataclass(frozen=True)
class Tasks:
    """All tasks of this process at once: private data in, models (m, d) out."""

    home: Home
    unit: bool  # send directions of norm one

    def select(self, units: Sequence[int]) -> Tasks:
        """These tasks only, in this order."""
        return replace(self, home=self.home.select(units))

    @isolated()
    def contribute(self, step: Step, shared: Message, state: Any) -> tuple[FloatArray, Any]:
        """Single-task models first, then models under the prior so far; the mechanism clips."""
        said = self.votes if step.name == "vote" else self.models
        parts = [said(part, shared) for part in self.home.problems.chunks()]
        return or_zero(np.concatenate(parts), self.home.problems.speak(self.home.loss)), None

    def votes(self, problems: Problems, shared: Message) -> FloatArray:
        """What each task says of the priors and the voted penalties (m, A·V)."""
        scaled, _ = in_own_units(problems, self.home.loss)
        coef, evidence = options(scaled, self.home.loss, shared)
        usual = usual_penalties(PENALTIES, coef.shape[-1])
        return ballots((evidence + usual)[:, :, ::2])

    def models(self, problems: Problems, shared: Message) -> FloatArray:
        """(m, d): directions, which are the same in any units; or, if a clip norm was declared,
        models in the units given."""
        if shared["shape"].value.any():
            models, back = in_own_mixture(problems, self.home.loss, shared)
        else:
            models, back = best_in_own_units(problems, self.home.loss)
        return directed(models[:, :-1]) if self.unit else (models * back)[:, :-1]


# --- the coordinator half ------------------------------------------------------------------------


@dataclass(frozen=True)
class Curator:
    """Post-processing of releases; every number here is public."""

    width: int  # d
    n_tasks: int
    steps: tuple[Step, ...]

    @classmethod
    def planned(cls, facts: Facts, rounds: int, clip_norm: float, structure: Structure) -> Curator:
        """``rounds`` equal releases of the second moment and a vote, within μ."""
        mechanism = SymmetricGaussian if structure == "full" else DiagonalGaussian
        each = facts.mu * math.sqrt((1 - VOTE_SHARE) / rounds)
        moment = mechanism.for_mu(clip_norm, each, facts.neighbours)
        vote = GaussianSum.for_mu(1.0, facts.mu * math.sqrt(VOTE_SHARE), facts.neighbours)
        steps = [Step(f"second moment {t}", moment) for t in range(rounds)] + [Step("vote", vote)]
        return cls(facts.width - 1, facts.n_tasks, tuple(steps))

    def start(self) -> Public:
        """No structure."""
        return _unknown(self.width) | {"mean_moment": Declared(0.0), "seen": Declared(0)}

    def absorb(self, step: Step, shared: Public, release: Release) -> Public:
        """The prior that the average of all releases so far implies."""
        assert isinstance(step.mechanism, GaussianSum | SymmetricGaussian | DiagonalGaussian)
        if step.name == "vote":
            sigma = step.mechanism.sigma
            return {**shared, "vote": release.map(lambda total: self._vote(total, sigma))}
        seen = int(shared["seen"].value) + 1
        sigma = step.mechanism.sigma / math.sqrt(seen)
        most = self.n_tasks * step.mechanism.clip_norm**2
        moment = Release.combine(
            lambda before, new: before + (new - before) / seen, shared["mean_moment"], release
        )
        return {
            **shared,
            "mean_moment": moment,
            "seen": Declared(seen),
            "shape": moment.map(lambda value: structure_of(value, sigma, most)[0]),
            "rest": moment.map(lambda value: np.asarray(structure_of(value, sigma, most)[1])),
        }

    def _vote(self, total: FloatArray, sigma: float) -> FloatArray:
        """The log prior (A, L) that the votes imply."""
        log_prior = prior_of_votes(total, sigma, self.n_tasks).reshape(-1, len(VOTED))
        return np.stack([np.interp(np.log10(PENALTIES), np.log10(VOTED), row) for row in log_prior])


def _unknown(width: int) -> dict[str, Release | Declared]:
    return {
        "shape": Declared(np.zeros((width, width))),
        "rest": Declared(1.0),
        "vote": Declared(np.zeros((1 + len(FLOORS), len(PENALTIES)))),
    }


def structure_of(
    moment: FloatArray, sigma: float, most: float = math.inf
) -> tuple[FloatArray, float]:
    """Shape (d, d) and rest of a noisy second moment, together of average variance one.

    No eigenvalue can exceed ``most`` = mK²: noise whose edge does leaves no structure to be read.

    >>> shape, rest = structure_of(np.diag([4.0, 0.0]), 0.0)
    >>> shape, rest
    (array([[2., 0.],
           [0., 0.]]), 0.0)
    """
    d = len(moment)
    if math.sqrt(2 * d) * sigma >= most:
        return np.zeros((d, d)), 1.0
    kept = _kept_diagonal(moment, sigma) if moment.ndim == 1 else _kept_directions(moment, sigma)
    total = float(moment.sum() if moment.ndim == 1 else np.trace(moment))
    rest = max(total - float(np.trace(kept)), 0.0) / d
    average = float(np.trace(kept)) / d + rest
    if average <= 0 or not kept.any():
        return np.zeros((d, d)), 1.0
    return kept / average, rest / average


def _kept_diagonal(moment: FloatArray, sigma: float) -> FloatArray:
    return np.diag(np.where(moment > DETECTED * sigma, moment, 0.0))


def _kept_directions(moment: FloatArray, sigma: float) -> FloatArray:
    """Σ θ c² v vᵀ over the eigenvalues that stand out of the noise."""
    d = len(moment)
    spread = d * sigma**2 / 2  # s²
    seen, vectors = np.linalg.eigh(moment)
    out = seen > max(2 * math.sqrt(spread) * (1 + d ** (-2 / 3)), 1e-12 * abs(seen).max())
    seen, vectors = seen[out], vectors[:, out]
    true = (seen + np.sqrt(seen**2 - 4 * spread)) / 2
    return np.asarray((vectors * (true - spread / true)) @ vectors.T)


# --- the non-private twin ------------------------------------------------------------------------


def open_moment(tasks: Tasks, clip_norm: float, structure: Structure, rounds: int) -> Message:
    """The same without noise, as often as it pays."""
    width = tasks.home.problems.X.shape[1] - 1
    shared: Message = _unknown(width)
    step = Step("open", SymmetricGaussian(clip_norm, 1.0))
    for _ in range(rounds):
        models, _ = tasks.contribute(step, shared, None)
        norms = np.maximum(row_norms(models), 1e-300)[:, None]
        clipped = models * np.minimum(1.0, clip_norm / norms)
        moment = clipped.T @ clipped if structure == "full" else (clipped**2).sum(0)
        shape, rest = structure_of(moment, 0.0)
        shared = {**shared, "shape": Unprotected(shape), "rest": Unprotected(rest)}
    scaled, _ = in_own_units(tasks.home.problems, tasks.home.loss)
    coef, evidence = options(scaled, tasks.home.loss, shared)
    said = ballots(evidence + usual_penalties(PENALTIES, coef.shape[-1]))
    clipped = said / np.maximum(np.linalg.norm(said, axis=1, keepdims=True), 1.0)
    vote = prior_of_votes(clipped.sum(0), 0.0, len(said)).reshape(evidence.shape[1:])
    return {**shared, "vote": Unprotected(vote)}
