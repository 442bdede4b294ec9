"""S4's formulas against numeric optimisation, and against a literal transcription."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import ortho_group

from tacit.arrays import FloatArray
from tacit.encoders.closed_forms import spectrum, water_filling

SETTINGS = [(4.0, 0.0, 0.0, 0.0), (4.0, 1.0, 1.0, 1.0), (4.0, 2.0, 2.0, 2.0)]  # Fig. 3
RATIOS = np.linspace(0.02, 1.0, 50)  # r/ε


# --- the propositions, for the tests -------------------------------------------------------------


def optimal_decoder(E: FloatArray, noise: float) -> FloatArray:
    """D = Eᵀ(EEᵀ + σ_w² I)⁻¹ (Proposition 1)."""
    return np.asarray(np.linalg.solve(E @ E.T + noise * np.eye(len(E)), E).T)


def encoder_loss(P: FloatArray, E: FloatArray, noise: float) -> float:
    """Tr(PᵀP) − Tr(PᵀP Eᵀ(EEᵀ + σ_w² I)⁻¹E), Eq. (7); with E = L, Corollary 2."""
    return float(np.trace(P.T @ P) - np.trace(P.T @ P @ optimal_decoder(E, noise) @ E))


def diagonal_loss(eigenvalues: FloatArray, squares: FloatArray, noise: float) -> float:
    """Σ λ_i σ_w²/(σ_i² + σ_w²), Eq. (9); ``squares`` are σ_i², 0 beyond their end (Cor. 3)."""
    lost = np.ones(len(eigenvalues))
    lost[: len(squares)] = noise / (squares + noise)
    return float(eigenvalues @ lost)


def sensitivity(radius: float, squares: FloatArray) -> float:
    """Δ₁ = 2r √Σσ_i² for U = I, and no rotation U has less, Eq. (10)."""
    return 2 * radius * math.sqrt(float(np.sum(squares)))


def task_aware_loss(eigenvalues: FloatArray, radius: float, epsilon: float) -> float:
    """L(r; λ, ε) = level/(1 + Z' level) (Σ_{i ≤ Z'} √λ_i)² + Σ_{i > Z'} λ_i, Eq. (13)."""
    level = 8 * radius**2 / epsilon**2
    size = len(water_filling(eigenvalues, level))
    rest = float(eigenvalues[size:].sum())
    return level / (1 + size * level) * float(np.sqrt(eigenvalues[:size]).sum()) ** 2 + rest


def loss_bounds(
    eigenvalues: FloatArray, inner: float, outer: float, epsilon: float
) -> tuple[float, float]:
    """Bounds on the best loss of any encoder with Laplace noise: Theorem 1, Eq. (14).

    The boundary of the data's convex hull lies between the radii ``inner`` and ``outer``.
    """
    return (
        task_aware_loss(eigenvalues, inner, epsilon),
        task_aware_loss(eigenvalues, outer, epsilon),
    )


def task_agnostic_loss(eigenvalues: FloatArray, radius: float, epsilon: float) -> float:
    """n·level/(1 + n·level) Σλ_i: all n coordinates reported, Eq. (58); L = I."""
    return _equal_shares(eigenvalues, len(eigenvalues), radius, epsilon)


def privacy_agnostic_loss(
    eigenvalues: FloatArray, size: int, radius: float, epsilon: float
) -> float:
    """Z·level/(1 + Z·level) Σ_{i ≤ Z} λ_i + Σ_{i > Z} λ_i: a fixed Z, equal σ_i, Eq. (59)."""
    return _equal_shares(eigenvalues, size, radius, epsilon)


def _equal_shares(eigenvalues: FloatArray, size: int, radius: float, epsilon: float) -> float:
    level = 8 * radius**2 / epsilon**2
    return diagonal_loss(eigenvalues, np.full(size, 1 / size), level)


# --- and what is held against them ---------------------------------------------------------------


def literal_loss(eigenvalues: tuple[float, ...], ratio: float) -> float:
    """Eq. (11) to (13), written out as printed, M = 1."""
    t = 8 * ratio * ratio
    for Z in range(len(eigenvalues), 0, -1):
        total = sum(math.sqrt(v) for v in eigenvalues[:Z])
        if math.sqrt(eigenvalues[Z - 1]) / total * (1 + Z * t) - t > 0:
            return t / (1 + Z * t) * total**2 + sum(eigenvalues[Z:])
    raise AssertionError("Z' is at least 1")


@pytest.mark.parametrize("eigenvalues", SETTINGS)
def test_the_curves_of_figure_3_are_those_of_the_formulas(eigenvalues: tuple[float, ...]) -> None:
    lam = np.array(eigenvalues)
    for ratio in RATIOS:
        t = 8 * ratio**2
        aware = task_aware_loss(lam, ratio, 1.0)
        assert aware == pytest.approx(literal_loss(eigenvalues, ratio), abs=1e-6)
        agnostic = 4 * t / (1 + 4 * t) * sum(eigenvalues)
        assert task_agnostic_loss(lam, ratio, 1.0) == pytest.approx(agnostic, abs=1e-6)
        blind = 2 * t / (1 + 2 * t) * sum(eigenvalues[:2]) + sum(eigenvalues[2:])
        assert privacy_agnostic_loss(lam, 2, ratio, 1.0) == pytest.approx(blind, abs=1e-6)
        assert aware <= min(agnostic, blind) + 1e-12


@pytest.mark.parametrize("eigenvalues", SETTINGS)
@pytest.mark.parametrize("ratio", [0.05, 0.2, 0.6, 1.0])
def test_water_filling_is_the_numeric_minimum(eigenvalues: tuple[float, ...], ratio: float) -> None:
    """Proposition 4: Eq. (9) over the simplex, by SLSQP from several starts."""
    lam, noise = np.array(eigenvalues), 8 * ratio**2
    found = water_filling(lam, noise)
    assert found.sum() == pytest.approx(1.0)
    mine = diagonal_loss(lam, found, noise)
    assert mine == pytest.approx(task_aware_loss(lam, ratio, 1.0), rel=1e-12)
    for start in np.random.default_rng(0).dirichlet(np.ones(4), 4):
        best = minimize(
            lambda s: diagonal_loss(lam, s, noise), start, bounds=[(0, 1)] * 4, tol=1e-12,
            constraints={"type": "eq", "fun": lambda s: s.sum() - 1},
        )  # fmt: skip
        assert mine <= best.fun + 1e-7
    assert mine == pytest.approx(best.fun, abs=1e-5)


def l1_diameter(axes: FloatArray, U: FloatArray) -> float:
    """max ‖U diag(a)(h − h')‖₁ over the unit ball: 2 max over signs u of ‖diag(a)Uᵀu‖₂."""
    n = len(axes)
    signs = 1 - 2.0 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
    return float(2 * np.linalg.norm(signs @ U * axes, axis=1).max())


@pytest.mark.parametrize("n", [2, 3, 4])
def test_no_rotation_has_a_smaller_sensitivity_than_none(n: int) -> None:
    """Proposition 3: U = I, against random rotations and a local search from the best of them."""
    rng = np.random.default_rng(n)
    axes = rng.uniform(0.2, 2.0, n)
    known = sensitivity(1.0, axes**2)
    assert l1_diameter(axes, np.eye(n)) == pytest.approx(known)
    rotations = ortho_group.rvs(n, size=300, random_state=rng)
    assert min(l1_diameter(axes, U) for U in rotations) >= known - 1e-12

    def turned(angles: FloatArray) -> float:
        S = np.zeros((n, n))
        S[np.triu_indices(n, 1)] = angles
        skew = S - S.T
        U = np.linalg.solve(np.eye(n) + skew, np.eye(n) - skew)  # Cayley: a rotation
        return l1_diameter(axes, np.asarray(U, dtype=np.float64))

    for start in rng.standard_normal((5, n * (n - 1) // 2)):
        assert minimize(turned, start, method="Nelder-Mead").fun >= known - 1e-9


def test_the_decoder_is_the_numeric_minimum() -> None:
    """Proposition 1, against perturbations, and Eq. (7) against Eq. (18)."""
    rng = np.random.default_rng(0)
    P, E, noise = rng.standard_normal((2, 3)), rng.standard_normal((2, 3)), 0.7

    def loss(D: FloatArray) -> float:  # Eq. (18)
        R = D @ E - np.eye(3)
        return float(np.trace(P @ R @ R.T @ P.T) + noise * np.trace(P @ D @ D.T @ P.T))

    D = optimal_decoder(E, noise)
    assert loss(D) == pytest.approx(encoder_loss(P, E, noise))
    assert all(loss(D + 1e-3 * rng.standard_normal(D.shape)) >= loss(D) for _ in range(50))


def test_the_eigenbasis_beats_every_other_rotation() -> None:
    """Proposition 2."""
    rng = np.random.default_rng(1)
    P, squares, noise = rng.standard_normal((3, 3)), np.array([1.0, 0.5, 0.1]), 0.3
    eigenvalues = np.sort(np.linalg.eigvalsh(P.T @ P))[::-1]
    best = diagonal_loss(eigenvalues, squares, noise)
    for V in ortho_group.rvs(3, size=200, random_state=rng):
        assert encoder_loss(P, np.sqrt(squares)[:, None] * V.T, noise) >= best - 1e-12


def test_the_spectrum_whitens_and_keeps_the_loss() -> None:
    rng = np.random.default_rng(2)
    A, K = rng.standard_normal((4, 4)), rng.standard_normal((2, 4))
    found = spectrum(np.zeros(4), A @ A.T, K)
    np.testing.assert_allclose(found.whiten @ A @ A.T @ found.whiten.T, np.eye(4), atol=1e-9)
    np.testing.assert_allclose(found.whiten @ found.colour, np.eye(4), atol=1e-9)
    metric = (K @ found.colour).T @ (K @ found.colour)
    np.testing.assert_allclose(metric, np.diag(found.eigenvalues), atol=1e-9)
    assert found.relevant == 2


def test_theorem_1_brackets_a_sphere_between_two() -> None:
    lam = np.array([4.0, 1.0, 0.5])
    low, high = loss_bounds(lam, 0.5, 2.0, 3.0)
    assert low < task_aware_loss(lam, 1.0, 3.0) < high
    assert loss_bounds(lam, 1.0, 1.0, 3.0) == (task_aware_loss(lam, 1.0, 3.0),) * 2


def test_water_filling_of_nothing_is_nothing() -> None:
    assert len(water_filling(np.zeros(0), 1.0)) == len(water_filling(np.zeros(3), 1.0)) == 0
    np.testing.assert_allclose(water_filling(np.array([3.0]), 100.0), [1.0])
    np.testing.assert_allclose(water_filling(np.array([1.0, 1.0]), 9.0), [0.5, 0.5])
