"""DP-MTRL, a baseline: noisy task models, related by a matrix that is learned from them.

Gupta, Rana, Venkatesh, "Differentially Private Multi-task Learning", PAISI 2016, made of Zhang and
Yeung, "A Convex Formulation for Learning Task Relationships", UAI 2010, with the corrections of S1
§5.1: composition over the iterations, and Lipschitz constants in the sensitivity. Objective:

    Σ_i (1/n) Σ_j ℓ_ij(w_i) + (λ₁/2) ‖W‖² + (λ₂/2) tr(W Ω^{−1} Wᵀ),   Ω ⪰ 0, tr Ω = m

**Symbols**

====  =====================  ==============================================================
W     ``models``             one row per task, (m, d)
Ω     relationship           m (WᵀW)^½ / tr, (m, m): never written out, of rank ≤ d
λ₁    ``penalty``
λ₂    ``coupling``
L     ``lipschitz``          declared bound of |ℓ'|·‖x‖
n     ``max_rows``           declared bound of the rows of a task
T     ``rounds``
====  =====================  ==============================================================

**Differs from the paper in**

1. A task solves for its own column, given the others' *released* columns (a Jacobi step). The joint
   closed form makes every released column depend on everybody's data.
2. The unit is a task. An example's sensitivity is 2L/(nλ₁) (Chaudhuri et al. 2011); by group
   privacy (S1 Proposition 3, ``example_budget``) n of them make 2L/λ₁, whatever n: the diameter of
   a ball of radius K = L/λ₁. Columns are clipped to K, so that the bound holds even where the
   declared L does not. S1 estimates L from the data, which leaks.
3. Gaussian noise and exact Gaussian DP over the T rounds, instead of gamma-distributed noise.
4. tr Ω = m instead of 1, so that λ₂ means the same for any m; and Ω + κI is inverted, as noisy
   columns span d of m dimensions at most.
5. loss="logistic" fits ±1 by least squares, as S1 does: the closed form is needed.
6. Released columns are shrunk by K²/(K² + dσ²), the most that can be signal in them: free, and
   without it a column of d noisy numbers is worse than none.

``budget=None`` is MTRL at its optimum (linear/relationship_optimum.py), λ₁ and λ₂ by held-out rows
unless given. ``as_published=True`` is DP-MTRL as S1 ran it: T times all columns together in closed
form given Ω (Zhang and Yeung's, which needs no inverse of Ω), noise of density ∝ exp(−ε_t‖b‖/s_i)
on each, s_i = 2L_i/(n_iλ₁) with S1's measured L_i, and Ω of the noisy columns; {ε_t} by Definition
7 at an example's share of the budget (Proposition 3). Not private. λ₂ is m times that of tr Ω = 1.
What Gupta et al. print is here as S1 describes it.

**Sensitivity** of all columns together: 2K (replace), K (zero-out): one task, one row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from tacit.arrays import FloatArray, IntArray
from tacit.engine import Facts, Message, Public, Step, Unprotected
from tacit.errors import InvalidInput
from tacit.estimator import Home, PrivateLearner, learner
from tacit.learners.model_protected.covariance_schedule import published_amounts
from tacit.learners.model_protected.output_perturbation import (
    MEASURED,
    OutputPerturbation,
    example_budget,
    with_sensitivities,
)
from tacit.linear.losses import Squared
from tacit.linear.problems import each_matrix
from tacit.linear.relationship_optimum import chosen_optimum, mean_squares
from tacit.linear.row_algebra import or_zero
from tacit.linear.smooth import Quadratic, quadratic
from tacit.linear.standardised import Standardised, standardised, with_own_intercepts
from tacit.linear.threads import isolated
from tacit.parameters import Count, NonNegative, Positive, Size
from tacit.privacy.accounting import Cost
from tacit.privacy.budget import Budget
from tacit.privacy.mechanisms import EachRow, GaussianSum
from tacit.privacy.release import Declared, Mechanism, Release

AUTO_PENALTY = 0.03  # λ₁ and λ₂ of a private run, where they are not given
TOGETHER = "after the first round every column is computed from all tasks' rows"
LEAST_RELATION = 0.1  # κ: what remains of Ω, of mean one, where the models span nothing


@learner
class TaskRelationship(PrivateLearner):
    """Task models drawn together by a learned relationship; the models themselves are released.

    ``penalty`` is λ₁ and ``coupling`` λ₂; "auto": by held-out rows in the twin, 0.03 in a private
    run. ``max_rows`` declares n; None: each task divides by its own number of rows, at home, and
    only the clip protects it. As published it is n of Proposition 3.

    >>> from tacit.datasets import related_tasks
    >>> data = related_tasks(40, rng=np.random.default_rng(0))
    >>> model = TaskRelationship(budget=Budget(2.0), noise="simulated", random_state=0)
    >>> model.fit(data.X, data.y, task=data.task).coef_.shape
    (10, 40)
    """

    rounds: Count = 1
    clip_norm: Positive | Literal["auto"] = "auto"
    penalty: Positive | Literal["auto"] = "auto"
    coupling: NonNegative | Literal["auto"] = "auto"
    lipschitz: Positive = 0.03
    max_rows: Size | None = None
    as_published: bool = False

    @property
    def _own_units(self) -> bool:
        return self.clip_norm == "auto" and not self.as_published

    def _check(self) -> None:
        if self.as_published and self.budget is not None and self.max_rows is None:
            raise InvalidInput("as_published=True needs n of Proposition 3: give max_rows")

    def _is_pure(self) -> bool:
        return self.as_published

    def _accountant(self) -> str:
        if self.as_published:
            return "S1 Definition 7 and Proposition 3, of a claim"
        return super()._accountant()

    def _claimed_only(self) -> str:
        return f"{MEASURED}; {TOGETHER}" if self.as_published else ""

    def _open(self, home: Home) -> Message:
        """The twin: the optimum."""
        given = [None if each == "auto" else float(each) for each in (self.penalty, self.coupling)]
        found = chosen_optimum(_units(home, self._own_units).problems, *given)
        models = found.models[:, :-1]
        return {"models": Unprotected(models), "own_units": Unprotected(self._own_units)}

    def _participant(self, home: Home, facts: Facts) -> Tasks | TasksTogether:
        levels = [
            AUTO_PENALTY if each == "auto" else float(each)
            for each in (self.penalty, self.coupling)
        ]
        if self.as_published:
            return TasksTogether(home, *levels)
        everybody = np.arange(home.problems.n_tasks)
        return Tasks(home, everybody, self._own_units, levels[0], levels[1], self.max_rows)

    def _coordinator(self, facts: Facts) -> Curator:
        mechanisms = self._published(facts) if self.as_published else self._sound(facts)
        steps = tuple(Step(f"models {t}", each) for t, each in enumerate(mechanisms, start=1))
        return Curator((facts.n_tasks, facts.width - 1), self._own_units, steps)

    def _sound(self, facts: Facts) -> list[Mechanism]:
        clip_norm = self.clip_norm
        if clip_norm == "auto":
            penalty = AUTO_PENALTY if self.penalty == "auto" else float(self.penalty)
            clip_norm = float(self.lipschitz) / penalty
        mu = facts.mu / math.sqrt(self.rounds)
        return [EachRow(GaussianSum.for_mu(clip_norm, mu, facts.neighbours))] * self.rounds

    def _published(self, facts: Facts) -> list[Mechanism]:
        assert facts.pure is not None
        assert self.max_rows is not None
        whole = Budget(facts.pure.epsilon, facts.pure.delta)
        each = example_budget(whole, int(self.max_rows))
        left = Cost(epsilon=each.epsilon, delta=each.delta)
        claim = whole.epsilon / self.rounds, whole.delta / self.rounds
        return [
            OutputPerturbation(float(amount), claim)
            for amount in published_amounts(np.ones(self.rounds), left)
        ]

    @property
    def _places_matter(self) -> bool:
        return True

    @isolated()
    def _at_home(self, home: Home, shared: Message) -> FloatArray:
        released = np.asarray(shared["models"].value)
        own = _units(home, bool(shared["own_units"].value))
        if len(released) != home.problems.n_tasks:  # a newcomer has the average model
            released = np.tile(released.mean(axis=0), (home.problems.n_tasks, 1))
        models = or_zero(own.outwards(np.column_stack([released, np.zeros(len(released))])))
        return with_own_intercepts(home.problems, home.loss, models[:, :-1])

    def _shared_model(self, shared: Message) -> FloatArray:
        mean = np.asarray(shared["models"].value).mean(axis=0)
        return np.append(np.zeros_like(mean) if bool(shared["own_units"].value) else mean, 0.0)


def relations(models: FloatArray) -> tuple[FloatArray, FloatArray]:
    """hold (m,) = (Ω^{−1})_ii and pull (m, d) = Σ_{j≠i} (Ω^{−1})_ij w_j, of models (m, d).

    Ω = U diag(a) Uᵀ + κI, a = m s/Σs, with the left singular vectors U of the models; by Woodbury
    Ω^{−1} = (I − U diag(a/(a + κ)) Uᵀ)/κ.
    """
    U, sizes, _ = np.linalg.svd(models, full_matrices=False)
    total = float(sizes.sum())
    a = len(models) * sizes / total if total > 0 else np.zeros_like(sizes)
    kept = a / (a + LEAST_RELATION)
    hold = (1 - (U**2 * kept).sum(axis=1)) / LEAST_RELATION
    whole = (models - (U * kept) @ (U.T @ models)) / LEAST_RELATION
    return np.asarray(hold), np.asarray(whole - hold[:, None] * models)


@dataclass(frozen=True)
class Tasks:
    """All tasks of this process at once: each solves for its own column."""

    home: Home
    members: IntArray  # (m,): which of the released columns are theirs
    own_scale: bool
    penalty: float
    coupling: float
    max_rows: int | None  # n: declared, or each task's own

    def select(self, units: Sequence[int]) -> Tasks:
        """These tasks only, in this order."""
        members = self.members[np.asarray(units, dtype=np.int64)]
        return replace(self, home=self.home.select(units), members=members)

    @isolated()
    def models(self, released: FloatArray) -> FloatArray:
        """(m, d): (G_i + λ₁ + λ₂(Ω^{−1})_ii) w_i = b_i − λ₂ Σ_{j≠i} (Ω^{−1})_ij w_j."""
        hold, pull = (part[self.members] for part in relations(released))
        G, b = self._gram.G[:, :-1, :-1], self._gram.b[:, :-1]
        ridge = (self.penalty + self.coupling * hold)[:, None, None] * np.eye(b.shape[1])
        right = (b - self.coupling * pull)[:, :, None]
        models = each_matrix(np.linalg.solve, G + ridge, right)[:, :, 0]
        return or_zero(models, self.home.problems.speak(self.home.loss))

    @cached_property
    def _gram(self) -> Quadratic:
        """Of each task, over n."""
        problems = _units(self.home, self.own_scale).problems
        n = np.maximum(problems.sizes, 1) if self.max_rows is None else self.max_rows
        return quadratic(problems, (np.ones(problems.n_tasks) / n)[problems.task])

    def contribute(self, step: Step, shared: Message, state: Any) -> tuple[FloatArray, Any]:
        """Each task's column, given what was released of the others; the mechanism clips it."""
        return self.models(np.asarray(shared["models"].value)), None


