"""The estimators: parameters, public rules, and the plan of a run."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from tacit.arrays import FloatArray
from tacit.engine import Facts, Message, Outcome, Step, Unprotected
from tacit.estimator import Home, PrivateLearner, learner
from tacit.learners.model_protected.covariance_schedule import (
    Kind,
    Schedule,
    is_weights,
    noises_at_home,
    published_amounts,
    published_mechanism,
    pure_amounts,
    schedule_weights,
    sound_mechanism,
)
from tacit.learners.model_protected.tasks_and_curator import (
    KINDS,
    OWN_PENALTIES,
    STARTS,
    Curator,
    Rules,
    Start,
    Tasks,
    solved_at_home,
)
from tacit.linear.joint_optima import Optimum, joined, open_decomposed, open_optimum
from tacit.linear.penalties import GroupNorm, Penalty, TraceNorm
from tacit.linear.standardised import AUTO_CLIP
from tacit.parameters import Count, NonNegative, Positive
from tacit.privacy.accounting import Cost
from tacit.privacy.budget import Budget
from tacit.privacy.mechanisms import PublishedWishart
from tacit.privacy.planning import UNIT, Door, open_door, stated
from tacit.tasks import Schema, TaskSet

AUTO_LEVEL = 0.1  # of K√(m/d), the singular value of m models of norm K spread over d directions
QUIET = 0.5  # further rounds must keep the noise below this share of a direction's K²m/d
MOST_ROUNDS = 5
PUBLISHED_ROUNDS = 10
PURE_ACCOUNTANT = "optimal composition of pure releases (Kairouz, Oh, Viswanath)"
INVERTED = "the published density has its fraction inverted: ε is claimed, the truth is 4K²/ε"

AGAINST_THE_CURATOR = replace(
    UNIT,
    unit=f"{UNIT.unit}, so every single example in it",
    adversary="the curator and all other tasks together",
    not_covered=("a task's own model, which is solved without noise",),
)
"""Algorithm 5: K-norm noise on every model, (ε, 0)-DP for everything in the task's data, against
the curator too (docs/privacy.md, C: the paper has the fraction inverted). The covariance then clips
again, so its own guarantee against the other tasks holds whatever that noise did. Where ε of the
noise at home is the smaller one, the covariance's noise adds nothing."""


