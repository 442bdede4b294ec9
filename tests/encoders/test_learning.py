"""Algorithm 1: its gradient, and the closed form it should reach."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tacit.encoders.linear_encoder import TaskAwareEncoder as ClosedForm
from tacit.encoders.mechanism_choice import best_mechanism
from tacit.encoders.neural.learning import Learned, Perturb, Training, unperturbed
from tacit.encoders.neural.modules import network
from tacit.encoders.neural.task import Problem, squared_loss
from tacit.errors import InvalidInput
from tacit.neural import TaskAwareEncoder
from tacit.privacy.budget import Budget


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def linear_task(matrix: np.ndarray) -> nn.Linear:
    """y = K x as a module."""
    layer = nn.Linear(matrix.shape[1], matrix.shape[0], bias=False).double()
    layer.weight.data = torch.tensor(matrix, dtype=torch.float64)
    return layer


def small_problem() -> tuple[nn.Sequential, nn.Sequential, Problem]:
    rows = torch.randn(20, 3, generator=generator(), dtype=torch.float64)
    target = linear_task(np.array([[1.0, -2.0, 0.5]])).requires_grad_(False)
    encoder = network((3, 4, 2), "tanh", generator(1)).double()
    decoder = network((2, 3), "tanh", generator(2)).double()
    zero = torch.zeros(3, dtype=torch.float64)
    problem = Problem(rows, target(rows), target, squared_loss, zero, zero + 1)
    return encoder, decoder, problem


def trained(problem: Problem, *schedule: Any) -> Training:
    """With (epochs, steps, learning rate, batch, η)."""
    return Training(problem, generator(), *schedule)


def test_a_step_follows_the_gradient_of_the_loss_plus_two_eta_theta_for_the_encoder_only() -> None:
    encoder, decoder, problem = small_problem()
    value = problem.risk(decoder(encoder(problem.rows)))
    parameters = [*encoder.parameters(), *decoder.parameters()]
    plain = torch.autograd.grad(value, parameters)
    eta, encoders = 0.3, len([*encoder.parameters()])
    expected = [g + 2 * eta * p for g, p in zip(plain, parameters, strict=True)]
    expected[encoders:] = plain[encoders:]
    before = [p.detach().clone() for p in parameters]
    trained(problem, 1, 1, 1e-3, 100, eta).run(encoder, decoder, lambda _: unperturbed)
    for old, new, gradient in zip(before, parameters, expected, strict=True):
        # Adam's first step is lr · g/(|g| + 1e-8)
        step = 1e-3 * gradient / (gradient.abs() + 1e-8)
        assert torch.allclose(old - new.detach(), step, rtol=1e-6, atol=1e-12)


def test_a_fixed_encoder_is_not_changed() -> None:
    encoder, decoder, problem = small_problem()
    before = [p.detach().clone() for p in encoder.parameters()]
    training = trained(problem, 5, 2, 1e-2, 7, 0.1)
    training.run(encoder, decoder, lambda _: unperturbed, fixed=True)
    assert all(torch.equal(a, b) for a, b in zip(before, encoder.parameters(), strict=True))


def test_noise_is_refreshed_at_every_epoch_and_drawn_at_every_step() -> None:
    encoder, decoder, problem = small_problem()
    epochs, steps = [], []

    def refresh(_: nn.Module) -> Perturb:
        epochs.append(1)

        def perturb(latent: Tensor) -> Tensor:
            steps.append(len(latent))
            return latent

        return perturb

    trained(problem, 3, 4, 1e-3, 100, 0.0).run(encoder, decoder, refresh)
    assert (len(epochs), steps) == (3, [20] * 12)


def test_a_loss_that_is_not_finite_stops_the_training() -> None:
    encoder, decoder, problem = small_problem()
    with pytest.raises(InvalidInput, match="became"):
        trained(problem, 1, 1, 1e-3, 100, 0.0).run(
            encoder, decoder, lambda _: lambda latent: latent * math.inf
        )


def test_equal_seeds_give_equal_networks_and_leave_the_global_generator_alone() -> None:
    state = torch.get_rng_state()
    one, two = (network((4, 3), "relu", generator(5)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert torch.equal(state, torch.get_rng_state())


# --- as printed ----------------------------------------------------------------------------------


class Adam:
    """Kingma and Ba's, at a constant rate."""

    def __init__(self, parameters: list[Tensor], rate: float) -> None:
        self.parameters, self.rate, self.count = parameters, rate, 0
        self.first = [torch.zeros_like(p) for p in parameters]
        self.second = [torch.zeros_like(p) for p in parameters]

    def step(self, gradients: list[Tensor]) -> None:
        self.count += 1
        for i, g in enumerate(gradients):
            self.first[i] = 0.9 * self.first[i] + 0.1 * g
            self.second[i] = 0.999 * self.second[i] + 0.001 * g * g
            mean = self.first[i] / (1 - 0.9**self.count)
            root = torch.sqrt(self.second[i] / (1 - 0.999**self.count))
            self.parameters[i] = self.parameters[i] - self.rate * mean / (root + 1e-8)


