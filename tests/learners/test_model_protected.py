"""S1's algorithms against slow transcriptions of the paper, by their limits and sensitivities."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from tacit import Budget, Decomposed, GroupSparse, Ledger, LowRank, SingleTask
from tacit.arrays import FloatArray
from tacit.datasets import group_sparse_tasks, low_rank_tasks, related_tasks
from tacit.datasets.generators import Generated
from tacit.engine.rounds import TASKS
from tacit.errors import InvalidInput, NotPure
from tacit.learners import model_protected as module
from tacit.learners.model_protected.covariance_schedule import (
    published_amounts,
    recommended,
    schedule_weights,
    sound_mechanism,
)
from tacit.linear.penalties import GroupNorm, TraceNorm
from tacit.metrics import nmse
from tacit.privacy.accounting import kov_epsilon
from tacit.privacy.mechanisms import (
    DiagonalGaussian,
    DiagonalLaplace,
    EachRow,
    GramGaussian,
    KNormSum,
    NoisyStatistic,
    PublishedWishart,
    SymmetricGaussian,
    TwoSidedWishart,
)
from tacit.privacy.release import Key

ALL: list[Any] = [LowRank, GroupSparse, Decomposed]
ALPHA = 1e-6


def score(model: Any, data: Generated) -> float:
    model.fit(data.X, data.y, task=data.task)
    return nmse(data.y_test, model.predict(data.X_test, task=data.task_test))


# --- the paper, step by step, in loops --------------------------------------------------------


def tasks_of(data: Generated) -> tuple[list[FloatArray], list[FloatArray]]:
    labels = range(data.task.max() + 1)
    return [data.X[data.task == i] for i in labels], [data.y[data.task == i] for i in labels]


def gradient(X: FloatArray, y: FloatArray, w: FloatArray, mu: float) -> FloatArray:
    """Of ½‖Xw − y‖² + (μ/2)‖w‖²."""
    return np.asarray(X.T @ (X @ w - y) + mu * w)


def logistic_gradient(X: FloatArray, y: FloatArray, w: FloatArray, mu: float) -> FloatArray:
    """Of Σ log(1 + exp(−y x·w)) + (μ/2)‖w‖²."""
    return np.asarray(X.T @ (-y / (1 + np.exp(y * (X @ w)))) + mu * w)


def clipped(w: FloatArray, K: float) -> FloatArray:
    return np.asarray(w / max(1.0, float(np.linalg.norm(w)) / K))


def beta(t: int, accelerated: Any, mu: float, L: float) -> float:
    if isinstance(accelerated, list):  # Input: acceleration parameters {β_t}
        return float(accelerated[t - 1])
    if not accelerated:
        return 0.0
    if mu == 0:
        return (t - 1) / (t + 2)
    root = math.sqrt(mu / L)
    return (1 - root) / (1 + root)


def projection(Sigma: FloatArray, level: float, m: int, group: bool) -> FloatArray:
    d = len(Sigma)
    if group:  # Algorithm 3, steps 6–7
        factors = [
            max(0.0, 1 - level / math.sqrt(abs(Sigma[j, j]))) if Sigma[j, j] else 0.0
            for j in range(d)
        ]
        return np.diag(factors)
    U, Lambda, _ = np.linalg.svd(Sigma)  # Algorithm 2, step 6
    S = np.zeros((d, d))
    for i in range(min(d, m)):  # step 7
        S[i, i] = max(0.0, 1 - level / math.sqrt(Lambda[i])) if Lambda[i] > 0 else 0.0
    return np.asarray(U @ S @ U.T)  # step 8


class Curator:
    """Steps 3–5 in a loop: what the run released is used, and is found to be W̃W̃ᵀ + E."""

    def __init__(self, released: list[FloatArray], K: float) -> None:
        self.released, self.K, self.noise = released, K, list[FloatArray]()

    def covariance(self, W_tilde: FloatArray) -> FloatArray:
        Sigma = self.released[len(self.noise)]
        self.noise.append(Sigma - W_tilde @ W_tilde.T)
        return Sigma

    def clipped(self, W: FloatArray) -> FloatArray:
        return np.column_stack([clipped(w, self.K) for w in W.T])


def algorithm_2_or_3(
    data: Generated,
    W0: FloatArray,
    curator: Curator,
    lam: float,
    eta: float,
    *,
    accelerated: Any,
    mu: float,
    group: bool,
    slope: Any = gradient,
) -> FloatArray:
    Xs, ys = tasks_of(data)
    m, W = len(Xs), W0.copy()  # (d, m)
    W_hat_before = curator.clipped(W)  # Ŵ^(0) = W̃^(0)
    for t in range(1, len(curator.released) + 1):
        W_tilde = curator.clipped(W)  # step 3
        M = projection(curator.covariance(W_tilde), eta * lam, m, group)  # steps 4–8
        W_hat = np.column_stack([M @ W_tilde[:, i] for i in range(m)])  # step 9
        b = beta(t, accelerated, mu, 1 / eta)
        for i in range(m):
            z = W_hat[:, i] + b * (W_hat[:, i] - W_hat_before[:, i])  # step 10
            W[:, i] = z - eta * slope(Xs[i], ys[i], z, mu)  # step 11
        W_hat_before = W_hat
    return W_hat_before


def algorithm_4(
    data: Generated,
    W0: FloatArray,
    curator: Curator,
    lam1: float,
    lam2: float,
    eta: float,
    *,
    accelerated: Any,
    group: bool,
    own: str,
) -> FloatArray:
    Xs, ys = tasks_of(data)
    m = len(Xs)
    P, Q = W0.copy(), W0.copy()  # step 2
    P_hat_before, Q_hat_before = curator.clipped(P), W0.copy()
    for t in range(1, len(curator.released) + 1):
        P_tilde = curator.clipped(P)  # step 4
        M = projection(curator.covariance(P_tilde), eta * lam1, m, group)  # steps 5–9
        P_hat = M @ P_tilde  # step 10
        Q_hat = np.zeros_like(Q)
        for i in range(m):  # step 11, and Remark 4
            q = Q[:, i]
            if own == "l1":
                Q_hat[:, i] = np.sign(q) * np.maximum(0, np.abs(q) - eta * lam2)
            elif own == "column":
                Q_hat[:, i] = max(0.0, 1 - eta * lam2 / float(np.linalg.norm(q))) * q
            else:
                Q_hat[:, i] = q / (1 + 2 * eta * lam2)
        b = beta(t, accelerated, 0.0, 1 / eta)
        for i in range(m):
            z_p = P_hat[:, i] + b * (P_hat[:, i] - P_hat_before[:, i])  # step 13
            z_q = Q_hat[:, i] + b * (Q_hat[:, i] - Q_hat_before[:, i])  # step 14
            slope = gradient(Xs[i], ys[i], z_p + z_q, 0.0)
            P[:, i], Q[:, i] = z_p - eta * slope, z_q - eta * slope  # steps 15, 16
        P_hat_before, Q_hat_before = P_hat, Q_hat
    return np.asarray(P_hat_before + Q_hat_before)  # step 12


def algorithm_5(
    data: Generated,
    W0: FloatArray,
    noisy: list[FloatArray],
    curator: Curator,
    lam: float,
    eta: float,
) -> FloatArray:
    """With Algorithm 2's mapping and learner, accelerated; step 4's noisy models are the run's."""
    Xs, ys = tasks_of(data)
    m, W = len(Xs), W0.copy()
    W_hat_before = noisy[0]  # Ŵ^(0) = W̃^(0)
    for t in range(1, len(noisy) + 1):
        W_tilde = noisy[t - 1]  # step 4: no clip after the noise
        M = projection(curator.covariance(W_tilde), eta * lam, m, False)  # steps 5–7
        W_hat = M @ W_tilde  # step 8
        for i in range(m):
            z = W_hat[:, i] + (t - 1) / (t + 2) * (W_hat[:, i] - W_hat_before[:, i])
            W[:, i] = z - eta * gradient(Xs[i], ys[i], z, 0.0)
        W_hat_before = W_hat
    return np.asarray(W_hat_before)


