"""S1's privacy-accuracy tradeoffs (§5.4.3, §5.4.4, §5.5, Appendix D): errors by ε, tasks, rows.

As published every parameter is chosen by S1's own cross-validation, which no ledger counts
(protocol_s1.py); ours has public rules and chooses nothing. SharedPrior is called as a user would:
rows as they are, with their declared ranges and, but for data that are drawn around zero, an
intercept. What else is ours repairs the paper's own learners, on its unit rows without intercepts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from tacit.arrays import BoolArray, FloatArray, IntArray
from tacit.datasets import group_sparse_tasks, load_landmine, load_school, low_rank_tasks
from tacit.datasets.generators import Generated
from tacit.experiments.declared import Point
from tacit.experiments.protocol_s1 import (
    combinations,
    cross_validated,
    error,
    mean_loss_rows,
    published_delta,
    strategies,
    unit_rows,
)
from tacit.experiments.rows import Rows
from tacit.learners.model_protected import GroupSparse, LowRank
from tacit.learners.model_protected.averaged_model import AveragedModel
from tacit.learners.model_protected.task_relationship import TaskRelationship
from tacit.learners.shared_prior import SharedPrior
from tacit.learners.single_task import SingleTask
from tacit.linear.losses import LossName
from tacit.privacy.budget import Budget

Name = Literal["low rank", "group sparse", "School", "landmine"]
LR, GS, MTRL, AGGR = "MP-MTL-LR", "MP-MTL-GS", "DP-MTRL", "DP-AGGR"
STL, MTL = "STL", "MTL"
ACCELERATED, PLAIN = "accelerated", "not accelerated"
OUR_LR, OUR_GS = "LowRank", "GroupSparse"
SHARED, OWN_STL = "SharedPrior", "STL, rows as they are"
AS_THEY_ARE = (SHARED, OWN_STL)  # not on unit rows
REPAIRED = {MTRL: f"{MTRL}, repaired", AGGR: f"{AGGR}, repaired"}
TOGETHER: list[Callable[..., Any]] = [LowRank, GroupSparse, AveragedModel, TaskRelationship]
"""S1's non-private methods; the last fits signs by least squares, as there."""
CUTS = (0.5, 1.0, 2.0)
"""K, which S1 does not tell: of the longest single-task model of the training rows."""


class Tasks1(NamedTuple):
    """Rows to train on and to test on, of one of S1's data sets; unit rows, if not asked else."""

    loss: LossName
    train: Rows
    test: Rows
    ranges: Any
    centred: bool  # drawn around zero

    @property
    def most_rows(self) -> int:
        """n of Proposition 3."""
        return int(np.bincount(self.train.task).max())

    def budget(self, epsilon: float) -> Budget:
        """At S1's δ."""
        return Budget(epsilon, published_delta(len(np.unique(self.train.task))))

    def longest_model(self) -> float:
        """The norm of the longest single-task model: as K it cuts none. Nothing counts the look."""
        alone = self.train.given_to(SingleTask(loss=self.loss, fit_intercept=False))
        return float(np.linalg.norm(alone.coef_, axis=0).max())


class Search(NamedTuple):
    """How thoroughly S1's cross-validation looks: so many candidates, so many folds."""

    most: int
    folds: int


def error_by_epsilon(
    seed: int,
    data: Name,
    learner: str,
    most: int,
    folds: int,
    epsilon: float | None = None,
    training: float = 0.3,
) -> Iterator[Point]:
    """nMSE, or 1 − aAUC, on the test rows."""
    tasks = drawn(data, seed, training, unit=learner not in AS_THEY_ARE)
    model = fitted(tasks, learner, epsilon, seed, Search(most, folds))
    panel = data if tasks.centred else f"{data}, {training:.0%}"
    yield Point(learner, epsilon, error(model, *tasks.test), panel)


def error_by_tasks(
    seed: int, learner: str, tasks: int, epsilon: float, most: int, folds: int
) -> Iterator[Point]:
    """nMSE of the first 20 tasks, learned together with the others."""
    whole = drawn("low rank", seed)
    fewer = whole._replace(train=whole.train.some(whole.train.task < tasks))
    model = fitted(fewer, learner, epsilon, seed, Search(most, folds))
    first = whole.test.some(whole.test.task < 20)
    yield Point(learner, float(tasks), error(model, *first))


