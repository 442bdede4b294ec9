"""S3 as printed, through the estimator, against a slow transcription of the paper, line by line."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tacit import AsyncProximal, Budget
from tacit.arrays import FloatArray
from tacit.datasets import related_tasks
from tacit.datasets.generators import Generated
from tacit.engine import Unprotected
from tacit.engine.latencies import Constant, Pareto, Uniform, visits
from tacit.errors import BudgetExceeded, InvalidInput, NoiseWarning
from tacit.learners.async_proximal.formulations import FORMULATIONS, synchronous_optimum
from tacit.learners.async_proximal.paper_run import paper_run
from tacit.learners.async_proximal.printed import LEVEL, LeastSquares, Printed
from tacit.linear.losses import Squared, loss_named
from tacit.linear.problems import Problems
from tacit.linear.single_task_fits import best_alone
from tacit.metrics import nmse_per_task
from tacit.privacy.mechanisms.grid import snapped
from tacit.privacy.release import Release

T, D, ROWS, MESSAGES = 4, 3, 20, 12  # D with the intercept


def generated(loss: Any = "squared") -> Generated:
    rng = np.random.default_rng(0)
    return related_tasks(T, ROWS, D - 1, loss=loss, test_rows=30, rng=rng)


@pytest.fixture(scope="module")
def data() -> Generated:
    return generated()


def fitted(data: Generated, settings: Printed, **more: Any) -> AsyncProximal:
    known: dict[str, Any] = {"ranges": data.ranges, "releases": MESSAGES, "random_state": 3}
    model = AsyncProximal(**(known | more), as_published=settings)
    model.fit(data.X, data.y, task=data.task)
    return model


# --- the paper, slowly ---------------------------------------------------------------------------


def trace_prox(V: FloatArray, level: float) -> FloatArray:
    U, sizes, Wt = np.linalg.svd(V, full_matrices=False)
    return np.asarray(U @ np.diag([max(s - level, 0.0) for s in sizes]) @ Wt)


def row_prox(V: FloatArray, level: float) -> FloatArray:
    sizes = np.array([math.sqrt(sum(v * v for v in row)) for row in V])
    return np.asarray([max(1 - level / s, 0) * row for s, row in zip(sizes, V, strict=True)])


def no_prox(q: FloatArray, level: float) -> FloatArray:
    return q


def entry_prox(q: FloatArray, level: float) -> FloatArray:
    return np.array([math.copysign(max(abs(v) - level, 0.0), v) for v in q])


def column_prox(q: FloatArray, level: float) -> FloatArray:
    size = float(np.linalg.norm(q))
    return q * max(1 - level / size, 0.0) if size else q


Prox = Callable[[FloatArray, float], FloatArray]
SLOW: dict[str, tuple[Prox, Prox]] = {
    "trace": (trace_prox, no_prox),
    "dirty": (row_prox, entry_prox),
    "robust-features": (row_prox, column_prox),
    "robust-tasks": (trace_prox, column_prox),
}
"""r and g of §3.1; g of "trace" has a gradient instead."""


class Literally:
    """Algorithm 1 and Eq. (6)–(9), a node and a line at a time; z₁ and z₂ are handed in."""

    def __init__(self, rows: Problems, loss: str, penalty: str, how: Printed) -> None:
        self.rows, self.loss, self.how = rows, loss, how
        self.shared_prox, self.own_prox = SLOW[penalty]
        self.smooth = penalty == "trace"
        self.lam = LEVEL[loss] if how.level is None else how.level
        self.tau = self.lam if how.own_level is None else how.own_level
        self.mu = how.shared_step * self.lam if how.threshold is None else how.threshold  # type: ignore[operator] # a number here

    def gradient(self, t: int, w: FloatArray) -> FloatArray:
        """(1/n) Σ ∇ℓ(x·w; y)."""
        a, b = self.rows.offsets[t], self.rows.offsets[t + 1]
        total = np.zeros(len(w))
        for x, y in zip(self.rows.X[a:b], self.rows.y[a:b], strict=True):
            if self.loss == "squared":
                total += 2 * (x @ w - y) * x
            else:
                total += -y * x / (1 + math.exp(y * (x @ w)))
        return np.asarray(total / (b - a))

    def moved(self, t: int, p: FloatArray, q: FloatArray) -> FloatArray:
        """Line 9 or Eq. (6); Eq. (8) by very many of them."""
        alpha = float(self.how.own_step)
        for _ in range(1 if self.how.own == "single" else 500):
            ridge = self.tau * q if self.smooth else 0.0
            q = self.own_prox(q - alpha * (self.gradient(t, p + q) + ridge), alpha * self.tau)
        return q

    def run(
        self, order: list[int], q0: FloatArray, z1: Any, z2: Any
    ) -> tuple[FloatArray, FloatArray]:
        width, nodes, alpha = self.rows.X.shape[1], len(q0), float(self.how.shared_step)
        P, S, Q = np.zeros((width, nodes)), np.zeros((width, nodes)), q0.T.copy()
        handed, k = np.zeros((width, nodes)), [0] * nodes
        for t in order:
            p = handed[:, t]
            q = self.moved(t, p, Q[:, t])
            at = Q[:, t] if self.how.order == "jacobi" else q
            S[:, t] = z2(t, self.gradient(t, p + at + z1(t, k[t])))  # lines 11–13
            P = self.shared_prox(P - alpha * S, self.mu)  # line 17
            Q[:, t], handed[:, t], k[t] = q, P[:, t], k[t] + 1
        return P, Q


def rows_of(data: Generated, longest: float) -> Problems:
    """Scaled rows with the intercept's one, none longer than C₁; by task."""
    loss: Any = "squared" if len(set(data.y)) > 2 else "logistic"
    model = AsyncProximal(loss=loss, ranges=data.ranges)
    _, tasks = model._declare(data.X, data.y, data.task)
    X = np.column_stack([tasks.X, np.ones(len(tasks.X))])
    X *= np.minimum(1, longest / np.linalg.norm(X, axis=1))[:, None]
    return Problems(X, tasks.y, tasks.offsets)


