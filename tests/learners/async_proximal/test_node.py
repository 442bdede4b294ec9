"""The sound node: nothing leaves it but through its door, and it knows beforehand how often."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from tacit.arrays import FloatArray
from tacit.engine.arrivals import GRADIENT, Arrival, Moment, Parties, run_arrivals
from tacit.engine.latencies import Constant, Faults, Uniform, visits
from tacit.errors import BudgetExceeded, InvalidInput
from tacit.learners.async_proximal.formulations import (
    Formulation,
    MeanLoss,
    synchronous_optimum,
)
from tacit.learners.async_proximal.node import Own, PrivateNode, example_gradients
from tacit.learners.async_proximal.node_mechanisms import Sampled
from tacit.learners.async_proximal.plan import (
    ADVERSARY,
    SILENT,
    Allowance,
    NodePlan,
    Setting,
    node_plan,
    public_clip_norm,
)
from tacit.learners.async_proximal.server import Server
from tacit.learners.async_proximal.updates import Averaging, Descent
from tacit.linear.losses import Logistic, Squared
from tacit.linear.penalties import SquaredNorm, TraceNorm
from tacit.privacy.accounting import Gaussian
from tacit.privacy.budget import Budget
from tacit.privacy.ledger import Key, Ledger
from tacit.privacy.mechanisms import GaussianSum
from tacit.privacy.node_runs import node_doors, node_run
from tacit.privacy.planning import Door
from tacit.privacy.release import Declared, Mechanism, Release

ALPHA = 1e-6
BUDGET = Budget(5.0)
D, N, T = 4, 30, 3


def setting(**more: Any) -> Setting:
    loss = Squared()
    known: dict[str, Any] = {
        "loss": loss,
        "width": D,
        "n_nodes": T,
        "neighbours": "replace",
        "clip_norm": public_clip_norm(loss, D),
    }
    return Setting(**(known | more))


def rows(seed: int = 0) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(-1, 1, (N, D - 1)), np.ones(N)])
    return X, X @ rng.standard_normal(D) / 4


def plan(releases: int = 3, mu: float = 1.0) -> NodePlan:
    return node_plan(setting(releases=releases), N, Allowance(mu, BUDGET))


def node(seed: int = 0, **more: Any) -> PrivateNode:
    X, y = rows(seed)
    made = PrivateNode(MeanLoss(X, y, Squared()), plan(), SquaredNorm(), 0.1)
    return replace(made, **more)


def doors(
    ledger: Ledger, labels: str, budgets: list[Budget | None], *, seeded: bool = False
) -> list[Door]:
    rng = np.random.default_rng(0) if seeded else None
    whole = Door(ledger, "run", tuple(labels), tuple(budgets), np.ones(len(labels)), 1.0, rng)
    return node_doors(replace(whole, promise=ADVERSARY))


# --- what leaves ---------------------------------------------------------------------------------


def test_gradients_of_examples_are_those_of_a_loop() -> None:
    X, y = rows()
    w = np.linspace(-1, 1, D)
    loop = [(x @ w - target) * x / (x @ x) for x, target in zip(X, y, strict=True)]
    np.testing.assert_allclose(example_gradients(X, y, w, Squared()), loop, rtol=1e-12)
    zero = np.zeros((1, D))
    np.testing.assert_array_equal(example_gradients(zero, y[:1], w, Squared()), zero)


def test_the_curvature_of_a_node_is_at_most_one_whatever_the_rows() -> None:
    X = rows()[0] * 10.0 ** np.random.default_rng(1).uniform(-3, 3, (N, 1))
    for loss, most in ((Squared(), 1.0), (Logistic(), 0.25)):
        step = 1e-6 * np.eye(D)
        y = np.sign(X[:, 0])
        columns = [
            (example_gradients(X, y, e, loss) - example_gradients(X, y, -e, loss)).mean(0) / 2e-6
            for e in step
        ]
        assert np.linalg.eigvalsh(np.array(columns))[-1] <= most * (1 + 1e-4)


def test_given_the_same_releases_nothing_in_a_node_depends_on_its_data() -> None:
    """State and message after absorb: bit for bit, whatever example was replaced."""
    X, y = rows()
    other_X, other_y = X.copy(), y.copy()
    other_X[7], other_y[7] = -X[7], 1.0
    one, other = node(), node(task=MeanLoss(other_X, other_y, Squared()))
    assert one.mechanism is not None
    (door,) = doors(Ledger.in_memory(), "a", [BUDGET])
    door.open([one.mechanism] * one.releases)
    states: list[Own] = [one.start(), other.start()]
    column = np.zeros(D)
    for number in range(plan().releases):
        (sent, kept), (other_sent, other_kept) = (
            half.contribute(column, state) for half, state in zip((one, other), states, strict=True)
        )
        assert not np.array_equal(sent, other_sent)
        np.testing.assert_array_equal(np.delete(sent, 7, 0), np.delete(other_sent, 7, 0))
        released = door.release(number, "node 0", one.mechanism, sent)
        m0, s0 = one.absorb(column, released, kept)
        m1, s1 = other.absorb(column, released, other_kept)
        np.testing.assert_array_equal(s0.value, s1.value)
        np.testing.assert_array_equal(m0[GRADIENT].value, m1[GRADIENT].value)
        states, column = [s0, s1], -0.1 * np.asarray(m0[GRADIENT].value)


def test_the_message_is_q_s_only_update() -> None:
    half = node()
    total = np.arange(D, dtype=float)
    released = Release(total, (Key("run", 0, "node 0"),), secure=False)
    message, q = half.absorb(np.ones(D), released, Declared(np.zeros(D)))
    gradient = total / half.plan.divisor
    np.testing.assert_allclose(np.asarray(message[GRADIENT].value), gradient)
    step = half.plan.own_step
    assert q.source == released.source
    np.testing.assert_allclose(q.value, -step * gradient / (1 + 2 * step * half.own_level))


def test_a_replaced_example_moves_a_message_by_at_most_two_clip_norms() -> None:
    X, y = rows()
    mechanism = GaussianSum(public_clip_norm(Squared(), D), 1e-9)
    worst = 0.0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        other_X, other_y = X.copy(), y.copy()
        other_X[3] = rng.standard_normal(D) * 10.0 ** rng.uniform(-3, 3)
        other_y[3] = rng.standard_normal() * 100
        w = rng.standard_normal(D)
        sums = [
            mechanism.release(example_gradients(a, b, w, Squared()), rng)
            for a, b in ((X, y), (other_X, other_y))
        ]
        worst = max(worst, float(np.linalg.norm(sums[0] - sums[1])))
    C = public_clip_norm(Squared(), D)
    assert C < worst <= 2 * C + 1e-6


# --- what it costs -------------------------------------------------------------------------------


def sent_by(plans: list[NodePlan], own: list[Door], faults: Faults | None = None) -> Moment:
    """A run of these nodes, until all that live have stopped."""
    steps, releases = tuple(p.step for p in plans), tuple(p.releases for p in plans)
    server = Server(Averaging(TraceNorm(), 0.1, steps, releases), D, len(plans))
    nodes = [node(t, plan=p) for t, p in enumerate(plans)]
    order = visits(Constant(1.0), releases, seed=0, faults=faults or Faults())
    return run_arrivals(Parties(server, nodes, own), order)


def test_a_node_spends_what_it_sent_and_the_others_go_on() -> None:
    """Node 1 dies after two messages, for good."""
    plans = [plan(4, 0.5), plan(4, 0.5), plan(2, 0.8)]
    ledger = Ledger.in_memory()
    faults = Faults(outages={1: [(2.5, float("inf"))]})
    end = sent_by(plans, doors(ledger, "abc", [BUDGET] * 3, seeded=True), faults)
    assert end.sent == [4, 2, 2]
    for label, p, sent in zip("abc", plans, end.sent, strict=True):
        assert p.mechanism is not None
        event = p.mechanism.event("replace")
        assert isinstance(event, Gaussian)
        assert ledger.spent(label).mu_squared == pytest.approx(sent * event.mu**2)


def test_a_plan_that_does_not_fit_is_refused_before_any_noise() -> None:
    """Of the second node: the first has not sent anything either."""
    ledger = Ledger.in_memory()
    with pytest.raises(BudgetExceeded):
        sent_by([plan(3, 0.1), plan(3, 5.0)], doors(ledger, "ab", [BUDGET, Budget(0.1)]))
    assert "spend" not in [entry.kind for entry in ledger.entries()]
    assert ledger.spent("a").mu_squared == ledger.spent("b").mu_squared == 0


def test_a_node_with_nothing_left_sends_nothing() -> None:
    ledger = Ledger.in_memory()
    end = sent_by([plan(3), SILENT], doors(ledger, "ab", [BUDGET, None]))
    assert end.sent == [3, 0]
    assert ledger.spent("b").mu_squared == 0
    np.testing.assert_array_equal(end.nodes[1].value, np.zeros(D))


def test_nobody_speaks_for_a_node_that_is_silent() -> None:
    server = Server(Averaging(None, 0.0, (1.0, 1.0), (1, 0)), D, 2, np.array([9.0, SILENT.largest]))
    state = server.arrive(server.start(), [Arrival(1, 0, np.full(D, 1e-300))])
    assert state.refused == {"too large": 1}


def test_an_honest_message_is_within_the_declared_bound() -> None:
    """And a bound a third lower would refuse some: the test can fail."""
    p = plan(1, 0.3)
    assert isinstance(p.mechanism, GaussianSum)
    rng = np.random.default_rng(3)
    sizes = [
        np.linalg.norm(p.mechanism.release(np.zeros((N, D)), rng)) / p.divisor for _ in range(2000)
    ]
    signal = p.mechanism.clip_norm * N / p.divisor
    assert max(sizes) < p.largest - signal
    quantile = p.mechanism.sigma * np.sqrt(chi2.isf(1e-9, D)) / p.divisor
    assert p.largest == pytest.approx(signal + quantile)


CHILD = """
import sys, time
import numpy as np
sys.path.insert(0, sys.argv[2])
from test_node import BUDGET, doors, node, plan
from tacit.privacy.ledger import Ledger

