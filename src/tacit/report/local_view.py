"""What the trusted side may see and nobody else: scores at home, gains, the curve, the leakage.

Everything here is computed from private rows without any mechanism. It belongs in local.json and
report.local.html, and neither may leave.

Held-out rows are judged by

==========  ============================================  ===================================
loss        over all rows                                 task by task (lower is better)
==========  ============================================  ===================================
squared     nMSE = Σ(y − ŷ)² / Σ(y − ȳ)²                  √mean (y − ŷ)², in units of y
targets     the mean of their nMSE                        the same over all, in half ranges
logistic    accuracy, and the mean AUC over tasks         share of rows with the wrong class
==========  ============================================  ===================================
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit.arrays import FloatArray
from tacit.errors import InvalidInput
from tacit.estimator import MultiTaskEstimator
from tacit.estimator.fitted import Fitted
from tacit.files import replace_file
from tacit.folder import LOCAL, read_json
from tacit.json_converter import from_json, to_json
from tacit.learners.pooled import Pooled
from tacit.learners.single_task import SingleTask
from tacit.metrics import auc_per_task
from tacit.privacy.budget import Budget
from tacit.report.leakage import Leakage, measure_leakage
from tacit.report.refits import variant
from tacit.tasks import Schema, TaskSet

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
MOST_ROW_FITS = 2_000_000  # rows times draws of the noise at one ε of the curve
MOST_DRAWS = 3
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Score:
    """One way of learning, judged on the same held-out rows."""

    overall: float | None  # nMSE, or accuracy; None without held-out rows
    auc: float | None  # None for squared loss, or if no task holds both classes
    errors: tuple[float | None, ...]  # of each task; None where it has no held-out row


@dataclass(frozen=True)
class CurvePoint:
    """What the learner would reach at another ε: one number for each draw of the noise."""

    epsilon: float
    overall: tuple[float, ...]


@dataclass(frozen=True)
class LocalView:
    """The trusted side's measurements of one fitted model."""

    learner: str
    loss: str
    epsilon: float | None  # of the model; None: no privacy
    labels: tuple[str, ...]
    training_rows: tuple[int, ...]
    held_out_rows: tuple[int, ...]
    scores: Mapping[str, Score]  # "together", at home, "alone", "pooled"; "public": of models that
    # anybody may see, where those are others; with a curve also "open"
    curve: tuple[CurvePoint, ...] = ()
    leakage: Leakage | None = None


def measure(
    model: Fitted,
    training: TaskSet,
    held_out: TaskSet,
    schema: Schema,
    *,
    curve: bool = False,
    epsilons: Sequence[float] = EPSILONS,
    seed: int = 0,
    progress: Progress | None = None,
) -> LocalView:
    """The model, single-task learning and one model for all on held-out rows; with ``curve``,
    everything else too.

    Both task sets are scaled by ``schema`` and have the labels that the model was fitted on. A
    curve needs about fifty further fits, with simulated noise that ``seed`` reproduces.
    """
    if not training.labels == held_out.labels == tuple(model.tasks_):
        raise InvalidInput("the training rows, held-out rows and the model must have equal labels")
    tell = progress or (lambda what, done, of: None)
    bench = Bench(model, training, held_out, schema)
    tell("single-task learning", 0, 1)
    ways = {"together": model, **bench.limits()}
    scores = {name: bench.judged(way) for name, way in ways.items()}
    released = judged(model.scores_of(held_out), held_out, schema)
    view = bench.view(scores | ({} if released == scores["together"] else {"public": released}))
    tell("single-task learning", 1, 1)
    if not curve or bench.budget is None:
        return view
    twin = variant(model, None, seed).fit_tasks(training, schema)
    return replace(
        view,
        scores={**view.scores, "open": bench.judged(twin)},
        curve=bench.curve(epsilons, seed, tell),
        leakage=None  # it reads one model a task
        if schema.n_outputs > 1
        else measure_leakage(model, twin, training, schema, bench.budget, seed, tell),
    )


