"""What a client makes of the released model at home: limits of each penalty."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tacit.errors import InvalidInput
from tacit.neural.client_training import LocalWork, Trainer, TrainingStep
from tacit.neural.clients import Examples, batches
from tacit.neural.finetuning import (
    FINETUNINGS,
    Finetuning,
    finetuned,
    fisher_information,
    symmetrised_kl,
    weighted_distance,
)
from tacit.neural.secret_streams import Coins
from tacit.neural.stacked import Stacked

COINS = Coins(bytes(32))


@pytest.fixture(autouse=True)
def few_fisher_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tacit.neural.finetuning.FISHER_ROWS", 6)


def examples(sizes: tuple[int, ...] = (5, 3, 8), dtype: torch.dtype = torch.float64) -> Examples:
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(sum(sizes), 4, generator=generator, dtype=dtype)
    y = torch.randint(3, (sum(sizes),), generator=generator)
    return Examples(X, y, np.concatenate([[0], np.cumsum(sizes)]))


def trainer(pull: float, rate: float = 0.1, data: Examples | None = None) -> Trainer:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 3), nn.Softplus(), nn.Linear(3, 3)).double()
    data = data or examples()
    return Trainer(Stacked(module, data.X[:2]), LocalWork(6, 3, rate, pull), data)


def around(t: Trainer) -> tuple[Tensor, Tensor]:
    """Where three clients start, and their centre."""
    centre = t.stacked.start().repeat(3, 1)
    return centre + 0.3 * torch.randn(3, t.stacked.size, dtype=torch.float64), centre


def tuned(kind: Finetuning, pull: float, rate: float = 0.1) -> Tensor:
    torch.manual_seed(1)
    t = trainer(pull, rate)
    return finetuned(t, *around(t), kind, COINS)


@pytest.mark.parametrize("kind", ["mean", "kl", "ewc"])
def test_without_strength_every_kind_is_vanilla(kind: Finetuning) -> None:
    torch.testing.assert_close(tuned(kind, 0.0), tuned("vanilla", 5.0), rtol=1e-9, atol=1e-9)


def test_a_strong_mean_penalty_keeps_the_centre() -> None:
    """η λ = 1: the first step goes to the centre, up to a step of size η of the loss."""
    t = trainer(0.0)
    distance = (tuned("mean", 1e6, 1e-6) - t.stacked.start()).norm(dim=1)
    assert float(distance.max()) < 1e-4


def test_a_strong_kl_penalty_keeps_the_predictions_closer() -> None:
    t = trainer(0.0)
    _, centre = around(t)
    theirs = t.stacked(t.stacked.views(centre), t.examples.X[:15])

    def apart(models: Tensor) -> float:
        ours = t.stacked(t.stacked.views(models), t.examples.X[:15])
        return float((ours.softmax(1) - theirs.softmax(1)).abs().mean())

    assert apart(tuned("kl", 5.0)) < 0.7 * apart(tuned("vanilla", 0.0))


def test_the_kl_term_is_both_divergences() -> None:
    torch.manual_seed(2)
    t = trainer(0.0)
    start, centre = around(t)
    x = t.examples.X[:6]
    parameters, anchors = t.stacked.views(start), t.stacked.views(centre)
    at = TrainingStep(t.stacked, parameters, anchors, [], x, t.stacked(parameters, x))
    found = symmetrised_kl(2.0, at)
    for k in range(3):
        p, q = (t.stacked.one(w[k], x[2 * k : 2 * k + 2]).log_softmax(1) for w in (start, centre))
        kl = nn.functional.kl_div
        both = kl(q, p, reduction="batchmean", log_target=True) + kl(
            p, q, reduction="batchmean", log_target=True
        )
        assert float(found[k]) == pytest.approx(2.0 * float(both))


def test_fisher_information_is_the_mean_squared_gradient_row_by_row() -> None:
    t = trainer(0.0)
    _, centre = around(t)
    found = fisher_information(t, centre, COINS)
    order = batches(t.examples, np.arange(3), 6, 1, COINS.of("fisher"))[:, :, 0]
    for k in range(3):
        total = torch.zeros(t.stacked.size, dtype=torch.float64)
        for row in order[:, k]:
            total += _numeric_gradient(t, centre[k], int(row)).square()
        torch.testing.assert_close(found[k], total / 6, rtol=1e-4, atol=1e-8)


def _numeric_gradient(t: Trainer, w: Tensor, row: int) -> Tensor:
    """Central differences."""
    x, y = t.examples.X[row : row + 1], t.examples.y[row : row + 1]

    def loss(at: Tensor) -> float:
        return float(nn.functional.cross_entropy(t.stacked.one(at, x), y))

    steps = 1e-5 * torch.eye(len(w), dtype=w.dtype)
    return torch.tensor([(loss(w + s) - loss(w - s)) / 2e-5 for s in steps], dtype=w.dtype)


def test_ewc_holds_a_parameter_by_its_fisher_information() -> None:
    t = trainer(0.0)
    start, centre = around(t)
    fisher = torch.rand(3, t.stacked.size, dtype=torch.float64)
    w, anchors, weights = (t.stacked.views(each) for each in (start, centre, fisher))
    at = TrainingStep(t.stacked, w, anchors, weights, t.examples.X[:3], torch.zeros(3, 3))
    found = weighted_distance(3.0, at)
    expected = 1.5 * (fisher * (start - centre).square()).sum(1)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", FINETUNINGS)
def test_an_empty_and_a_diverging_client_keep_the_centre(kind: Finetuning) -> None:
    data = examples((5, 0, 8))
    data.X[5:] *= 1e200
    t = trainer(0.1, data=data)
    start, centre = around(t)
    found = finetuned(t, start, centre, kind, COINS)
    assert torch.equal(found[1:], centre[1:])
    assert not torch.allclose(found[0], centre[0])


@pytest.mark.parametrize("kind", FINETUNINGS)
def test_one_client_at_a_time_becomes_what_all_together_become(kind: Finetuning) -> None:
    t = trainer(0.5)
    start, centre = around(t)
    whole = finetuned(t, start, centre, kind, COINS)
    one_by_one = finetuned(replace(t, chunk=1), start, centre, kind, COINS)
    torch.testing.assert_close(whole, one_by_one, rtol=1e-9, atol=1e-9)


def test_kl_needs_classes_and_kinds_have_names() -> None:
    t = trainer(0.1)
    start, centre = around(t)
    with pytest.raises(InvalidInput, match="finetune must be one of vanilla, mean, kl, ewc"):
        finetuned(t, start, centre, "more", COINS)  # type: ignore[arg-type] # wrong on purpose
    numbers = replace(t, work=LocalWork(1, 1, 0.1, loss="squared"))
    with pytest.raises(InvalidInput, match="class probabilities"):
        finetuned(numbers, start, centre, "kl", COINS)
