"""The server half: cheap columns equal the full prox, every arrival descends, delays converge."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from tacit.engine.arrivals import Arrival
from tacit.errors import InvalidInput
from tacit.learners.async_proximal import columns as columns_module
from tacit.learners.async_proximal.columns import columns_of
from tacit.learners.async_proximal.server import Server, ServerState
from tacit.learners.async_proximal.steps import (
    BoundedDelay,
    Descent,
    StepRule,
    curvature_with_own,
    largest_relaxation,
    largest_step,
)
from tacit.linear.losses import FloatArray
from tacit.linear.penalties import (
    ColumnNorm,
    GroupNorm,
    L1Norm,
    Penalty,
    RowMaxNorm,
    SquaredNorm,
    TraceNorm,
)

PENALTIES: list[Penalty] = [
    TraceNorm(),
    GroupNorm(),
    L1Norm(),
    ColumnNorm(),
    SquaredNorm(),
    RowMaxNorm(),
]
SHAPES = [(5, 9), (9, 5), (6, 6), (1, 4), (4, 1), (50, 60)]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads only wait for each other on matrices of this size."""
    with threadpool_limits(1, user_api="blas"):
        yield


def name(penalty: Penalty) -> str:
    return type(penalty).__name__


def literal_prox(penalty: Penalty, V: FloatArray, level: float) -> FloatArray:
    """The trace norm by numpy.linalg.svd and reconstruction; the others from penalties.py."""
    if not isinstance(penalty, TraceNorm):
        return penalty.prox(V, level)
    U, sizes, Qt = np.linalg.svd(V, full_matrices=False)
    return np.asarray((U * np.maximum(sizes - level, 0)) @ Qt)


# --- columns -------------------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", PENALTIES, ids=name)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("queued", [1, 3])
def test_a_column_that_was_kept_up_to_date_is_that_of_the_full_prox(
    penalty: Penalty, shape: tuple[int, int], queued: int
) -> None:
    rng = np.random.default_rng(0)
    level = 0.7 * math.sqrt(max(shape))
    coupling, V = columns_of(penalty, level), np.zeros(shape, order="F")
    kept = coupling.kept(V)
    for _ in range(20):
        nodes = rng.choice(shape[1], min(queued, shape[1]), replace=False).tolist()
        old, V = V[:, nodes], V.copy(order="F")
        V[:, nodes] += rng.normal(size=(shape[0], len(nodes)))
        kept = coupling.moved(kept, V, old, nodes)
        expected = literal_prox(penalty, V, level)
        np.testing.assert_allclose(coupling.columns(kept, V, nodes), expected[:, nodes], atol=1e-10)
    np.testing.assert_allclose(coupling.columns(kept, V, slice(None)), expected, atol=1e-10)


@pytest.mark.parametrize("level", [1.0, 120.0])  # nearly all directions stay, or five of them
@pytest.mark.parametrize("queued", [1, 16])
def test_at_full_size_the_columns_are_those_of_a_full_svd(queued: int, level: float) -> None:
    rng = np.random.default_rng(0)
    V = rng.normal(size=(100, 5)) @ rng.normal(size=(5, 1000)) + rng.normal(size=(100, 1000))
    coupling = columns_of(TraceNorm(), level)
    kept = coupling.kept(V)
    for _ in range(10):
        nodes = rng.choice(1000, queued, replace=False).tolist()
        old, V = V[:, nodes], V.copy(order="F")
        V[:, nodes] = rng.normal(size=(100, queued))
        kept = coupling.moved(kept, V, old, nodes)
    expected = literal_prox(TraceNorm(), V, level)
    assert np.abs(coupling.columns(kept, V, slice(None)) - expected).max() < 1e-10


@pytest.mark.parametrize("penalty", [TraceNorm(), GroupNorm()], ids=name)
def test_what_is_kept_does_not_drift(penalty: Penalty, monkeypatch: pytest.MonkeyPatch) -> None:
    def error() -> float:
        rng = np.random.default_rng(1)
        coupling, V = columns_of(penalty, 1e-3), 1e4 * rng.normal(size=(4, 6))
        kept = coupling.kept(V)
        for k in range(300):
            t = k % 6
            old, V = V[:, [t]], V.copy()
            V[:, t] = rng.normal(size=4) * (1e4 if k < 200 else 1e-2)
            kept = coupling.moved(kept, V, old, [t])
        exact = literal_prox(penalty, V, 1e-3)
        return float(np.abs(coupling.columns(kept, V, slice(None)) - exact).max())

    monkeypatch.setattr(columns_module, "REFRESH", 50)
    assert error() < 1e-8
    monkeypatch.setattr(columns_module, "REFRESH", 10_000)
    assert error() > 1e-8  # and without computing afresh it does drift


