"""S1's theorems as numbers: against their own minima, against each other, and by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from tacit.errors import InvalidInput
from tacit.learners.model_protected.bounds import (
    Setting,
    contraction,
    convex_error,
    convex_exponent,
    convex_rounds,
    group_sparse_error,
    low_rank_error,
    strongly_convex_error,
    strongly_convex_rounds,
    suggested_rounds,
    table_2,
    table_2_exponent,
)
from tacit.learners.model_protected.covariance_schedule import recommended
from tacit.linear.covariance_maps import applied, group_map, trace_map
from tacit.linear.penalties import GroupNorm, Penalty, TraceNorm

MANY = Setting("low rank", 10**12, 30, 5, 1.0, 1e-5)  # enough tasks: M < 1
SETTINGS = [
    MANY,
    replace(MANY, pattern="group sparse", n_tasks=10**6),
    replace(MANY, delta=0.0),
    replace(MANY, pattern="group sparse", n_tasks=10**6, delta=0.0),
    replace(MANY, composition="log 1/δ"),
    replace(MANY, composition="sum"),
]


@pytest.mark.parametrize("accelerated", [True, False])
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_recommended_powers_minimise_the_bound(setting: Setting, accelerated: bool) -> None:
    """Theorems 6, 11 and 16: in α, on the stretch where φ is largest."""
    _, best = recommended(accelerated, 0.0, delta=0.0 if setting.adds_up else setting.delta)
    found = minimize_scalar(
        lambda alpha: convex_error(setting, alpha, accelerated=accelerated),
        bounds=(-0.49, 3.9 if accelerated else 1.9), method="bounded", options={"xatol": 1e-9},
    )  # fmt: skip
    assert found.x == pytest.approx(best, abs=1e-3)


@pytest.mark.parametrize("accelerated", [True, False])
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_recommended_bases_minimise_the_bound(setting: Setting, accelerated: bool) -> None:
    ratio = 0.1
    _, best = recommended(accelerated, ratio, delta=0.0 if setting.adds_up else setting.delta)
    least = 1 - math.sqrt(ratio) if accelerated else (1 - ratio) ** 2
    found = minimize_scalar(
        lambda Q: strongly_convex_error(setting, Q, ratio, accelerated=accelerated),
        bounds=(least * 1.001, 0.9999), method="bounded", options={"xatol": 1e-10},
    )  # fmt: skip
    assert found.x == pytest.approx(best, abs=1e-3)


def test_table_2() -> None:
    printed: dict[tuple[bool, bool, bool], float] = {  # adds_up, accelerated, strongly convex
        (True, False, False): 1 / 3, (True, False, True): 1 / 2, (True, True, False): 2 / 5,
        (False, False, False): 2 / 5, (False, False, True): 1 / 2, (False, True, False): 4 / 9,
        (True, True, True): 1.0, (False, True, True): 1.0,  # Theorems 11 and 6, not the table
    }  # fmt: skip
    for (adds_up, accelerated, strong), power in printed.items():
        found = table_2_exponent(accelerated=accelerated, strongly_convex=strong, adds_up=adds_up)
        assert found == pytest.approx(power)
    low = Setting("low rank", 320, 30, 5, 2.0, 1e-3, clip_norm=7.0)
    cell = table_2(low, accelerated=False, strongly_convex=True)
    assert cell == pytest.approx((30 * math.log(30) / (math.sqrt(320) * 2)) ** 0.5)
    cell = table_2(replace(low, pattern="group sparse"), accelerated=True, strongly_convex=False)
    assert cell == pytest.approx((math.log(30) / (320 * 2)) ** (4 / 9))


@pytest.mark.parametrize(
    ("alpha", "accelerated", "adds_up", "phi"),
    [
        (3, False, False, 2 / 7), (1, False, False, 2 / 5), (-1, False, False, 1 / 3),
        (5, True, False, 4 / 11), (1, True, False, 4 / 9), (-1, True, False, 2 / 5),
        (3, False, True, 1 / 4), (1, False, True, 1 / 3), (-2, False, True, 1 / 4),
        (5, True, True, 2 / 6), (1, True, True, 2 / 5), (-2, True, True, 2 / 6),
    ],
)  # fmt: skip
def test_the_exponents_are_those_of_the_cases(
    alpha: float, accelerated: bool, adds_up: bool, phi: float
) -> None:
    """Eq. (12), (14), (25), (27)."""
    assert convex_exponent(alpha, accelerated=accelerated, adds_up=adds_up) == pytest.approx(phi)


def test_numbers_by_hand() -> None:
    """Theorem 2 and 4 at one setting, written out."""
    s = Setting("low rank", 10**6, 20, 2, 0.5, 1e-4, clip_norm=3.0, smoothness=2.0)
    price = math.sqrt(math.log(math.e + 0.5 / (math.sqrt(2) * 1e-4)) + 1.0) / 0.5
    M = price / math.sqrt(1.8) * 3 * 2 * 20 * math.log(20) / 1000
    expected = 9 * 2 * (M / (0.2 - 2) ** 2) ** (4 / 9)
    assert convex_error(s, 0.4, accelerated=True) == pytest.approx(expected)
    rounds = ((0.2 - 2) ** 2 / M) ** (2 / 9)
    assert convex_rounds(s, 0.4, accelerated=True) == pytest.approx(rounds)
    Q, Q0 = 0.95, 1 - 0.1
    M = price / math.sqrt(1 - Q**2) * 3 * 2 * 20 * math.log(20) / 1000
    room = (Q0 / math.sqrt(Q) - 1) ** 2
    expected = 3 * (M / room) ** (math.log(Q0) / math.log(Q0**2))
    assert strongly_convex_error(s, Q, 0.1, accelerated=False) == pytest.approx(expected)
    rounds = math.log(room / M) / math.log(1 / Q0**2)
    assert strongly_convex_rounds(s, Q, 0.1, accelerated=False) == pytest.approx(rounds)
    assert contraction(0.5, 0.5) == 0.5


# --- Theorems 2–5, 7–10 and 12–15, each written out as it is printed ------------------------------


def printed_M(s: Setting, number: int, spread: float) -> float:
    """M of Theorem ``number``; ``spread`` is α in the first two of each four, Q in the others."""
    strongly, group = number in (4, 5, 9, 10, 14, 15), number in (3, 5, 8, 10, 13, 15)
    if number in (7, 8, 9, 10):
        M0 = 1 / (abs((1 - spread) if strongly else (spread + 1)) * s.epsilon)
    else:
        inside = {2: math.e + s.epsilon / (math.sqrt(2) * s.delta), 12: 1 / s.delta}
        root = math.sqrt(math.log(inside[2 if number < 7 else 12]) + 2 * s.epsilon)
        below = abs((1 - spread**2) if strongly else (2 * spread + 1))
        M0 = root / (math.sqrt(below) * s.epsilon)
    if group:
        return M0 * s.rank * math.log(s.dim) / s.n_tasks
    return M0 * s.clip_norm * s.rank * s.dim * math.log(s.dim) / math.sqrt(s.n_tasks)


@pytest.mark.parametrize("accelerated", [False, True])
@pytest.mark.parametrize("number", [2, 3, 7, 8, 12, 13])
@pytest.mark.parametrize("alpha", [-1.7, 0.3, 5.0])
def test_the_convex_theorems_as_printed(number: int, alpha: float, accelerated: bool) -> None:
    """Eq. (11), (13), (15), (16), (24), (26), (28), (29), (34), (36), (38), (39)."""
    s = theirs(number)
    M, c = printed_M(s, number, alpha), 2 if accelerated else 1
    if number in (7, 8):
        cases = {5.0: 2 / 6, 0.3: 2 / 5, -1.7: 2 / 5.7} if accelerated else {
            5.0: 1 / 6, 0.3: 1 / 3, -1.7: 1 / 3.7}  # fmt: skip
    else:
        cases = {5.0: 4 / 11, 0.3: 4 / 9, -1.7: 2 / 5.7} if accelerated else {
            5.0: 2 / 11, 0.3: 2 / 5, -1.7: 1 / 3.7}  # fmt: skip
    phi = cases[alpha]
    error = s.clip_norm**2 * s.smoothness * (M / (alpha / 2 - c) ** 2) ** phi
    assert convex_error(s, alpha, accelerated=accelerated) == pytest.approx(error, rel=1e-12)
    rounds = ((alpha / 2 - c) ** 2 / M) ** (phi / c)
    assert convex_rounds(s, alpha, accelerated=accelerated) == pytest.approx(rounds, rel=1e-12)


@pytest.mark.parametrize("accelerated", [False, True])
@pytest.mark.parametrize("number", [4, 5, 9, 10, 14, 15])
@pytest.mark.parametrize("Q", [0.2, 0.95, 1.6])
def test_the_strongly_convex_theorems_as_printed(number: int, Q: float, accelerated: bool) -> None:
    """Eq. (17), (19), (20), (21), (30)–(33), (40)–(43); ψ of Eq. (18) at Q₀², or at Q₀′."""
    s, ratio = theirs(number), 0.1
    M, Q0 = printed_M(s, number, Q), 1 - math.sqrt(ratio) if accelerated else 1 - ratio
    tilde = Q0 if accelerated else Q0**2
    psi = {0.2: Q, 0.95: tilde, 1.6: tilde / Q}[Q]
    room = (math.sqrt(Q0) / math.sqrt(Q) - 1) ** 2 if accelerated else (Q0 / math.sqrt(Q) - 1) ** 2
    error = s.clip_norm * (M / room) ** (math.log(Q0) / math.log(psi))
    found = strongly_convex_error(s, Q, ratio, accelerated=accelerated)
    assert found == pytest.approx(error, rel=1e-12)
    rounds = math.log(room / M) / math.log(1 / psi)
    found = strongly_convex_rounds(s, Q, ratio, accelerated=accelerated)
    assert found == pytest.approx(rounds, rel=1e-12)


def theirs(number: int) -> Setting:
    """Of Theorem ``number``: its pattern, and how its ε_t compose."""
    group = number in (3, 5, 8, 10, 13, 15)
    composition: Any = {0: "log e + ε/δ", 1: "sum", 2: "log 1/δ"}[sum(number > n for n in (6, 11))]
    return Setting(
        "group sparse" if group else "low rank", 10**5, 20, 3, 0.7, 1e-4, clip_norm=1.5,
        smoothness=2.0, composition=composition,
    )  # fmt: skip


@pytest.mark.parametrize("adds_up", [True, False])
@pytest.mark.parametrize("accelerated", [True, False])
@pytest.mark.parametrize("strongly", [True, False])
def test_the_powers_of_table_2_are_those_of_the_bounds(
    adds_up: bool, accelerated: bool, strongly: bool
) -> None:
    """By how the bound falls with the number of tasks, at the recommended schedule."""
    few = replace(theirs(7 if adds_up else 2), n_tasks=10**8)
    _, best = recommended(accelerated, 0.1 if strongly else 0.0, delta=0.0 if adds_up else 1e-4)

    def error(s: Setting) -> float:
        if strongly:
            return strongly_convex_error(s, best, 0.1, accelerated=accelerated)
        return convex_error(s, best, accelerated=accelerated)

    fall = math.log(error(few) / error(replace(few, n_tasks=10**10))) / math.log(10)  # of 1/√m
    power = table_2_exponent(accelerated=accelerated, strongly_convex=strongly, adds_up=adds_up)
    assert fall == pytest.approx(power)


@pytest.mark.parametrize("setting", SETTINGS)
def test_acceleration_needs_fewer_rounds(setting: Setting) -> None:
    """Claim 2, at μ/L < 0.3819 and under Assumption 1 with a large constant."""
    setting = replace(setting, n_tasks=setting.n_tasks**3)
    for ratio in (0.0, 0.05, 0.3):
        fast = suggested_rounds(setting, accelerated=True, ratio=ratio)
        assert fast <= suggested_rounds(setting, accelerated=False, ratio=ratio)


def test_few_tasks_suggest_one_round() -> None:
    """At S1's own sizes Assumption 1 does not hold, whatever its constant above 0.01."""
    own = Setting("low rank", 320, 30, 5, 0.1, 1 / (320 * math.log(320)))
    assert own.tasks_needed > 100 * own.n_tasks
    assert suggested_rounds(own, accelerated=True) == 1


