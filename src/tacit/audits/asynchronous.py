"""Whole-run audits of AsyncProximal: everything that one node sends, against what it is promised.

The adversary is the server: it knows all rows of all nodes but one example of the last node, and
two candidates for that, and it sees every message. As in learners.py the log likelihood ratio of a
run comes from a replay with the other candidate on the same ledger: the same messages, spent once,
and what the node *would have sent* beside them.

The example has y = 1 or y = −1, as large as declared, so that its gradient stays beyond the clip
norm and turns round: 2C in every message. The other rows lie at rest: y = 0, where the gradient of
an example is not clipped. A node that hides a state (D) would move all of those with one example.

The published algorithm's own flaw is refuted in hidden_state.py.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from tacit.audits.cases import Asked, Audit, Case, FloatArray
from tacit.audits.learners import Data, Pair, Recorder, run_log_ratio, transcript_features
from tacit.learners.async_proximal.estimator import AsyncProximal
from tacit.learners.async_proximal.promise import ADVERSARY
from tacit.privacy.accounting import Gaussian
from tacit.privacy.auditing import AuditResult, Claim, Side, above
from tacit.privacy.budget import Budget
from tacit.privacy.ledger import new_run

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


PAIR = Pair(AsyncProximal, one_example, CHANGED, {"releases": RELEASES})


def claim(asked: Asked, pair: Pair = PAIR) -> Claim:
    """What the ledger says that the last node spent; the certificate says the same."""
    ledger = Recorder()
    model = pair.fitted(0, Budget(asked.epsilon, asked.delta), 0, ledger, new_run())
    return Claim(
        Gaussian(math.sqrt(ledger.spent(NODES - 1).mu_squared)),
        unit=model.guarantee_.unit,
        adversary=ADVERSARY.adversary,
        source="AsyncProximal.guarantee_",
        read_at=asked.delta,
    )


def whole_run(pair: Pair, asked: Asked) -> AuditResult:
    """All messages of a fit."""
    budget = Budget(asked.epsilon, asked.delta)

    def draw(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
        seeds = rng.integers(2**32, size=n)
        return np.array([run_log_ratio(pair, side, budget, int(seed)) for seed in seeds])

    return asked.audit(
        draw,
        claim(asked, pair),
        events=above(0.0),
        pair=pair.said,
        statistic="log likelihood ratio of all messages of a fit, by replay",
    )


def transcript(pair: Pair, asked: Asked) -> AuditResult:
    """A classifier on everything that crossed from the nodes to the server."""
    budget = Budget(asked.epsilon, asked.delta)

    def draw(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
        models = (
            pair.fitted(side, budget, int(seed), Recorder(), "one order of arrival")
            for seed in rng.integers(2**32, size=n)
        )
        return np.stack([transcript_features(model) for model in models])

    return asked.audit(
        draw,
        claim(asked, pair),
        pair=pair.said,
        statistic="log odds by a classifier on everything in transcript_",
    )


def asynchronous_audits() -> tuple[Audit, ...]:
    """AsyncProximal, by replay and by a classifier."""
    return (
        Audit(
            "AsyncProximal",
            "everything that one node sends in a fit: by replay, by a classifier",
            (
                Case("AsyncProximal, whole run", partial(whole_run, PAIR), 8.0, 1e-5, 300),
                Case("AsyncProximal, transcript", partial(transcript, PAIR), 8.0, 1e-5, 300),
            ),
        ),
    )
