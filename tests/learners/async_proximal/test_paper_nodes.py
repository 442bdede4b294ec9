"""S3 without privacy and as published, against slow literal transcriptions of its equations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pytest
from scipy import stats
from threadpoolctl import threadpool_limits

from tacit.arrays import FloatArray
from tacit.engine import Unprotected
from tacit.engine.arrivals import Parties, Visit, moments, run_arrivals
from tacit.engine.latencies import Faults, Latency, Pareto, Straggler, Uniform, visits
from tacit.errors import InvalidInput, UntrustedMessage
from tacit.learners.async_proximal.formulations import (
    FORMULATIONS as PENALTIES,
)
from tacit.learners.async_proximal.formulations import (
    Formulation,
    MeanLoss,
    Named,
    OwnPart,
    synchronous_optimum,
)
from tacit.learners.async_proximal.paper_nodes import (
    FirstNoise,
    PaperNode,
    PaperNodeState,
    PublishedNoise,
)
from tacit.learners.async_proximal.server import Server
from tacit.learners.async_proximal.updates import (
    Descent,
    LastGradients,
    curvature_with_own,
    largest_step,
)
from tacit.linear.losses import Logistic, Loss, Squared
from tacit.linear.penalties import GroupNorm, L1Norm, TraceNorm
from tacit.privacy.release import Mechanism

ALPHA = 1e-6


def formulation_named(name: Named, shared_level: float, own_level: float) -> Formulation:
    shared, own = PENALTIES[name]
    return Formulation(shared, shared_level, own, own_level)


FORMULATIONS = {
    "dirty model": formulation_named("dirty", 0.2, 0.12),
    "alternating structure": formulation_named("trace", 0.1, 0.1),
    "robust features": formulation_named("robust-features", 0.2, 0.2),
    "robust tasks": formulation_named("robust-tasks", 0.3, 0.25),
    "shared only": Formulation(GroupNorm(), 0.1, L1Norm(), 1e3),
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads only wait for each other on matrices of this size."""
    with threadpool_limits(1, user_api="blas"):
        yield


def tasks(loss: Loss, nodes: int = 5, d: int = 4, rows: int = 30, seed: int = 0) -> list[MeanLoss]:
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(d, 1)) + 0.5 * rng.normal(size=(d, nodes))
    found = []
    for w in W.T:
        X = rng.normal(size=(rows, d))
        y = X @ w + rng.normal(size=rows)
        found.append(MeanLoss(X, np.sign(y) if loss.name == "logistic" else y, loss))
    return found


def order_of(latency: Latency, nodes: int, count: int, seed: int) -> list[Visit]:
    """The first visits of nodes that would go on: nobody has stopped when it ends."""
    return list(islice(visits(latency, [count] * nodes, seed=seed), count))


def curvature(found: list[MeanLoss]) -> float:
    return max(task.curvature for task in found)


def open_nodes(
    found: list[MeanLoss],
    formulation: Formulation,
    releases: int,
    step: float,
    *,
    alone: bool = True,
    own: str = "exact",
    **how: Any,
) -> list[PaperNode]:
    """Without noise; from the single-task q, or from zero."""
    zero = np.zeros(found[0].X.shape[1])
    return [
        PaperNode(
            task,
            formulation,
            releases,
            step,
            OwnPart(task, formulation).best(zero, zero) if alone else zero,
            own,  # type: ignore[arg-type] # parameters of a test are plain text
            **how,
        )
        for task in found
    ]


def own_parts(states: list[PaperNodeState]) -> FloatArray:
    return np.stack([state.q for state in states], axis=1)


def asynchronous(
    found: list[MeanLoss],
    formulation: Formulation,
    schedule: list[Visit],
    step: float,
    **how: Any,
) -> tuple[FloatArray, FloatArray]:
    """P and Q after the schedule."""
    d, releases = found[0].X.shape[1], sum(len(visit.arriving) for visit in schedule)
    update = Descent(formulation.shared, formulation.shared_level, step)
    server = Server(update, d, len(found))
    nodes = open_nodes(found, formulation, releases, step, **how)
    end = run_arrivals(Parties(server, nodes, server_trusted=True), schedule)
    return server.shared(end.server), own_parts(end.nodes)


