"""The public rule of rounds: noise stays where it was promised to stay, whatever the budget."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tacit.arrays import FloatArray
from tacit.errors import NoiseWarning, NotPure
from tacit.neural import mixing
from tacit.neural.round_costs import multiplier
from tacit.neural.round_schedule import (
    AMONG_TASKS,
    COOLED,
    FEWEST,
    HOPELESS,
    MOST,
    RoundSchedule,
    schedule,
    starting_size,
)
from tacit.neural.sampling import Everyone
from tacit.privacy.budget import Budget

MLP = [(100, 784), (100,), (10, 100), (10,)]


def zero_out(epsilon: float) -> Budget:
    return Budget(epsilon, 1e-5, neighbours="zero-out")


def clips(planned: RoundSchedule) -> FloatArray:
    return np.asarray(planned.clip_norm * planned.cooling ** np.arange(planned.rounds))


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_the_noise_of_all_rounds_is_what_a_parameter_bears(epsilon: float) -> None:
    planned = schedule(zero_out(epsilon), mixing.mean(538), MLP)
    z = multiplier(Everyone(), 538, planned.rounds, zero_out(epsilon))
    noise = z * math.sqrt((clips(planned) ** 2).sum()) / 538
    assert 1.0 <= noise / (AMONG_TASKS.noise * starting_size(MLP)) < 1.25


def test_more_budget_travels_further_until_the_noise_vanishes() -> None:
    plans = [schedule(zero_out(e), mixing.mean(538), MLP) for e in (0.5, 2.0, 8.0, 100.0, 1e4)]
    travels = [clips(planned).sum() for planned in plans]
    assert all(a <= b * (1 + 1e-9) for a, b in itertools.pairwise(travels))
    assert travels[-1] == pytest.approx(AMONG_TASKS.widest * MOST)
    assert plans[-1].noise_to_signal < 0.01
    assert all(FEWEST <= planned.rounds <= MOST for planned in plans)


def test_clip_norms_cool_to_a_fifth() -> None:
    found = clips(schedule(zero_out(2.0), mixing.mean(538), MLP))
    assert found[-1] / found[0] == pytest.approx(COOLED)


def test_too_few_clients_run_no_round_unless_told_to() -> None:
    few = mixing.mean(30)
    assert schedule(zero_out(0.5), few, MLP).rounds == 0
    assert schedule(zero_out(0.5), few, MLP, rounds=7).rounds == 7
    assert schedule(zero_out(0.01), mixing.mean(538), MLP).rounds == 0


def test_outputs_that_drown_in_noise_run_no_round_though_parameters_are_few() -> None:
    """A linear model of ten classes, sixty clients: joining cost .04 to .07 in accuracy."""
    linear = [(10, 64), (10,)]
    found = schedule(zero_out(0.5), mixing.mean(60), linear)
    assert (found.rounds, found.better_alone) == (0, True)
    assert found.noise_to_signal < HOPELESS
    with pytest.warns(NoiseWarning, match=r"in each output is 0\.37 .* no round is run"):
        found.warn()
    assert schedule(zero_out(0.8), mixing.mean(60), linear).rounds
    assert schedule(zero_out(0.5), mixing.mean(60), [(2, 64), (2,)]).rounds  # two classes


def test_replaced_clients_need_twice_the_crowd() -> None:
    replaced = schedule(Budget(2.0, 1e-5, neighbours="replace"), mixing.mean(1076), MLP)
    silent = schedule(zero_out(2.0), mixing.mean(538), MLP)
    assert replaced.rounds == silent.rounds
    assert replaced.clip_norm == pytest.approx(silent.clip_norm)


def test_a_cluster_is_a_crowd_of_its_own() -> None:
    halves = schedule(zero_out(2.0), mixing.clusters(np.arange(1076) % 2), MLP)
    assert halves == schedule(zero_out(2.0), mixing.mean(538), MLP)


def test_without_a_budget_nothing_is_clipped_away() -> None:
    assert schedule(None, mixing.mean(3), MLP) == RoundSchedule(MOST, 1.0, 1.0, 0.0)


def test_pure_budgets_are_refused() -> None:
    with pytest.raises(NotPure):
        schedule(Budget(1.0, 0.0, neighbours="zero-out"), mixing.mean(30), MLP)
