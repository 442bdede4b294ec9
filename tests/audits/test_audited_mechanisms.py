"""Every mechanism stands against its worst pair, and the audit is sharp enough to matter."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import numpy as np
import pytest

from tacit.arrays import FloatArray
from tacit.audits.cases import Case, Settings
from tacit.audits.door import door_audits
from tacit.audits.single_releases import (
    AUDITED,
    CLIP,
    UNITS,
    RowPair,
    covariance_pair,
    gram_pair,
    mechanism_audits,
    projection,
    sum_pair,
)
from tacit.errors import InvalidInput
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms.sensitivities import (
    covariance_sensitivity,
    nuclear_sensitivity,
    sensitivity_gram,
    sum_sensitivity,
)

ALPHA = 1e-6
CASES = {case.name: case for found in mechanism_audits() for case in found.cases}
RELATIONS: tuple[Neighbours, ...] = get_args(Neighbours)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_each_mechanism_is_what_it_says(case: Case) -> None:
    samples = 1_000 if "secure" in case.name else 2_000
    result = case.audit(Settings(seed=0, samples=samples, confidence=1 - ALPHA))
    assert case.as_expected(result), result.lines()
    assert result.claim.proven == (not case.flawed)
    assert (result.seed is None) == ("secure" in case.name)


@pytest.mark.parametrize("name", ["GaussianSum, replace", "LaplaceSum, replace"])
def test_sharp_at_epsilon_one(name: str) -> None:
    result = CASES[name].audit(Settings(seed=2))
    assert 0.7 <= result.epsilon_low <= 1.0


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_the_pairs_are_the_worst(neighbours: Neighbours) -> None:
    """Each pair reaches the sensitivity that the mechanism states."""

    def difference(pair: RowPair, centre: Callable[[FloatArray], FloatArray]) -> FloatArray:
        return centre(pair.clipped(0)) - centre(pair.clipped(1))

    sums = difference(sum_pair(neighbours), lambda rows: rows.sum(0))
    assert np.linalg.norm(sums) == pytest.approx(sum_sensitivity(CLIP, neighbours))
    assert np.abs(sums).sum() == pytest.approx(sum_sensitivity(CLIP, neighbours))
    covariance = difference(covariance_pair(neighbours), lambda W: W.T @ W)
    stated = covariance_sensitivity(CLIP, neighbours)
    assert np.linalg.norm(covariance) == pytest.approx(stated)
    assert np.linalg.norm(np.diag(covariance)) == pytest.approx(stated)
    nuclear = np.abs(np.linalg.eigvalsh(covariance)).sum()
    assert nuclear == pytest.approx(nuclear_sensitivity(CLIP, neighbours))
    gram = difference(gram_pair(neighbours), lambda W: W @ W.T)
    assert np.linalg.norm(gram) == pytest.approx(sensitivity_gram(CLIP, UNITS, neighbours))


def test_every_mechanism_is_audited() -> None:
    from tacit.privacy import mechanisms

    exported = [getattr(mechanisms, name) for name in mechanisms.__all__]
    classes = {kind for kind in exported if isinstance(kind, type) and hasattr(kind, "event")}
    others = {mechanisms.NoisyStatistic, mechanisms.EachRow}  # the product; many sums of one row
    assert classes - others == set(AUDITED) == set(mechanisms.NAMED.values())


def test_projection_of_a_gaussian_is_its_log_ratio() -> None:
    rng = np.random.default_rng(0)
    first, second, sigma = rng.standard_normal((3, 3)), rng.standard_normal((3, 3)), 1.7
    y = rng.standard_normal((50, 3, 3))
    squared = [((y - c) ** 2).sum(axis=(1, 2)) for c in (first, second)]
    log_ratio = (squared[1] - squared[0]) / (2 * sigma**2)
    scale = np.linalg.norm(first - second) / sigma**2
    np.testing.assert_allclose(projection(y, first, second) * scale, log_ratio)


def test_two_releases_stand_against_what_the_ledger_recorded() -> None:
    (case,) = door_audits()[0].cases
    result = case.audit(Settings(seed=0, samples=400))
    assert result.verdict == "consistent"
    assert result.claim.epsilon == pytest.approx(4.0, rel=1e-6)
    assert (result.mu_low or 0) > 0.5  # of 0.925


def test_an_impossible_claim_is_refused() -> None:
    with pytest.raises(InvalidInput, match="epsilon must be positive"):
        CASES["GaussianSum, replace"].audit(Settings(epsilon=-1.0))