def covariances(model: Any) -> list[FloatArray]:
    return [np.asarray(line["covariance"]) for line in model.history_]


@pytest.fixture(scope="module")
def small() -> Generated:
    return related_tasks(9, (4, 12), 5, rng=np.random.default_rng(0))


def start_at(W0: FloatArray, data: Generated) -> Any:
    """Column i of W0 for task i, which the function knows by its rows: it sees one at a time."""
    known = {X.tobytes(): np.append(w, 0.0) for X, w in zip(tasks_of(data)[0], W0.T, strict=True)}
    return lambda problems, loss: known[problems.X[:, :-1].tobytes()][None]


LITERAL: dict[str, Any] = {
    "as_published": True, "step": 0.02, "fit_intercept": False, "noise": "simulated",
    "random_state": 0,
}  # fmt: skip


@pytest.mark.parametrize("mu", [0.0, 0.1])
@pytest.mark.parametrize("accelerated", [True, False, [0.0, 0.5, 0.1, 0.9, 0.3, 0.7]])
@pytest.mark.parametrize("learner", [LowRank, GroupSparse])
@pytest.mark.parametrize("K", [1.0, 50.0], ids=["clipping", "free"])
@pytest.mark.parametrize("epsilon", [2.0, 1e9], ids=["noise", "no noise"])
def test_as_published_is_the_printed_algorithm(
    small: Generated, learner: Any, accelerated: Any, mu: float, K: float, epsilon: float
) -> None:
    W0 = np.random.default_rng(1).normal(size=(5, 9))
    model = learner(
        budget=Budget(epsilon, 1e-5), rounds=6, clip_norm=K, penalty=20.0, accelerated=accelerated,
        strong_convexity=mu, start=start_at(W0, small), **LITERAL,
    ).fit(small.X, small.y, task=small.task)  # fmt: skip
    curator = Curator(covariances(model), K)
    expected = algorithm_2_or_3(
        small, W0, curator, 20.0, 0.02, accelerated=accelerated, mu=mu, group=learner is GroupSparse
    )
    np.testing.assert_allclose(model.coef_, expected, rtol=0, atol=1e-10)
    scale = K**2 / (2 * np.array([line["event"]["epsilon"] for line in model.history_]))
    assert all(np.linalg.eigvalsh(noise)[0] > -1e-9 * K**2 for noise in curator.noise)
    sizes = [np.trace(noise) / size for noise, size in zip(curator.noise, scale, strict=True)]
    law = chi2(5 * 6 * len(sizes))  # step 5: E ~ W_d(d + 1, K²/2ε_t I), so tr E/(K²/2ε_t) is χ²
    assert law.ppf(ALPHA) < sum(sizes) < law.isf(ALPHA)


