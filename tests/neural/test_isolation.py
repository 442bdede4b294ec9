"""Attacks: one client is replaced by the worst that can be thought of, and nobody else moves a bit.

Every round of a run is looked at before its noise, in whole numbers of the grid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.arrays import FloatArray
from tacit.audits.round_isolation import by_the_longest
from tacit.engine import Unprotected
from tacit.errors import InvalidInput, IsolationError
from tacit.neural import FederatedMTL, isolation_trial, mixing, products
from tacit.neural.client_training import LocalWork, Trainer
from tacit.neural.clients import Examples
from tacit.neural.cohort import CohortSum, PlainSum, Updates
from tacit.neural.finetuning import FINETUNINGS, Finetuning, finetuned
from tacit.neural.inputs import as_rows, targets_of
from tacit.neural.isolation_trial import doubt, same_bits
from tacit.neural.pmtl import (
    Adaptive,
    FederatedClients,
    FederatedPlan,
    FederatedServer,
    Method,
    Worked,
)
from tacit.neural.sampling import Everyone, Fixed, Sampler, SecretCoins
from tacit.neural.secret_streams import Coins
from tacit.neural.stacked import Stacked
from tacit.privacy.budget import Budget
from tacit.privacy.isolation import require_alone
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms.clipping import tree_norms
from tacit.privacy.mechanisms.grid import grid

COINS = Coins(bytes(32))
M, TARGET, FEATURES = 7, 2, 13
SIZES = (9, 4, 6, 31, 1, 0, 12)

# --- modules and clients -------------------------------------------------------------------------


def even() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, 4))


def odd() -> nn.Module:
    """No size is a multiple of anything, and Softplus has another tail than its vectors."""
    return nn.Sequential(nn.Linear(FEATURES, 37), nn.Softplus(), nn.Linear(37, 3))


def precise() -> nn.Module:
    return odd().double()


def through_vmap() -> nn.Module:
    """A layer without a personal twin; whole vectors in every matrix, with batches of 16."""
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3))


def odd_through_vmap() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 7), nn.LayerNorm(7), nn.GELU(), nn.Linear(7, 3))


class Image(nn.Module):
    """A convolution on the row as a picture of 3 × 4."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.dense = nn.Conv2d(1, 3, 2), nn.Linear(18, 3)

    def forward(self, x: Tensor) -> Tensor:
        found = self.convolution(x[:, :12].reshape(-1, 1, 3, 4))
        return torch.as_tensor(self.dense(torch.tanh(found).flatten(1)))


class ManyChannels(nn.Module):
    """As Image, and a second convolution that takes one client after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 9, 2), nn.Conv2d(9, 5, (1, 2))
        self.dense = nn.Linear(20, 3)

    def forward(self, x: Tensor) -> Tensor:
        found = torch.tanh(self.first(x[:, :12].reshape(-1, 1, 3, 4)))
        return torch.as_tensor(self.dense(torch.tanh(self.second(found)).flatten(1)))


MODULES = [even, odd, precise, through_vmap, Image, ManyChannels]


def rows(sizes: tuple[int, ...], dtype: torch.dtype) -> list[tuple[Tensor, Tensor]]:
    """Each client's own X and y, whatever the others have."""
    found = []
    for client, size in enumerate(sizes):
        generator = torch.Generator().manual_seed(client)
        X = torch.randn(size, FEATURES, generator=generator, dtype=dtype)
        found.append((X, torch.randint(3, (size,), generator=generator)))
    return found


def joined(clients: list[tuple[Tensor, Tensor]]) -> Examples:
    offsets = np.cumsum([0, *(len(X) for X, _ in clients)])
    return Examples(torch.cat([X for X, _ in clients]), torch.cat([y for _, y in clients]), offsets)


def trainer(
    make: Callable[[], nn.Module] = even,
    clients: list[tuple[Tensor, Tensor]] | None = None,
    threads: int = 2,
    batch: int | None = None,
) -> Trainer:
    torch.manual_seed(0)
    module = make()
    batch = batch or (16 if make is through_vmap else 5)
    data = joined(clients or rows(SIZES, next(module.parameters()).dtype))
    work = LocalWork(3, batch, 0.3, pull=0.2)
    return Trainer(Stacked(module, data.X[:2]), work, data, threads=threads)


