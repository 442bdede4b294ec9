"""Streams by name: equal for equal names, and of no help to anybody for another name."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy import stats

from tacit.neural.secret_streams import Coins, coins_and_noise

ALPHA = 1e-6
COINS = Coins(bytes(range(32)))


def test_a_stream_follows_from_its_name_alone() -> None:
    assert COINS.of(3).of("cohort") == Coins(bytes(range(32))).of(3).of("cohort")
    np.testing.assert_array_equal(COINS.of(3).words(5), COINS.of(3).words(9)[:5])
    assert COINS.of(3).generator().random() == COINS.of(3).generator().random()


def test_streams_of_different_names_have_nothing_in_common() -> None:
    names = [COINS.of(1), COINS.of(2), COINS.of("1"), COINS.of(1).of(2), COINS.of(2).of(1), COINS]
    assert len({coins.secret for coins in names}) == len(names)
    for one, other in pairwise(names):
        assert not np.intersect1d(one.words(1000), other.words(1000)).size


def test_words_are_uniform_and_those_of_neighbours_are_independent() -> None:
    words = np.array([COINS.of(client).words(50) for client in range(400)]) / 2.0**64
    assert stats.kstest(words.ravel(), "uniform").pvalue > ALPHA
    assert stats.pearsonr(words[:-1].ravel(), words[1:].ravel()).pvalue > ALPHA
    assert stats.pearsonr(words[:, :-1].ravel(), words[:, 1:].ravel()).pvalue > ALPHA


def test_every_order_is_equally_likely() -> None:
    orders = [tuple(COINS.of(i).shuffled(3).tolist()) for i in range(6000)]
    counts = [orders.count(order) for order in set(orders)]
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > ALPHA


def test_the_systems_secrets_are_fresh_and_not_printed() -> None:
    one, other = Coins.of_the_system(), Coins.of_the_system()
    assert one != other
    assert repr(one) == "Coins()"


def test_seeded_coins_and_noise_share_no_stream() -> None:
    coins, noise = coins_and_noise("simulated", True, 0)
    assert noise is not None
    assert not np.intersect1d(coins.generator().random(1000), noise.random(1000)).size
    assert (
        coins
        == coins_and_noise("simulated", True, 0)[0]
        != coins_and_noise("simulated", True, 1)[0]
    )


def test_secure_coins_are_fresh_and_secure_noise_has_no_generator() -> None:
    (one, none), (other, _) = (coins_and_noise("secure", True, 0) for _ in "ab")
    assert none is None
    assert one != other


def test_without_a_budget_there_is_no_noise_and_the_seed_holds() -> None:
    (one, none), (other, _) = (coins_and_noise("secure", False, 0) for _ in "ab")
    assert none is None
    assert one == other
