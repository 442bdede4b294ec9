"""What clients take home: they trust what is shared as far as their own rows bear it out."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tacit.arrays import BoolArray
from tacit.neural.client_choice import (
    FOLDS,
    TEMPERATURES,
    WAYS,
    Settled,
    chosen_ways,
    folds,
    losses_at,
    paced,
    settled,
    work_of,
)
from tacit.neural.client_training import LocalWork, Trainer
from tacit.neural.clients import Examples
from tacit.neural.finetuning import finetuned
from tacit.neural.secret_streams import Coins
from tacit.neural.stacked import Stacked

COINS, FEATURES, CLASSES = Coins(bytes(32)), 6, 3
TRUTH = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(5)) * 2


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {"own": 40, "shared": 20, "open": 20, "half": 20, "loose": 40}
    monkeypatch.setattr("tacit.neural.client_choice.STEPS", few)


def examples(sizes: list[int], seed: int = 0) -> Examples:
    """Rows of clients that all follow TRUTH."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(sum(sizes), FEATURES, generator=generator)
    return Examples(X, (X @ TRUTH.T).argmax(1), np.concatenate([[0], np.cumsum(sizes)]))


def trainer(data: Examples, loss: str = "cross_entropy") -> Trainer:
    torch.manual_seed(0)
    module = nn.Linear(FEATURES, CLASSES if loss == "cross_entropy" else 1)
    return Trainer(Stacked(module, data.X[:2]), LocalWork(10, 8, 0.3, loss=loss), data)


def learned() -> Tensor:
    """A shared model that knows the truth."""
    return torch.cat([TRUTH.flatten(), torch.zeros(CLASSES)])


def noise() -> Tensor:
    return 4 * torch.randn(FEATURES * CLASSES + CLASSES, generator=torch.Generator().manual_seed(3))


def taken_home(local: Trainer, shared: Tensor) -> Settled:
    heard = shared.expand(local.examples.clients, -1).clone()
    return settled(local, local.stacked.start(), heard, heard, COINS)


def trusting(found: Settled) -> BoolArray:
    """(m,): does a client take home what was shared?"""
    return np.asarray(found.ways != WAYS.index("own"))


def error(local: Trainer, models: Tensor, turned: int = 0) -> float:
    """On rows that nobody has seen; client k calls a class by the one ``turned`` · k further."""
    clients = len(models)
    fresh = examples([200] * clients, seed=9)
    truth = (fresh.y + turned * torch.arange(clients).repeat_interleave(200)) % CLASSES
    wrong = local.stacked(local.stacked.views(models), fresh.X).argmax(1) != truth
    return float(wrong.double().mean())


def test_every_row_is_held_out_once_and_never_trained_on_then() -> None:
    data = examples([0, 1, 3, 12])
    seen: list[int] = []
    for rest, held in folds(data, 2, COINS):
        inside = held[held >= 0]
        outside = {tuple(row) for row in rest.X.tolist()}
        assert not outside & {tuple(row) for row in data.X[inside].tolist()}
        assert len(outside) + len(inside) == len(data.X)
        owners = np.searchsorted(data.offsets, inside, side="right") - 1
        columns = np.nonzero(held.transpose(1, 0, 2).reshape(4, -1) >= 0)[0]
        np.testing.assert_array_equal(np.sort(owners), columns)
        seen.extend(inside)
    assert sorted(seen) == list(range(len(data.X)))


def test_losses_are_those_of_one_client_after_the_other() -> None:
    data = examples([4, 0, 7])
    local = trainer(data)
    models = torch.randn(3, local.stacked.size)
    held = next(iter(folds(data, 8, COINS)))[1]
    for client, (*found, errors) in enumerate(losses_at(local, models, held)):
        rows = held[:, client][held[:, client] >= 0]
        outputs = local.stacked.one(models[client], data.X[rows])
        for at, temperature in zip(found, TEMPERATURES, strict=True):
            losses = local.work.row_loss(outputs / temperature, data.y[rows])
            assert at == pytest.approx(float(losses.sum()))
        assert errors == int((outputs.argmax(1) != data.y[rows]).sum())


def test_a_model_is_not_refused_for_being_sure_of_itself() -> None:
    """Three times the shared model says the same, only louder."""
    data = examples([8] * 40)
    wrong = torch.rand(len(data.y), generator=torch.Generator().manual_seed(2)) < 0.1
    local = trainer(Examples(data.X, torch.where(wrong, 0, data.y), data.offsets))
    found = taken_home(local, learned() * 3)
    assert trusting(found).mean() > 0.5


