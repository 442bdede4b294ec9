"""S1 Algorithm 1, open: whoever has a mapping f and a single-task learner brings them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit.arrays import FloatArray, IntArray
from tacit.engine import Facts, Message, Public, Step, Unprotected
from tacit.errors import InvalidInput
from tacit.estimator import Home, learner
from tacit.learners.model_protected.covariance_learner import PUBLISHED_ROUNDS, CovarianceLearner
from tacit.learners.model_protected.covariance_schedule import is_weights
from tacit.learners.model_protected.tasks_and_curator import Noised, Start, starting
from tacit.linear.row_algebra import or_zero
from tacit.linear.standardised import with_own_intercepts
from tacit.linear.threads import isolated
from tacit.privacy.mechanisms import clip_rows
from tacit.privacy.release import Declared, Release

Mapping = Callable[[FloatArray], FloatArray]
"""f: the covariances so far, Σ^(1:t) (t, side, side) → M^(t), any array (step 6)."""

SingleTask = Callable[[FloatArray, FloatArray, FloatArray, FloatArray], FloatArray]
"""A_st: (M^(t), w̃^(0:t−1) (t, d), X (n, d), y (n,)) of one task → its model ŵ^(t) (d,) (step 7)."""

FORMS = {
    "mapping": "mapping: mapping(covariances) -> M, of all (t, d, d) so far",
    "single_task": "single_task: single_task(M, past, X, y) -> w, of one task's (n, d) and (n,)",
}
"""What a user is asked for."""


@learner
class ModelProtected(CovarianceLearner):
    """S1 Algorithm 1: every round a noisy covariance, your ``mapping`` of it, your ``single_task``.

    Both are free of charge whatever they are: the mapping is given releases only, the learner one
    task at a time. Of WᵀW a task is given its own row of M. After the first release an error in
    ``single_task`` makes that task's model zero: nothing in the data may stop a run.

    >>> from tacit.datasets import low_rank_tasks
    >>> from tacit.privacy.budget import Budget
    >>> data = low_rank_tasks(40, rows=8, n_features=5, rank=2, rng=np.random.default_rng(0))
    >>> def strongest(covariances):
    ...     return np.linalg.eigh(covariances[-1])[1][:, -2:]
    >>> def within(U, past, X, y):
    ...     return U @ np.linalg.lstsq(X @ U, y, rcond=None)[0]
    >>> model = ModelProtected(mapping=strongest, single_task=within, clip_norm=10.0,
    ...                        budget=Budget(4.0), noise="simulated", random_state=0)
    >>> model.fit(data.X, data.y, task=data.task).coef_.shape
    (5, 40)
    """

    mapping: Mapping | None = None
    single_task: SingleTask | None = None

    def _check(self) -> None:
        super()._check()
        for name, form in FORMS.items():
            if getattr(self, name) is None:
                raise InvalidInput(f"ModelProtected is a framework: give it a function as {form}")
        if self.budget is not None and self.clip_norm == "auto":
            raise InvalidInput("K of the framework is an input in your units: give clip_norm")

    def _tasks(self, home: Home, clip_norm: float, noised: Noised | None = None) -> OpenTasks:
        if self.mapping is None or self.single_task is None:
            raise InvalidInput("mapping and single_task are functions, which no folder holds")
        functions = self.mapping, self.single_task
        return OpenTasks(home, functions, self.covariance == "tasks", clip_norm, self.start, noised)

    def _participant(self, home: Home, facts: Facts) -> OpenTasks:
        return self._tasks(home, self._clip(), self._noised)

    def _coordinator(self, facts: Facts) -> OpenCurator:
        side = facts.n_tasks if self.covariance == "tasks" else facts.width - 1
        return OpenCurator(self._planned(facts)[0], side, self._clip())

    def _at_home(self, home: Home, shared: Message) -> FloatArray:
        clip_norm = float(shared["clip_norm"].value)
        return self._tasks(home, clip_norm, self._noised).solved(shared)

    def _newcomer(self, home: Home, shared: Message) -> FloatArray:
        return self._tasks(home, float(shared["clip_norm"].value)).solved(shared)

    def _open(self, home: Home) -> Message:
        """The same rounds without noise and without a clip."""
        rounds = len(self.schedule) if is_weights(self.schedule) else PUBLISHED_ROUNDS
        side = home.problems.n_tasks if self.covariance == "tasks" else home.problems.X.shape[1] - 1
        tasks, found = self._tasks(home, np.inf), np.zeros((0, side, side))
        for _ in range(rounds if self.rounds == "auto" else int(self.rounds)):
            W = tasks.followed(found, None).models
            found = np.concatenate([found, (W @ W.T if tasks.rows_of_map else W.T @ W)[None]])
        return {"covariances": Unprotected(found), "clip_norm": Unprotected(np.inf)}


# --- both halves ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class OpenCurator:
    """Steps 4 and 5: passes the noisy covariances on."""

    steps: tuple[Step, ...]
    side: int
    clip_norm: float

    def start(self) -> Public:
        """No covariance yet."""
        empty = np.zeros((0, self.side, self.side))
        return {"covariances": Declared(empty), "clip_norm": Declared(self.clip_norm)}

    def absorb(self, step: Step, shared: Public, release: Release) -> Public:
        """One more."""
        both = Release.combine(
            lambda a, b: np.concatenate([a, b[None]]), shared["covariances"], release
        )
        return {**shared, "covariances": both}


@dataclass(frozen=True)
class OpenState:
    """Where all tasks are between two rounds."""

    past: FloatArray  # (t, m, d), W̃^(0:t−1)
    models: FloatArray  # (m, d), W^(t)


@dataclass(frozen=True)
class OpenTasks:
    """All tasks of this process; the user's functions see one of them at a time."""

    home: Home
    functions: tuple[Mapping, SingleTask]
    rows_of_map: bool  # M is (m, ...), and each task is given its own row
    clip_norm: float
    start: Start
    noised: Noised | None = None
    members: IntArray | None = None  # (m,): which of all tasks they are; None: all, or newcomers

    def select(self, units: Sequence[int]) -> OpenTasks:
        """These tasks only, in this order."""
        chosen = np.asarray(units, dtype=np.int64)
        members = chosen if self.members is None else self.members[chosen]
        return replace(self, home=self.home.select(units), members=members)

    @isolated()
    def contribute(
        self, step: Step, shared: Message, state: OpenState | None
    ) -> tuple[FloatArray, OpenState]:
        """The models of all tasks; the mechanism clips them (step 3)."""
        covariances = np.asarray(shared["covariances"].value)
        if not len(covariances):  # while an error may still be told
            self.stepped(np.zeros((1, *covariances.shape[1:])), self.begun().models[None])
        state = self.followed(covariances, state)
        return or_zero(state.models, self.home.problems.speak(self.home.loss)), state

    @isolated()
    def solved(self, shared: Message) -> FloatArray:
        """(m, D): Ŵ^(T), each with an intercept of its own."""
        models = self.followed(np.asarray(shared["covariances"].value), None).models
        return with_own_intercepts(self.home.problems, self.home.loss, models)

    def begun(self) -> OpenState:
        """W^(0), by a single-task learner."""
        models = starting(self.start)(self.home.problems, self.home.loss)[:, :-1]
        return OpenState(np.zeros((0, *models.shape)), models)

    def followed(self, covariances: FloatArray, state: OpenState | None) -> OpenState:
        """Where all tasks are after every covariance so far."""
        state = self.begun() if state is None else state
        for t in range(len(state.past), len(covariances)):
            past = np.concatenate([state.past, self._tilde(state.models, t)[None]])
            state = OpenState(past, self.stepped(covariances[: t + 1], past, after_release=True))
        return state

    def stepped(
        self, covariances: FloatArray, past: FloatArray, *, after_release: bool = False
    ) -> FloatArray:
        """Steps 6 and 7."""
        mapping, single_task = self.functions
        M, models = mapping(covariances), np.zeros(past.shape[1:])
        for i, task in enumerate(self.home.problems.chunks(most=1)):
            own = self._row(M, i) if self.rows_of_map else M
            try:
                models[i] = _one_model(single_task(own, past[:, i], task.X[:, :-1], task.y), models)
            except Exception:  # whatever somebody's learner raises
                if not after_release:
                    raise
        return or_zero(models)

    def _row(self, M: FloatArray, i: int) -> FloatArray:
        """Task i's own row of M; a newcomer has the average one."""
        if self.members is not None:
            return np.asarray(M[self.members[i]])
        known = len(M) == self.home.problems.n_tasks
        return np.asarray(M[i] if known else M.mean(axis=0))

    def _tilde(self, models: FloatArray, t: int) -> FloatArray:
        """Step 3, or step 4 of Algorithm 5: the clipped models, or the noisy ones."""
        noisy = None if self.noised is None else self.noised(t)
        if noisy is None:
            return np.asarray(clip_rows(models, self.clip_norm))
        return noisy if self.members is None else noisy[self.members]


def _one_model(found: Any, models: FloatArray) -> FloatArray:
    given, expected = np.asarray(found, dtype=np.float64), models.shape[1:]
    if given.shape != expected:
        raise InvalidInput(f"single_task returns one model, shape {expected}, got {given.shape}")
    return given
