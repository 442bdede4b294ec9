"""What all of S1's learners are: rounds of models in, a noisy covariance out, a step at home."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from tacit.arrays import FloatArray
from tacit.certificate import CertifiedRun
from tacit.engine import Facts, Message, Outcome, Progress, Step
from tacit.engine.rounds import CURATOR, TASKS
from tacit.errors import InvalidInput
from tacit.estimator import MultiTaskEstimator, PrivateLearner, learner
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
from tacit.learners.model_protected.tasks_and_curator import Start
from tacit.linear.standardised import AUTO_CLIP
from tacit.parameters import Count, Positive
from tacit.privacy.accounting import Cost
from tacit.privacy.budget import Budget
from tacit.privacy.mechanisms import PublishedWishart
from tacit.privacy.planning import UNIT, Door, open_door, stated
from tacit.privacy.release import Key
from tacit.tasks import Schema, TaskSet

QUIET = 0.5  # further rounds must keep the noise below this share of a direction's K²m/d
MOST_ROUNDS = 5
PUBLISHED_ROUNDS = 10
PURE_ACCOUNTANT = "optimal composition of pure releases (Kairouz, Oh, Viswanath)"
PAPERS_ACCOUNTANT = "S1 Definition 7 (Kairouz, Oh, Viswanath), of what the paper claims"
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
class CovarianceLearner(PrivateLearner):
    """The parameters that S1's algorithms have in common, and the plan of a run.

    ``mechanism`` "gaussian" or a pure one; ``covariance`` "features" (WWᵀ) or "tasks" (WᵀW);
    ``schedule`` "auto" (Theorem 6; Theorem 11 where δ = 0), ("power", α), ("geometric", Q) or each
    round's weight; ``start`` "ridge", "lasso", "zeros" or a function (problems, loss) → models
    (1, D), called with one task at a time; ``protect_examples`` a Budget for Algorithm 5;
    ``as_published`` True, or "first" for the first version's sensitivities.
    """

    rounds: Count | Literal["auto"] = "auto"
    clip_norm: Positive | Literal["auto"] = "auto"
    mechanism: Literal["gaussian", "wishart", "laplace"] = "gaussian"
    covariance: Literal["features", "tasks"] = "features"
    schedule: Schedule = "auto"
    start: Start = "ridge"
    protect_examples: Budget | None = None
    as_published: bool | Literal["first"] = False

    # --- what differs between them ---

    def _kind(self) -> Kind:
        return "tasks" if self.covariance == "tasks" else "full"

    def _recommended(self) -> tuple[bool, float]:
        """For the schedule: whether steps are accelerated, and μ/L."""
        return False, 0.0

    # --- the contract ---

    def _check(self) -> None:
        if self.as_published and self.budget is not None and self.clip_norm == "auto":
            raise InvalidInput(
                "as_published=True runs the printed algorithm, whose K is an input in the units of "
                "the data: give clip_norm"
            )

    @property
    def _engines(self) -> Literal["rounds", "arrivals", "silos"] | None:
        """Noise of each task's own is drawn in one process only."""
        return "rounds" if self.protect_examples is None else None

    @property
    def _places_matter(self) -> bool:
        return self.covariance == "tasks"

    def _shared_model(self, shared: Message) -> FloatArray:
        return np.zeros(len(self._schema.feature_names_out) + 1)

    def _is_pure(self) -> bool:
        return bool(self.as_published) or self.mechanism != "gaussian"

    def _accountant(self) -> str:
        if self.as_published:
            return PAPERS_ACCOUNTANT
        return PURE_ACCOUNTANT if self._is_pure() else super()._accountant()

    def _claimed_only(self) -> str:
        return PublishedWishart.law.reason if self.as_published else ""

    # --- planning ---

    def _clip(self) -> float:
        return AUTO_CLIP if self.clip_norm == "auto" else float(self.clip_norm)

    def _planned(self, facts: Facts) -> tuple[tuple[Step, ...], tuple[float, ...]]:
        """The steps, and the edge of each one's noise."""
        rounds = self._rounds(facts)
        mechanisms, edges = self._mechanisms(facts, rounds)
        own = noises_at_home(
            self._clip(), self.protect_examples, rounds, published=bool(self.as_published)
        )
        steps = tuple(
            Step(f"covariance {t}", *both)
            for t, both in enumerate(zip(mechanisms, own, strict=True), start=1)
        )
        return steps, edges

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
        m, d = facts.n_tasks, facts.width - 1
        pure = facts.pure
        weights = schedule_weights(
            self.schedule, rounds, *self._recommended(), delta=1.0 if pure is None else pure.delta
        )
        found = self._published(weights, pure) if self.as_published else self._sound(weights, facts)
        edges = [each.statistic.edge(each.noise, (m, max(d, 1))) for each in found]
        return tuple(found), tuple(edges)

    def _published(self, weights: FloatArray, left: Cost | None) -> list[Any]:
        """Steps 1 and 5, as printed."""
        version: Literal["last", "first"] = "first" if self.as_published == "first" else "last"
        noised = self.protect_examples is not None
        return [
            published_mechanism(self._kind(), self._clip(), float(a), version, clipped=not noised)
            for a in published_amounts(weights, left or Cost())
        ]

    def _sound(self, weights: FloatArray, facts: Facts) -> list[Any]:
        if facts.pure is not None:
            amounts = pure_amounts(weights, facts.pure)
        else:
            amounts = weights * facts.mu / np.linalg.norm(weights)
        given = self._kind(), self.mechanism, self._clip()
        return [sound_mechanism(*given, float(a), facts.neighbours, facts.n_tasks) for a in amounts]

    # --- Algorithm 5: noise of each task's own, before each covariance ---

    def fit_tasks(
        self, tasks: TaskSet, schema: Schema, *, progress: Progress = None
    ) -> MultiTaskEstimator:
        """As ever; the door of the noise at home stays open until everybody has a model."""
        try:
            return super().fit_tasks(tasks, schema, progress=progress)
        finally:
            self.__dict__.pop("_own_door", None)

    def _door(self, labels: tuple[Hashable, ...], schema: Schema) -> Door | None:
        """With a second account, of what the curator learns: another adversary, another budget."""
        door = super()._door(labels, schema)
        if door is None or self.protect_examples is None:
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
        self._own_door = own
        return replace(door, at_home=own)

    def _noised(self, number: int) -> FloatArray | None:
        """(m, d): the noisy models of step ``number``, with which tasks go on as printed."""
        own: Door | None = self.__dict__.get("_own_door")  # a site of a federation has none
        if own is None or not self.as_published:
            return None
        found = own.ledger.released(Key(own.run, number, TASKS))
        return None if found is None else np.asarray(found.value)

    # --- what is remembered ---

    def _remember(
        self, schema: Schema, tasks: TaskSet, outcome: Outcome, door: Door | None
    ) -> None:
        """As ever; and each round's noisy covariance, and the guarantee against the curator."""
        super()._remember(schema, tasks, outcome, door)
        if door is None:
            return
        for number, line in enumerate(self.history_):
            release = door.ledger.released(Key(door.run, number, CURATOR))
            line["covariance"] = None if release is None else release.value
        if door.at_home is not None:
            own = door.at_home
            self.local_guarantee_ = stated(
                AGAINST_THE_CURATOR,
                own.ledger,
                own.labels,
                [own.run],
                neighbours=own.neighbours,
                accountant=PAPERS_ACCOUNTANT if self.as_published else PURE_ACCOUNTANT,
            )

    def _subject(self) -> CertifiedRun:
        """A certificate says how, not what, was released."""
        return replace(super()._subject(), steps=without(self.history_, "covariance"))


def without(lines: Sequence[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The lines, none with this entry.

    >>> without([{"round": 0, "covariance": 1}], "covariance")
    [{'round': 0}]
    """
    return [{key: value for key, value in line.items() if key != name} for line in lines]
