"""Both halves, held against the paper's algorithm written down literally."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.arrays import FloatArray
from tacit.engine import Message, Unprotected
from tacit.errors import InvalidInput
from tacit.neural import mixing
from tacit.neural.client_training import LocalWork, Trainer
from tacit.neural.clients import Examples, batches
from tacit.neural.cohort import CohortSum, PlainSum, Updates
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
from tacit.privacy.release import Declared

M, SIZES = 5, (6, 4, 9, 1, 3)
COINS = Coins(bytes(32))


def module() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Softplus(), nn.Linear(3, 2)).double()


def examples(sizes: tuple[int, ...] = SIZES) -> Examples:
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(sum(sizes), 4, generator=generator, dtype=torch.float64)
    y = torch.randint(2, (sum(sizes),), generator=generator)
    return Examples(X, y, np.concatenate([[0], np.cumsum(sizes)]))


def trainer(work: LocalWork | None = None, data: Examples | None = None) -> Trainer:
    data = data or examples()
    return Trainer(Stacked(module(), data.X[:2]), work or LocalWork(3, 2, 0.2, pull=0.5), data)


def plan(
    sampler: Sampler | None = None, z: float | None = None, method: Method = "mtl", **more: Any
) -> FederatedPlan:
    return FederatedPlan(
        more.pop("mixing", mixing.mean(M)), sampler or Everyone(), M, z, method, **more
    )


Release = Callable[[Any, Updates], FloatArray]


def silent(mechanism: CohortSum | PlainSum, updates: Updates) -> FloatArray:
    """The mechanism without its noise."""
    if isinstance(mechanism, PlainSum):
        return mechanism.release(updates, None)
    return mechanism.statistic.total(updates, None)


def simulated(rng: np.random.Generator) -> Release:
    return lambda mechanism, updates: mechanism.release(updates, rng)


class Run:
    """A loop of one's own: the two halves, and whatever releases."""

    def __init__(
        self, p: FederatedPlan, t: Trainer, clip: float = 1.0, release: Release = silent
    ) -> None:
        w = t.stacked.start()
        self.server = FederatedServer(p, 1, p.begin(w, clip))
        self.clients = FederatedClients(p, t, COINS, p.own_models(w))
        self.shared: Message = self.server.start()
        self.models, self.release = self.clients.models, release

    def played(self) -> Run:
        """One round: contribute, release, absorb."""
        (step,) = self.server.steps
        updates, self.models = self.clients.contribute(step, self.shared, self.models)
        sums = Unprotected(self.release(step.given(self.shared), updates))
        self.shared = self.server.absorb(step, self.shared, sums)
        return self

    @property
    def centres(self) -> Tensor:
        return self.clients.centres(self.shared)

    @property
    def current(self) -> Tensor:
        return self.clients.current(self.shared, self.models)

    def worked(self) -> Worked:
        cohort = self.clients.cohort(int(self.shared["round"].value))
        return self.clients.worked(self.shared, self.models, cohort)


def gradient(t: Trainer, w: Tensor, rows: Any) -> Tensor:
    """∇ of the mean loss of the plain module on some rows."""
    w = w.clone().requires_grad_()
    loss = nn.functional.cross_entropy(t.stacked.one(w, t.examples.X[rows]), t.examples.y[rows])
    (found,) = torch.autograd.grad(loss, w)
    return found


# --- Algorithm 1 ---------------------------------------------------------------------------------


