"""Every mechanism: sensitivity, clipping, the grid, shares, and the edges."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tacit.arrays import FloatArray
from tacit.errors import InvalidInput
from tacit.privacy import mechanisms
from tacit.privacy.accounting import Gaussian, Pure
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms import (
    PURE,
    DiagonalGaussian,
    DiagonalLaplace,
    EachRow,
    GaussianSum,
    GramGaussian,
    KNormSum,
    LaplaceSum,
    PublishedWishart,
    SymmetricGaussian,
    TwoSidedWishart,
    VoteSum,
    clip_rows,
    noises,
    statistics,
    svec,
)
from tacit.privacy.mechanisms.clipping import rounding_slack
from tacit.privacy.mechanisms.grid import grid_sum, smat
from tacit.privacy.mechanisms.sensitivities import sensitivity_gram
from tacit.privacy.noise import RESOLUTION

Mechanism = mechanisms.NoisyStatistic[Any]
RELATIONS: tuple[Neighbours, ...] = ("replace", "zero-out")
K, M, D = 1.5, 4, 3  # clip norm, units, dimension
E1, E2 = np.eye(D)[:2]


def l1(x: FloatArray) -> float:
    return float(np.abs(x).sum())


def l2(x: FloatArray) -> float:
    return float(np.linalg.norm(x.ravel()))


def nuclear(x: FloatArray) -> float:
    return float(np.abs(np.linalg.eigvalsh((x + x.T) / 2)).sum())


@dataclass(frozen=True)
class Case:
    """A mechanism with little noise, its norm, its Δ from its event, and a pair that reaches Δ."""

    mechanism: Mechanism
    norm: Callable[[FloatArray], float]
    noise_scale: float  # Δ = noise_scale × (μ or ε)
    extremal: tuple[FloatArray, FloatArray]  # a unit before and after, under replace

    def delta(self, neighbours: Neighbours) -> float:
        event = self.mechanism.event(neighbours)
        assert isinstance(event, Gaussian | Pure)
        return self.noise_scale * (event.mu if isinstance(event, Gaussian) else event.epsilon)

    def change(self, before: FloatArray, after: FloatArray, shares: Any = None) -> float:
        """The norm of the change of the release; equal seeds make the noise cancel."""
        first, second = (
            self.mechanism.release(rows, np.random.default_rng(5), shares)
            for rows in (before, after)
        )
        return self.norm(second - first)


SMALL = 1e-6
CASES = {
    "GaussianSum": Case(GaussianSum(K, SMALL), l2, SMALL, (K * E1, -K * E1)),
    "VoteSum": Case(VoteSum(K, SMALL), l2, SMALL, (K * E1, K * E2)),
    "LaplaceSum": Case(LaplaceSum(K, SMALL), l1, SMALL, (K * E1, -K * E2)),
    "KNormSum": Case(KNormSum(K, SMALL), l2, SMALL, (K * E1, -K * E1)),
    "SymmetricGaussian": Case(SymmetricGaussian(K, SMALL), l2, SMALL, (K * E1, K * E2)),
    "DiagonalGaussian": Case(DiagonalGaussian(K, SMALL), l2, SMALL, (K * E1, K * E2)),
    "DiagonalLaplace": Case(DiagonalLaplace(K, SMALL), l1, SMALL, (K * E1, K * E2)),
    "GramGaussian": Case(GramGaussian(K, SMALL, units=M), l2, SMALL, (K * E1, -K * E1)),
    "TwoSidedWishart": Case(TwoSidedWishart(K, SMALL), nuclear, 2 * SMALL, (K * E1, K * E2)),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
every_relation = pytest.mark.parametrize("neighbours", RELATIONS)
SECURE: dict[str, Mechanism] = {
    "GaussianSum": GaussianSum(K, 2.0),
    "VoteSum": VoteSum(K, 2.0),
    "LaplaceSum": LaplaceSum(K, 2.0),
    "SymmetricGaussian": SymmetricGaussian(K, 2.0),
    "DiagonalGaussian": DiagonalGaussian(K, 2.0),
    "DiagonalLaplace": DiagonalLaplace(K, 2.0),
    "GramGaussian": GramGaussian(K, 2.0, units=M),
}
EVERY: dict[str, Mechanism] = SECURE | {
    "KNormSum": KNormSum(K, 2.0),
    "TwoSidedWishart": TwoSidedWishart(K, 2.0),
    "PublishedWishart": PublishedWishart(K, 2.0, as_published=True),
}
every_mechanism = pytest.mark.parametrize("mechanism", EVERY.values(), ids=EVERY)


def random_rows(rng: np.random.Generator) -> FloatArray:
    """Rows of all sizes, many of them far too long, some along an axis."""
    rows = rng.standard_normal((M, D)) * 10.0 ** rng.integers(-2, 3, (M, 1))
    return np.asarray(rows * (rng.random((M, D)) < 0.7))


def pairs(count: int, neighbours: Neighbours) -> list[tuple[FloatArray, FloatArray]]:
    rng = np.random.default_rng(11)
    found = []
    for _ in range(count):
        before = random_rows(rng)
        after = before.copy()
        after[0] = 0.0 if neighbours == "zero-out" else random_rows(rng)[0]
        if neighbours == "replace" and rng.random() < 0.3:
            after[0] = -before[0]
        found.append((before, after))
    return found


# --- sensitivity ---------------------------------------------------------------------------------


@every_case
@every_relation
def test_no_pair_exceeds_the_sensitivity(case: Case, neighbours: Neighbours) -> None:
    delta = case.delta(neighbours)
    changes = [case.change(*pair) for pair in pairs(300, neighbours)]
    assert max(changes) <= delta * (1 + 1e-12)
    assert max(changes) > 0.5 * delta  # the search is not idle


@every_case
@every_relation
def test_the_extremal_pair_reaches_the_sensitivity(case: Case, neighbours: Neighbours) -> None:
    first, second = case.extremal
    before = np.tile(first, (M, 1))
    after = before.copy()
    after[0] = second if neighbours == "replace" else 0.0
    assert math.isclose(case.change(before, after), case.delta(neighbours), rel_tol=1e-9)


@every_case
@every_relation
def test_a_share_scales_the_sensitivity(case: Case, neighbours: Neighbours) -> None:
    rng = np.random.default_rng(2)
    for share in (0.0, 0.1, 0.5):
        shares = np.r_[share, rng.random(M - 1)]
        bound = share * case.delta(neighbours) * (1 + 1e-12) + 1e-12
        assert max(case.change(*pair, shares) for pair in pairs(60, neighbours)) <= bound


@pytest.mark.parametrize(
    "name", ["SymmetricGaussian", "DiagonalGaussian", "DiagonalLaplace", "TwoSidedWishart"]
)
def test_a_share_of_a_covariance_is_reached(name: str) -> None:
    case = CASES[name]
    first, second = case.extremal
    before, after = np.zeros((M, D)), np.zeros((M, D))
    before[0], after[0] = first, second
    change = case.change(before, after, np.full(M, 0.25))
    assert math.isclose(change, 0.25 * case.delta("replace"), rel_tol=1e-9)


@every_relation
def test_gram_of_one_unit_has_only_a_diagonal(neighbours: Neighbours) -> None:
    assert sensitivity_gram(2.0, 1, neighbours) == 4.0


def test_a_clip_on_trust_would_exceed_the_sensitivity() -> None:
    """The broken twin: without clipping, the same search exceeds Δ."""
    changes = [
        l2(after.sum(axis=0) - before.sum(axis=0)) for before, after in pairs(300, "replace")
    ]
    assert max(changes) > CASES["GaussianSum"].delta("replace")


def test_votes_on_trust_would_exceed_their_sensitivity() -> None:
    """The broken twin: clipped as any row, a vote with negative entries moves the sum by 2C."""
    twin = Case(GaussianSum(K, SMALL), l2, SMALL, (K * E1, -K * E1))
    changes = [twin.change(*pair) for pair in pairs(300, "replace")]
    assert max(changes) > CASES["VoteSum"].delta("replace")


@given(
    entries=arrays(np.float64, (2, D), elements=st.floats(0.0, 1e6)),
    columns=st.tuples(st.integers(0, D - 1), st.integers(0, D - 1)),
)
@settings(max_examples=60, deadline=None)
def test_no_two_votes_are_farther_apart_than_their_sensitivity(
    entries: FloatArray, columns: tuple[int, int]
) -> None:
    """Random votes, and one-hot ones, which are the farthest apart."""
    one_hot = 1e3 * np.eye(D)[list(columns)]
    for before, after in (entries, one_hot):
        change = CASES["VoteSum"].change(before[None], after[None])
        assert change <= CASES["VoteSum"].delta("replace") * (1 + 1e-12)


# --- the grid ------------------------------------------------------------------------------------


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secure releases without their noise."""

    def zeros(shape: tuple[int, ...], source: object) -> Any:
        return np.zeros(shape, dtype=np.int64)

    monkeypatch.setattr(noises, "rounded_gaussian", zeros)
    monkeypatch.setattr(noises, "rounded_laplace", zeros)


