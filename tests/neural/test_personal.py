"""Rows in blocks, each with its own client's model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tacit.errors import UnknownTask
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


def test_a_client_is_found_by_its_text_and_keeps_its_label() -> None:
    rows = torch.randn(2, 3, dtype=torch.float64)
    stacked = Stacked(nn.Linear(3, 1).double(), rows)
    models = torch.randn(2, stacked.size, dtype=torch.float64)
    both = PersonalModels(
        stacked, None, (1, "a"), models, models[:1], np.zeros(2, dtype=np.int64), True, (3,)
    )
    as_fitted = both.outputs(rows.numpy(), [1, "a"], "error")
    for asked in (["1", " a"], [1.0, "a"]):
        torch.testing.assert_close(both.outputs(rows.numpy(), asked, "error"), as_fitted)
    assert both.only(("1",)).labels == (1,)
    for stranger in ("01", "A"):
        with pytest.raises(UnknownTask):
            both.only((stranger,))
        with pytest.raises(UnknownTask):
            both.outputs(rows.numpy(), [stranger, "a"], "error")