class Literal:
    """Algorithm 1 of S2, line by line, without its noise; line 8 divides by ``denominator``."""

    def __init__(self, t: Trainer, gamma: float, denominator: float) -> None:
        self.trainer, self.gamma, self.denominator = t, gamma, denominator
        self.w = [t.stacked.start() for _ in range(M)]  # line 1
        self.centre = torch.stack(self.w).mean(0)
        self.norms: list[float] = []

    def round(self, cohort: NDArray[np.int64], order: NDArray[np.int64]) -> None:
        total = torch.zeros_like(self.centre)
        for place, k in enumerate(cohort):  # line 4
            before = self.w[k]
            self.w[k] = self.client_update(before, order[:, place])  # line 5
            g = self.w[k] - before  # line 6
            self.norms.append(float(g.norm()))
            total += g * min(1.0, self.gamma / self.norms[-1])
        self.centre = self.centre + total / self.denominator  # line 8

    def client_update(self, w: Tensor, batches: NDArray[np.int64]) -> Tensor:
        work = self.trainer.work
        for rows in batches:  # line 12
            w = w - work.rate * (  # line 13
                gradient(self.trainer, w, rows) + work.pull * (w - self.centre)
            )
        return w


@pytest.mark.parametrize(
    ("sampler", "printed"),
    [(Everyone(), M), (SecretCoins(0.5), 0.5 * M), (Fixed(2), 2)],  # |S_t|, expected where drawn
)
@pytest.mark.parametrize("as_published", [True, False])
def test_pmtl_is_algorithm_1(sampler: Sampler, printed: float, as_published: bool) -> None:
    """As published line 8 divides by |S_t|; ours by m, so that w̃ is a mean of models."""
    t, p = trainer(), plan(sampler, z=1.0, as_published=as_published)
    gamma = 0.25
    run, literal = Run(p, t, gamma), Literal(t, gamma, printed if as_published else M)
    for number in range(6):
        mine = COINS.of(number)
        cohort = sampler.cohort(M, mine.of("cohort").generator())
        literal.round(cohort, batches(t.examples, cohort, 3, 2, mine))
        run.played()
        torch.testing.assert_close(run.centres[0], literal.centre, rtol=0, atol=1e-10)
        torch.testing.assert_close(run.models, torch.stack(literal.w), rtol=0, atol=1e-10)
    assert min(literal.norms) < gamma < max(literal.norms)  # the clip was at work