def steps(value: FloatArray, scale: float) -> list[int]:
    """A secure release in grid steps: exact integers."""
    vector = svec(value) if value.ndim == 2 else value
    return [int(n) for n in np.rint(vector / (scale / RESOLUTION))]


COARSE = 2.0**21  # a grid of 1/32: cutting onto it is far from negligible


def exact_square(pair: list[list[int]], grid: Fraction) -> Fraction:
    before, after = pair
    return sum((b - a) ** 2 for a, b in zip(before, after, strict=True)) * grid**2


def largest_square(mechanism: Mechanism, scale: float, neighbours: Neighbours) -> Fraction:
    """The largest Δ₂² over random pairs near the clip norm, in exact arithmetic."""
    rng = np.random.default_rng(4)
    squares = []
    for _ in range(400):
        before = 3 * rng.standard_normal((M, D))
        after = before.copy()
        other = np.cross(before[0], rng.standard_normal(D))  # orthogonal: the worst for products
        after[0] = 0.0 if neighbours == "zero-out" else 9 * other
        found = [steps(mechanism.release(rows, None), scale) for rows in (before, after)]
        squares.append(exact_square(found, Fraction(scale) / RESOLUTION))
    return max(squares)


def stated_square(name: str, neighbours: Neighbours) -> Fraction:
    k = Fraction(K)
    return {
        "GaussianSum": {"replace": 4 * k**2, "zero-out": k**2},
        "VoteSum": {"replace": 2 * k**2, "zero-out": k**2},
        "SymmetricGaussian": {"replace": 2 * k**4, "zero-out": k**4},
        "DiagonalGaussian": {"replace": 2 * k**4, "zero-out": k**4},
        "GramGaussian": {"replace": 8 * (M - 1) * k**4, "zero-out": (2 * M - 1) * k**4},
    }[name][neighbours]