# --- without privacy -----------------------------------------------------------------------------


def distance(found: list[MeanLoss], formulation: Formulation, got: tuple[Any, Any]) -> float:
    """The objective relative to that of the synchronous optimum, less one."""
    best = formulation.objective(found, *synchronous_optimum(found, formulation))
    return formulation.objective(found, *got) / best - 1


@pytest.mark.parametrize("formulation", FORMULATIONS.values(), ids=FORMULATIONS)
def test_the_asynchronous_run_ends_at_the_synchronous_optimum(formulation: Formulation) -> None:
    found = tasks(Logistic())
    schedule = order_of(Pareto(), 5, 1500, seed=1)
    step = largest_step(curvature(found), joint=True)
    got = asynchronous(found, formulation, schedule, step, own="single", alone=False)
    assert distance(found, formulation, got) < 1e-6


@pytest.mark.parametrize("order", ["gauss-seidel", "jacobi"])
@pytest.mark.parametrize("own", ["exact", "single"])
@pytest.mark.parametrize("alone", [True, False])
def test_every_order_and_start_leads_to_the_same_place(order: str, own: str, alone: bool) -> None:
    found, formulation = tasks(Squared()), FORMULATIONS["alternating structure"]
    bends = curvature(found) + (formulation.own_level if own == "single" else 0.0)
    step = largest_step(bends, joint=own == "single")
    schedule = order_of(Uniform(), 5, 700 if own == "exact" else 1500, seed=2)
    got = asynchronous(found, formulation, schedule, step, order=order, own=own, alone=alone)
    assert distance(found, formulation, got) < 1e-6


@pytest.mark.parametrize("latency", [Pareto(1.1), Straggler(Uniform())])
def test_no_latency_changes_where_it_ends(latency: Latency) -> None:
    found, formulation = tasks(Squared()), FORMULATIONS["alternating structure"]
    step = largest_step(curvature_with_own(curvature(found), formulation.own_level))
    got = asynchronous(found, formulation, order_of(latency, 5, 1000, seed=2), step)
    assert distance(found, formulation, got) < 1e-6


def test_losses_doubled_messages_and_deaths_do_not_change_the_optimum() -> None:
    found, formulation = tasks(Squared()), FORMULATIONS["alternating structure"]
    faults = Faults(lost=0.2, repeated=0.2, timeout=0.02, outages={0: [(0.05, 0.3)]})
    schedule = list(visits(Uniform(), [150] * 5, seed=3, faults=faults))
    got = asynchronous(found, formulation, schedule, largest_step(curvature(found)))
    assert distance(found, formulation, got) < 1e-6


def test_knowing_how_q_bends_the_loss_saves_most_of_the_messages() -> None:
    found, formulation = tasks(Squared()), formulation_named("trace", 0.02, 0.02)
    schedule, L = order_of(Uniform(), 5, 60, seed=2), curvature(found)
    steps = (largest_step(L), largest_step(curvature_with_own(L, formulation.own_level)))
    short, long = (
        distance(found, formulation, asynchronous(found, formulation, schedule, step))
        for step in steps
    )
    assert long < 1e-6 < short


