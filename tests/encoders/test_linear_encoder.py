"""TaskAwareEncoder: limits, predicted = simulated loss, users, bad input, what it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse, stats
from sklearn.base import clone
from sklearn.utils.estimator_checks import estimator_checks_generator

from tacit import Budget, Ledger, TaskAwareEncoder
from tacit.arrays import FloatArray
from tacit.encoders.base import Strategy
from tacit.encoders.designs import expected_loss
from tacit.encoders.mechanism_choice import MECHANISMS, LocalName
from tacit.errors import BudgetExceeded, InvalidInput, NotPure, UntrustedMessage
from tacit.privacy.accounting import Cost
from tacit.privacy.mechanisms.local import sample_sensitivity

ALPHA = 1e-6
PURE = Budget(4.0, 0.0)
STAIRCASE: LocalName = "staircase"


@pytest.fixture(scope="module")
def data() -> tuple[FloatArray, FloatArray]:
    """Skewed rows with a few strong directions, and a task that wants some of them."""
    rng = np.random.default_rng(0)
    hidden = rng.gamma(2.0, 1.0, (600, 3)) - 1.0
    X = hidden @ rng.standard_normal((3, 6)) + 0.3 * rng.standard_normal((600, 6)) + 5.0
    return X, np.diag([2.0, 2.0, 1.0, 1.0, 0.0, 0.0])


def simulated(budget: Budget = PURE, **more: Any) -> TaskAwareEncoder:
    return TaskAwareEncoder(budget, noise="simulated", random_state=1, **more)


def errors(encoder: TaskAwareEncoder, X: FloatArray, K: FloatArray) -> FloatArray:
    estimated = encoder.inverse_transform(encoder.transform(X))
    return np.asarray((((estimated - X) @ K.T) ** 2).sum(axis=1))


def _checks() -> list[Any]:
    cases = []
    for estimator, check in estimator_checks_generator(TaskAwareEncoder(), mark=None):
        name = getattr(check, "func", check).__name__
        cases.append(pytest.param(estimator, check, id=name))
    return cases


@pytest.mark.parametrize(("estimator", "check"), _checks())
def test_scikit_learn_accepts_the_encoder(estimator: Any, check: Any) -> None:
    check(estimator)


# --- losses --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_predicted_loss_is_the_simulated_one(
    name: LocalName, data: tuple[FloatArray, FloatArray]
) -> None:
    X, K = data
    encoder = simulated(Budget(4.0), mechanism=name).fit(X, target=K)
    found = errors(encoder, np.tile(X, (60, 1)), K)
    spread = found.std() / np.sqrt(len(found))
    assert abs(found.mean() - encoder.predicted_loss_) < stats.norm.isf(ALPHA / 2) * spread
    assert spread < 0.02 * encoder.predicted_loss_


def test_auto_takes_the_mechanism_with_the_least_predicted_loss(
    data: tuple[FloatArray, FloatArray],
) -> None:
    X, K = data
    auto = TaskAwareEncoder(Budget(4.0)).fit(X, target=K)
    losses = {
        name: TaskAwareEncoder(Budget(4.0), mechanism=name).fit(X, target=K).predicted_loss_
        for name in (*MECHANISMS, STAIRCASE)
    }
    assert auto.predicted_loss_ == pytest.approx(min(losses.values()))
    assert auto.choices_[0]["mechanism"] == min(losses, key=losses.__getitem__)
    assert {choice["mechanism"] for choice in auto.choices_} == {*MECHANISMS, STAIRCASE}


def test_a_task_of_one_output_gets_the_staircase_where_epsilon_is_large(
    data: tuple[FloatArray, FloatArray],
) -> None:
    X, K = data[0], np.ones((1, 6))
    encoder = simulated(Budget(8.0)).fit(X, target=K)
    assert encoder.choices_[0]["mechanism"] == "staircase"
    found = errors(encoder, np.tile(X, (60, 1)), K)
    spread = found.std() / np.sqrt(len(found))
    assert abs(found.mean() - encoder.predicted_loss_) < stats.norm.isf(ALPHA / 2) * spread
    laplace = simulated(Budget(8.0), mechanism="laplace").fit(X, target=K)
    assert encoder.predicted_loss_ < 0.5 * laplace.predicted_loss_


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_huge_budget_is_no_noise_and_a_small_one_the_mean(
    name: LocalName, data: tuple[FloatArray, FloatArray]
) -> None:
    X, K = data
    total = float((((X - X.mean(axis=0)) @ K.T) ** 2).sum(axis=1).mean())
    losses = [
        simulated(Budget(e, 1e-2), mechanism=name).fit(X, target=K).predicted_loss_
        for e in (0.05, 1.0, 8.0, 400.0)
    ]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > 0.97 * total
    assert losses[-1] < 0.06 * total


def test_without_a_budget_the_task_is_known_exactly(data: tuple[FloatArray, FloatArray]) -> None:
    X, K = data
    encoder = TaskAwareEncoder().fit(X, target=K)
    estimated = encoder.inverse_transform(encoder.transform(X))
    np.testing.assert_allclose(estimated @ K.T, X @ K.T, atol=1e-6)
    assert encoder.transform(X).shape == (600, 4)
    assert not encoder.guarantee_.proven


def test_a_task_of_one_output_is_reported_in_one_number(
    data: tuple[FloatArray, FloatArray],
) -> None:
    encoder = simulated().fit(data[0], target=np.array([1.0, 1.0, 0.0, 0.0, 0.0, -1.0]))
    assert encoder.transform(data[0]).shape == (600, 1)


def test_being_aware_of_the_task_is_no_worse_than_the_benchmarks(
    data: tuple[FloatArray, FloatArray],
) -> None:
    X, K = data
    ours = TaskAwareEncoder(PURE).fit(X, target=K).predicted_loss_
    for strategy in ("task-agnostic", "privacy-agnostic"):
        other = TaskAwareEncoder(PURE, strategy=strategy).fit(X, target=K)
        assert ours < other.predicted_loss_


def test_several_weighted_tasks_are_one_stacked_task(data: tuple[FloatArray, FloatArray]) -> None:
    X, K = data
    other = np.eye(6)[4:]
    stacked = np.vstack([K, 3.0 * other])
    one = simulated().fit(X, target=[(K, 1.0), (other, 9.0)])
    two = simulated().fit(X, target=stacked)
    assert one.predicted_loss_ == pytest.approx(two.predicted_loss_)
    parts = [expected_loss(one.design_, X, task) for task in (K, other)]
    assert parts[0] + 9 * parts[1] == pytest.approx(one.predicted_loss_)


def test_columns_in_other_units_give_the_same_reports(data: tuple[FloatArray, FloatArray]) -> None:
    X, K = data
    units = np.array([1e3, 1e-3, 1.0, 5.0, 1.0, 1.0])
    one, two = simulated().fit(X, target=K), simulated().fit(X * units, target=K / units)
    assert one.predicted_loss_ == pytest.approx(two.predicted_loss_, rel=1e-6)


# --- what was published --------------------------------------------------------------------------


def literally_published(
    X: FloatArray, K: FloatArray, epsilon: float, strategy: Strategy, size: int
) -> tuple[float, FloatArray, float]:
    """Section 4.1 and A.7 with Cholesky, all pairs, Eq. (7), Proposition 1: slowly.

    The loss, x ↦ x̂ without its noise (n, n), and the sensitivity.
    """
    mean = X.mean(axis=0)
    L = np.linalg.cholesky(np.cov(X.T, bias=True))
    h = np.linalg.solve(L, (X - mean).T).T
    P = K @ L
    lam, Q = np.linalg.eigh(P.T @ P)
    lam, Q = np.maximum(lam[::-1], 0), Q[:, ::-1]
    t = 8 * (np.linalg.norm(h, axis=1).max() / epsilon) ** 2
    for Z in range(len(lam), 0, -1):  # Eq. (12)
        squares = np.sqrt(lam[:Z]) / np.sqrt(lam[:Z]).sum() * (1 + Z * t) - t  # Eq. (11)
        if squares[-1] > 0:
            break
    E = {
        "task-aware": np.sqrt(squares)[:, None] * Q[:, :Z].T,
        "task-agnostic": L,  # A.7.1
        "privacy-agnostic": Q[:, :size].T,  # A.7.2: V = Q, equal σ
    }[strategy]
    phi = h @ E.T
    widest = max(float(np.abs(phi - row).sum(axis=1).max()) for row in phi)
    noise = 2 * (widest / epsilon) ** 2
    inner = np.linalg.inv(E @ E.T + noise * np.eye(len(E)))
    loss = float(np.trace(P.T @ P) - np.trace(P.T @ P @ E.T @ inner @ E))
    return loss, L @ E.T @ inner @ E @ np.linalg.inv(L), widest


STRATEGIES: list[Strategy] = ["task-aware", "task-agnostic", "privacy-agnostic"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_as_published_is_the_paper_s_encoder_and_is_not_proven(
    strategy: Strategy, data: tuple[FloatArray, FloatArray]
) -> None:
    X, K = data[0][:300], data[1]
    size = 2 if strategy == "privacy-agnostic" else None
    made: Any = simulated(as_published=True, strategy=strategy, dimensions=size)
    encoder = made.fit(X, target=K)
    loss, kept, widest = literally_published(X, K, 4.0, strategy, 2)
    assert encoder.predicted_loss_ == pytest.approx(loss, rel=1e-10)
    (first,), (last,) = encoder.design_.encoder, encoder.design_.decoder
    np.testing.assert_allclose(last.weight @ first.weight, kept, rtol=0, atol=1e-10)
    assert encoder.mechanism_.scale == pytest.approx(widest / 4.0, rel=1e-10)
    assert not encoder.guarantee_.proven
    assert "next user" in encoder.guarantee_.reason
    with pytest.raises(InvalidInput, match="simulated"):
        TaskAwareEncoder(PURE, as_published=True).fit(X, target=K).transform(X)


def test_the_sample_sensitivity_is_that_of_all_pairs() -> None:
    rng = np.random.default_rng(0)
    for rows, size in (
        (40, 3),
        (7, 5),
        (1, 2),
        (300, 1),
        (300, 10),
        (300, 12),
        (1, 12),
        (70, 11),
        (300, 30),
    ):
        phi = rng.standard_normal((rows, size))
        pairs = np.abs(phi[:, None] - phi[None]).sum(axis=2)
        assert sample_sensitivity(phi) == pytest.approx(pairs.max())
        assert sample_sensitivity(np.ones((rows, size))) == 0.0


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_user_far_outside_the_sample_is_clipped_like_any_other(
    name: LocalName, data: tuple[FloatArray, FloatArray]
) -> None:
    X, K = data
    encoder = TaskAwareEncoder(Budget(4.0), mechanism=name).fit(X, target=K)
    mechanism = encoder.mechanism_
    assert mechanism is not None
    far = encoder.transform(np.tile(X[0] * 1e6, (500, 1)))
    reach = mechanism.radius + 60 * np.sqrt(mechanism.variance(far.shape[1]).max())
    assert np.abs(far).max() < reach  # beyond 60 deviations lies less than ALPHA
    published = simulated(as_published=True).fit(X, target=K)
    assert np.abs(published.transform(X[:1] * 1e6)).max() > 1e4


def test_auto_at_delta_zero_takes_only_what_is_pure_and_drawn_exactly(
    data: tuple[FloatArray, FloatArray], tmp_path: Path
) -> None:
    """δ = 0 is not claimed of noise drawn in floating point, as a device draws all but Laplace."""
    X, K = data
    auto = TaskAwareEncoder(PURE).fit(X, target=K)
    assert auto.guarantee_.proven
    assert (auto.guarantee_.delta, auto.guarantee_.secure_noise) == (0.0, True)
    assert "knorm" not in {choice["mechanism"] for choice in auto.choices_}
    floats = TaskAwareEncoder(PURE, mechanism="knorm").fit(X, target=K)
    assert not floats.guarantee_.proven
    TaskAwareEncoder(PURE, mechanism="laplace").fit(X, target=K).export(tmp_path / "device")
    with pytest.raises(UntrustedMessage, match="not claimed"):
        floats.export(tmp_path / "nowhere")
    stated = TaskAwareEncoder(Budget(4.0), mechanism="knorm").fit(X, target=K)
    assert (stated.guarantee_.delta, stated.guarantee_.proven) == (1e-5, True)
    stated.export(tmp_path / "stated")


# --- users ---------------------------------------------------------------------------------------


def test_repeated_reports_add_up_until_the_budget_is_spent(
    data: tuple[FloatArray, FloatArray], tmp_path: Path
) -> None:
    X, K = data
    ledger = Ledger(tmp_path / "users.sqlite")
    encoder = TaskAwareEncoder(PURE, reports=2, ledger=ledger).fit(X, target=K)
    encoder.transform(X[:3], user=["ann", "bob", "ann"])
    assert ledger.spent("ann").epsilon == pytest.approx(4.0)
    assert ledger.spent("bob").epsilon == pytest.approx(4.0)  # his second is paid for
    assert ledger.statement(["bob"]).epsilon == pytest.approx(2.0)
    with pytest.raises(BudgetExceeded, match="ann"):
        encoder.transform(X[:2], user=["cid", "ann"])
    assert ledger.spent("cid") == Cost()
    again = TaskAwareEncoder(PURE, reports=2, ledger=tmp_path / "users.sqlite").fit(X, target=K)
    with pytest.raises(BudgetExceeded, match="ann"):  # another encoder, the same people
        again.transform(X[:1], user=["ann"])


def test_more_reports_are_noisier_each(data: tuple[FloatArray, FloatArray]) -> None:
    X, K = data
    losses = [TaskAwareEncoder(PURE, reports=k).fit(X, target=K).predicted_loss_ for k in (1, 4)]
    assert losses[0] < losses[1]
    composed = TaskAwareEncoder(Budget(4.0, 1e-3), reports=40, mechanism="laplace")
    added = TaskAwareEncoder(PURE, reports=40, mechanism="laplace")
    assert composed.fit(X, target=K).predicted_loss_ < added.fit(X, target=K).predicted_loss_
    assert "4 reports" in TaskAwareEncoder(PURE, reports=4).fit(X, target=K).guarantee_.unit


def test_fitting_charges_nobody_and_a_simulation_repeats(
    data: tuple[FloatArray, FloatArray],
) -> None:
    X, K = data
    ledger = Ledger.in_memory()
    one, two = (simulated(ledger=ledger).fit(X, target=K).transform(X) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    secure = TaskAwareEncoder(PURE, random_state=1).fit(X, target=K)
    assert not np.array_equal(secure.transform(X), secure.transform(X))


# --- bad and unusual input -----------------------------------------------------------------------


def test_singular_constant_and_wide_rows_are_fine() -> None:
    rng = np.random.default_rng(0)
    base = rng.standard_normal((50, 3))
    constant, repeated = np.full((50, 1), 7.0), base[:, :1]
    X = np.hstack([base, constant, repeated])
    encoder = simulated(Budget(300.0, 0.0)).fit(X)
    estimated = encoder.inverse_transform(encoder.transform(X))
    np.testing.assert_allclose(estimated[:, 3], 7.0)
    np.testing.assert_allclose(estimated[:, 0], estimated[:, 4], atol=1e-8)
    wide = rng.standard_normal((5, 20))
    assert simulated(Budget(300.0, 0.0)).fit(wide).transform(wide).shape[1] <= 4
    assert simulated().fit(rng.standard_normal((2, 3))).transform(np.zeros((1, 3))).shape == (1, 1)


@pytest.mark.parametrize("case", ["tiny epsilon", "zero task", "constant rows", "one row"])
def test_where_no_dimension_survives_nothing_is_reported(
    case: str, data: tuple[FloatArray, FloatArray]
) -> None:
    X, K = data
    budget = Budget(1e-5, 0.0) if case == "tiny epsilon" else PURE
    K = np.zeros((2, 6)) if case == "zero task" else K
    X = np.ones((9, 6)) if case == "constant rows" else X
    X = X[:1] if case == "one row" else X
    ledger = Ledger.in_memory()
    with pytest.warns(UserWarning, match="no dimension survives"):
        encoder = TaskAwareEncoder(budget, ledger=ledger).fit(X, target=K)
    reports = encoder.transform(X[:1], user=["ann"])
    assert reports.shape == (1, 0)
    assert ledger.spent("ann") == Cost()
    np.testing.assert_allclose(encoder.inverse_transform(reports)[0], X.mean(axis=0))
    assert (encoder.guarantee_.epsilon, encoder.guarantee_.proven) == (0.0, True)
    with pytest.raises(UntrustedMessage):
        encoder.export("nowhere")


def test_zero_rows_of_a_task_change_nothing(data: tuple[FloatArray, FloatArray]) -> None:
    X, K = data
    padded = np.vstack([K, np.zeros((3, 6))])
    one, two = (simulated().fit(X, target=task).predicted_loss_ for task in (K, padded))
    assert one == pytest.approx(two)
    with pytest.raises(InvalidInput, match="no rows"):
        simulated().fit(X, target=np.zeros((0, 6)))


def test_rows_outside_the_domain_are_cut_and_counted_in_a_simulation_only(
    data: tuple[FloatArray, FloatArray],
) -> None:
    X, K = data
    ranges = {0: (0.0, 10.0), 1: (-5.0, 15.0)}
    one, two = (simulated(ranges=ranges).fit(X, target=K) for _ in range(2))
    far, edge = X[:50].copy(), X[:50].copy()
    far[:10, 0], edge[:10, 0] = 1e9, 10.0
    np.testing.assert_array_equal(one.transform(far), two.transform(edge))
    inside = int(((far < [0, -5, *[-np.inf] * 4]) | (far > [10, 15, *[np.inf] * 4])).any(1).sum())
    assert one.outside_domain_ == inside >= 10
    assert 0 <= one.clipped_rows_ <= 50
    device = TaskAwareEncoder(PURE, ranges=ranges).fit(X, target=K)
    device.transform(far)
    assert not hasattr(device, "outside_domain_")
    assert not hasattr(device, "clipped_rows_")
    measured = TaskAwareEncoder(PURE, ranges="from-data").fit(X, target=K)
    assert measured.guarantee_.proven  # the rows given to fit are public
    with pytest.raises(InvalidInput, match="intervals"):
        simulated(ranges={0: ["a", "b"]}).fit(X, target=K)


def test_sparse_and_integer_rows_are_reported_like_dense_ones() -> None:
    rng = np.random.default_rng(0)
    counts = rng.poisson(0.3, (400, 8))
    K = np.eye(8)[:3]
    ranges = dict.fromkeys(range(8), (0, 2))
    dense, whole, thin, again = (
        simulated(Budget(4.0), ranges=ranges).fit(rows, target=K)
        for rows in (counts.astype(float), counts, *[sparse.csr_matrix(counts)] * 2)
    )
    np.testing.assert_array_equal(whole.transform(counts), dense.transform(counts))
    reports = thin.transform(sparse.csr_array(counts))
    np.testing.assert_allclose(reports, again.transform(counts), rtol=0, atol=1e-12)
    assert thin.outside_domain_ == int((counts > 2).any(axis=1).sum())
    assert thin.predicted_loss_ == pytest.approx(dense.predicted_loss_)
    with pytest.raises(InvalidInput, match="does not hold zero"):
        simulated(ranges={0: (1, 2)}).fit(sparse.csr_matrix(counts), target=K)


def test_bad_parameters_are_named(data: tuple[FloatArray, FloatArray]) -> None:
    X, K = data
    cases: list[tuple[dict[str, Any], Any, str]] = [
        ({"mechanism": "wishart"}, K, "must be 'auto', 'laplace'"),
        ({"strategy": "hopeful"}, K, "strategy"),
        ({"strategy": "task-agnostic", "mechanism": "staircase"}, K, "one number"),
        ({"dimensions": 0}, K, "dimensions must be an integer from 1"),
        ({"noise": "loud"}, K, "secure"),
        ({"budget": 3.0}, K, "Budget"),
        ({"budget": Budget(1.0, neighbours="zero-out")}, K, "replace"),
        ({"reports": 0}, K, "reports must be an integer from 1"),
        ({"budget": None, "as_published": True}, K, "needs a budget"),
        ({"radius": -1.0}, K, "radius"),
        ({}, np.eye(5), "one column a feature"),
        ({}, np.full((1, 6), np.nan), "NaN"),
        ({}, "K", "numbers"),
        ({}, [(K, -1.0)], "weight"),
        ({}, [(K, 1.0, 2.0)], "matrix, weight"),
    ]
    for parameters, target, message in cases:
        with pytest.raises(InvalidInput, match=message):
            TaskAwareEncoder(**({"budget": PURE} | parameters)).fit(X, target=target)
    with pytest.raises(NotPure):
        TaskAwareEncoder(PURE, mechanism="gaussian").fit(X, target=K)
    with pytest.raises(InvalidInput, match="NaN"):
        TaskAwareEncoder(PURE).fit(np.full((3, 2), np.nan))
    fitted = simulated().fit(X, target=K)
    with pytest.raises(InvalidInput, match="features"):
        fitted.transform(X[:, :5])
    with pytest.raises(InvalidInput, match=r"reports must have shape"):
        fitted.inverse_transform(np.zeros((2, 9)))


# --- what it writes ------------------------------------------------------------------------------


def test_a_saved_encoder_reports_and_decodes_as_before(
    data: tuple[FloatArray, FloatArray], tmp_path: Path
) -> None:
    X, K = data
    encoder = TaskAwareEncoder(PURE, ranges={0: (0.0, 10.0)}).fit(X, target=K)
    encoder.save(tmp_path)
    loaded = TaskAwareEncoder.load(tmp_path)
    np.testing.assert_array_equal(
        loaded.inverse_transform(np.ones((2, loaded.dimensions_))),
        encoder.inverse_transform(np.ones((2, encoder.dimensions_))),
    )
    assert loaded.mechanism_ == encoder.mechanism_
    assert loaded.guarantee_ == encoder.guarantee_
    np.testing.assert_array_equal(loaded.encode(X), encoder.encode(X))
    np.testing.assert_array_equal(loaded.domain_.low, encoder.domain_.low)
    np.testing.assert_array_equal(loaded.domain_.high, encoder.domain_.high)
    np.testing.assert_array_equal(loaded.eigenvalues_, encoder.eigenvalues_)
    assert loaded.certificate() == encoder.certificate()
    assert loaded.transform(X[:4], user=list("abcd")).shape[0] == 4


def test_the_export_holds_the_encoder_but_not_the_decoder(
    data: tuple[FloatArray, FloatArray], tmp_path: Path
) -> None:
    import pandas as pd

    X, K = data
    frame = pd.DataFrame(X, columns=[f"hour {j}" for j in range(6)])
    encoder = TaskAwareEncoder(Budget(4.0)).fit(frame, target=K)
    encoder.export(tmp_path)
    content = json.loads((tmp_path / "encoder.json").read_text())
    np.testing.assert_array_equal(content["layers"][0]["weight"], encoder.design_.encoder[0].weight)
    assert content["feature_names"][0] == "hour 0"
    assert not {"decoder", "offset"} & set(content)
    assert content["mechanism"]["name"] == type(encoder.mechanism_).__name__
    with pytest.raises(UntrustedMessage, match="simulated"):
        simulated().fit(X, target=K).export(tmp_path)
    with pytest.raises(UntrustedMessage, match="without noise"):
        TaskAwareEncoder().fit(X, target=K).export(tmp_path)


def test_it_is_a_transformer_that_can_be_cloned_and_names_its_columns(
    data: tuple[FloatArray, FloatArray],
) -> None:
    X, K = data
    encoder = clone(simulated(dimensions=2, mechanism="privunit")).fit(X, target=K)
    assert encoder.get_feature_names_out().tolist() == ["report0", "report1"]
    frame = encoder.set_output(transform="pandas").transform(X)
    assert list(frame.columns) == ["report0", "report1"]
    assert simulated().fit_transform(X, target=K).shape[0] == len(X)
    assert (
        encoder.certificate()["steps"][0]["mechanism"]["name"] == type(encoder.mechanism_).__name__
    )