@pytest.mark.parametrize("learner", [LowRank, GroupSparse])
def test_so_it_is_with_more_features_than_tasks(learner: Any) -> None:
    """Step 7 of Algorithm 2 fills min(d, m) places of S: noise chooses which directions stay."""
    few = related_tasks(3, (4, 12), 5, rng=np.random.default_rng(4))
    W0 = np.random.default_rng(1).normal(size=(5, 3))
    model = learner(
        budget=Budget(2.0, 1e-5), rounds=5, clip_norm=1.0, penalty=5.0,
        start=start_at(W0, few), **LITERAL,
    ).fit(few.X, few.y, task=few.task)  # fmt: skip
    group = learner is GroupSparse
    curator = Curator(covariances(model), 1.0)
    expected = algorithm_2_or_3(few, W0, curator, 5.0, 0.02, accelerated=True, mu=0.0, group=group)
    np.testing.assert_allclose(model.coef_, expected, rtol=0, atol=1e-10)
    M = projection(curator.released[-1], 0.02 * 5.0, 3, group)
    assert np.linalg.matrix_rank(M) == (5 if group else 3)


@pytest.mark.parametrize("learner", [LowRank, GroupSparse])
def test_so_it_is_with_a_logistic_loss(learner: Any) -> None:
    signs = related_tasks(9, (4, 12), 5, loss="logistic", rng=np.random.default_rng(0))
    W0 = np.random.default_rng(1).normal(size=(5, 9))
    model = learner(
        loss="logistic", budget=Budget(2.0, 1e-5), rounds=6, clip_norm=1.0, penalty=2.0,
        strong_convexity=0.1, start=start_at(W0, signs), **LITERAL,
    ).fit(signs.X, signs.y, task=signs.task)  # fmt: skip
    expected = algorithm_2_or_3(
        signs, W0, Curator(covariances(model), 1.0), 2.0, 0.02, accelerated=True, mu=0.1,
        group=learner is GroupSparse, slope=logistic_gradient,
    )  # fmt: skip
    np.testing.assert_allclose(model.coef_, expected, rtol=0, atol=1e-10)


def test_as_published_spends_by_definition_7(small: Generated) -> None:
    model = LowRank(budget=Budget(1.0, 1e-4), rounds=8, clip_norm=1.0, **LITERAL)
    model.fit(small.X, small.y, task=small.task)
    spent = [line["event"]["epsilon"] for line in model.history_]
    np.testing.assert_allclose(np.array(spent) / spent[0], np.arange(1, 9) ** 0.4)
    assert kov_epsilon(spent, 1e-4) == pytest.approx(1.0)


@pytest.mark.parametrize("accelerated", [True, False, [0.0, 0.5, 0.1, 0.9, 0.3, 0.7]])
@pytest.mark.parametrize("shared", ["trace", "group"])
@pytest.mark.parametrize("own", ["l1", "column", "squared"])
def test_as_published_decomposed_is_the_printed_algorithm(
    small: Generated, shared: Any, own: Any, accelerated: Any
) -> None:
    W0 = np.random.default_rng(1).normal(size=(5, 9))
    model = Decomposed(
        budget=Budget(5.0), rounds=6, clip_norm=1.5, penalty=20.0, own_penalty=5.0, shared=shared,
        own=own, accelerated=accelerated, start=start_at(W0, small), **LITERAL,
    ).fit(small.X, small.y, task=small.task)  # fmt: skip
    expected = algorithm_4(
        small, W0, Curator(covariances(model), 1.5), 20.0, 5.0, 0.02,
        accelerated=accelerated, group=shared == "group", own=own,
    )  # fmt: skip
    np.testing.assert_allclose(model.coef_, expected, rtol=0, atol=1e-10)