def literal_gauss_seidel(
    found: list[MeanLoss], formulation: Formulation, order: list[int], step: float
) -> tuple[FloatArray, FloatArray]:
    """Eq. (8)–(9) with S3's ridge on q and our server, one arrival after the other, by full SVD."""
    d, nodes = found[0].X.shape[1], len(found)
    ridge = 2 * formulation.own_level
    V, handed = np.zeros((d, nodes)), np.zeros((d, nodes))

    def best(t: int, p: FloatArray) -> FloatArray:
        X, y = found[t].X, found[t].y
        gram = X.T @ X / len(y)
        return np.asarray(np.linalg.solve(gram + ridge * np.eye(d), X.T @ (y - X @ p) / len(y)))

    def shared(V: FloatArray) -> FloatArray:
        U, sizes, Qt = np.linalg.svd(V, full_matrices=False)
        return np.asarray((U * np.maximum(sizes - step * formulation.shared_level, 0)) @ Qt)

    Q = np.stack([best(t, np.zeros(d)) for t in range(nodes)], axis=1)  # single-task start
    for t in order:
        p = handed[:, t]
        Q[:, t] = best(t, p)  # Eq. (8)
        X, y = found[t].X, found[t].y
        gradient = X.T @ (X @ (p + Q[:, t]) - y) / len(y)  # at (p⁻, q⁺)
        delta = p - step * gradient - V[:, t]
        drift = p - shared(V)[:, t]
        V[:, t] += np.clip(1 - drift @ delta / (delta @ delta), 0, 1) * delta  # Eq. (9)
        handed[:, t] = shared(V)[:, t]
    return shared(V), Q


def test_the_open_node_is_the_literal_gauss_seidel_iteration() -> None:
    found, formulation = tasks(Squared()), FORMULATIONS["alternating structure"]
    step = largest_step(curvature(found))
    schedule = list(visits(Pareto(), [15] * 5, seed=4))
    order = [visit.arriving[0] for visit in schedule]
    assert all(len(visit.arriving) == 1 for visit in schedule)
    P, Q = asynchronous(found, formulation, schedule, step)
    slow_P, slow_Q = literal_gauss_seidel(found, formulation, order, step)
    np.testing.assert_allclose(P, slow_P, rtol=0, atol=1e-10)
    np.testing.assert_allclose(Q, slow_Q, rtol=0, atol=1e-10)


def test_a_synchronous_jacobi_run_is_equations_6_and_7() -> None:
    found, formulation = tasks(Logistic()), FORMULATIONS["robust tasks"]
    step = largest_step(curvature(found), joint=True)
    schedule = list(visits(Uniform(), [10] * 5, seed=0, staleness=0))
    P, Q = asynchronous(
        found, formulation, schedule, step, order="jacobi", own="single", alone=False
    )
    slow_P, slow_Q = np.zeros((4, 5)), np.zeros((4, 5))
    for _ in range(10):
        slope = np.stack(
            [task.gradient(w) for task, w in zip(found, (slow_P + slow_Q).T, strict=True)], axis=1
        )
        slow_Q = formulation.own.prox(slow_Q - step * slope, step * formulation.own_level)
        slow_P = formulation.shared.prox(slow_P - step * slope, step * formulation.shared_level)
    np.testing.assert_allclose(P, slow_P, rtol=0, atol=1e-10)
    np.testing.assert_allclose(Q, slow_Q, rtol=0, atol=1e-10)


def test_one_node_is_its_own_problem() -> None:
    found = tasks(Squared(), nodes=1)
    formulation = Formulation(TraceNorm(), 0.0, L1Norm(), 1e3)
    schedule = list(visits(Uniform(), [400], seed=0))
    P, Q = asynchronous(found, formulation, schedule, largest_step(curvature(found)))
    alone = np.linalg.lstsq(found[0].X, found[0].y)[0]
    np.testing.assert_allclose(P[:, 0], alone, atol=1e-8)
    assert not Q.any()


def test_an_open_node_may_not_talk_to_an_adversary() -> None:
    found, formulation = tasks(Squared()), FORMULATIONS["alternating structure"]
    server = Server(Descent(TraceNorm(), 0.1, 0.1), 4, 5)
    nodes = open_nodes(found, formulation, 1, 0.1)
    with pytest.raises(UntrustedMessage):
        run_arrivals(Parties(server, nodes), visits(Uniform(), [1] * 5, seed=0))


# --- as published --------------------------------------------------------------------------------


