"""Second moments of coded rows: no pair of people moves them by more than the derivation says."""

from __future__ import annotations

import itertools
import math
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.arrays import FloatArray
from tacit.errors import InvalidInput
from tacit.json_converter import from_json
from tacit.privacy.mechanisms import MomentsGaussian
from tacit.privacy.mechanisms.block_moments import NUMBER, Blocks, helmert
from tacit.privacy.noise import RESOLUTION

EVEN = {"count": 1.0, "slope": 1.0, "total": 1.0}
TABLES = {
    "no column": Blocks((), (), 0.7, 0.3, 1.2, 0.4),
    "one number": Blocks((NUMBER,), (1.3,), 0.7, 2.1, 0.9, 0.2),
    "numbers": Blocks((NUMBER,) * 4, (1.0, 0.5, 2.0, 1.0), 1.1, 0.8, 2.3, 0.4),
    "categories": Blocks((3, 2, 5, 3), (1.0, 1.0, 1.0, 0.6), 0.9, 1.6, 1.2, 0.1),
    "both": Blocks((3, NUMBER, 2, 4, NUMBER), (1.0, 0.7, 1.0, 1.0, 1.9), 1.4, 0.6, 0.5, 0.5),
    "mostly the target": Blocks((3, NUMBER, 4), (0.5, 0.5, 0.5), 0.1, 3.0, 0.1, 0.5),
    "mostly counts": Blocks((3, NUMBER, 4), (0.5, 0.5, 0.5), 3.0, 0.1, 2.0, 0.5),
    "a single category": Blocks((1, 3, NUMBER), (1.0, 1.0, 1.0), **EVEN, square=0.5),
}
every_table = pytest.mark.parametrize("blocks", TABLES.values(), ids=TABLES)


def corners(blocks: Blocks) -> FloatArray:
    """All rows of cells at the ends of their ranges."""
    choices = [(-1.0, 1.0) if k == NUMBER else range(k) for k in (*blocks.levels, NUMBER)]
    return np.array(list(itertools.product(*choices)), dtype=np.float64)


def mechanism(blocks: Blocks, sigma: float = 1.0) -> MomentsGaussian:
    return MomentsGaussian(**asdict(blocks), sigma=sigma)


def person(cells: Any, number: float = 0.0) -> FloatArray:
    """Contributions of one person with these rows."""
    rows = np.atleast_2d(np.asarray(cells, dtype=np.float64))
    return np.column_stack([np.full(len(rows), number), rows])


def random_cells(blocks: Blocks, rows: int, rng: np.random.Generator) -> FloatArray:
    columns = [rng.uniform(-1, 1, rows) if k == NUMBER else rng.integers(k, size=rows)
               for k in (*blocks.levels, NUMBER)]  # fmt: skip
    return np.column_stack(columns).astype(np.float64)


# --- coding --------------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [1, 2, 3, 11])
def test_categories_are_equally_far_apart_and_centred(levels: int) -> None:
    H = helmert(levels)
    np.testing.assert_allclose(H @ H.T, 2 * (np.eye(levels) - 1 / levels), atol=1e-12)
    np.testing.assert_allclose(H.sum(axis=0), 0.0, atol=1e-12)


@every_table
def test_decoding_gives_back_the_second_moments_between_columns(blocks: Blocks) -> None:
    cells = random_cells(blocks, 30, np.random.default_rng(0))
    z = blocks.coordinates(cells)
    S = blocks.decoded(blocks.terms(cells).sum(axis=0))
    released = blocks.noise_deviations(1.0) > 0
    np.testing.assert_allclose(S[released], (z.T @ z)[released], atol=1e-12)
    assert not S[~released].any()
    across = blocks.owner[:, None] != blocks.owner[None, :]
    assert released[across].all()


# --- sensitivity ---------------------------------------------------------------------------------


@every_table
def test_the_worst_corners_reach_the_stated_cross_term(blocks: Blocks) -> None:
    T = blocks.terms(corners(blocks))
    products = T[:, : len(blocks.pairs[0])]
    apart = max(float(np.square(products - row).sum(axis=1).max()) for row in products)
    squares = len(blocks.numbers) * blocks.square**2
    assert blocks.sensitivity("replace") ** 2 == pytest.approx(apart + squares)
    longest = float(np.square(T).sum(axis=1).max())
    assert blocks.sensitivity("zero-out") ** 2 == pytest.approx(longest)


@every_table
def test_no_random_pair_exceeds_it(blocks: Blocks) -> None:
    rng = np.random.default_rng(1)
    first, second = (blocks.terms(random_cells(blocks, 20_000, rng)) for _ in range(2))
    assert np.linalg.norm(first - second, axis=1).max() <= blocks.sensitivity("replace")
    assert np.linalg.norm(first, axis=1).max() <= blocks.sensitivity("zero-out")