@pytest.mark.parametrize("warm", [False, True])
def test_a_model_is_not_refused_for_its_doubts(warm: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was shared by few rounds says the same as the truth, only faintly, and who is held to it
    does so, too. Temperatures from 1 on took that for being wrong."""
    if warm:
        few = tuple(t for t in TEMPERATURES if t >= 1)
        monkeypatch.setattr("tacit.neural.client_choice.TEMPERATURES", few)
    local = trainer(examples([12] * 40))
    found = taken_home(local, learned() * 0.15)
    assert (error(local, found.models) > 0.2) if warm else (error(local, found.models) < 0.18)
    assert TEMPERATURES[0] == 1  # by which the pace is found


def test_half_of_what_is_shared_holds_less_noise() -> None:
    """Where layers follow each other, noise in one is amplified by that in the next."""
    lots, module = examples([2000]), wide_network()
    start = Stacked(module, lots.X[:2]).start()[None]
    long = Trainer(Stacked(module, lots.X[:2]), LocalWork(300, 32, 0.3), lots)
    (good,) = finetuned(long, start, start, "vanilla", COINS)
    noise = torch.randn(len(good), generator=torch.Generator().manual_seed(3))
    data = examples([12] * 30)
    local = Trainer(Stacked(module, data.X[:2]), LocalWork(10, 8, 0.3), data)
    found = taken_home(local, good + 0.4 * noise)
    errors = dict(zip(WAYS, found.errors.mean(axis=0), strict=True))
    assert errors["half"] < min(errors["shared"], errors["open"]) - 0.02
    assert (found.ways == WAYS.index("half")).sum() > 10


def wide_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, CLASSES))


def test_small_clients_take_home_a_good_shared_model() -> None:
    local = trainer(examples([9] * 30))
    found = taken_home(local, learned())
    own = taken_home(local, local.stacked.start())
    assert trusting(found).mean() > 0.8
    assert error(local, found.models) < error(local, own.models) - 0.1
    assert found.brought()["taken_loss"] < found.brought()["own_loss"] - 0.1
    assert found.brought()["taken_errors"] < found.brought()["own_errors"] - 0.1


# --- where classes outnumber a client's rows -----------------------------------------------------

MANY = 30
POINTS = torch.rand(MANY, 12, generator=torch.Generator().manual_seed(6)) * 1.5
"""The middle of each class: of positive coordinates, as pixels are, so that what lowers one unseen
class lowers all."""


def many_classes(sizes: list[int], seed: int, among: int = MANY) -> Examples:
    """Client k has rows of the classes k, ..., k + among − 1 alone."""
    generator = torch.Generator().manual_seed(seed)
    whose = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    y = (whose + torch.randint(among, (len(whose),), generator=generator)) % MANY
    X = POINTS[y] + 0.25 * torch.randn(len(y), POINTS.shape[1], generator=generator)
    return Examples(X, y, np.concatenate([[0], np.cumsum(sizes)]))


def of_many(clients: int, among: int = MANY) -> Trainer:
    """Clients of eight rows."""
    torch.manual_seed(0)
    data = many_classes([8] * clients, seed=0, among=among)
    return Trainer(Stacked(nn.Linear(12, MANY), data.X[:2]), LocalWork(10, 8, 0.3), data)


def wrong_of_many(local: Trainer, models: Tensor, among: int = MANY) -> float:
    fresh = many_classes([100] * len(models), seed=9, among=among)
    said = local.stacked(local.stacked.views(models), fresh.X).argmax(1)
    return float((said != fresh.y).double().mean())


def nearest_point() -> Tensor:
    """A shared model that knows all classes: −‖x − p‖²/2 is x·p − ‖p‖²/2, up to what all have."""
    return torch.cat([POINTS.flatten(), -POINTS.square().sum(1) / 2])


def test_what_is_shared_of_classes_that_a_client_has_not_seen_is_kept() -> None:
    """Finetuned as if there were no others, a model unlearns them."""
    local, heard = of_many(20), nearest_point().expand(20, -1).contiguous()
    narrow = finetuned(
        replace(local, work=work_of("shared", local.work)[1]), heard, heard, "kl", COINS
    )
    found = wrong_of_many(local, taken_home(local, nearest_point()).models)
    own = wrong_of_many(local, taken_home(local, local.stacked.start()).models)
    assert found < wrong_of_many(local, narrow) - 0.2
    assert found < own - 0.4


def test_clients_that_have_few_classes_keep_to_them() -> None:
    """The way that is open to all classes is not theirs."""
    local = of_many(20, among=2)
    found = taken_home(local, nearest_point())
    own = taken_home(local, local.stacked.start())
    assert (found.ways != WAYS.index("open")).mean() > 0.8
    assert wrong_of_many(local, found.models, 2) < wrong_of_many(local, own.models, 2) + 0.02


@pytest.mark.parametrize("by_likelihood", [False, True])
def test_a_little_likelier_is_not_worth_being_wrong_more_often(
    by_likelihood: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight rows of 30 classes: what is shared is likelier, and right less often. A choice by the
    likelihood alone costs more than .025."""
    if by_likelihood:
        rule = partial(chosen_ways, classes=1)  # as if there were always rows enough
        monkeypatch.setattr(
            "tacit.neural.client_choice.chosen_ways", lambda *given: rule(*given[:3])
        )
    local, generator = of_many(60), torch.Generator().manual_seed(1)
    shared = nearest_point() / 4
    shared = shared + 0.3 * torch.randn(len(shared), generator=generator)
    found = wrong_of_many(local, taken_home(local, shared).models)
    own = wrong_of_many(local, taken_home(local, local.stacked.start()).models)
    assert (found > own + 0.025) if by_likelihood else (found < own + 0.01)


def test_who_is_hardly_held_forgets_the_noise_of_what_is_shared() -> None:
    """Where a client's rows decide, and little of what is shared is worth keeping."""
    local, generator = of_many(60), torch.Generator().manual_seed(1)
    shared = nearest_point() / 4
    found = taken_home(local, shared + 0.3 * torch.randn(len(shared), generator=generator))
    errors = dict(zip(WAYS, found.errors.mean(axis=0), strict=True))
    assert errors["loose"] < errors["open"] - 0.05


# --- what is trusted, and what is not ------------------------------------------------------------


def test_where_rows_are_few_a_further_way_must_be_right_an_error_more_often() -> None:
    """Six rows of twenty classes: b is nine tenths, and an error fewer is just enough, not .8."""
    losses, sizes = np.full((2, len(WAYS)), 2.0), np.array([6, 6])
    errors = np.array([[5.0, 2.0, 2.0, 1.2, 5.0], [5.0, 2.0, 2.0, 5.0, 0.8]]) / 6
    ways = chosen_ways(losses, errors, sizes, 20)
    assert [WAYS[way] for way in ways] == ["shared", "loose"]
    assert WAYS[chosen_ways(losses[:1], errors[:1], sizes[:1], 2)[0]] == "own"  # rows enough
    likelier = losses[:1] - np.array([[0.0, 0.5, 0.5, 0.51, 0.0]])
    assert WAYS[chosen_ways(likelier, errors[:1], sizes[:1], 2)[0]] == "half"


def test_noise_is_not_taken_home() -> None:
    """Nor can it be by a home that trusts blindly: finetuned, it is far worse than alone."""
    local = trainer(examples([12] * 30))
    found = taken_home(local, noise())
    own = taken_home(local, local.stacked.start())
    blind = noise().expand(30, -1)
    assert error(local, found.models) < error(local, own.models) + 0.02
    assert error(local, blind) > error(local, own.models) + 0.2
    assert trusting(found).mean() < 0.2


def test_unrelated_clients_keep_their_own_models() -> None:
    """Two of three call the classes by other names: the shared model is none of theirs."""
    data = examples([20] * 30)
    names = (data.y + torch.arange(30).repeat_interleave(20)) % CLASSES
    local = trainer(Examples(data.X, names, data.offsets))
    found = taken_home(local, learned())
    own = taken_home(local, local.stacked.start())
    others = np.arange(30) % CLASSES != 0
    assert not trusting(found)[others].any()
    assert error(local, found.models, turned=1) < error(local, own.models, turned=1) + 0.02


def test_where_nothing_was_shared_everybody_trains_alone() -> None:
    local = trainer(examples([5, 3]))
    found = taken_home(local, local.stacked.start())
    assert found.ways.tolist() == [0, 0]
    assert np.isnan(found.losses).all()


def test_a_client_without_rows_keeps_what_it_heard_and_one_row_suffices() -> None:
    local = trainer(examples([0, 1, 9]))
    found = taken_home(local, learned())
    assert torch.equal(found.models[0], learned())
    assert torch.isfinite(found.models).all()
    assert np.isnan(found.losses[0]).all()
    assert np.isfinite(found.losses[1:]).all()


def test_a_client_that_diverges_keeps_what_it_heard() -> None:
    data = examples([6, 6])
    X = torch.cat([data.X[:6] * 1e30, data.X[6:]])
    found = taken_home(trainer(Examples(X, data.y, data.offsets)), learned())
    assert torch.equal(found.models[0], learned())
    assert torch.isfinite(found.models).all()


def test_nothing_of_the_others_is_in_what_a_client_takes_home() -> None:
    mine = 7
    quiet, loud = examples([mine, 4, 5]), examples([mine, 40, 1], seed=8)
    X, y = (
        torch.cat([quiet.X[:mine], loud.X[mine:] * 1e3]),
        torch.cat([quiet.y[:mine], loud.y[mine:]]),
    )
    first, second = (
        taken_home(trainer(data), learned()) for data in (quiet, Examples(X, y, loud.offsets))
    )
    assert torch.equal(first.models[0], second.models[0])
    np.testing.assert_array_equal(first.losses[0], second.losses[0])


def test_numbers_are_held_to_the_shared_parameters() -> None:
    data = examples([8, 8])
    local = trainer(Examples(data.X, data.X[:, 0] * 2, data.offsets), "squared")
    truth = torch.zeros(FEATURES + 1)
    truth[0] = 2.0
    assert work_of("shared", local.work)[0] == "mean"
    assert taken_home(local, truth).ways.tolist() == [WAYS.index("shared")] * 2


def test_small_inputs_are_learned_alone() -> None:
    data, fresh = examples([40] * 6), examples([200] * 6, seed=9)
    local = trainer(Examples(data.X * 0.2, data.y, data.offsets))
    models = taken_home(local, local.stacked.start()).models
    said = local.stacked(local.stacked.views(models), fresh.X * 0.2).argmax(1)
    assert float((said != fresh.y).double().mean()) < 0.25  # 0.38 at the pace of 1


def test_what_is_shared_is_finetuned_at_the_pace_of_a_client_that_learns_slowly() -> None:
    """At the usual one it would end as noisy as it came: inputs are ten times smaller."""
    data, fresh = examples([12] * 30), examples([100] * 30, seed=9)
    local = trainer(Examples(data.X * 0.1, data.y, data.offsets))
    noisy = 10 * (learned() + noise() / 3)
    heard = noisy.expand(30, -1).contiguous()
    slow = finetuned(
        replace(local, work=work_of("shared", local.work)[1]), heard, heard, "kl", COINS
    )

    def wrong(models: Tensor) -> float:
        said = local.stacked(local.stacked.views(models), fresh.X * 0.1).argmax(1)
        return float((said != fresh.y).double().mean())

    found = taken_home(local, noisy)
    assert trusting(found).mean() > 0.5
    assert wrong(found.models) < wrong(slow) - 0.05
    assert wrong(slow) > wrong(heard) - 0.05


def test_large_inputs_are_learned_alone() -> None:
    data = examples([40] * 6)
    X, y = data.X * 3, data.X[:, 0] * 2
    local = trainer(Examples(X, y, data.offsets), "squared")
    models = taken_home(local, local.stacked.start()).models
    said = local.stacked(local.stacked.views(models), X)[:, 0]
    assert float((said - y).square().mean()) < 0.1 * float(y.square().mean())  # else it diverges


def test_who_learns_its_rows_keeps_the_usual_pace() -> None:
    """Although four times as fast would fit them sooner."""
    data = examples([40] * 6)
    X = torch.cat([data.X[:120] * 3, data.X[120:] * 0.2])
    local = trainer(Examples(X, data.y, data.offsets))
    start = local.stacked.start().expand(6, -1).contiguous()
    paces = paced(local, start, COINS).examples.paces
    assert paces is not None
    assert (paces[:3] == 1).all()
    assert (paces[3:] > 1).all()


@pytest.mark.parametrize(("scale", "usual"), [(0.3, 16.0), (0.2, 64.0)])
def test_the_fastest_pace_is_for_those_whom_no_other_serves(scale: float, usual: float) -> None:
    """At 0.3, too, most would fit their rows sooner by it."""
    data = examples([12] * 20)
    local = trainer(replace(data, X=data.X * scale))
    paces = paced(local, local.stacked.start().expand(20, -1).contiguous(), COINS).examples.paces
    assert paces is not None
    assert (paces == usual).sum() >= 14


def test_a_pace_is_kept_by_those_who_are_selected_and_in_folds() -> None:
    data = replace(examples([3, 4, 9]), paces=np.array([1.0, 4.0, 16.0]))
    np.testing.assert_array_equal(data.select(np.array([2, 0])).paces, [16.0, 1.0])
    np.testing.assert_array_equal(next(folds(data, 2, COINS))[0].paces, [1.0, 4.0, 16.0])


def test_there_are_as_many_folds_as_said() -> None:
    assert len(list(folds(examples([3]), 2, COINS))) == FOLDS
