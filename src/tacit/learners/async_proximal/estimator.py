"""S3's learner, ours and as published; letters and differences are those of the package."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tacit.arrays import FloatArray
from tacit.engine import Message, Outcome, Progress, Unprotected, combined
from tacit.engine.arrivals import GRADIENT, Parties, Visit, run_arrivals, told
from tacit.engine.latencies import Latency, Uniform, visits
from tacit.errors import InvalidInput
from tacit.estimator import Home, learner
from tacit.estimator.public_models import PublicModels
from tacit.learners.async_proximal.formulations import FORMULATIONS, Named
from tacit.learners.async_proximal.node import private_nodes
from tacit.learners.async_proximal.paper_nodes import UNSOUND
from tacit.learners.async_proximal.paper_run import paper_run, warn_of_divergence, watched
from tacit.learners.async_proximal.plan import (
    ADVERSARY,
    ASSUMED,
    COINS,
    MOST_RELEASES,
    TRUSTED,
    NodePlan,
    Setting,
    node_plans,
    public_clip_norm,
    shared_level,
)
from tacit.learners.async_proximal.printed import Printed
from tacit.learners.async_proximal.refit import home_models, others_of_each, others_of_newcomer
from tacit.learners.async_proximal.server import Server
from tacit.learners.async_proximal.trusted_server import run_through_trusted_server
from tacit.learners.async_proximal.updates import Averaging
from tacit.linear.joint_optima import open_decomposed
from tacit.linear.penalties import Penalty, SquaredNorm
from tacit.linear.single_task_fits import best_alone
from tacit.parameters import Count, Positive, Share, Size
from tacit.privacy.budget import Guarantee
from tacit.privacy.node_runs import declared_counts, node_doors, node_history, node_run
from tacit.privacy.people import beside_units
from tacit.privacy.planning import Door
from tacit.privacy.release import Declared
from tacit.tasks import Schema, TaskSet

TWIN_TRUST = 0.5


@learner
class AsyncProximal(PublicModels):
    """One linear model per node, learned with a server that nobody trusts.

    ``coef_`` are the released models, functions of the noisy messages: they may be shown to anyone.
    ``home_coef_`` are what the nodes make of them at home: each belongs to its node alone, and
    ``predict_at_home`` uses it. A task that joins later (``adapt``) has released nothing: its
    column of ``coef_`` is the mean of the released models, what it learned is in ``home_coef_``.
    With budget=None both are the same, around the exact optimum of S3's problem (2).
    ``penalty=None`` shares nothing: private gradient descent node by node. Under zero-out
    neighbours ``rows`` declares the number of rows of a node, or of each by label.

    >>> from tacit import Budget
    >>> from tacit.datasets import related_tasks
    >>> data = related_tasks(5, 40, 3, rng=np.random.default_rng(0))
    >>> model = AsyncProximal(budget=Budget(4.0), ranges=data.ranges, noise="simulated",
    ...                       random_state=0).fit(data.X, data.y, task=data.task)
    >>> model.coef_.shape, model.home_coef_.shape, model.guarantee_.unit
    ((3, 5), (3, 5), "one example in one node's data")
    """

    penalty: Named | Penalty | None = "trace"  # of formulations.py; None: nothing is shared
    releases: Count | Literal["auto"] = "auto"
    clip_norm: Positive | Literal["auto"] = "auto"
    latency: Latency | None = None  # None: uniform, 0 to 15 ms
    mechanism: Literal["gaussian", "gamma"] = "gaussian"
    sampling_rate: Share | None = None
    server: Literal["adversary", "trusted"] = "adversary"
    rows: Size | Mapping[Any, Size] | None = None
    as_published: Printed | bool = False  # printed.py: S3 letter by letter; True: as in its §4.1

    # --- what is shared ------------------------------------------------------------------------

    def _open(self, home: Home) -> Message:
        """The problem that the updates converge to, solved exactly; λ and τ by held-out rows. As
        published: by S3's own nodes and server, without their noises."""
        if self.as_published:
            return self._as_printed(home, None).shared
        (shared, own), problems = _penalties(self.penalty), home.problems
        if shared is None:
            models = best_alone(problems, home.loss)
            P = np.zeros_like(models.T)
        else:
            models = open_decomposed(problems, home.loss, shared, own, (None, None)).models
            P = models.T
        parts = {"P": P, "Q": models.T - P, "trust": np.full(problems.n_tasks, TWIN_TRUST)}
        return {name: Unprotected(part) for name, part in parts.items()}

    @property
    def _engines(self) -> Literal["rounds", "arrivals", "silos"] | None:
        return None if self.server == "trusted" or self.as_published else "arrivals"

    @property
    def _places_matter(self) -> bool:
        return True

    def _run(self, home: Home, door: Door, progress: Progress) -> Outcome:
        """By arrivals: every node sends when it is ready, the server answers each at once."""
        if self.server == "trusted":
            setting, rows = self._setting(home, door), self._rows(home, door)
            return run_through_trusted_server(home, door, setting, rows, progress)
        if self.as_published:
            return self._as_printed(home, door, progress)
        parties, plans = self._parties(home, door), self._plans(home, door)
        end = (self._engine or run_arrivals)(parties, self._schedule(parties, door, progress))
        server = self._server(self._setting(home, door), plans)
        shared: Message = {
            "P": server.after(
                [message[GRADIENT] for _, _, message in end.transcript], end.arrivals
            ),
            "Q": combined(lambda *columns: np.stack(columns, axis=1), *end.nodes),
            "trust": Declared(np.array([max(0.0, 1 - plan.error) for plan in plans])),
        }
        return Outcome(shared, end.transcript)

    def _as_printed(self, home: Home, door: Door | None, progress: Progress = None) -> Outcome:
        """Algorithm 1, or Eq. (6)–(9); the trajectory is noted for private_history_."""
        settings = self.as_published if isinstance(self.as_published, Printed) else Printed()
        shared, own = _penalties(self.penalty)
        assert shared is not None  # by _check
        columns, m = home.problems.X.shape[1], home.problems.n_tasks
        width = columns if self.fit_intercept else columns - 1
        run = paper_run(settings, home.problems, home.loss, (shared, own), width)
        parties = run.parties(MOST_RELEASES if self.releases == "auto" else self.releases, door)
        schedule = self._schedule(parties, door, progress, settings.staleness)
        end, found = watched(run, parties, schedule)
        self.private_history_ = found.lines
        self._stages = [np.pad(W, ((0, 0), (0, columns - width))) for W in found.models]
        parts = run.parts(parties, end, columns)
        warn_of_divergence(settings, parts["P"].value)
        return Outcome({**parts, "trust": Declared(np.full(m, TWIN_TRUST))}, end.transcript)

    def _schedule(
        self, parties: Parties, door: Door | None, progress: Progress, staleness: int | None = None
    ) -> Iterator[Visit]:
        """Who arrives when."""
        releases = [node.releases for node in parties.nodes]
        latency, seed = self.latency or Uniform(), self._seed(door)
        return told(visits(latency, releases, seed=seed, staleness=staleness), parties, progress)

    def _plans(self, home: Home, door: Door) -> list[NodePlan]:
        """What each node does."""
        return node_plans(self._setting(home, door), self._rows(home, door), door)

    def _parties(self, home: Home, door: Door) -> Parties:
        """The server, and every node with its rows and a door of its own."""
        setting, plans = self._setting(home, door), self._plans(home, door)
        nodes = private_nodes(home.problems, setting, plans, _penalties(self.penalty)[1])
        return Parties(self._server(setting, plans), nodes, node_doors(door))

    def _server(self, setting: Setting, plans: list[NodePlan]) -> Server:
        """Made of public numbers alone."""
        shared, _ = _penalties(self.penalty)
        level = shared_level(shared, plans, setting.width)
        steps, releases = tuple(p.step for p in plans), tuple(p.releases for p in plans)
        largest = np.array([plan.largest for plan in plans])
        update = Averaging(shared, level, steps, releases)
        return Server(update, setting.width, setting.n_nodes, largest)

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
            sampling_rate=None if self.sampling_rate is None else float(self.sampling_rate),
            releases=None if self.releases == "auto" else int(self.releases),
            coupled=self.penalty is not None,
        )

    def _rows(self, home: Home, door: Door) -> list[float]:
        """The rows of each node: declared, or under replace as they are, which is public."""
        if door.neighbours == "replace" and self.rows is None:
            return [float(size) for size in home.problems.sizes]
        if self.rows is None:
            raise InvalidInput(
                "under zero-out neighbours the number of rows is private: declare rows=, "
                "the divisor of a node's sum"
            )
        return declared_counts("rows", self.rows, door.labels)

    def _seed(self, door: Door | None) -> int:
        """Of the sending times: a function of the run's name, or of random_state. Never of data."""
        if door is None:
            return 0 if self.random_state is None else int(self.random_state)
        if door.rng is not None and self.run is None:
            return int(door.rng.integers(2**32))
        return int.from_bytes(hashlib.sha256(door.run.encode()).digest()[:4], "big")

    # --- what is promised ------------------------------------------------------------------------

    def _part(self, run: str, number: int) -> str:
        """Every node has a ledger run of its own, unless the server is trusted with one for all."""
        return run if self.server == "trusted" else node_run(run, number)

    def _check(self) -> None:
        whole_sums = self.mechanism == "gamma" or self.server == "trusted"
        if self.sampling_rate is not None and whole_sums:
            raise InvalidInput(
                "sampling_rate is for nodes with mechanism='gaussian' and server='adversary'"
            )
        if self.as_published:
            self._check_printed()

    def _check_printed(self) -> None:
        """S3's algorithm has none of our node's choices, and one with noise no look at the data."""
        for name in ("server", "mechanism", "clip_norm", "sampling_rate", "rows"):
            if getattr(self, name) != getattr(AsyncProximal, name):
                raise InvalidInput(f"as published there is no {name}, got {getattr(self, name)!r}")
        if self.penalty is None:
            raise InvalidInput("as published P has a penalty, got penalty=None")
        if isinstance(self.as_published, Printed):
            self.as_published.require(private=self.budget is not None)

    def _remember(
        self, schema: Schema, tasks: TaskSet, outcome: Outcome, door: Door | None
    ) -> None:
        super()._remember(schema, tasks, outcome, door)
        if door is not None and self.server != "trusted":
            self.history_ = node_history(door)
        if door and not self.as_published:
            rows = self.rows and sum(declared_counts("rows", self.rows, door.labels))
            self.guarantee_ = beside_units(self.guarantee_, int(rows or len(tasks.X)), "examples")

    def _unit(self) -> Guarantee:
        return TRUSTED if self.server == "trusted" else ADVERSARY

    def _is_pure(self) -> bool:
        return self.mechanism == "gamma" or bool(self.as_published)

    def _claimed_only(self) -> str:
        stops = isinstance(self.as_published, Printed) and self.as_published.stop > 0
        return (UNSOUND + "; when it stops depends on the data" * stops) * bool(self.as_published)

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
        """The released models; what the nodes make of them is noted for home_coef_. As published a
        node's model is what it ended with, W = P + Q."""
        if self.as_published:
            self._home_models = _released(shared)
            return self._home_models
        self._home_models = home_models(home.problems, home.loss, others_of_each(*_signal(shared)))
        if isinstance(shared["P"], Unprotected):
            return self._home_models  # without a budget nothing is kept from anybody
        return _released(shared)

    def staged_predict(self, X: Any, task: Any = None) -> Iterator[Any]:
        """As published: what was predicted at each line of private_history_."""
        check_is_fitted(self, "private_history_")
        there = copy(self)
        for models in self._stages:
            there._models = models
            yield there.predict(X, task)

    def _newcomer(self, home: Home, shared: Message) -> FloatArray:
        """The mean of the released models, for all to see; what was learned stays at home."""
        others = others_of_newcomer(*_signal(shared))
        joined = home_models(home.problems, home.loss, others)
        self._home_models = np.vstack([self._home_models, joined])
        if isinstance(shared["P"], Unprotected):
            return joined  # as in _at_home
        return self._shared_model(shared)[None]

    def _shared_model(self, shared: Message) -> FloatArray:
        return np.asarray(_released(shared).mean(axis=0))


def _penalties(given: Named | Penalty | None) -> tuple[Penalty | None, Penalty]:
    """r and g; r is None where nothing is shared."""
    return FORMULATIONS[given] if isinstance(given, str) else (given, SquaredNorm())


def _released(shared: Message) -> FloatArray:
    """(m, D): P + Q."""
    return np.asarray(np.asarray(shared["P"].value) + np.asarray(shared["Q"].value)).T


def _signal(shared: Message) -> tuple[FloatArray, FloatArray]:
    """P (D, m), and how far each of its columns is to be trusted, (m,)."""
    return np.asarray(shared["P"].value), np.asarray(shared["trust"].value)