# --- the step ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Quadratics:
    """f_t(p) = ½ pᵀH_t p − b_tᵀp, and S3's problem in P alone."""

    H: FloatArray  # (T, d, d)
    b: FloatArray  # (d, T)
    level: float
    step: float

    @classmethod
    def drawn(cls, seed: int, d: int = 4, nodes: int = 6, level: float = 0.3) -> Quadratics:
        rng = np.random.default_rng(seed)
        A = rng.normal(size=(nodes, 3 * d, d))
        H = np.einsum("tnd,tne->tde", A, A) / (3 * d) + 0.3 * np.eye(d)
        largest = float(np.linalg.eigvalsh(H)[:, -1].max())
        return cls(H, rng.normal(size=(d, nodes)), level, 0.99 / largest)

    def gradient(self, t: int, p: FloatArray) -> FloatArray:
        return np.asarray(self.H[t] @ p - self.b[:, t])

    def server(self, penalty: Penalty, rule: StepRule) -> Server:
        d, nodes = self.b.shape
        return Server(penalty, self.level, self.step, d, nodes, rule=rule)

    def objective(self, penalty: Penalty, P: FloatArray) -> float:
        f = np.einsum("dt,tde,et->", P, self.H, P) / 2 - (self.b * P).sum()
        return float(f + self.level * penalty.value(P))

    def dual(self, penalty: Penalty, V: FloatArray) -> float:
        """D(V) of steps.py: Σ ψ_t*(v_t) − E(V)."""
        d = len(V)
        total = 0.0
        for t, v in enumerate(V.T):
            shifted = v - self.step * self.b[:, t]
            total += float(shifted @ np.linalg.solve(np.eye(d) - self.step * self.H[t], shifted))
        P = literal_prox(penalty, V, self.step * self.level)
        envelope = ((V - P) ** 2).sum() / 2 + self.step * self.level * penalty.value(P)
        return float(total / 2 - (V**2).sum() / 2 + envelope)

    def optimum(self, penalty: Penalty) -> FloatArray:
        P = np.zeros_like(self.b)
        for _ in range(400):
            slope = np.stack([self.gradient(t, p) for t, p in enumerate(P.T)], axis=1)
            P = literal_prox(penalty, P - self.step * slope, self.step * self.level)
        return P


def arrivals(
    server: Server, state: ServerState, world: Quadratics, nodes: list[int]
) -> list[Arrival]:
    """What these nodes answer to the columns that they hold."""
    return [
        Arrival(t, server.round(state, t), world.gradient(t, server.column(state, t)))
        for t in nodes
    ]


def awkward_order(nodes: int, steps: int, seed: int) -> list[list[int]]:
    """Long stretches of a few nodes, so that the others' views grow very old; some queue up."""
    rng = np.random.default_rng(seed)
    order: list[list[int]] = []
    while len(order) < steps:
        few = rng.choice(nodes, 3, replace=False)
        order += [rng.choice(few, rng.integers(1, 3), replace=False).tolist() for _ in range(12)]
    return order[:steps]


COUPLED: list[Penalty] = [TraceNorm(), GroupNorm(), RowMaxNorm()]


@pytest.mark.parametrize("penalty", COUPLED, ids=name)
@pytest.mark.parametrize("seed", range(3))
def test_every_step_descends_by_what_is_promised_whatever_the_delay(
    penalty: Penalty, seed: int
) -> None:
    world = Quadratics.drawn(seed)
    server = world.server(penalty, Descent())
    state = server.start()
    before = world.dual(penalty, state.V)
    for nodes in awkward_order(6, 150, seed):
        following = server.arrive(state, arrivals(server, state, world, nodes))
        after = world.dual(penalty, following.V)
        promised = ((following.V - state.V) ** 2).sum() / 2  # ½η²‖δ‖²
        assert after <= before - promised + 1e-10
        state, before = following, after


