"""Later rounds of SharedPrior: releases decide what is sent in them, and not what they spend."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tacit import Budget, SharedPrior
from tacit.arrays import FloatArray
from tacit.datasets import low_rank_tasks, related_tasks
from tacit.engine import Facts, Step
from tacit.learners.shared_prior import Curator
from tacit.learners.shared_prior.candidates import own_diagonal
from tacit.learners.shared_prior.lessons import TRUSTED, Lessons, first_frame
from tacit.learners.shared_prior.participant import ballots_on, joined, view_of
from tacit.linear.losses import Squared
from tacit.linear.problems import Problems
from tacit.linear.row_algebra import directed
from tacit.privacy.accounting import Gaussian
from tacit.privacy.mechanisms import VoteSum
from tacit.privacy.mechanisms.grid import svec

WIDTH, RANK, M = 24, 4, 300


def facts(mu: float, m: int = M, width: int = WIDTH) -> Facts:
    declared = np.ones(width - 1, dtype=bool)
    return Facts(tuple(range(m)), width, Squared(), declared, True, "replace", mu)


def heard(told: Lessons, deviations: FloatArray, sigma: float, rng: np.random.Generator) -> Lessons:
    """A round in which tasks send these deviations (m, D) from the mean, in its coordinates."""
    u = np.asarray(np.linalg.solve(told.frame, deviations.T).T, dtype=np.float64)
    rows = joined(directed(u), told.tilt)
    noise = sigma * rng.normal(size=(WIDTH + 1, WIDTH + 1)) / math.sqrt(2)
    total = rows.T @ rows + (noise + noise.T) / math.sqrt(2)
    return told.with_directions(total, sigma, later=False)


def missed(told: Lessons, basis: FloatArray) -> float:
    """The share of the covariance found that lies outside of the true directions."""
    found = np.linalg.solve(told.base, told.outer @ told.sharp @ told.outer.T)
    found = np.linalg.solve(told.base, found.T)
    return 1 - float(np.trace(basis.T @ found @ basis) / np.trace(found))


def test_a_round_in_whitened_coordinates_finds_what_the_first_one_missed() -> None:
    """Few directions, twelve draws: by an angle that is magnified and so less noisy. Two rounds in
    the same coordinates miss far more, and so would one of both their budgets."""
    rng = np.random.default_rng(0)
    missing: dict[str, list[float]] = {"first": [], "same": [], "whitened": [], "one": []}
    for _ in range(12):
        basis = np.linalg.qr(rng.normal(size=(WIDTH, RANK)))[0]
        deviations = rng.normal(size=(M, RANK)) @ basis.T @ first_frame(WIDTH).T
        start, sigma = Lessons.none(WIDTH, M, 0.3), 5.0
        first = heard(start, deviations, sigma, rng)
        found = {
            "first": first,
            "same": heard(first.whitened(0.0), deviations, sigma, rng),
            "whitened": heard(first.whitened(0.9), deviations, sigma, rng),
            "one": heard(start, deviations, sigma / math.sqrt(2), rng),
        }
        for name, told in found.items():
            missing[name].append(missed(told, basis))
    whitened = np.mean(missing["whitened"])
    assert whitened < 0.5 * np.mean(missing["first"])
    assert whitened < 0.5 * np.mean(missing["same"])
    assert whitened < 0.7 * np.mean(missing["one"])


def seen(
    rows_each: int, sigma: float, seed: int = 3
) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """Where the mean is, the direction found, another beside it and how far along that, of 3,000
    tasks whose rows see it unevenly, or that have seen all of it."""
    rng = np.random.default_rng(seed)
    true, size = np.array([0.5, 0.5, 0.5, 0.5]), np.array([1.0, 1.0, 0.3, 0.3])
    deviations = true + 0.3 * rng.normal(size=(3000, 4))
    if rows_each == 1:
        X = size * rng.normal(size=deviations.shape)
        residual = (X * deviations).sum(axis=1) + 0.2 * rng.normal(size=3000)
        deviations = X * residual[:, None]
    rows = joined(directed(deviations), 0.5)
    noise = sigma * rng.normal(size=(5, 5)) / math.sqrt(2)
    total = rows.T @ rows + (noise + noise.T) / math.sqrt(2)
    told = replace(Lessons.none(4, 3000, 0.5), frame=np.eye(4))
    told = told.with_directions(total, sigma, later=False)
    return true, told.direction, told.beside, told.reach


@pytest.mark.parametrize("sigma", [0.0, 10.0])
def test_where_rows_see_a_mean_unevenly_it_is_looked_for_beside_the_direction_too(
    sigma: float,
) -> None:
    true, along, beside, reach = seen(1, sigma)
    assert abs(along @ beside) < 1e-12
    assert along @ true < 0.9  # cosines: features that hardly vary are hardly seen
    both = along + reach * beside
    assert both @ true / np.linalg.norm(both) > 0.98


def test_where_tasks_see_all_of_a_mean_noise_leads_nowhere_beside_it() -> None:
    far = []
    for seed in range(20):
        true, along, beside, reach = seen(30, 300.0, seed)
        assert along @ true > 0.8
        far.append(np.linalg.norm(reach * beside))
    assert np.mean(far) < 0.1


def test_a_step_is_found_in_the_plane_of_both_directions() -> None:
    """Slopes C a of any curvature C, whose entries have a noise of their own."""
    curvature, step = np.array([[40.0, 6.0], [6.0, 5.0]]), np.array([1.5, -2.0])
    told = replace(
        Lessons.none(3, 100, 0.5),
        direction=np.array([0.0, 1.0, 0.0]),
        beside=np.array([0.5, 0.0, 0.0]),
        reach=3.0,
        stride=2.0,
    )
    found = told.with_length(np.concatenate([curvature @ step, svec(curvature)]), 0.0)
    moved = np.linalg.solve(told.frame, found.mean)
    np.testing.assert_allclose(moved, 2 * np.array([0.5 * -2.0, 1.5, 0.0]), atol=1e-9)
    hidden = told.with_length(np.concatenate([curvature @ step, svec(curvature)]), 1e6)
    assert np.abs(hidden.mean).max() < 1e-3
    left = np.linalg.solve(told.frame, np.linalg.solve(told.frame, hidden.mean_covariance).T)
    np.testing.assert_allclose(np.diag(left), [(2 * 0.5 * 3) ** 2, 2.0**2, 0], atol=1e-6)


def test_slopes_and_curvatures_are_derivatives_of_the_marginal_likelihood() -> None:
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(12, 3)), rng.normal(size=12)
    problems = Problems(X, y, np.array([0, 5, 12]))
    told = replace(
        Lessons.none(3, 2, 0.5),
        direction=np.array([1.0, 0.0, 0.0]),
        beside=np.array([0.0, 0.3, 0.4]),
        noise=1.0,
    )
    scales, h = np.array([0.7, 2.0]), 1e-3

    def likely(a: float, b: float) -> FloatArray:
        at = told.mean + told.frame @ (a * told.direction + b * told.beside)
        view = view_of(problems, Squared(), replace(told, mean=at))
        return np.diagonal(view.log_likelihood(scales, np.ones(1))[:, :, 0])

    slopes, curved = view_of(problems, Squared(), told).along(told.direction, told.beside, scales)
    ahead = (likely(h, 0) - likely(-h, 0)) / (2 * h)
    aside = (likely(0, h) - likely(0, -h)) / (2 * h)
    np.testing.assert_allclose(slopes, np.stack([ahead, aside], axis=1), rtol=1e-5)
    mixed = (likely(h, h) - likely(h, -h) - likely(-h, h) + likely(-h, -h)) / (4 * h * h)
    twice = [(likely(h, 0) + likely(-h, 0) - 2 * likely(0, 0)) / h**2]
    twice.append((likely(0, h) + likely(0, -h) - 2 * likely(0, 0)) / h**2)
    expected = np.stack([-twice[0], -math.sqrt(2) * mixed, -twice[1]], axis=1)
    np.testing.assert_allclose(curved, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("true", "chosen"), [(True, 0.9), (False, 0.0)])
def test_tasks_vote_for_coordinates_as_far_as_they_serve_them(true: bool, chosen: float) -> None:
    """T with two large directions, in which all tasks lie, or which are nothing to them."""
    data = low_rank_tasks(80, rows=5, n_features=6, rank=2, rng=np.random.default_rng(3))
    X, y = np.column_stack([data.X, np.ones(len(data.X))]), data.y / np.abs(data.y).max()
    problems = Problems(X, y, np.arange(0, len(y) + 1, 5))
    models = data.coef[:, :2] if true else np.random.default_rng(4).normal(size=(6, 2))
    basis = np.zeros((7, 2))
    basis[:6] = np.linalg.qr(models)[0]
    sharp = 0.02 * np.eye(7) + 3.4 * basis @ basis.T
    told = replace(Lessons.none(7, 80, 0.3), sharp=sharp, noise=0.05)
    shared = {name: np.asarray(value) for name, value in vars(told).items()}
    rows = ballots_on(Step("coordinates 1", VoteSum(1.0, 1.0)), shared, Squared(), problems)
    assert rows.shape == (80, len(TRUSTED))
    assert (rows >= 0).all()
    assert TRUSTED[rows.sum(axis=0).argmax()] == chosen


def test_what_was_voted_changes_what_is_sent_and_never_what_is_spent() -> None:
    """Every step's event is planned from public facts before the first release; a vote moves t and
    the coordinates, and a row has norm one at any t."""
    curator = Curator.planned(facts(mu=0.25))
    step = next(step for step in curator.steps if step.name == "coordinates 1")
    told = replace(Lessons.none(WIDTH, M, curator.schedule.tilt), sharp=np.diag(np.arange(1.0, 25)))
    shared = {name: np.asarray(value) for name, value in vars(told).items()}
    tilts, frames = [], []
    for votes in ([300.0, 0, 0], [0, 0, 300.0]):
        more = curator.after(step, shared, np.array(votes), 1.0)
        tilts.append(float(more["tilt"]))
        frames.append(more["frame"])
        assert Curator.planned(facts(mu=0.25)).steps == curator.steps
        sent = joined(np.random.default_rng(0).normal(size=(5, WIDTH)), tilts[-1])
        assert np.linalg.norm(sent, axis=1).max() <= 1 + 1e-12
    assert tilts[0] > 0.9
    assert tilts[1] < 0.35
    np.testing.assert_allclose(frames[0], told.base, rtol=0.05)
    assert frames[1][23, 23] > 3 * frames[1][0, 0]
    events = [step.mechanism.event("replace") for step in curator.steps]
    assert sum(e.mu**2 for e in events if isinstance(e, Gaussian)) == pytest.approx(0.0625)


@pytest.mark.parametrize(("mu", "rounds"), [(0.03, 1), (0.3, 2), (1.5, 3), (6.0, 2)])
def test_only_a_later_round_is_voted_on(mu: float, rounds: int) -> None:
    names = [step.name for step in Curator.planned(facts(mu, m=1000)).steps]
    assert names.count("directions 0") == 1
    voted = [name for name in names if name.startswith("coordinates")]
    assert voted == [f"coordinates {i}" for i in range(1, rounds)]


def test_variances_are_read_in_the_units_of_features_whatever_the_coordinates() -> None:
    """Of an exact moment, sent in coordinates that turn and stretch, it is the true diagonal."""
    rng = np.random.default_rng(5)
    truth = np.where(np.arange(WIDTH) < 6, 3.5, 0.5 / 3)  # of average one
    told = Lessons.none(WIDTH, 10**12, 0.3)
    turned = np.linalg.qr(rng.normal(size=(WIDTH, WIDTH)))[0]
    outer = told.base @ (turned * rng.uniform(0.2, 2, WIDTH)) @ turned.T
    back = np.linalg.inv(np.linalg.solve(told.base, outer))
    seen = replace(told, outer=outer, moment=back @ np.diag(truth) @ back.T, moment_noise=1e-9)
    np.testing.assert_allclose(own_diagonal(seen), np.diag(told.base) ** 2 * truth, rtol=1e-3)


def test_a_fit_spends_its_budget_and_no_more_whatever_tasks_vote() -> None:
    """Few directions and a mean are voted on differently; both ledgers hold the same entries."""
    spent = []
    low = low_rank_tasks(150, rows=10, n_features=8, rank=1, rng=np.random.default_rng(6))
    most = float(np.abs(low.y).max())
    ranges = dict.fromkeys(range(8), (-1.0, 1.0)) | {"target": (-most, most)}
    near = related_tasks(150, (10, 10), 8, rng=np.random.default_rng(7))
    for data, declared in ((low, ranges), (near, near.ranges)):
        model = SharedPrior(
            budget=Budget(2.0), ranges=declared, noise="simulated", random_state=0
        ).fit(data.X, data.y, task=data.task)
        assert model.guarantee_.epsilon <= 2.0
        spent.append(model.guarantee_.epsilon)
    assert spent[0] == spent[1]