def coarse(name: str, sigma: float) -> Mechanism:
    made: dict[str, Mechanism] = {
        "GaussianSum": GaussianSum(K, sigma),
        "VoteSum": VoteSum(K, sigma),
        "SymmetricGaussian": SymmetricGaussian(K, sigma),
        "DiagonalGaussian": DiagonalGaussian(K, sigma),
        "GramGaussian": GramGaussian(K, sigma, units=M),
    }
    return made[name]


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize(
    "name", ["GaussianSum", "VoteSum", "SymmetricGaussian", "DiagonalGaussian", "GramGaussian"]
)
@pytest.mark.parametrize("sigma", [1.0, COARSE])
@every_relation
def test_sensitivity_holds_exactly_on_the_grid(
    name: str, sigma: float, neighbours: Neighbours
) -> None:
    found = largest_square(coarse(name, sigma), sigma, neighbours)
    assert found <= stated_square(name, neighbours)
    assert found > stated_square(name, neighbours) / 8


@pytest.mark.usefixtures("silent")
def test_cutting_a_covariance_without_the_smaller_clip_would_exceed_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(statistics, "covariance_clip", lambda clips, dim, step: clips)
    found = largest_square(SymmetricGaussian(K, COARSE), COARSE, "replace")
    assert found > stated_square("SymmetricGaussian", "replace")


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("name", SECURE)
def test_secure_and_simulated_release_the_same_statistic(name: str) -> None:
    secure, case = SECURE[name], CASES[name]
    rows = 2 * np.random.default_rng(0).standard_normal((M, D))
    shares = np.array([1.0, 0.5, 0.25, 0.0])
    exact = case.mechanism.release(rows, np.random.default_rng(0), shares)
    np.testing.assert_allclose(secure.release(rows, None, shares), exact, atol=1e-5)


