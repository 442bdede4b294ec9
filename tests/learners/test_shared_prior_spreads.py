"""How sure a task may be of its slopes: the algebra, how often it is right, and who gets it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit import Budget, LowRank, SharedPrior, folder
from tacit.datasets import related_tasks
from tacit.datasets.generators import Generated
from tacit.errors import InvalidInput
from tacit.learners.shared_prior.gaussian_tasks import Alone, Likelihoods, View
from tacit.learners.shared_prior.posterior_mixture import SCALES, Priors
from tacit.linear.losses import Squared
from tacit.linear.problems import Problems

NINE_IN_TEN = 1.645


def data_of(seed: int, n_tasks: int = 40, **options: Any) -> Generated:
    rng = np.random.default_rng(seed)
    return related_tasks(n_tasks, (10, 30), 6, rng=rng, **options)


def noted(data: Generated, learner: Any = SharedPrior, **options: Any) -> Any:
    model = learner(**{"budget": Budget(4.0), "ranges": data.ranges} | options)
    model.fit(data.X, data.y, task=data.task)
    return model.note_spreads(data.X, data.y, task=data.task)


# --- the algebra ---------------------------------------------------------------------------------


def own_problems(rng: np.random.Generator, d: int, m: int, n: int) -> Problems:
    X = np.column_stack([rng.normal(size=(m * n, d)), np.ones(m * n)])
    y = X @ rng.normal(size=d + 1) + rng.normal(size=m * n)
    return Problems(X, y, np.arange(0, m * n + 1, n))


def priors_of(rng: np.random.Generator, width: int, n_priors: int) -> Priors:
    factors = rng.normal(size=(n_priors, width, width))
    vote = rng.normal(size=(2, 1 + n_priors, len(SCALES)))
    means, handicap = rng.normal(size=(n_priors, width)), rng.normal(size=1 + n_priors)
    return Priors(means, factors, 0.8, np.array([0.2, 1.0]), 1.0, handicap, vote)


def test_moments_at_each_scale_are_those_of_the_normal_equations() -> None:
    rng = np.random.default_rng(0)
    tasks = Likelihoods.squared(own_problems(rng, 3, 2, 6), Squared())
    mean, F = rng.normal(size=4), rng.normal(size=(4, 4))
    means, variances = View.of(tasks, mean, F).each(SCALES)
    for k in range(2):
        for i, c in enumerate(SCALES):
            prior = np.linalg.inv(c * F @ F.T)
            covariance = np.linalg.inv(prior + tasks.G[k])
            assert means[k, i] == pytest.approx(covariance @ (prior @ mean + tasks.g[k]), rel=1e-5)
            assert variances[k, i] == pytest.approx(np.diag(covariance), rel=1e-5)


def test_by_itself_they_are_those_of_centred_rows() -> None:
    rng = np.random.default_rng(2)
    problems = own_problems(rng, 3, 1, 9)
    alone = Alone.of(Likelihoods.squared(problems, Squared()))
    means, variances = alone.each(SCALES)
    X, y = problems.X[:, :3] - problems.X[:, :3].mean(axis=0), problems.y - problems.y.mean()
    for i, c in enumerate(SCALES):
        covariance = np.linalg.inv(np.eye(3) / c / alone.unit[0] + X.T @ X)
        assert means[0, i] == pytest.approx(covariance @ X.T @ y)
        assert variances[0, i] == pytest.approx(np.diag(covariance))


def test_the_spread_is_that_of_draws_from_the_mixture() -> None:
    """By 200,000 draws; their standard deviation has an error of 0.5% at most, as the mixture's
    kurtosis is below 20, so that 4% is beyond ALPHA = 1e-6."""
    rng = np.random.default_rng(1)
    problems, priors = own_problems(rng, 2, 1, 5), priors_of(rng, 3, 2)
    tasks = Likelihoods.squared(problems, Squared())
    views = list(priors.views(tasks))
    evidence = priors.evidence(views, SCALES)
    weight = np.exp(evidence + priors.vote - (evidence + priors.vote).max())[0]
    option = rng.choice(weight.size, 200_000, p=weight.ravel() / weight.sum())
    s, a, c = np.unravel_index(option, weight.shape)
    level = [view.evidence(SCALES, priors.noise, priors.noise_spreads)[1][0] for view in views]
    each = [[part[0, :, :2] for part in view.each(SCALES)] for view in views]
    means = np.stack([mean for mean, _ in each])[a, c]
    variances = (
        np.stack([variance for _, variance in each])[a, c] * np.stack(level, 1)[s, a, c, None]
    )
    drawn = means + np.sqrt(variances) * rng.standard_normal(means.shape)
    assert priors.models(tasks)[0, :2] == pytest.approx(drawn.mean(axis=0), abs=0.02)
    assert priors.spreads(tasks)[0] == pytest.approx(drawn.std(axis=0), rel=0.04)


# --- how often it is right -----------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_nine_in_ten_are_eight_to_nine_and_a_half(epsilon: float) -> None:
    """Over 40 other runs a run's share had mean 0.86 and standard deviation 0.027 at most: the mean
    of six runs is outside by chance with probability 1e-7 (5.4 standard deviations)."""
    right = []
    for seed in range(100, 106):
        data = data_of(seed, 200)
        model = noted(data, budget=Budget(epsilon), noise="simulated", random_state=seed)
        away = np.abs(model.coef_ - data.coef[:, list(model.tasks_)])
        right.append(np.mean(away < NINE_IN_TEN * model.coef_spread_))
    assert 0.80 < np.mean(right) < 0.95


@pytest.mark.parametrize("declared", [True, False])
def test_it_follows_the_units_of_the_table(declared: bool) -> None:
    """Undeclared sizes are powers of two, by a vote."""
    data, larger = data_of(0), 1024
    before: Any = dict.fromkeys(range(6), (-1, 1)) if declared else None
    after: Any = dict.fromkeys(range(6), (-larger, larger)) if declared else None
    usual = noted(data, budget=None, ranges=before)
    scaled = noted(replace(data, X=larger * data.X), budget=None, ranges=after)
    assert usual.coef_spread_.all()
    assert scaled.coef_spread_ == pytest.approx(usual.coef_spread_ / larger)


# --- who gets it ---------------------------------------------------------------------------------


def arrays(place: Path) -> dict[str, Any]:
    return folder.read(place)[1]


def test_a_hand_out_has_its_own_and_the_public_folder_nobodys(tmp_path: Path) -> None:
    model = noted(data_of(0))
    model.save(tmp_path / "public", public=True)
    model.export(3, tmp_path / "three")
    model.save(tmp_path / "all")
    assert "spreads" not in arrays(tmp_path / "public")
    own = arrays(tmp_path / "three")["spreads"]
    assert np.array_equal(own, model._spread[[3]])
    others = np.delete(model._spread, 3, axis=0)
    assert not np.isin(others, own).any()
    again = SharedPrior.load(tmp_path / "all")
    assert np.array_equal(again.coef_spread_, model.coef_spread_)
    public = b"".join(path.read_bytes() for path in (tmp_path / "public").iterdir())
    assert not any(row.tobytes() in public for row in model._spread)


def test_it_is_a_function_of_own_rows_and_what_is_shared() -> None:
    data = data_of(0)
    model = noted(data)
    schema, tasks = model._declare(data.X, data.y, data.task)
    home = model._home(tasks, schema, Squared())
    alone = [model._spreads(home.select([i]), model.shared_)[0] for i in range(5)]
    assert np.array_equal(alone, model._spread[:5])


def test_a_task_that_joins_later_gets_its_own() -> None:
    data = data_of(0)
    model = noted(data)
    before = model.coef_spread_
    model.adapt(data.X[data.task == 3], data.y[data.task == 3], task="new")
    assert np.array_equal(model.coef_spread_[:, :-1], before)
    assert np.array_equal(model.coef_spread_[:, -1], before[:, list(model.tasks_).index(3)])


def test_where_nobody_knows_nothing_is_said(tmp_path: Path) -> None:
    squared, logistic = data_of(0), data_of(0, loss="logistic")
    unknown = (
        noted(squared, LowRank),
        noted(logistic, loss="logistic"),
        noted(squared, unit="example"),
        noted(data_of(0, 400), ranges="private"),
        SharedPrior(budget=Budget(1.0), ranges=squared.ranges).fit(
            squared.X, squared.y, task=squared.task
        ),
    )
    for i, model in enumerate(unknown):
        assert not model.coef_spread_.any()
        model.export(3, tmp_path / str(i))
        assert "spreads" not in arrays(tmp_path / str(i))


def test_each_target_has_its_own() -> None:
    data = data_of(0)
    ranges: Any = dict.fromkeys(range(6), (-1, 1)) | {"target0": (-5, 5), "target1": (-5, 5)}
    y = np.column_stack([data.y, data.y[::-1]])
    model = noted(replace(data, y=y), ranges=ranges)
    assert model.coef_spread_.shape == model.coef_.shape == (6, 40, 2)
    assert (model.coef_spread_ > 0).all()


@pytest.mark.parametrize("places", [range(40)[::-1], [0]])
def test_spreads_are_of_the_fitted_tasks_in_their_order(places: Any) -> None:
    data = data_of(0)
    model = noted(data)
    tasks = model._declare(data.X, data.y, data.task)[1]
    with pytest.raises(InvalidInput, match="give the tasks that were fitted"):
        model.note_spreads_of(tasks.select(places))