def order_of(schedule: Any) -> list[int]:
    return [t for visit in schedule for t in visit.arriving]


def silent(t: int, k: int) -> float:
    return 0.0


def as_it_is(t: int, gradient: FloatArray) -> FloatArray:
    return gradient


@pytest.mark.parametrize("penalty", SLOW)
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"order": "jacobi", "threshold": None, "level": 0.01, "own_level": 0.02},
        {"own": "exact", "own_step": 0.2, "own_level": 0.2, "threshold": 2e-4},
    ],
    ids=str,
)
def test_without_noise_it_is_the_printed_algorithm(penalty: Any, how: dict[str, Any]) -> None:
    data = generated()
    usual: dict[str, Any] = {"start": "zero", "own_step": 0.05, "shared_step": 0.02}
    settings = Printed(**usual | how)
    messages = 2 if settings.own == "exact" else MESSAGES
    model = fitted(data, settings, penalty=penalty, releases=messages, latency=Pareto())
    order = order_of(visits(Pareto(), [messages] * T, seed=3))
    slow = Literally(rows_of(data, math.sqrt(D)), "squared", penalty, settings)
    P, Q = slow.run(order, np.zeros((T, D)), silent, as_it_is)
    np.testing.assert_allclose(model.shared_["P"].value, P, rtol=0, atol=1e-10)
    np.testing.assert_allclose(model.shared_["Q"].value, Q, rtol=0, atol=1e-10)
    assert P.any()
    assert Q.any()


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_with_both_noises_it_is_algorithm_1_line_by_line(loss: Any) -> None:
    data = generated(loss)
    settings = Printed(
        epsilons=(1e4, 3e4),
        row_norm=1.2,
        model_bounds=(1.5, 2.5),
        shared_step=0.02,
        threshold=1e-6,
    )
    budget = settings.claimed(MESSAGES)
    model = fitted(data, settings, loss=loss, budget=budget, noise="simulated")
    rows, coins = rows_of(data, 1.2), np.random.default_rng(3)
    seeds = [int(coins.integers(2**32)) for _ in range(T)]
    doors = coins.spawn(T)
    order = order_of(visits(Uniform(), [MESSAGES] * T, seed=int(coins.integers(2**32))))
    C2 = (2 * (1.2 * 1.5 + 1), 2 * (1.2 * 2.5 + 1)) if loss == "squared" else (1.0, 1.0)
    S1, S2 = 2 * 0.1 * 1.2 * C2[0] / ROWS, 2 * 1.2 * C2[1] / ROWS

    def noise(rng: np.random.Generator, scale: float) -> FloatArray:
        direction, radius = rng.standard_normal(D), rng.gamma(D)
        return scale * radius * direction / np.linalg.norm(direction)

    def z1(t: int, k: int) -> FloatArray:
        return noise(np.random.default_rng([seeds[t], k]), S1 / 1e4)

    def z2(t: int, gradient: FloatArray) -> FloatArray:
        return snapped(gradient + noise(doors[t], S2 / 3e4), S2 / 3e4)

    start = best_alone(rows_of(data, math.inf), loss_named(loss))
    P, Q = Literally(rows, loss, "trace", settings).run(order, start, z1, z2)
    assert np.linalg.norm(P) > 1e-4
    np.testing.assert_allclose(model.shared_["P"].value, P, rtol=0, atol=1e-10)
    np.testing.assert_allclose(model.shared_["Q"].value, Q, rtol=0, atol=1e-10)