def test_as_published_algorithm_5_goes_on_with_the_noisy_models(small: Generated) -> None:
    W0 = np.random.default_rng(1).normal(size=(5, 9))
    ledger = Ledger.in_memory()
    model = LowRank(
        budget=Budget(5.0), protect_examples=Budget(1.0, 1e-5), rounds=4, clip_norm=1.5,
        penalty=20.0, start=start_at(W0, small), ledger=ledger, **LITERAL,
    ).fit(small.X, small.y, task=small.task)  # fmt: skip
    own, run = ledger.beside(f"{ledger.dataset}, against the curator"), f"{model.run_}, at home"
    spends = [e.payload for e in own.spends(run)]
    epsilons = [spend["event"]["epsilon"] for spend in spends]
    releases = [own.released(Key(run, number, TASKS)) for number in range(4)]
    noisy = [release.value.T for release in releases if release is not None]
    curator = Curator(covariances(model), math.inf)
    expected = algorithm_5(small, W0, noisy, curator, 20.0, 0.02)
    np.testing.assert_allclose(model.coef_, expected, rtol=0, atol=1e-10)
    assert all(np.linalg.eigvalsh(noise)[0] > -1e-9 for noise in curator.noise)
    scales = [spend["mechanism"]["row"]["scale"] for spend in spends]
    assert scales == pytest.approx(np.array(epsilons) / (2 * 1.5))  # step 4: exp(−(2K/ε)‖b‖)
    assert kov_epsilon(epsilons, 1e-5) == pytest.approx(1.0)  # step 2: Definition 7


def test_a_model_with_noise_of_its_own_is_pickled(small: Generated) -> None:
    """It keeps no ledger in memory, which no other process can add to."""
    model = LowRank(budget=Budget(5.0), protect_examples=Budget(1.0, 0.0), rounds=2)
    model.fit(small.X, small.y, task=small.task)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.coef_, model.coef_)


def test_a_declared_step_makes_a_sound_run_the_same_algorithm(small: Generated) -> None:
    """But for the clip of what is not released, and the noise."""
    W0 = np.random.default_rng(1).normal(size=(5, 9))
    model = LowRank(
        budget=Budget(1e9), rounds=6, clip_norm=50.0, penalty=20.0, mechanism="wishart",
        start=start_at(W0, small), refit=False, **(LITERAL | {"as_published": False}),
    ).fit(small.X, small.y, task=small.task)  # fmt: skip
    curator = Curator(covariances(model), 50.0)
    expected = algorithm_2_or_3(
        small, W0, curator, 20.0, 0.02, accelerated=True, mu=0.0, group=False
    )
    np.testing.assert_allclose(model.coef_, expected, atol=2e-2)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"as_published": True}, "clip_norm"),
        ({"as_published": True, "clip_norm": 1.0}, "step"),
        ({"step": 0.1}, "clip_norm"),
        ({"penalty": 1.0}, "step"),
    ],
)
def test_lambda_has_one_meaning(wrong: Any, match: str, small: Generated) -> None:
    """Of objective (2), in the units of the data: nothing stands for another λ in silence."""
    with pytest.raises(InvalidInput, match=match):
        LowRank(budget=Budget(1.0), **wrong).fit(small.X, small.y, task=small.task)


def test_many_rounds_without_noise_come_to_the_optimum_of_the_objective() -> None:
    """At the same λ as the twin, which solves objective (2) exactly."""
    data = related_tasks(9, 12, 4, rng=np.random.default_rng(3))
    L = max(np.linalg.eigvalsh(X.T @ X)[-1] for X in tasks_of(data)[0])
    model = LowRank(
        budget=Budget(1e9, 1e-5), rounds=400, clip_norm=5.0, penalty=5.0, start="zeros",
        schedule=("power", 0.0), **(LITERAL | {"step": 1 / L}),
    ).fit(data.X, data.y, task=data.task)  # fmt: skip
    twin = LowRank(penalty=5.0, fit_intercept=False).fit(data.X, data.y, task=data.task)
    np.testing.assert_allclose(model.coef_, twin.coef_, atol=1e-3)


# --- what is released ---------------------------------------------------------------------------


@pytest.mark.parametrize("neighbours", ["replace", "zero-out"])
@pytest.mark.parametrize(
    ("kind", "name"),
    [("full", "gaussian"), ("diagonal", "gaussian"), ("tasks", "gaussian"), ("full", "wishart"),
     ("diagonal", "laplace")],
)  # fmt: skip
def test_extremal_pairs_reach_the_sensitivity_that_is_accounted_for(
    kind: Any, name: str, neighbours: Any
) -> None:
    K, m, amount = 3.0, 4, 0.5
    mechanism = sound_mechanism(kind, name, K, amount, neighbours, m)
    one = np.zeros((m, 2))
    one[0] = [100.0, 0.0]  # clipped to K
    other = np.zeros((m, 2))
    if kind == "tasks":
        one[:] = [100.0, 0.0]
        other = one.copy()
        other[0] *= -1 if neighbours == "replace" else 0
    elif neighbours == "replace":
        other[0] = [0.0, 100.0]
    if name == "laplace":
        one, other = one**2, other**2
    released = [mechanism.release(rows, np.random.default_rng(0)) for rows in (one, other)]
    change = released[0] - released[1]
    event = mechanism.event(neighbours)
    if name == "gaussian":
        sigma = mechanism.noise.scale
        assert np.linalg.norm(change) / sigma == pytest.approx(amount, rel=1e-6)
        assert event.mu == pytest.approx(amount)
    elif isinstance(mechanism, TwoSidedWishart):
        nuclear = np.abs(np.linalg.eigvalsh(change)).sum()
        assert nuclear / (2 * mechanism.scale) == pytest.approx(amount, rel=1e-6)
    else:
        scale = mechanism.noise.scale
        assert np.abs(change).sum() / scale == pytest.approx(amount, rel=1e-6)


