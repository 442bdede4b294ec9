"""Whole-run audits of AsyncProximal: everything that one node sends, against what it is promised.

The adversary is the server: it knows all rows of all nodes but one example of the last node, and
two candidates for that, and it sees every message. As in replays.py the log likelihood ratio of a
run comes from a replay with the other candidate on the same ledger: the same messages, spent once,
and what the node *would have sent* beside them.

The example has y = 1 or y = −1, as large as declared, so that its gradient stays beyond the clip
norm and turns round: 2C in every message. The other rows lie at rest: y = 0, where the gradient of
an example is not clipped. A node that hides a state (D) would move all of those with one example.

The published algorithm's own flaw is refuted in hidden_state.py.

**Isolation.** The server may send any column. Our first node took its predictions from a matrix
product that handles rows in groups of four, each in pairs of features, and the rest one by one: a
removed example changed how others were rounded. At p = (M, 1, −M, 0) and rows of ones, in pairs
(M − M) + (1 + 0) = 1, one by one ((M + 1) − M) + 0 = 0: their gradients appear or vanish, and the
sum moves by 4C where C was claimed (7C was seen with OpenBLAS). Row by row it moves by one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from tacit.arrays import FloatArray
from tacit.audits.cases import Asked, Audit, Case
from tacit.audits.replays import Data, Pair, pair_cases
from tacit.learners.async_proximal.estimator import AsyncProximal
from tacit.learners.async_proximal.node import example_gradients
from tacit.learners.async_proximal.plan import ADVERSARY, public_clip_norm
from tacit.linear.losses import Loss, Squared
from tacit.privacy.accounting import gaussian_mu
from tacit.privacy.auditing import AuditResult, Claim, Side
from tacit.privacy.mechanisms import GaussianSum, clip_rows

NODES, ROWS, DIM, RELEASES = 2, 6, 2, 4
CHANGED = f"one of {ROWS} examples of one of {NODES} nodes, y = 1, becomes y = −1"


def one_example(side: int) -> Data:
    """Rows along the first feature; the last one's target is 1 or −1.

    >>> one_example(0).y[-2:], one_example(1).y[-2:]
    (array([0., 1.]), array([ 0., -1.]))
    """
    X = np.zeros((NODES * ROWS, DIM))
    X[:, 0] = 1.0
    y = np.zeros(NODES * ROWS)
    y[-1] = 1.0 if side == 0 else -1.0
    return Data(X, y, np.repeat(np.arange(NODES), ROWS))


PAIR = Pair(
    AsyncProximal,
    one_example,
    CHANGED,
    {"releases": RELEASES},
    unit=ADVERSARY.unit,
    adversary=ADVERSARY.adversary,
    run="one order of arrival",
)


# --- isolation -----------------------------------------------------------------------------------

EXAMPLES = 64
COLUMN = np.array([1e30, 1.0, -1e30, 0.0])  # what the server sends
Gradients = Callable[[FloatArray, FloatArray, FloatArray, Loss], FloatArray]


def grouped_gradients(X: FloatArray, y: FloatArray, w: FloatArray, loss: Loss) -> FloatArray:
    """(n, D): as ``example_gradients``, with predictions by groups of four rows, and the rest.

    >>> grouped_gradients(np.ones((5, 4)), np.zeros(5), COLUMN, Squared())[:, 0]
    array([0.25, 0.25, 0.25, 0.25, 0.  ])
    """
    terms = X * w
    in_pairs = (terms[:, 0] + terms[:, 2]) + (terms[:, 1] + terms[:, 3])
    one_by_one = ((terms[:, 0] + terms[:, 1]) + terms[:, 2]) + terms[:, 3]
    grouped = np.arange(len(X)) < len(X) - len(X) % 4
    slope = loss.slope(np.where(grouped, in_pairs, one_by_one), y)
    return np.asarray((slope / (X * X).sum(axis=1))[:, None] * X)


def removed_example(gradients: Gradients, asked: Asked) -> AuditResult:
    """One message to a hostile server, with and without the last example."""
    C, mu = public_clip_norm(Squared(), DIM * 2), gaussian_mu(asked.epsilon, asked.delta)
    mechanism = GaussianSum.for_mu(C, mu, "zero-out")
    X, y = np.ones((EXAMPLES, 2 * DIM)), np.zeros(EXAMPLES)
    y[-1] = -1.0
    sent = [gradients(X[:n], y[:n], COLUMN, Squared()) for n in (EXAMPLES, EXAMPLES - 1)]
    sums = [clip_rows(each, C).sum(axis=0) for each in sent]
    apart = (sums[0] - sums[1]) / mechanism.sigma**2

    def draw(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
        messages = np.stack([mechanism.release(sent[side], rng) for _ in range(n)])
        return np.asarray((messages - (sums[0] + sums[1]) / 2) @ apart)

    return asked.audit(
        draw,
        Claim(
            mechanism.event("zero-out"),
            unit=ADVERSARY.unit,
            neighbours="zero-out",
            adversary="the server, who chooses p and sees the message",
            proven=gradients is example_gradients,
            source="C over σ, per message",
            read_at=asked.delta,
        ),
        pair=f"one of {EXAMPLES} examples of a node is removed",
        statistic="log likelihood ratio of one message, p = (M, 1, −M, 0)",
    )


def asynchronous_audits() -> tuple[Audit, ...]:
    """AsyncProximal, by replay and by a classifier; and its isolation."""
    grouped, alone = (partial(removed_example, g) for g in (grouped_gradients, example_gradients))
    return (
        Audit(
            "AsyncProximal",
            "everything that one node sends in a fit: by replay, by a classifier",
            pair_cases(PAIR),
        ),
        Audit(
            "AsyncProximal-isolation",
            "one example removed, and a server whose column makes other rows' rounding count",
            (
                Case("AsyncProximal, rows in groups", grouped, 1.0, 1e-5, flawed=True),
                Case("AsyncProximal, row by row", alone, 1.0, 1e-5),
            ),
        ),
    )