@pytest.mark.parametrize("name", SECURE)
def test_secure_releases_lie_on_the_grid(name: str) -> None:
    release = SECURE[name].release(np.random.default_rng(0).standard_normal((M, D)), None)
    on_grid = np.diag(release) if release.ndim == 2 else release
    counts = on_grid * (RESOLUTION / 2.0)
    np.testing.assert_array_equal(counts, np.rint(counts))


@pytest.mark.usefixtures("silent")
def test_a_share_holds_exactly_on_the_grid() -> None:
    rng = np.random.default_rng(8)
    grid = Fraction(COARSE) / RESOLUTION
    for mechanism in (SymmetricGaussian(K, COARSE), GramGaussian(K, COARSE, units=M)):
        stated = stated_square(type(mechanism).__name__, "replace")
        for share in (0.02, 0.1, 0.5):
            shares = np.r_[share, np.ones(M - 1)]
            for _ in range(60):
                before = 5 * rng.standard_normal((M, D))
                after = before.copy()
                after[0] = 5 * rng.standard_normal(D)
                found = [
                    steps(mechanism.release(rows, None, shares), COARSE) for rows in (before, after)
                ]
                assert exact_square(found, grid) <= Fraction(share) ** 2 * stated


finite_rows = arrays(
    np.float64,
    st.tuples(st.integers(1, 4), st.integers(1, 5)),
    elements=st.floats(allow_nan=False, allow_infinity=False, width=64),
)


def exact_norm_square(row: Any) -> Fraction:
    return sum((Fraction(float(x)) ** 2 for x in row), Fraction(0))


@settings(max_examples=200, deadline=None)
@given(rows=finite_rows, norm=st.floats(1e-3, 1e3))
def test_clipped_rows_are_never_longer_than_the_clip_norm(rows: FloatArray, norm: float) -> None:
    for row in clip_rows(rows, norm):
        assert exact_norm_square(row) <= Fraction(norm) ** 2
    for row in clip_rows(rows, norm, order=1):
        assert sum(abs(Fraction(float(x))) for x in row) <= Fraction(norm)


@settings(max_examples=200, deadline=None)
@given(rows=finite_rows, norm=st.floats(1e-3, 1e3), scale=st.floats(1e-2, 1e8))
def test_cutting_onto_the_grid_never_raises_a_norm(
    rows: FloatArray, norm: float, scale: float
) -> None:
    grid = Fraction(scale) / RESOLUTION
    for row in clip_rows(rows, norm):
        counts = grid_sum(row[None], scale, norm)
        assert sum(int(n) ** 2 for n in counts) * grid**2 <= Fraction(norm) ** 2
        assert np.all(np.abs(counts * float(grid) - row) <= float(grid) * (1 + 1e-9) + 1e-15 * norm)
    for row in clip_rows(rows, norm, order=1):
        assert sum(abs(int(n)) for n in grid_sum(row[None], scale, norm)) * grid <= Fraction(norm)


