"""A trusted curator: schools predict exam scores together, and no school can be read out.

    python examples/schools.py

Each of 200 schools has fifteen pupils and eight columns: too few to learn alone. The curator adds
up what the schools send, with noise; each school weighs that against its own pupils, at no cost.
"""

from __future__ import annotations

import numpy as np

import tacit
from tacit.datasets import related_tasks


def main() -> None:
    """Prints how well schools predict new pupils alone, pooled, and together."""
    rng = np.random.default_rng(0)
    data = related_tasks(200, rows=15, n_features=8, spread=0.7, test_rows=50, rng=rng)
    private = tacit.SharedPrior(budget=tacit.Budget(1.0), ranges=data.ranges)
    learners = {
        "alone": tacit.SingleTask(ranges=data.ranges),
        "one model for all": tacit.Pooled(ranges=data.ranges),
        "together, ε = 1": private,
        "together, no privacy": tacit.SharedPrior(ranges=data.ranges),
    }
    for name, learner in learners.items():
        learner.fit(data.X, data.y, task=data.task)
        score = learner.score(data.X_test, data.y_test, task=data.task_test)
        print(f"{name:22} R² {score:.3f}")
    print(private.guarantee_)


if __name__ == "__main__":
    main()