Change = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
REPLACEMENTS: dict[str, Change] = {
    "long": lambda X, y: (X.repeat(50, 1), y.repeat(50)),
    "short": lambda X, y: (X[:1], y[:1]),
    "empty": lambda X, y: (X[:0], y[:0]),
    "huge": lambda X, y: (X * 1e30, y),
    "tiny": lambda X, y: (X * 1e-30, y),
    "constant": lambda X, y: (torch.full_like(X, 1e10), y),
    "NaN": lambda X, y: (torch.full_like(X, torch.nan), y),
    "infinite": lambda X, y: (torch.full_like(X, torch.inf), y),
    "reversed": lambda X, y: (-X, 2 - y),
}


def replaced(clients: list[tuple[Tensor, Tensor]], change: Change) -> list[tuple[Tensor, Tensor]]:
    return [change(*own) if k == TARGET else own for k, own in enumerate(clients)]


# --- one update ----------------------------------------------------------------------------------


def clients_of(p: FederatedPlan, t: Trainer) -> FederatedClients:
    return FederatedClients(p, t, COINS, p.own_models(t.stacked.start()))


def worked(p: FederatedPlan, t: Trainer, cohort: NDArray[np.int64]) -> Worked:
    """The first round of this cohort."""
    clients = clients_of(p, t)
    return clients.worked(p.begin(t.stacked.start(), 1.0), clients.models, cohort)


@pytest.mark.parametrize("make", MODULES)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("sampler", [SecretCoins(0.4), Everyone()])
def test_an_update_has_the_same_bits_alone_in_any_subset_and_in_any_order(
    make: Callable[[], nn.Module], threads: int, sampler: Sampler
) -> None:
    t = trainer(make, threads=threads)
    p, rng = FederatedPlan(mixing.mean(M), sampler, M, 1.0), np.random.default_rng(0)
    whole = worked(p, t, np.arange(M)).updates.values
    cohorts = [np.array([k]) for k in range(M)] + [rng.permutation(M)[: 2 + n] for n in range(6)]
    for cohort in cohorts:
        found = worked(p, t, cohort).updates.values
        assert same_bits(found, whole[torch.from_numpy(cohort)]), cohort
    assert int((whole != 0).any(dim=1).sum()) == M - 1  # all but the empty client


@pytest.mark.parametrize("make", [even, odd, Image, ManyChannels])
@pytest.mark.parametrize("chunk", [1, 32])
def test_clients_that_are_taken_one_by_one_are_kept_apart_too(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], nn.Module], chunk: int
) -> None:
    monkeypatch.setattr(products, "MANY", 1)
    t = replace(trainer(make), chunk=chunk)
    p = FederatedPlan(mixing.mean(M), Everyone(), M, 1.0)
    whole = worked(p, t, np.arange(M)).updates.values
    for cohort in ([TARGET], [6, TARGET, 0], [3, 1, 0, 4, TARGET]):
        found = worked(p, t, np.array(cohort)).updates.values
        assert same_bits(found, whole[torch.tensor(cohort)]), cohort
    for shared in (True, False):
        assert doubt(t, Everyone(), shared=shared) == ""


@pytest.mark.parametrize("chunk", [1, 32, 64])
def test_the_order_in_which_workers_finish_does_not_matter(chunk: int) -> None:
    found = []
    for threads in (1, 3):
        t = replace(trainer(odd, rows(SIZES * 20, torch.float32), threads), chunk=chunk)
        p = FederatedPlan(mixing.mean(M * 20), Everyone(), M * 20, 1.0)
        found.append(worked(p, t, np.arange(M * 20)).updates.values)
    assert same_bits(*found)