@dataclass(frozen=True)
class TasksTogether:
    """As published: every column depends on everybody's rows, but for the first round."""

    home: Home
    penalty: float
    coupling: float

    def select(self, units: Sequence[int]) -> TasksTogether:
        """These tasks only, in this order."""
        return replace(self, home=self.home.select(units))

    @isolated()
    def models(self, released: FloatArray) -> FloatArray:
        """(m, d): argmin_W Σ_i (1/n_i) Σ_j ½(x_jᵀw_i − y_j)² + ½ tr(W (λ₁I + λ₂Ω^{−1}) Wᵀ).

        With Ω = U diag(a) Uᵀ of the released columns, Ω(λ₁Ω + λ₂I)^{−1} = FFᵀ, W = F A, and A of
        norm penalty ½‖A‖² solves (I + Σ_i f_i f_iᵀ ⊗ G_i) A = Σ_i f_i ⊗ b_i. Ω = I at first.
        """
        gram = mean_squares(_units(self.home, False).problems, 0.0)
        G, b = gram.G[:, :-1, :-1], gram.b[:, :-1]
        m, d = b.shape
        if not released.any():
            ridge = (self.penalty + self.coupling) * np.eye(d)
            return each_matrix(np.linalg.solve, G + ridge, b[:, :, None])[:, :, 0]
        U, sizes, _ = np.linalg.svd(released, full_matrices=False)
        a = m * sizes / sizes.sum()
        F = U * np.sqrt(a / (self.penalty * a + self.coupling))
        r = F.shape[1]
        H = np.einsum("mr,ms,mij->risj", F, F, G, optimize=True).reshape(r * d, r * d)
        A = np.linalg.solve(H + np.eye(r * d), (F.T @ b).ravel())
        return np.asarray(F @ A.reshape(r, d))

    def contribute(self, step: Step, shared: Message, state: Any) -> tuple[FloatArray, Any]:
        """All columns, each with its sensitivity."""
        models = self.models(np.asarray(shared["models"].value))
        problems = _units(self.home, False).problems
        return with_sensitivities(problems, Squared(), models, self.penalty), None


@dataclass(frozen=True)
class Curator:
    """Passes the released columns on."""

    shape: tuple[int, int]
    own_units: bool
    steps: tuple[Step, ...]

    def start(self) -> Public:
        """No models yet, so no relationship."""
        return {"models": Declared(np.zeros(self.shape)), "own_units": Declared(self.own_units)}

    def absorb(self, step: Step, shared: Public, release: Release) -> Public:
        """The models of this round, shrunk by their noise, replace those of the last."""
        if not isinstance(step.mechanism, EachRow):  # as published: as they are
            return {**shared, "models": release}
        assert isinstance(step.mechanism.row, GaussianSum)
        row = step.mechanism.row
        signal, noise = row.clip_norm**2, self.shape[1] * row.sigma**2
        return {**shared, "models": release.map(lambda W: W * signal / (signal + noise))}


def _units(home: Home, scaled: bool) -> Standardised:
    return standardised(home.problems, Squared(), scaled=scaled)  # least squares for both losses
