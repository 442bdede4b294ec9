"""Empirical Bayes over noisy moments: right without noise, and careful with it."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.arrays import FloatArray
from tacit.linear.batched import Problems, shared_mean, solve_path
from tacit.silos.hierarchy import AtPenalty, all_alike, from_moments, from_scores
from tacit.silos.moments import Moments, moments_of, pooled, shrunk
from tacit.silos.silo_plan import blocks_for

LEVELS = (3, 0, 2)
BLOCKS = blocks_for(LEVELS)
NOISE, SPREAD = 0.05, np.array([0.01, 0.0025, 0.0025, 0.0025, 0.0025])
MU = np.array([0.1, 0.2, -0.1, 0.15, 0.05])


def table(silos: int, people: int, seed: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Cells (silos, people, B + 1), coordinates, and the silos' true models."""
    rng = np.random.default_rng(seed)
    cells = np.empty((silos, people, len(LEVELS) + 1))
    for g, k in enumerate(LEVELS):
        cells[..., g] = (
            rng.integers(k, size=cells.shape[:2]) if k else rng.uniform(-1, 1, cells.shape[:2])
        )
    flat = cells.reshape(-1, cells.shape[2])
    flat[:, -1] = 0.0
    f = BLOCKS.coordinates(flat)[:, :-1].reshape(silos, people, -1)
    beta = MU + rng.normal(size=(silos, len(MU))) * np.sqrt(SPREAD)
    cells[..., -1] = (
        np.einsum("jnd,jd->jn", f, beta) + rng.normal(size=cells.shape[:2]) * NOISE**0.5
    )
    return cells, f, beta


def moments(cells: FloatArray, sigma: float, seed: int = 0) -> Moments:
    J, n, _ = cells.shape
    sums = BLOCKS.terms(cells.reshape(J * n, -1)).reshape(J, n, -1).sum(axis=1)
    sums = sums + sigma * np.random.default_rng(seed).standard_normal(sums.shape)
    return moments_of(BLOCKS, sums, np.full(J, float(n)), np.full(J, sigma))


def test_moments_without_noise_are_those_of_the_rows() -> None:
    cells, f, _ = table(4, 30, 0)
    found = moments(cells, 0.0)
    z = np.concatenate([f, cells[..., -1:]], axis=2)
    np.testing.assert_allclose(found.S, np.einsum("jnp,jnq->jpq", z, z), atol=1e-9)
    assert not found.variance.any()


def test_the_variance_of_every_entry_is_that_of_its_noise() -> None:
    """400 draws: a variance is within 25% of its own at four deviations."""
    cells, _, _ = table(400, 20, 1)
    cells[:] = cells[:1]
    found, exact = moments(cells, 3.0), moments(cells, 0.0)
    seen = ((found.S - exact.S) ** 2).mean(axis=0)
    np.testing.assert_allclose(seen, found.variance[0], rtol=0.3)


def test_without_noise_the_prior_is_found() -> None:
    cells, _, beta = table(300, 80, 2)
    prior = from_moments(moments(cells, 1e-6), np.ones(300)).prior()
    np.testing.assert_allclose(prior.mean, MU, atol=4 * np.sqrt(SPREAD.max() / 300))
    assert prior.noise == pytest.approx(NOISE, rel=0.1)
    assert np.diagonal(prior.covariance)[0] == pytest.approx(SPREAD[0], rel=0.4)
    models = from_moments(moments(cells, 1e-6), np.ones(300)).models()
    assert ((models - beta) ** 2).mean() < 0.6 * SPREAD.mean()


def test_under_much_noise_silos_are_given_the_mean() -> None:
    cells, _, _ = table(40, 50, 3)
    now = from_moments(moments(cells, 1e5), np.ones(40))
    models = now.models()
    assert np.isfinite(models).all()
    assert np.abs(models).max() < 1.0
    assert np.abs(models - now.mu).mean() < 0.02