# --- clipping ------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(rows=arrays(np.float64, (3, 4), elements=st.floats(-0.49, 0.49)))
def test_short_rows_are_left_alone(rows: FloatArray) -> None:
    np.testing.assert_array_equal(clip_rows(rows, 1.0), rows)


def test_long_rows_keep_their_direction() -> None:
    rows = np.array([[3e300, 4e300], [3e-300, 4e-300], [1.7e308, 1.7e308], [5e-324, 0.0]])
    clipped = clip_rows(rows, 1e-2)
    np.testing.assert_allclose(clipped[0], [0.006, 0.008])
    np.testing.assert_array_equal(clipped[1], rows[1])
    np.testing.assert_allclose(clipped[2], np.full(2, 0.01 / math.sqrt(2)))
    np.testing.assert_array_equal(clipped[3], rows[3])


def test_slack_grows_with_the_dimension_and_is_small() -> None:
    assert rounding_slack(3) == 2.0**-40
    assert rounding_slack(10**6) < 1e-9


def test_clip_norms_may_differ_by_row() -> None:
    clipped = clip_rows(np.full((3, 1), 9.0), np.array([1.0, 0.5, 0.0]))
    np.testing.assert_allclose(clipped[:, 0], [1.0, 0.5, 0.0])


@every_case
def test_rows_that_are_not_finite_contribute_zero(case: Case) -> None:
    rows = random_rows(np.random.default_rng(6))
    broken, zeroed = rows.copy(), rows.copy()
    zeroed[:2] = 0.0
    broken[0, 1], broken[1, 0] = np.nan, -np.inf
    assert case.change(broken, zeroed) == 0.0


# --- the edges -----------------------------------------------------------------------------------


@every_mechanism
@pytest.mark.parametrize("rng", [None, np.random.default_rng(0)], ids=["secure", "simulated"])
def test_no_units_still_release_noise(
    mechanism: Mechanism, rng: np.random.Generator | None
) -> None:
    if isinstance(mechanism, GramGaussian):
        release = mechanism.release(np.zeros((M, 0)), rng)  # as many units as declared
    else:
        release = mechanism.release(np.zeros((0, D)), rng)
    assert np.all(np.isfinite(release))
    assert np.all(release != 0)


@every_mechanism
def test_two_secure_releases_differ(mechanism: Mechanism) -> None:
    rows = np.zeros((M, D))
    assert np.all(mechanism.release(rows, None) != mechanism.release(rows, None))


@every_mechanism
def test_simulations_repeat_with_the_seed(mechanism: Mechanism) -> None:
    rows = np.ones((M, D))
    first, second = (mechanism.release(rows, np.random.default_rng(3)) for _ in "ab")
    np.testing.assert_array_equal(first, second)


@every_mechanism
def test_matrices_are_symmetric(mechanism: Mechanism) -> None:
    for rng in (None, np.random.default_rng(0)):
        release = mechanism.release(np.ones((M, D)), rng)
        if release.ndim == 2:
            np.testing.assert_array_equal(release, release.T)


@pytest.mark.parametrize("name", ["GaussianSum", "VoteSum", "LaplaceSum", "KNormSum"])
def test_sums_keep_the_shape_of_a_contribution(name: str) -> None:
    mechanism = EVERY[name]
    for rng in (None, np.random.default_rng(0)):
        assert mechanism.release(np.ones((2, 3, 4)), rng).shape == (3, 4)
    blocks = CASES[name].mechanism.release(np.ones((2, 2, 2)), np.random.default_rng(0))
    whole = CASES[name].mechanism.release(np.ones((2, 4)), np.random.default_rng(0))
    np.testing.assert_array_equal(blocks.ravel(), whole)


@every_mechanism
def test_contributions_need_one_row_per_unit(mechanism: Mechanism) -> None:
    with pytest.raises(InvalidInput, match="contributions must have shape"):
        mechanism.release(np.ones(3), None)


