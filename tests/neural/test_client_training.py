"""What clients do at home, held against one client after the other with torch's own optimiser."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from tacit.errors import InvalidInput
from tacit.neural.client_training import LocalWork, Trainer
from tacit.neural.clients import NOBODY, Examples, batches
from tacit.neural.secret_streams import Coins
from tacit.neural.stacked import Stacked

SIZES = (7, 3, 1, 12)
COINS = Coins(bytes(32))


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def cnn() -> nn.Module:
    torch.manual_seed(0)
    convolutions = (nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(12, 3)).double()


def normed() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.LayerNorm(36), nn.Linear(36, 3)).double()


class Twice(nn.Module):
    """One layer in two places, and one whose gradient is cut off."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.cut, self.last = nn.Linear(36, 36), nn.Linear(36, 36), nn.Linear(36, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        found: Tensor = self.last(self.inner(self.inner(x).tanh()) + self.cut(x).detach())
        return found


class Tied(Twice):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.cut.weight = self.inner.weight

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(self.cut(self.inner(x.flatten(1)).tanh()))
        return found


def twice() -> nn.Module:
    torch.manual_seed(0)
    return Twice().double()


def tied() -> nn.Module:
    torch.manual_seed(0)
    return Tied().double()


def examples(sizes: tuple[int, ...] = SIZES) -> Examples:
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(sum(sizes), 1, 6, 6, generator=generator, dtype=torch.float64)
    y = torch.randint(3, (sum(sizes),), generator=generator)
    return Examples(X, y, np.concatenate([[0], np.cumsum(sizes)]))


def one_by_one(
    module: nn.Module, work: LocalWork, data: Examples, W: Tensor, centre: Tensor, order: Tensor
) -> Tensor:
    """As one would write it for a single client."""
    trained = []
    for k in range(len(W)):
        net, anchor = copy.deepcopy(module), copy.deepcopy(module)
        vector_to_parameters(W[k].clone(), net.parameters())
        vector_to_parameters(centre[k].clone(), anchor.parameters())
        optimizer = torch.optim.SGD(net.parameters(), lr=work.rate)
        for rows in order[:, k]:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(data.X[rows]), data.y[rows])
            pairs = zip(net.parameters(), anchor.parameters(), strict=True)
            distance = torch.stack([(p - a.detach()).square().sum() for p, a in pairs]).sum()
            (loss + work.pull / 2 * distance).backward()  # type: ignore[no-untyped-call] # torch's
            optimizer.step()
        trained.append(parameters_to_vector(net.parameters()).detach())
    return torch.stack(trained)


@pytest.mark.parametrize("make", [mlp, cnn, normed, twice, tied])
@pytest.mark.parametrize("chunk", [None, 1, 3])
def test_all_clients_at_once_train_as_one_after_the_other(make: object, chunk: int | None) -> None:
    assert callable(make)
    module, data = make(), examples()
    stacked = Stacked(module, data.X[:2])
    work = LocalWork(steps=4, batch=5, rate=0.3, pull=0.2)
    everybody = np.arange(4)
    order = batches(data, everybody, 4, 5, COINS)
    start = stacked.start() + 0.1 * torch.randn(4, stacked.size, dtype=torch.float64)
    centres = stacked.start() + 0.1 * torch.randn(4, stacked.size, dtype=torch.float64)
    together = Trainer(stacked, work, data, chunk)(start, centres, order)
    alone = one_by_one(module, work, data, start, centres, torch.from_numpy(order))
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-9)
    assert not torch.allclose(together, start, atol=1e-3)


@pytest.mark.parametrize("make", [mlp, cnn])
def test_a_pace_is_as_many_times_the_rate(make: object) -> None:
    assert callable(make)
    data, order = examples(), batches(examples(), np.arange(4), 4, 5, COINS)
    stacked = Stacked(make(), data.X[:2])
    start = stacked.start().repeat(4, 1)
    paces = np.array([1.0, 4.0, 0.5, 2.0])
    found = Trainer(stacked, LocalWork(4, 5, 0.1), replace(data, paces=paces))(start, start, order)
    for client, pace in enumerate(paces):
        plain = Trainer(stacked, LocalWork(4, 5, 0.1 * pace), data)(start, start, order)
        torch.testing.assert_close(found[client], plain[client], rtol=1e-6, atol=1e-7)


