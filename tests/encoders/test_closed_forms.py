"""S4's formulas against numeric optimisation, and against a literal transcription."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import ortho_group

from tacit.arrays import FloatArray
from tacit.encoders.closed_forms import (
    privacy_agnostic_loss,
    spectrum,
    task_agnostic_loss,
    task_aware_loss,
    water_filling,
)
from tacit.encoders.hull import hull_radii, loss_bounds

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


def support(h: FloatArray, directions: FloatArray) -> FloatArray:
    """How far the hull of h reaches in each direction (u, k), each of length one."""
    return np.asarray((directions @ h.T).max(axis=1))


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_the_inner_sphere_is_inside_the_hull_and_a_larger_one_is_not(k: int) -> None:
    rng = np.random.default_rng(k)
    h = rng.standard_normal((60 * k, k)) * np.linspace(1, 3, k)
    h -= h.mean(axis=0)
    radii = hull_radii(h)
    directions = rng.standard_normal((20_000, k))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    reach = support(h, directions)
    lowest = minimize(
        lambda u: float(support(h, u[None] / np.linalg.norm(u))[0]),
        directions[reach.argmin()],
        method="Nelder-Mead",
        options={"maxiter": 4000},
    ).fun
    assert 0 < radii.inner <= lowest * (1 + 1e-9)
    assert radii.inner <= radii.inner_at_most <= radii.outer == np.linalg.norm(h, axis=1).max()
    if k <= 5:
        assert radii.inner == pytest.approx(lowest, rel=0.03)  # which is a local minimum
        assert radii.inner == pytest.approx(radii.inner_at_most, rel=1e-6)
    else:
        assert radii.inner_at_most < 1.5 * lowest


def test_of_a_cube_it_touches_the_faces_and_of_a_half_space_it_is_nothing() -> None:
    cube = np.asarray(1 - 2.0 * ((np.arange(2**6)[:, None] >> np.arange(6)) & 1), dtype=np.float64)
    found = hull_radii(cube)
    assert found.inner <= 1 <= found.inner_at_most
    assert found.outer == pytest.approx(math.sqrt(6))
    assert hull_radii(np.vstack([np.eye(6), np.zeros(6)])).inner == 0


@pytest.mark.parametrize("epsilon", [1.0, 5.0, 20.0])
def test_theorem_1_bounds_every_encoder_from_below_and_the_paper_s_from_above(
    epsilon: float,
) -> None:
    rng = np.random.default_rng(0)
    X, K = rng.uniform(-1, 1, (80, 3)) @ rng.standard_normal((3, 3)), rng.standard_normal((2, 3))
    ((lower, upper),) = loss_bounds(X, K, [epsilon])
    found = spectrum(X.mean(axis=0), np.cov(X.T, bias=True), K)
    h, P = (X - found.mean) @ found.whiten.T, K @ found.colour

    def loss(E: FloatArray) -> float:
        phi = h @ E.T
        widest = max(float(np.abs(phi - row).sum(axis=1).max()) for row in phi)
        return encoder_loss(P, E, 2 * (widest / epsilon) ** 2)

    outer = float(np.linalg.norm(h, axis=1).max())
    squares = water_filling(found.eigenvalues, 8 * outer**2 / epsilon**2)
    paper = np.diag(np.sqrt(np.append(squares, np.zeros(3 - len(squares)))))
    assert lower <= loss(paper) <= upper * (1 + 1e-12)
    tried = [paper, *rng.standard_normal((60, 3, 3))]
    best = min(loss(E) for E in tried)
    polished = minimize(lambda E: loss(E.reshape(3, 3)), paper.ravel() + 0.01, method="Nelder-Mead")
    assert lower <= min(best, polished.fun)
    assert lower > 0.02 * upper


def test_water_filling_of_nothing_is_nothing() -> None:
    assert len(water_filling(np.zeros(0), 1.0)) == len(water_filling(np.zeros(3), 1.0)) == 0
    np.testing.assert_allclose(water_filling(np.array([3.0]), 100.0), [1.0])
    np.testing.assert_allclose(water_filling(np.array([1.0, 1.0]), 9.0), [0.5, 0.5])
