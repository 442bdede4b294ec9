"""S1's protocol (§5.2, §5.3, §5.5): unit rows, five folds over everything, nMSE and aAUC.

The choice looks at all training rows and *no ledger counts it*: S1 says so, and so does whatever
was chosen here (docs/privacy.md, B'). Ours needs none of it; its constants are public rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np

from tacit.arrays import FloatArray, IntArray
from tacit.metrics import auc_per_task, nmse

FOLDS: Final = 5
STRONG_CONVEXITY: Final = 1e-3  # μ, where strong convexity is considered
UNCOUNTED: Final = "chosen by cross-validation on the training rows, which no ledger counted"

Make = Callable[..., Any]
"""From parameters to an estimator that was not fitted."""


def published_delta(n_tasks: int) -> float:
    """δ = 1/(m log m).

    >>> round(published_delta(320), 8)
    0.00054175
    """
    return 1 / (n_tasks * math.log(n_tasks))


def unit_rows(X: FloatArray) -> FloatArray:
    """Every row divided by its norm; a row of zeros stays.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    sizes = np.linalg.norm(X, axis=1, keepdims=True)
    return np.asarray(X / np.where(sizes > 0, sizes, 1.0))


def mean_loss_rows(X: FloatArray, y: FloatArray, task: IntArray) -> tuple[FloatArray, FloatArray]:
    """Training rows over √n of their task: the squared loss summed is then the mean of the rows'.

    With unit rows its curvature is at most 1, so that η = 1 suits every task, and models mean what
    they meant: rows to predict stay as they are (without an intercept).
    """
    _, code, sizes = np.unique(task, return_inverse=True, return_counts=True)
    root = np.sqrt(sizes[code])
    return X / root[:, None], y / root


def strategies(
    powers: Sequence[float] = (-0.4, 0.0, 0.4, 0.8), bases: Sequence[float] = (0.8, 0.9, 0.97)
) -> list[dict[str, Any]]:
    """S1's optimisation strategies: acceleration or not, α for convex steps, Q for strong ones."""
    convex = [{"schedule": ("power", a), "strong_convexity": 0.0} for a in powers]
    strong = [{"schedule": ("geometric", q), "strong_convexity": STRONG_CONVEXITY} for q in bases]
    return [{"accelerated": fast} | each for fast in (True, False) for each in convex + strong]


def combinations(
    grid: Mapping[str, Sequence[Any]], most: int | None = None
) -> list[dict[str, Any]]:
    """Every choice of the grid, a name with a dict for a value stands for what the dict says.

    ``most``: so many of them at random, for a quick look, always the same ones.

    >>> combinations({"rounds": [1, 2], "strategy": [{"accelerated": True}]})
    [{'rounds': 1, 'accelerated': True}, {'rounds': 2, 'accelerated': True}]
    """
    found = []
    for values in product(*grid.values()):
        flat: dict[str, Any] = {}
        for name, value in zip(grid, values, strict=True):
            flat |= value if isinstance(value, dict) else {name: value}
        found.append(flat)
    if most is None or most >= len(found):
        return found
    kept = np.random.default_rng(0).choice(len(found), most, replace=False)
    return [found[i] for i in sorted(kept)]


def error(model: Any, X: FloatArray, y: FloatArray, task: IntArray) -> float:
    """nMSE, or 1 − the average AUC of the tasks where there are classes."""
    if model.loss == "logistic":
        return 1 - auc_per_task(y, model.predict_proba(X, task=task)[:, 1], task)
    return nmse(y, model.predict(X, task=task))


@dataclass(frozen=True)
class Chosen:
    """The parameters with the least mean error over the folds, that error, and every other one."""

    parameters: dict[str, Any]
    error: float
    tried: tuple[tuple[dict[str, Any], float], ...]
    doubt: str = UNCOUNTED


def cross_validated(
    make: Make,
    candidates: Iterable[dict[str, Any]],
    X: FloatArray,
    y: FloatArray,
    task: IntArray,
    *,
    folds: int = FOLDS,
    seed: int = 0,
    scaled: bool = False,
) -> Chosen:
    """Cross-validation of make(**parameters), the rows of every task dealt to folds at random.

    ``scaled``: fits see ``mean_loss_rows``. Every fit has a ledger of its own, and none is kept.
    """
    fold = dealt(task, folds, np.random.default_rng(seed))
    tried = []
    for parameters in candidates:
        errors = []
        for number in range(folds):
            kept, held = fold != number, fold == number
            rows = mean_loss_rows(X[kept], y[kept], task[kept]) if scaled else (X[kept], y[kept])
            model = make(**parameters).fit(*rows, task=task[kept])
            known = held & np.isin(task, model.tasks_)
            errors.append(error(model, X[known], y[known], task[known]))
        tried.append((parameters, float(np.mean(errors))))
    best = min(tried, key=lambda each: each[1])
    return Chosen(*best, tuple(tried))


def dealt(task: IntArray, folds: int, rng: np.random.Generator) -> IntArray:
    """(N,): a fold for each row; every task's rows are spread over all folds.

    >>> sorted(dealt(np.array([0, 0, 0, 1]), 2, np.random.default_rng(0))[:3].tolist()) in (
    ...     [0, 0, 1], [0, 1, 1])
    True
    """
    order = rng.permutation(len(task))
    order = order[np.argsort(task[order], kind="stable")]
    _, first, sizes = np.unique(task[order], return_index=True, return_counts=True)
    place = np.arange(len(task)) - np.repeat(first, sizes)
    offset = np.repeat(rng.integers(folds, size=len(sizes)), sizes)
    fold = np.empty(len(task), dtype=np.int64)
    fold[order] = (place + offset) % folds
    return fold
