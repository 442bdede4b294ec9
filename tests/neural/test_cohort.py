"""The mechanism of a round: its noise, its bound, its grid, and what a client can do to it."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from tacit.errors import InvalidInput
from tacit.neural import mixing
from tacit.neural.cohort import CohortSum, Updates
from tacit.neural.pmtl import Adaptive
from tacit.neural.sampling import Everyone, Fixed, SecretCoins
from tacit.privacy.accounting import Gaussian, epsilon
from tacit.privacy.mechanisms.clipping import clipped
from tacit.privacy.mechanisms.grid import grid

ALPHA = 1e-6
RNG = np.random.default_rng(0)


def updates(values: Any, weights: Any = None) -> Updates:
    rows = torch.as_tensor(np.asarray(values, dtype=np.float64))
    return Updates(rows, np.ones((1, len(rows))) if weights is None else np.asarray(weights))


def summed(clients: int = 4, **more: Any) -> CohortSum:
    options: dict[str, Any] = {"clip_norm": 1.0, "noise_multiplier": 2.0, "sampler": Everyone()}
    return CohortSum(**options | {"clients": clients} | more)


# --- the bound -----------------------------------------------------------------------------------


def exact_norm(row: Any) -> Fraction:
    """‖row‖² in exact arithmetic."""
    return sum((Fraction(float(x)) ** 2 for x in row), Fraction(0))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6, 1e30])
def test_a_clipped_update_keeps_the_clip_norm_in_exact_arithmetic(scale: float) -> None:
    rows = RNG.normal(size=(50, 7)) * scale
    for cut, unclipped, _ in updates(rows).clipped(0.7):
        for before, after, short in zip(rows, cut.numpy(), unclipped, strict=True):
            assert exact_norm(after) <= Fraction(0.7) ** 2
            if short:
                np.testing.assert_array_equal(after, before)
            else:
                np.testing.assert_allclose(after, before * 0.7 / np.linalg.norm(before), rtol=1e-9)


@pytest.mark.parametrize("order", [1, 2])
def test_rows_are_clipped_to_the_same_bits_by_numpy_and_by_pytorch(order: int) -> None:
    rows = RNG.normal(size=(90, 37)) * np.logspace(-320, 305, 90)[:, None]
    rows[3, 1], rows[4, 2], rows[5] = np.nan, -np.inf, 0.0
    one, whole = clipped(rows, 0.7, order)
    other, also = clipped(torch.from_numpy(rows), 0.7, order, torch)
    assert one.tobytes() == other.numpy().tobytes()
    np.testing.assert_array_equal(whole, also)
    assert whole.sum() not in (0, 90)


def test_no_client_moves_the_secure_sum_further_than_the_accountant_believes() -> None:
    """Over all R broadcasts and the bit together: σ / ‖moved‖ ≥ z, in exact arithmetic."""
    omega = RNG.normal(size=(4, 4))
    omega -= np.diag(np.diag(omega))
    mix = mixing.relationship(omega)
    mechanism = summed(reach=mix.reach, bit_multiplier=6.0)
    step = Fraction(grid(mechanism.sigma))
    for k in range(4):
        for size in (0.3, 1.0, 100.0):
            row = RNG.normal(size=3)
            row *= size / np.linalg.norm(row)
            total = mechanism.counts(updates(row[None], mix.weights[:, [k]]))
            moved = sum((Fraction(int(n)) * step) ** 2 for n in total)
            most = Fraction(mechanism.sigma) / Fraction(mechanism.noise_multiplier)
            assert moved <= most**2


def test_the_secure_sum_is_exact_integer_arithmetic() -> None:
    weights = np.array([[1.0, 1.0, 0.0], [0.5, -2.0, 3.0]])
    given = updates(RNG.normal(size=(3, 4)), weights)
    mechanism = summed(clip_norm=0.8)
    inverse = 2.0**26 / mechanism.sigma
    short = torch.cat([part for part, _, _ in given.clipped(0.8)]).numpy()
    by_hand = [
        [sum(int(short[k, j] * (weights[r, k] * inverse)) for k in range(3)) for j in range(4)]
        for r in range(2)
    ]
    assert mechanism.counts(given).reshape(2, 4).tolist() == by_hand


def test_blocks_of_clients_sum_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    given = updates(RNG.normal(size=(9, 5)), RNG.normal(size=(3, 9)))
    mechanism = summed(clients=9, bit_multiplier=5.0)
    whole = mechanism.counts(given)
    monkeypatch.setattr("tacit.neural.cohort.BLOCK", {"cpu": 10})
    np.testing.assert_array_equal(mechanism.counts(given), whole)


def test_noise_too_small_for_the_grid_is_refused_whoever_takes_part() -> None:
    tiny = summed(clients=10**6, noise_multiplier=1e-6)
    for cohort in (0, 3):
        with pytest.raises(InvalidInput, match="too small for secure sums of 1000000"):
            tiny.release(updates(np.zeros((cohort, 2))), None)


# --- the noise -----------------------------------------------------------------------------------


@pytest.mark.parametrize("secure", [True, False])
def test_the_noise_has_the_promised_law_in_every_coordinate(secure: bool) -> None:
    mechanism = summed(clients=2, clip_norm=0.5, reach=3.0)
    given = updates([[0.3] * 4000, [0.0] * 4000], np.ones((2, 2)))
    rng = None if secure else np.random.default_rng(1)
    noise = mechanism.release(given, rng)
    mean = 0.5 / math.sqrt(4000)
    assert noise.shape == (2, 4000)
    law = stats.norm(loc=mean, scale=2.0 * 0.5 * 3.0)
    assert stats.kstest(noise.ravel(), law.cdf).pvalue > ALPHA
    assert stats.pearsonr(noise[0], noise[1]).pvalue > ALPHA
    assert mechanism.secure(rng) == secure


def test_a_secure_release_lies_on_the_public_grid() -> None:
    mechanism = summed()
    value = mechanism.release(updates(RNG.normal(size=(4, 6))), None)
    steps = value / grid(mechanism.sigma)
    np.testing.assert_array_equal(steps, np.rint(steps))


def test_nobody_sampled_is_noise_alone() -> None:
    value = summed().release(updates(np.zeros((0, 3000))), None)
    assert stats.kstest(value.ravel(), stats.norm(scale=2.0).cdf).pvalue > ALPHA


# --- updates that are not finite -----------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("secure", [True, False])
def test_an_update_that_is_not_finite_contributes_zero(bad: float, secure: bool) -> None:
    mechanism = summed(bit_multiplier=5.0)
    rows = np.array([[0.3, 0.1], [0.2, bad]])
    zeroed = np.array([[0.3, 0.1], [9.0, 9.0]])
    summed_up = mechanism.counts if secure else partial(mechanism.statistic.total, clips=None)
    with_bad, without = summed_up(updates(rows)), summed_up(updates(zeroed, [[1.0, 0.0]]))
    np.testing.assert_array_equal(with_bad, without)  # and its bit says clipped


# --- the bit -------------------------------------------------------------------------------------


def test_bit_and_update_are_one_event_with_the_multiplier_of_both() -> None:
    for z, z_bit in [(1.0, 3.0), (2.0, 2.1), (0.5, 100.0)]:
        both = summed(noise_multiplier=z, bit_multiplier=z_bit, clip_norm=0.3, reach=2.0)
        assert z**-2 == pytest.approx(both.update_multiplier**-2 + z_bit**-2)
        moved = math.hypot(0.3 * 2.0, both.bit_scale / 2)
        assert both.sigma / moved == pytest.approx(z)
        assert both.event("zero-out") == Gaussian(1 / z)
        assert both.statistic.sensitivity("zero-out") == pytest.approx(moved)
        assert both.statistic.sensitivity("replace") == pytest.approx(2 * moved)


def test_two_separate_poisson_events_would_claim_too_little() -> None:
    """PRIVACY.md: 5.05 claimed, 6.32 true at z = 1.5 each, p = 0.1, T = 100."""
    rate, rounds, delta = 0.1, 100, 1e-5
    together = CohortSum(1.0, 1.5 / math.sqrt(2), SecretCoins(rate), 100, bit_multiplier=1.5)
    assert together.update_multiplier == pytest.approx(1.5)
    true = epsilon([together.event("zero-out")] * rounds, delta)
    apart = [SecretCoins(rate).event(100, 1.5, "zero-out")] * (2 * rounds)
    assert true == pytest.approx(6.32, abs=0.01)
    assert epsilon(apart, delta) == pytest.approx(5.05, abs=0.01)


def test_the_bit_must_leave_something_for_the_update() -> None:
    with pytest.raises(InvalidInput, match="must exceed noise_multiplier"):
        summed(noise_multiplier=5.0, bit_multiplier=5.0)


def test_the_noisy_bits_come_back_in_bits() -> None:
    mechanism = summed(clients=1000, bit_multiplier=4.0)
    rows = np.concatenate([np.full((700, 1), 0.5), np.full((300, 1), 2.0)])
    bits = np.array([mechanism.release(updates(rows), RNG)[-1] for _ in range(400)])
    law = stats.norm(loc=700 / 2 - 300 / 2, scale=4.0 / 2)
    assert stats.kstest(bits, law.cdf).pvalue > ALPHA


def test_the_clip_norm_moves_to_the_quantile_of_the_norms() -> None:
    adaptive, norms = Adaptive(quantile=0.3, rate=0.2), RNG.lognormal(size=2000)
    clip = 50.0
    for _ in range(300):
        mechanism = summed(clients=2000, clip_norm=clip, bit_multiplier=10.0)
        released = mechanism.release(updates(norms[:, None]), RNG)
        clip = adaptive.next_clip(clip, float(released[-1]), 2000)
    assert np.mean(norms <= clip) == pytest.approx(0.3, abs=0.03)


@pytest.mark.parametrize("change", [{"quantile": 0.0}, {"quantile": 1.0}, {"rate": 0.0}])
def test_a_quantile_is_inside_zero_and_one(change: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match="quantile must be in"):
        Adaptive(**change)


# --- what is on record ---------------------------------------------------------------------------


def test_the_record_says_how_and_never_who() -> None:
    record = summed(sampler=Fixed(2), bit_multiplier=7.0).to_dict()
    assert record == {
        "name": "CohortSum",
        "clip_norm": 1.0,
        "noise_multiplier": 2.0,
        "bit_multiplier": 7.0,
        "reach": 1.0,
        "clients": 4,
        "sampler": "Fixed(size=2)",
    }


@pytest.mark.parametrize("name", ["clip_norm", "noise_multiplier", "reach"])
def test_parameters_are_positive(name: str) -> None:
    wrong: dict[str, Any] = {name: 0.0}
    with pytest.raises(InvalidInput, match=name):
        summed(**wrong)
