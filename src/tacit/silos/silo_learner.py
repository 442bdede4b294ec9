"""Silos whose people are protected from everybody outside: one prior, learned from noisy sums.

What a hospital must hide is a patient, and it trusts nobody outside. Each silo releases second
moments of its coded rows and then, at the shared model that all of these give, a sum of scores;
everything else is post-processing (hierarchy.py) or happens at home (silo_models.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, Self

import numpy as np

from tacit.arrays import FloatArray, IntArray
from tacit.engine import Message, Outcome, Progress, Unprotected
from tacit.engine.silo_rounds import run_silos, speaking
from tacit.errors import InvalidInput
from tacit.estimator import Home, learner
from tacit.estimator.progress import Asked
from tacit.estimator.public_models import PublicModels
from tacit.linear.losses import Loss
from tacit.parameters import Count, Size
from tacit.privacy.budget import Guarantee
from tacit.privacy.node_runs import (
    declared_counts,
    node_doors,
    node_history,
    node_run,
    require_all_nodes,
)
from tacit.privacy.people import (
    beside_units,
    promised_to_people,
    require_as_found,
    warn_of_delta,
    warn_of_several,
)
from tacit.privacy.planning import Door
from tacit.privacy.release import Release
from tacit.silos.coding import Coding, coding_of
from tacit.silos.halves import (
    MomentsCoordinator,
    SiloHalves,
    SiloHome,
    Silos,
    learned,
    residuals,
)
from tacit.silos.hierarchy import Hierarchy, Tie, by_column
from tacit.silos.moments import moments_of
from tacit.silos.silo_models import home_models
from tacit.silos.silo_plan import (
    MOMENTS,
    SCORES,
    SiloPlan,
    blocks_for,
    first_share,
)
from tacit.tasks import Schema, TaskSet
from tacit.tasks.labels import require_present
from tacit.tasks.tables import as_vector, rows_and_people
from tacit.tasks.taskset import task_codes

TWIN_ROUNDS = 6
"""Exact scores of a twin whose loss is no square."""


@learner
class InsideSilos(PublicModels):
    """``unit="example"``: what is protected are people inside a silo, from everybody outside it.

    Then ``coef_`` are public models, functions of releases alone, and ``home_coef_`` are what silos
    make of them at home with their own rows: each belongs to its silo alone, and
    ``predict_at_home`` uses it. ``fit(..., person=ids)`` names whose row each is, and without it
    every row is somebody. ``silos_per_person``: in so many silos may one person be, whose releases
    are then charged together: with more than one, all silos on the ledger take part in every run,
    at one budget. ``people``: how many each silo has, for whoever does not have its rows. Every
    column needs a declared range or categories.
    """

    __metadata_request__fit: ClassVar = {"task": True, "person": True}

    unit: Literal["task", "example"] = "task"
    silos_per_person: Count = 1
    people: Size | Mapping[Any, Size] | None = None

    _person_of = None  # whose row each is, while a fit lasts
    _named_people = False  # whether the last fit was told

    # --- fitting ---------------------------------------------------------------------------------

    def fit(
        self, X: Any, y: Any, task: Any = None, *, person: Any = None, progress: Asked = None
    ) -> Self:
        """Learns from all tasks; ``person`` (N,), or a frame's column of that name, says whose row
        each is, where people are protected."""
        X, task, person = rows_and_people(X, task, person)
        with self._naming(person):
            super().fit(X, y, task, progress=progress)
        return self

    def fit_tasks(
        self, tasks: TaskSet, schema: Schema, *, person: Any = None, progress: Progress = None
    ) -> Self:
        """As fit, from tasks that were already read and scaled; ``person`` is of the rows as they
        were before."""
        with self._naming(self._person_of if person is None else person):
            super().fit_tasks(tasks, schema, progress=progress)
        return self

    @contextmanager
    def _naming(self, person: Any) -> Iterator[None]:
        """Whose rows they are: kept while a fit lasts."""
        if person is not None and self.unit == "task":
            raise InvalidInput("person= names people inside silos: fit with unit='example'")
        before = self._person_of
        self._person_of, self._named_people = person, person is not None
        try:
            yield
        finally:
            self._person_of = before

    def _declare(self, X: Any, y: Any, task: Any) -> tuple[Schema, TaskSet]:
        schema, tasks = super()._declare(X, y, task)
        person = self._person_of
        if person is not None and not schema.drops and len(np.asarray(person)) != tasks.n_rows:
            raise InvalidInput(
                f"person names {len(np.asarray(person))} rows, X has {tasks.n_rows}: a name for "
                "each row is needed, in their order"
            )
        return schema, tasks

    def _home(self, tasks: TaskSet, schema: Schema, loss: Loss) -> Home:
        plain = super()._home(tasks, schema, loss)
        if self.unit == "task":
            return plain
        return SiloHome(
            plain.problems,
            plain.loss,
            plain.declared_features,
            plain.declared_target,
            coding_of(schema),
            _numbers(self._person_of, tasks.order),
        )

    def _check(self) -> None:
        if self.unit == "task":
            super()._check()
        elif not self.fit_intercept:
            raise InvalidInput("unit='example': models of silos have an intercept")

    @property
    def _tie(self) -> Tie:
        """How the variances of the silos' prior are tied."""
        return by_column

    def _open(self, home: Home) -> Message:
        """The same from exact sums."""
        if not isinstance(home, SiloHome):
            return super()._open(home)
        blocks = blocks_for(home.coding.levels)
        cells, J = home.cells, home.problems.n_tasks
        sums = home.problems.sum_rows(blocks.terms(cells))
        of = moments_of(blocks, sums, home.problems.sizes.astype(float), np.zeros(J))
        now = learned(of, np.ones(J), home.loss, self._tie, [])
        if home.loss.targets_are_classes:
            f = blocks.coordinates(cells)[:, :-1]
            scores: list[tuple[FloatArray, FloatArray]] = []
            for _ in range(TWIN_ROUNDS):
                psi = residuals(f, cells[:, -1], now.mu, 1.0, home.loss)
                exact = home.problems.sum_rows(f * psi[:, None])
                scores.append((exact, np.zeros_like(exact)))
                now = learned(of, np.ones(J), home.loss, self._tie, scores)
        parts = _parts(home.coding, J, now, range(J))
        return {name: Unprotected(part) for name, part in parts.items()}

    @property
    def _engines(self) -> Literal["rounds", "arrivals", "silos"] | None:
        return super()._engines if self.unit == "task" else "silos"

    @property
    def _places_matter(self) -> bool:
        return self.unit == "example"

    @property
    def _takes_several(self) -> bool:
        """Silos release the moments of one target."""
        return self.unit == "task" and super()._takes_several

    def _run(self, home: Home, door: Door, progress: Progress) -> Outcome:
        if not isinstance(home, SiloHome):
            return super()._run(home, door, progress)
        of = self._silo_halves(home, door)
        engine = self._engine or run_silos
        outcome = engine(of.silos, of.coordinator, of.doors, progress=progress)
        released = {k: v for k, v in outcome.shared.items() if k in (MOMENTS, SCORES)}
        parts = [part for part in released.values() if isinstance(part, Release)]
        coding, count = home.coding, home.problems.n_tasks  # both are public
        made = Release.derive(
            lambda *values: _parts(coding, count, of.coordinator.learned(*values), of.speaking),
            *parts,
        )
        return Outcome({**released, **made}, outcome.transcript)

    def _silo_halves(self, home: SiloHome, door: Door) -> SiloHalves:
        """Both halves, and every silo's own door: of public facts, but for the silos' rows."""
        if self.silos_per_person > 1:
            require_all_nodes(door)
        doors, blocks = node_doors(door), blocks_for(home.coding.levels)
        people = self._people_in(home, door)
        self._people = int(people.sum())
        warn_of_delta(door, self._people)
        first = first_share(home.loss, door.mu, float(people.mean()))
        plans = {
            j: SiloPlan(
                blocks,
                home.loss,
                float(door.shares[j]) * door.mu,
                first,
                door.neighbours,
                int(self.silos_per_person),
            )
            for j in speaking(doors)
        }
        coordinator = MomentsCoordinator(plans, people[list(plans)], self._tie)
        silos = Silos(home, blocks, coordinator.any_plan.score_weights)
        return SiloHalves(silos, coordinator, doors, tuple(plans))

    def _people_in(self, home: SiloHome, door: Door) -> FloatArray:
        """(J,): how many each silo has: as declared, where not all rows are here, and then as found
        in those that are."""
        found = home.people()
        warn_of_several(home.problems.task, home.person, int(self.silos_per_person))
        if self.people is None:
            if not found.any():
                raise InvalidInput("no silo has rows here: declare people=, how many each has")
            return found
        declared = np.array(declared_counts("people", self.people, door.labels))
        require_as_found(declared, found, door)
        return declared

    # --- what is promised ------------------------------------------------------------------------

    def _unit(self) -> Guarantee:
        if self.unit == "task":
            return super()._unit()
        return promised_to_people(self._named_people, int(self.silos_per_person))

    def _part(self, run: str, number: int) -> str:
        return run if self.unit == "task" else node_run(run, number)

    def _accountant(self) -> str:
        if self.unit == "task":
            return super()._accountant()
        return "exact Gaussian DP, silo by silo; the largest of all silos"

    def _guarantee(self, door: Door | None) -> Guarantee:
        """δ is said beside the number of people, who are the units here."""
        found = super()._guarantee(door)
        if door is None or self.unit == "task":
            return found
        return beside_units(found, self._people)

    def _remember(
        self, schema: Schema, tasks: TaskSet, outcome: Outcome, door: Door | None
    ) -> None:
        super()._remember(schema, tasks, outcome, door)
        if door is not None and self.unit == "example":
            self.history_ = node_history(door)

    # --- models ----------------------------------------------------------------------------------

    def _at_home(self, home: Home, shared: Message) -> FloatArray:
        """The public models; what silos make of them at home is noted for home_coef_."""
        if self.unit == "task":
            return super()._at_home(home, shared)
        self._home_models = _at_home(home, shared)
        if isinstance(shared["models"], Unprotected):
            return self._home_models  # without a budget nothing is kept from anybody
        return np.asarray(shared["models"].value)

    def _newcomer(self, home: Home, shared: Message) -> FloatArray:
        """The shared mean, for all to see; what was learned stays at home."""
        if self.unit == "task":
            return super()._newcomer(home, shared)
        joined = _at_home(home, shared)
        self._home_models = np.vstack([self._home_models, joined])
        if isinstance(shared["models"], Unprotected):
            return joined
        return self._shared_model(shared)[None]

    def _spreads(self, home: Home, shared: Message) -> FloatArray:
        """Public models have none: how sure a silo may be of its own is not worked out."""
        if self.unit == "task":
            return super()._spreads(home, shared)
        return PublicModels._spreads(self, home, shared)

    def _shared_model(self, shared: Message) -> FloatArray:
        if self.unit == "task":
            return super()._shared_model(shared)
        return np.asarray(shared["mean"].value)

    # --- its folder ------------------------------------------------------------------------------

    def _description(self) -> dict[str, Any]:
        return super()._description() | {"unit": self.unit}

    def _take(self, description: dict[str, Any], arrays: dict[str, Any]) -> None:
        self.unit = description.get("unit", "task")
        super()._take(description, arrays)


def _numbers(person: Any, order: IntArray) -> IntArray:
    """(N,): a number for each person, of rows in their stored order; None: each row is somebody."""
    if person is None:
        return np.arange(len(order))
    require_present(as_vector(person, "person"), "person")
    _, codes = task_codes(person, len(np.asarray(person)))
    if len(codes) <= int(order.max(initial=-1)):
        raise InvalidInput(f"person names {len(codes)} rows, X has more")
    return codes[order]


def _parts(
    coding: Coding, n_silos: int, now: Hierarchy, speaking: Iterable[int]
) -> dict[str, FloatArray]:
    """What may be shown, in the columns of X: the prior, and a model of every silo."""
    prior = now.prior()
    mean = coding.models(prior.mean[None])[0]
    models = np.tile(mean, (n_silos, 1))
    models[list(speaking)] = coding.models(now.models())
    return {
        "mean": mean,
        "covariance": coding.covariance(prior.covariance),
        "noise": np.asarray(prior.noise),
        "models": models,
    }


def _at_home(home: Home, shared: Message) -> FloatArray:
    mean, covariance, noise = (
        np.asarray(shared[name].value) for name in ("mean", "covariance", "noise")
    )
    return home_models(home.problems, home.loss, mean, covariance, float(noise))
