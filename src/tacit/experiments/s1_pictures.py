"""S1's pictures of matrices (Figures 2 and 3), noise against signal (Figure 5), and Table 2."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from tacit.arrays import FloatArray
from tacit.datasets import low_rank_tasks
from tacit.experiments.comparisons import Check, verdict
from tacit.experiments.declared import Judgement, Point
from tacit.experiments.measured import Measured
from tacit.experiments.protocol_s1 import mean_loss_rows
from tacit.experiments.s1_measures import LR, OUR_LR, Search, drawn, fitted
from tacit.learners.model_protected import LowRank, ModelProtected
from tacit.learners.model_protected.bounds import table_2_exponent
from tacit.linear.covariance_maps import trace_map
from tacit.privacy.budget import Budget

SHOWN = 20  # tasks of a picture


# --- Figure 2 -------------------------------------------------------------------------------------


def leakage(seed: int, learner: str, epsilon: float) -> Iterator[Point]:
    """Ten models of five features, the last a hundred times as long; one round of Algorithm 2."""
    W = np.random.default_rng(seed).uniform(size=(5, 10))
    W[:, -1] *= 100
    found = W if learner == "before" else _one_round(W, learner, epsilon, seed)
    yield from _entries(learner, found / np.linalg.norm(found, axis=0))


def _one_round(W: FloatArray, learner: str, epsilon: float, seed: int) -> FloatArray:
    """Each task's rows are I and its targets its column, so that the start is W itself."""
    X, task = np.tile(np.eye(5), (10, 1)), np.repeat(np.arange(10), 5)
    common: dict[str, Any] = {
        "fit_intercept": False, "noise": "simulated", "random_state": seed, "start": _exactly,
    }  # fmt: skip
    if learner == OUR_LR:
        model = LowRank(budget=Budget(epsilon, 1e-5), refit=False, **common)
    else:
        model = LowRank(
            budget=Budget(epsilon, 0.0), as_published=True, rounds=1, step=1.0, penalty=50.0,
            clip_norm=100 * np.sqrt(5), **common,
        )  # fmt: skip
    return np.asarray(model.fit(X, W.T.ravel(), task=task).coef_)


def _exactly(problems: Any, loss: Any) -> FloatArray:
    """The model that meets the rows of the one task."""
    width = problems.X.shape[1]
    found = np.zeros((1, width))
    found[0, :-1] = np.linalg.lstsq(problems.X[:, :-1], problems.y, rcond=None)[0]
    return found


# --- Figure 3 -------------------------------------------------------------------------------------


def output_models(
    seed: int, learner: str, epsilon: float, most: int, folds: int
) -> Iterator[Point]:
    """Models and correlations of the first twenty tasks; the data stay, the noise is drawn anew."""
    tasks = drawn("low rank", 0)
    if learner == "true":
        W = low_rank_tasks(rng=np.random.default_rng(0)).coef
    else:
        W = fitted(tasks, learner, epsilon, seed, Search(most, folds)).coef_
    yield from _entries(f"models: {learner}", W[:, :SHOWN])
    yield from _entries(f"relationships: {learner}", np.asarray(np.corrcoef(W[:, :SHOWN].T)))


def _entries(panel: str, matrix: FloatArray) -> Iterator[Point]:
    for (i, j), value in np.ndenumerate(matrix):
        yield Point(f"{i + 1}", float(j + 1), float(value), panel)


# --- Figure 5 -------------------------------------------------------------------------------------


