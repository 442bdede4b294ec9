"""The server is trusted, the nodes are not: noise at the server only, on one sum over all nodes.

What S3 §5 leaves to future work. The server may see clipped gradients; the other nodes see what it
sends. One example changes one row of the sum over all N rows of all nodes, so the noise that hides
it is that of one node's sum, spread over N rows instead of n. The shared part is one p for all.

q stays out of it until the end. If a node's gradient were taken at p + q with a q of its own that
was never released, one example would move all of the node's rows (docs/privacy.md, D).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit.arrays import FloatArray
from tacit.engine import Message, Outcome, Progress, Public, Step, run_rounds
from tacit.estimator import Home
from tacit.learners.async_proximal.node import example_gradients
from tacit.learners.async_proximal.node_mechanisms import PooledSum
from tacit.learners.async_proximal.plan import NodePlan, Setting, allowances, node_plan
from tacit.linear.problems import Problems
from tacit.privacy.mechanisms import GaussianSum, KNormSum
from tacit.privacy.planning import Door
from tacit.privacy.release import Declared, Release


@dataclass(frozen=True)
class AllNodes:
    """The participant half: the gradients of all examples of all nodes at p."""

    home: Home

    def select(self, units: Sequence[int]) -> AllNodes:
        """These examples only, in this order."""
        p, chosen = self.home.problems, np.asarray(units, dtype=np.int64)
        rows = Problems(p.X[chosen], p.y[chosen], np.arange(len(chosen) + 1))
        return replace(self, home=replace(self.home, problems=rows))

    def contribute(self, step: Step, shared: Message, state: Any) -> tuple[FloatArray, Any]:
        """(N, D); the mechanism clips each row."""
        p, problems = np.asarray(shared["p"].value), self.home.problems
        return example_gradients(problems.X, problems.y, p, self.home.loss), None


@dataclass(frozen=True)
class TrustedServer:
    """The coordinator half: p ← p − α · noisy mean gradient."""

    plan: NodePlan
    sizes: tuple[int, ...]
    width: int

    @property
    def steps(self) -> tuple[Step, ...]:
        """All releases, alike."""
        inner = self.plan.mechanism
        assert isinstance(inner, GaussianSum | KNormSum)
        mechanism = PooledSum(inner, self.sizes)
        return tuple(Step(f"gradient {k}", mechanism) for k in range(self.plan.releases))

    def start(self) -> Public:
        """p = 0."""
        return {"p": Declared(np.zeros(self.width))}

    def absorb(self, step: Step, shared: Public, release: Release) -> Public:
        """One step."""
        length = self.plan.step / self.plan.divisor
        return {"p": Release.combine(lambda p, total: p - length * total, shared["p"], release)}


def run_through_trusted_server(
    home: Home, door: Door, setting: Setting, rows: Sequence[float], progress: Progress
) -> Outcome:
    """Rounds of one noisy sum over all rows, planned as of a single node that has them."""
    allowed = allowances(door, setting.sampling_rate)[int(np.argmax(door.shares))]
    plan = node_plan(replace(setting, coupled=False), sum(rows), allowed)
    sizes = tuple(home.problems.sizes.tolist())  # whose row is whose: for the shares of nodes
    server = TrustedServer(plan, sizes, setting.width)
    outcome = run_rounds(AllNodes(home), server, door, progress=progress)
    p, m = outcome.shared["p"], len(rows)
    assert isinstance(p, Release)
    shared: Message = {
        "P": p.map(lambda value: np.tile(value[:, None], (1, m))),
        "Q": Declared(np.zeros((setting.width, m))),
        "trust": Declared(np.full(m, max(0.0, 1 - plan.error))),
    }
    return replace(outcome, shared=shared)
