"""Refinement of SharedPrior: what scores of tasks teach of a covariance, little or much."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tacit import SharedPrior
from tacit.learners.shared_prior.lessons import TRUSTED, Lessons
from tacit.learners.shared_prior.shrinkage import deconvolved


def test_tasks_that_say_little_teach_no_covariance_by_an_error_of_their_noise() -> None:
    """Scores a tenth too small, as s is: of tasks that say 3% of a deviation each, T would be read
    as −2 in every direction. The direction that stands out is found all the same."""
    rng = np.random.default_rng(7)
    m, true = 50_000, np.diag([3.0, 0.6, 0.6, 0.6])
    information = np.full(4, 0.03)
    law = np.diag(information) + np.outer(information, information) * (true - np.eye(4))
    scores = np.sqrt(0.9) * rng.multivariate_normal(np.zeros(4), law, size=m)
    linear, _ = deconvolved(scores.T @ scores, 0.0, information, np.eye(4), m)
    assert np.diag(linear)[1:].min() > 0.2
    assert linear[0, 0] > 1.5 * np.diag(linear)[1:].max()


def test_tasks_that_say_much_teach_the_size_of_a_covariance() -> None:
    information = np.full(4, 0.9)
    law = np.diag(information) + np.outer(information, information) * -0.5 * np.eye(4)
    linear, _ = deconvolved(1e6 * law, 0.0, information, np.eye(4), 1e6)
    np.testing.assert_allclose(linear, 0.5 * np.eye(4), atol=0.05)


@pytest.mark.parametrize(("rows", "width"), [(2, 5), (3, 8)])
def test_the_twin_of_tasks_of_few_rows_is_close_to_bayes_with_the_true_prior(
    rows: int, width: int
) -> None:
    rng = np.random.default_rng(rows)
    m, noise, spread = 1500, 0.5, 0.5
    mean, X = rng.normal(size=width), rng.uniform(-1, 1, (m, rows + 10, width))
    models = mean + spread * rng.normal(size=(m, width))
    y = (X * models[:, None]).sum(2) + noise * rng.normal(size=X.shape[:2])
    most = float(np.abs(y).max())
    ranges = dict.fromkeys(range(width), (-1.0, 1.0)) | {"target": (-most, most)}
    model = SharedPrior(ranges=ranges)
    model.fit(X[:, :rows].reshape(-1, width), y[:, :rows].ravel(), task=np.arange(m).repeat(rows))
    own, missing = X[:, :rows], y[:, :rows, None] - X[:, :rows] @ mean[:, None]
    within = own @ own.swapaxes(1, 2) + (noise / spread) ** 2 * np.eye(rows)
    ideal = mean + (own.swapaxes(1, 2) @ np.linalg.solve(within, missing))[:, :, 0]
    predicted = (X * model.coef_.T[:, None]).sum(2) + model.intercept_[:, None]
    errors = [
        np.mean((y - found)[:, rows:] ** 2) for found in (predicted, (X * ideal[:, None]).sum(2))
    ]
    assert errors[0] < 1.06 * errors[1]


def test_refinement_starts_in_coordinates_that_tasks_trust() -> None:
    """T of tasks of few rows has the shape of their features, which is no prior of theirs."""
    outer, seen = np.diag([2.0, 1.0, 1.0]), np.diag([2.6, 0.2, 0.2])
    for trust, left in ((0.0, np.ones(3)), (TRUSTED.max(), (1 + np.diag(seen)) / 2)):
        told = replace(Lessons.none(3, 100, 0.5).whitened(trust), outer=outer, sharp=seen)
        start = told.ready_to_refine().frame
        np.testing.assert_allclose(np.diag(start @ start.T), np.diag(outer) ** 2 * left)