def noise_to_signal(seed: int, learner: str, epsilon: float, rounds: int) -> Iterator[Point]:
    """‖E‖/‖Σ̃‖ by round: Algorithm 2, accelerated, its steps brought as functions.

    Ours uses nothing that is shared where no eigenvalue stands out of the noise, as here: M = I.
    """
    tasks = drawn("low rank", seed)
    seen: dict[tuple[int, bytes], FloatArray] = {}
    X, y = mean_loss_rows(*tasks.train)

    def mapped(covariances: FloatArray) -> FloatArray:
        """M^(t−1), as acceleration needs it, and M^(t)."""
        last = covariances[-2:]
        if learner != LR:
            return np.broadcast_to(np.eye(last.shape[1]), last.shape)
        return np.stack([trace_map(each, 1.0) for each in last])

    def step(M: FloatArray, past: FloatArray, X: FloatArray, y: FloatArray) -> FloatArray:
        t = len(past)
        seen[t, y.tobytes()] = past[-1]  # w̃^(t−1) of this task
        w = M[-1] @ past[-1]  # step 9
        before = M[0] @ past[-2] if t > 1 else past[-1]
        z = w + (t - 1) / (t + 2) * (w - before)  # step 10
        return np.asarray(z - X.T @ (X @ z - y))  # step 11

    model = ModelProtected(
        mapping=mapped, single_task=step, rounds=rounds, clip_norm=tasks.longest_model(),
        budget=tasks.budget(epsilon), schedule=("power", 0.4), as_published=learner == LR,
        noise="simulated", random_state=seed, fit_intercept=False,
    ).fit(X, y, task=tasks.train.task)  # fmt: skip
    for number, noisy in enumerate(np.asarray(model.shared_["covariances"].value), start=1):
        W = np.array([w for (round_, _), w in seen.items() if round_ == number])
        signal = W.T @ W
        ratio = np.linalg.norm(noisy - signal) / np.linalg.norm(signal)
        yield Point(learner, float(number), float(ratio))


# --- Table 2 --------------------------------------------------------------------------------------

PRINTED = {  # (δ > 0, accelerated, strongly convex): the power in Table 2
    (False, False, False): 1 / 3,
    (False, False, True): 1 / 2,
    (False, True, False): 2 / 5,
    (False, True, True): 2 / 9,
    (True, False, False): 2 / 5,
    (True, False, True): 1 / 2,
    (True, True, False): 4 / 9,
    (True, True, True): 1 / 3,
}


def utility_powers(seed: int) -> Iterator[Point]:
    """The powers of Table 2, and those that Theorems 6 and 11 give."""
    for positive, fast, strong in product((False, True), repeat=3):
        cell = f"{'accelerated' if fast else 'plain'}, {'strongly convex' if strong else 'convex'}"
        panel = "δ > 0" if positive else "δ = 0"
        found = table_2_exponent(accelerated=fast, strongly_convex=strong, adds_up=not positive)
        yield Point("printed", cell, PRINTED[positive, fast, strong], panel)
        yield Point("theorems", cell, found, panel)


# --- checks of pictures ---------------------------------------------------------------------------


def _matrix(measured: Measured, panel: str) -> FloatArray:
    return np.array([[m.mean for m in measured.means(c, panel)] for c in measured.curves(panel)])


def likeness(panel: str, than: str, *, more: bool) -> Check:
    """How like the last task's model the other nine are: mean cosine, here and there."""

    def cosine(measured: Measured, which: str) -> float:
        W = _matrix(measured, which)
        return float(np.mean(W[:, :-1].T @ W[:, -1]))

    def check(measured: Measured) -> Judgement:
        here, there = cosine(measured, panel), cosine(measured, than)
        good = here > there + 0.05 if more else here < there - 0.05
        return Judgement(verdict([good]), here, f"cosine {here:.3f}; {than} {there:.3f}")

    return check


def agreement(panel: str, truth: str, *, at_least: float = -1.0, at_most: float = 1.0) -> Check:
    """The correlation of a matrix's entries with the true one's."""

    def check(measured: Measured) -> Judgement:
        here, there = (_matrix(measured, which).ravel() for which in (panel, truth))
        found = float(np.corrcoef(here, there)[0, 1])
        good = at_least <= found <= at_most
        return Judgement(verdict([good]), found, f"correlation with the truth {found:.3f}")

    return check


def powers_as_printed(measured: Measured) -> Judgement:
    pairs = {
        f"{cell} ({panel})": (
            measured.mean("printed", cell, panel).mean,
            measured.mean("theorems", cell, panel).mean,
        )
        for panel in measured.panels
        for cell in measured.places("printed", panel)
    }
    same = {cell: abs(a - b) < 1e-12 for cell, (a, b) in pairs.items()}
    other = ", ".join(
        f"{c}: printed {a:.3f}, {b:.3f}" for c, (a, b) in pairs.items() if not same[c]
    )
    said = f"{sum(same.values())} of {len(same)} cells; {other}"
    return Judgement(verdict(list(same.values())), float(sum(same.values())), said)