@pytest.mark.parametrize("learner", ALL)
@pytest.mark.parametrize("kind", ["features", "tasks"])
def test_a_run_costs_the_budget_and_no_more(learner: Any, kind: Any, small: Generated) -> None:
    model = learner(budget=Budget(2.0), rounds=4, covariance=kind)
    model.fit(small.X, small.y, task=small.task)
    assert 1.99 < model.guarantee_.epsilon <= 2.0
    assert model.guarantee_.proven
    assert len(model.history_) == 4


@pytest.mark.parametrize(("delta", "power"), [(1e-5, 2 / 5), (0.0, 2 / 3)])
def test_the_schedule_is_theorem_6_or_11(delta: float, power: float) -> None:
    assert recommended(False, 0.0, delta=delta) == ("power", 0.0)
    assert recommended(True, 0.0, delta=delta) == ("power", power)
    assert recommended(False, 0.2, delta=delta) == ("geometric", 0.8**power)
    Q = 1 - math.sqrt(0.2)
    assert recommended(True, 0.2, delta=delta) == ("geometric", Q ** (power / 2))


def test_a_schedule_may_be_any_weights() -> None:
    given = schedule_weights([1.0, 3.0], 2, True, 0.0, delta=1e-5)
    assert given.tolist() == [1.0, 3.0]
    with pytest.raises(InvalidInput, match="2 weights for 3 rounds"):
        schedule_weights([1.0, 3.0], 3, True, 0.0, delta=1e-5)


@pytest.mark.parametrize(("delta", "power"), [(1e-3, 2 / 5), (0.0, 2 / 3)])
def test_a_run_without_delta_follows_theorem_11(
    delta: float, power: float, small: Generated
) -> None:
    model = LowRank(budget=Budget(1.0, delta), mechanism="wishart", rounds=4)
    model.fit(small.X, small.y, task=small.task)
    spent = np.array([line["event"]["epsilon"] for line in model.history_])
    np.testing.assert_allclose(spent / spent[0], np.arange(1, 5) ** power, rtol=1e-6)


@pytest.mark.parametrize(
    "given", [[0.0, 0.0], ("geometric", -0.5), [math.nan, 1.0], [1.0, math.inf]]
)
def test_a_schedule_needs_weights(given: Any) -> None:
    with pytest.raises(InvalidInput, match="non-negative finite weights"):
        schedule_weights(given, 2, True, 0.0, delta=1e-5)


@pytest.mark.parametrize("schedule", [[1.0, 2.0, 2.0], ("power", 3.0)])
def test_a_schedule_is_kept_whoever_chooses_the_rounds(schedule: Any, small: Generated) -> None:
    """With rounds="auto" it was passed over in silence."""
    model = LowRank(budget=Budget(5e3), schedule=schedule, noise="simulated", random_state=0)
    model.fit(small.X, small.y, task=small.task)
    mus = [step["event"]["mu"] for step in model.history_]
    kept = LowRank(
        budget=Budget(5e3), schedule=schedule, rounds=len(mus), noise="simulated", random_state=0
    ).fit(small.X, small.y, task=small.task)
    assert len(mus) > 1
    assert mus == [step["event"]["mu"] for step in kept.history_]
    assert mus[1] > 1.5 * mus[0]


def test_rounds_spend_by_the_schedule(small: Generated) -> None:
    model = LowRank(budget=Budget(1.0), rounds=5).fit(small.X, small.y, task=small.task)
    mus = np.array([line["event"]["mu"] for line in model.history_])
    np.testing.assert_allclose(mus / mus[0], np.arange(1, 6) ** 0.4, rtol=1e-9)
    model = LowRank(budget=Budget(1.0), rounds=3, schedule=("geometric", 0.5))
    mus = np.array(
        [line["event"]["mu"] for line in model.fit(small.X, small.y, task=small.task).history_]
    )
    np.testing.assert_allclose(mus / mus[0], [1, 2, 4], rtol=1e-9)


def test_published_budgets_fill_definition_7() -> None:
    from tacit.privacy.accounting import Cost

    weights = schedule_weights("auto", 20, True, 0.0, delta=1e-4)
    amounts = published_amounts(weights, Cost(epsilon=1.0, delta=1e-4))
    assert kov_epsilon(list(amounts), 1e-4) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("learner", ALL)
