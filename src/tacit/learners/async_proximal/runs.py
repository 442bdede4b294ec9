"""The runs of AsyncProximal: open, with an adversary, with a trusted server, as published.

Each returns P and Q (D, m) and how far the shared part is to be trusted, as a Message.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tacit.engine import Message, Outcome, Progress, Unprotected, run_rounds
from tacit.engine.arrivals import Parties, run
from tacit.engine.latencies import Latency, visits
from tacit.estimator import Home
from tacit.learners.async_proximal.averaging import AveragingServer
from tacit.learners.async_proximal.formulations import mean_losses
from tacit.learners.async_proximal.node import LedgerOutbox, private_nodes
from tacit.learners.async_proximal.private_steps import (
    CURVATURE,
    MOST_RELEASES,
    NodePlan,
    Setting,
    node_plan,
    own_level,
    shared_level,
)
from tacit.learners.async_proximal.promise import allowances, silent
from tacit.learners.async_proximal.published import (
    PublishedNode,
    PublishedNoise,
    PublishedServer,
)
from tacit.learners.async_proximal.trusted import AllNodes, TrustedServer
from tacit.linear.alone import best_alone
from tacit.linear.penalties import Penalty
from tacit.linear.together import open_decomposed
from tacit.privacy.planning import Door
from tacit.privacy.release import Declared, Release

TWIN_TRUST = 0.5
PUBLISHED_LEVEL = {"squared": 1e-5, "logistic": 1e-3}  # λ, S3 §4.1


@dataclass(frozen=True)
class Times:
    """When messages arrive: a distribution and a seed, never the data."""

    latency: Latency
    seed: int


def open_optimum(home: Home, shared: Penalty | None, own: Penalty) -> Message:
    """The problem that the updates converge to, solved exactly; λ and τ by held-out rows."""
    problems = home.problems
    if shared is None:
        models = best_alone(problems, home.loss)
        P = np.zeros_like(models.T)
    else:
        models = open_decomposed(problems, home.loss, shared, own, (None, None)).models
        P = models.T
    trust = np.full(problems.n_tasks, TWIN_TRUST)
    parts = {"P": P, "Q": models.T - P, "trust": trust}
    return {name: Unprotected(part) for name, part in parts.items()}


def asynchronously(
    home: Home,
    door: Door,
    penalties: tuple[Penalty | None, Penalty],
    setting: Setting,
    sizes: list[float],
    when: Times,
) -> Outcome:
    """Every node sends its messages when they are ready; the server answers each at once."""
    shared, own = penalties
    plans = node_plans(door, setting, sizes)
    levels = [0.0 if shared is None else own_level(own, plan, setting) for plan in plans]
    outbox = _opened(door, plans)
    server = AveragingServer(
        shared,
        0.0 if shared is None else shared_level(shared, plans, setting.width),
        tuple(plan.step for plan in plans),
        tuple(plan.releases for plan in plans),
        setting.width,
        np.array([plan.largest for plan in plans]),
    )
    nodes = private_nodes(home.problems, home.loss, plans, own, levels)
    parties = Parties(server, nodes, outbox)
    releases = [plan.releases for plan in plans]
    end = run(parties, visits(when.latency, releases, seed=when.seed))
    found: Message = {
        "P": outbox.made(server.shared(end.server)),
        "Q": outbox.made(np.stack(end.nodes, axis=1)),
        "trust": Declared(np.array([max(0.0, 1 - plan.error) for plan in plans])),
    }
    return Outcome(found, parties.transcript)


def node_plans(door: Door, setting: Setting, sizes: list[float]) -> list[NodePlan]:
    """Each node's own; one that has nothing left sends nothing."""
    allowed = allowances(door, setting)
    return [
        silent(setting) if budget is None else node_plan(setting, size, may)
        for size, may, budget in zip(sizes, allowed, door.budgets, strict=True)
    ]


def _opened(door: Door, plans: list[NodePlan]) -> LedgerOutbox:
    T = len(plans)
    rngs = [None] * T if door.rng is None else door.rng.spawn(T)
    outbox = LedgerOutbox(door.ledger, door.run, plans, rngs, door.terms())
    outbox.open(door.labels, door.budgets)
    return outbox


def through_trusted_server(
    home: Home, door: Door, setting: Setting, sizes: list[float], progress: Progress
) -> Outcome:
    """Rounds of one noisy sum over the rows of all nodes."""
    allowed = allowances(door, setting)[int(np.argmax(door.shares))]
    coordinator = TrustedServer.planned(
        replace(setting, coupled=False), sum(sizes), tuple(home.problems.sizes.tolist()), allowed
    )
    outcome = run_rounds(AllNodes(home), coordinator, door, progress=progress)
    p, m = outcome.shared["p"], len(sizes)
    assert isinstance(p, Release)
    found: Message = {
        "P": p.map(lambda value: np.tile(value[:, None], (1, m))),
        "Q": Declared(np.zeros((setting.width, m))),
        "trust": Declared(np.full(m, max(0.0, 1 - coordinator.plan.error))),
    }
    return replace(outcome, shared=found)


def as_published(
    home: Home, door: Door, penalty: Penalty, setting: Setting, when: Times
) -> Outcome:
    """Algorithm 1. P comes of noisy messages; Q was never privatised, and is marked so."""
    releases = setting.releases or MOST_RELEASES
    row_norm, loss = math.sqrt(setting.width), setting.loss.name
    slope = 1.0 if loss == "logistic" else row_norm + 1.0  # Theorem 3.6 with C₃ = 1
    level, step = PUBLISHED_LEVEL[loss], 1 / (CURVATURE[loss] * row_norm**2)
    tasks, start = mean_losses(home.problems, home.loss), best_alone(home.problems, home.loss)
    nodes, plans = [], []
    for t, (task, allowed) in enumerate(zip(tasks, allowances(door, setting), strict=True)):
        half = allowed.rest.epsilon / releases / 2  # ε₁ = ε₂, by basic composition
        seed = None if door.rng is None else int(door.rng.integers(2**32))
        nodes.append(
            PublishedNode(task, releases, step, level, row_norm, slope, half, start[t], seed)
        )
        noise = PublishedNoise(2 * row_norm * slope / max(len(task.y), 1), half, half)
        silenced = door.budgets[t] is None
        plans.append(
            replace(silent(setting), releases=0 if silenced else releases, mechanism=noise)
        )
    outbox = _opened(door, plans)
    server = PublishedServer(penalty, level, step, setting.width, len(nodes))
    parties = Parties(server, nodes, outbox)
    end = run(parties, visits(when.latency, [plan.releases for plan in plans], seed=when.seed))
    found: Message = {
        "P": outbox.made(server.shared(end.server)),
        "Q": Unprotected(np.stack([state.q for state in end.nodes], axis=1)),
        "trust": Declared(np.full(len(nodes), TWIN_TRUST)),
    }
    return Outcome(found, parties.transcript)