def test_threads_are_given_back_as_they_were() -> None:
    before = torch.get_num_threads()
    deterministic = torch.are_deterministic_algorithms_enabled()
    t = trainer(threads=2)
    p = FederatedPlan(mixing.mean(M), Everyone(), M, 1.0)
    worked(p, t, np.arange(M))
    assert torch.get_num_threads() == before
    assert torch.are_deterministic_algorithms_enabled() == deterministic


# --- the sum before its noise --------------------------------------------------------------------


def contributions(mechanism: CohortSum, updates: Updates) -> NDArray[np.int64]:
    """(k, numbers): what each member of the cohort adds by itself, in grid steps."""
    each = [mechanism.counts(updates.only(i)) for i in range(len(updates.values))]
    return np.array(each, dtype=np.int64).reshape(len(each), -1)


class Rounds:
    """Two runs whose public values are the same in every round, and one client apart."""

    def __init__(self, p: FederatedPlan, own: Trainer, other: Trainer) -> None:
        self.server = FederatedServer(p, 1, p.begin(own.stacked.start(), 0.3))
        self.shared = self.server.start()
        self.clients = [clients_of(p, t) for t in (own, other)]
        self.models = [each.models for each in self.clients]

    def played(self, number: int) -> Iterator[tuple[CohortSum, Updates, NDArray[np.int64]]]:
        """One round of each: the mechanism, the updates, the sum in grid steps."""
        (step,) = self.server.steps
        self.cohort, mechanism = self.clients[0].cohort(number), step.given(self.shared)
        assert isinstance(mechanism, CohortSum)
        done = [
            clients.worked(self.shared, models, self.cohort)
            for clients, models in zip(self.clients, self.models, strict=True)
        ]
        self.models = [each.kept(kept) for each, kept in zip(done, self.models, strict=True)]
        sums = Unprotected(mechanism.statistic.total(done[0].updates, None))
        self.shared = self.server.absorb(step, self.shared, sums)
        for each in done:
            yield mechanism, each.updates, mechanism.counts(each.updates)


OMEGA = np.random.default_rng(0).normal(size=(M, M)) * (1 - np.eye(M))
RELATIONS = {
    "mean": mixing.mean(M),
    "clusters": mixing.clusters([0, 1, 0, 1, 0, 1, 0]),
    "matrix": mixing.relationship(OMEGA),
}
PLANS: dict[str, tuple[Sampler, str, Method, Adaptive | None]] = {
    "everyone": (Everyone(), "mean", "mtl", None),
    "Poisson": (SecretCoins(0.7), "mean", "fedavg", None),
    "fixed, clusters": (Fixed(4), "clusters", "fedprox", None),
    "Poisson, matrix, adaptive": (SecretCoins(0.7), "matrix", "mtl", Adaptive()),
}


def attack(p: FederatedPlan, own: Trainer, other: Trainer, rounds: int = 3) -> None:
    """Each round's sum moves by the target's contribution alone, and by at most Δ."""
    both = Rounds(p, own, other)
    for number in range(rounds):
        (mechanism, before, total), (_, after, moved) = both.played(number)
        others = both.cohort != TARGET
        assert same_bits(before.values[others], after.values[others])
        one, two = contributions(mechanism, before), contributions(mechanism, after)
        np.testing.assert_array_equal(one[others], two[others])
        np.testing.assert_array_equal(moved - total, (two - one).sum(axis=0))
        if TARGET in both.cohort:
            for contribution in (one[~others][0], two[~others][0]):
                norm = np.linalg.norm(contribution * grid(mechanism.sigma))
                assert norm <= mechanism.sigma / mechanism.noise_multiplier
        else:
            np.testing.assert_array_equal(moved, total)


@pytest.mark.parametrize("change", REPLACEMENTS.values(), ids=REPLACEMENTS.keys())
@pytest.mark.parametrize("settings", PLANS.values(), ids=PLANS.keys())
def test_replacing_one_client_moves_the_sum_by_its_contribution_alone(
    settings: tuple[Sampler, str, Method, Adaptive | None], change: Change
) -> None:
    sampler, relation, method, adaptive = settings
    p = FederatedPlan(RELATIONS[relation], sampler, M, 1.0, method, adaptive)
    clients = rows(SIZES, torch.float32)
    attack(p, trainer(odd, clients), trainer(odd, replaced(clients, change)))


