"""Asynchronous multi-task learning where the server is an adversary and nobody waits.

S3: Xie, Baytas, Lin, Zhou, "Privacy-Preserving Distributed Multi-Task Learning with Asynchronous
Updates", KDD 2017.

**Symbols**

=====  =====================  =============================================================
w_t    column of ``coef_``    p_t + q_t, released; ``home_coef_`` never leaves
P      ``shared_["P"]``       the shared part, at the server
Q      ``shared_["Q"]``       the nodes' own parts, as far as they were released
r(P)   ``penalty``            trace norm, ℓ2,1, or any penalty with a prox
λ, τ   by public rules        private_steps.py
α      by a public rule       private_steps.py
ε₁+ε₂  of one message         here: the budget is for all messages of a node together
MAX    ``releases``           messages of a node, fixed before it starts
=====  =====================  =============================================================

**Differs from the paper in**

1. p and q step from the *same* noisy gradient at the same point, from zero; S3's q is a state that
   was never privatised (docs/privacy.md, D). Gauss–Seidel order, exact q and the single-task start
   exist only without noise and as published (published.py).
2. Each example's gradient is clipped; S3's Theorem 3.6 takes δ over the data, which is no DP.
3. A node's budget is for all its messages, their number fixed before the first; S3 reports one.
4. Examples are weighted by 1/‖x‖², so that steps need no look at X (private_steps.py).
5. The server averages messages before it thresholds them (averaging.py).
6. Afterwards every node refits at home (refit.py), which is free.
7. ``server="trusted"`` is the variant that S3 §5 leaves to future work (trusted.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping
from copy import copy
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tacit.engine import Message, Outcome, Progress, Unprotected
from tacit.engine.latencies import Latency, Uniform
from tacit.errors import InvalidInput
from tacit.estimator import Home, MultiTaskEstimator
from tacit.learners.async_proximal.node import node_run
from tacit.learners.async_proximal.private_steps import Setting, public_clip_norm
from tacit.learners.async_proximal.promise import (
    ADVERSARY,
    ASSUMED,
    COINS,
    TRUSTED,
    node_history,
)
from tacit.learners.async_proximal.published import UNSOUND
from tacit.learners.async_proximal.refit import (
    home_models,
    others_of_each,
    others_of_newcomer,
)
from tacit.learners.async_proximal.runs import (
    Times,
    as_published,
    asynchronously,
    open_optimum,
    through_trusted_server,
)
from tacit.linear.losses import FloatArray
from tacit.linear.penalties import (
    ColumnNorm,
    GroupNorm,
    L1Norm,
    Penalty,
    SquaredNorm,
    TraceNorm,
)
from tacit.privacy.budget import Budget, Guarantee
from tacit.privacy.planning import Door
from tacit.tasks import Schema, TaskSet
from tacit.tasks.labels import canonical_label

FORMULATIONS: dict[str, tuple[Penalty, Penalty]] = {
    "trace": (TraceNorm(), SquaredNorm()),  # alternating structure
    "group": (GroupNorm(), SquaredNorm()),
    "dirty": (GroupNorm(), L1Norm()),
    "robust-features": (GroupNorm(), ColumnNorm()),
    "robust-tasks": (TraceNorm(), ColumnNorm()),
}
"""S3 §3.1: r of P and g of Q (formulations.py)."""

EXPECTED = {
    "mechanism": "'gaussian' or 'gamma'",
    "server": "'adversary' or 'trusted'",
    "releases": "'auto' or at least 1",
    "clip_norm": "'auto' or positive",
    "sampling_rate": "None or between 0 and 1",
}


class AsyncProximal(MultiTaskEstimator):
    """One linear model per node, learned with a server that nobody trusts.

    ``coef_`` are the released models, functions of the noisy messages: they may be shown to anyone.
    ``home_coef_`` are what the nodes make of them at home: each belongs to its node alone, and
    ``predict_at_home`` uses it. A task that joins later (``adapt``) has released nothing: its
    column of ``coef_`` is the mean of the released models, what it learned is in ``home_coef_``.
    With budget=None both are the same, around the exact optimum of S3's problem (2).
    ``penalty=None`` shares nothing: private gradient descent node by node. Under zero-out
    neighbours ``rows`` declares the number of rows of a node, or of each by label.

    >>> from tacit.datasets import related_tasks
    >>> data = related_tasks(5, 40, 3, rng=np.random.default_rng(0))
    >>> model = AsyncProximal(budget=Budget(4.0), ranges=data.ranges, noise="simulated",
    ...                       random_state=0).fit(data.X, data.y, task=data.task)
    >>> model.coef_.shape, model.home_coef_.shape, model.guarantee_.unit
    ((3, 5), (3, 5), "one example in one node's data")
    """

    def __init__(
        self,
        loss: Literal["squared", "logistic"] = "squared",
        penalty: str | Penalty | None = "trace",
        budget: Budget | Mapping[Any, Budget] | None = None,
        releases: int | Literal["auto"] = "auto",
        clip_norm: float | Literal["auto"] = "auto",
        latency: Latency | None = None,
        mechanism: Literal["gaussian", "gamma"] = "gaussian",
        sampling_rate: float | None = None,
        server: Literal["adversary", "trusted"] = "adversary",
        rows: int | Mapping[Any, int] | None = None,
        as_published: bool = False,
        ledger: Any = None,
        noise: Literal["secure", "simulated"] = "secure",
        ranges: Any = None,
        fit_intercept: bool = True,
        run: str | None = None,
        random_state: Any = None,
    ) -> None:
        self.loss = loss
        self.penalty = penalty
        self.budget = budget
        self.releases = releases
        self.clip_norm = clip_norm
        self.latency = latency
        self.mechanism = mechanism
        self.sampling_rate = sampling_rate
        self.server = server
        self.rows = rows
        self.as_published = as_published
        self.ledger = ledger
        self.noise = noise
        self.ranges = ranges
        self.fit_intercept = fit_intercept
        self.run = run
        self.random_state = random_state

    # --- what is shared ------------------------------------------------------------------------

    def _open(self, home: Home) -> Message:
        shared, own = _penalties(self.penalty)
        return open_optimum(home, shared, own)

    def _run(self, home: Home, door: Door, progress: Progress) -> Outcome:
        shared, own = _penalties(self.penalty)
        setting, sizes = self._setting(home, door), self._sizes(home, door)
        if self.server == "trusted":
            return through_trusted_server(home, door, setting, sizes, progress)
        when = Times(self.latency or Uniform(), self._seed(door))
        if self.as_published:
            return as_published(home, door, shared or TraceNorm(), setting, when)
        return asynchronously(home, door, (shared, own), setting, sizes, when)

    def _setting(self, home: Home, door: Door) -> Setting:
        width, clip_norm = home.problems.X.shape[1], self.clip_norm
        if clip_norm == "auto":
            clip_norm = public_clip_norm(home.loss, width)
        return Setting(
            loss=home.loss,
            width=width,
            n_nodes=home.problems.n_tasks,
            neighbours=door.neighbours,
            clip_norm=float(clip_norm),
            noise=self.mechanism,
            sampling_rate=self.sampling_rate,
            releases=None if self.releases == "auto" else int(self.releases),
            coupled=self.penalty is not None,
        )

    def _sizes(self, home: Home, door: Door) -> list[float]:
        """The rows of each node: public under replace, declared under zero-out."""
        if door.neighbours == "replace":
            return [float(size) for size in home.problems.sizes]
        if self.rows is None:
            raise InvalidInput(
                "under zero-out neighbours the number of rows is private: declare rows=, "
                "the divisor of a node's sum"
            )
        if not isinstance(self.rows, Mapping):
            return [float(self.rows)] * len(door.labels)
        named = {canonical_label(label): float(count) for label, count in self.rows.items()}
        missing = [label for label in door.labels if canonical_label(label) not in named]
        if missing:
            raise InvalidInput(f"rows declares no number for node {missing[0]!r}")
        return [named[canonical_label(label)] for label in door.labels]

    def _seed(self, door: Door) -> int:
        """Of the sending times: a function of the run's name, or of random_state. Never of data."""
        if door.rng is not None and self.run is None:
            return int(door.rng.integers(2**32))
        return int.from_bytes(hashlib.sha256(door.run.encode()).digest()[:4], "big")

    # --- what is promised ------------------------------------------------------------------------

    def _door(self, labels: tuple[Hashable, ...], schema: Schema) -> Door | None:
        self._check_parameters()
        return super()._door(labels, schema)

    def _part(self, run: str, number: int) -> str:
        """Every node has a ledger run of its own, unless the server is trusted with one for all."""
        return run if self.server == "trusted" else node_run(run, number)

    def _check_parameters(self) -> None:
        _require(self.mechanism in ("gaussian", "gamma"), "mechanism", self.mechanism)
        _require(self.server in ("adversary", "trusted"), "server", self.server)
        _require(self.releases == "auto" or self.releases >= 1, "releases", self.releases)
        _require(self.clip_norm == "auto" or self.clip_norm > 0, "clip_norm", self.clip_norm)
        rate = self.sampling_rate
        _require(rate is None or 0 < rate < 1, "sampling_rate", rate)
        if rate is not None and (self.mechanism == "gamma" or self.server == "trusted"):
            raise InvalidInput(
                "sampling_rate is for nodes with mechanism='gaussian' and server='adversary'"
            )

    def _remember(
        self, schema: Schema, tasks: TaskSet, outcome: Outcome, door: Door | None
    ) -> None:
        super()._remember(schema, tasks, outcome, door)
        if door is not None and self.server != "trusted":
            self.history_ = node_history(door)

    def _unit(self) -> Guarantee:
        return TRUSTED if self.server == "trusted" else ADVERSARY

    def _is_pure(self) -> bool:
        return self.mechanism == "gamma" or self.as_published

    def _claimed_only(self) -> str:
        return UNSOUND if self.as_published else ""

    def _accountant(self) -> str:
        kind = "exact Gaussian DP"
        if self.as_published:
            kind = "S3's claim per message, added up"
        elif self.sampling_rate is not None:
            kind = "PLD of Poisson-sampled Gaussian sums"
        elif self.mechanism == "gamma":
            kind = "pure DP, added up or by optimal composition"
        return f"{kind}, node by node; the largest of all nodes"

    def _doubts(self, schema: Schema) -> list[str]:
        doubts = super()._doubts(schema)
        if self.sampling_rate is None:
            return doubts
        budgets = self.budget.values() if isinstance(self.budget, Mapping) else [self.budget]
        if any(budget is not None and budget.neighbours == "replace" for budget in budgets):
            doubts.append(ASSUMED)
        if self.noise == "simulated":
            doubts.append(COINS)
        return doubts

    # --- models ----------------------------------------------------------------------------------

    def _at_home(self, home: Home, shared: Message) -> FloatArray:
        """The released models; what the nodes make of them is noted for home_coef_."""
        P, trust = (np.asarray(shared[name].value) for name in ("P", "trust"))
        self._home_models = home_models(home.problems, home.loss, others_of_each(P, trust))
        if isinstance(shared["P"], Unprotected):
            return self._home_models  # without a budget nothing is kept from anybody
        return _released(shared)

    def _newcomer(self, home: Home, shared: Message) -> FloatArray:
        """The mean of the released models, for all to see; what was learned stays at home."""
        P, trust = (np.asarray(shared[name].value) for name in ("P", "trust"))
        joined = home_models(home.problems, home.loss, others_of_newcomer(P, trust))
        self._home_models = np.vstack([self._home_models, joined])
        if isinstance(shared["P"], Unprotected):
            return joined  # as in _at_home
        return self._shared_model(shared)[None]

    def _shared_model(self, shared: Message) -> FloatArray:
        return np.asarray(_released(shared).mean(axis=0))

    def _set_models(self, models: FloatArray, labels: tuple[Hashable, ...]) -> None:
        super()._set_models(models, labels)
        if hasattr(self, "_home_models"):  # not yet while loading
            self._set_home_models()

    def _set_home_models(self) -> None:
        """home_coef_ (d, m) and home_intercept_ (m,), in units of X."""
        coef, intercept = self._schema.unscale(
            self._home_models[:, :-1].T, self._home_models[:, -1]
        )
        self.home_coef_, self.home_intercept_ = coef, np.atleast_1d(intercept)

    def _more_arrays(self, columns: list[int]) -> dict[str, FloatArray]:
        return {"home": self._home_models[columns]}

    def _take_more(self, arrays: dict[str, Any]) -> None:
        self._home_models = arrays["home"]
        self._set_home_models()

    def predict_at_home(self, X: Any, task: Any = None) -> Any:
        """What each node predicts with the model that never leaves it."""
        check_is_fitted(self, "home_coef_")
        there = copy(self)
        there._models = self._home_models
        return there.predict(X, task)


def _require(holds: bool, name: str, got: Any) -> None:
    if not holds:
        raise InvalidInput(f"{name} must be {EXPECTED[name]}, got {got!r}")


def _penalties(given: Any) -> tuple[Penalty | None, Penalty]:
    """r and g; r is None where nothing is shared."""
    if given is None or hasattr(given, "prox"):
        return given, SquaredNorm()
    if not isinstance(given, str) or given not in FORMULATIONS:
        raise InvalidInput(
            f"penalty must be one of {tuple(FORMULATIONS)}, a penalty with a prox, or None, "
            f"got {given!r}"
        )
    return FORMULATIONS[given]


def _released(shared: Message) -> FloatArray:
    """(m, D): P + Q."""
    return np.asarray(np.asarray(shared["P"].value) + np.asarray(shared["Q"].value)).T