@learner
class ModelProtected(PrivateLearner):
    """S1 Algorithm 1: rounds of models in, a noisy covariance out, a step at home.

    ``penalty`` is λ ("auto": a public rule; by held-out rows in the twin); ``mechanism`` "gaussian"
    or a pure one; ``covariance`` "features" (WWᵀ) or "tasks" (WᵀW); ``schedule`` "auto" (Theorem
    6), ("power", α), ("geometric", Q) or each round's weight; ``start`` "ridge", "lasso", "zeros"
    or a function (problems, loss) → models (1, D), called with one task at a time; ``refit`` as
    above (6);
    ``protect_examples`` a Budget for Algorithm 5; ``as_published`` True, or "first" for the first
    version's sensitivities.
    """

    _penalty: ClassVar[Penalty] = TraceNorm()

    rounds: Count | Literal["auto"] = "auto"
    clip_norm: Positive | Literal["auto"] = "auto"
    penalty: Positive | Literal["auto"] = "auto"
    mechanism: Literal["gaussian", "wishart", "laplace"] = "gaussian"
    covariance: Literal["features", "tasks"] = "features"
    accelerated: bool = True
    strong_convexity: NonNegative = 0.0
    schedule: Schedule = "auto"
    start: Start = "ridge"
    refit: bool = True
    protect_examples: Budget | None = None
    as_published: bool | Literal["first"] = False

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

    def _participant(self, home: Home, facts: Facts) -> Tasks:
        return Tasks.at(home, self._rules(facts), self.start)

    def _at_home(self, home: Home, shared: Message) -> FloatArray:
        if "spread" in shared:
            found: FloatArray | None = self.__dict__.pop("_found", None)
            return self._joined(home, shared) if found is None else found
        return solved_at_home(Tasks.at(home, Rules.of(shared), self.start), shared)

    def _shared_model(self, shared: Message) -> FloatArray:
        return np.zeros(len(self._schema.feature_names_out) + 1)

    def _is_pure(self) -> bool:
        return bool(self.as_published) or self.mechanism != "gaussian"

    def _accountant(self) -> str:
        if self.as_published:
            return "S1 Definition 7 (Kairouz, Oh, Viswanath), of what the paper claims"
        return PURE_ACCOUNTANT if self._is_pure() else super()._accountant()

    def _claimed_only(self) -> str:
        return PublishedWishart.law.reason if self.as_published else ""

    # --- planning ---

    def _coordinator(self, facts: Facts) -> Curator:
        rounds = self._rounds(facts)
        mechanisms, edges = self._mechanisms(facts, rounds)
        own = noises_at_home(
            self._clip(), self.protect_examples, rounds, published=bool(self.as_published)
        )
        steps = tuple(
            Step(f"covariance {t}", *both)
            for t, both in enumerate(zip(mechanisms, own, strict=True), start=1)
        )
        return Curator(self._rules(facts), steps, edges, facts.n_tasks, facts.width - 1)

    def _clip(self) -> float:
        return AUTO_CLIP if self.clip_norm == "auto" else float(self.clip_norm)

    def _rules(self, facts: Facts) -> Rules:
        clip_norm, m, d = self._clip(), facts.n_tasks, facts.width - 1
        own = self._own_penalty()
        step = (1.0 if own is None else 0.5) / (1 + self.strong_convexity)
        typical = clip_norm * math.sqrt(m / max(d, 1))
        penalty = AUTO_LEVEL * typical if self.penalty == "auto" else float(self.penalty)
        own_level = self._own_level()
        if own_level is None:  # of the size of a coefficient, or of a column
            own_level = AUTO_LEVEL * clip_norm / (math.sqrt(max(d, 1)) if own == "l1" else 1.0)
        return Rules(
            kind=KINDS.index(self._kind()),
            clip_norm=clip_norm,
            own_units=self.clip_norm == "auto",
            level=step * penalty,
            step=step,
            strong_convexity=float(self.strong_convexity),
            accelerated=bool(self.accelerated),
            literal=bool(self.as_published),
            refit=bool(self.refit) and not self.as_published,
            start=-1 if callable(self.start) else STARTS.index(self.start),
            own=-1 if own is None else list(OWN_PENALTIES).index(own),
            own_level=step * own_level,
        )

    def _rounds(self, facts: Facts) -> int:
        """T, from (ε, δ, m, d): more rounds only while their noise stays below the signal."""
        if self.rounds != "auto":
            return int(self.rounds)
        if is_weights(self.schedule):
            return len(self.schedule)
        if self.as_published:
            return PUBLISHED_ROUNDS
        _, (edge,) = self._mechanisms(facts, 1)
        ratio = edge / (self._clip() ** 2 * facts.n_tasks / max(facts.width - 1, 1))
        return max(1, min(MOST_ROUNDS, int((QUIET / ratio) ** 2)))

    def _mechanisms(self, facts: Facts, rounds: int) -> tuple[tuple[Any, ...], tuple[float, ...]]:
        """One for each round, and the edge of its noise."""
        clip_norm, m, d = self._clip(), facts.n_tasks, facts.width - 1
        weights = schedule_weights(
            self.schedule,
            rounds,
            accelerated=self.accelerated,
            strong_convexity=self.strong_convexity,
        )
        kind = self._kind()
        if self.as_published:
            version: Literal["last", "first"] = "first" if self.as_published == "first" else "last"
            amounts = published_amounts(weights, facts.pure or Cost())
            found: list[Any] = [
                published_mechanism(kind, clip_norm, float(a), version) for a in amounts
            ]
        else:
            if facts.pure is not None:
                amounts = pure_amounts(weights, facts.pure)
            else:
                amounts = weights * facts.mu / np.linalg.norm(weights)
            found = [
                sound_mechanism(kind, self.mechanism, clip_norm, float(a), facts.neighbours, m)
                for a in amounts
            ]
        edges = [each.statistic.edge(each.noise, (m, max(d, 1))) for each in found]
        return tuple(found), tuple(edges)

    # --- Algorithm 5: noise of each task's own, before each covariance ---

    def _opened(self, *given: Any) -> Door:
        """With a second account, of what the curator learns: another adversary, another budget."""
        door = super()._opened(*given)
        if self.protect_examples is None:
            return door
        own = open_door(
            door.ledger.beside(f"{door.ledger.dataset}, against the curator"),
            f"{door.run}, at home",
            door.labels,
            self.protect_examples,
            door.rng,
            pure=True,
            promise=AGAINST_THE_CURATOR,
            doubts=[INVERTED] if self.as_published else [],
            family=door.family,
        )
        return replace(door, at_home=own)

    def _remember(
        self, schema: Schema, tasks: TaskSet, outcome: Outcome, door: Door | None
    ) -> None:
        super()._remember(schema, tasks, outcome, door)
        own = None if door is None else door.at_home
        if own is not None:
            self.local_guarantee_ = stated(
                AGAINST_THE_CURATOR,
                own.ledger,
                own.labels,
                [own.run],
                neighbours=own.neighbours,
                accountant=PURE_ACCOUNTANT,
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
class LowRank(ModelProtected):
    """S1 Algorithm 2: task models in a common low-dimensional subspace (trace norm).

    budget=None solves Σ L_i + λ‖W‖_* exactly. Parameters: see ModelProtected.

    >>> from tacit.datasets import low_rank_tasks
    >>> data = low_rank_tasks(40, rows=8, n_features=5, rank=2, rng=np.random.default_rng(0))
    >>> model = LowRank(budget=Budget(4.0), noise="simulated", random_state=0)
    >>> model.fit(data.X, data.y, task=data.task).coef_.shape
    (5, 40)
    """


@learner
class GroupSparse(ModelProtected):
    """S1 Algorithm 3: all tasks use the same few features (ℓ2,1); releases a diagonal only.

    budget=None solves Σ L_i + λ‖W‖_{2,1} exactly. ``mechanism`` "gaussian" or "laplace" (pure).

    >>> from tacit.datasets import group_sparse_tasks
    >>> data = group_sparse_tasks(40, rows=8, n_features=5, active=2, rng=np.random.default_rng(0))
    >>> model = GroupSparse(budget=Budget(4.0), noise="simulated", random_state=0)
    >>> model.fit(data.X, data.y, task=data.task).coef_.shape
    (5, 40)
    """

    _penalty: ClassVar[Penalty] = GroupNorm()


@learner
class Decomposed(ModelProtected):
    """S1 Algorithm 4: models W = P + Q, P shared and Q each task's own; Remark 4's variants.

    ``shared`` is P's penalty, "trace" or "group"; ``own`` is Q's, "l1" (entries), "column" (whole
    tasks) or "squared"; ``own_penalty`` is λ₂.

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