def test_shrinking_is_none_without_noise_and_all_under_much() -> None:
    cells, _, _ = table(30, 50, 4)
    exact, loud = moments(cells, 0.0), moments(cells, 1e5)
    usual = pooled(exact, np.ones(30)).M / (30 * 50)
    d = len(MU)
    np.testing.assert_allclose(shrunk(exact, usual).M, exact.S[:, :d, :d], atol=1e-6)
    far = shrunk(loud, usual).M - 50 * usual
    assert np.abs(far).mean() < 0.2 * np.abs(loud.S[:, :d, :d] - 50 * usual).mean()


def test_scores_at_the_mean_say_more_than_moments_with_the_same_noise() -> None:
    cells, f, beta = table(100, 60, 5)
    sigma = 60.0
    first = from_moments(moments(cells, sigma), np.ones(100))
    left = cells[..., -1] - f @ first.mu
    noise = np.full((100, len(MU)), 9.0)
    exact = np.einsum("jnd,jn->jd", f, left)
    scores = exact + 3.0 * np.random.default_rng(7).standard_normal(exact.shape)
    second = from_scores(first, first.mu, scores, noise, first.noise)
    errors = [((each.models() - beta) ** 2).mean() for each in (first, second)]
    assert errors[1] < 0.7 * errors[0]


@pytest.mark.parametrize("penalty", [1.0, 10.0, 100.0])
def test_at_a_penalty_exact_scores_give_the_optimum_of_mean_regularisation(penalty: float) -> None:
    """S2's objective (2), solved from rows. What ``reach`` pulls μ to zero by is Cov μ̂ · μ/reach,
    and a silo is held to μ by Γ and by what is not known of μ."""
    J, n = 200, 60
    cells, f, _ = table(J, n, 8)
    first = from_moments(moments(cells, 0.0), np.ones(J), AtPenalty(penalty))
    exact = np.einsum("jnd,jn->jd", f, cells[..., -1] - f @ first.mu)
    found = from_scores(first, first.mu, exact, np.zeros_like(exact), NOISE)
    problems = Problems(f.reshape(J * n, -1), cells[..., -1].ravel(), np.arange(J + 1) * n)
    mean = shared_mean(problems, penalty)
    np.testing.assert_allclose(found.mu, mean - found.doubt @ (mean / found.reach), atol=1e-6)
    held = NOISE / penalty * np.eye(len(MU)) + found.doubt
    at = np.array([NOISE])
    optimum = solve_path(problems, at, mean=found.mu, covariance=held).coef[:, 0]
    np.testing.assert_allclose(found.models(), optimum, atol=1e-6)


def test_one_variance_for_all_is_found() -> None:
    cells, _, _ = table(300, 80, 2)
    found = from_moments(moments(cells, 1e-6), np.ones(300), all_alike).spread
    assert np.ptp(found) == 0
    assert found[0] == pytest.approx(SPREAD.mean(), rel=0.4)


def test_a_silo_with_a_stricter_budget_weighs_less_in_pooled_sums() -> None:
    cells, _, _ = table(30, 50, 6)
    both = moments(cells, 5.0)
    loud = Moments(both.S.copy(), both.people, both.variance.copy(), both.owner)
    loud.S[0] += 1e4 * np.random.default_rng(0).standard_normal(loud.S[0].shape)
    loud.variance[0] *= (1e4 / 5.0) ** 2
    weights = np.ones(30)
    weights[0] = (5.0 / 1e4) ** 2
    near, far = (from_moments(loud, w).mu for w in (weights, np.ones(30)))
    aim = from_moments(both, np.ones(30)).mu
    assert np.linalg.norm(near - aim) < 0.5 * np.linalg.norm(far - aim)


def test_one_silo_with_one_person_is_no_error() -> None:
    cells, _, _ = table(1, 1, 8)
    now = from_moments(moments(cells, 10.0), np.ones(1))
    assert np.isfinite(now.models()).all()