@pytest.mark.parametrize("version", [True, "first"])
@pytest.mark.parametrize("kind", ["features", "tasks"])
def test_a_published_epsilon_is_only_a_claim(
    learner: Any, version: Any, kind: Any, small: Generated
) -> None:
    model = learner(
        budget=Budget(1.0, 1e-4), as_published=version, covariance=kind, clip_norm=1.0, step=0.02
    )
    model.fit(small.X, small.y, task=small.task)
    promised = model.guarantee_
    assert not promised.proven
    assert not promised.secure_noise
    assert "not differentially private" in promised.reason
    assert "claimed, NOT proven" in str(promised)
    assert "claims" in promised.accountant
    assert promised.epsilon <= 1.0
    assert np.isfinite(model.coef_).all()


def test_the_first_version_has_its_own_scale() -> None:
    noise = PublishedWishart(3.0, 0.5, sensitivity=6.0, as_published=True)
    rng = np.random.default_rng(0)
    draws = [np.trace(noise.release(np.zeros((2, 4)), rng)) for _ in range(400)]
    expected = 4 * 5 * 6.0 / (2 * 0.5)  # d (d+1) s/2ε
    assert np.mean(draws) == pytest.approx(expected, rel=0.1)
    with pytest.raises(InvalidInput, match="as_published"):
        PublishedWishart(3.0, 0.5, sensitivity=6.0)


@pytest.mark.parametrize(
    ("learner", "name", "exact"), [(LowRank, "wishart", False), (GroupSparse, "laplace", True)]
)
def test_pure_mechanisms_need_no_delta(
    learner: Any, name: str, exact: bool, small: Generated
) -> None:
    model = learner(budget=Budget(1.0, 0.0), mechanism=name, rounds=3)
    model.fit(small.X, small.y, task=small.task)
    assert model.guarantee_.delta == 0
    assert 0.999 < model.guarantee_.epsilon <= 1.0 + 1e-9
    assert model.guarantee_.proven == exact  # of floating-point noise δ = 0 is not claimed
    assert model.guarantee_.secure_noise == exact
    assert "pure" in model.guarantee_.accountant
    with pytest.raises(NotPure):
        learner(budget=Budget(1.0, 0.0)).fit(small.X, small.y, task=small.task)


def test_pure_rounds_use_optimal_composition_and_add_up_over_fits(
    small: Generated, tmp_path: Any
) -> None:
    ledger = tmp_path / "ledger.sqlite"

    def fitted(epsilon: float) -> Any:
        model = LowRank(budget=Budget(epsilon, 1e-3), mechanism="wishart", rounds=20, ledger=ledger)
        return model.fit(small.X, small.y, task=small.task)

    first = fitted(1.0)
    assert first.guarantee_.epsilon <= 1.0
    assert sum(line["event"]["epsilon"] for line in first.history_) > 1.3
    second = fitted(1.0)
    assert second.guarantee_.epsilon == pytest.approx(2 * first.guarantee_.epsilon)
    assert second.guarantee_.delta == pytest.approx(2e-3)


def test_tasks_with_different_budgets_may_use_pure_mechanisms(small: Generated) -> None:
    budgets = {i: Budget(0.5 if i == 0 else 1.0, 0.0) for i in range(9)}
    model = LowRank(budget=budgets, mechanism="wishart").fit(small.X, small.y, task=small.task)
    assert model.ledger_ is not None
    assert model.ledger_.spent(0).epsilon == pytest.approx(0.5)
    assert model.ledger_.spent(1).epsilon == pytest.approx(1.0)


# --- Algorithm 5 ------------------------------------------------------------------------------


def test_local_noise_has_the_right_density() -> None:
    d, K, epsilon = 3, 2.0, 0.5
    rows = np.zeros((4000, d))
    noise = EachRow(KNormSum.for_epsilon(K, epsilon, "replace"))
    radii = np.linalg.norm(noise.release(rows, np.random.default_rng(0)), axis=1)
    scale = 2 * K / epsilon  # the radius is Gamma(d, 2K/ε)
    assert radii.mean() == pytest.approx(d * scale, rel=0.05)
    assert radii.var() == pytest.approx(d * scale**2, rel=0.15)


def test_locally_noised_rows_are_clipped_again() -> None:
    rng = np.random.default_rng(0)
    loud = EachRow(KNormSum(1.0, 1e6)).release(np.zeros((10, 3)), rng)
    covariance = SymmetricGaussian(1.0, 1e-9).release(loud, rng)
    assert np.trace(covariance) == pytest.approx(10.0, rel=1e-6)