@pytest.mark.parametrize(
    "wrong", [{"delta": 0.0, "composition": "log 1/δ"}, {"rank": 0}, {"rank": 31}]
)
def test_a_setting_makes_sense(wrong: Any) -> None:
    with pytest.raises(InvalidInput):
        replace(MANY, **wrong)


def test_the_largest_step_budgets() -> None:
    s = Setting("low rank", 320, 30, 5, 1.0, 1e-3, clip_norm=2.0)
    assert s.most_epsilon == pytest.approx(4 * 2 * 25 * 30 * math.log(30) / 900)
    s = replace(s, pattern="group sparse")
    assert s.most_epsilon == pytest.approx(25 * math.log(30) / (4 * 2 * 30 * 25**2 * 320))
    assert replace(s, rank=30).most_epsilon == math.inf


# --- Lemmas 1 and 2: they bound what the noisy step loses ----------------------------------------


def test_the_lemmas_as_printed() -> None:
    """Eq. (9) and (10) at one C and E, ηλ = 2: k = 2 of three that are not zero, r = 3."""
    C, E = np.diag([5.0, 3.0, 1.0, 0.0]), np.diag([0.01, 0.04, 0.0, 0.02])
    eta, lam = 0.5, 4.0
    head = (25 / (eta * lam) + 5) / eta
    low_rank = head * ((4 / (eta * lam) + 4) * 0.04 + 1 * 0.2)
    assert low_rank_error(C, E, eta, lam) == pytest.approx(low_rank, rel=1e-12)
    head = (3 / (eta * lam) * 25 + 5) / eta
    group = head * (2 / (2 * eta * lam) * 0.04 + 1 * 0.2)
    assert group_sparse_error(C, E, eta, lam) == pytest.approx(group, rel=1e-12)