@every_mechanism
@pytest.mark.parametrize("bad", [[0.5], [1.5] * M, [-0.1] * M, [np.nan] * M])
def test_shares_are_numbers_between_zero_and_one(mechanism: Mechanism, bad: list[float]) -> None:
    with pytest.raises(InvalidInput, match="shares must be 4 numbers"):
        mechanism.release(np.ones((M, D)), None, np.array(bad))


@pytest.mark.parametrize("name", SECURE)
def test_noise_too_small_for_integers_is_refused(name: str) -> None:
    tiny: dict[str, Mechanism] = {
        "GaussianSum": GaussianSum(K, 1e-12),
        "VoteSum": VoteSum(K, 1e-12),
        "LaplaceSum": LaplaceSum(K, 1e-140),
        "SymmetricGaussian": SymmetricGaussian(1e150, 1e-150),
        "DiagonalGaussian": DiagonalGaussian(K, 1e-12),
        "DiagonalLaplace": DiagonalLaplace(K, 1e-140),
        "GramGaussian": GramGaussian(K, 1e-12, units=M),
    }
    with pytest.raises(InvalidInput, match="too small for secure sums"):
        tiny[name].release(np.ones((M, D)), None)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan, "1", 1e-200])
@pytest.mark.parametrize(
    "make",
    [
        GaussianSum,
        LaplaceSum,
        KNormSum,
        SymmetricGaussian,
        DiagonalGaussian,
        DiagonalLaplace,
        TwoSidedWishart,
    ],
)
def test_parameters_are_positive_numbers(make: Callable[..., Mechanism], bad: Any) -> None:
    for parameters in ((bad, 1.0), (1.0, bad)):
        with pytest.raises(InvalidInput, match="must be a number in"):
            make(*parameters)


@every_mechanism
def test_unknown_neighbours_are_refused(mechanism: Mechanism) -> None:
    with pytest.raises(InvalidInput, match="neighbours must be"):
        mechanism.event(cast(Neighbours, "add-remove"))


def test_gram_refuses_another_number_of_units() -> None:
    with pytest.raises(InvalidInput, match="declared for 4 units, got 3 rows"):
        GramGaussian(K, 1.0, units=M).release(np.ones((3, D)), None)
    with pytest.raises(InvalidInput, match="units must be at least 1"):
        GramGaussian(K, 1.0, units=0)


# --- events, records, and what is not proven -----------------------------------------------------


@every_relation
def test_calibrated_noise_gives_the_event_asked_for(neighbours: Neighbours) -> None:
    gaussians: list[GaussianSum | SymmetricGaussian | DiagonalGaussian | GramGaussian] = [
        GaussianSum.for_mu(K, 0.3, neighbours),
        VoteSum.for_mu(K, 0.3, neighbours),
        SymmetricGaussian.for_mu(K, 0.3, neighbours),
        DiagonalGaussian.for_mu(K, 0.3, neighbours),
        GramGaussian.for_mu(K, 0.3, neighbours, units=M),
    ]
    for mechanism in gaussians:
        assert math.isclose(mechanism.event(neighbours).mu, 0.3, rel_tol=1e-15)
    pures: list[LaplaceSum | DiagonalLaplace | KNormSum | TwoSidedWishart] = [
        DiagonalLaplace.for_epsilon(K, 0.3, neighbours),
        LaplaceSum.for_epsilon(K, 0.3, neighbours),
        KNormSum.for_epsilon(K, 0.3, neighbours),
        TwoSidedWishart.for_epsilon(K, 0.3, neighbours),
    ]
    for pure in pures:
        assert math.isclose(pure.event(neighbours).epsilon, 0.3, rel_tol=1e-15)


