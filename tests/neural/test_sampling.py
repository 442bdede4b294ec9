"""The accountant receives what the sampler did."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tacit.errors import InvalidInput
from tacit.neural.sampling import Everyone, Fixed, Sampler, SecretCoins
from tacit.privacy import accounting
from tacit.privacy.budget import Neighbours

ALPHA = 1e-6


def test_poisson_takes_each_client_by_its_own_coin() -> None:
    rng = np.random.default_rng(0)
    drawn = np.array(
        [np.isin(np.arange(5), SecretCoins(0.3).cohort(5, rng)) for _ in range(20_000)]
    )
    for hits in drawn.sum(0):
        assert stats.binomtest(int(hits), len(drawn), 0.3).pvalue > ALPHA
    sizes = np.bincount(drawn.sum(1), minlength=6)
    expected = stats.binom.pmf(np.arange(6), 5, 0.3) * len(drawn)
    assert stats.chisquare(sizes, expected).pvalue > ALPHA
    together = int((drawn[:, 0] & drawn[:, 1]).sum())
    assert stats.binomtest(together, len(drawn), 0.09).pvalue > ALPHA


def test_fixed_takes_k_of_m_uniformly() -> None:
    rng = np.random.default_rng(0)
    drawn = [tuple(Fixed(2).cohort(4, rng)) for _ in range(12_000)]
    pairs, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(pairs) == 6
    assert stats.chisquare(counts).pvalue > ALPHA


def test_everyone_is_everyone() -> None:
    assert Everyone().cohort(3, np.random.default_rng(0)).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("sampler", "neighbours", "event"),
    [
        (SecretCoins(0.1), "zero-out", accounting.Poisson(0.1, 2.0, "zero-out")),
        (SecretCoins(0.1), "replace", accounting.Poisson(0.1, 2.0, "replace")),
        (Fixed(3), "zero-out", accounting.Visible(0.1, 0.5)),
        (Fixed(3), "replace", accounting.Visible(0.1, 1.0)),
        (Everyone(), "zero-out", accounting.Gaussian(0.5)),
        (Everyone(), "replace", accounting.Gaussian(1.0)),
    ],
)
def test_each_sampler_states_its_own_event(
    sampler: Sampler, neighbours: Neighbours, event: accounting.Event
) -> None:
    assert sampler.event(30, 2.0, neighbours) == event


def test_fixed_size_costs_what_the_specification_says() -> None:
    events = [Fixed(10).event(100, 2.0, "zero-out")] * 100
    assert accounting.epsilon(events, 1e-5) == pytest.approx(9.034, abs=1e-3)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5, float("nan")])
def test_a_rate_is_a_probability(rate: float) -> None:
    with pytest.raises(InvalidInput, match=r"in \(0, 1\]"):
        SecretCoins(rate)


def test_a_cohort_is_not_larger_than_everybody() -> None:
    with pytest.raises(InvalidInput, match="at least 1"):
        Fixed(0)
    for ask in (
        lambda: Fixed(5).cohort(4, np.random.default_rng(0)),
        lambda: Fixed(5).event(4, 1.0, "zero-out"),
    ):
        with pytest.raises(InvalidInput, match="a cohort of 5 was asked of 4 clients"):
            ask()