def test_the_bound_for_many_kinds_of_columns_is_above_the_corners() -> None:
    kinds = tuple(range(2, 24))
    blocks = Blocks(kinds, (1.0,) * 22, **EVEN)
    bound = blocks.sensitivity("replace")
    rng = np.random.default_rng(2)
    first, second = (blocks.terms(random_cells(blocks, 2000, rng)) for _ in range(2))
    apart = np.linalg.norm(first - second, axis=1).max()
    assert apart <= bound <= 1.3 * apart


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_a_person_with_many_rows_counts_as_one(before: int, after: int, seed: int) -> None:
    blocks, rng = TABLES["both"], np.random.default_rng(seed)
    choices = corners(blocks)
    rest = person(random_cells(blocks, 5, rng), 1.0)
    totals = []
    for rows in (before, after):
        mine = person(choices[rng.integers(len(choices), size=rows)])
        totals.append(mechanism(blocks).counts(np.vstack([mine, rest])))
    apart = np.linalg.norm((totals[0] - totals[1]) / RESOLUTION)
    assert apart <= blocks.sensitivity("replace")


@every_table
@pytest.mark.parametrize("sigma", [1.0, 1e7])
def test_what_is_cut_onto_the_grid_stays_within_it(blocks: Blocks, sigma: float) -> None:
    """Cutting may add g√D to a difference, so everybody is smaller by that share of Δ."""
    made, step = mechanism(blocks, sigma), sigma / RESOLUTION
    ends = corners(blocks)
    whole = np.stack([made.counts(person(row)) for row in ends]) * step
    exact, stated = blocks.terms(ends), blocks.sensitivity("replace")
    apart = max(float(np.linalg.norm(whole - row, axis=1).max()) for row in whole)
    assert apart <= stated
    share = step * math.sqrt(blocks.size) / stated
    assert (np.abs(whole) <= (1 - share) * np.abs(exact)).all()
    assert (np.abs(whole - exact) <= 2 * share * np.abs(exact) + 2 * step).all()


@pytest.mark.parametrize("cell", [np.nan, np.inf, -np.inf, 1e300, -7.0, 2.4])
def test_any_cell_becomes_a_valid_one(cell: float) -> None:
    blocks = TABLES["both"]
    wild = np.full((1, len(blocks.levels) + 1), cell)
    tame = blocks.coordinates(wild)
    assert np.isfinite(tame).all()
    squares = np.bincount(blocks.owner + 1, np.square(tame[0]))
    radii = blocks.radii / np.square(blocks.weights)
    assert (squares <= np.array([1.0, *radii, 1.0]) + 1e-12).all()
    made = mechanism(blocks)
    apart = made.counts(person(wild)) - made.counts(person(np.zeros_like(wild)))
    assert np.linalg.norm(apart / RESOLUTION) <= blocks.sensitivity("replace")


# --- release -------------------------------------------------------------------------------------


def test_a_persons_term_is_the_same_bits_in_any_company_and_order() -> None:
    blocks, rng = TABLES["both"], np.random.default_rng(3)
    made = mechanism(blocks)
    cells = random_cells(blocks, 6000, rng)
    owners = rng.integers(900, size=6000).astype(float)
    rows = np.column_stack([owners, cells])
    together = made.counts(rows)
    alone = sum(made.counts(rows[owners == number]) for number in np.unique(owners))
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_array_equal(together, made.counts(rows[np.argsort(-owners, kind="stable")]))


def test_no_people_are_only_noise() -> None:
    blocks = TABLES["both"]
    empty = np.zeros((0, 2 + len(blocks.levels)))
    assert not mechanism(blocks).counts(empty).any()
    assert mechanism(blocks).release(empty, None).shape == (blocks.size,)


def test_it_is_made_again_of_its_record() -> None:
    made = MomentsGaussian.for_mu(TABLES["both"], 0.5, "replace")
    assert made.event("replace").mu == pytest.approx(0.5)
    record: dict[str, Any] = made.to_dict()
    assert record.pop("name") == "MomentsGaussian"
    assert MomentsGaussian(**record).event("replace") == made.event("replace")
    assert from_json(MomentsGaussian, record, "a mechanism") == made


@pytest.mark.parametrize(
    "rows", [np.zeros((2, 3)), np.zeros(4), np.zeros((1, 2, 6))], ids=["narrow", "flat", "deep"]
)
def test_rows_of_another_width_are_refused(rows: FloatArray) -> None:
    with pytest.raises(InvalidInput):
        mechanism(TABLES["both"]).release(rows, None)


def test_levels_and_weights_that_mean_nothing_are_refused() -> None:
    for levels, weights in [((3,), (1.0, 1.0)), ((-1,), (1.0,)), ((2,), (0.0,)), ((2,), (np.inf,))]:
        with pytest.raises(InvalidInput):
            Blocks(levels, weights, **EVEN)