def literal_algorithm_1(
    found: list[MeanLoss], order: list[int], epsilon: float, step: float, level: float
) -> tuple[FloatArray, FloatArray]:
    """Algorithm 1 with its first noise only, line by line."""
    d, nodes = found[0].X.shape[1], len(found)
    P, S, Q = np.zeros((d, nodes)), np.zeros((d, nodes)), np.zeros((d, nodes))
    handed, count = np.zeros((d, nodes)), [0] * nodes
    for t in order:
        X, y, n, q, p = found[t].X, found[t].y, len(found[t].y), Q[:, t], handed[:, t]
        q = q - STEP * (X.T @ (X @ (p + q) - y) / n + LEVEL * q)
        rng = np.random.default_rng([t, count[t]])
        direction, radius = rng.standard_normal(d), rng.gamma(d)
        first = 2 * STEP * C1 * C2 / n / epsilon
        z = first * radius * direction / np.linalg.norm(direction)
        S[:, t] = X.T @ (X @ (p + q + z) - y) / n
        U, sizes, Qt = np.linalg.svd(P - step * S, full_matrices=False)
        P = (U * np.maximum(sizes - step * level, 0)) @ Qt
        Q[:, t], handed[:, t], count[t] = q, P[:, t], count[t] + 1
    return P, Q


STEP, LEVEL, C1, C2 = 0.1, 0.05, 1.5, 2.0


def published_nodes(found: list[MeanLoss], epsilon: float, releases: int) -> list[PaperNode]:
    formulation, bound = formulation_named("trace", 0.3, LEVEL / 2), 2 * C1 * C2 / len(found[0].y)
    return [
        PaperNode(
            task,
            formulation,
            releases,
            STEP,
            np.zeros(4),
            first=FirstNoise(STEP * bound / epsilon, seed=t),
            mechanism=PublishedNoise(bound, epsilon, epsilon),
        )
        for t, task in enumerate(found)
    ]


@pytest.mark.parametrize("epsilon", [0.5, 1e9])
def test_the_published_run_is_algorithm_1_line_by_line(epsilon: float) -> None:
    found = tasks(Squared())
    nodes = published_nodes(found, epsilon, 20)
    server = Server(LastGradients(TraceNorm(), 0.3, 0.05), 4, 5)
    schedule = list(visits(Uniform(), [20] * 5, seed=6))
    end = run_arrivals(
        Parties(server, nodes, [FirstNoiseOnly()] * 5, server_trusted=True), schedule
    )
    order = [visit.arriving[0] for visit in schedule]
    P, Q = literal_algorithm_1(found, order, epsilon, 0.05, 0.3)
    np.testing.assert_allclose(server.shared(end.server), P, rtol=0, atol=1e-10)
    np.testing.assert_allclose(own_parts(end.nodes), Q, rtol=0, atol=1e-10)


class FirstNoiseOnly:
    """A door without the second noise: the one row that a published node contributes."""

    def open(self, mechanisms: Sequence[Mechanism]) -> None:
        """Nobody is charged."""

    def release(
        self, number: int, party: str, mechanism: Mechanism, contributions: Any
    ) -> Unprotected:
        return Unprotected(contributions[0])


def test_without_noise_the_published_server_also_finds_the_optimum() -> None:
    found, formulation = tasks(Squared()), FORMULATIONS["alternating structure"]
    step = largest_step(curvature(found)) / 11  # it repeats everybody's last gradient
    server = Server(LastGradients(TraceNorm(), formulation.shared_level, step), 4, 5)
    nodes = open_nodes(found, formulation, 400, step)
    end = run_arrivals(
        Parties(server, nodes, server_trusted=True), visits(Uniform(), [400] * 5, seed=0)
    )
    got = (server.shared(end.server), own_parts(end.nodes))
    assert distance(found, formulation, got) < 1e-6