def test_one_centre_for_all_is_that_centre_for_each() -> None:
    module, data = mlp(), examples()
    stacked = Stacked(module, data.X[:2])
    trainer = Trainer(stacked, LocalWork(3, 2, 0.1, pull=1.0), data, chunk=3)
    start, centre = stacked.start().repeat(4, 1), 2 * stacked.start()
    order = batches(data, np.arange(4), 3, 2, COINS)
    one = trainer(start, centre, order)
    torch.testing.assert_close(one, trainer(start, centre.expand(4, -1), order))


def test_a_clients_model_does_not_depend_on_the_others() -> None:
    data = examples()
    stacked = Stacked(cnn(), data.X[:2])
    trainer = Trainer(stacked, LocalWork(3, 4, 0.1), data)
    order = batches(data, np.arange(4), 3, 4, COINS)
    start, centre = stacked.start().repeat(4, 1), stacked.start()
    before = trainer(start, centre, order)
    changed = Examples(data.X.clone(), data.y, data.offsets)
    changed.X[:7] = 50.0
    after = Trainer(stacked, trainer.work, changed)(start, centre, order)
    assert torch.equal(after[1:], before[1:])
    assert not torch.allclose(after[0], before[0])


def test_the_squared_loss_of_one_step_is_least_squares_by_hand() -> None:
    torch.manual_seed(0)
    module = nn.Linear(3, 1).double()
    X, y = torch.randn(6, 3, dtype=torch.float64), torch.randn(6, dtype=torch.float64)
    data = Examples(X, y, np.array([0, 6]))
    stacked = Stacked(module, X[:2])
    work = LocalWork(1, 6, 0.1, loss="squared")
    order: NDArray[np.int64] = np.arange(6).reshape(1, 1, 6)
    trained = Trainer(stacked, work, data)(stacked.start()[None], stacked.start(), order)[0]
    weight, bias = module.weight.detach()[0], module.bias.detach()
    error = X @ weight + bias - y
    torch.testing.assert_close(trained[:3], weight - 0.1 * (error[:, None] * X).mean(0))
    torch.testing.assert_close(trained[3], (bias - 0.1 * error.mean())[0])


# --- batches -------------------------------------------------------------------------------------


def test_a_batch_holds_only_its_clients_own_rows_each_once_an_epoch() -> None:
    data = examples()
    order = batches(data, np.arange(4), 6, 2, COINS)
    for k, size in enumerate(SIZES):
        drawn = order[:, k].ravel()
        assert set(drawn) <= set(range(data.offsets[k], data.offsets[k + 1]))
        whole = drawn[: len(drawn) // size * size].reshape(-1, size)
        assert all(len(set(epoch)) == size for epoch in whole)


def test_a_client_with_fewer_rows_than_a_batch_repeats_them() -> None:
    data = examples()
    order = batches(data, np.array([1]), 1, 8, COINS)[0, 0]
    assert sorted(np.bincount(order - 7, minlength=3).tolist()) == [2, 3, 3]


def test_batches_of_nobody_and_of_an_empty_client_have_their_shape() -> None:
    data = examples((2, 0, 3))
    assert batches(data, np.zeros(0, dtype=np.int64), 2, 3, COINS).shape == (2, 0, 3)
    empty = batches(data, np.array([1]), 2, 3, COINS)
    assert empty.shape == (2, 1, 3)
    assert (empty == NOBODY).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": 0}, "steps must be at least 1"),
        ({"batch": 0}, "batch must be at least 1"),
        ({"rate": 0.0}, "rate must be > 0"),
        ({"pull": -1.0}, "pull ≥ 0"),
        ({"loss": "hinge"}, "loss must be one of"),
    ],
)
def test_work_that_makes_no_sense_is_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        LocalWork(**{"steps": 1, "batch": 1, "rate": 0.1} | change)  # type: ignore[arg-type] # wrong on purpose


def test_rows_targets_and_offsets_must_agree() -> None:
    with pytest.raises(InvalidInput, match="X has 2 rows, y 3, the offsets end at 2"):
        Examples(torch.zeros(2, 1), torch.zeros(3), np.array([0, 2]))
