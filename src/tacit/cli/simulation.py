"""Tasks of a given size, simulated: how joining would do, for ``tacit plan``."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit.datasets import related_tasks
from tacit.learners.shared_prior import SharedPrior
from tacit.learners.single_task import SingleTask
from tacit.privacy.budget import Budget

DRAWS = 3
TEST_ROWS = 20
MOST_TASKS = 1000
"""Of one simulation; beyond, noise matters no more."""


@dataclass(frozen=True)
class Situation:
    """What is known, or assumed, before there are data."""

    tasks: int
    rows: int
    columns: int
    epsilon: float
    delta: float
    alike: float  # |w_0|² as a share of |w_t|²
    noise: float
    protect: str = "task"

    def outcome(self) -> dict[str, Any]:
        """The squared error together beside that of each alone, the mean of a few simulations; of
        people inside tasks with models at home, and beside it that of models for anybody."""
        errors = np.array([self._errors(draw) for draw in range(DRAWS)]).mean(axis=0)
        together, public, alone = errors.tolist()
        found = {"error": together / alone, "together": together, "alone": alone}
        return found if self.protect == "task" else found | {"public": public / alone}

    def _errors(self, seed: int) -> tuple[float, float, float]:
        """At home, public and alone."""
        data = related_tasks(
            self.tasks,
            rows=self.rows,
            n_features=self.columns,
            spread=math.sqrt(1 / self.alike - 1),
            noise=self.noise,
            test_rows=TEST_ROWS,
            rng=np.random.default_rng(seed),
        )
        joint = SharedPrior(
            unit="task" if self.protect == "task" else "example",
            budget=Budget(self.epsilon, self.delta),
            ranges=data.ranges,
            noise="simulated",
            random_state=seed,
        ).fit(data.X, data.y, task=data.task)
        single = SingleTask(ranges=data.ranges).fit(data.X, data.y, task=data.task)
        public = joint.predict
        home = public if self.protect == "task" else joint.predict_at_home
        at_home, anybodys, alone = (
            float(np.mean((predict(data.X_test, task=data.task_test) - data.y_test) ** 2))
            for predict in (home, public, single.predict)
        )
        return at_home, anybodys, alone


def variants(asked: Situation) -> list[tuple[str, Situation]]:
    """As asked, and what one would change about it."""
    few, many = max(1, asked.columns // 2), min(2 * asked.tasks, max(asked.tasks, MOST_TASKS))
    changes = [
        (f"as planned, ε {asked.epsilon:g}", asked),
        (f"{many} tasks", replace(asked, tasks=many)),
        (f"{few} columns", replace(asked, columns=few)),
        (f"{2 * asked.rows} rows a task", replace(asked, rows=2 * asked.rows)),
        (f"ε {asked.epsilon / 3:.2g}", replace(asked, epsilon=asked.epsilon / 3)),
        (f"ε {asked.epsilon * 3:.2g}", replace(asked, epsilon=asked.epsilon * 3)),
    ]
    seen: dict[Situation, str] = {}
    for name, situation in changes:
        seen.setdefault(situation, name)
    return [(name, situation) for situation, name in seen.items()]
