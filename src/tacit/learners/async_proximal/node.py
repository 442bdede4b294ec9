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

The node knows neither time nor transport, and has a door of its own (privacy/node_runs.py). A
message is stored under its ledger entry before it is sent: a node that dies and returns sends the
same bytes, and spends once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tacit.arrays import FloatArray
from tacit.engine import Message, Released
from tacit.engine.arrivals import GRADIENT
from tacit.learners.async_proximal.formulations import MeanLoss, mean_losses
from tacit.learners.async_proximal.plan import NodePlan, Setting, own_level
from tacit.linear.batched import Problems
from tacit.linear.losses import Loss
from tacit.linear.penalties import Penalty
from tacit.privacy.isolation import products, require_alone
from tacit.privacy.release import Declared, Mechanism, Release

Own = Release | Declared
"""q (D,): zero, or what was made of a node's own messages."""


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
    """One task: rows at home, noisy gradients out. Its state is q (D,), a function of them."""

    task: MeanLoss  # its rows
    plan: NodePlan
    own: Penalty
    own_level: float  # τ

    @property
    def releases(self) -> int:
        """How many messages it sends."""
        return self.plan.releases

    @property
    def mechanism(self) -> Mechanism | None:
        """What each of them goes through."""
        return self.plan.mechanism

    def start(self) -> Declared:
        """q = 0: a constant. IsolationError before anything is sent, if one is due."""
        somewhere = 1 / np.arange(1.0, self.task.X.shape[1] + 1)
        together = self._gradients(somewhere, slice(None))
        require_alone("an example's gradient", partial(self._gradients, somewhere), together)
        return Declared(np.zeros(self.task.X.shape[1]))

    def contribute(self, column: FloatArray, state: Own) -> tuple[FloatArray, Own]:
        """The gradients of all examples (n, D) at p + q; the mechanism clips each."""
        return self._gradients(column + state.value, slice(None)), state

    def _gradients(self, w: FloatArray, rows: slice) -> FloatArray:
        task = self.task
        return example_gradients(task.X[rows], task.y[rows], w, task.loss)

    def absorb(self, column: FloatArray, released: Released, state: Own) -> tuple[Message, Release]:
        """The mean gradient for the server, and the next q: both from what was released."""
        assert isinstance(released, Release)  # its plan has a mechanism
        plan = self.plan
        gradient = released.map(lambda total: total / plan.divisor)

        def moved(q: FloatArray, slope: FloatArray) -> FloatArray:
            stepped = (q - plan.own_step * slope)[:, None]
            return self.own.prox(stepped, plan.own_step * self.own_level)[:, 0]

        return {GRADIENT: gradient}, Release.combine(moved, state, gradient)


def private_nodes(
    problems: Problems, setting: Setting, plans: Sequence[NodePlan], own: Penalty
) -> list[PrivateNode]:
    """One node per task, each with its rows."""
    tasks = mean_losses(problems, setting.loss)
    return [
        PrivateNode(task, plan, own, own_level(own, plan, setting))
        for task, plan in zip(tasks, plans, strict=True)
    ]