def error_by_schedule(
    seed: int,
    learner: str,
    epsilon: float,
    rounds: int,
    folds: int,
    schedule: str,
    power: float = 0.0,
) -> Iterator[Point]:
    """Figure 4: the cross-validation error by α (ε_t ∝ t^α), or by log_{Q₀} Q (ε_t ∝ Q^−t)."""
    tasks = drawn("low rank", seed)
    strong = schedule == "geometric"
    base = 1 - np.sqrt(1e-3)  # Q₀ = 1 − √μ
    parameters: dict[str, Any] = {
        "schedule": (schedule, base**power if strong else power),
        "rounds": rounds,
        "strong_convexity": 1e-3 if strong else 0.0,
    }
    private = {"budget": tasks.budget(epsilon), "noise": "simulated", "random_state": seed}
    printed = {"as_published": True, "clip_norm": tasks.longest_model(), "step": 1.0}
    printed |= {"penalty": 1.0}
    candidates: dict[str, dict[str, Any]] = {
        ACCELERATED: private | printed | parameters | {"accelerated": True},
        PLAIN: private | printed | parameters | {"accelerated": False},
        OUR_LR: private | parameters,
    }
    x = power if learner in candidates else None  # what else there is has no schedule
    kinds = {STL: SingleTask, SHARED: SharedPrior}
    alike = private | {"ranges": tasks.ranges} if learner == SHARED else {}
    found = cross_validated(
        partial(kinds.get(learner, LowRank), fit_intercept=False),
        [candidates.get(learner, alike)],
        *tasks.train,
        folds=folds,
        seed=seed,
        scaled=learner in (ACCELERATED, PLAIN),
    )
    yield Point(learner, x, found.error, "strong convexity" if strong else "convexity")


# --- learners -------------------------------------------------------------------------------------


def fitted(tasks: Tasks1, learner: str, epsilon: float | None, seed: int, search: Search) -> Any:
    """The learner of that name on the training rows."""
    common: dict[str, Any] = {"loss": tasks.loss, "fit_intercept": False}
    if learner in AS_THEY_ARE:
        common |= {"fit_intercept": not tasks.centred, "ranges": tasks.ranges}
    if learner in (STL, OWN_STL, MTL):
        open_kinds = TOGETHER if learner == MTL else _alone(tasks)
        return _best_kind(tasks, open_kinds, common, seed, search)
    assert epsilon is not None
    common |= {"budget": tasks.budget(epsilon), "noise": "simulated", "random_state": seed}
    if learner in (LR, GS):
        return _published(tasks, LowRank if learner == LR else GroupSparse, common, search)
    if learner in (MTRL, AGGR):
        return _baseline(tasks, learner, common, search)
    ours: dict[str, Any] = {
        SHARED: SharedPrior,
        OUR_LR: LowRank,
        OUR_GS: GroupSparse,
        REPAIRED[MTRL]: TaskRelationship,
        REPAIRED[AGGR]: AveragedModel,
    }
    return tasks.train.given_to(ours[learner](**common))


def _alone(tasks: Tasks1) -> list[Callable[..., Any]]:
    """ℓ2 (Figure 6), or the better of it and ℓ1 (Figure 9)."""
    return [SingleTask] if tasks.centred else [SingleTask, partial(SingleTask, penalty="l1")]


def _best_kind(
    tasks: Tasks1,
    kinds: list[Callable[..., Any]],
    common: dict[str, Any],
    seed: int,
    search: Search,
) -> Any:
    """The best of them; by cross-validation, where S1 does not say by what."""

    def make(kind: int) -> Any:
        return kinds[kind](**common)

    candidates = [{"kind": kind} for kind in range(len(kinds))]
    best = cross_validated(make, candidates, *tasks.train, folds=min(2, search.folds), seed=seed)
    return tasks.train.given_to(make(**best.parameters))


def _published(
    tasks: Tasks1, kind: Callable[..., Any], common: dict[str, Any], search: Search
) -> Any:
    """Algorithm 2 or 3, its λ, T, strategy, α and Q by cross-validation, and then its K.

    The squared loss is a mean over rows, so η = 1; the logistic one a sum, so η = 4/n.
    """
    scaled = tasks.loss == "squared"
    step = 1.0 if scaled else 4 / tasks.most_rows
    longest = tasks.longest_model()
    grid: dict[str, Any] = {
        "penalty": [level / step for level in (0.01, 0.1, 0.5, 1.0)],
        "rounds": [1, 5, 30, 150],
        "strategy": strategies(),
    }
    make = partial(kind, as_published=True, step=step, **common)
    candidates = combinations(grid | {"clip_norm": [longest]}, search.most)
    best = _best_of(tasks, make, candidates, search, scaled=scaled)
    cuts = [best | {"clip_norm": cut * longest} for cut in CUTS]
    return _chosen(tasks, make, cuts, search, scaled=scaled)