@pytest.mark.parametrize("group", [True, False])
def test_the_lemmas_bound_the_loss_of_a_noisy_step(group: bool) -> None:
    rng = np.random.default_rng(0)
    step, lam = 0.5, 4.0
    penalty: Penalty = GroupNorm() if group else TraceNorm()
    for size in (1e-4, 1e-3, 1e-2):
        U = np.linalg.qr(rng.normal(size=(6, 6)))[0]
        C = (
            U
            @ np.diag([40.0, 20.0, 1.5, 1.0, 0.0, 0.0])
            @ np.linalg.qr(rng.normal(size=(9, 6)))[0].T
        )
        if group:
            C = np.diag([40.0, 20.0, 1.5, 1.0, 0.0, 0.0]) @ rng.normal(size=(6, 9)) / 3
        A = rng.normal(size=(6, 7)) * math.sqrt(size)
        E = A @ A.T
        Sigma = C @ C.T + E
        M = group_map(np.diag(Sigma), step * lam) if group else trace_map(Sigma, step * lam)
        noisy, exact = applied(M, C.T).T, penalty.prox(C, step * lam)

        def value(W: Any, C: Any = C) -> float:
            return float(((W - C) ** 2).sum() / (2 * step) + lam * penalty.value(W))

        bound = (group_sparse_error if group else low_rank_error)(C, E, step, lam)
        assert -1e-9 <= value(noisy) - value(exact) <= bound
