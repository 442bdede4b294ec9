"""A site's tasks among all tasks of a run: the others are there by name, and have no rows.

A learner may look up its place among all tasks (S1's covariance of tasks does). A task's row is the
same bits in any batch, so whoever has a few tasks computes with all labels, and keeps his own.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit.arrays import Array, FloatArray
from tacit.engine import Facts, Participant, Step
from tacit.errors import InvalidInput
from tacit.estimator import Home, MultiTaskEstimator
from tacit.estimator.fitted import Fitted
from tacit.federation.terms import Terms
from tacit.folder import Contents
from tacit.linear.losses import loss_named
from tacit.linear.threads import isolated
from tacit.privacy.accounting import Cost
from tacit.privacy.ledger import Ledger
from tacit.privacy.planning import Door
from tacit.tasks import TaskSet, canonical_label


def among(tasks: TaskSet, labels: Sequence[Hashable]) -> TaskSet:
    """The same tasks in their places among all labels."""
    where = {canonical_label(label): i for i, label in enumerate(labels)}
    found = [where.get(canonical_label(label), -1) for label in tasks.labels]
    if -1 in found:
        stranger = tasks.labels[found.index(-1)]
        raise InvalidInput(f"task {stranger!r} is none of the {len(labels)} that were agreed on")
    return _placed(tasks.select(np.argsort(found)), sorted(found), labels)


def _placed(tasks: TaskSet, places: Sequence[int], labels: Sequence[Hashable]) -> TaskSet:
    """Tasks at these ascending places among all labels; the others have no rows."""
    sizes = np.zeros(len(labels), dtype=np.int64)
    sizes[list(places)] = tasks.sizes
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return replace(tasks, offsets=offsets, labels=tuple(labels))


@dataclass(frozen=True)
class Planned:
    """What the coordinator's ledger leaves to this run: public, and the same for all rounds."""

    mu: float
    pure: Cost | None = None


def in_places(terms: Terms, site: str, tasks: TaskSet) -> TaskSet:
    """A site's tasks among all of the run; InvalidInput if one is another site's."""
    places = terms.places[site]
    own = among(tasks, [terms.labels[i] for i in places])
    return _placed(own, places, terms.labels)


@dataclass(frozen=True)
class OwnTasks:
    """What a site computes with: the learner, and its tasks at home among all."""

    model: MultiTaskEstimator
    home: Home  # of all labels, the others' without rows
    places: tuple[int, ...]  # of its own

    @classmethod
    def of(cls, terms: Terms, site: str, tasks: TaskSet) -> OwnTasks:
        """Refuses rows of a task that is another site's."""
        model = terms.model()
        assert isinstance(model, MultiTaskEstimator)
        whole = in_places(terms, site, tasks)
        home = model._home(whole, terms.schema, loss_named(model.loss))
        return cls(model, home, tuple(terms.places[site]))

    def halves(self, terms: Terms, planned: Planned) -> tuple[Participant, tuple[Step, ...]]:
        """The participant of its own tasks alone, and the steps of the run."""
        facts = self._facts(terms, planned)
        participant = self.model._participant(self.home, facts).select(self.places)
        return participant, self.model._coordinator(facts).steps

    def door(self, terms: Terms, ledger: Ledger, labels: tuple[Hashable, ...]) -> Door:
        """The door of a run at a site, for these tasks: its own ledger's."""
        terms.require_secure_noise()
        model: Any = self.model
        model.ledger = ledger
        if terms.schema.classes is not None:
            model.classes_ = np.asarray(terms.schema.classes)
        found: Door | None = model._door(labels, terms.schema)
        assert found is not None  # terms have a budget
        return found

    def silo_halves(self, terms: Terms, ledger: Ledger) -> Any:
        """The halves of silos that release from this ledger, and the door of each."""
        model: Any = self.model
        return model._silo_halves(self.home, self.door(terms, ledger, terms.labels))

    def fitted(self, found: Contents, terms: Terms, state: Array | None) -> Fitted:
        """The learner with its own tasks' models, of what everybody got."""
        model: Any = type(self.model).restored(*found)
        with isolated():  # the others have no rows here, and their columns are not written
            models = self._models(model)
            spreads = np.zeros_like(models[:, :-1])
            spreads[list(self.places)] = model._spread_of(self.home.select(self.places))
            model._set_models(models, terms.labels, spreads)
        fitted: Fitted = model
        return fitted

    def _models(self, model: Any) -> FloatArray:
        """(m, d + 1): those of its own tasks in their places."""
        if self.model._places_matter:
            found: FloatArray = model._at_home(self.home, model.shared_)
            return found
        found = np.zeros((self.home.problems.n_tasks, self.home.problems.X.shape[1]))
        found[list(self.places)] = model._at_home(self.home.select(self.places), model.shared_)
        return found

    def _facts(self, terms: Terms, planned: Planned) -> Facts:
        """Everything public, as the coordinator has it."""
        return Facts(
            labels=terms.labels,
            width=self.home.problems.X.shape[1],
            loss=self.home.loss,
            declared_features=self.home.declared_features,
            declared_target=self.home.declared_target,
            neighbours=terms.budget.neighbours,
            mu=planned.mu,
            pure=planned.pure,
        )