half = node(plan=plan(6, 0.5))
(door,) = doors(Ledger(sys.argv[1]), "a", [BUDGET])
door.open([half.mechanism] * half.releases)
state, column = half.start(), np.zeros(4)
for number in range(half.releases):
    contribution, state = half.contribute(column, state)
    released = door.release(number, "node 0", half.mechanism, contribution)
    message, state = half.absorb(column, released, state)
    column = column - 0.1 * message["gradient"].value
    print(message["gradient"].value.tobytes().hex(), flush=True)
    time.sleep(0.02)
"""


def test_a_killed_node_resends_the_same_bytes_and_spends_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CHILD, str(tmp_path / "l.sqlite"), str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        before = [child.stdout.readline().strip() for _ in range(3)]
        child.send_signal(signal.SIGKILL)
        before += [line.strip() for line in child.stdout if len(line) == 2 * 8 * D + 1]
    assert child.returncode == -signal.SIGKILL
    done = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert len(done) == 6
    assert done[: len(before)] == before
    with Ledger(tmp_path / "l.sqlite") as ledger:
        assert ledger.verify().ok
        assert ledger.spent("a").mu_squared == pytest.approx(0.25)
        spends = [e for e in ledger.entries() if e.kind == "spend"]
        assert len(spends) == 6
        assert spends[0].payload["run"] == node_run("run", 0)


# --- the server of a private run -----------------------------------------------------------------


def test_the_averaging_server_is_its_formula() -> None:
    """A literal transcription: all messages kept, P from scratch after each."""
    rng = np.random.default_rng(0)
    steps, releases, level = (0.5, 0.2, 1.0), (4, 2, 3), 1.5
    server = Server(Averaging(TraceNorm(), level, steps, releases), D, 3)
    state = server.start()
    sent: list[list[FloatArray]] = [[], [], []]
    for t in (0, 0, 1, 2, 0, 2, 1, 0, 2):
        message = rng.standard_normal(D)
        state = server.arrive(state, [Arrival(t, server.round(state, t), message)])
        sent[t].append(message)
        share = [len(each) / k for each, k in zip(sent, releases, strict=True)]
        common = sum(share) / 3
        V = np.zeros((D, 3))
        for node_, (each, alpha, own) in enumerate(zip(sent, steps, share, strict=True)):
            if each:
                V[:, node_] = -alpha * np.sum(each, axis=0) * min(common / own, 2.0)
        P = TraceNorm().prox(V, level * common)
        np.testing.assert_allclose(server.shared(state), P, atol=1e-12)
        np.testing.assert_allclose(server.column(state, t), P[:, t], atol=1e-12)


def test_the_averaging_server_refuses_what_no_honest_node_sends() -> None:
    server = Server(Averaging(TraceNorm(), 0.1, (1.0, 1.0), (2, 2)), D, 2, largest=3.0)
    good = Arrival(0, 0, np.ones(D))
    state = server.arrive(server.start(), [good])
    before = server.shared(state)
    bad = [
        good,  # once more
        Arrival(1, 0, np.full(D, 10.0)),
        Arrival(1, 0, np.full(D, np.nan)),
        Arrival(1, 0, np.ones(D + 1)),
        Arrival(7, 0, np.ones(D)),
    ]
    state = server.arrive(state, bad)
    assert sum(state.refused.values()) == len(bad)
    np.testing.assert_array_equal(server.shared(state), before)
    assert server.round(state, 1) == 0  # a good message can still answer it
    assert server.round(server.refresh(state, 1), 1) == 1


# --- limits --------------------------------------------------------------------------------------


class Summed:
    """A door without clip and noise: what the node would send if it trusted the server."""

    def open(self, mechanisms: Sequence[Mechanism]) -> None:
        """Nobody is charged."""

    def release(self, number: int, party: str, mechanism: Mechanism, contributions: Any) -> Release:
        return Release(contributions.sum(axis=0), (Key("run", number, party),), secure=False)


def open_run(server: Server, plans: list[NodePlan], level: float) -> tuple[FloatArray, FloatArray]:
    nodes = [node(t, plan=p, own_level=level) for t, p in enumerate(plans)]
    order = visits(Uniform(), [p.releases for p in plans], seed=1)
    end = run_arrivals(Parties(server, nodes, [Summed()] * len(plans)), order)
    return server.shared(end.server), np.stack([q.value for q in end.nodes], axis=1)


def weighted_tasks(nodes: int) -> list[MeanLoss]:
    """Rows divided by their norm: the loss with weights 1/‖x‖²."""
    found = []
    for t in range(nodes):
        X, y = rows(t)
        norms = np.linalg.norm(X, axis=1)
        found.append(MeanLoss(X / norms[:, None], y / norms, Squared()))
    return found


@pytest.mark.parametrize("nodes", [1, T])
def test_without_noise_the_node_reaches_the_synchronous_optimum(nodes: int) -> None:
    tasks, formulation = weighted_tasks(nodes), Formulation(TraceNorm(), 0.01, SquaredNorm(), 0.1)
    P, Q = synchronous_optimum(tasks, formulation)
    best = formulation.objective(tasks, P, Q)
    p = replace(plan(), releases=600, step=0.5, own_step=0.5)
    server = Server(Descent(TraceNorm(), level=0.01, step=0.5), D, nodes)
    found = open_run(server, [p] * nodes, 0.1)
    assert formulation.objective(tasks, *found) == pytest.approx(best, abs=1e-6)
    averaging = Averaging(TraceNorm(), 0.01 * 300, (0.5,) * nodes, (600,) * nodes)
    found = open_run(Server(averaging, D, nodes), [p] * nodes, 0.1)
    unlearned = formulation.objective(tasks, np.zeros_like(P), np.zeros_like(P))
    assert formulation.objective(tasks, *found) - best < 0.01 * (unlearned - best)


def test_without_a_penalty_every_node_walks_alone() -> None:
    tasks = weighted_tasks(T)
    p = replace(plan(), releases=1000, step=1.0, own_step=1.0)
    server = Server(Averaging(None, 0.0, (1.0,) * T, (1000,) * T), D, T)
    P, Q = open_run(server, [p] * T, 0.0)
    np.testing.assert_array_equal(P, 0 * P)
    for t, task in enumerate(tasks):
        alone = np.linalg.lstsq(task.X, task.y, rcond=None)[0]
        np.testing.assert_allclose(Q[:, t], alone, atol=1e-6)


def test_how_many_coins_fell_decides_nothing_but_the_sum() -> None:
    """A sum of too many rows for its grid is refused by the rows there are, not by those drawn."""
    rows = np.ones((64, 2))
    tiny = Sampled(GaussianSum(1.0, 2.0**-31), rate=1e-6)  # 64 rows do not fit, a few would
    with pytest.raises(InvalidInput, match="64 units"):
        tiny.release(rows, None)
