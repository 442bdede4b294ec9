"""The asynchronous engine and server: convergence, a straggler, and what an arrival costs.

    python benchmarks/asynchronous.py [convergence] [straggler] [rate] [cost]

S3's synthetic setting: 20 tasks, 200 rows of which 30% train, 28 features, models of rank 3 and a
little of their own. Trace norm on P, squared norm on Q, no noise. One BLAS thread. One JSON line
per case.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from threadpoolctl import threadpool_limits

from tacit.arrays import FloatArray
from tacit.engine.arrivals import Arrival, Parties, moments, run_arrivals
from tacit.engine.latencies import Latency, Pareto, Straggler, Uniform, visits
from tacit.learners.async_proximal.formulations import (
    Formulation,
    MeanLoss,
    OwnPart,
    synchronous_optimum,
)
from tacit.learners.async_proximal.paper_nodes import PaperNode
from tacit.learners.async_proximal.server import Server, ServerState
from tacit.learners.async_proximal.updates import Descent, curvature_with_own, largest_step
from tacit.linear.losses import loss_named
from tacit.linear.penalties import GroupNorm, Penalty, SquaredNorm, TraceNorm
from tacit.privacy.accounting import Gaussian
from tacit.privacy.budget import Budget
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import GaussianSum
from tacit.privacy.release import Key

TASKS, ROWS, FEATURES = 20, 60, 28
ENDLESS = 1_000_000  # messages of a node, where the run is cut off by something else
Own = Literal["exact", "single"]
MOST: dict[Own, int] = {"exact": 3_000, "single": 60_000}  # arrivals until it gives up


def show(case: str, **line: Any) -> None:
    print(json.dumps({"case": case} | line), flush=True)


@dataclass(frozen=True)
class World:
    """One drawn problem, its optimum and the step sizes that suit it."""

    tasks: list[MeanLoss]
    formulation: Formulation
    best: float
    rank: int

    @classmethod
    def drawn(cls, loss: str, seed: int) -> World:
        rng = np.random.default_rng(seed)
        W = rng.normal(size=(FEATURES, 3)) @ rng.normal(size=(3, TASKS)) / 3**0.5
        W = (W + 0.1 * rng.normal(size=W.shape)) / FEATURES**0.5
        tasks = []
        for w in W.T:
            X = rng.normal(size=(ROWS, FEATURES))
            y = X @ w + 0.5 * rng.normal(size=ROWS)
            tasks.append(MeanLoss(X, np.sign(y) if loss == "logistic" else y, loss_named(loss)))
        formulation = Formulation(TraceNorm(), 0.1, SquaredNorm(), 0.05)
        P, Q = synchronous_optimum(tasks, formulation)
        best = formulation.objective(tasks, P, Q)
        return cls(tasks, formulation, best, int(np.linalg.matrix_rank(P, 1e-6)))

    def parties(self, own: Own) -> Parties:
        """Without privacy: the server is trusted here."""
        curvature, tau = max(task.curvature for task in self.tasks), self.formulation.own_level
        curvature = curvature_with_own(curvature, tau) if own == "exact" else curvature + tau
        step = largest_step(curvature, joint=own == "single")
        descent = Descent(TraceNorm(), self.formulation.shared_level, step)
        server = Server(descent, FEATURES, TASKS)
        zero = np.zeros(FEATURES)
        nodes = [
            PaperNode(
                task,
                self.formulation,
                ENDLESS,
                step,
                OwnPart(task, self.formulation).best(zero, zero),
                own,
            )
            for task in self.tasks
        ]
        return Parties(server, nodes, server_trusted=True)

    def gap(self, parties: Parties, server: Any, nodes: Sequence[Any]) -> float:
        P = parties.server.shared(server)  # type: ignore[attr-defined] # a Server
        Q = np.stack([state.q for state in nodes], axis=1)
        return self.formulation.objective(self.tasks, P, Q) / self.best - 1

    def reached(
        self, own: Own, latency: Latency, close: float, *, seed: int, most: int, **schedule: Any
    ) -> tuple[float, int, float]:
        """Simulated seconds, arrivals and the gap when the objective first is that close."""
        parties = self.parties(own)
        plan = visits(latency, [ENDLESS] * TASKS, seed=seed, **schedule)
        for count, now in enumerate(islice(moments(parties, plan), most), 1):
            if count % 10 == 0 or "staleness" in schedule or close >= 1e-3:
                gap = self.gap(parties, now.server, now.nodes)
                if gap <= close:
                    break
        return now.time, sum(now.sent), gap


def convergence() -> None:
    """Within 1e-6 of the synchronous optimum, for uniform and heavy-tailed delays."""
    latencies: dict[str, Latency] = {"uniform 0-15 ms": Uniform(), "Pareto 1.5": Pareto(1.5)}
    for loss in ("squared", "logistic"):
        world = World.drawn(loss, 0)
        for name, latency in latencies.items():
            for own, most in MOST.items():
                mark = time.perf_counter()
                found = world.reached(own, latency, 1e-6, seed=1, most=most)
                show(
                    "convergence",
                    loss=loss,
                    delays=name,
                    q=own,
                    rank=world.rank,
                    arrivals=found[1],
                    simulated_seconds=round(found[0], 3),
                    relative_gap=found[2],
                    met=found[2] <= 1e-6,
                    seconds=round(time.perf_counter() - mark, 1),
                )


def straggler() -> None:
    """20 nodes, one ten times slower: simulated time to within 1% of the optimum.

    With an exact q the synchronous run needs only two to four rounds, so the ratio depends on
    whether the asynchronous one happens to need the straggler's first message.
    """
    for loss in ("squared", "logistic"):
        for own in MOST:
            times = []
            for seed in range(9 if own == "exact" else 3):
                world, slow = World.drawn(loss, seed), Straggler(Uniform(), slow=(seed,))
                free = world.reached(own, slow, 0.01, seed=seed, most=20_000)
                waiting = world.reached(own, slow, 0.01, seed=seed, most=2_000, staleness=0)
                times.append((free[0], waiting[0], waiting[0] / free[0]))
            medians = np.median(times, axis=0)
            show(
                "straggler",
                loss=loss,
                q=own,
                asynchronous_seconds=round(medians[0], 3),
                synchronous_seconds=round(medians[1], 3),
                times_faster=[round(ratio, 1) for _, _, ratio in times],
                median=round(medians[2], 1),
                met=bool(medians[2] >= 4),
            )


# --- what an arrival costs -----------------------------------------------------------------------


@dataclass
class Timed:
    """A server half that counts the seconds it takes."""

    of: Any
    seconds: float = 0.0

    def __getattr__(self, name: str) -> Any:
        inside = getattr(self.of, name)

        def timed(*arguments: Any) -> Any:
            start = time.perf_counter()
            result = inside(*arguments)
            self.seconds += time.perf_counter() - start
            return result

        return timed


def throughput(arrivals: int, service: float) -> None:
    """Schedule, nodes, edges and server in one process, at d=28, T=20; and the server by itself.

    ``service`` is how long a step keeps the simulated server busy: what arrives meanwhile queues.
    """
    world = World.drawn("squared", 0)
    parties = world.parties("single")
    server = Timed(parties.server)
    parties = replace(parties, server=server)
    plan = visits(Uniform(), [arrivals // TASKS] * TASKS, seed=0, service=service)
    start, busy = time.perf_counter(), time.process_time()
    end = run_arrivals(parties, plan)
    whole, busy = time.perf_counter() - start, time.process_time() - busy
    show(
        "arrivals a second",
        d=FEATURES,
        T=TASKS,
        arrivals=sum(end.sent),
        steps=end.server.step,
        seconds=round(whole, 1),
        per_second=round(sum(end.sent) / whole),
        per_second_of_processor_time=round(sum(end.sent) / busy),
        server_per_second=round(sum(end.sent) / server.seconds),
        met=sum(end.sent) / server.seconds >= 5_000,
    )


def ledger_rate(path: Path | None, releases: int) -> None:
    """Private messages a second through a ledger, each of 28 numbers from 60 rows."""
    mechanism = GaussianSum(1.0, 1000.0)
    rows = np.random.default_rng(0).normal(size=(ROWS, FEATURES))
    with Ledger(path) as ledger:
        event: Gaussian = mechanism.event("replace")
        ledger.open_run("run", ["node"], Budget(1.0), [event] * releases)
        start = time.perf_counter()
        for number in range(releases):
            ledger.release(mechanism, rows, key=Key("run", number, "node"))
        taken = time.perf_counter() - start
    kind = "in memory" if path is None else "durable"
    show(f"ledger {kind}", releases=releases, per_second=round(releases / taken))


@dataclass
class FullProx:
    """The baseline: the same steps, with a full prox for each step."""

    prox: Callable[[FloatArray], FloatArray]
    step: float
    V: FloatArray
    P: FloatArray
    handed: FloatArray

    def arrive(self, nodes: list[int], target: FloatArray) -> None:
        before = self.V.copy()
        for t in nodes:
            p = self.handed[:, t]
            delta = p - self.step * (p - target[:, t]) - before[:, t]
            eta = 1 - (p - self.P[:, t]) @ delta / max(float(delta @ delta), 1e-300)
            self.V[:, t] += min(1.0, max(0.0, float(eta))) * delta
        self.P = self.prox(self.V)
        self.handed[:, nodes] = self.P[:, nodes]


def full_svd(V: FloatArray, level: float) -> FloatArray:
    U, sizes, Qt = np.linalg.svd(V, full_matrices=False)
    return np.asarray((U * np.maximum(sizes - level, 0)) @ Qt)


def full_rows(V: FloatArray, level: float) -> FloatArray:
    sizes = np.linalg.norm(V, axis=1, keepdims=True)
    return np.asarray(V * np.maximum(1 - level / np.maximum(sizes, 1e-300), 0))


def against_full(
    penalty: Penalty, level: float, d: int, T: int, queued: int, steps: int
) -> dict[str, Any]:
    """Ours and the baseline on the same messages, from a V that is in use already."""
    rng = np.random.default_rng(0)
    target = rng.normal(size=(d, 5)) @ rng.normal(size=(5, T)) + rng.normal(size=(d, T))
    step, full = 0.5, full_svd if isinstance(penalty, TraceNorm) else full_rows
    server = Server(Descent(penalty, level, step), d, T, largest=1e6)
    state: ServerState = server.start()
    first = [Arrival(t, 0, -target[:, t]) for t in range(T)]
    state = server.arrive(state, first)
    zero = np.zeros((d, T))
    slow = FullProx(lambda V: full(V, step * level), step, zero.copy(), zero, zero.copy())
    slow.arrive(list(range(T)), target)
    order = [rng.choice(T, queued, replace=False).tolist() for _ in range(steps)]
    start = time.process_time()  # one thread: what else runs on the machine counts less
    for nodes in order:
        columns = [(t, server.round(state, t), server.column(state, t)) for t in nodes]
        state = server.arrive(state, [Arrival(t, r, p - target[:, t]) for t, r, p in columns])
    ours = (time.process_time() - start) / (steps * queued)
    start = time.process_time()
    for nodes in order:
        slow.arrive(nodes, target)
    theirs = (time.process_time() - start) / steps  # a full prox for each arrival
    return {
        "d": d,
        "T": T,
        "queued": queued,
        "rank": int(np.linalg.matrix_rank(slow.P, 1e-6)),
        "microseconds": round(ours * 1e6, 1),
        "full_prox_microseconds": round(theirs * 1e6, 1),
        "times_faster": round(theirs / ours, 1),
        "largest_difference": float(np.abs(server.shared(state) - slow.P).max()),
    }


def rate() -> None:
    """Arrivals a second at d=28, T=20, and messages a second through a ledger."""
    throughput(200_000, 0.0)
    throughput(200_000, 1e-3)
    ledger_rate(None, 2_000)
    with tempfile.TemporaryDirectory() as folder:
        ledger_rate(Path(folder) / "ledger.sqlite", 500)


def cost() -> None:
    """One arrival at d=100, T=1000: the server alone against a full prox."""
    cases: list[tuple[str, Penalty, float]] = [
        ("trace norm, few directions", TraceNorm(), 120.0),
        ("trace norm, all directions", TraceNorm(), 1.0),
        ("l2,1", GroupNorm(), 60.0),
    ]
    for name, penalty, level in cases:
        for queued in (1, 16):
            line = against_full(penalty, level, 100, 1000, queued, 150)
            goal = {} if isinstance(penalty, GroupNorm) else {"goal": 5 if queued == 1 else 10}
            same = line["largest_difference"] <= 1e-8
            met = same and line["times_faster"] >= goal.get("goal", 0)
            show(f"server, {name}", **line, **goal, met=met)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parts = {"convergence": convergence, "straggler": straggler, "rate": rate, "cost": cost}
    parser.add_argument("parts", nargs="*", metavar="|".join(parts))
    chosen = parser.parse_args().parts or list(parts)
    with threadpool_limits(1, user_api="blas"):
        for part in chosen:
            parts[part]()


if __name__ == "__main__":
    main()
