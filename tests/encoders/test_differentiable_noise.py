"""Training sees the clip and the noise of the library's mechanisms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from tacit.encoders.neural.differentiable_noise import clipped, simulated
from tacit.privacy.mechanisms.local import (
    LocalGaussian,
    LocalKNorm,
    LocalLaplace,
    PrivUnitG,
)

ALPHA = 1e-6
Trained = LocalLaplace | LocalKNorm | PrivUnitG | LocalGaussian
MECHANISMS: list[Trained] = [
    LocalLaplace(1.0, 2.0, (1.0, 3.0)),
    LocalKNorm(2.0, 2.0),
    PrivUnitG(2.0, 2.0),
    LocalGaussian(2.0, 1.5),
]
every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_the_clip_keeps_every_row_in_the_ball_and_inner_rows_as_they_are() -> None:
    rows = torch.randn(100, 3, generator=generator(), dtype=torch.float64) * 10.0 ** torch.arange(
        -50, 50, dtype=torch.float64
    ).unsqueeze(1)
    inside = clipped(rows, 2.0)
    norms = torch.linalg.vector_norm(rows, dim=1)
    assert torch.all(torch.linalg.vector_norm(inside, dim=1) <= 2.0 * (1 + 1e-12))
    assert torch.equal(inside[norms < 2], rows[norms < 2])


def test_the_gradient_of_the_clip_is_the_identity_inside_and_tangential_outside() -> None:
    rows = torch.tensor([[0.3, 0.4], [3.0, 4.0], [0.0, 0.0]], dtype=torch.float64)
    rows.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: clipped(x, 1.0), (rows[:2],))
    jacobian = torch.func.jacrev(lambda x: clipped(x, 1.0))(rows.detach())
    assert torch.equal(jacobian[0, :, 0], torch.eye(2, dtype=torch.float64))
    assert torch.equal(jacobian[2, :, 2], torch.eye(2, dtype=torch.float64))
    outward = torch.tensor([0.6, 0.8], dtype=torch.float64)
    along = torch.tensor([-0.8, 0.6], dtype=torch.float64)
    assert torch.allclose(jacobian[1, :, 1] @ outward, torch.zeros(2, dtype=torch.float64))
    assert torch.allclose(jacobian[1, :, 1] @ along, along / 5)  # r/‖h‖


@every_mechanism
def test_gradients_are_finite_at_zero_on_the_sphere_and_far_outside(
    mechanism: Trained,
) -> None:
    radius = mechanism.radius
    rows = torch.tensor([[0.0, 0.0], [radius, 0.0], [1e6, -1e6], [0.1, 0.1]], requires_grad=True)
    (slope,) = torch.autograd.grad(simulated(mechanism, generator())(rows).square().sum(), rows)
    assert bool(torch.isfinite(slope).all())
    assert bool(slope[3].abs().min() > 0)


COUNT = 20_000
ROWS = np.array([[0.0, 0.0], [0.3, -0.4], [30.0, 40.0]])
DIRECTIONS = np.array([[1.0, 0.0], [0.6, 0.8], [-0.8, 0.6]])


def reports_in_training(mechanism: Trained, row: np.ndarray, seed: int = 1) -> np.ndarray:
    many = torch.tensor(np.tile(row, (COUNT, 1)))
    return simulated(mechanism, torch.Generator().manual_seed(seed))(many).numpy()


@every_mechanism
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_training_draws_from_the_law_of_the_mechanism(mechanism: Trained, row: np.ndarray) -> None:
    trained = reports_in_training(mechanism, row)
    released = mechanism.release(np.tile(row, (COUNT, 1)), np.random.default_rng(2))
    for direction in DIRECTIONS:
        pair = stats.ks_2samp(trained @ direction, released @ direction)
        assert pair.pvalue > ALPHA
    sizes = [np.linalg.norm(reports - row, axis=1) for reports in (trained, released)]
    assert stats.ks_2samp(*sizes).pvalue > ALPHA


@every_mechanism
def test_a_mechanism_with_a_tenth_more_budget_would_be_told_apart(
    mechanism: Trained,
) -> None:
    from dataclasses import replace

    name = "mu" if isinstance(mechanism, LocalGaussian) else "epsilon"
    broken = replace(mechanism, **{name: getattr(mechanism, name) * 1.15})
    row = ROWS[2]
    trained = reports_in_training(broken, row)
    released = mechanism.release(np.tile(row, (COUNT, 1)), np.random.default_rng(2))
    centre = released.mean(0)
    sizes = [np.linalg.norm(reports - centre, axis=1) for reports in (trained, released)]
    assert stats.ks_2samp(*sizes).pvalue < ALPHA
