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
from tacit.linear.losses import Squared
from tacit.linear.problems import each_matrix
from tacit.linear.row_algebra import or_zero
from tacit.linear.smooth import Quadratic, quadratic
from tacit.linear.standardised import Standardised, standardised, with_own_intercepts
from tacit.linear.threads import isolated
from tacit.parameters import Count, NonNegative, Positive, Size
from tacit.privacy.budget import Budget
from tacit.privacy.mechanisms import EachRow, GaussianSum
from tacit.privacy.release import Declared, Release

OPEN_ROUNDS = 10
LEAST_RELATION = 0.1  # κ: what remains of Ω, of mean one, where the models span nothing


def example_budget(budget: Budget, max_rows: int) -> Budget:
    """What every single example may spend so that a whole task spends ``budget``: S1 Proposition 3.

    (ε/n, δ/(n e^ε)) for examples is (ε, δ) for n of them.

    >>> example_budget(Budget(1.0, 1e-5), 100).epsilon
    0.01
    """
    if max_rows < 1:
        raise InvalidInput(f"max_rows must be at least 1, got {max_rows}")
    delta = budget.delta / (max_rows * math.exp(budget.epsilon))
    return Budget(budget.epsilon / max_rows, delta, neighbours=budget.neighbours)


@learner
class TaskRelationship(PrivateLearner):
    """Task models drawn together by a learned relationship; the models themselves are released.

    ``max_rows`` declares n; None: each task divides by its own number of rows, at home, and only
    the clip protects it.

    >>> from tacit.datasets import related_tasks
    >>> data = related_tasks(40, rng=np.random.default_rng(0))
    >>> model = TaskRelationship(budget=Budget(2.0), noise="simulated", random_state=0)
    >>> model.fit(data.X, data.y, task=data.task).coef_.shape
    (10, 40)
    """

    rounds: Count = 1
    clip_norm: Positive | Literal["auto"] = "auto"
    penalty: Positive = 0.03
    coupling: NonNegative = 0.03
    lipschitz: Positive = 0.03
    max_rows: Size | None = None

    @property
    def _own_units(self) -> bool:
        return self.clip_norm == "auto"

    def _open(self, home: Home) -> Message:
        """The twin: rounds without noise."""
        tasks, problems = self._tasks(home), home.problems
        models = np.zeros((problems.n_tasks, problems.X.shape[1] - 1))
        for _ in range(1 + OPEN_ROUNDS):
            models = tasks.models(models)
        return {"models": Unprotected(models), "own_units": Unprotected(self._own_units)}

    def _tasks(self, home: Home) -> Tasks:
        everybody = np.arange(home.problems.n_tasks)
        levels = float(self.penalty), float(self.coupling)
        return Tasks(home, everybody, self._own_units, *levels, self.max_rows)

    def _participant(self, home: Home, facts: Facts) -> Tasks:
        return self._tasks(home)

    def _coordinator(self, facts: Facts) -> Curator:
        given = self.clip_norm
        clip_norm = float(self.lipschitz) / float(self.penalty) if given == "auto" else float(given)
        rounds = int(self.rounds)
        mu = facts.mu / math.sqrt(rounds)
        mechanism = EachRow(GaussianSum.for_mu(clip_norm, mu, facts.neighbours))
        steps = tuple(Step(f"models {t}", mechanism) for t in range(1, rounds + 1))
        return Curator((facts.n_tasks, facts.width - 1), self._own_units, steps)

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
        assert isinstance(step.mechanism, EachRow)
        assert isinstance(step.mechanism.row, GaussianSum)
        row = step.mechanism.row
        signal, noise = row.clip_norm**2, self.shape[1] * row.sigma**2
        return {**shared, "models": release.map(lambda W: W * signal / (signal + noise))}


def _units(home: Home, scaled: bool) -> Standardised:
    return standardised(home.problems, Squared(), scaled=scaled)  # least squares for both losses