def forward(theta: list[Tensor], x: Tensor) -> Tensor:
    """One layer, or two with a ReLU between them."""
    for k in range(0, len(theta), 2):
        x = torch.relu(x) if k else x
        x = x @ theta[k].T + theta[k + 1]
    return x


class Literally:
    """Algorithm 1 and A.7.4 of S4, line by line."""

    eta, rate, epochs, steps, epsilon = 0.2, 1e-3, 4, 3, 3.0

    def __init__(self, x: Tensor, K: Tensor, coins: torch.Generator) -> None:
        self.x, self.K, self.coins = x, K, coins

    def noise(self, theta_e: list[Tensor]) -> Tensor:
        """Line 4: Δ₁ of all pairs, and a w for each row."""
        phi = forward(theta_e, self.x)
        widest = max(float((one - other).abs().sum()) for one in phi for other in phi)
        one = torch.empty_like(phi).exponential_(generator=self.coins)
        return (one - torch.empty_like(phi).exponential_(generator=self.coins)) * (
            widest / self.epsilon
        )

    def train(
        self, theta_e: list[Tensor], theta_d: list[Tensor], *, eta: float, noisy: bool, fixed: bool
    ) -> tuple[list[Tensor], list[Tensor]]:
        size = len(theta_e)
        adam = Adam([*theta_e, *theta_d], self.rate)
        for _ in range(self.epochs):  # line 2
            w = self.noise(adam.parameters[:size]) if noisy else torch.zeros(())
            for _ in range(self.steps):  # line 3
                theta = [p.clone().requires_grad_() for p in adam.parameters]
                estimates = forward(theta[size:], forward(theta[:size], self.x) + w)
                loss = (((estimates - self.x) @ self.K.T) ** 2).sum(1).mean()
                slopes = list(torch.autograd.grad(loss, theta))
                for i in range(size):
                    slopes[i] = slopes[i] * 0 if fixed else slopes[i] + 2 * eta * theta[i]
                adam.step([slope.detach() for slope in slopes])
        return [p.detach() for p in adam.parameters[:size]], adam.parameters[size:]


@pytest.mark.parametrize("strategy", ["task-aware", "privacy-agnostic", "task-agnostic"])
@pytest.mark.parametrize("hidden", [None, 4])
def test_as_published_is_algorithm_1_line_by_line(strategy: Any, hidden: int | None) -> None:
    X = np.random.default_rng(0).normal(size=(11, 3))
    K = torch.tensor([[1.0, -2.0, 0.5], [0.0, 1.0, 1.0]], dtype=torch.float64)
    encoder = TaskAwareEncoder(
        Budget(Literally.epsilon, 0.0),
        strategy=strategy,
        dimensions=2,
        hidden=hidden,
        activation="relu",
        regularization=Literally.eta,
        epochs=Literally.epochs,
        steps=Literally.steps,
        learning_rate=Literally.rate,
        as_published=True,
        noise="simulated",
        random_state=7,
    ).fit(X, target=linear_task(K.numpy()))
    coins, middle = generator(7), [] if hidden is None else [hidden]
    sizes = [3, *middle, 3 if strategy == "task-agnostic" else 2]
    theta_e = [torch.eye(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)]
    if strategy != "task-agnostic":
        start = network(sizes, "relu", coins).double()
        theta_e = [p.detach() for p in start.parameters()]
    theta_d = [p.detach() for p in network(sizes[::-1], "relu", coins).double().parameters()]
    slow = Literally(torch.tensor(X), K, coins)
    if strategy == "privacy-agnostic":
        theta_e, theta_d = slow.train(theta_e, theta_d, eta=0.0, noisy=False, fixed=False)
    aware = strategy == "task-aware"
    eta = Literally.eta if aware else 0.0
    theta_e, theta_d = slow.train(theta_e, theta_d, eta=eta, noisy=True, fixed=not aware)
    for theta, layers in ((theta_e, encoder.design_.encoder), (theta_d, encoder.design_.decoder)):
        found = [each for layer in layers for each in (layer.weight, layer.bias)]
        for expected, got in zip(theta, found, strict=True):
            np.testing.assert_allclose(got, expected.numpy(), atol=1e-10, rtol=0)


# --- limits --------------------------------------------------------------------------------------


def closed_form(eigenvalues: list[float], radius: float, epsilon: float) -> float:
    """S4 Eqs. 12 and 13, literally."""
    ratio = 8 * radius**2 / epsilon**2
    roots = [math.sqrt(value) for value in sorted(eigenvalues, reverse=True)]
    kept = max(
        z
        for z in range(1, len(roots) + 1)
        if roots[z - 1] / sum(roots[:z]) * (1 + z * ratio) - ratio > 0
    )
    rest = sum(root**2 for root in roots[kept:])
    return ratio / (1 + kept * ratio) * sum(roots[:kept]) ** 2 + rest