@pytest.mark.parametrize("learner", ALL)
@pytest.mark.parametrize("published", [False, True])
def test_protecting_examples_is_a_second_guarantee(
    learner: Any, published: bool, small: Generated
) -> None:
    model = learner(
        budget=Budget(1.0, 1e-4),
        protect_examples=Budget(4.0, 0.0),
        rounds=2,
        clip_norm=1.0,
        **({"as_published": True, "step": 0.02} if published else {}),
    ).fit(small.X, small.y, task=small.task)
    local = model.local_guarantee_
    assert local.epsilon == pytest.approx(4.0)
    assert "curator" in local.adversary
    assert not local.proven  # δ = 0 of floating-point noise is not claimed
    assert ("inverted" in local.reason) == published
    assert not local.secure_noise
    spends = [e.payload for e in model.ledger_.entries() if e.kind == "spend"]
    scales = [spend["mechanism"]["row"]["scale"] for spend in spends if "at home" in spend["run"]]
    K, each = 1.0, 2.0
    assert scales == pytest.approx([each / (2 * K) if published else 2 * K / each] * 2)


@pytest.mark.parametrize("learner", ALL)
def test_what_the_curator_learns_adds_up_too(learner: Any, small: Generated) -> None:
    ledger = Ledger.in_memory()
    for _ in range(2):
        model = learner(
            budget=Budget(1.0, 1e-4), protect_examples=Budget(4.0, 0.0), rounds=2, ledger=ledger
        ).fit(small.X, small.y, task=small.task)
    assert model.local_guarantee_.epsilon == pytest.approx(8.0)
    assert model.guarantee_.epsilon == pytest.approx(2 * model.guarantee_.run_epsilon)
    assert "example" not in model.guarantee_.unit


# --- limits -----------------------------------------------------------------------------------


def low_rank() -> Generated:
    return low_rank_tasks(60, 10, 8, rank=2, test_rows=30, rng=np.random.default_rng(5))


def group_sparse() -> Generated:
    return group_sparse_tasks(60, 10, 8, active=2, test_rows=30, rng=np.random.default_rng(5))


@pytest.mark.parametrize("make", [low_rank, group_sparse])
@pytest.mark.parametrize("learner", ALL)
@pytest.mark.parametrize("refit", [True, False])
def test_high_noise_degrades_to_single_task_learning(make: Any, learner: Any, refit: bool) -> None:
    """Proposition 1."""
    data = make()
    alone = score(SingleTask(), data)
    for seed in range(3):
        model = learner(
            budget=Budget(1e-3, 1e-6), refit=refit, noise="simulated", random_state=seed
        )
        assert score(model, data) <= 1.01 * alone


@pytest.mark.parametrize(
    ("make", "learner", "share"), [(low_rank, LowRank, 0.75), (group_sparse, GroupSparse, 0.45)]
)
def test_joining_helps_where_there_is_something_to_share(
    make: Any, learner: Any, share: float
) -> None:
    data = make()
    alone = score(SingleTask(), data)
    assert score(learner(), data) <= share * alone
    private = learner(budget=Budget(10.0, 1e-3), noise="simulated", random_state=0)
    assert score(private, data) <= share * alone


@pytest.mark.parametrize("learner", ALL)
def test_one_task_stays_by_itself(learner: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 3))
    y = X @ [1.0, -1.0, 0.5] + 0.1 * rng.normal(size=60)
    model = learner(budget=Budget(1.0)).fit(X, y)
    assert np.abs(model.coef_ - SingleTask().fit(X, y).coef_).max() < 0.1


@pytest.mark.parametrize(
    "mechanism",
    [
        SymmetricGaussian(1.0, 3.0),
        GramGaussian(1.0, 3.0, units=60),
        TwoSidedWishart(1.0, 3.0),
        DiagonalGaussian(1.0, 3.0),
        DiagonalLaplace(1.0, 3.0),
    ],
    ids=lambda mechanism: type(mechanism).__name__,
)
def test_the_edge_is_about_the_largest_that_the_noise_reaches(
    mechanism: NoisyStatistic[Any],
) -> None:
    shape, rng = (60, 40), np.random.default_rng(0)
    draws = [mechanism.release(np.zeros(shape), rng) for _ in range(20)]
    largest = [np.linalg.eigvalsh(x)[-1] if x.ndim == 2 else x.max() for x in draws]
    edge = mechanism.statistic.edge(mechanism.noise, shape)
    assert 0.7 < np.mean(largest) / edge < 1.1


def test_under_high_noise_the_map_is_nearly_the_identity() -> None:
    d, m = 10, 50
    mechanism = SymmetricGaussian.for_mu(1.0, 1e-3, "replace")
    edge = mechanism.statistic.edge(mechanism.noise, (m, d))
    noise = mechanism.release(np.zeros((m, d)), np.random.default_rng(0))
    assert np.abs(np.linalg.eigvalsh(noise)).max() <= 1.2 * edge
    from tacit.linear.covariance_maps import trace_map

    M = trace_map(noise + edge * np.eye(d), 0.1 * math.sqrt(m / d))
    assert np.linalg.eigvalsh(M).min() > 0.97


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_the_twin_solves_the_papers_problem(loss: Any) -> None:
    data = related_tasks(15, (5, 12), 4, loss=loss, rng=np.random.default_rng(2))
    for learner, penalty in ((LowRank, TraceNorm()), (GroupSparse, GroupNorm())):
        model = learner(loss=loss, penalty=1.5, fit_intercept=False)
        model.fit(data.X, data.y, task=data.task)
        Xs, ys = tasks_of(data)
        V = []
        for X, y, w in zip(Xs, ys, model.coef_.T, strict=True):
            slope = X @ w - y if loss == "squared" else -y / (1 + np.exp(y * (X @ w)))
            V.append(-X.T @ slope)
        aligned = float((np.array(V).T * model.coef_).sum())
        assert aligned == pytest.approx(1.5 * penalty.value(model.coef_), rel=1e-4)


