"""What tasks of SharedPrior need not compute: votes that nobody asks for, and what they know."""

from __future__ import annotations

import numpy as np
import pytest

from tacit import Budget, SharedPrior
from tacit.arrays import FloatArray
from tacit.datasets import related_tasks
from tacit.datasets.generators import Generated
from tacit.engine import Facts, Message, Unprotected
from tacit.estimator import Home
from tacit.learners.shared_prior import Curator, Tasks, release_schedule
from tacit.learners.shared_prior.lessons import values_of
from tacit.learners.shared_prior.posterior_mixture import Priors
from tacit.linear.losses import Squared
from tacit.privacy.mechanisms.products import WithGaussianNoise

M = 60


@pytest.fixture(scope="module")
def data() -> Generated:
    return related_tasks(M, (5, 12), 4, test_rows=20, rng=np.random.default_rng(0))


def home_of(data: Generated) -> Home:
    model = SharedPrior(budget=Budget(1e4), ranges=data.ranges)
    schema, tasks = model._declare(data.X, data.y, data.task)
    return model._home(tasks, schema, Squared())


def everything_said(home: Home, keeps: bool) -> dict[str, FloatArray]:
    """What tasks say in each step of a run without noise; each step with what one before it kept,
    or without."""
    facts = Facts(tuple(range(M)), 5, home.loss, home.declared_features, True, "replace", 1e4)
    coordinator, tasks = Curator.planned(facts), Tasks(home, M)
    shared: Message = coordinator.start()
    found, state = {}, None
    for step in coordinator.steps:
        found[step.name], state = tasks.contribute(step, shared, state if keeps else None)
        assert isinstance(step.mechanism, WithGaussianNoise)
        statistic = step.mechanism.statistic
        total = statistic.total(*statistic.checked(found[step.name], None))
        more = coordinator.after(step, values_of(shared), total, 0.0)
        opened = {name: Unprotected(value) for name, value in more.items()}
        shared = {**coordinator.needed(step, shared), **opened}
    return found


def test_a_sample_follows_from_each_label_alone(data: Generated) -> None:
    home = home_of(data)
    whole, order = home.sampled(0.4), np.random.default_rng(1).permutation(M)
    assert 0 < whole.sum() < M
    np.testing.assert_array_equal(home.select(order.tolist()).sampled(0.4), whole[order])
    singles = [home.select([i]).sampled(0.4)[0] for i in range(M)]
    np.testing.assert_array_equal(singles, whole)
    assert home.sampled(1.0).all()


def test_a_sample_is_about_as_large_as_it_was_meant(data: Generated) -> None:
    """Each label is in it by a hash: 20,000 of them within five standard deviations."""
    home = Home(
        home_of(data).problems, Squared(), np.ones(4, dtype=bool), True, labels=range(20000)
    )
    assert abs(home.sampled(0.1).sum() - 2000) < 5 * np.sqrt(20000 * 0.1 * 0.9)


def test_only_who_is_asked_votes_and_as_if_all_were(
    data: Generated, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = home_of(data)
    everybody = everything_said(home, keeps=True)
    monkeypatch.setattr(release_schedule, "VOTERS", 20)
    some, asked = everything_said(home, keeps=True), home.sampled(20 / M)
    assert 5 < asked.sum() < 40
    first = "coordinates 1"  # before it both runs have heard the same
    np.testing.assert_array_equal(some[first][asked], everybody[first][asked])
    for name, rows in some.items():
        votes = name.split()[0] in ("coordinates", "variances", "adjustment", "priors")
        assert rows[asked].any(), name
        assert rows[~asked].any() != votes, name


def test_a_node_whose_task_is_not_asked_sends_zeros_of_the_same_width(
    data: Generated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_schedule, "VOTERS", 20)
    home = home_of(data)
    facts = Facts(tuple(range(M)), 5, home.loss, home.declared_features, True, "replace", 1e4)
    coordinator, tasks = Curator.planned(facts), Tasks(home, M)
    step = next(step for step in coordinator.steps if step.name == "variances 0")
    whole, _ = tasks.contribute(step, coordinator.start(), None)
    for i in range(M):
        alone, _ = tasks.select([i]).contribute(step, coordinator.start(), None)
        assert alone.tobytes() == whole[i : i + 1].tobytes()


def test_what_a_step_kept_for_the_next_is_what_that_would_find_itself(data: Generated) -> None:
    home = home_of(data)
    kept, anew = everything_said(home, keeps=True), everything_said(home, keeps=False)
    assert {"length 0", "scores 0"} <= set(kept)
    for name, rows in kept.items():
        assert rows.tobytes() == anew[name].tobytes(), name


def test_votes_of_a_third_of_the_tasks_lead_to_much_the_same_models(
    data: Generated, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = []
    for voters in (M, 20):
        monkeypatch.setattr(release_schedule, "VOTERS", voters)
        model = SharedPrior(ranges=data.ranges).fit(data.X, data.y, task=data.task)
        predicted = model.predict(data.X_test, task=data.task_test)
        errors.append(float(np.mean((data.y_test - predicted) ** 2)))
    assert errors[0] != errors[1]
    assert errors[1] < 1.05 * errors[0]


def test_priors_that_the_vote_finds_unlikely_are_tried_by_nobody(data: Generated) -> None:
    model = SharedPrior(ranges=data.ranges).fit(data.X, data.y, task=data.task)
    priors = Priors.of(values_of(model.shared_))
    assert len(priors.worth_trying().means) < len(priors.means)
    n_spreads, _, n_scales = priors.vote.shape
    asked = Priors(
        np.arange(3.0)[:, None] * np.ones(5),
        np.arange(3.0)[:, None, None] * np.eye(5),
        priors.noise,
        priors.noise_spreads,
        priors.scale_spread,
        np.arange(4.0),
        np.full((n_spreads, 4, n_scales), -6.0),
    )
    asked.vote[-1, 3, 2] = 0.0
    kept = asked.worth_trying()  # by itself, the first, and the one that somebody voted for
    np.testing.assert_array_equal(kept.handicap, [0, 1, 3])
    np.testing.assert_array_equal(kept.means[:, 0], [0, 2])
    np.testing.assert_array_equal(kept.factors[:, 0, 0], [0, 2])
    np.testing.assert_array_equal(kept.vote, asked.vote[:, [0, 1, 3]])
    asked.vote[0, 2, 0] = -3.9
    assert len(asked.worth_trying().means) == 3