@pytest.mark.parametrize("make", MODULES)
@pytest.mark.parametrize("change", ["long", "NaN", "huge"])
def test_no_module_lets_a_client_through(make: Callable[[], nn.Module], change: str) -> None:
    clients = rows(SIZES, next(make().parameters()).dtype)
    p = FederatedPlan(mixing.mean(M), SecretCoins(0.7), M, 1.0)
    attack(p, trainer(make, clients), trainer(make, replaced(clients, REPLACEMENTS[change])))


def test_the_attack_sees_batches_that_are_drawn_by_the_longest_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clients = rows(SIZES, torch.float32)
    p = FederatedPlan(mixing.mean(M), Everyone(), M, 1.0)
    monkeypatch.setattr("tacit.neural.pmtl.batches", by_the_longest)
    with pytest.raises(AssertionError):
        attack(p, trainer(even, clients), trainer(even, replaced(clients, REPLACEMENTS["long"])))


def test_the_attack_sees_passes_that_are_as_large_as_the_cohort(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Softplus has other bits in the tail of a tensor: where that is, the cohort's size decides."""
    t, p = trainer(odd), FederatedPlan(mixing.mean(M), SecretCoins(0.5), M, 1.0)
    found = []
    for members in range(1, M + 1):
        monkeypatch.setattr(Trainer, "slots", lambda *_, members=members: members)
        found.append(worked(p, t, np.arange(members)).updates.values[0])
    assert not all(same_bits(each, found[0]) for each in found)


# --- the sum itself ------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2])
def test_norms_and_sums_do_not_depend_on_blocks_places_or_threads(threads: int) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        values = torch.randn(40, 70_001, dtype=torch.float32) * torch.logspace(-3, 3, 40)[:, None]
        mechanism = CohortSum(1.0, 2.0, Everyone(), 40, bit_multiplier=5.0)
        whole = Updates(values, np.ones((1, 40)))
        each = contributions(mechanism, whole)
        np.testing.assert_array_equal(mechanism.counts(whole), each.sum(axis=0))
        some = torch.randperm(40)[:17]
        among = Updates(values[some], np.ones((1, 17)))
        np.testing.assert_array_equal(contributions(mechanism, among), each[some])
        np.testing.assert_array_equal(mechanism.counts(among), each[some].sum(axis=0))
    finally:
        torch.set_num_threads(before)


def test_norms_are_right_in_every_width() -> None:
    for width in (1, 2, 3, 5, 64, 65, 1000):
        x = torch.randn(6, width, dtype=torch.float64)
        found = tree_norms(x.clone())
        np.testing.assert_allclose(found, x.norm(dim=1), rtol=1e-14)
        np.testing.assert_array_equal(tree_norms(x.numpy()), found)


# --- the whole estimator -------------------------------------------------------------------------


def fitted(
    monkeypatch: pytest.MonkeyPatch, clients: list[tuple[Tensor, Tensor]], **settings: Any
) -> tuple[list[Updates], list[NDArray[np.int64]], FederatedMTL]:
    """A whole fit whose releases are constants: what every round would have added its noise to."""
    updates: list[Updates] = []
    totals: list[NDArray[np.int64]] = []

    def release(self: CohortSum, given: Updates, rng: object, shares: object = None) -> FloatArray:
        updates.append(given)
        totals.append(self.counts(given))
        return np.full((len(given.weights), given.values.shape[1]), 0.01 * len(totals))

    monkeypatch.setattr(CohortSum, "release", release)
    monkeypatch.setattr(Coins, "of_the_system", classmethod(lambda cls: COINS))
    torch.manual_seed(0)
    chosen: dict[str, Any] = {"budget": Budget(8.0, neighbours="zero-out"), "classes": [0, 1, 2]}
    chosen |= {
        "method": "mtl",
        "finetune": "mean",
        "rounds": 4,
        "participation": 0.7,
        "local_steps": 2,
        "batch": 5,
    }
    model = FederatedMTL(odd(), **chosen | settings)
    task = np.repeat(np.arange(len(clients)), [len(X) for X, _ in clients])
    X, y = (torch.cat(parts).numpy() for parts in zip(*clients, strict=True))
    return updates, totals, model.fit(X, y, task)


@pytest.mark.parametrize("change", ["long", "short", "huge", "constant", "reversed"])
@pytest.mark.parametrize("method", ["mtl", "fedavg"])
def test_a_whole_fit_keeps_clients_apart(
    monkeypatch: pytest.MonkeyPatch, change: str, method: str
) -> None:
    clients = [own for own in rows(SIZES, torch.float32) if len(own[0])]
    one, before, model = fitted(monkeypatch, clients, method=method)
    other = replaced(clients, REPLACEMENTS[change])
    two, after, twin = fitted(monkeypatch, other, method=method)
    assert model.guarantee_.proven
    assert twin.guarantee_.proven
    moved = 0
    for a, b, total, sum_ in zip(one, two, before, after, strict=True):
        differs = (a.values != b.values).any(dim=1)
        assert int(differs.sum()) <= 1
        moved += int(differs.sum())
        mechanism = model._plan.mechanism(1.0)
        assert not isinstance(mechanism, PlainSum)
        apart = contributions(mechanism, b).sum(axis=0) - contributions(mechanism, a).sum(axis=0)
        np.testing.assert_array_equal(sum_ - total, apart)
        assert np.linalg.norm((sum_ - total) * grid(mechanism.sigma)) <= 2 * mechanism.clip_norm
    assert moved >= 1
    others = [k for k in range(len(clients)) if k != TARGET]
    assert same_bits(model._models.models[others], twin._models.models[others])  # handed out
    assert not same_bits(model._models.models[TARGET], twin._models.models[TARGET])


@pytest.mark.parametrize("kind", FINETUNINGS)
@pytest.mark.parametrize("change", ["long", "NaN", "empty"])
def test_nothing_of_a_client_is_in_what_another_is_handed(kind: Finetuning, change: str) -> None:
    clients = rows(SIZES, torch.float32)
    found = []
    for given in (clients, replaced(clients, REPLACEMENTS[change])):
        t = trainer(odd, given)
        start = t.stacked.start().repeat(M, 1)
        found.append(finetuned(t, start, start + 0.1, kind, COINS))
    others = [k for k in range(M) if k != TARGET]
    assert same_bits(found[0][others], found[1][others])


# --- before a run --------------------------------------------------------------------------------


class Loudest(nn.Module):
    """Looks at all rows of a pass where one of them is large."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(FEATURES, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.dense(x)) * (1.0 if bool(x.abs().max() < 1e6) else 0.5)


class Words(nn.Module):
    """Looks rows up: it refuses most numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.dense = nn.Embedding(5, 4), nn.Linear(4 * FEATURES, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.dense(self.table(x.long()).flatten(1)))


@pytest.mark.parametrize("make", [even, odd, precise, Image])
@pytest.mark.parametrize("batch", [4, 5, 32])
@pytest.mark.parametrize("shared", [True, False])
def test_modules_are_tried_and_found_to_keep_clients_apart(
    make: Callable[[], nn.Module], batch: int, shared: bool
) -> None:
    assert doubt(trainer(make, batch=batch), SecretCoins(0.5), shared=shared) == ""


def test_a_module_that_looks_rows_up_is_tried_with_what_it_takes() -> None:
    assert doubt(trainer(Words, batch=32), SecretCoins(0.5), shared=True) == ""


@pytest.mark.parametrize("make", [odd_through_vmap, through_vmap, Words])
def test_one_client_at_a_time_is_alone_by_construction(make: Callable[[], nn.Module]) -> None:
    t = replace(trainer(make), chunk=1)
    assert t.slots() == 1
    assert doubt(t, SecretCoins(0.5), shared=True) == ""


def test_what_is_tried_has_nothing_to_do_with_the_clients_numbers() -> None:
    clients = [(X * torch.nan, y) for X, y in rows(SIZES, torch.float32)]
    assert doubt(trainer(odd, clients), Everyone(), shared=True) == ""


@pytest.mark.parametrize(
    "make", [Loudest, lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(FEATURES, 3))]
)
def test_a_module_that_mixes_clients_or_draws_is_a_doubt(make: Callable[[], nn.Module]) -> None:
    t = trainer(make)
    state = torch.random.get_rng_state()
    found = doubt(t, SecretCoins(0.5), shared=True)
    assert "depends on the slot or on the neighbours" in found
    assert f"PyTorch {torch.__version__}" in found
    assert torch.equal(state, torch.random.get_rng_state())  # the user's draws go on as they were
    assert doubt(t, Everyone(), shared=False)