@pytest.mark.parametrize("learner", ALL)
def test_a_loaded_model_takes_newcomers(learner: Any, small: Generated, tmp_path: Any) -> None:
    for budget in (None, Budget(2.0)):
        model = learner(budget=budget).fit(small.X, small.y, task=small.task)
        again = learner.load(model.save(tmp_path / str(budget is None)))
        for each in (model, again):
            each.adapt(small.X[:6], small.y[:6], task="new")
        np.testing.assert_allclose(again.coef_, model.coef_, rtol=1e-9)


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", ALL)
@pytest.mark.parametrize("budget", [None, Budget(2.0)], ids=["open", "private"])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize(
    "case", ["d > m", "m = 1", "constant", "identical", "zero model", "one class", "one row"]
)
def test_bad_input_gives_a_sensible_model(learner: Any, budget: Any, loss: Any, case: str) -> None:
    rng = np.random.default_rng(0)
    m, d, n = {"d > m": (2, 6, 4), "m = 1": (1, 3, 8), "one row": (4, 3, 1)}.get(case, (5, 3, 6))
    X = rng.normal(size=(m * n, d))
    task = np.repeat(np.arange(m), n)
    y = np.sign(X[:, 0] + 0.1) if loss == "logistic" else X[:, 0]
    if case == "constant":
        y, X = np.ones(m * n), np.ones((m * n, d))
    if case == "identical":
        X = np.tile(X[:n], (m, 1))
        y = np.tile(y[:n], m)
    if case == "zero model":
        y = np.where(task == 0, 0.0 if loss == "squared" else 1.0, y)
    if case == "one class":
        y = np.where(task == 1, 1.0, y)
    ranges = {"target": [-1, 1]} if loss == "logistic" else None
    model = learner(loss=loss, budget=budget, ranges=ranges).fit(X, y, task=task)
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.intercept_).all()
    assert all(np.isfinite(np.asarray(part.value, float)).all() for part in model.shared_.values())
    assert np.abs(model.predict(X, task=task)).max() < 100


@pytest.mark.parametrize("learner", ALL)
@pytest.mark.parametrize("clip_norm", [1e-6, 1e6])
def test_a_bad_clip_norm_does_no_harm(learner: Any, clip_norm: float) -> None:
    data = low_rank()
    model = learner(budget=Budget(1.0), clip_norm=clip_norm, noise="simulated", random_state=0)
    assert score(model, data) <= 1.02 * score(SingleTask(), data)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"clip_norm": math.nan}, "clip_norm"),
        ({"penalty": -1.0}, "penalty"),
        ({"rounds": 0}, "rounds"),
        ({"strong_convexity": -1.0}, "strong_convexity"),
        ({"start": "nowhere"}, "start"),
        ({"mechanism": "laplace"}, "mechanism"),
        ({"covariance": "both"}, "covariance"),
        ({"covariance": "tasks", "mechanism": "wishart"}, "mechanism"),
        ({"schedule": "often"}, "schedule"),
        ({"as_published": "second"}, "as_published"),
        ({"accelerated": [0.1, 0.2, 0.3]}, "3 β_t for 2 rounds"),
    ],
)
def test_parameters_are_checked_at_the_door(wrong: Any, match: str, small: Generated) -> None:
    parameters: dict[str, Any] = {"budget": Budget(1.0), "rounds": 2} | wrong
    with pytest.raises(InvalidInput, match=match):
        LowRank(**parameters).fit(small.X, small.y, task=small.task)


@pytest.mark.parametrize("start", ["ridge", "lasso", "zeros"])
def test_any_single_task_learner_may_start(start: Any, small: Generated) -> None:
    model = LowRank(budget=Budget(2.0), start=start, refit=False)
    assert np.isfinite(model.fit(small.X, small.y, task=small.task).coef_).all()


def test_the_rules_survive_the_message() -> None:
    rules = module.Rules(0, 1.0, True, True, 0.1, 1.0, 0.0, True, False, True, 0, -1, 0.1)
    for momenta in ((), (0.0, 0.5)):
        given = replace(rules, momenta=momenta)
        assert module.Rules.of(given.declared()) == given
    before = {name: part for name, part in rules.declared().items() if name != "momenta"}
    assert module.Rules.of(before) == rules
