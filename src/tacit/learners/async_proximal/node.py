r"""The sound node: p and q step from the same noisy gradient at the same point.

S3's node keeps a q that was never privatised; its message is said to be private given q, but q
carries every example of every earlier step (docs/privacy.md, D). Here the message is q's only
update that depends on data:

.. math::
    g̃ = \frac{1}{n} \Big(\sum_i \mathrm{clip}_C\, ∇ℓ_i(p + q) + \text{noise}\Big),   \qquad
    q ← \mathrm{prox}_{κατ g}(q − κα g̃).

∇_p = ∇_q at one point, so one noisy gradient serves both; κ is a public constant. q starts at zero.
By induction p and q are functions of earlier messages and constants, so given those one message
depends on one example through the clipped sum alone: Δ = 2C (replace), C (zero-out), whatever p the
server sends. The releases of a node are composed adaptively, and their number is fixed: Σμ² or Σε.

That example's gradient is all that changes: ``example_gradients`` looks at one row at a time, bit
for bit, whatever column the server sends (privacy/isolation.py). A row whose gradient is not a
number, and every row at a column that is none, adds zero: nothing in the data stops a node.

The halves know neither time nor transport; ``LedgerOutbox`` is the node's door. A message is stored
under its ledger entry before it is sent: a node that dies and returns sends the same bytes, and
spends once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tacit.engine import Message
from tacit.engine.arrivals import GRADIENT, Released
from tacit.learners.async_proximal.private_steps import NodePlan
from tacit.linear.batched import Problems
from tacit.linear.losses import FloatArray, Loss
from tacit.linear.penalties import Penalty
from tacit.privacy.accounting import Event
from tacit.privacy.budget import Budget
from tacit.privacy.isolation import products, require_alone
from tacit.privacy.ledger import Key, Ledger
from tacit.privacy.release import Release


def example_gradients(X: FloatArray, y: FloatArray, w: FloatArray, loss: Loss) -> FloatArray:
    """(n, D): ℓ′(x·w; y) x/‖x‖² of each row, by itself; zero for a row of zeros. ``w`` is (D,).

    >>> from tacit.linear.losses import Squared
    >>> example_gradients(np.array([[2.0, 0.0]]), np.array([-1.0]), np.zeros(2), Squared())
    array([[0.5, 0. ]])
    """
    with np.errstate(all="ignore"):  # what is not finite adds zero to the sum, and tells nobody
        squares = np.multiply(X, X, order="C").sum(axis=1)
        slope = loss.slope(products(X, w[None])[:, 0], y)
        weight = np.divide(slope, squares, out=np.zeros_like(squares), where=squares > 0)
        return np.asarray(weight[:, None] * X)


@dataclass(frozen=True)
class PrivateNode:
    """One task: rows at home, noisy gradients out. Its state is q, (D,)."""

    X: FloatArray  # (n, D)
    y: FloatArray
    loss: Loss
    plan: NodePlan
    own: Penalty
    own_level: float  # τ

    @property
    def releases(self) -> int:
        """How many messages it sends."""
        return self.plan.releases

    def start(self) -> FloatArray:
        """q = 0: a constant. IsolationError before anything is sent, if one is due."""
        somewhere = 1 / np.arange(1.0, self.X.shape[1] + 1)
        together = self._gradients(somewhere, slice(None))
        require_alone("an example's gradient", partial(self._gradients, somewhere), together)
        return np.zeros(self.X.shape[1])

    def contribute(self, column: FloatArray, state: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The gradients of all examples (n, D) at p + q; the mechanism clips each."""
        return self._gradients(column + state, slice(None)), state

    def _gradients(self, w: FloatArray, rows: slice) -> FloatArray:
        return example_gradients(self.X[rows], self.y[rows], w, self.loss)

    def absorb(
        self, column: FloatArray, released: Released, state: FloatArray
    ) -> tuple[Message, FloatArray]:
        """The mean gradient for the server, and the next q: both from what was released."""
        plan = self.plan
        gradient = np.asarray(released.value) / plan.divisor
        moved = (state - plan.own_step * gradient)[:, None]
        q = self.own.prox(moved, plan.own_step * self.own_level)[:, 0]
        if isinstance(released, Release):
            return {GRADIENT: released.map(lambda total: total / plan.divisor)}, q
        return {GRADIENT: type(released)(gradient)}, q


def node_run(run: str, number: int) -> str:
    """The ledger run of node ``number``: one task, its own plan."""
    return f"{run}, node {number}"


@dataclass
class LedgerOutbox:
    """The door of every node: one ledger run each, declared when it is opened."""

    ledger: Ledger
    run: str
    plans: Sequence[NodePlan]
    rngs: Sequence[np.random.Generator | None]
    terms: Mapping[str, Any] = field(default_factory=dict)  # of every node's run: Door.terms
    sent: list[Release] = field(default_factory=list)

    def open(self, labels: Sequence[Hashable], budgets: Sequence[Budget | None]) -> None:
        """Declares every node's run; BudgetExceeded before any noise is drawn."""
        for t, (label, budget) in enumerate(zip(labels, budgets, strict=True)):
            if budget is None:
                continue
            plan = self.plans[t]
            event: Event = plan.mechanism.event(budget.neighbours)
            self.ledger.open_run(
                node_run(self.run, t), [label], [budget], [event] * plan.releases, **self.terms
            )

    def release(self, node: int, number: int, contribution: FloatArray) -> Release:
        """Message ``number`` of the node: drawn once, stored, and the same bits ever after."""
        release = self.ledger.release(
            self.plans[node].mechanism,
            contribution,
            key=Key(node_run(self.run, node), number, f"node {node}"),
            rng=self.rngs[node],
        )
        self.sent.append(release)
        return release

    def made(self, value: FloatArray) -> Release:
        """A function of all messages, as the Release that it is."""
        return Release.combine(lambda *_: value, *self.sent)


def private_nodes(
    problems: Problems, loss: Loss, plans: Sequence[NodePlan], own: Penalty, levels: Sequence[float]
) -> list[PrivateNode]:
    """One node per task, each with its rows."""
    starts, stops = problems.offsets[:-1], problems.offsets[1:]
    return [
        PrivateNode(problems.X[a:b], problems.y[a:b], loss, plan, own, level)
        for a, b, plan, level in zip(starts, stops, plans, levels, strict=True)
    ]