class Undamped(Descent):
    """η = 1 whatever was seen: the mutant that the test above must be able to see."""

    def relaxation(self, drift: FloatArray, move: FloatArray) -> float:
        return 1.0


def test_without_damping_a_step_may_climb() -> None:
    climbs = 0
    for seed in range(3):
        world = Quadratics.drawn(seed, level=2.0)
        server = world.server(TraceNorm(), Undamped())
        state = server.start()
        for nodes in awkward_order(6, 150, seed):
            following = server.arrive(state, arrivals(server, state, world, nodes))
            climb = world.dual(TraceNorm(), following.V) - world.dual(TraceNorm(), state.V)
            climbs += climb > 1e-10
            state = following
    assert climbs > 0


@pytest.mark.parametrize("penalty", COUPLED, ids=name)
def test_the_dual_has_the_value_of_the_objective_at_the_optimum(penalty: Penalty) -> None:
    world = Quadratics.drawn(5)
    P = world.optimum(penalty)
    slope = np.stack([world.gradient(t, p) for t, p in enumerate(P.T)], axis=1)
    V = P - world.step * slope
    assert world.dual(penalty, V) == pytest.approx(world.step * world.objective(penalty, P))


@pytest.mark.parametrize("penalty", COUPLED, ids=name)
@pytest.mark.parametrize("rule", [Descent(), BoundedDelay(10, 6)], ids=["descent", "bounded"])
def test_delays_do_not_change_the_optimum(penalty: Penalty, rule: StepRule) -> None:
    world = Quadratics.drawn(3)
    server = world.server(penalty, rule)
    state = server.start()
    rng = np.random.default_rng(0)
    for _ in range(150 if isinstance(rule, Descent) else 500):
        for t in rng.permutation(6).tolist():
            state = server.arrive(state, arrivals(server, state, world, [t]))
    assert not state.refused
    close = 1e-6 if isinstance(rule, Descent) else 1e-4  # the constant step is short
    np.testing.assert_allclose(server.shared(state), world.optimum(penalty), atol=close)


def test_all_at_once_without_delay_is_proximal_gradient_descent() -> None:
    world = Quadratics.drawn(0)
    server = world.server(TraceNorm(), Descent())
    state, P = server.start(), np.zeros_like(world.b)
    for _ in range(20):
        state = server.arrive(state, arrivals(server, state, world, list(range(6))))
        slope = np.stack([world.gradient(t, p) for t, p in enumerate(P.T)], axis=1)
        P = literal_prox(TraceNorm(), P - world.step * slope, world.step * world.level)
        np.testing.assert_allclose(server.shared(state), P, atol=1e-12)


def literal_run(
    world: Quadratics, penalty: Penalty, order: list[list[int]]
) -> tuple[FloatArray, FloatArray]:
    """The server as it is written down in steps.py: a full prox whenever P is needed."""
    d, nodes = world.b.shape
    V, handed = np.zeros((d, nodes)), np.zeros((d, nodes))
    level = world.step * world.level
    for batch in order:
        P, new = literal_prox(penalty, V, level), V.copy()
        for t in batch:
            target = handed[:, t] - world.step * world.gradient(t, handed[:, t])
            delta = target - V[:, t]
            eta = 1 - (handed[:, t] - P[:, t]) @ delta / (delta @ delta)
            new[:, t] = V[:, t] + np.clip(eta, 0, 1) * delta
        V = new
        P = literal_prox(penalty, V, level)
        handed[:, batch] = P[:, batch]
    return V, literal_prox(penalty, V, level)


@pytest.mark.parametrize("penalty", COUPLED, ids=name)
@pytest.mark.parametrize("shape", [(4, 9), (9, 4)])
def test_the_server_is_its_slow_transcription(penalty: Penalty, shape: tuple[int, int]) -> None:
    world = Quadratics.drawn(8, d=shape[0], nodes=shape[1])
    server = world.server(penalty, Descent())
    state = server.start()
    order = awkward_order(shape[1], 200, 8)
    for nodes in order:
        state = server.arrive(state, arrivals(server, state, world, nodes))
    V, P = literal_run(world, penalty, order)
    np.testing.assert_allclose(state.V, V, atol=1e-10)
    np.testing.assert_allclose(server.shared(state), P, atol=1e-10)


