"""A fifth paper, as CONTRIBUTING.md says: one file, and one line where the contract suite lists it.

Every task tells the mean of its targets; a share of their average is public, and every task learns
alone what remains. Nobody should use it.

**Sensitivity.** A sum of numbers clipped to [−1, 1]: Δ = 2 (replace), 1 (zero-out).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from tacit.arrays import FloatArray
from tacit.engine import Facts, Message, Public, Step, Unprotected
from tacit.estimator import Home, PrivateLearner, learner
from tacit.linear.single_task_fits import best_alone
from tacit.linear.threads import isolated
from tacit.parameters import Between
from tacit.privacy.mechanisms import GaussianSum
from tacit.privacy.release import Declared, Release


@learner
class MeanTarget(PrivateLearner):
    """Learns alone what a shared mean does not explain."""

    share: Annotated[float, Between(0.01, 1)] = 0.5  # of the mean

    def _participant(self, home: Home, facts: Facts) -> Tasks:
        return Tasks(home)

    def _coordinator(self, facts: Facts) -> Curator:
        mechanism = GaussianSum.for_mu(1.0, facts.mu, facts.neighbours)
        return Curator(facts.n_tasks, (Step("mean", mechanism),))

    def _open(self, home: Home) -> Message:
        return {"mean": Unprotected(Tasks(home).means().mean())}

    @isolated()
    def _at_home(self, home: Home, shared: Message) -> FloatArray:
        level = 0.0 if home.loss.targets_are_classes else self.share * float(shared["mean"].value)
        rest = replace(home.problems, y=home.problems.y - level)
        models = best_alone(rest, home.loss)
        models[:, -1] += level * float(self.fit_intercept)
        return models

    def _shared_model(self, shared: Message) -> FloatArray:
        model = np.zeros(len(self._schema.feature_names_out) + 1)
        model[-1] = self.share * float(shared["mean"].value)
        return model


@dataclass(frozen=True)
class Tasks:
    """All tasks of this process at once."""

    home: Home

    def select(self, units: Sequence[int]) -> Tasks:
        """These tasks only, in this order."""
        return replace(self, home=self.home.select(units))

    def means(self) -> FloatArray:
        """(m,): the mean target of each task; 0 for one without rows."""
        problems = self.home.problems
        return np.asarray(problems.sum_rows(problems.y) / np.maximum(problems.sizes, 1))

    def contribute(self, step: Step, shared: Message, state: Any) -> tuple[FloatArray, Any]:
        """One number a task; the mechanism clips it."""
        return self.means()[:, None], None


@dataclass(frozen=True)
class Curator:
    """Divides the noisy sum by the public number of tasks."""

    n_tasks: int
    steps: tuple[Step, ...]

    def start(self) -> Public:
        """No mean yet."""
        return {"mean": Declared(0.0)}

    def absorb(self, step: Step, shared: Public, release: Release) -> Public:
        """The average."""
        return {"mean": release.map(lambda total: total[0] / self.n_tasks)}
