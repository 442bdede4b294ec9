"""S4's linear figures: reports of wages, losses in closed form, household power."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from tacit.arrays import FloatArray
from tacit.datasets import load_household_power
from tacit.encoders.base import Strategy
from tacit.encoders.closed_forms import (
    privacy_agnostic_loss,
    task_agnostic_loss,
    task_aware_loss,
)
from tacit.encoders.designs import expected_loss
from tacit.encoders.linear_encoder import TaskAwareEncoder
from tacit.experiments.declared import Point
from tacit.privacy.budget import Budget
from tacit.privacy.mechanisms.local import LocalLaplace, LocalStaircase, PrivUnitG

Method = Strategy | Literal["tacit"]
AWARE: Strategy = "task-aware"
AGNOSTIC: Strategy = "task-agnostic"
BLIND: Strategy = "privacy-agnostic"
OURS: Literal["tacit"] = "tacit"
SCALE = 6.561  # kW, the largest load of an hour


# --- Figure 1: two people, two attributes ---------------------------------------------------------


def mean_wage(seed: int, epsilon: float, draws: int) -> Iterator[Point]:
    """The squared error of Alice and Bob's mean wage, ages and wages in declared ranges of ten."""
    rng = np.random.default_rng(seed)
    wages = np.tile([[31.0 - 36.0], [41.0 - 36.0]], (draws, 1))
    reported = {
        AGNOSTIC: wages + rng.laplace(0.0, 20.0 / epsilon, wages.shape),  # the ages cost half of ε
        AWARE: LocalLaplace(5.0, epsilon, (1.0,)).reports(wages, rng),
        OURS: LocalStaircase(5.0, epsilon).reports(wages, rng),
    }
    for curve, reports in reported.items():
        errors = (reports - wages).reshape(draws, 2).mean(axis=1)
        yield Point(curve, "squared error", float(np.mean(errors**2)))


# --- Figure 3: losses in closed form --------------------------------------------------------------


def theoretical(seed: int, setting: int, ratio: float) -> Iterator[Point]:
    """Eq. (13), (58) and (59) at r/ε, for λ = (4, k, k, k), k the setting less one; r = 1."""
    eigenvalues, epsilon = np.array([4.0] + 3 * [setting - 1.0]), 1 / ratio
    losses: dict[Method, float] = {
        AWARE: task_aware_loss(eigenvalues, 1.0, epsilon),
        AGNOSTIC: task_agnostic_loss(eigenvalues, 1.0, epsilon),
        BLIND: privacy_agnostic_loss(eigenvalues, 2, 1.0, epsilon),
    }
    losses[OURS] = min(losses[AWARE], _whole(eigenvalues, epsilon), _first(eigenvalues, epsilon))
    for curve, loss in losses.items():
        yield Point(curve, ratio, loss, f"setting {setting}")


def _whole(eigenvalues: FloatArray, epsilon: float) -> float:
    """All of h by PrivUnitG on the declared sphere: Σ λ_i σ_w²/(1 + σ_w²), Eq. (9)."""
    noise = float(PrivUnitG(1.0, epsilon).variance(1)[0])
    return float(eigenvalues.sum()) * noise / (1 + noise)


def _first(eigenvalues: FloatArray, epsilon: float) -> float:
    """The first coordinate of h by the staircase."""
    noise = float(LocalStaircase(1.0, epsilon).variance(1)[0])
    return float(eigenvalues[0] * noise / (1 + noise) + eigenvalues[1:].sum())


# --- Figure 4: household power, linear, in closed form --------------------------------------------


def power_loss(seed: int, method: Method, epsilon: float) -> Iterator[Point]:
    """Eq. (15) over 24 on the test days: exact, no noise is drawn."""
    fit, test, K = _power(seed)
    encoder = _encoder(method, epsilon, seed).fit(fit, target=K)
    yield Point(method, 1 / epsilon, expected_loss(encoder.design_, test, K) / 24)


def power_by_hour(seed: int, method: Method, epsilon: float) -> Iterator[Point]:
    """Eq. (15) by hour, without its weights."""
    fit, test, K = _power(seed)
    encoder = _encoder(method, epsilon, seed).fit(fit, target=K)
    for hour in range(24):
        unit = np.zeros((1, 24))
        unit[0, hour] = 1.0
        yield Point(method, hour + 1, expected_loss(encoder.design_, test, unit))


def power_time(seed: int) -> Iterator[Point]:
    """Table 1's line of household power: its samples, and the seconds of the closed form."""
    fit, test, K = _power(seed)
    start = time.perf_counter()
    _encoder(AWARE, 10.0, seed).fit(fit, target=K)
    yield Point(AWARE, "samples", float(len(fit) + len(test)), "household-power")
    yield Point(AWARE, "seconds", time.perf_counter() - start, "household-power")


def _power(seed: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    X = load_household_power().X / SCALE
    fit, test = np.split(np.random.default_rng(seed).permutation(len(X)), [int(0.7 * len(X))])
    day = np.isin(np.arange(1, 25), np.arange(9, 21))
    return X[fit], X[test], np.diag(np.where(day, 2.0, 1.0))


def _encoder(method: Method, epsilon: float, seed: int) -> TaskAwareEncoder:
    common: dict[str, Any] = {"noise": "simulated", "random_state": seed}
    if method == "tacit":
        return TaskAwareEncoder(Budget(epsilon, 0.0), **common)
    return TaskAwareEncoder(
        Budget(epsilon, 0.0),
        strategy=method,
        dimensions=3 if method == BLIND else None,
        as_published=True,
        **common,
    )


# --- Figures 5 to 8: encoders that are trained ----------------------------------------------------


def trained_loss(seed: int, **cell: Any) -> Iterator[Point]:
    """Needs PyTorch, so it comes when it is asked for."""
    from tacit.experiments.s4_networks import task_loss

    return task_loss(seed, **cell)


def training_time(seed: int, case: str, **cell: Any) -> Iterator[Point]:
    """Seconds of training, held against the paper's minute and hours; the closed forms need no
    PyTorch."""
    if case == "household-power":
        return power_time(seed)
    from tacit.experiments.s4_networks import timed

    return timed(seed, case, **cell)
