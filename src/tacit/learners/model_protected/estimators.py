"""The estimators: parameters, public rules, and the plan of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from tacit.engine import run_rounds
from tacit.errors import InvalidInput
from tacit.estimator import (
    UNIT,
    Door,
    Home,
    Message,
    MultiTaskEstimator,
    Progress,
    Step,
    Unprotected,
)
from tacit.estimator.planning import open_door, stated
from tacit.learners.model_protected.halves import (
    KINDS,
    OWN_PENALTIES,
    STARTS,
    Curator,
    Rules,
    Start,
    Tasks,
    solved_at_home,
)
from tacit.linear.losses import FloatArray
from tacit.linear.penalties import GroupNorm, Penalty, TraceNorm
from tacit.linear.together import Optimum, joined, open_decomposed, open_optimum
from tacit.privacy.accounting import Cost
from tacit.privacy.budget import Budget
from tacit.privacy.covariance_noise import (
    Kind,
    Schedule,
    noise_edge,
    published_amounts,
    published_mechanism,
    pure_amounts,
    schedule_weights,
    sound_mechanism,
)
from tacit.privacy.mechanisms import KNormSum, PublishedWishart
from tacit.privacy.mechanisms.nested import EachRow

AUTO_CLIP = 1.0  # in a task's own units a model that explains its targets has about norm one
AUTO_LEVEL = 0.1  # of K√(m/d), the singular value of m models of norm K spread over d directions
QUIET = 0.5  # further rounds must keep the noise below this share of a direction's K²m/d
MOST_ROUNDS = 5
PUBLISHED_ROUNDS = 10


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


class ModelProtected(MultiTaskEstimator):
    """S1 Algorithm 1: rounds of models in, a noisy covariance out, a step at home.

    ``penalty`` is λ ("auto": a public rule; by held-out rows in the twin); ``mechanism`` "gaussian"
    or a pure one; ``covariance`` "features" (WWᵀ) or "tasks" (WᵀW); ``schedule`` "auto" (Theorem
    6), ("power", α), ("geometric", Q) or weights; ``start`` "ridge", "lasso", "zeros" or a function
    (problems, loss) → models; ``refit`` as above (6); ``protect_examples`` a Budget for Algorithm
    5; ``as_published`` True, or "first" for the first version's sensitivities.
    """

    _penalty: ClassVar[Penalty] = TraceNorm()

    def __init__(
        self,
        loss: Literal["squared", "logistic"] = "squared",
        budget: Budget | Mapping[Any, Budget] | None = None,
        rounds: int | Literal["auto"] = "auto",
        clip_norm: float | Literal["auto"] = "auto",
        penalty: float | Literal["auto"] = "auto",
        mechanism: str = "gaussian",
        covariance: Literal["features", "tasks"] = "features",
        accelerated: bool = True,
        strong_convexity: float = 0.0,
        schedule: Schedule = "auto",
        start: Start = "ridge",
        refit: bool = True,
        protect_examples: Budget | None = None,
        ledger: Any = None,
        noise: Literal["secure", "simulated"] = "secure",
        ranges: Any = None,
        fit_intercept: bool = True,
        as_published: bool | Literal["first"] = False,
        run: str | None = None,
        random_state: Any = None,
    ) -> None:
        self.loss = loss
        self.budget = budget
        self.rounds = rounds
        self.clip_norm = clip_norm
        self.penalty = penalty
        self.mechanism = mechanism
        self.covariance = covariance
        self.accelerated = accelerated
        self.strong_convexity = strong_convexity
        self.schedule = schedule
        self.start = start
        self.refit = refit
        self.protect_examples = protect_examples
        self.ledger = ledger
        self.noise = noise
        self.ranges = ranges
        self.fit_intercept = fit_intercept
        self.as_published = as_published
        self.run = run
        self.random_state = random_state

    # --- what differs between the three ---

    def _kind(self) -> Kind:
        if self.covariance not in ("features", "tasks"):
            raise InvalidInput(f"covariance must be 'features' or 'tasks', got {self.covariance!r}")
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

    def _learn(self, home: Home, door: Door | None, progress: Progress) -> Message:
        self._check()
        if door is None:
            shared, self._found = self._open(home)
            return shared
        door = self._door_at_home(door)
        curator = self._curator(home, door)
        tasks = Tasks.at(home, curator.rules, self.start)
        shared = run_rounds(tasks, curator, door, progress=progress)
        self._note_local(door.at_home)
        return shared

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
        if self._is_pure():
            return "optimal composition of pure releases (Kairouz, Oh, Viswanath)"
        return super()._accountant()

    def _claimed_only(self) -> str:
        return PublishedWishart.reason if self.as_published else ""

    # --- planning ---

    def _check(self) -> None:
        for name in ("clip_norm", "penalty"):
            value = getattr(self, name)
            if value != "auto" and not (isinstance(value, int | float) and 0 < value < math.inf):
                raise InvalidInput(f"{name} must be 'auto' or a positive number, got {value!r}")
        if self.rounds != "auto" and not (isinstance(self.rounds, int) and self.rounds >= 1):
            raise InvalidInput(f"rounds must be 'auto' or at least 1, got {self.rounds!r}")
        if not 0 <= self.strong_convexity < math.inf:
            raise InvalidInput(
                f"strong_convexity must be at least 0, got {self.strong_convexity!r}"
            )
        if not callable(self.start) and self.start not in STARTS:
            raise InvalidInput(f"start must be one of {STARTS} or a function, got {self.start!r}")
        if self.as_published not in (False, True, "first"):
            raise InvalidInput(f"as_published must be a bool or 'first', got {self.as_published!r}")
        self._kind()

    def _curator(self, home: Home, door: Door) -> Curator:
        m, d = home.problems.n_tasks, home.problems.X.shape[1] - 1
        clip_norm = AUTO_CLIP if self.clip_norm == "auto" else float(self.clip_norm)
        rounds = self._rounds(door, clip_norm, m, d)
        mechanisms, edges = self._mechanisms(door, clip_norm, m, d, rounds)
        rules = self._rules(clip_norm, m, d)
        own = self._noises_at_home(clip_norm, rounds)
        steps = tuple(
            Step(f"covariance {t}", *both)
            for t, both in enumerate(zip(mechanisms, own, strict=True), start=1)
        )
        return Curator(rules, steps, edges, m, d)

    def _rules(self, clip_norm: float, m: int, d: int) -> Rules:
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

    def _rounds(self, door: Door, clip_norm: float, m: int, d: int) -> int:
        """T, from (ε, δ, m, d): more rounds only while their noise stays below the signal."""
        if self.rounds != "auto":
            return int(self.rounds)
        if self.as_published:
            return PUBLISHED_ROUNDS
        _, (edge,) = self._mechanisms(door, clip_norm, m, d, 1)
        ratio = edge / (clip_norm**2 * m / max(d, 1))
        return max(1, min(MOST_ROUNDS, int((QUIET / ratio) ** 2)))

    def _mechanisms(
        self, door: Door, clip_norm: float, m: int, d: int, rounds: int
    ) -> tuple[tuple[Any, ...], tuple[float, ...]]:
        """One for each round, and the edge of its noise."""
        schedule: Schedule = self.schedule if self.rounds == rounds else "auto"
        weights = schedule_weights(
            schedule,
            rounds,
            accelerated=self.accelerated,
            strong_convexity=self.strong_convexity,
        )
        kind = self._kind()
        if self.as_published:
            version: Literal["last", "first"] = "first" if self.as_published == "first" else "last"
            amounts = published_amounts(weights, door.pure or Cost())
            found: list[Any] = [
                published_mechanism(kind, clip_norm, float(a), version) for a in amounts
            ]
        else:
            if door.pure is not None:
                amounts = pure_amounts(weights, door.pure)
            else:
                amounts = weights * door.mu / np.linalg.norm(weights)
            found = [
                sound_mechanism(kind, self.mechanism, clip_norm, float(a), door.neighbours, m)
                for a in amounts
            ]
        return tuple(found), tuple(noise_edge(each, max(d, 1), m) for each in found)

    # --- Algorithm 5: noise of each task's own, before each covariance ---

    def _door_at_home(self, door: Door) -> Door:
        """With a second account, of what the curator learns: another adversary, another budget."""
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

    def _noises_at_home(self, clip_norm: float, rounds: int) -> list[EachRow | None]:
        """Steps 4 and 5: b of density ∝ exp(−‖b‖₂/s), s = 2K/ε, on each model."""
        budget = self.protect_examples
        if budget is None:
            return [None] * rounds
        amounts = pure_amounts(np.ones(rounds), Cost(epsilon=budget.epsilon, delta=budget.delta))
        if self.as_published:  # step 4, as printed: exp(−(2K/ε)‖b‖)
            return [EachRow(KNormSum(clip_norm, float(a) / (2 * clip_norm))) for a in amounts]
        sound = [KNormSum.for_epsilon(clip_norm, float(a), budget.neighbours) for a in amounts]
        return [EachRow(each) for each in sound]

    def _note_local(self, own: Door | None) -> None:
        if own is not None:
            self.local_guarantee_ = stated(
                AGAINST_THE_CURATOR,
                own.ledger,
                own.labels,
                [own.run],
                neighbours=own.neighbours,
                accountant="optimal composition of pure releases (Kairouz, Oh, Viswanath)",
            )

    # --- the non-private twin ---

    def _open(self, home: Home) -> tuple[Message, FloatArray]:
        penalty = None if self.penalty == "auto" else float(self.penalty)
        own, problems, loss = self._own_penalty(), home.problems, home.loss
        if own is None:
            found = open_optimum(problems, loss, self._shared_penalty(), penalty)
        else:
            levels = (penalty, self._own_level())
            penalties = (self._shared_penalty(), OWN_PENALTIES[own])
            found = open_decomposed(problems, loss, *penalties, levels)
        parts = {"spread": found.spread, "level": found.level, "own_level": found.own_level}
        return {name: Unprotected(part) for name, part in parts.items()}, found.models

    def _joined(self, home: Home, shared: Message) -> FloatArray:
        parts = {name: np.asarray(part.value) for name, part in shared.items()}
        found = Optimum(
            np.zeros((0, 0)), parts["spread"], float(parts["level"]), float(parts["own_level"])
        )
        own = self._own_penalty()
        return joined(home.problems, home.loss, found, None if own is None else OWN_PENALTIES[own])


class LowRank(ModelProtected):
    """S1 Algorithm 2: task models in a common low-dimensional subspace (trace norm).

    budget=None solves Σ L_i + λ‖W‖_* exactly. Parameters: see ModelProtected.

    >>> from tacit.datasets import low_rank_tasks
    >>> data = low_rank_tasks(40, rows=8, n_features=5, rank=2, rng=np.random.default_rng(0))
    >>> model = LowRank(budget=Budget(4.0), noise="simulated", random_state=0)
    >>> model.fit(data.X, data.y, task=data.task).coef_.shape
    (5, 40)
    """


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

    def __init__(
        self,
        loss: Literal["squared", "logistic"] = "squared",
        budget: Budget | Mapping[Any, Budget] | None = None,
        rounds: int | Literal["auto"] = "auto",
        clip_norm: float | Literal["auto"] = "auto",
        penalty: float | Literal["auto"] = "auto",
        own_penalty: float | Literal["auto"] = "auto",
        shared: Literal["trace", "group"] = "trace",
        own: Literal["l1", "column", "squared"] = "l1",
        mechanism: str = "gaussian",
        covariance: Literal["features", "tasks"] = "features",
        accelerated: bool = True,
        strong_convexity: float = 0.0,
        schedule: Schedule = "auto",
        start: Start = "ridge",
        refit: bool = True,
        protect_examples: Budget | None = None,
        ledger: Any = None,
        noise: Literal["secure", "simulated"] = "secure",
        ranges: Any = None,
        fit_intercept: bool = True,
        as_published: bool | Literal["first"] = False,
        run: str | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            loss=loss,
            budget=budget,
            rounds=rounds,
            clip_norm=clip_norm,
            penalty=penalty,
            mechanism=mechanism,
            covariance=covariance,
            accelerated=accelerated,
            strong_convexity=strong_convexity,
            schedule=schedule,
            start=start,
            refit=refit,
            protect_examples=protect_examples,
            ledger=ledger,
            noise=noise,
            ranges=ranges,
            fit_intercept=fit_intercept,
            as_published=as_published,
            run=run,
            random_state=random_state,
        )
        self.own_penalty = own_penalty
        self.shared = shared
        self.own = own

    def _shared_penalty(self) -> Penalty:
        if self.shared not in ("trace", "group"):
            raise InvalidInput(f"shared must be 'trace' or 'group', got {self.shared!r}")
        return TraceNorm() if self.shared == "trace" else GroupNorm()

    def _own_penalty(self) -> str:
        if self.own not in OWN_PENALTIES:
            raise InvalidInput(f"own must be one of {tuple(OWN_PENALTIES)}, got {self.own!r}")
        return self.own

    def _own_level(self) -> float | None:
        return None if self.own_penalty == "auto" else float(self.own_penalty)
