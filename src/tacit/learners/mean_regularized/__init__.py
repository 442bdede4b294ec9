"""Mean-regularised multi-task learning for linear models, under task-level joint DP, or with people
inside silos protected from everybody outside.

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

``as_published=True`` is Algorithm 1 itself (algorithm_1.py), with E ``local_steps``, λ ``penalty``,
η ``step``, γ ``clip_norm``, q ``cohort`` and any Ω ``relation``; ``bounds`` has Theorems 3 and 5.

``unit="example"`` solves objective (2) from what silos release (tacit.silos), aware of its noise:
public w_k are posterior means under w_k ~ N(w̄, γI), λ = σ²/γ.

**Sensitivity.** Every release is a sum of rows clipped to norm one: Δ₂ = 2 (replace), 1 (zero-out);
the votes on scales, which are one-hot, √2 and 1.
All noise levels, the number of rounds and all constants below are functions of (ε, δ, m, d) alone.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Literal

import numpy as np

from tacit.arrays import FloatArray
from tacit.engine import Facts, Message, Step, Unprotected
from tacit.errors import InvalidInput
from tacit.estimator import Home, PrivateLearner, learner
from tacit.estimator.open_scale import in_shared_units, units_of
from tacit.learners.mean_regularized.algorithm_1 import (
    VISIBLE,
    ClaimedSum,
    GlobalLearner,
    Inputs,
    TaskLearners,
    theorem_1_sigma,
)
from tacit.learners.mean_regularized.curator import Curator
from tacit.learners.mean_regularized.participant import VOTED, PriorMean, Tasks
from tacit.linear.batched import shared_mean, solve_path
from tacit.linear.losses import Loss, loss_named
from tacit.linear.model_averaging import LEAST_TRUST, STRONGEST, log_evidence
from tacit.linear.problems import Problems
from tacit.linear.single_task_fits import PENALTIES
from tacit.linear.task_relations import Omega, related_by
from tacit.parameters import Count, Positive, Size, require_unset
from tacit.privacy.accounting import poisson_noise_multiplier
from tacit.privacy.budget import Budget
from tacit.privacy.mechanisms import GaussianSum
from tacit.silos.hierarchy import AtPenalty, Tie, all_alike
from tacit.silos.silo_learner import InsideSilos

__all__ = ["Curator", "MeanRegularized", "Tasks"]


OF_TASKS = ("rounds", "clip_norm", "relation", "as_published", "step", "local_steps", "cohort",
            "calibration")  # fmt: skip
"""Parameters of rounds among tasks."""


@learner
class BetweenTasks(PrivateLearner):
    """``unit="task"``: a whole task is protected from all others, and a curator is trusted."""

    rounds: Count | Literal["auto"] = "auto"
    clip_norm: Positive | Literal["auto"] = "auto"
    penalty: Positive | Literal["auto"] = "auto"
    relation: Omega | None = None
    as_published: bool = False
    step: Positive | None = None
    local_steps: Count = 1
    cohort: Size | None = None
    calibration: Literal["theorem 1", "amplified"] = "theorem 1"

    def _check(self) -> None:
        if self.as_published and self.budget is not None:
            needed = {"rounds": self.rounds, "clip_norm": self.clip_norm, "penalty": self.penalty}
            missing = [name for name, value in needed.items() if value == "auto"]
            missing += ["step"] if self.step is None else []
            if missing:
                raise InvalidInput(
                    f"as_published=True runs the printed algorithm: give {', '.join(missing)}"
                )
            if not isinstance(self.budget, Budget):
                raise InvalidInput("Algorithm 1 knows one budget for all tasks")
        elif self.budget is not None and (self.penalty != "auto" or self.relation is not None):
            raise InvalidInput(
                "penalty and relation are λ and Ω of the twin (budget=None) and of Algorithm 1 "
                "(as_published=True); a private run asks all tasks for the penalty"
            )
        elif self.relation is not None and self.penalty == "auto":
            raise InvalidInput("objective (1) has a λ: give penalty beside relation")

    @property
    def _engines(self) -> Literal["rounds", "arrivals", "silos"] | None:
        """Cohorts of Algorithm 1 are drawn among all tasks: it stays in one process."""
        return None if self.as_published else super()._engines

    @property
    def _takes_several(self) -> bool:
        """Of our rounds; the objectives of the paper have one target."""
        return not self.as_published and self.penalty == "auto"

    def _open(self, home: Home) -> Message:
        if self.penalty == "auto":
            return open_optimum(home)
        omega, level = self._omega(home.problems.n_tasks), float(self.penalty)
        models = related_by(home.problems, home.loss, omega, level)
        self._found = models
        return {"centres": Unprotected(_broadcast(omega, models)), "pull": Unprotected(level)}

    def _omega(self, n_tasks: int) -> Omega:
        if self.relation is None:
            return Omega.mean(n_tasks)
        omega = self.relation
        if len(omega.matrix) != n_tasks:
            raise InvalidInput(f"Ω relates {len(omega.matrix)} tasks, the data have {n_tasks}")
        return omega

    def _coordinator(self, facts: Facts) -> Curator | GlobalLearner:
        if not self.as_published:
            return Curator.planned(facts, None if self.rounds == "auto" else int(self.rounds))
        inputs = self._inputs(facts.n_tasks)
        steps = (Step("round", self._mechanism(inputs)),) * inputs.rounds
        return GlobalLearner(inputs, facts.width, steps)

    def _participant(self, home: Home, facts: Facts) -> Tasks | TaskLearners:
        if not self.as_published:
            return Tasks(home, None if self.clip_norm == "auto" else float(self.clip_norm))
        seeded = self.noise == "simulated" and self.random_state is not None
        # of the trusted side: they choose the cohorts
        self._coins = (int(self.random_state or 0), 1) if seeded else (secrets.randbits(128),)
        return self._learners(home)

    def _at_home(self, home: Home, shared: Message) -> FloatArray:
        if "pull" in shared:
            found: FloatArray = self.__dict__.pop("_found")
            return found
        if "centres" in shared:
            return self._learners(home).personal(np.asarray(shared["centres"].value)[:-1])
        return PriorMean.of(shared).mixture(home)

    def _newcomer(self, home: Home, shared: Message) -> FloatArray:
        """Of objective (2): held to the last broadcast, by E steps or, in the twin, exactly."""
        if "centres" not in shared:
            return self._at_home(home, shared)
        centre = np.asarray(shared["centres"].value)[-1].mean(axis=0)
        if "pull" in shared:
            level = np.array([float(shared["pull"].value)])
            return solve_path(home.problems, level, loss=home.loss, mean=centre).coef[:, 0]
        inputs = self._inputs(len(self._charged))
        alone = TaskLearners(home, inputs, (), np.zeros(1, dtype=np.int64))
        return alone.trained(centre[None], centre[None])

    def _shared_model(self, shared: Message) -> FloatArray:
        if "centres" in shared:
            return np.asarray(np.asarray(shared["centres"].value)[-1].mean(axis=0))
        prior = PriorMean.of(shared)
        return prior.mean * units_of(loss_named(self.loss), prior.target_scale, prior.feature_scale)

    # --- as published ---

    def _inputs(self, n_tasks: int) -> Inputs:
        if self.step is None or self.penalty == "auto":
            raise InvalidInput("a folder holds no inputs of Algorithm 1: nobody joins it later")
        cohort = n_tasks if self.cohort is None else int(self.cohort)
        if cohort > n_tasks:
            raise InvalidInput(f"a cohort of {cohort} was asked of {n_tasks} tasks")
        given = int(self.rounds), self.local_steps, float(self.penalty), float(self.step)
        omega, intercept = self._omega(n_tasks), bool(self.fit_intercept)
        return Inputs(*given, float(self.clip_norm), cohort, omega, intercept)

    def _learners(self, home: Home) -> TaskLearners:
        m = home.problems.n_tasks
        return TaskLearners(home, self._inputs(m), self._coins, np.arange(m))

    def _mechanism(self, inputs: Inputs) -> GaussianSum:
        """Noise σ on w̃, on the scale of the sum: σ q/m for the mean; for other Ω as γ·reach."""
        assert isinstance(self.budget, Budget)
        epsilon, delta = self.budget.epsilon, self.budget.delta
        gamma, m, rounds = inputs.clip_norm, inputs.n_tasks, inputs.rounds
        sigma = theorem_1_sigma(gamma, rounds, m, epsilon, delta)
        multiplier = sigma * inputs.cohort / gamma
        if self.calibration == "amplified":
            claimed = replace(self.budget, neighbours="zero-out")
            multiplier = poisson_noise_multiplier(inputs.cohort / m, rounds, claimed)
        clip_norm = gamma * inputs.reach
        if inputs.cohort == m and self.calibration == "theorem 1":
            return GaussianSum(clip_norm, multiplier * clip_norm)
        claim = epsilon / rounds, delta / rounds
        return ClaimedSum(clip_norm, multiplier * clip_norm, claim)

    def _claimed_only(self) -> str:
        if not self.as_published or (self.cohort is None and self.calibration == "theorem 1"):
            return ""
        return VISIBLE

    def _accountant(self) -> str:
        return "S2 Theorem 1, of a claim" if self._claimed_only() else super()._accountant()


@learner
class MeanRegularized(InsideSilos, BetweenTasks):
    """One linear model per task, held to a shared mean as strongly as the data ask for.

    A whole task is protected from the others, or with ``unit="example"`` every person inside a
    task, a silo, from everybody outside it; there ``penalty`` is the λ of public models ("auto":
    found in the releases).

    budget=None solves S2's objective (2) exactly and chooses λ by leave-one-out over all tasks;
    with ``penalty`` it is objective (1) at that λ, ½ tr(WΩWᵀ) with Ω ``relation`` (None: the
    mean). ``calibration`` "amplified": as if a cohort were a Poisson sample.

    >>> from tacit.datasets import related_tasks
    >>> from tacit.privacy.budget import Budget
    >>> data = related_tasks(60, rng=np.random.default_rng(0))
    >>> model = MeanRegularized(budget=Budget(2.0), ranges=data.ranges, noise="simulated",
    ...                         random_state=0).fit(data.X, data.y, task=data.task)
    >>> model.coef_.shape
    (10, 60)
    """

    def _check(self) -> None:
        super()._check()
        if self.unit == "example":
            require_unset(self, OF_TASKS, "where people inside silos are protected")

    @property
    def _tie(self) -> Tie:
        return all_alike if self.penalty == "auto" else AtPenalty(float(self.penalty))


def _broadcast(omega: Omega, models: FloatArray) -> FloatArray:
    """(1, R, D)."""
    return np.asarray((omega.broadcasts[0] @ models)[None])


# --- the non-private twin ------------------------------------------------------------------------


def open_optimum(home: Home) -> Message:
    """S2's objective (2) solved exactly; λ of the mean by leave-one-out over all tasks together.

    The vote is the exact total log likelihood, as strong as a private one may get.
    """
    problems, loss = home.problems, home.loss
    target = 1.0 if loss.targets_are_classes or home.declared_target else _rms(problems.y)
    undeclared = ~home.declared_features
    columns = problems.X[:, :-1]
    feature = np.where(undeclared, _rms(columns[:, undeclared]), 1.0)
    vote = np.zeros((2, len(PENALTIES)))
    scaled = in_shared_units(home, target, feature)
    mean = max((_joined(scaled, loss, penalty) for penalty in VOTED[1:]), key=lambda f: f[0])[1]
    together = PriorMean(mean, True, 1 - LEAST_TRUST, False, vote, target, feature)
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