def test_a_loss_that_looks_at_all_rows_is_a_doubt() -> None:
    def relative(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.square().sum(1) / outputs.detach().abs().max()

    t = trainer()
    assert doubt(replace(t, work=replace(t.work, loss=relative)), Everyone(), shared=True)


def test_a_module_that_cannot_be_tried_is_a_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> bool:
        raise RuntimeError("scatter does not have a deterministic implementation")

    monkeypatch.setattr(isolation_trial.IsolationTrial, "apart", refuse)
    found = doubt(trainer(), Everyone(), shared=True)
    assert "could not be tried" in found
    assert "deterministic implementation" in found


def small_fit(module: nn.Module, X: Tensor, ledger: Ledger | None = None) -> FederatedMTL:
    task, y = np.repeat(np.arange(4), 4), np.arange(16) % 3
    settings: dict[str, Any] = {"method": "mtl", "budget": Budget(8.0), "rounds": 3}
    settings |= {"local_steps": 2, "batch": 4}
    model = FederatedMTL(module, ledger=ledger, finetune=None, **settings)
    return model.fit(X.numpy(), y, task)


def test_a_doubted_module_is_trained_and_nothing_is_proven() -> None:
    found = small_fit(
        nn.Sequential(nn.Dropout(0.5), nn.Linear(FEATURES, 3)), torch.ones(16, FEATURES)
    )
    assert not found.guarantee_.proven
    assert "dropout" in found.guarantee_.reason
    assert small_fit(odd(), torch.ones(16, FEATURES)).guarantee_.proven


def test_the_guarantee_says_what_isolation_leaves_open() -> None:
    found = small_fit(odd(), torch.ones(16, FEATURES)).guarantee_.not_covered
    assert set(isolation_trial.ASSUMED) <= set(found)
    assert any("how many passes" in line for line in found)


# --- in a run ------------------------------------------------------------------------------------


class Secretive(nn.Module):
    """Mixes clients, but only when two of them hold a number that nobody tries."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(FEATURES, 3)

    def forward(self, x: Tensor) -> Tensor:
        mixed = int((x[:, 0] == 7.25).sum()) > 8 and self.training
        return torch.as_tensor(self.dense(x)) * (0.5 if mixed else 1.0)


def test_a_run_stops_before_its_first_release_if_a_client_is_not_itself_alone() -> None:
    X, ledger = torch.ones(16, FEATURES), Ledger.in_memory()
    X[:, 0] = 7.25
    with pytest.raises(
        IsolationError, match=r"nothing was released\. This installation: .*PyTorch"
    ):
        small_fit(Secretive(), X, ledger)
    assert {entry.kind for entry in ledger.entries()} == {"ledger", "run"}


def test_the_check_holds_one_member_against_itself_and_asks_for_bits() -> None:
    t, p = trainer(), FederatedPlan(mixing.mean(M), Everyone(), M, 1.0)
    done = worked(p, t, np.array([3])).updates
    require_alone("an update", lambda _: done, done)
    off = Updates(torch.nextafter(done.values, torch.tensor(9.0)), done.weights)
    with pytest.raises(IsolationError, match="an update"):
        require_alone("an update", lambda _: off, done)


class Fussy(nn.Module):
    """Raises while it learns from the number 9."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(FEATURES, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.training and bool((x == 9).any()):
            raise ValueError("no nines")
        return torch.as_tensor(self.dense(x))


def test_a_client_whose_data_raise_contributes_zero_and_stops_nobody() -> None:
    X = torch.randn(16, FEATURES, generator=torch.Generator().manual_seed(0))
    X[5] = 9.0  # of client 1
    model = small_fit(Fussy(), X)
    assert len(model.history_) == 3
    clients = [(X[4 * k : 4 * k + 4], torch.arange(4) % 3) for k in range(4)]
    p = FederatedPlan(mixing.mean(4), Everyone(), 4, 1.0)
    found: list[Tensor] = []
    for given in (clients, [*clients[:1], (X[:0], torch.zeros(0).long()), *clients[2:]]):
        done = worked(p, trainer(Fussy, given), np.arange(4))
        found.append(done.updates.values)
    assert found[0][1].isnan().all()
    assert same_bits(found[0][[0, 2, 3]], found[1][[0, 2, 3]])
    mechanism = CohortSum(0.3, 1.0, Everyone(), 4)
    totals = [mechanism.counts(Updates(v, np.ones((1, 4)))) for v in found]
    np.testing.assert_array_equal(totals[0], totals[1])


def test_without_privacy_a_module_that_raises_is_an_error() -> None:
    t = trainer(Fussy, [(torch.full((4, FEATURES), 9.0), torch.zeros(4).long())])
    p = FederatedPlan(mixing.mean(1), Everyone(), 1, None)
    with pytest.raises(ValueError, match="no nines"):
        worked(p, t, np.array([0]))


def test_rows_that_the_module_refuses_are_an_error_before_anything_is_spent() -> None:
    X, ledger = torch.zeros(16, FEATURES), Ledger.in_memory()
    X[7, 3] = 12.0  # there are five words
    with pytest.raises(InvalidInput, match="the module cannot take these rows"):
        small_fit(Words(), X, ledger)
    assert {entry.kind for entry in ledger.entries()} == {"ledger"}


def test_a_callers_autocast_reaches_no_pass() -> None:
    """It belongs to a thread: one pass ran in the caller's, several in others', so that the size of
    a cohort decided everybody's arithmetic."""
    examples = Examples(torch.randn(40, 6), torch.randint(0, 2, (40,)), np.arange(0, 41, 2))
    work = LocalWork(3, 2, 0.1, 0.0, "cross_entropy")
    stacked = Stacked(nn.Linear(6, 2), examples.X[:2])
    trainer = Trainer(stacked, work, examples, 1)
    w = stacked.start()
    plain = trainer.each(lambda worker, part: _product(w, part), 4, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        one = trainer.each(lambda worker, part: _product(w, part), 2, 2)
        several = trainer.each(lambda worker, part: _product(w, part), 4, 2)
    assert torch.equal(several, plain)
    assert torch.equal(one, plain[:2])


def _product(w: Tensor, part: slice) -> Tensor:
    rows = torch.full((part.stop - part.start, len(w)), 1 / 3)
    return rows @ torch.outer(w, w)


@pytest.mark.parametrize("neighbour", [0.5, 2**70, np.longdouble(0.5)])
def test_a_neighbour_s_cell_rounds_no_other_client_s_integer(neighbour: Any) -> None:
    """Beside a fraction a list's integers were rounded twice, to 53 bits and to 24: of rows (n,
    2^60), weighed by (1, -1), the output was 0 instead of 2^37, and every update another one."""
    n = 2**60 + 2**36 + 1
    alone, beside = (as_rows([[n, 2**60], [cell, 1]], torch.float32)[0] for cell in (1, neighbour))
    assert alone.tolist() == beside.tolist()


def test_a_neighbour_s_fraction_rounds_no_other_client_s_class() -> None:
    """In a list of integers one float made 2^53 + 1 the class 2^53, of all clients."""
    classes = [2**53, 2**53 + 1]
    assert targets_of([2**53, 2**53 + 1], "cross_entropy", classes, 2, torch.float32)[1][1] == 1
    with pytest.raises(InvalidInput, match="above 2\\^53"):
        targets_of([2.0**53, 2**53 + 1], "cross_entropy", classes, 2, torch.float32)
