"""Nobody outside is trusted: twenty branches send noisy gradients to a server, without waiting.

    python examples/nodes.py

Each branch hides its customers, one by one, from the server and from every other branch. The
released models may be shown to anyone; each branch keeps a better one at home.
"""

from __future__ import annotations

import numpy as np

import tacit
from tacit.datasets import related_tasks


def main() -> None:
    """Prints how well released models and home models predict, and what was promised."""
    rng = np.random.default_rng(0)
    data = related_tasks(20, rows=200, n_features=6, test_rows=100, rng=rng)
    model = tacit.AsyncProximal(budget=tacit.Budget(4.0), ranges=data.ranges)
    model.fit(data.X, data.y, task=data.task)
    released = model.predict(data.X_test, task=data.task_test)
    at_home = model.predict_at_home(data.X_test, task=data.task_test)
    for name, predicted in [("released to anyone", released), ("kept at home", at_home)]:
        error = np.mean((predicted - data.y_test) ** 2) / np.var(data.y_test)
        print(f"{name:20} error {error:.3f} of the variance")
    print(model.guarantee_)


if __name__ == "__main__":
    main()
