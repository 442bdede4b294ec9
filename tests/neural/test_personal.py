"""Rows in blocks, each with its own client's model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tacit.neural.personal import PersonalModels, blocks, evaluated
from tacit.neural.stacked import Stacked

COLUMNS = st.lists(st.integers(0, 6), min_size=1, max_size=60).map(np.array)


@given(columns=COLUMNS)
def test_blocks_hold_every_row_with_its_owner_and_little_else(columns: object) -> None:
    assert isinstance(columns, np.ndarray)
    owners, places = blocks(columns)
    assert (columns[places] == owners[:, None]).all()
    assert sorted(set(places.ravel())) == list(range(len(columns)))
    assert places.size < 2 * len(columns) + len(set(columns.tolist()))


@pytest.mark.parametrize("longest", [1, 3, 512])
def test_long_clients_are_cut(longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tacit.neural.personal.LONGEST", longest)
    owners, places = blocks(np.array([1] * 20 + [0]))
    assert places.shape[1] == min(longest, 11)
    assert sorted(set(places.ravel())) == list(range(21))
    assert owners.tolist() == sorted(owners.tolist())


@pytest.mark.parametrize("normed", [False, True])
def test_each_row_is_evaluated_by_its_own_model_in_evaluation_mode(normed: bool) -> None:
    torch.manual_seed(0)
    middle = nn.LayerNorm(4) if normed else nn.Tanh()
    net = nn.Sequential(nn.Linear(3, 4), middle, nn.Dropout(0.9), nn.Linear(4, 2)).double()
    rows = torch.randn(17, 3, dtype=torch.float64)
    stacked = Stacked(net, rows[:2])
    models = torch.randn(5, stacked.size, dtype=torch.float64)
    columns = np.random.default_rng(0).integers(0, 5, size=17)
    found = evaluated(stacked, models, rows, columns)
    assert net.training  # as it was
    net.eval()
    alone = torch.cat(
        [stacked.one(models[c], row[None]) for c, row in zip(columns, rows, strict=True)]
    )
    torch.testing.assert_close(found, alone, rtol=1e-9, atol=1e-9)


def test_minus_one_is_the_shared_model_and_a_folder_holds_the_centres_that_are_heard() -> None:
    rows = torch.randn(2, 3, dtype=torch.float64)
    stacked = Stacked(nn.Linear(3, 1).double(), rows)
    models = torch.randn(3, stacked.size, dtype=torch.float64)
    centres, listens = torch.randn_like(models), np.arange(3)
    all_heard = PersonalModels(stacked, None, models, centres, listens, True, (3,))
    found = all_heard.outputs(rows, np.array([2, -1]))
    torch.testing.assert_close(found[0], stacked.one(models[2], rows[:1])[0])
    torch.testing.assert_close(found[1], stacked.one(centres.mean(0), rows[1:])[0])
    assert set(all_heard.arrays([0, 2])) == {"models", "listens"}
    held = replace(all_heard, public=False).arrays([2])
    np.testing.assert_array_equal(held["centres"], centres[2:])
    assert held["listens"].tolist() == [0]
