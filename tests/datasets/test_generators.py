"""Generated tasks follow their formula, and their declared ranges come from it alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.datasets import (
    Generated,
    adni_shaped_tasks,
    group_sparse_tasks,
    low_rank_tasks,
    related_tasks,
)
from tacit.errors import InvalidInput
from tacit.tasks import TaskSet, as_schema, column_names

GENERATORS = [related_tasks, low_rank_tasks, group_sparse_tasks]


def signal(data: Generated) -> Any:
    return np.einsum("nd,nd->n", data.X, data.coef.T[data.task]) + data.intercept[data.task]


@pytest.mark.parametrize("generator", GENERATORS)
def test_a_seed_reproduces_the_data(generator: Any) -> None:
    one, same, other = (generator(4, rng=np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.X, same.X)
    np.testing.assert_array_equal(one.y, same.y)
    assert not np.array_equal(one.coef, other.coef)


@pytest.mark.parametrize("generator", GENERATORS)
def test_declared_ranges_hold_and_do_not_follow_the_draw(generator: Any) -> None:
    one, other = (generator(40, rng=np.random.default_rng(seed)) for seed in (1, 2))
    assert one.ranges == other.ranges
    schema = as_schema(one.ranges, column_names(one.X))
    np.testing.assert_allclose(schema.transform(one.X), one.X)
    scaled = schema.coded_target(one.y)
    np.testing.assert_allclose(schema.inverse_target(scaled), one.y)  # nothing was clipped


def test_related_tasks_spread_around_a_unit_vector() -> None:
    d, spread = 50, 0.5
    data = related_tasks(2000, rows=1, n_features=d, spread=spread, rng=np.random.default_rng(0))
    common = data.coef.mean(axis=1)
    assert np.linalg.norm(common) == pytest.approx(1, abs=0.02)
    distance = np.linalg.norm(data.coef - common[:, None], axis=0)
    assert distance.mean() == pytest.approx(spread, rel=0.02)


def test_without_noise_or_spread_all_tasks_are_one_linear_model() -> None:
    data = related_tasks(5, spread=0, noise=0, rng=np.random.default_rng(0))
    assert (data.coef == data.coef[:, :1]).all()
    np.testing.assert_allclose(data.y, data.X @ data.coef[:, 0])


def test_row_counts_fill_their_range() -> None:
    data = related_tasks(500, rows=(2, 4), test_rows=3, rng=np.random.default_rng(0))
    sizes = TaskSet.from_arrays(data.X, data.y, data.task).sizes
    assert set(sizes.tolist()) == {2, 3, 4}
    assert set(np.bincount(data.task_test).tolist()) == {3}


def test_test_rows_are_absent_unless_asked_for() -> None:
    data = related_tasks(3, n_features=2, rng=np.random.default_rng(0))
    assert (data.X_test.shape, data.y_test.shape, data.task_test.shape) == ((0, 2), (0,), (0,))


def test_logistic_labels_have_the_logistic_probability() -> None:
    data = related_tasks(100, rows=500, noise=0.5, loss="logistic", rng=np.random.default_rng(0))
    assert set(data.y.tolist()) == {-1.0, 1.0}
    expected = 1 / (1 + np.exp(-signal(data) / 0.5))
    for low in np.arange(0.1, 0.9, 0.1):  # calibrated in every tenth
        inside = (expected >= low) & (expected < low + 0.1)
        frequency = (data.y[inside] == 1).mean()
        deviation = 0.5 / np.sqrt(inside.sum())
        assert abs(frequency - expected[inside].mean()) < 5 * deviation


@pytest.mark.parametrize("generator", [low_rank_tasks, group_sparse_tasks])
def test_the_simulations_have_the_published_sizes(generator: Any) -> None:
    data = generator(rng=np.random.default_rng(0))
    assert data.X.shape == (320 * 30, 30)
    assert data.X_test.shape == (320 * 270, 30)
    assert data.coef.shape == (30, 320)
    np.testing.assert_allclose(np.linalg.norm(data.X, axis=1), 1)
    assert (data.y - signal(data)).std() == pytest.approx(1, rel=0.05)
    assert not data.intercept.any()


def test_low_rank_models_have_the_rank_and_scale_asked_for() -> None:
    data = low_rank_tasks(rank=5, rng=np.random.default_rng(0))
    assert np.linalg.matrix_rank(data.coef) == 5
    assert data.coef.std() == pytest.approx(20, rel=0.3)


def test_group_sparse_models_use_the_first_features_only() -> None:
    data = group_sparse_tasks(rng=np.random.default_rng(0))
    active = np.abs(data.coef[:4])
    assert ((active >= 1) & (active <= 50)).all()
    assert (data.coef[:4] < 0).mean() == pytest.approx(0.5, abs=0.1)
    assert not data.coef[4:].any()


@pytest.mark.parametrize(
    ("generator", "arguments"),
    [
        (related_tasks, {"n_tasks": 0}),
        (related_tasks, {"rows": 0}),
        (related_tasks, {"rows": (5, 2)}),
        (related_tasks, {"noise": -1.0}),
        (related_tasks, {"spread": float("nan")}),
        (related_tasks, {"loss": "hinge"}),
        (related_tasks, {"test_rows": -1}),
        (low_rank_tasks, {"rank": 0}),
        (low_rank_tasks, {"test_rows": -1}),
        (group_sparse_tasks, {"active": 31}),
    ],
)
def test_impossible_parameters_are_refused(generator: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        generator(**arguments, rng=np.random.default_rng(0))


def test_tasks_of_adnis_shape_have_few_rows_and_a_model_of_rank_three() -> None:
    data = adni_shaped_tasks(test_rows=2, rng=np.random.default_rng(3))
    assert data.coef.shape == (248, 20)
    assert np.linalg.matrix_rank(data.coef) == 3
    sizes = np.bincount(data.task)
    assert sizes.min() >= 15
    assert sizes.max() <= 27
    assert len(data.y_test) == 40
    np.testing.assert_allclose(np.linalg.norm(data.X, axis=1), 1.0)
