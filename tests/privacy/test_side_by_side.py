"""Several rows of each unit in one release: Δ = √k Δ₁, by random and by extremal pairs."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from tacit.arrays import FloatArray
from tacit.errors import InvalidInput
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms import (
    NAMED,
    DiagonalGaussian,
    GaussianSum,
    SideBySide,
    SymmetricGaussian,
    VoteSum,
)
from tacit.privacy.mechanisms.noises import GaussianNoise
from tacit.privacy.mechanisms.noisy_statistic import exactly_noised
from tacit.privacy.mechanisms.recorded import other_than_recorded

M, COUNT, D, CLIP, SMALL = 4, 3, 5, 1.5, 1e-6
E1, E2 = np.eye(D)[:2]
EXTREMAL = {GaussianSum: (E1, -E1), VoteSum: (E1, E2), SymmetricGaussian: (E1, E2)}
every_kind = pytest.mark.parametrize("kind", EXTREMAL)
every_relation = pytest.mark.parametrize("neighbours", ["replace", "zero-out"])


def change(mechanism: Any, before: FloatArray, after: FloatArray, shares: Any = None) -> float:
    """Of a release whose noise is the same."""
    first, second = (
        mechanism.release(rows, np.random.default_rng(0), shares) for rows in (before, after)
    )
    return float(np.linalg.norm(first - second))


def counted_change(mechanism: Any, before: FloatArray, after: FloatArray) -> float:
    """Of what a secure release sees, on the grid."""
    first, second = (mechanism.counts(rows) for rows in (before, after))
    return float(np.linalg.norm(first - second) * mechanism.sigma / 2**26)


@every_kind
@every_relation
def test_the_extremal_pair_reaches_the_sensitivity(kind: Any, neighbours: Neighbours) -> None:
    mechanism = SideBySide.of(kind(CLIP, SMALL), COUNT)
    delta = mechanism.statistic.sensitivity(neighbours)
    assert delta == pytest.approx(
        math.sqrt(COUNT) * kind(CLIP, SMALL).statistic.sensitivity(neighbours)
    )
    first, second = (10 * CLIP * row for row in EXTREMAL[kind])
    before = np.tile(first, (M, COUNT, 1))
    after = before.copy()
    after[0] = second if neighbours == "replace" else 0.0
    assert change(mechanism, before, after) == pytest.approx(delta, rel=1e-9)


@every_kind
@every_relation
def test_no_pair_exceeds_the_sensitivity(kind: Any, neighbours: Neighbours) -> None:
    rng, floating = np.random.default_rng(1), SideBySide.of(kind(CLIP, SMALL), COUNT)
    secure = SideBySide.of(kind(CLIP, 2.0), COUNT)
    found = []
    for _ in range(200):
        before = rng.normal(size=(M, COUNT, D)) * 10.0 ** rng.integers(-2, 3, (M, COUNT, 1))
        after = before.copy()
        after[0] = -before[0] if rng.random() < 0.5 else 3 * rng.normal(size=(COUNT, D))
        if neighbours == "zero-out":
            after[0] = 0.0
        share = rng.random()
        found.append(change(floating, before, after))
        delta = floating.statistic.sensitivity(neighbours)
        assert found[-1] <= delta * (1 + 1e-12)
        assert counted_change(secure, before, after) <= secure.statistic.sensitivity(neighbours)
        shared = change(floating, before, after, np.full(M, share))
        assert shared <= share * delta * (1 + 1e-12) + 1e-12
    assert max(found) > 0.5 * delta  # the search is not idle


@every_kind
def test_it_is_each_release_beside_the_other(kind: Any) -> None:
    rng, part = np.random.default_rng(2), kind(CLIP, 2.0)
    rows, shares = rng.normal(size=(M, COUNT, D)), rng.random(M)
    rows[1, 2] = np.nan
    joint = SideBySide.of(part, COUNT)
    counts = [part.counts(rows[:, k], shares) for k in range(COUNT)]
    np.testing.assert_array_equal(joint.counts(rows, shares), np.concatenate(counts))
    alone = [
        part.statistic.total(*part.statistic.checked(rows[:, k], shares)) for k in range(COUNT)
    ]
    one = joint.statistic.total(*joint.statistic.checked(rows, shares))
    np.testing.assert_array_equal(one, np.stack(alone))
    assert joint.release(rows, None).shape == one.shape
    nobody = joint.release(np.zeros((0, COUNT, D)), np.random.default_rng(0))
    assert nobody.shape == one.shape


@every_relation
def test_parts_at_mu_over_the_root_reveal_mu(neighbours: Neighbours) -> None:
    part = SymmetricGaussian.for_mu(CLIP, 0.3 / math.sqrt(COUNT), neighbours)
    assert SideBySide.of(part, COUNT).event(neighbours).mu == pytest.approx(0.3, rel=1e-14)


def test_whoever_has_the_record_computes_the_event_again() -> None:
    mechanism = SideBySide.of(VoteSum(CLIP, 2.0), COUNT)
    record = json.loads(json.dumps(mechanism.to_dict()))
    assert NAMED[record["name"]](**{k: v for k, v in record.items() if k != "name"}) == mechanism
    mu = mechanism.event("replace").mu
    event = {"kind": "Gaussian", "mu": mu}
    assert not [*other_than_recorded(record, event, True, "replace")]
    of_one = {"kind": "Gaussian", "mu": mu / math.sqrt(COUNT)}
    assert [*other_than_recorded(record, of_one, True, "replace")]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidInput, match="DiagonalGaussian is not released side by side"):
        SideBySide.of(DiagonalGaussian(CLIP, 1.0), 2)
    with pytest.raises(InvalidInput, match="whole number of at least 1"):
        SideBySide("GaussianSum", CLIP, 1.0, 0)
    with pytest.raises(InvalidInput, match=r"shape \(units, 3, dim\)"):
        SideBySide("GaussianSum", CLIP, 1.0, 3).release(np.ones((4, 2, 5)), None)


def test_noise_of_another_shape_is_not_used_twice() -> None:
    counts, one = np.zeros(3, dtype=np.int64), np.zeros(1, dtype=np.int64)
    with pytest.raises(InvalidInput, match=r"noise of shape \(1,\) was drawn for \(3,\) numbers"):
        exactly_noised(counts, one, GaussianNoise(1.0))
