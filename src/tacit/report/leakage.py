"""How much one task shows in the models of the others, with and without protection.

After S1 (Liang et al., Model-Protected Multi-Task Learning, arXiv 1809.06546), Figure 2, which
shows the model matrix W (columns tasks, rows features) of ten tasks, one of them an anomaly: alone,
learned together without noise (the anomaly shows in all columns), and with it.

**Differs from the paper in**

1. Real tasks instead of an anomaly made by multiplying a column by 100: one task's data become
   others (``replaced``): its features change places in a circle and its targets are mirrored, so
   that every relation in them is another one. (Mirrored targets alone would turn w into −w, which
   no covariance wwᵀ shows.)
2. Its trace is the *difference* of the others' models with and without that change. Without
   protection the difference is there for everybody to see. With protection an observer sees two
   runs with noise of their own: the picture to compare with is two runs where nothing was changed.
3. A number beside the picture: how often an observer is right who knows which direction u to look
   in and guesses from s = ⟨models of the others, u⟩ which of the two data sets was used:

       guess = Φ(d′/2),  d′ = (mean s₁ − mean s₀) / sd(s),

   u the mean difference at equal noise of one half of the draws, s from the other half, both ways
   round. 0.5 is a coin. It is a picture of one observer, not a bound: ``tacit audit`` bounds.

All of it is simulated on the trusted side: nothing is released or charged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtr

from tacit.arrays import FloatArray
from tacit.certificate.meaning import best_guess
from tacit.estimator import MultiTaskEstimator
from tacit.json_converter import to_json
from tacit.privacy.budget import Budget
from tacit.report.refits import variant
from tacit.tasks import Schema, TaskSet

MOST_TASKS = 4  # that are changed, one after the other
MOST_DRAWS = 6
LEAST_DRAWS = 4  # two halves of two
MOST_ROW_FITS = 10_000_000  # rows times fits
SHOWN = 12  # features and tasks in the picture


@dataclass(frozen=True)
class Leak:
    """One task, and what the others' models say about it."""

    task: str
    change: float  # of the others' standardised coefficients without protection, root mean square
    guess_open: float  # how often the observer is right without protection
    guess: float  # with it


@dataclass(frozen=True)
class Picture:
    """Changes of the others' models (features, tasks) when one task's data are others."""

    task: str
    features: tuple[str, ...]
    others: tuple[str, ...]
    open: tuple[tuple[float, ...], ...]  # without protection
    protected: tuple[tuple[float, ...], ...]  # with protection, each run with its own noise
    noise: tuple[tuple[float, ...], ...]  # the same two draws of noise, and nothing replaced


@dataclass(frozen=True)
class Leakage:
    """A handful of tasks, each changed once."""

    bound: float  # no observer is right more often, by the guarantee
    draws: int
    leaks: tuple[Leak, ...]
    picture: Picture


def measure_leakage(
    model: MultiTaskEstimator,
    twin: MultiTaskEstimator,
    training: TaskSet,
    schema: Schema,
    budget: Budget,
    seed: int,
    tell: Callable[[str, int, int], None],
) -> Leakage | None:
    """Replaces a few tasks one by one and fits again; None if there is nobody else to look at.

    The model gives its parameters, its twin without privacy the fit to compare with.
    """
    if training.n_tasks < 2:
        return None
    chosen, draws = plan(training)
    units = standard_units(training, schema)

    def private(tasks: TaskSet) -> FloatArray:
        """(R, d, m), a draw of the noise each."""
        seeds = range(seed, seed + draws)
        fits = (variant(model, budget, each).fit_tasks(tasks, schema) for each in seeds)
        return np.stack([fit.coef_ / units for fit in fits])

    before, found = (twin.coef_ / units, private(training)), []
    for done, task in enumerate(chosen):
        tell("leakage", done, len(chosen))
        changed = replaced(training, task)
        openly = variant(model, None, seed).fit_tasks(changed, schema).coef_ / units
        found.append(_found(training, task, before, (openly, private(changed))))
    tell("leakage", len(chosen), len(chosen))
    leaks, pictures = zip(*found, strict=True)
    most = int(np.argmax([leak.change for leak in leaks]))
    return Leakage(best_guess(budget.epsilon, budget.delta), draws, leaks, pictures[most])


def _found(
    training: TaskSet,
    task: int,
    before: tuple[FloatArray, FloatArray],
    after: tuple[FloatArray, FloatArray],
) -> tuple[Leak, Picture]:
    """What the others' models say of one task: (d, m) without and (R, d, m) with protection."""
    others = np.arange(training.n_tasks) != task
    trace = (after[0] - before[0])[:, others]
    old, new = before[1][:, :, others], after[1][:, :, others]
    label, size = str(to_json(training.labels[task])), float(np.sqrt(np.mean(trace**2)))
    leak = Leak(label, size, 1.0 if size > 0 else 0.5, guess_rate(old, new))
    runs = (trace, new[1] - old[0], old[1] - old[0])
    return leak, _picture(label, others, runs, training)


