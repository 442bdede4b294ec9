"""S1's proximal algorithms: their parameters, public rules, and non-private twins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np

from tacit.arrays import FloatArray
from tacit.engine import Facts, Message, Unprotected
from tacit.errors import InvalidInput
from tacit.estimator import Home, learner
from tacit.learners.model_protected.covariance_learner import CovarianceLearner
from tacit.learners.model_protected.covariance_schedule import Kind
from tacit.learners.model_protected.solved_at_home import solved_at_home
from tacit.learners.model_protected.tasks_and_curator import (
    KINDS,
    OWN_PENALTIES,
    STARTS,
    Curator,
    Rules,
    Tasks,
)
from tacit.linear.joint_optima import Optimum, joined, open_decomposed, open_optimum
from tacit.linear.penalties import GroupNorm, Penalty, TraceNorm
from tacit.parameters import NonNegative, Positive

AUTO_LEVEL = 0.1  # of K√(m/d), the singular value of m models of norm K spread over d directions


@learner
class ProximalLearner(CovarianceLearner):
    """Proximal gradient steps on Σ_i L_i(X_i w_i, y_i) + λ Ω(W), L_i the sum over the task's rows.

    ``penalty`` is λ and ``step`` is η, in the units of the data. "auto", in a private run: each
    task divides its loss by its own curvature, so that η = 1 suits all, and ηλ follows a public
    rule; there is then no one λ of that objective, so that ``penalty`` is given with ``step``. In
    the twin λ is chosen by held-out rows. ``accelerated`` True: β_t of S1 §4.5, by
    ``strong_convexity``; False: none; or every round's β_t. ``refit``: difference 6 above.
    """

    _penalty: ClassVar[Penalty] = TraceNorm()

    penalty: Positive | Literal["auto"] = "auto"
    step: Positive | Literal["auto"] = "auto"
    accelerated: bool | Sequence[NonNegative] = True
    strong_convexity: NonNegative = 0.0
    refit: bool = True

    # --- what differs between the three ---

    def _kind(self) -> Kind:
        if self.covariance == "tasks":
            return "tasks"
        return "full" if isinstance(self._shared_penalty(), TraceNorm) else "diagonal"

    def _shared_penalty(self) -> Penalty:
        return self._penalty

    def _own_penalty(self) -> str | None:
        return None

    def _own_level(self) -> float | None:
        return None

    # --- the contract ---

    def _check(self) -> None:
        super()._check()
        if self.budget is None or self.step != "auto":
            if self.step != "auto" and self.clip_norm == "auto":
                raise InvalidInput(
                    "step is η in the units of the data, and clip_norm='auto' has each task scale "
                    "itself: give clip_norm too"
                )
            return
        if self.as_published:
            raise InvalidInput(
                "as_published=True runs the printed algorithm, whose η is an input: give step, "
                "1/L with L the largest curvature of a task's loss"
            )
        if self.penalty != "auto" or self._own_level() is not None:
            raise InvalidInput(
                "penalty is λ of Σ L_i + λΩ(W), which a private run has only with a declared step "
                "η: give step too, or leave both to their public rules"
            )

    def _participant(self, home: Home, facts: Facts) -> Tasks:
        return Tasks.at(home, self._rules(facts), self.start, self._noised)

    def _at_home(self, home: Home, shared: Message) -> FloatArray:
        if "spread" in shared:
            found: FloatArray | None = self.__dict__.pop("_found", None)
            return self._joined(home, shared) if found is None else found
        return solved_at_home(Tasks.at(home, Rules.of(shared), self.start, self._noised), shared)

    def _newcomer(self, home: Home, shared: Message) -> FloatArray:
        if "spread" in shared:
            return self._joined(home, shared)
        return solved_at_home(Tasks.at(home, Rules.of(shared), self.start), shared)

    # --- planning ---

    def _coordinator(self, facts: Facts) -> Curator:
        steps, edges = self._planned(facts)
        return Curator(self._rules(facts), steps, edges, facts.n_tasks, facts.width - 1)

    def _eta(self) -> float:
        """η: given, or that of losses with curvature one (two in (P, Q)), and a ridge μ."""
        if self.step != "auto":
            return float(self.step)
        return (1.0 if self._own_penalty() is None else 0.5) / (1 + self.strong_convexity)

    def _recommended(self) -> tuple[bool, float]:
        return self._faster, min(float(self.strong_convexity) * self._eta(), 1.0)

    @property
    def _faster(self) -> bool:
        """Whether any β_t is not zero."""
        return bool(np.any(np.asarray(self.accelerated)))

    def _momenta(self, rounds: int) -> tuple[float, ...]:
        """β_t where they were given, one a round."""
        if isinstance(self.accelerated, bool | np.bool_):
            return ()
        if len(self.accelerated) != rounds:
            raise InvalidInput(f"accelerated has {len(self.accelerated)} β_t for {rounds} rounds")
        return tuple(map(float, self.accelerated))

    def _rules(self, facts: Facts) -> Rules:
        clip_norm, m, d = self._clip(), facts.n_tasks, facts.width - 1
        own, step = self._own_penalty(), self._eta()
        level = AUTO_LEVEL * clip_norm * math.sqrt(m / max(d, 1))
        own_level = AUTO_LEVEL * clip_norm  # of the size of a column, or of a coefficient
        if own == "l1":
            own_level /= math.sqrt(max(d, 1))
        if self.step == "auto":
            level, own_level = step * level, step * own_level
        if self.penalty != "auto":
            level = step * float(self.penalty)
        given = self._own_level()
        return Rules(
            kind=KINDS.index(self._kind()),
            clip_norm=clip_norm,
            own_units=self.clip_norm == "auto",
            own_step=self.step == "auto",
            level=level,
            step=step,
            strong_convexity=float(self.strong_convexity),
            accelerated=self._faster,
            momenta=self._momenta(self._rounds(facts)),
            literal=bool(self.as_published),
            refit=bool(self.refit) and not self.as_published,
            start=-1 if callable(self.start) else STARTS.index(self.start),
            own=-1 if own is None else list(OWN_PENALTIES).index(own),
            own_level=own_level if given is None else step * given,
        )

    # --- the non-private twin ---

    def _open(self, home: Home) -> Message:
        penalty = None if self.penalty == "auto" else float(self.penalty)
        own, problems, loss = self._own_penalty(), home.problems, home.loss
        if own is None:
            found = open_optimum(problems, loss, self._shared_penalty(), penalty)
        else:
            levels = (penalty, self._own_level())
            penalties = (self._shared_penalty(), OWN_PENALTIES[own])
            found = open_decomposed(problems, loss, *penalties, levels)
        parts = {"spread": found.spread, "level": found.level, "own_level": found.own_level}
        self._found = found.models
        return {name: Unprotected(part) for name, part in parts.items()}

    def _joined(self, home: Home, shared: Message) -> FloatArray:
        parts = {name: np.asarray(part.value) for name, part in shared.items()}
        found = Optimum(
            np.zeros((0, 0)), parts["spread"], float(parts["level"]), float(parts["own_level"])
        )
        own = self._own_penalty()
        return joined(home.problems, home.loss, found, None if own is None else OWN_PENALTIES[own])


@learner
class LowRank(ProximalLearner):
    """S1 Algorithm 2: task models in a common low-dimensional subspace (trace norm).

    budget=None solves Σ L_i + λ‖W‖_* exactly. Parameters: see ProximalLearner.

    >>> from tacit import Budget
    >>> from tacit.datasets import low_rank_tasks
    >>> data = low_rank_tasks(40, rows=8, n_features=5, rank=2, rng=np.random.default_rng(0))
    >>> model = LowRank(budget=Budget(4.0), noise="simulated", random_state=0)
    >>> model.fit(data.X, data.y, task=data.task).coef_.shape
    (5, 40)
    """


@learner
class GroupSparse(ProximalLearner):
    """S1 Algorithm 3: all tasks use the same few features (ℓ2,1); releases a diagonal only.

    budget=None solves Σ L_i + λ‖W‖_{2,1} exactly. ``mechanism`` "gaussian" or "laplace" (pure).

    >>> from tacit import Budget
    >>> from tacit.datasets import group_sparse_tasks
    >>> data = group_sparse_tasks(40, rows=8, n_features=5, active=2, rng=np.random.default_rng(0))
    >>> model = GroupSparse(budget=Budget(4.0), noise="simulated", random_state=0)
    >>> model.fit(data.X, data.y, task=data.task).coef_.shape
    (5, 40)
    """

    _penalty: ClassVar[Penalty] = GroupNorm()


@learner
class Decomposed(ProximalLearner):
    """S1 Algorithm 4: models W = P + Q, P shared and Q each task's own; Remark 4's variants.

    ``shared`` is P's penalty, "trace" or "group"; ``own`` is Q's, "l1" (entries), "column" (whole
    tasks) or "squared"; ``own_penalty`` is λ₂.

    >>> from tacit import Budget
    >>> from tacit.datasets import low_rank_tasks
    >>> data = low_rank_tasks(30, rows=8, n_features=4, rank=2, rng=np.random.default_rng(0))
    >>> model = Decomposed(budget=Budget(4.0), own="squared", noise="simulated", random_state=0)
    >>> model.fit(data.X, data.y, task=data.task).coef_.shape
    (4, 30)
    """

    own_penalty: Positive | Literal["auto"] = "auto"
    shared: Literal["trace", "group"] = "trace"
    own: Literal["l1", "column", "squared"] = "l1"

    def _shared_penalty(self) -> Penalty:
        return TraceNorm() if self.shared == "trace" else GroupNorm()

    def _own_penalty(self) -> str:
        return self.own

    def _own_level(self) -> float | None:
        return None if self.own_penalty == "auto" else float(self.own_penalty)
