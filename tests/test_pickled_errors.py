"""Errors go to other processes and come back as they were."""

from __future__ import annotations

import copy
import pickle

import pytest

from tacit import errors
from tacit.privacy.budget import Budget

RAISED = [
    errors.TacitError("plain"),
    errors.InvalidInput("what was seen"),
    errors.MissingValues("age", 3),
    errors.UnknownTask("s99", 12),
    errors.BudgetExceeded("s01", 0.25, 1.0, Budget(1.0)),
    errors.Refused("north", "it answers another request"),
    errors.IsolationError("a contribution", "numpy 2"),
    errors.LedgerCorrupt("an entry was edited"),
]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_an_error_comes_back_from_another_process(error: errors.TacitError) -> None:
    for back in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(back) is type(error)
        assert (str(back), back.args, vars(back)) == (str(error), error.args, vars(error))