def test_a_synchronous_run_is_equations_6_and_7() -> None:
    data, step = generated(), 0.02
    settings = Printed(
        server="descent",
        order="jacobi",
        start="zero",
        staleness=0,
        own_step=step,
        shared_step=step,
        threshold=None,
        level=0.05,
    )
    model = fitted(data, settings)
    slow = Literally(rows_of(data, math.sqrt(D)), "squared", "trace", settings)
    P, Q = np.zeros((D, T)), np.zeros((D, T))
    for _ in range(MESSAGES):
        slope = np.stack([slow.gradient(t, P[:, t] + Q[:, t]) for t in range(T)], axis=1)
        Q, P = Q - step * (slope + 0.05 * Q), trace_prox(P - step * slope, step * 0.05)
    np.testing.assert_allclose(model.shared_["P"].value, P, rtol=0, atol=1e-10)
    np.testing.assert_allclose(model.shared_["Q"].value, Q, rtol=0, atol=1e-10)


# --- its letters ---------------------------------------------------------------------------------


def test_true_is_section_4_1(data: Generated) -> None:
    one, other = fitted(data, Printed()), fitted(data, True)  # type: ignore[arg-type] # as a user writes it
    np.testing.assert_array_equal(one.coef_, other.coef_)


def test_without_an_intercept_nothing_is_drawn_for_it(data: Generated) -> None:
    settings = Printed(epsilons=(1.0, 1.0), row_norm=1.0)
    budget = settings.claimed(MESSAGES)
    model = fitted(data, settings, budget=budget, noise="simulated", fit_intercept=False)
    assert {len(message["gradient"].value) for _, _, message in model.transcript_} == {D - 1}
    assert not np.asarray(model.shared_["P"].value)[-1].any()
    assert model.coef_.shape == (D - 1, T)


def test_rows_are_cut_to_c1_and_the_noise_is_that_of_c1(data: Generated) -> None:
    settings = Printed(row_norm=1.0, model_bounds=(1.0, 3.0), epsilons=(1.0, 2.0))
    model = fitted(data, settings, budget=settings.claimed(MESSAGES), noise="simulated")
    mechanism = model.history_[0]["mechanism"]
    assert mechanism["sensitivity"] == pytest.approx(2 * 1 * 2 * (1 * 3 + 1) / ROWS)
    assert (mechanism["epsilon_1"], mechanism["epsilon_2"]) == (1.0, 2.0)
    unit = rows_of(data, 1.0)
    run = paper_run(settings, rows_of(data, math.inf), Squared(), FORMULATIONS["trace"], D)
    np.testing.assert_allclose(np.vstack([task.X for task in run.tasks]), unit.X, atol=1e-9)
    assert settings.sensitivities(LeastSquares(), D, ROWS, 0.5)[0] == pytest.approx(0.2)
    assert Printed(slope_bound=7.0).sensitivities(LeastSquares(), 4, 1, 0.5) == (14.0, 28.0)


def test_the_claim_adds_up_and_no_more_is_spent(data: Generated) -> None:
    settings = Printed(epsilons=(0.5, 1.0))
    model = fitted(data, settings, budget=settings.claimed(MESSAGES), noise="simulated")
    assert model.guarantee_.epsilon == pytest.approx(1.5 * MESSAGES)
    assert not model.guarantee_.proven
    assert "never privatised" in model.guarantee_.reason
    with pytest.raises(BudgetExceeded):
        fitted(data, settings, budget=Budget(1.4 * MESSAGES), noise="simulated")


def test_it_stops_where_w_stops_moving(data: Generated) -> None:
    gentle: dict[str, Any] = {"own_step": 0.02, "shared_step": 0.01, "start": "zero"}
    whole = fitted(data, Printed(**gentle), releases=60)
    moved = [line["moved"] for line in whole.private_history_]
    assert len(moved) == 60
    nu = moved[30] * 1.0001
    first = next(k for k, length in enumerate(moved) if length <= nu)
    short = fitted(data, Printed(**gentle, stop=nu), releases=60)
    assert len(short.private_history_) == first + 1
    np.testing.assert_array_equal(
        [line["moved"] for line in short.private_history_], moved[: first + 1]
    )
    noisy = Printed(stop=nu, epsilons=(1.0, 1.0))
    promised = fitted(data, noisy, budget=noisy.claimed(MESSAGES), noise="simulated").guarantee_
    assert "when it stops depends on the data" in promised.reason


def test_a_run_that_diverges_ends_and_says_so(data: Generated) -> None:
    steps = Printed(own_step=50.0, shared_step=50.0, start="zero")
    with pytest.warns(NoiseWarning, match="the run diverged: a column of P has length"):
        model = fitted(data, steps, releases=2000)
    assert model.private_history_[-1]["objective"] > 1e60
    assert len(model.private_history_) < 2000
    assert np.isfinite(model.coef_).all()