@pytest.mark.parametrize("sampler", [SecretCoins(0.5), Fixed(2)])
def test_without_clip_the_centre_is_the_mean_of_all_models(sampler: Sampler) -> None:
    """S2, line 1 and objective (2): w̃ = Σ_k w_k/m, whoever took part so far."""
    run = Run(plan(sampler), trainer())
    for _ in range(4):
        run.played()
        torch.testing.assert_close(run.centres[0], run.current.mean(0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("sampler", [Everyone(), SecretCoins(0.5), Fixed(2)])
def test_what_line_8_divides_by_changes_neither_release_nor_account(sampler: Sampler) -> None:
    """The sum and its noise are the same, and so is ε; the noise of w̃ is the sum's over m."""
    ours, printed = (plan(sampler, z=2.0, as_published=said) for said in (False, True))
    assert ours.mechanism(0.3) == printed.mechanism(0.3)
    S = np.ones(3)
    step = {p: FederatedServer(p, 1, {})._moved(np.zeros((1, 3)), S) for p in (ours, printed)}
    np.testing.assert_allclose(step[ours], S[None] / M)
    np.testing.assert_allclose(step[printed], S[None] / (M * sampler.share(M)))


def test_only_algorithm_1_can_be_as_published() -> None:
    with pytest.raises(InvalidInput, match="method='mtl'"):
        plan(method="fedavg", as_published=True)


def test_without_pull_one_step_and_everybody_is_fedsgd() -> None:
    """w̃ − η·(mean over clients of their gradients at w̃)."""
    data = examples((4, 4, 4, 4, 4))
    t, p = trainer(LocalWork(1, 4, 0.3), data), plan()
    run = Run(p, t).played()
    w = t.stacked.start()
    each = [gradient(t, w, range(4 * k, 4 * k + 4)) for k in range(5)]
    expected = w - 0.3 * torch.stack(each).mean(0)
    torch.testing.assert_close(run.centres[0], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", ["mtl", "fedavg"])
def test_without_noise_one_client_is_plain_training(method: Method) -> None:
    data = examples((8,))
    t = trainer(LocalWork(2, 8, 0.3), data)
    p = FederatedPlan(mixing.mean(1), Everyone(), 1, None, method)
    run = Run(p, t)
    for _ in range(4):
        run.played()
    w = t.stacked.start()
    for _ in range(8):
        w = w - 0.3 * gradient(t, w, range(8))
    torch.testing.assert_close(run.centres[0], w, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(run.current[0], w, rtol=1e-9, atol=1e-9)


def test_fedavg_starts_at_the_centre_and_keeps_nothing() -> None:
    t, p = trainer(LocalWork(3, 2, 0.2)), plan(method="fedavg")
    run = Run(p, t)
    assert run.models is None
    for number in range(3):
        order = batches(t.examples, np.arange(M), 3, 2, COINS.of(number))
        around = run.centres.expand(M, -1).clone()
        expected = t(around, around, order).mean(0)
        run.played()
        torch.testing.assert_close(run.centres[0], expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(run.current, run.centres.expand(M, -1))


def test_fedprox_is_fedavg_with_a_pull() -> None:
    t = trainer(LocalWork(3, 2, 0.2, pull=0.0))
    pulled = trainer(LocalWork(3, 2, 0.2, pull=4.0))
    found = {}
    for name, method, who in [
        ("avg", "fedavg", t),
        ("prox", "fedprox", pulled),
        ("p0", "fedprox", t),
    ]:
        p = plan(method=method)  # type: ignore[arg-type] # a str in a loop
        found[name] = Run(p, who).played().centres[0]
    torch.testing.assert_close(found["p0"], found["avg"])
    start = t.stacked.start()
    assert (found["prox"] - start).norm() < 0.95 * (found["avg"] - start).norm()


# --- relations -----------------------------------------------------------------------------------


def test_clusters_are_separate_runs() -> None:
    t = trainer()
    clusters = plan(z=1.0, mixing=mixing.clusters([0, 1, 0, 1, 1]))
    run = Run(clusters, t, 0.3)
    clipped = torch.cat([part for part, _, _ in run.worked().updates.clipped(0.3)])
    run.played()
    for cluster, members in enumerate([[0, 2], [1, 3, 4]]):
        expected = t.stacked.start() + clipped[members].mean(0)
        torch.testing.assert_close(run.centres[cluster], expected, rtol=1e-9, atol=1e-9)


def test_with_a_matrix_each_client_hears_its_own_row() -> None:
    omega = np.random.default_rng(0).normal(size=(M, M))
    t, p = trainer(), plan(Fixed(3), z=1.0, mixing=mixing.relationship(omega))
    run = Run(p, t, 0.3)
    done = run.worked()
    clipped = torch.cat([part for part, _, _ in done.updates.clipped(0.3)])
    run.played()
    for j in range(M):
        heard = sum(omega[j, k] * u for k, u in zip(done.cohort, clipped, strict=True))
        torch.testing.assert_close(run.centres[j], t.stacked.start() + heard)
    again = run.worked()
    order = batches(t.examples, again.cohort, 3, 2, COINS.of(1))
    own = run.current[torch.from_numpy(again.cohort)]
    expected = t(own, run.centres[torch.from_numpy(again.cohort)], order)
    torch.testing.assert_close(again.trained, expected, rtol=1e-9, atol=1e-9)


def test_noise_grows_with_the_reach_of_the_relation() -> None:
    wide = plan(z=2.0, mixing=mixing.relationship(np.full((M, M), 3.0)))
    one = plan(z=2.0)
    sigmas = [p.mechanism(0.5).noise.scale for p in (wide, one)]  # type: ignore[union-attr] # z is set
    assert sigmas == pytest.approx([2.0 * 0.5 * 3.0 * np.sqrt(M - 1), 1.0])


# --- who takes part, and who cannot --------------------------------------------------------------


class Nobody(SecretCoins):
    """Coins that all fell on the other side."""

    def cohort(self, clients: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return np.zeros(0, dtype=np.int64)


@pytest.mark.parametrize(("as_published", "denominator"), [(False, M), (True, 0.2 * M)])
def test_a_round_in_which_nobody_is_sampled_moves_the_centre_by_noise_alone(
    as_published: bool, denominator: float
) -> None:
    t, p = trainer(), plan(Nobody(0.2), z=1.0, as_published=as_published)
    run = Run(p, t, release=simulated(np.random.default_rng(7)))
    centres, models = run.centres, run.current
    run.played()
    noise = np.random.default_rng(7).standard_normal(t.stacked.size)
    np.testing.assert_allclose((run.centres - centres)[0].numpy(), noise / denominator, rtol=1e-9)
    assert torch.equal(run.current, models)


def test_an_empty_client_contributes_zero_and_keeps_its_model() -> None:
    t, p = trainer(data=examples((3, 0, 4, 0, 2))), plan()
    done = Run(p, t).worked()
    moved = done.updates.values.norm(dim=1) > 0
    assert moved.tolist() == [True, False, True, False, True]


def test_a_client_that_diverges_contributes_zero_and_keeps_what_it_had() -> None:
    data = examples()
    data.X[6:10] *= 1e200  # client 1
    t, p = trainer(LocalWork(4, 2, 0.2), data), plan(z=1.0)
    run = Run(p, t)
    finite = torch.isfinite(run.worked().trained).all(dim=1)
    assert finite.tolist() == [True, False, True, True, True]
    run.played()
    assert torch.isfinite(run.centres).all()
    assert torch.equal(run.current[1], t.stacked.start())
    assert not torch.equal(run.current[0], t.stacked.start())
    without = Run(replace(p, noise_multiplier=None), t).played()
    assert torch.isfinite(without.centres).all()


def test_the_same_state_and_coins_give_the_same_round() -> None:
    t, p = trainer(), plan(SecretCoins(0.5), z=1.0, adaptive=Adaptive())
    one, other = (Run(p, t, release=simulated(np.random.default_rng(1))) for _ in "ab")
    before, start = one.shared, one.models
    assert start is not None
    one.played(), other.played()
    assert torch.equal(one.centres, other.centres)
    assert float(one.shared["clip_norm"].value) == float(other.shared["clip_norm"].value) != 1.0
    assert before["round"].value == 0  # a new state, the old one as it was
    np.testing.assert_array_equal(before["centres"].value[0], t.stacked.start())
    assert torch.equal(start, t.stacked.start().expand(M, -1))


def test_what_is_selected_of_a_cohort_is_what_it_does_in_it() -> None:
    run = Run(plan(Fixed(3), z=1.0), trainer())
    (step,) = run.server.steps
    whole, _ = run.clients.contribute(step, run.shared, run.models)
    some, _ = run.clients.select([2, 0]).contribute(step, run.shared, run.models)
    np.testing.assert_array_equal(some[0], whole[2])
    np.testing.assert_array_equal(some[1], whole[0])
    assert len(whole) == 3
    assert len(some) == 2


def test_the_last_of_a_cohort_is_selected_whatever_the_next_ones_size() -> None:
    run = Run(plan(SecretCoins(0.5)), trainer())
    (step,) = run.server.steps
    for number in range(8):
        shared = {**run.shared, "round": Declared(number)}
        whole, _ = run.clients.contribute(step, shared, run.models)
        if len(whole):
            some, _ = run.clients.select([len(whole) - 1]).contribute(step, shared, run.models)
            np.testing.assert_array_equal(some[0], whole[len(whole) - 1])


def test_what_is_drawn_ahead_is_what_the_round_itself_draws() -> None:
    run = Run(plan(Fixed(3)), trainer()).played().played()
    fresh = replace(run.clients)  # has drawn nothing ahead
    (step,) = run.server.steps
    for number in (2, 5, 2):  # the next one, one that nobody expected, and the same again
        shared = {**run.shared, "round": Declared(number)}
        ahead, _ = run.clients.contribute(step, shared, run.models)
        alone, _ = replace(fresh).contribute(step, shared, run.models)
        assert torch.equal(ahead.values, alone.values)
        np.testing.assert_array_equal(ahead.weights, alone.weights)