def test_the_published_server_has_the_same_door() -> None:
    found = tasks(Squared())
    faults = Faults(repeated=0.5)
    schedule = list(visits(Uniform(), [5] * 5, seed=6, faults=faults))
    server = Server(LastGradients(TraceNorm(), 0.3, 0.05), 4, 5)
    parties = Parties(
        server, published_nodes(found, 1.0, 5), [FirstNoiseOnly()] * 5, server_trusted=True
    )
    end = run_arrivals(parties, schedule)
    doubled = sum(len(visit.repeated) for visit in schedule)
    assert sum(end.server.refused.values()) == doubled > 0
    assert end.server.step == 25


def test_what_one_example_did_to_q_stays_in_the_published_state() -> None:
    """The flaw: given the same columns, q after many rounds still tells two data sets apart."""
    first = tasks(Squared())[0]
    X, y = first.X.copy(), first.y.copy()
    X[0], y[0] = -X[0], y[0] + 1
    gap = []
    for releases in (1, 20):
        states = []
        for task in (first, MeanLoss(X, y, Squared())):
            (node,) = published_nodes([task], 1.0, releases)
            state = node.start()
            for _ in range(releases):
                _, state = node.contribute(np.zeros(4), state)
            states.append(state.q)
        gap.append(float(np.linalg.norm(states[0] - states[1])))
    assert gap[1] > 3 * gap[0] > 0


def test_the_second_noise_has_the_published_density() -> None:
    mechanism, rng = PublishedNoise(0.2, 0.1, 0.4), np.random.default_rng(0)
    row = np.array([[1.0, -2.0, 3.0]])
    drawn = np.array([mechanism.release(row, rng) for _ in range(4000)]) - row
    radii = np.linalg.norm(drawn, axis=1)
    assert stats.kstest(radii, stats.gamma(3, scale=0.5).cdf).pvalue > ALPHA  # S₂/ε₂ = ½
    assert stats.kstest(radii, stats.gamma(3, scale=0.6).cdf).pvalue < ALPHA
    cosines = drawn[:, 0] / radii  # in three dimensions uniform on [−1, 1]
    assert stats.kstest(cosines, stats.uniform(-1, 2).cdf).pvalue > ALPHA


def test_the_first_noise_has_the_published_density() -> None:
    node = published_nodes(tasks(Squared()), 0.5, 1)[0]
    assert node.first is not None
    radii = [np.linalg.norm(node.first.draw(4, k)) for k in range(4000)]
    law = stats.gamma(4, scale=2 * 0.1 * 1.5 * 2.0 / 30 / 0.5)  # S₁/ε₁
    assert stats.kstest(radii, law.cdf).pvalue > ALPHA


def test_the_claim_is_that_of_the_paper_and_marked_as_one() -> None:
    mechanism = PublishedNoise(0.2, 0.1, 0.4)
    assert mechanism.event("replace").epsilon == pytest.approx(0.5)
    assert not mechanism.proven
    assert "never privatised" in mechanism.reason
    with pytest.raises(InvalidInput):
        PublishedNoise(0.0, 0.1, 0.1)


def test_the_straggler_holds_nobody_up() -> None:
    """Simulated time to within 1%: the asynchronous run needs a quarter at most."""
    found = tasks(Squared(), nodes=20, d=6)
    formulation = formulation_named("trace", 0.1, 0.1)
    P, Q = synchronous_optimum(found, formulation)
    target = 1.01 * formulation.objective(found, P, Q)
    step = largest_step(curvature(found))
    times = {}
    for staleness in (None, 0):
        server = Server(Descent(TraceNorm(), formulation.shared_level, step), 6, 20)
        nodes = open_nodes(found, formulation, 500, step)
        schedule = visits(Straggler(Uniform()), [500] * 20, seed=0, staleness=staleness)
        for now in moments(Parties(server, nodes, server_trusted=True), schedule):
            got = (server.shared(now.server), own_parts(now.nodes))
            if formulation.objective(found, *got) <= target:
                times[staleness] = now.time
                break
    assert times[0] >= 4 * times[None]