def plan(training: TaskSet) -> tuple[list[int], int]:
    """Which tasks are changed (spread over all sizes), and how many draws of noise each gets."""
    fits = MOST_ROW_FITS // max(1, training.n_rows)
    count = max(1, min(MOST_TASKS, training.n_tasks, fits // (2 * LEAST_DRAWS)))
    draws = max(LEAST_DRAWS, min(MOST_DRAWS, fits // (count + 1)))
    by_size = np.argsort(training.sizes, kind="stable")
    places = np.linspace(0, training.n_tasks - 1, count).round().astype(int)
    return sorted({int(by_size[-1 - place]) for place in places}), draws


def replaced(tasks: TaskSet, task: int) -> TaskSet:
    """The same tasks, but for one: x_j becomes x_{j+1}, and y becomes 2ȳ − y (classes: −y).

    >>> both = TaskSet.from_arrays([[0, 7], [1, 8], [2, 9]], [1.0, 3.0, 5.0], task=["a", "a", "b"])
    >>> other = replaced(both, 0)
    >>> other.X[:, 0], other.y
    (array([7., 8., 2.]), array([3., 1., 5.]))
    """
    rows = slice(int(tasks.offsets[task]), int(tasks.offsets[task + 1]))
    X, y = tasks.X.copy(), tasks.y.copy()
    X[rows] = np.roll(X[rows], -1, axis=1)
    centre = 0.0 if tasks.classes is not None or y[rows].size == 0 else float(y[rows].mean())
    y[rows] = 2 * centre - y[rows]
    return replace(tasks, X=X, y=y)


def guess_rate(before: FloatArray, after: FloatArray) -> float:
    """Φ(d′/2) of runs (R, …) with equal noise in pairs; u from one half, s from the other.

    >>> rng = np.random.default_rng(0)
    >>> noise = rng.standard_normal((400, 1))
    >>> 0.6 < guess_rate(noise, noise + 1) < 0.75  # Φ(1/2) = 0.69
    True
    """
    first, second = np.arange(len(before)) % 2 == 0, np.arange(len(before)) % 2 == 1
    flat_before, flat_after = before.reshape(len(before), -1), after.reshape(len(after), -1)
    rates = []
    for seen, judged in ((first, second), (second, first)):
        u = (flat_after[seen] - flat_before[seen]).mean(axis=0)
        rates.append(_rate(flat_before[judged] @ u, flat_after[judged] @ u))
    return float(np.mean(rates))


def _rate(s0: FloatArray, s1: FloatArray) -> float:
    spread = math.sqrt((float(s0.var(ddof=1)) + float(s1.var(ddof=1))) / 2)
    apart = float(s1.mean() - s0.mean())
    if spread <= 1e-9 * abs(apart):
        return 1.0 if apart > 0 else 0.5
    return float(ndtr(apart / spread / 2))


def standard_units(training: TaskSet, schema: Schema) -> FloatArray:
    """(d, 1), sd(y)/sd(x_j): a coefficient over it is a standardised one, 0 for a constant feature.

    >>> from tacit.tasks import as_schema
    >>> tasks = TaskSet.from_arrays([[0.0, 5.0], [4.0, 5.0]], [1.0, 3.0])
    >>> standard_units(tasks, as_schema(None, ["x0", "x1"])).ravel()
    array([0.5, inf])
    """
    spread = training.X.std(axis=0) * schema.scale
    target = float(training.y.std()) * schema.target_scale or 1.0
    constant = np.full(len(spread), np.inf)
    return np.asarray(np.divide(target, spread, out=constant, where=spread > 0)[:, None])


def _picture(
    label: str, others: Any, runs: tuple[FloatArray, FloatArray, FloatArray], tasks: TaskSet
) -> Picture:
    """The features and tasks that change most without protection, in their own order."""
    trace = np.abs(runs[0])
    features = np.sort(np.argsort(-trace.sum(axis=1), kind="stable")[:SHOWN])
    columns = np.sort(np.argsort(-trace.sum(axis=0), kind="stable")[:SHOWN])
    names = [str(to_json(tasks.labels[i])) for i in np.flatnonzero(others)[columns]]
    cut = [tuple(map(tuple, run[np.ix_(features, columns)].tolist())) for run in runs]
    return Picture(
        label, tuple(tasks.feature_names[j] for j in features), tuple(names), cut[0], cut[1], cut[2]
    )
