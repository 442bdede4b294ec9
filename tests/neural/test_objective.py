"""S2's objective (1) with any Ω: FederatedMTL without noise comes to its exact optimum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tacit import Budget
from tacit.arrays import FloatArray
from tacit.errors import InvalidInput, NoiseWarning
from tacit.linear.task_relations import Omega
from tacit.neural import FederatedMTL
from tacit.neural.sampling import Fixed, Sampler, SecretCoins

M, D, ROWS = 6, 3, 8
RNG = np.random.default_rng(0)
X = RNG.normal(size=(M * ROWS, D))
TASK = np.repeat(np.arange(M), ROWS)
Y = (X * RNG.normal(size=(M, D))[TASK]).sum(axis=1)
RING = np.roll(np.eye(M), 1, axis=0) + np.roll(np.eye(M), -1, axis=0)
A = RNG.normal(size=(M, M))
RELATIONS = {
    "the paper's": Omega((np.eye(M) - 1 / M) @ (np.eye(M) - 1 / M)),
    "ring": Omega.laplacian(RING),
    "any": Omega(A @ A.T / M),
}


def fitted(relation: Any, **given: Any) -> FederatedMTL:
    torch.manual_seed(0)
    module = torch.nn.Linear(D, 1, bias=False).double()
    chosen: dict[str, Any] = {
        "method": "mtl", "loss": "squared", "rounds": 150, "local_steps": 4, "batch": ROWS,
        "learning_rate": 0.2, "pull": 0.5, "finetune": None, "random_state": 0,
    }  # fmt: skip
    return FederatedMTL(module, relation=relation, **(chosen | given)).fit(X, Y, task=TASK)


def optimum(omega: Omega) -> FloatArray:
    """Its predictions of all rows."""
    H, b = 0.5 * np.kron(omega.matrix, np.eye(D)), np.zeros(M * D)
    for k in range(M):  # the loss of a client is the mean of ½(x·w − y)²
        rows, at = k == TASK, slice(k * D, (k + 1) * D)
        H[at, at] += X[rows].T @ X[rows] / ROWS
        b[at] = X[rows].T @ Y[rows] / ROWS
    W = np.linalg.solve(H, b).reshape(M, D)
    return np.asarray((X * W[TASK]).sum(axis=1))


@pytest.mark.parametrize("name", RELATIONS)
def test_without_noise_it_comes_to_the_optimum(name: str) -> None:
    predicted = fitted(RELATIONS[name]).predict(X, task=TASK)
    np.testing.assert_allclose(predicted, optimum(RELATIONS[name]), atol=2e-3)


@pytest.mark.parametrize("sampling", [Fixed(2), SecretCoins(0.4)])
@pytest.mark.parametrize("name", RELATIONS)
def test_so_it_does_where_a_few_take_part_in_each_round(name: str, sampling: Sampler) -> None:
    model = fitted(RELATIONS[name], rounds=400, sampling=sampling)
    np.testing.assert_allclose(model.predict(X, task=TASK), optimum(RELATIONS[name]), atol=2e-3)


def test_as_printed_it_comes_elsewhere() -> None:
    """Line 8 divides by |S_t|: all models are held to m/q times their mean (docs/federated.md)."""
    found = fitted(None, rounds=400, sampling=Fixed(2), as_published=True, pull=0.01)
    mean = Omega.mean(M)
    assert np.abs(found.predict(X, task=TASK) - optimum(mean)).max() > 0.1
    with pytest.warns(NoiseWarning, match="diverged"):
        far = fitted(None, rounds=400, sampling=Fixed(2), as_published=True, pull=2.0)
    assert not np.abs(far.predict(X, task=TASK)).max() < 1e6


def test_the_papers_relation_is_the_mean() -> None:
    given: dict[str, Any] = {"rounds": 5, "budget": Budget(8.0, 1e-3), "noise": "simulated"}
    one = fitted(Omega.mean(M), **given).predict(X, task=TASK)
    other = fitted(None, **given).predict(X, task=TASK)
    np.testing.assert_allclose(one, other, atol=1e-6)


def test_a_relation_of_other_tasks_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"\(6,\) clusters"):
        fitted(Omega.mean(4))
