"""The server half: every arrival descends, delays converge, states are values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from tacit.arrays import FloatArray
from tacit.engine.arrivals import Arrival
from tacit.errors import InvalidInput
from tacit.learners.async_proximal import updates
from tacit.learners.async_proximal.server import Server, ServerState
from tacit.learners.async_proximal.updates import (
    Averaging,
    Descent,
    LastGradients,
    Update,
    curvature_with_own,
    largest_step,
)
from tacit.linear.penalties import GroupNorm, Penalty, RowMaxNorm, TraceNorm


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

    def server(self, penalty: Penalty) -> Server:
        return Server(Descent(penalty, self.level, self.step), *self.b.shape)

    def objective(self, penalty: Penalty, P: FloatArray) -> float:
        f = np.einsum("dt,tde,et->", P, self.H, P) / 2 - (self.b * P).sum()
        return float(f + self.level * penalty.value(P))

    def dual(self, penalty: Penalty, V: FloatArray) -> float:
        """D(V) of updates.py: Σ ψ_t*(v_t) − E(V)."""
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
    server = world.server(penalty)
    state = server.start()
    before = world.dual(penalty, state.kept.V)
    for nodes in awkward_order(6, 150, seed):
        following = server.arrive(state, arrivals(server, state, world, nodes))
        after = world.dual(penalty, following.kept.V)
        promised = ((following.kept.V - state.kept.V) ** 2).sum() / 2  # ½η²‖δ‖²
        assert after <= before - promised + 1e-10
        state, before = following, after


def test_without_damping_a_step_may_climb(monkeypatch: pytest.MonkeyPatch) -> None:
    """η = 1 whatever was seen: the mutant that the test above must be able to see."""
    monkeypatch.setattr(updates, "relaxation", lambda drift, move: 1.0)
    climbs = 0
    for seed in range(3):
        world = Quadratics.drawn(seed, level=2.0)
        server = world.server(TraceNorm())
        state = server.start()
        for nodes in awkward_order(6, 150, seed):
            following = server.arrive(state, arrivals(server, state, world, nodes))
            climb = world.dual(TraceNorm(), following.kept.V) - world.dual(
                TraceNorm(), state.kept.V
            )
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
def test_delays_do_not_change_the_optimum(penalty: Penalty) -> None:
    world = Quadratics.drawn(3)
    server = world.server(penalty)
    state = server.start()
    rng = np.random.default_rng(0)
    for _ in range(150):
        for t in rng.permutation(6).tolist():
            state = server.arrive(state, arrivals(server, state, world, [t]))
    assert not state.refused
    np.testing.assert_allclose(server.shared(state), world.optimum(penalty), atol=1e-6)


def test_all_at_once_without_delay_is_proximal_gradient_descent() -> None:
    world = Quadratics.drawn(0)
    server = world.server(TraceNorm())
    state, P = server.start(), np.zeros_like(world.b)
    for _ in range(20):
        state = server.arrive(state, arrivals(server, state, world, list(range(6))))
        slope = np.stack([world.gradient(t, p) for t, p in enumerate(P.T)], axis=1)
        P = literal_prox(TraceNorm(), P - world.step * slope, world.step * world.level)
        np.testing.assert_allclose(server.shared(state), P, atol=1e-12)


def literal_run(
    world: Quadratics, penalty: Penalty, order: list[list[int]]
) -> tuple[FloatArray, FloatArray]:
    """The server as it is written down in updates.py: a full prox whenever P is needed."""
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
    server = world.server(penalty)
    state = server.start()
    order = awkward_order(shape[1], 200, 8)
    for nodes in order:
        state = server.arrive(state, arrivals(server, state, world, nodes))
    V, P = literal_run(world, penalty, order)
    np.testing.assert_allclose(state.kept.V, V, rtol=0, atol=1e-10)
    np.testing.assert_allclose(server.shared(state), P, rtol=0, atol=1e-10)


UPDATES: list[Update] = [
    Descent(TraceNorm(), 0.3, 0.2),
    Averaging(TraceNorm(), 0.3, (0.2,) * 6, (5,) * 6),
    LastGradients(TraceNorm(), 0.3, 0.2),
]


def update_name(update: Update) -> str:
    return type(update).__name__


@pytest.mark.parametrize("update", UPDATES, ids=update_name)
def test_a_state_is_never_written_to(update: Update) -> None:
    world = Quadratics.drawn(1)
    server = Server(update, 4, 6)
    first = server.arrive(server.start(), arrivals(server, server.start(), world, [0, 3]))

    def parts() -> list[FloatArray]:
        kept = [part for part in first.kept if isinstance(part, np.ndarray)]
        return [*kept, first.handed, first.rounds]

    copies = [np.copy(part) for part in parts()]
    server.arrive(first, arrivals(server, first, world, [3, 1]))
    server.refresh(first, 2)
    server.column(first, 3)[:] = 7.0
    for part, copy in zip(parts(), copies, strict=True):
        np.testing.assert_array_equal(part, copy)


@pytest.mark.parametrize("update", UPDATES, ids=update_name)
def test_those_who_wait_go_into_one_step_but_in_algorithm_1(update: Update) -> None:
    world, server = Quadratics.drawn(1), Server(update, 4, 6)
    start = server.start()
    both = server.arrive(start, arrivals(server, start, world, [0, 3]))
    assert both.step == (2 if update.one_by_one else 1)
    after = start
    for t in (0, 3):
        after = server.arrive(after, arrivals(server, start, world, [t]))
    assert np.array_equal(both.handed, after.handed) == update.one_by_one


def test_only_those_who_were_heard_get_a_new_column() -> None:
    world = Quadratics.drawn(2)
    server = world.server(TraceNorm())
    state = server.arrive(server.start(), arrivals(server, server.start(), world, [0, 3]))
    assert [server.round(state, t) for t in range(6)] == [1, 0, 0, 1, 0, 0]
    assert not server.column(state, 1).any()
    np.testing.assert_allclose(server.column(state, 0), server.shared(state)[:, 0])
    fresh = server.refresh(state, 1)
    np.testing.assert_allclose(server.column(fresh, 1), server.shared(state)[:, 1])
    assert server.round(fresh, 1) == 1


def test_one_node_and_no_penalty_is_gradient_descent() -> None:
    world = Quadratics.drawn(4, nodes=1, level=0.0)
    server = world.server(TraceNorm())
    state, p = server.start(), np.zeros(4)
    for _ in range(50):
        state = server.arrive(state, arrivals(server, state, world, [0]))
        p = p - world.step * world.gradient(0, p)
        np.testing.assert_allclose(server.column(state, 0), p, rtol=0, atol=1e-10)


# --- steps ---------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("wrong", [(1.0, 0.0), (-1.0, 1.0), (1.0, math.nan), (math.nan, 1.0)])
def test_an_update_that_makes_no_sense_is_refused(wrong: tuple[float, float]) -> None:
    level, step = wrong
    with pytest.raises(InvalidInput, match="step"):
        Descent(TraceNorm(), level, step)
    with pytest.raises(InvalidInput, match="step"):
        Averaging(TraceNorm(), level, (step,), (1,))


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_a_server_without_a_feature_or_a_node_is_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(InvalidInput, match="a feature and a node"):
        Server(UPDATES[0], *shape)