def _baseline(tasks: Tasks1, learner: str, common: dict[str, Any], search: Search) -> Any:
    """DP-MTRL or DP-AGGR as S1 ran them, their penalties by cross-validation.

    DP-MTRL minimises the squared loss whatever the targets are (§5.1), and one round is its best
    (§5.4.2). Noise falls as the penalty grows, so that large ones are among the choices.
    """
    given: dict[str, Any] = {"as_published": True, "max_rows": tasks.most_rows}
    levels = [0.1, 1.0, 10.0, 100.0, 1e3, 1e4]
    if learner == AGGR:
        candidates = combinations({"penalty": levels}, search.most)
        return _chosen(tasks, partial(AveragedModel, **given, **common), candidates, search)
    grid: dict[str, Any] = {"penalty": levels, "coupling": [0.01, 1.0, 100.0], "rounds": [1]}
    candidates = combinations(grid, search.most)
    make = partial(TaskRelationship, **given, **(common | {"loss": "squared"}))
    if tasks.loss == "squared":
        return _chosen(tasks, make, candidates, search)
    signs = tasks.train._replace(y=np.where(tasks.train.y > 0, 1.0, -1.0))
    return Scored(_chosen(tasks._replace(loss="squared", train=signs), make, candidates, search))


class Scored:
    """A regression on signs, read as scores of the positive class."""

    loss: LossName = "logistic"

    def __init__(self, model: Any) -> None:
        self._model = model

    def predict_proba(self, X: FloatArray, task: IntArray) -> FloatArray:
        """Scores in the second column; only their order means anything."""
        scores = self._model.predict(X, task=task)
        return np.column_stack([-scores, scores])


def _chosen(
    tasks: Tasks1,
    make: Callable[..., Any],
    candidates: list[dict[str, Any]],
    search: Search,
    *,
    scaled: bool = False,
) -> Any:
    """Fitted on all training rows with what cross-validation chose."""
    best, rows = _best_of(tasks, make, candidates, search, scaled=scaled), tasks.train
    if scaled:
        rows = Rows(*mean_loss_rows(*rows), rows.task)
    return rows.given_to(make(**best))


def _best_of(
    tasks: Tasks1,
    make: Callable[..., Any],
    candidates: list[dict[str, Any]],
    search: Search,
    *,
    scaled: bool,
) -> dict[str, Any]:
    """By S1's cross-validation of the training rows."""
    found = cross_validated(make, candidates, *tasks.train, folds=search.folds, scaled=scaled)
    return found.parameters


# --- data -----------------------------------------------------------------------------------------


def drawn(data: Name, seed: int, training: float = 0.3, *, unit: bool = True) -> Tasks1:
    """The synthetic data are drawn; of real ones a share of each task's rows is for training."""
    rng = np.random.default_rng(seed)
    if data == "low rank":
        return _generated(low_rank_tasks(rng=rng))
    if data == "group sparse":
        return _generated(group_sparse_tasks(rng=rng))
    found = load_school() if data == "School" else load_landmine()
    loss: LossName = "squared" if data == "School" else "logistic"
    rows = Rows(unit_rows(found.X) if unit else found.X, found.y, found.task)
    train = _share_of_each(found.task, training, rng)
    return Tasks1(loss, rows.some(train), rows.some(~train), found.ranges, centred=False)


def _generated(data: Generated) -> Tasks1:
    train, test = Rows(data.X, data.y, data.task), Rows(data.X_test, data.y_test, data.task_test)
    return Tasks1("squared", train, test, data.ranges, centred=True)


def _share_of_each(task: IntArray, share: float, rng: np.random.Generator) -> BoolArray:
    """(N,): that share of each task's rows, at random; at least two."""
    order = rng.permutation(len(task))
    order = order[np.argsort(task[order], kind="stable")]
    place = np.arange(len(task)) - np.searchsorted(task[order], task[order])
    found = np.zeros(len(task), dtype=bool)
    found[order] = place < np.maximum(2, share * np.bincount(task)[task[order]])
    return found
