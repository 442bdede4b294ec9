"""Regions of a statistic: fixed in advance, or searched on trials that are not counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tacit.arrays import BoolArray, FloatArray
from tacit.privacy.accounting import Gaussian
from tacit.privacy.auditing.claims import Claim
from tacit.privacy.auditing.lower_bounds import Counts, epsilon_between, lower, mu_between, upper

Side = Literal[0, 1]
THRESHOLDS = 200  # candidates of a search, quantiles of both sides together


@dataclass(frozen=True)
class Region:
    """An event: a set of values of the statistic, and the side under which it is likelier.

    ``under=None`` tries both sides, each at half the error.

    >>> above(1.0).holds(np.array([0.5, 1.5]))
    array([False,  True])
    """

    text: str
    holds: Callable[[FloatArray], BoolArray]
    under: Side | None = 0


def above(threshold: float, under: Side | None = 0) -> Region:
    """{statistic > threshold}."""
    return Region(f"statistic > {threshold:.6g}", lambda values: values > threshold, under)


def below(threshold: float, under: Side | None = 0) -> Region:
    """{statistic < threshold}."""
    return Region(f"statistic < {threshold:.6g}", lambda values: values < threshold, under)


# --- what counts say about a claim ---------------------------------------------------------------


@dataclass(frozen=True)
class Bound:
    """Lower bounds from one pair of counts; μ only where μ is claimed."""

    epsilon: float
    mu: float | None

    @property
    def size(self) -> float:
        """What bounds of one claim are compared by."""
        return self.epsilon if self.mu is None else self.mu


def bound(
    claim: Claim, likelier: Counts, other: Counts, error: float, stratum: float = 1.0
) -> Bound:
    """The lower bound from hits where the event is likelier and hits on the other side.

    >>> from tacit.privacy.accounting import Pure
    >>> found = bound(Claim(Pure(0.1)), Counts(952, 10_000), Counts(0, 10_000), 0.05)
    >>> round(found.epsilon, 2)
    5.49
    """
    p_low = float(lower(likelier.hits, likelier.trials, error / 2))
    q_high = float(upper(other.hits, other.trials, error / 2))
    if isinstance(claim.event, Gaussian):
        mu = float(mu_between(p_low, q_high))
        read = Claim(Gaussian(mu), read_at=claim.read_at).epsilon
        return Bound(read, mu)
    return Bound(float(epsilon_between(p_low, q_high, claim.delta, stratum)), None)


# --- searching -----------------------------------------------------------------------------------


def best_threshold(
    claim: Claim, first: FloatArray, second: FloatArray, error: float, stratum: float = 1.0
) -> Region:
    """The threshold and side whose bound on these trials is largest. Count on others.

    Whatever lies below a threshold is covered by its complement (see ``epsilon_between``). Each
    candidate has its part of the error here, so that luck in the tails is not taken for leakage.
    """
    both = np.concatenate([first, second])
    grid = np.unique(np.quantile(both, _levels(len(first)), method="inverted_cdf"))
    n, error = (len(first), len(second)), error / (2 * len(grid))
    hits = [len(s) - np.searchsorted(np.sort(s), grid, "right") for s in (first, second)]

    def score(side: Side) -> FloatArray:
        p = lower(hits[side], n[side], error / 2)
        q = upper(hits[1 - side], n[1 - side], error / 2)
        if isinstance(claim.event, Gaussian):
            return np.asarray(mu_between(p, q))
        return np.asarray(epsilon_between(p, q, claim.delta, stratum))

    scores = np.stack([score(0), score(1)])
    side, place = np.unravel_index(int(scores.argmax()), scores.shape)
    return above(float(grid[place]), 1 if side else 0)


def _levels(n: int) -> FloatArray:
    """Quantile levels: even in the middle, fine at both ends, where pure claims are refuted."""
    ends = np.geomspace(min(0.5, 5 / n), 0.5, THRESHOLDS // 2)
    return np.unique(np.concatenate([ends, 1 - ends, np.linspace(0.005, 0.995, THRESHOLDS)]))


def classifier(first: FloatArray, second: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """The log odds of the first side by logistic regression on features and their squares.

    For black boxes whose likelihood nobody knows. It finds linear and quadratic differences only:
    where a likelihood is known, use it (docs/audits.md, A: 0 here, 5.5 by the smallest eigenvalue).
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rows = _with_squares(np.concatenate([first, second]))
    labels = np.repeat([1, 0], [len(first), len(second)])
    model: Any = make_pipeline(StandardScaler(), LogisticRegression(C=1.0, max_iter=200))
    model.fit(rows, labels)
    return lambda values: np.asarray(model.decision_function(_with_squares(values)))


def _with_squares(values: FloatArray) -> FloatArray:
    return np.hstack([values, values**2])