def test_events_have_the_stated_numbers() -> None:
    assert GaussianSum(3.0, 2.0).event("zero-out") == Gaussian(1.5)
    assert GaussianSum(3.0, 2.0).event("replace") == Gaussian(3.0)
    assert TwoSidedWishart(2.0, 8.0).event("replace") == Pure(0.5)
    assert TwoSidedWishart(2.0, 8.0).event("zero-out") == Pure(0.25)
    assert math.isclose(SymmetricGaussian(2.0, 8.0).event("replace").mu, math.sqrt(0.5))
    assert math.isclose(
        GramGaussian(2.0, 8.0, units=320).event("replace").mu, math.sqrt(8 * 319) / 2
    )


@every_mechanism
def test_records_are_json_with_name_and_parameters(mechanism: Mechanism) -> None:
    record = json.loads(json.dumps(mechanism.to_dict()))
    again = mechanisms.NAMED[record.pop("name")](**record)
    assert again == mechanism


@every_mechanism
def test_only_exact_noise_from_the_system_is_secure(mechanism: Mechanism) -> None:
    assert mechanism.secure(None) == (type(mechanism).__name__ in SECURE)
    assert not mechanism.secure(np.random.default_rng(0))
    assert mechanism.secure(None) or mechanism.noise.reason


def test_pure_mechanisms_are_those_proven_with_delta_zero() -> None:
    assert {name for name, m in EVERY.items() if m.noise.pure and m.noise.proven} == set(PURE)


def test_published_wishart_needs_to_be_asked_for() -> None:
    with pytest.raises(InvalidInput, match=r"support depends on the data.*as_published=True"):
        PublishedWishart(K, 0.1)
    published = PublishedWishart(K, 0.1, as_published=True)
    assert not published.noise.proven
    assert "not differentially private" in published.noise.reason
    assert published.event("replace") == Pure(0.1)


# --- products ------------------------------------------------------------------------------------


def test_each_row_apart_is_a_release_of_every_row() -> None:
    """The same noise in the same order, and the same integers before it."""
    rows, shares = random_rows(np.random.default_rng(3)), np.array([1.0, 0.5, 0.25, 0.0])
    row = GaussianSum(K, 2.0)
    first, second = np.random.default_rng(1), np.random.default_rng(1)
    alone = [row.release(rows[[i]], first, shares[[i]]) for i in range(M)]
    np.testing.assert_array_equal(EachRow(row).release(rows, second, shares), np.array(alone))
    counts = [row.counts(rows[[i]], shares[[i]]) for i in range(M)]
    np.testing.assert_array_equal(EachRow(row).counts(rows, shares), np.concatenate(counts))


def test_each_row_apart_has_a_radius_of_its_own() -> None:
    """K-norm noise is one vector a row: its length is Gamma(D), not Gamma(M·D)."""
    noise = EachRow(KNormSum(K, 1.0)).release(np.zeros((4_000, D)), np.random.default_rng(0))
    lengths = np.linalg.norm(noise, axis=1)
    assert math.isclose(lengths.mean(), D, rel_tol=0.05)
    assert math.isclose(lengths.var(), D, rel_tol=0.1)


@pytest.mark.parametrize(
    ("statistic", "norm"),
    [
        (statistics.Votes, "l1"),
        (statistics.Sum, "nuclear"),
        (statistics.Covariance, "l1"),
        (statistics.Gram, "nuclear"),
    ],
)
def test_a_statistic_refuses_noise_in_whose_norm_it_has_no_sensitivity(
    statistic: type[statistics.Sum], norm: noises.Norm
) -> None:
    with pytest.raises(InvalidInput, match="is not known"):
        statistic(1.0, norm)


# --- svec ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [0, 1, 2, 7])
def test_svec_is_an_isometry_and_smat_its_inverse(dim: int) -> None:
    A = np.random.default_rng(dim).standard_normal((dim, dim))
    A = A + A.T
    assert math.isclose(l2(svec(A)), l2(A), rel_tol=1e-12)
    np.testing.assert_allclose(smat(svec(A)), A, rtol=1e-15)
