"""Gradients of rows in factors, and sums of them: right, bounded, and each row by itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tacit.arrays import FloatArray
from tacit.errors import InvalidInput
from tacit.neural.client_training import LocalWork, Trainer
from tacit.neural.clients import Examples
from tacit.neural.sampling import Everyone, SecretCoins
from tacit.neural.silos import people_sums
from tacit.neural.silos.people_sums import PeopleRows, PeopleSum, SumOverPeople
from tacit.neural.silos.row_gradients import (
    ROWS,
    Factors,
    LayerRows,
    RowGradients,
    row_doubt,
    same_rows,
)
from tacit.neural.stacked import Stacked
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms.grid import grid
from tacit.privacy.noise import RESOLUTION

SIZES = (3, 70, 1, 40)
D = 5


class Tied(nn.Module):
    """One layer, called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(D, D), nn.Linear(D, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.last(torch.tanh(self.layer(torch.tanh(self.layer(x))))))


class Neighbourly(nn.Module):
    """Looks at the other rows of its batch, where one of them is huge."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(D, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.last(x + (x.nan_to_num().abs().max() > 1e20)))


MODULES: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(D, 3),
    "no bias": lambda: nn.Linear(D, 3, bias=False),
    "layers": lambda: nn.Sequential(nn.Linear(D, 7), nn.ReLU(), nn.Linear(7, 3)),
    "normed": lambda: nn.Sequential(nn.Linear(D, 4), nn.LayerNorm(4), nn.Linear(4, 3)),
    "tied": Tied,
}


def made(module: nn.Module, sizes: tuple[int, ...] = SIZES) -> Trainer:
    rng = np.random.default_rng(3)
    X = torch.from_numpy(rng.normal(size=(sum(sizes), D))).to(next(module.parameters()))
    y = torch.from_numpy(rng.integers(3, size=sum(sizes)))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return Trainer(Stacked(module, X[:2]), LocalWork(1, 4, 0.1), Examples(X, y, offsets))


def rows_of(trainer: Trainer) -> list[Any]:
    at = trainer.examples.offsets
    return [np.arange(a, b) for a, b in pairwise(at)]


def models_of(trainer: Trainer) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    start = trainer.stacked.start()
    return start + 0.3 * torch.randn(trainer.examples.clients, len(start), generator=generator)


def one_by_one(trainer: Trainer, model: Tensor, rows: Any) -> FloatArray:
    """(n, d), by autograd and nothing else."""
    found = []
    for i in rows.tolist():
        w = model.clone().requires_grad_()
        x, y = trainer.examples.X[i : i + 1], trainer.examples.y[i : i + 1]
        trainer.work.row_loss(trainer.stacked.one(w, x), y).sum().backward()  # type: ignore[no-untyped-call] # torch's
        assert w.grad is not None
        found.append(w.grad.numpy())
    return np.stack(found)


@pytest.mark.parametrize("name", MODULES)
def test_rows_have_the_gradients_that_autograd_finds(name: str) -> None:
    torch.manual_seed(0)
    trainer = made(MODULES[name]())
    models, rows = models_of(trainer), rows_of(trainer)
    each = RowGradients.of(trainer)[0].each(models, rows)
    for model, mine, factors in zip(models, rows, each, strict=True):
        found = PeopleRows(factors, np.ones(len(mine)))
        assert found.shape == (len(mine), trainer.stacked.size)
        got = np.stack([found[i] for i in range(len(mine))])
        np.testing.assert_allclose(got, one_by_one(trainer, model, mine), 1e-4, 1e-5)


@pytest.mark.parametrize("name", MODULES)
def test_a_row_has_the_same_bits_alone_in_any_silo_and_any_pass(name: str) -> None:
    torch.manual_seed(0)
    trainer = made(MODULES[name]())
    models, rows = models_of(trainer), rows_of(trainer)
    gradients, doubt = RowGradients.of(trainer)
    assert doubt == ""
    together = list(gradients.each(models, rows))
    backwards = list(gradients.each(models.flip(0), rows[::-1]))[::-1]
    for model, mine, here, there in zip(models, rows, together, backwards, strict=True):
        assert same_rows(here, there)
        for i in (0, len(mine) - 1):
            alone = gradients.alone(model, int(mine[i]))
            assert same_rows([layer[i : i + 1] for layer in here], alone)


def test_a_module_that_looks_at_other_rows_is_found_and_given_one_at_a_time() -> None:
    trainer = made(Neighbourly())
    gradients = RowGradients(trainer.stacked, trainer.work.row_loss, trainer.examples, slots=3)
    assert "beside it" in row_doubt(gradients, trainer)
    careful, doubt = RowGradients.of(trainer)
    assert (careful.slots, careful.rows, doubt) == (1, 1, "")


@pytest.mark.parametrize("name", ["normed", "tied"])
def test_gradients_that_are_written_out_go_row_by_row(name: str) -> None:
    # Some rows come out alike in every place, others do not: with a kink behind them, one person's
    # number of rows would move everybody's.
    careful, _ = RowGradients.of(made(MODULES[name]()))
    assert (careful.slots, careful.rows) == (1, 1)


# --- sums ----------------------------------------------------------------------------------------


def factors_of(n: int, seed: int = 0, scale: float = 3.0) -> Factors:
    trainer = made(nn.Sequential(nn.Linear(D, 7), nn.ReLU(), nn.Linear(7, 3)), (n,))
    examples = replace(trainer.examples, X=trainer.examples.X * scale)
    gradients, _ = RowGradients.of(replace(trainer, examples=examples))
    return next(gradients.each(models_of(trainer) + seed, rows_of(trainer)))


def test_sums_are_of_clipped_rows() -> None:
    rows = PeopleRows(factors_of(90), np.ones(90))
    each = np.stack([rows[i] for i in range(90)])
    norms = np.linalg.norm(each, axis=1)
    assert 0 < (norms > 1).sum() < 90
    wanted = (each / np.maximum(norms, 1.0)[:, None]).sum(axis=0)
    statistic = PeopleSum(1.0, 2.0, Everyone(), 90).statistic
    np.testing.assert_allclose(statistic.total(rows, 1.0), wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("limit", [1e-12, 2.0**-73, 2.0**-490])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1e-163, 1e70),
        (1e-310, 1e300),
        (1e-200, 1e-100),
        (1e75, 1e75),
        *((2.0**500 * near, 2.0**500) for near in (0.55, 0.7, 0.8, 0.95)),
    ],
)
def test_no_row_is_longer_than_its_limit_whatever_its_factors_are(
    left: float, right: float, limit: float
) -> None:
    """Their squares leave the floats, or the quotient of limit and norm does; their product may
    not."""
    one, other = (torch.tensor([[value]], dtype=torch.float64) for value in (left, right))
    rows = PeopleRows([LayerRows(one, other, False)], np.ones(1))
    assert np.abs(rows.summed(limit)) <= limit * (1 + 1e-12)


def test_a_row_that_is_no_number_adds_nothing() -> None:
    factors = factors_of(4)
    statistic = PeopleSum(1.0, 2.0, Everyone(), 4).statistic
    without = PeopleRows([layer[1:] for layer in factors], np.ones(3))
    for wild in (torch.nan, torch.inf, -torch.inf):
        spoilt = [layer.own() for layer in factors]
        spoilt[0].left[0, 0] = wild
        found = statistic.total(PeopleRows(spoilt, np.ones(4)), 1.0)
        np.testing.assert_array_equal(found, statistic.total(without, 1.0))


def normal_rows(n: int, seed: int = 0) -> Factors:
    """Of two layers, all of them far longer than any clip norm here."""
    rng = np.random.default_rng(seed)
    left, right, last = (torch.from_numpy(1e4 * rng.normal(size=(n, k))).float() for k in (7, 5, 3))
    return [LayerRows(left, right), LayerRows(last, bias=True)]


@pytest.mark.parametrize("neighbours", ["replace", "zero-out"])
@pytest.mark.parametrize("clip", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("rows", [1, 7])
def test_one_person_moves_what_is_cut_by_no_more_than_is_said(
    neighbours: Neighbours, clip: float, rows: int
) -> None:
    """Exactly, in steps of the grid: somebody with so many rows, all alike, against the opposite
    person with one, or against nobody."""
    mechanism = PeopleSum(clip, 0.7, Everyone(), 40)
    others, mine = normal_rows(39), [layer[:1] for layer in normal_rows(1, seed=1)]
    opposite = [replace(layer, left=-layer.left) for layer in mine]

    def counts(extra: Factors, times: int) -> list[int]:
        factors = [layer.own() for layer in others]
        for _ in range(times):
            factors = [one.then(more) for one, more in zip(factors, extra, strict=True)]
        weights = np.append(np.ones(39), np.full(times, 1 / max(1, times)))
        return [int(v) for v in mechanism.counts(PeopleRows(factors, weights))]

    there = counts(opposite, 1) if neighbours == "replace" else counts(mine, 0)
    moved = math.sqrt(sum((a - b) ** 2 for a, b in zip(counts(mine, rows), there, strict=True)))
    allowed = mechanism.statistic.sensitivity(neighbours) / grid(mechanism.sigma)
    assert 0.999 * allowed < moved <= allowed


def test_a_coarse_grid_cannot_be_used_to_move_a_sum_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """100 coordinates of a sum lie just below a step of the grid, and one person more lifts all of
    them over it: ten steps, where a fifth of one is allowed. Without its margin it would."""
    scale, size = RESOLUTION / 40, 0.02 / 40  # of the noise, and of a person's every coordinate
    left = torch.full((51, 100), size)
    left[50] *= 0.995
    clip = 10 * size * (1 + 1e-6)
    statistic = SumOverPeople(clip)

    def moved() -> float:
        both = PeopleRows([LayerRows(left)], np.ones(51))
        without = PeopleRows([LayerRows(left[1:])], np.ones(50))
        apart = statistic.counts(both, clip, scale) - statistic.counts(without, clip, scale)
        return float(np.linalg.norm(apart))

    assert moved() <= 40 * clip
    monkeypatch.setattr(people_sums, "grid", lambda scale: 0.0)
    assert moved() > 40 * clip


def test_more_rows_than_are_accounted_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people_sums, "MOST_ROWS", 3)
    with pytest.raises(InvalidInput, match="a silo may have 3 rows, and one has 4"):
        PeopleSum(1.0, 1.0, Everyone(), 4).release(PeopleRows(factors_of(4), np.ones(4)), None)


def test_the_record_of_a_release_names_nobody() -> None:
    mechanism = PeopleSum(1.0, 2.0, SecretCoins(0.1), 40)
    assert mechanism.to_dict() == {
        "name": "PeopleSum",
        "clip_norm": 1.0,
        "noise_multiplier": 2.0,
        "people": 40,
        "sampler": "SecretCoins(rate=0.1)",
    }


# --- the reference -------------------------------------------------------------------------------


def test_one_silo_clips_and_adds_as_opacus_does() -> None:
    pytest.importorskip("opacus", reason="the reference of DP-SGD is in the extra 'peers'")
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(D, 7), nn.ReLU(), nn.Linear(7, 3)).double()
    trainer = made(module, (ROWS + 9,))
    rows = rows_of(trainer)
    factors = next(RowGradients.of(trainer)[0].each(trainer.stacked.start()[None], rows))
    mechanism = PeopleSum(0.8, 2.0, Everyone(), len(rows[0]))
    ours = mechanism.statistic.total(PeopleRows(factors, np.ones(len(rows[0]))), 0.8)
    theirs = GradSampleModule(module)
    optimizer = DPOptimizer(
        torch.optim.SGD(theirs.parameters(), lr=0.1),
        noise_multiplier=0.0,
        max_grad_norm=0.8,
        expected_batch_size=len(rows[0]),
    )
    outputs = theirs(trainer.examples.X.clone().requires_grad_())
    nn.functional.cross_entropy(outputs, trainer.examples.y, reduction="sum").backward()  # type: ignore[no-untyped-call] # torch's
    optimizer.clip_and_accumulate()
    summed = torch.cat([p.summed_grad.flatten() for p in theirs.parameters()])
    np.testing.assert_allclose(ours, summed.numpy(), rtol=1e-6, atol=1e-6)


def test_one_silo_is_charged_as_opacus_charges() -> None:
    rate, z, rounds = 0.1, 2.0, 40
    pytest.importorskip("opacus", reason="the reference of DP-SGD is in the extra 'peers'")
    from opacus.accountants import PRVAccountant

    from tacit.privacy.accounting import epsilon

    theirs = PRVAccountant()
    theirs.history = [(z, rate, rounds)]
    event = PeopleSum(1.0, z, SecretCoins(rate), 100).event("zero-out")
    ours = epsilon([event] * rounds, 1e-5)
    assert ours == pytest.approx(
        theirs.get_epsilon(1e-5, eps_error=5e-4, delta_error=1e-8), rel=1e-3
    )