@dataclass(frozen=True)
class Bench:
    """A model with the rows it is judged on."""

    model: Fitted
    training: TaskSet
    held_out: TaskSet
    schema: Schema

    @property
    def intercept(self) -> bool:
        """Whether the model has one."""
        return bool(getattr(self.model, "fit_intercept", True))

    @property
    def budget(self) -> Budget | None:
        """Of the model; of several the most generous; None: no privacy, so nothing to vary."""
        given = getattr(self.model, "budget", None)
        budgets = list(given.values()) if isinstance(given, Mapping) else [given]
        return max((b for b in budgets if isinstance(b, Budget)), key=_epsilon, default=None)

    def limits(self) -> Mapping[str, Any]:
        """Models of the same kind, for each task alone and one for all."""
        model = self.model
        if not isinstance(model, MultiTaskEstimator):
            from tacit.neural.limits import limits

            return limits(model, self.training)
        alone, pooled = (
            kind(loss=model.loss, fit_intercept=self.intercept) for kind in (SingleTask, Pooled)
        )
        both = {"alone": alone, "pooled": pooled}
        return {name: way.fit_tasks(self.training, self.schema) for name, way in both.items()}

    def view(self, scores: Mapping[str, Score]) -> LocalView:
        """Scores, and what is known before any fit."""
        epsilon = float(self.model.guarantee_.epsilon)
        return LocalView(
            learner=type(self.model).__name__,
            loss=self.model.loss,
            epsilon=epsilon if np.isfinite(epsilon) else None,
            labels=tuple(str(to_json(label)) for label in self.training.labels),
            training_rows=tuple(self.training.sizes.tolist()),
            held_out_rows=tuple(self.held_out.sizes.tolist()),
            scores=scores,
        )

    def judged(self, model: Any) -> Score:
        """On the held-out rows, by what each task has at home."""
        return judged(
            model._with_home_models().scores_of(self.held_out), self.held_out, self.schema
        )

    def curve(self, epsilons: Sequence[float], seed: int, tell: Progress) -> tuple[CurvePoint, ...]:
        """The learner at each ε, a few draws of simulated noise each."""
        budget = self.budget
        assert budget is not None
        draws = max(1, min(MOST_DRAWS, MOST_ROW_FITS // max(1, self.training.n_rows)))
        points = []
        for done, epsilon in enumerate(sorted(epsilons)):
            tell("curve", done, len(epsilons))
            asked = Budget(epsilon, budget.delta, neighbours=budget.neighbours)
            models = [
                variant(self.model, asked, seed + i).fit_tasks(self.training, self.schema)
                for i in range(draws)
            ]
            reached = [self.judged(model).overall for model in models]
            points.append(CurvePoint(float(epsilon), tuple(r for r in reached if r is not None)))
        tell("curve", len(epsilons), len(epsilons))
        return tuple(points)


def judged(predicted: FloatArray, held_out: TaskSet, schema: Schema) -> Score:
    """Predictions in scaled units against the held-out rows, all tasks at once."""
    if held_out.n_rows == 0:
        return Score(None, None, (None,) * held_out.n_tasks)
    y, index = held_out.y, held_out.task_index
    if held_out.classes is None:
        wrong, spread = (predicted - y) ** 2, ((y - y.mean(axis=0)) ** 2).sum(axis=0)
        overall = float(np.mean(wrong.sum(axis=0) / spread)) if np.all(spread > 0) else None
        unit = 1.0 if schema.more_targets else schema.target_scale
        rows = wrong.mean(axis=1) if wrong.ndim == 2 else wrong
        errors = np.sqrt(_means(rows, index, held_out.n_tasks)) * unit
        return Score(overall, None, _present(errors))
    several = y.ndim == 2
    told = predicted.argmax(axis=1) if several else predicted > 0
    wrong = (told != (y.argmax(axis=1) if several else y > 0)).astype(float)
    errors = _means(wrong, index, held_out.n_tasks)
    auc = None if several else _auc(y, predicted, index)
    return Score(1 - float(wrong.mean()), auc, _present(errors))


def write_local(view: LocalView, folder: Path) -> Path:
    """local.json, for its owner only."""
    path = folder / LOCAL
    text = json.dumps(to_json(view), ensure_ascii=False, allow_nan=False)
    replace_file(path, (text + "\n").encode(), private=True)
    return path


def read_local(folder: Path) -> LocalView:
    """Inverse of write_local."""
    return from_json(LocalView, read_json(folder / LOCAL), str(folder / LOCAL))


def _means(values: FloatArray, index: Any, n_tasks: int) -> FloatArray:
    """(m,), NaN for a task without rows."""
    counts = np.bincount(index, minlength=n_tasks)
    sums = np.bincount(index, values, n_tasks)
    return np.asarray(np.divide(sums, counts, out=np.full(n_tasks, np.nan), where=counts > 0))


def _epsilon(budget: Budget) -> float:
    return budget.epsilon


def _present(values: FloatArray) -> tuple[float | None, ...]:
    return tuple(None if np.isnan(value) else float(value) for value in values)


def _auc(y: FloatArray, predicted: FloatArray, index: Any) -> float | None:
    try:
        return auc_per_task(y, predicted, index)
    except InvalidInput:  # no task holds both classes
        return None