def test_a_run_that_drowns_in_noise_says_so(data: Generated) -> None:
    with pytest.warns(NoiseWarning, match="the run diverged"):
        fitted(data, Printed(), budget=Budget(0.1, 0.0), noise="simulated")
    assert fitted(data, Printed()).coef_.max() < 10  # and without noise, nothing is said


@pytest.mark.parametrize("own", ["single", "exact"])
@pytest.mark.parametrize("penalty", SLOW)
def test_the_safe_step_ends_at_the_optimum(own: Any, penalty: Any) -> None:
    data = generated()
    settings = Printed(
        own=own,
        server="descent",
        own_step="safe",
        shared_step="safe",
        threshold=None,
        level=0.05,
        start="zero",
        record_every=900,
    )
    model = fitted(data, settings, penalty=penalty, releases=900, latency=Pareto())
    rows = rows_of(data, math.sqrt(D))
    run = paper_run(settings, rows, Squared(), FORMULATIONS[penalty], D)
    best = run.formulation.objective(run.tasks, *synchronous_optimum(run.tasks, run.formulation))
    assert model.private_history_[-1]["split_objective"] == pytest.approx(best, rel=1e-6)


# --- the trajectory ------------------------------------------------------------------------------


def test_every_line_says_where_everybody_was(data: Generated) -> None:
    settings = Printed(record_every=5, own_step=0.02, shared_step=0.01, level=0.1, threshold=0.002)
    model = fitted(data, settings, releases=20, latency=Constant(0.5))
    lines = model.private_history_
    assert [line["iteration"] for line in lines] == [5, 10, 15, 20]
    assert [line["time"] for line in lines] == pytest.approx([2.5, 5.0, 7.5, 10.0])
    P, Q = (np.asarray(model.shared_[name].value) for name in "PQ")
    rows, last = rows_of(data, math.sqrt(D)), lines[-1]
    fits = [rows.X[rows.task == t] @ (P + Q)[:, t] - rows.y[rows.task == t] for t in range(T)]
    losses = [float(np.mean(fit**2)) for fit in fits]
    sizes = [np.linalg.svd(part)[1].sum() for part in (P + Q, P)]
    assert last["error"] == pytest.approx(np.mean(losses))
    assert last["objective"] == pytest.approx(sum(losses) + 0.1 * sizes[0])
    assert last["split_objective"] == pytest.approx(
        sum(losses) + 0.2 * sizes[1] + 0.05 * (Q**2).sum()
    )
    assert last["rank"] == np.linalg.matrix_rank(P)


def test_predictions_can_be_had_of_every_line(data: Generated) -> None:
    model = fitted(data, Printed(record_every=4, own_step=0.02, shared_step=0.01, start="zero"))
    staged = list(model.staged_predict(data.X_test, data.task_test))
    assert len(staged) == len(model.private_history_) == 3
    np.testing.assert_array_equal(staged[-1], model.predict(data.X_test, data.task_test))
    errors = [nmse_per_task(data.y_test, each, data.task_test) for each in staged]
    assert errors[0] > errors[1] > errors[2]


def test_w_is_p_plus_q_and_nothing_is_refitted(data: Generated) -> None:
    model = fitted(data, Printed())
    assert isinstance(model.shared_["P"], Unprotected)
    W = np.asarray(model.shared_["P"].value) + np.asarray(model.shared_["Q"].value)
    np.testing.assert_array_equal(model._models, W.T)
    np.testing.assert_array_equal(model.coef_, model.home_coef_)
    assert model.guarantee_.epsilon == math.inf
    assert not model.history_
    settings = Printed(epsilons=(1.0, 1.0))
    noisy = fitted(data, settings, budget=settings.claimed(MESSAGES), noise="simulated")
    assert isinstance(noisy.shared_["P"], Release)
    assert len(noisy.shared_["P"].source) == T * MESSAGES
    assert isinstance(noisy.shared_["Q"], Unprotected)


@pytest.mark.parametrize(
    ("settings", "more", "said"),
    [
        ({"own_step": "safe"}, {}, "descent"),
        ({"server": "descent"}, {"budget": Budget(1.0)}, "without privacy"),
        ({"epsilons": (1.0, 1.0)}, {}, "budget"),
        ({}, {"penalty": None}, "penalty"),
        ({}, {"mechanism": "gamma"}, "mechanism"),
        ({}, {"server": "trusted"}, "server"),
        ({}, {"clip_norm": 1.0}, "clip_norm"),
    ],
)
def test_letters_that_mean_nothing_are_refused(
    data: Generated, settings: dict[str, Any], more: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        fitted(data, Printed(**settings), **more)
    with pytest.raises(InvalidInput, match="own_step"):
        Printed(own_step=-1.0)
