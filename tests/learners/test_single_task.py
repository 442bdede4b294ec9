"""Tasks by themselves: the lasso finds few features, and both penalties share nothing."""

from __future__ import annotations

import numpy as np
import pytest

from tacit import SingleTask
from tacit.datasets import group_sparse_tasks
from tacit.errors import InvalidInput
from tacit.metrics import nmse_per_task


def test_the_lasso_is_sparser_and_better_where_few_features_count() -> None:
    data = group_sparse_tasks(
        20, rows=15, n_features=20, active=2, test_rows=30, rng=np.random.default_rng(0)
    )
    errors, used = {}, {}
    for penalty in ("l2", "l1"):
        model = SingleTask(penalty=penalty, fit_intercept=False)
        model.fit(data.X, data.y, task=data.task)
        predicted = model.predict(data.X_test, task=data.task_test)
        errors[penalty] = nmse_per_task(data.y_test, predicted, data.task_test)
        used[penalty] = (np.abs(model.coef_) > 1e-6).mean()
    assert errors["l1"] < 0.5 * errors["l2"]
    assert used["l1"] < 0.7 < used["l2"]


def test_an_unknown_penalty_is_refused() -> None:
    with pytest.raises(InvalidInput, match="l3"):
        SingleTask(penalty="l3").fit([[1.0], [2.0]], [1.0, 2.0])  # type: ignore[arg-type] # wrong on purpose
