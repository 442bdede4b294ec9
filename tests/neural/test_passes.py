"""The shape of a pass is public, nobody is left out of it, and nobody's data stops the others."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tacit.neural.client_training import LocalWork, Trainer
from tacit.neural.clients import NOBODY, Examples
from tacit.neural.passes import Pass, parts, slots, spared, unit_slots
from tacit.neural.sampling import Everyone, Fixed, Sampler, SecretCoins
from tacit.neural.stacked import Stacked

RNG = np.random.default_rng(0)


def trainer(sizes: list[int], batch: int = 10) -> Trainer:
    torch.manual_seed(0)
    X, y = torch.randn(sum(sizes), 6), torch.randint(3, (sum(sizes),))
    data = Examples(X, y, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))
    return Trainer(Stacked(nn.Linear(6, 3), X[:2]), LocalWork(2, batch, 0.1), data, threads=1)


# --- the shape -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", [SecretCoins(0.3), Fixed(5), Everyone()])
@pytest.mark.parametrize("size", [1, 3, 7])
def test_the_expected_number_of_passes_is_that_of_drawn_cohorts(
    sampler: Sampler, size: int
) -> None:
    cohorts = [len(sampler.cohort(20, RNG)) for _ in range(4000)]
    drawn = np.mean([math.ceil(k / size) for k in cohorts])
    deviation = np.std(cohorts) / math.sqrt(4000) + 1e-12
    assert abs(sampler.passes(20, size) - drawn) < 5 * deviation


@pytest.mark.parametrize(
    ("clients", "rate", "most", "fixed"),
    [(200, 0.2, 12, 0.8), (1000, 0.1, 12, 0.8), (10**4, 0.1, 10**4, 26.0)],
)
def test_idle_slots_are_few(clients: int, rate: float, most: int, fixed: float) -> None:
    size = slots(SecretCoins(rate), clients, most, fixed)
    assert size <= most
    worked = SecretCoins(rate).passes(clients, size) * size
    assert worked < 1.15 * rate * clients


def test_the_shape_is_whole_vectors_or_one_client() -> None:
    assert slots(Everyone(), 100, 50, 1.0, unit=16) % 16 == 0
    assert slots(Everyone(), 5, 50, 10.0, unit=16) == 16  # idle slots, rather than five passes
    assert slots(Everyone(), 100, 3, 1.0, unit=32) == 1  # 32 would not fit
    for batch in range(1, 70):
        assert unit_slots(batch) * batch % 32 == 0


def test_the_shape_is_the_same_whatever_the_clients_hold() -> None:
    shapes = {
        trainer(sizes).slots(SecretCoins(0.4))
        for sizes in ([3, 4, 5, 6], [0, 0, 0, 900], [1, 1, 1, 1])
    }
    assert len(shapes) == 1


def test_a_declared_number_of_clients_is_not_exceeded() -> None:
    t = trainer([5] * 40, batch=8)  # whole vectors: 4, 8, 12, ...
    assert [replace(t, chunk=n).slots() for n in (1, 3, 4, 11, 30)] == [1, 1, 4, 8, 28]


# --- a pass --------------------------------------------------------------------------------------


def test_idle_slots_hold_zeros_and_nobodys_rows_whatever_was_there_before() -> None:
    seen: list[Tensor] = []

    def work(W: Tensor, centres: Tensor, order: Tensor, weights: Tensor) -> None:
        seen[:] = [W.clone(), centres.clone(), order.clone(), weights.clone()]
        W += 1.0

    one = Pass(
        work, torch.zeros(3, 2), torch.zeros(3, 2), torch.zeros(1, 3, 4).long(), torch.zeros(3, 2)
    )
    full = torch.full((3, 2), torch.nan)
    one(full, full, torch.full((1, 3, 4), 7), full)
    given = torch.ones(1, 2)
    found = one(given, given, torch.full((1, 1, 4), 5), given)
    assert found.tolist() == [[2.0, 2.0]]
    for buffer in (seen[0], seen[1], seen[3]):
        assert buffer.tolist() == [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]
    assert seen[2].tolist() == [[[5] * 4, [-1] * 4, [-1] * 4]]
    one(full, full, torch.full((1, 3, 4), 7), full)
    assert found.tolist() == [[2.0, 2.0]]  # a copy: the next pass does not change it


def test_a_cohort_of_any_size_is_trained_whole() -> None:
    t = replace(trainer([4] * 50, batch=8), chunk=4)
    start = t.stacked.start().repeat(50, 1)
    order = np.arange(200).reshape(50, 4).repeat(2, axis=1)[None].repeat(2, axis=0)
    everyone = t(start, t.stacked.start(), order, sampler=SecretCoins(0.02))  # expected: one
    assert all(not torch.equal(w, t.stacked.start()) for w in everyone)
    assert [part.stop for part in parts(50, 4)][-1] == 50


def test_a_row_that_is_nobodys_is_zero_even_if_the_first_row_is_not_a_number() -> None:
    data = Examples(torch.full((1, 2), torch.nan), torch.tensor([torch.inf]), np.array([0, 1]))
    for found in (data, data.to(torch.device("cpu"))):
        x, y = found.at(torch.tensor([NOBODY, 0]))
        assert x[0].tolist() == [0.0, 0.0]
        assert y[0] == 0.0
        assert x[1].isnan().all()
        assert len(found.X) == len(found.y) == 1


# --- a client whose data make the work fail ------------------------------------------------------


def test_who_fails_alone_is_nothing_and_the_others_are_what_they_were() -> None:
    def run(part: slice) -> Tensor:
        if any(i in (1, 4) for i in range(part.start, part.stop)):
            raise ValueError("bad rows")
        return torch.arange(6.0)[part, None]

    found = spared(run, slice(0, 6)).flatten()
    assert found.isnan().tolist() == [False, True, False, False, True, False]
    assert found[~found.isnan()].tolist() == [0.0, 2.0, 3.0, 5.0]


def test_what_fails_without_anybodys_data_is_raised() -> None:
    def run(part: slice) -> Tensor:
        raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        spared(run, slice(0, 3))
