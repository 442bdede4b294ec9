"""Sums made in parts: the whole of them, exactly, and on the record the same mechanism."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pytest

from tacit.errors import InvalidInput
from tacit.privacy.mechanisms import (
    DiagonalGaussian,
    EachRow,
    GaussianSum,
    GramGaussian,
    KNormSum,
    LaplaceSum,
    SymmetricGaussian,
    TwoSidedWishart,
    VoteSum,
)
from tacit.privacy.mechanisms.in_parts import InParts, Part

ADDED = [
    GaussianSum(1.0, 3.0),
    VoteSum(1.0, 3.0),
    LaplaceSum(1.0, 3.0),
    SymmetricGaussian(1.0, 3.0),
    DiagonalGaussian(1.0, 3.0),
    KNormSum(1.0, 3.0),
]


@pytest.mark.parametrize("mechanism", ADDED, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("with_shares", [False, True])
def test_parts_add_up_to_the_whole(mechanism: Any, with_shares: bool) -> None:
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(40, 4)) * 10.0 ** rng.uniform(-3, 3, size=(40, 1))
    rows[7] = np.nan
    shares = rng.uniform(size=40) if with_shares else None
    parted, order = InParts(mechanism), rng.permutation(40)
    for n_parts in (1, 3, 40):
        parts = [
            parted.part(rows[some], None if shares is None else shares[some])
            for some in np.array_split(order, n_parts)
        ]
        found = reduce(add, parts)
        np.testing.assert_array_equal(found.counts, mechanism.counts(rows, shares))
        assert found.shape == rows.shape


@pytest.mark.parametrize("mechanism", ADDED, ids=lambda each: type(each).__name__)
def test_on_the_record_it_is_the_mechanism(mechanism: Any) -> None:
    parted = InParts(mechanism)
    for neighbours in ("replace", "zero-out"):
        assert parted.event(neighbours) == mechanism.event(neighbours)
    assert parted.to_dict() == mechanism.to_dict()
    assert parted.secure(None) == mechanism.secure(None)


@pytest.mark.parametrize("mechanism", ADDED, ids=lambda each: type(each).__name__)
def test_simulated_noise_is_that_of_the_mechanism(mechanism: Any) -> None:
    """The same draws on the same sum, up to the grid and to the order of addition."""
    rows = np.random.default_rng(1).normal(size=(9, 4))
    parted = InParts(mechanism)
    one = mechanism.release(rows, np.random.default_rng(2))
    found = parted.release(parted.part(rows, None), np.random.default_rng(2))
    np.testing.assert_allclose(found, one, atol=1e-6)


@pytest.mark.parametrize("apart", [EachRow(GaussianSum(1.0, 3.0)), GramGaussian(1.0, 3.0, units=9)])
def test_what_is_no_sum_over_units_is_refused(apart: Any) -> None:
    with pytest.raises(InvalidInput, match="no sum over tasks"):
        InParts(apart)


def test_a_nuclear_norm_is_refused() -> None:
    """The clip spares what the grid adds in Frobenius norm, g√D; in nuclear norm it may be √d times
    that: at d = 30 and ε = 0.01 the sum moved by 9·10⁻⁶ more than is stated (zero-out)."""
    with pytest.raises(InvalidInput, match="nuclear norm"):
        InParts(TwoSidedWishart(1.0, 3.0))


def test_all_parts_together_must_fit_the_integers() -> None:
    parted = InParts(GaussianSum(1.0, 2.0**-30))
    small = parted.part(np.ones((8, 1)), None)
    assert np.isfinite(parted.release(small, None)).all()
    many = Part(small.counts, (2**8, 1))
    with pytest.raises(InvalidInput, match="too small for secure sums of 256 units"):
        parted.release(many, None)


def test_rows_beyond_a_cache_have_their_own_clips() -> None:
    """They are clipped and cut some at a time; their shares with them."""
    rng = np.random.default_rng(8)
    rows, shares = rng.normal(size=(900, 300)), rng.uniform(size=900)
    mechanism = GaussianSum(1.0, 3.0)
    each = [mechanism.counts(rows[i : i + 1], shares[i : i + 1]) for i in range(len(rows))]
    np.testing.assert_array_equal(mechanism.counts(rows, shares), np.sum(each, axis=0))