def on_a_sphere(count: int, dim: int) -> np.ndarray:
    """Rows with Σ = I and ∂S a sphere of radius √dim (S4 Assumption 1)."""
    rows = np.random.default_rng(0).normal(size=(count // 2, dim))
    rows *= np.sqrt(dim) / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.vstack([rows, -rows])


def published_loss(weights: list[float], width: int, epsilon: float) -> float:
    encoder = TaskAwareEncoder(
        Budget(epsilon, 0.0),
        dimensions=width,
        as_published=True,
        noise="simulated",
        regularization=1e-3,
        epochs=60,
        steps=10,
        random_state=0,
    )
    return encoder.fit(on_a_sphere(500, 3), target=linear_task(np.diag(weights))).predicted_loss_


def test_published_training_reaches_the_closed_form_where_one_number_is_enough() -> None:
    expected = closed_form([4.0, 0.01, 0.01], 3**0.5, 5.0)
    assert published_loss([2.0, 0.1, 0.1], 1, 5.0) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("epsilon", [5.0, 20.0])
def test_published_training_lies_between_the_best_and_the_worst_rotation(epsilon: float) -> None:
    # Its gradient does not see Δ₁, so U of Proposition 3 stays where it started; a rotation
    # raises Δ₁ by √3 at most.
    best = closed_form([4.0, 1.0, 0.25], 3**0.5, epsilon)
    worst = closed_form([4.0, 1.0, 0.25], 3.0, epsilon)
    assert 0.98 * best < published_loss([2.0, 1.0, 0.5], 3, epsilon) < 1.02 * worst


def test_a_trained_linear_encoder_is_at_least_as_good_as_the_best_linear_one_without_clipping() -> (
    None
):
    # All of a sphere of radius √d is scaled to the unit ball: λ v/(1/d + v) for each eigenvalue λ,
    # v the variance of a coordinate of the noise.
    budget = Budget(8.0, 1e-5)
    K = np.diag([2.0, 1.0, 0.5])
    variance = float(best_mechanism("gaussian", budget, 3, 1).variance(3)[0])
    best = float(np.sum(np.diag(K) ** 2 * variance / (1 / 3 + variance)))
    encoder = TaskAwareEncoder(
        budget, dimensions=3, mechanism="gaussian", epochs=600, noise="simulated", random_state=0
    ).fit(on_a_sphere(1000, 3), target=linear_task(K))
    assert 0.5 * best < encoder.predicted_loss_ < 1.02 * best


def test_a_trained_linear_encoder_approaches_the_closed_form_learner_on_a_linear_task() -> None:
    rng = np.random.default_rng(0)
    X, K = rng.normal(size=(600, 4)) @ rng.normal(size=(4, 4)), np.diag([1.0, 2.0, 0.5, 0.5])[:3]
    budget = Budget(8.0, 0.0)
    designed = ClosedForm(budget, mechanism="privunit").fit(X, target=K)
    encoder = TaskAwareEncoder(
        budget, mechanism="privunit", dimensions=3, epochs=600, regularization=0.0, random_state=0
    ).fit(X, target=linear_task(K).float())
    assert 0.9 < encoder.predicted_loss_ / designed.predicted_loss_ < 1.03


def test_without_noise_left_task_aware_is_privacy_agnostic() -> None:
    X = np.random.default_rng(1).normal(size=(300, 4))
    K = np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 1.0, -1.0, 2.0]])
    losses = {}
    for strategy, epsilon in [("task-aware", 1e6), ("privacy-agnostic", 1e6), ("none", None)]:
        encoder = TaskAwareEncoder(
            None if epsilon is None else Budget(epsilon, 0.0),
            strategy="task-aware" if strategy == "none" else strategy,  # type: ignore[arg-type] # two of three names
            dimensions=2,
            mechanism="laplace",
            regularization=0.0,
            epochs=500,
            noise="simulated",
            random_state=0,
        ).fit(X, target=linear_task(K))
        losses[strategy] = encoder.predicted_loss_
    power = float(np.mean(np.sum((X @ K.T) ** 2, axis=1)))
    assert max(losses["none"], losses["privacy-agnostic"]) < 1e-6 * power  # two numbers suffice
    assert losses["task-aware"] < 0.02 * power  # the outermost rows leave the ball last


def test_expected_loss_averages_the_noise() -> None:
    encoder, decoder, problem = small_problem()
    signs = iter([1.0, -1.0] * 2)
    offsets = [
        Learned(encoder, decoder, lambda latent: latent + next(signs), []).expected_loss(
            problem, draws
        )
        for draws in (1, 2)
    ]
    assert offsets[0] != offsets[1]
