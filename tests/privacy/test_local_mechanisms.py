"""Local mechanisms: exact density ratios, closed-form moments, what they refuse."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate
from scipy.optimize import minimize_scalar
from scipy.special import ndtr

from tacit.arrays import FloatArray
from tacit.errors import InvalidInput
from tacit.privacy.accounting import Gaussian, Pure
from tacit.privacy.mechanisms.local import (
    LocalGaussian,
    LocalKNorm,
    LocalLaplace,
    LocalMechanism,
    LocalStaircase,
    PrivUnitG,
    SampledLaplace,
    best_threshold,
    expected_lean,
    mechanism_from_dict,
)

R, EPSILON = 1.5, 1.3
PURE: list[LocalMechanism] = [
    LocalLaplace(R, EPSILON, (1.0, 1.0)),
    LocalLaplace(R, EPSILON, (2.0, 0.5)),
    LocalKNorm(R, EPSILON),
    PrivUnitG(R, EPSILON),
]
ALL = [*PURE, LocalGaussian(R, 0.7)]
named = pytest.mark.parametrize("mechanism", PURE, ids=repr)
every = pytest.mark.parametrize("mechanism", ALL, ids=repr)


def ball(radius: float, count: int = 12) -> FloatArray:
    """Points of a disc: its centre, circles inside it, its boundary."""
    angles = np.linspace(0, 2 * np.pi, count, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return np.vstack([np.zeros((1, 2)), *(s * radius * circle for s in (0.4, 0.9, 1.0))])


def plane(reach: float, count: int = 61) -> FloatArray:
    axis = np.linspace(-reach, reach, count)
    return np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)


def largest_log_ratio(mechanism: LocalMechanism, users: FloatArray, reports: FloatArray) -> float:
    logs = np.stack([mechanism.log_density(reports, user) for user in users])
    return float((logs.max(axis=0) - logs.min(axis=0)).max())


# --- ε -------------------------------------------------------------------------------------------


@named
def test_no_two_users_have_densities_more_than_epsilon_apart(mechanism: LocalMechanism) -> None:
    found = largest_log_ratio(mechanism, ball(R), plane(12.0))
    assert found <= EPSILON + 1e-9


@named
def test_some_two_users_are_nearly_epsilon_apart(mechanism: LocalMechanism) -> None:
    users = ball(R)
    if isinstance(mechanism, LocalLaplace):  # the worst direction of Proposition 3
        worst = R * np.asarray(mechanism.weights) / math.hypot(*mechanism.weights)
        users = np.vstack([users, worst, -worst])
    assert largest_log_ratio(mechanism, users, plane(12.0)) > 0.999 * EPSILON


@pytest.mark.parametrize("epsilon", [0.2, 1.3, 6.0])
def test_the_staircase_goes_down_one_stair_at_most(epsilon: float) -> None:
    mechanism = LocalStaircase(R, epsilon)
    users, reports = np.linspace(-R, R, 41)[:, None], np.linspace(-20, 20, 4001)[:, None]
    found = largest_log_ratio(mechanism, users, reports)
    assert found == pytest.approx(epsilon)
    far = np.array([[-1.2 * R], [1.2 * R]])
    assert largest_log_ratio(mechanism, far, reports) > 1.5 * epsilon


@pytest.mark.parametrize("epsilon", [0.2, 1.3, 6.0, 30.0])
def test_the_staircase_has_the_least_variance_of_all_steps(epsilon: float) -> None:
    """The closed forms of γ and of the variance, against a sum over stairs for any γ."""
    mechanism, b = LocalStaircase(1.0, epsilon), math.exp(-epsilon)

    def variance(step: float) -> float:
        k = np.arange(800)
        low, high = ((k + step) ** 3 - k**3) / 3, ((k + 1) ** 3 - (k + step) ** 3) / 3
        return float((1 - b) / (step + b * (1 - step)) * 4 * (b**k * (low + b * high)).sum())

    assert variance(mechanism.step) == pytest.approx(mechanism.variance(1)[0], rel=1e-6)
    others = mechanism.step * np.array([0.8, 0.95, 1.05, 1.2])
    assert min(variance(step) for step in others) > mechanism.variance(1)[0]
    assert mechanism.variance(1)[0] < LocalLaplace(1.0, epsilon, (1.0,)).variance(1)[0]


def test_the_staircase_reports_one_number_only() -> None:
    with pytest.raises(InvalidInput, match="one number, got 2"):
        LocalStaircase(1.0, 1.0).release(np.zeros((1, 2)), None)
    with pytest.raises(InvalidInput, match="at most 60"):
        LocalStaircase(1.0, 61.0)


def test_a_user_outside_the_ball_would_break_the_ratio() -> None:
    far = np.array([[1.3 * R, 0.0], [-1.3 * R, 0.0]])
    assert largest_log_ratio(LocalKNorm(R, EPSILON), far, plane(12.0)) > 1.2 * EPSILON


@named
def test_one_dimension_has_the_same_epsilon(mechanism: LocalMechanism) -> None:
    if isinstance(mechanism, LocalLaplace):
        mechanism = LocalLaplace(R, EPSILON, (0.3,))
    users, reports = np.linspace(-R, R, 21)[:, None], np.linspace(-20, 20, 801)[:, None]
    assert 0.999 * EPSILON < largest_log_ratio(mechanism, users, reports) <= EPSILON + 1e-9


def test_the_published_sensitivity_fails_for_a_user_outside_the_sample() -> None:
    mechanism = SampledLaplace(2.0, EPSILON, as_published=True)  # samples in [−1, 1]
    users = np.array([[-1.0], [3.0]])
    found = largest_log_ratio(mechanism, users, np.linspace(-9, 9, 181)[:, None])
    assert found == pytest.approx(2 * EPSILON)
    assert not mechanism.proven


@every
def test_densities_integrate_to_one(mechanism: LocalMechanism) -> None:
    if isinstance(mechanism, LocalLaplace):
        mechanism = LocalLaplace(R, EPSILON, (0.3,))
    row = np.array([0.6 * R])

    def density(x: float) -> float:
        return math.exp(float(mechanism.log_density(np.array([[x]]), row)[0]))

    total = sum(
        integrate.quad(density, *ends, limit=200)[0] for ends in pairwise([-90, 0, row[0], 5, 90])
    )
    assert total == pytest.approx(1.0, abs=1e-7)


@every
def test_the_density_has_the_mean_and_variance_that_is_said(mechanism: LocalMechanism) -> None:
    if isinstance(mechanism, LocalLaplace):
        mechanism = LocalLaplace(R, EPSILON, (0.3,))
    row = np.array([0.6 * R])
    x = np.linspace(-90, 90, 400_001)[:, None]
    weight = np.exp(mechanism.log_density(x, row)) * (x[1] - x[0])
    mean = float(weight @ x[:, 0])
    assert mean == pytest.approx(row[0], abs=1e-4)
    variance = float(weight @ (x[:, 0] - mean) ** 2)
    assert variance == pytest.approx(mechanism.variance(1)[0], rel=1e-4)


# --- PrivUnitG's constants -----------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 5.0, 20.0, 300.0])
def test_the_threshold_maximises_the_lean_and_equals_it(epsilon: float) -> None:
    best = best_threshold(epsilon)
    assert expected_lean(best, epsilon) == pytest.approx(best, rel=1e-9)
    found = minimize_scalar(
        lambda g: -expected_lean(g, epsilon), bounds=(0, 40), method="bounded",
        options={"xatol": 1e-10},
    )  # fmt: skip
    assert expected_lean(best, epsilon) >= -found.fun - 1e-12


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0, 40.0])
def test_the_coin_makes_the_ratio_of_levels_epsilon_and_never_more(epsilon: float) -> None:
    mechanism = PrivUnitG(1.0, epsilon)
    low, high = mechanism._log_levels()
    assert high - low == pytest.approx(epsilon, rel=1e-8)
    p, tail = mechanism.above, float(ndtr(-mechanism.lean))
    assert p * (1 - tail) / ((1 - p) * tail) <= math.exp(epsilon) * (1 + 1e-12)


def test_the_squared_errors_in_thirty_dimensions_are_the_known_ones() -> None:
    errors = [
        m.variance(30).sum()
        for m in (PrivUnitG(1.0, 1.0), LocalKNorm(1.0, 1.0), LocalLaplace(1.0, 1.0, (1.0,) * 30))
    ]
    np.testing.assert_allclose(errors, [190, 3720, 7200], rtol=2e-3)


# --- releases ------------------------------------------------------------------------------------


@every
def test_rows_beyond_the_ball_are_clipped_and_broken_ones_are_zero(
    mechanism: LocalMechanism,
) -> None:
    rows = np.array([[3 * R, 4 * R], [0.6 * R, 0.8 * R], [np.nan, 1.0], [0.0, 0.0]])
    far, near, broken, zero = (
        mechanism.release(np.repeat(row[None], 3, axis=0), np.random.default_rng(7)) for row in rows
    )
    np.testing.assert_allclose(far, near, atol=1e-6)
    np.testing.assert_array_equal(broken, zero)


@every
def test_secure_reports_lie_on_the_public_grid(mechanism: LocalMechanism) -> None:
    reports = mechanism.release(np.full((50, 2), 0.1), None)
    scale = getattr(mechanism, "scale", None) or getattr(mechanism, "sigma", None)
    scale = R / mechanism.lean if isinstance(mechanism, PrivUnitG) else scale
    assert scale is not None
    steps = reports * np.asarray(getattr(mechanism, "weights", 1.0)) / (scale / 2**26)
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-6 * np.abs(steps).max())


def test_no_rows_and_many_blocks_keep_their_shape() -> None:
    for mechanism in ALL:
        assert mechanism.release(np.zeros((0, 2)), None).shape == (0, 2)
        rows = np.zeros((200_000, 2))
        assert mechanism.release(rows, np.random.default_rng(0)).shape == rows.shape


def test_events_secure_noise_and_records_say_what_is_true() -> None:
    assert [m.event("replace") for m in ALL] == [Pure(EPSILON)] * 4 + [Gaussian(0.7)]
    assert [m.secure(None) for m in ALL] == [True, True, False, True, True]
    assert not any(m.secure(np.random.default_rng(0)) for m in ALL)
    assert all(bool(m.reason) != m.secure(None) for m in ALL)
    assert [mechanism_from_dict(m.to_dict()) for m in ALL] == ALL


@every
def test_zero_out_and_shares_are_refused(mechanism: LocalMechanism) -> None:
    with pytest.raises(InvalidInput, match="any two vectors"):
        mechanism.event("zero-out")
    with pytest.raises(InvalidInput, match="whole event"):
        mechanism.release(np.zeros((1, 2)), None, np.array([0.5]))


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(InvalidInput, match="radius"):
        LocalKNorm(0.0, 1.0)
    with pytest.raises(InvalidInput, match="at most 500"):
        PrivUnitG(1.0, 501.0)
    with pytest.raises(InvalidInput, match="weight"):
        LocalLaplace(1.0, 1.0, (1.0, 0.0))
    with pytest.raises(InvalidInput, match="3 coordinates, the weights 2"):
        LocalLaplace(1.0, 1.0, (1.0, 1.0)).release(np.zeros((1, 3)), None)
    with pytest.raises(InvalidInput, match="as_published=True"):
        SampledLaplace(1.0, 1.0)
    with pytest.raises(InvalidInput, match="simulated"):
        SampledLaplace(1.0, 1.0, as_published=True).release(np.zeros((1, 1)), None)
