"""Joining never costs, for networks: clients, and silos that hide their people, with the defaults.

The cases are those of test_joining_never_costs.py, of classes and of numbers. STATED is the most
that the average error of two runs may exceed that of the same networks trained alone: what a client
pays for choosing by its own few rows. Mutants, which hand out what is shared as it comes, show that
these cases can tell.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from test_joining_never_costs import CASES, Case, related, unrelated
from torch import nn

from tacit import Budget
from tacit.errors import NoiseWarning
from tacit.neural import FederatedMTL

STATED = 0.02
"""Of classes, the share of rows that are wrong beyond those alone; of numbers, the share of the
squared error alone."""

ALONE = 1e-4
"""An ε that buys no round of these networks."""

CONVINCING = "unrelated tasks in little noise"
MADE: dict[str, Callable[[], Case]] = {**CASES, CONVINCING: partial(unrelated, 30.0)}


@dataclass(frozen=True)
class Kind:
    """What is predicted, and who is protected."""

    loss: Literal["cross_entropy", "squared"]
    unit: Literal["task", "example"]

    def fitted(self, case: Case, epsilon: float | None, seed: int, **more: Any) -> FederatedMTL:
        """With simulated noise."""
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            network = nn.Linear(5, 1 if self.loss == "squared" else 2)
        neighbours: Any = "replace" if self.unit == "example" else "zero-out"
        settings: dict[str, Any] = {
            "loss": self.loss,
            "unit": self.unit,
            "budget": None if epsilon is None else Budget(epsilon, neighbours=neighbours),
            "classes": None if self.loss == "squared" else [0, 1],
            "noise": "simulated",
            "random_state": seed,
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoiseWarning)  # no round is one way to cost nothing
            model = FederatedMTL(network, **settings | more)
            return model.fit(case.data.X, self.told(case, case.data.y), task=case.data.task)

    def told(self, case: Case, y: Any) -> Any:
        """Targets as networks take them: classes, or numbers of order one."""
        if self.loss == "cross_entropy":
            return (y > 0).astype(int)
        return y / np.abs(case.data.coef).max()

    def error(self, model: FederatedMTL, case: Case, *, blind: bool = False) -> float:
        """On rows that nobody has seen; blind: by what anybody may see of a silo's model."""
        inside = self.unit == "example" and model.budget is not None
        predict = model.predict_at_home if inside and not blind else model.predict
        said = predict(case.data.X_test, task=case.data.task_test)
        return float(np.mean(np.square(said - self.told(case, case.data.y_test))))

    def over(self, own: float, joined: float) -> float:
        """What joining costs."""
        return joined - own if self.loss == "cross_entropy" else joined / own - 1


KINDS = {
    "classes": Kind("cross_entropy", "task"),
    "numbers": Kind("squared", "task"),
    "silos": Kind("cross_entropy", "example"),
    "silos of numbers": Kind("squared", "example"),
}


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {"own": 40, "shared": 20, "open": 20, "half": 20, "loose": 40}
    monkeypatch.setattr("tacit.neural.client_choice.STEPS", few)
    monkeypatch.setattr("tacit.neural.round_schedule.MOST", 30)


@cache
def alone(kind: str, name: str) -> float:
    """The error of the same networks where nobody joins."""
    case = MADE[name]()
    return KINDS[kind].error(KINDS[kind].fitted(case, ALONE, 0), case)


def cost(kind: str, name: str, *, blind: bool = False) -> float:
    """The average error of two runs, over that alone."""
    case, of, more = MADE[name](), KINDS[kind], {"finetune": None} if blind else {}
    runs = [of.fitted(case, case.epsilon, seed, **more) for seed in range(2)]
    joined = float(np.mean([of.error(model, case, blind=blind) for model in runs]))
    return of.over(alone(kind, name), joined)


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("kind", KINDS)
def test_joining_never_costs(kind: str, name: str) -> None:
    assert cost(kind, name) <= STATED


@pytest.mark.parametrize("kind", KINDS)
def test_trusting_what_is_shared_blindly_costs(kind: str) -> None:
    assert cost(kind, CONVINCING, blind=True) > 10 * STATED


@pytest.mark.parametrize("kind", ["classes", "numbers", "silos"])
@pytest.mark.parametrize("make", [partial(related, 80, (5, 15)), unrelated])
def test_with_hardly_any_noise_it_is_the_twin(kind: str, make: Any) -> None:
    """Not so of silos of numbers: their rounds add up clipped gradients, and are as many at any
    budget, which the twin's are not."""
    case, of = make(1e4), KINDS[kind]
    private, twin = (of.error(of.fitted(case, epsilon, 0), case) for epsilon in (1e4, None))
    assert of.over(twin, private) == pytest.approx(0.0, abs=0.02)
