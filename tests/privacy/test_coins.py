"""Exact coins, and the two local laws that are drawn with them, cell by cell."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from typing import ClassVar

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from tacit.arrays import IntArray
from tacit.errors import InvalidInput
from tacit.privacy.coins import EXPONENT_BITS, below, exponent_below, falls, geometric
from tacit.privacy.mechanisms import KNormSum, TwoSidedWishart
from tacit.privacy.mechanisms.local import LocalKNorm, LocalStaircase, PrivUnitG
from tacit.privacy.mechanisms.local.privunit import _Leaning
from tacit.privacy.mechanisms.local.staircase import _Stairs
from tacit.privacy.noise import RESOLUTION, SimulatedSource, WordArray

ALPHA = 1e-6
ONES = 2**64 - 1


@dataclass
class Script:
    """A source that hands out the given words, then one word for ever."""

    first: list[int] = field(default_factory=list)
    then: int | None = None
    secure: ClassVar[bool] = False

    def words(self, n: int) -> WordArray:
        taken, self.first = self.first[:n], self.first[n:]
        if self.then is not None:
            taken += [self.then] * (n - len(taken))
        assert len(taken) == n, "more words drawn than scripted"
        return np.array(taken, dtype=np.uint64)


def drawn(seed: int) -> SimulatedSource:
    return SimulatedSource(np.random.default_rng(seed))


def ints(*values: int) -> IntArray:
    return np.array(values, dtype=np.int64)


def level(exponent: int, bits: int) -> int:
    """⌊2^bits e^−x⌋."""
    with localcontext() as context:
        context.prec = 200
        return int((-Decimal(exponent) / Decimal(2**EXPONENT_BITS)).exp() * Decimal(2) ** bits)


# --- e^−x ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [1e-9, 0.3, 1.0, 7.7, 36.0, 50.0, 300.0])
def test_a_uniform_beside_e_to_the_minus_x_is_settled_by_further_bits(x: float) -> None:
    exponent = exponent_below(x)
    bits = 64 * (2 + int(x / 40))  # enough for a level of many ones
    exact = level(exponent, bits)
    for near, expected in ((exact - 1, True), (exact + 2, False)):
        words = [(near >> (bits - 64 * (i + 1))) & ONES for i in range(bits // 64)]
        assert falls(ints(exponent), Script(words, then=0))[0] == expected


def test_coins_fall_with_their_probability() -> None:
    for seed, x in enumerate((0.01, 0.5, 2.0, 6.0)):
        found = falls(np.full(200_000, exponent_below(x)), drawn(seed))
        assert stats.binomtest(int(found.sum()), 200_000, math.exp(-x)).pvalue > ALPHA
        wrong = stats.binomtest(int(found.sum()), 200_000, math.exp(-1.2 * x - 0.01))
        assert wrong.pvalue < ALPHA


def test_nothing_always_falls_and_exponents_are_rounded_down() -> None:
    assert falls(ints(0, 0), Script([ONES, ONES])).all()
    assert exponent_below(1 / 3) / 2**EXPONENT_BITS <= 1 / 3


def test_uniform_integers_are_uniform() -> None:
    for bound in (1, 2, 3, 7, 1000):
        found = np.bincount(below(bound, 100_000, drawn(bound)), minlength=bound)
        assert len(found) == bound
        assert stats.chisquare(found).pvalue > ALPHA if bound > 1 else found[0] == 100_000
    assert below(3, 1, Script([ONES, 2 << 62]))[0] == 2  # 3 is too large, and drawn again


@pytest.mark.parametrize("x", [0.003, 0.4, 1.0, 3.0])
def test_geometric_numbers_have_their_law(x: float) -> None:
    found = geometric(exponent_below(x), 100_000, drawn(3))
    edges = np.unique(np.ceil(np.linspace(0, 6, 13) / x)).astype(int)
    seen = np.histogram(found, bins=[*edges, 10**9])[0]
    chances = -np.diff(np.exp(-x * np.append(edges, np.inf)))
    assert stats.chisquare(seen, chances * len(found)).pvalue > ALPHA
    worse = -np.diff(np.exp(-1.05 * x * np.append(edges, np.inf)))
    assert stats.chisquare(seen, worse * len(found)).pvalue < ALPHA


# --- the staircase -------------------------------------------------------------------------------

EPSILONS = [1e-6, 0.2, 0.7, 1.3, 5.0, 10.0, 30.0, 60.0]


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_stairs_in_integers_go_down_by_epsilon_at_most(epsilon: float) -> None:
    """b = 2^−L e^−x ≥ e^−ε, and hardly more; D cells of which γD are tall; a grid fine enough."""
    law = LocalStaircase(1.5, epsilon)
    stairs = _Stairs.of(law)
    with localcontext() as context:
        context.prec = 60
        x = Decimal(stairs.exponent) / Decimal(2**EXPONENT_BITS)
        down = stairs.halvings * Decimal(2).ln() + x
        assert Decimal(epsilon) * (1 - Decimal("1e-9")) < down <= Decimal(epsilon)
    assert stairs.tall / stairs.cells == pytest.approx(law.step, rel=1e-6)
    assert stairs.cells >= RESOLUTION * max(1, 2 * law.radius / law.scale)
    assert stairs.cells < 2**57


@pytest.mark.parametrize("epsilon", [0.2, 1.3, 4.0])
def test_the_stairs_are_drawn_with_their_law(epsilon: float) -> None:
    stairs = _Stairs.of(LocalStaircase(1.0, epsilon))
    found = stairs.noise(200_000, drawn(8))
    above = np.where(found >= 0, found, -1 - found)
    assert stats.binomtest(int((found >= 0).sum()), len(found), 0.5).pvalue > ALPHA
    b, share = math.exp(-epsilon), stairs.tall / stairs.cells
    whole, part = np.divmod(above, stairs.cells)
    tall = part < stairs.tall
    chance = share / (share + b * (1 - share))
    assert stats.binomtest(int(tall.sum()), len(tall), chance).pvalue > ALPHA
    assert stats.binomtest(int((whole > 0).sum()), len(whole), b).pvalue > ALPHA
    assert stats.kstest(part[tall] / stairs.tall, "uniform").pvalue > ALPHA
    low = (part[~tall] - stairs.tall) / (stairs.cells - stairs.tall)
    assert stats.kstest(low, "uniform").pvalue > ALPHA
    assert stats.ks_2samp(part[(whole == 0) & tall], part[(whole > 0) & tall]).pvalue > ALPHA


@pytest.mark.parametrize(("tall", "halvings"), [(3, 0), (2, 1), (1, 2)])
def test_a_staircase_of_few_cells_has_its_law_cell_by_cell(tall: int, halvings: int) -> None:
    """n ≥ 0 and −1 − n: 0 is one cell like the others, not two."""
    stairs = _Stairs(7, tall, halvings, exponent_below(0.6))
    b = 2.0**-halvings * math.exp(-0.6)
    n = np.arange(40)
    mass = b ** (n // 7) * np.where(n % 7 < tall, 1.0, b)
    both = np.concatenate([mass[::-1], mass]) * (1 - b) / (2 * mass[:7].sum())
    found = stairs.noise(200_000, drawn(tall))
    near = np.abs(found + 0.5) < 14  # two stairs on each side; the rest is one class
    seen = np.append(np.bincount(found[near] + 14, minlength=28), (~near).sum())
    chances = np.append(both[26:54], 1 - both[26:54].sum()) * len(found)
    assert stats.chisquare(seen, chances).pvalue > ALPHA


@pytest.mark.parametrize("epsilon", [0.5, 10.0])
def test_every_stair_can_be_drawn(epsilon: float) -> None:
    """A uniform of 53 bits ends after 37/ε stairs, and a report beyond them would tell who sent it.

    Here every coin that falls is a stair.
    """
    stairs = _Stairs.of(LocalStaircase(1.0, epsilon))
    found = stairs._whole(1, Script([0] * 200, then=ONES))[0]
    assert found >= max(100, 37 / epsilon)


def test_all_reports_of_the_staircase_lie_on_one_grid() -> None:
    law = LocalStaircase(1.5, 2.0)
    reports = law.release(np.linspace(-2, 2, 1000)[:, None], None)[:, 0]
    steps = reports / (3.0 / _Stairs.of(law).cells)
    np.testing.assert_array_equal(steps, np.rint(steps))


# --- PrivUnitG -----------------------------------------------------------------------------------


def small_leaning(epsilon: float, dim: int) -> tuple[PrivUnitG, _Leaning]:
    law = PrivUnitG(1.0, epsilon)
    return law, _Leaning.of(law, dim)


@pytest.mark.parametrize("dim", [2, 31, 1000])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 10.0, 100.0])
def test_the_levels_in_integers_are_at_most_epsilon_apart(epsilon: float, dim: int) -> None:
    """p/Q against (1 − p)/c with every error of the module at its worst."""
    law, exactly = small_leaning(epsilon, dim)
    gamma, tau = law.lean, math.sqrt(dim) / (2 * RESOLUTION)
    p = exactly.above / 2**64
    least, most = ndtr(-(gamma + tau)), ndtr(-(gamma - tau))
    theta = tau * exactly.shift * 2**20 / RESOLUTION
    worst = math.log(p / least) + 2 * theta - math.log((1 - p) / (1 - least))
    assert epsilon * (1 - 1e-3) < worst <= epsilon
    assert math.log(most / least) + 4 * theta < epsilon


def test_directions_lean_as_often_as_they_shall() -> None:
    law, exactly = small_leaning(2.0, 4)
    v = np.array([0.48, -0.6, 0.0, 0.64])
    U = exactly.reports(np.tile(v, (100_000, 1)), drawn(4))
    along = U @ v / RESOLUTION
    beyond = along >= law.lean
    assert stats.binomtest(int(beyond.sum()), len(U), exactly.above / 2**64).pvalue > ALPHA
    tail = stats.truncnorm(law.lean, np.inf).cdf
    assert stats.kstest(along[beyond], tail).pvalue > ALPHA
    assert stats.kstest(along[~beyond], stats.truncnorm(-np.inf, law.lean).cdf).pvalue > ALPHA
    across = U @ np.array([0.6, 0.48, 0.64, 0.0]) / RESOLUTION  # orthogonal to v
    assert stats.kstest(across, "norm").pvalue > ALPHA


def test_without_the_coin_the_tail_would_be_that_of_the_shift() -> None:
    """The broken twin: a shifted normal vector that is always kept inside the half-space."""

    class Careless(_Leaning):
        def _kept(self, beyond: IntArray, above: np.ndarray, source: object) -> np.ndarray:
            return np.where(above, beyond >= 0, beyond < 0)

    law, exactly = small_leaning(2.0, 4)
    twin = Careless(exactly.threshold, exactly.above, exactly.shift)
    v = np.array([0.48, -0.6, 0.0, 0.64])
    along = twin.reports(np.tile(v, (100_000, 1)), drawn(4)) @ v / RESOLUTION
    beyond = along[along >= law.lean]
    assert stats.kstest(beyond, stats.truncnorm(law.lean, np.inf).cdf).pvalue < ALPHA


def test_secure_reports_refuse_an_epsilon_below_their_slack() -> None:
    with pytest.raises(InvalidInput, match="too small for secure reports of 3 numbers"):
        PrivUnitG(1.0, 1e-8).release(np.zeros((1, 3)), None)
    assert PrivUnitG(1.0, 1e-8).release(np.zeros((1, 3)), np.random.default_rng(0)).shape == (1, 3)


def test_exact_reports_are_secure_and_say_nothing_against_themselves() -> None:
    for law in (PrivUnitG(1.0, 1.0), LocalStaircase(1.0, 1.0)):
        assert law.secure(None)
        assert not law.secure(np.random.default_rng(0))
        assert law.reason == ""


def test_pure_noise_without_an_exact_sampler_says_that_its_delta_is_not_claimed() -> None:
    for law in (KNormSum(1.0, 1.0), TwoSidedWishart(1.0, 1.0), LocalKNorm(1.0, 1.0)):
        assert law.noise.pure
        assert not law.secure(None)
        assert "δ = 0 holds of the ideal mechanism only" in law.noise.reason
    assert LocalKNorm(1.0, 1.0).reason == KNormSum(1.0, 1.0).noise.reason