def test_a_state_is_never_written_to() -> None:
    world = Quadratics.drawn(1)
    server = world.server(TraceNorm(), Descent())
    first = server.arrive(server.start(), arrivals(server, server.start(), world, [0, 3]))
    copies = [np.copy(part) for part in (first.V, first.handed, first.rounds, first.since)]
    server.arrive(first, arrivals(server, first, world, [3, 1]))
    server.refresh(first, 2)
    server.column(first, 3)[:] = 7.0
    for part, copy in zip((first.V, first.handed, first.rounds, first.since), copies, strict=True):
        np.testing.assert_array_equal(part, copy)


def test_only_those_who_were_heard_get_a_new_column() -> None:
    world = Quadratics.drawn(2)
    server = world.server(TraceNorm(), Descent())
    state = server.arrive(server.start(), arrivals(server, server.start(), world, [0, 3]))
    assert [server.round(state, t) for t in range(6)] == [1, 0, 0, 1, 0, 0]
    assert not server.column(state, 1).any()
    np.testing.assert_allclose(server.column(state, 0), server.shared(state)[:, 0])
    fresh = server.refresh(state, 1)
    np.testing.assert_allclose(server.column(fresh, 1), server.shared(state)[:, 1])
    assert server.round(fresh, 1) == 1


def test_one_node_and_no_penalty_is_gradient_descent() -> None:
    world = Quadratics.drawn(4, nodes=1, level=0.0)
    server = world.server(TraceNorm(), Descent())
    state, p = server.start(), np.zeros(4)
    for _ in range(50):
        state = server.arrive(state, arrivals(server, state, world, [0]))
        p = p - world.step * world.gradient(0, p)
        np.testing.assert_allclose(server.column(state, 0), p, atol=1e-10)


# --- rules ---------------------------------------------------------------------------------------


def test_the_constant_step_follows_the_bound() -> None:
    assert largest_relaxation(0, 5) == 2.0
    assert largest_relaxation(3, 100) == pytest.approx(2 / 7)
    assert largest_relaxation(100, 2) == pytest.approx(2 / 21)
    assert BoundedDelay(3, 100).relaxation(np.ones(1), np.ones(1)) < 2 / 7
    with pytest.raises(InvalidInput):
        BoundedDelay(-1, 3)


def test_a_bounded_rule_never_breaks_its_own_inequality() -> None:
    """Σ‖Δ‖²[(2−η)/(2η) − √(τM)] ≤ D(V₀) − inf D, on an order with the largest delays allowed."""
    staleness, nodes = 10, 6
    world = Quadratics.drawn(6, level=2.0)
    rule = BoundedDelay(staleness, nodes)
    server = world.server(TraceNorm(), rule)
    state, moved = server.start(), 0.0
    for k in range(600):
        t = 5 if k % 11 == 10 else k % 5
        following = server.arrive(state, arrivals(server, state, world, [t]))
        moved += float(((following.V - state.V) ** 2).sum())
        state = following
    assert not state.refused
    eta = rule.eta
    margin = (2 - eta) / (2 * eta) - math.sqrt(staleness * min(staleness, nodes - 1))
    assert margin > 0
    best = world.step * world.objective(TraceNorm(), world.optimum(TraceNorm()))
    assert margin * moved <= world.dual(TraceNorm(), np.zeros((4, 6))) - best + 1e-12


def test_the_largest_step_is_of_the_curvature() -> None:
    assert largest_step(4.0) == 0.25
    assert largest_step(4.0, joint=True) == 0.125
    for wrong in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(InvalidInput):
            largest_step(wrong)


def test_solving_q_lowers_the_curvature_as_computed() -> None:
    H, tau = np.diag([5.0, 0.3]), 0.4
    envelope = H - H @ np.linalg.inv(H + 2 * tau * np.eye(2)) @ H  # Hessian of min_q
    largest = float(np.linalg.eigvalsh(envelope)[-1])
    assert curvature_with_own(5.0, tau) == pytest.approx(largest)


@pytest.mark.parametrize(
    "wrong", [{"step": 0.0}, {"level": -1.0}, {"dim": 0}, {"n_nodes": 0}, {"step": math.nan}]
)
def test_a_server_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    good = {"level": 1.0, "step": 1.0, "dim": 2, "n_nodes": 3}
    with pytest.raises(InvalidInput):
        Server(TraceNorm(), **{**good, **wrong})  # type: ignore[arg-type] # wrong on purpose
