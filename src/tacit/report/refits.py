"""The same learner again, with another budget: for simulations of the trusted side.

Ledgers are in memory and noise is simulated: nothing here is released or charged.
"""

from __future__ import annotations

from typing import Any

from tacit.estimator import MultiTaskEstimator
from tacit.privacy.budget import Budget


def variant(model: MultiTaskEstimator, budget: Budget | None, seed: int) -> MultiTaskEstimator:
    """An unfitted twin of the model with this budget and simulated noise.

    >>> from tacit.learners.mean_regularized import MeanRegularized
    >>> variant(MeanRegularized(rounds=2), Budget(3.0), seed=0).get_params()["rounds"]
    2
    """
    wanted: dict[str, Any] = {
        "budget": budget,
        "ledger": None,
        "noise": "simulated",
        "random_state": seed,
        "run": None,
    }
    own = model.get_params(deep=False)
    return type(model)(**own | {name: value for name, value in wanted.items() if name in own})
