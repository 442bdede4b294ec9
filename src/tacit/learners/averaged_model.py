"""DP-AGGR, a baseline: everybody gets the noisy average of all task models.

Pathak, Rane, Raj, "Multiparty Differential Privacy via Aggregation of Locally Trained Classifiers",
NIPS 2010, as S1 §5.1 compares with it.

**Symbols**

====  =====================  ==============================================================
ŵ_i   ``models``             trained by each task alone
K     ``clip_norm``          norm to which a model is clipped
ŵ^s   ``mean``               the average that is released
====  =====================  ==============================================================

**Differs from the paper in**

1. The unit is a task, not an example. S1 gets there by group privacy (Proposition 3) from an
   example's sensitivity 2L/(nλ); n of them make 2L/λ, the diameter of a ball of radius L/λ that
   holds every regularised model. Here the radius K is declared and the models are clipped to it:
   the same bound, without n, which is private.
2. Gaussian noise, exact Gaussian DP, one release.
3. Models are averaged in each task's own units when clip_norm="auto" (one number for its features,
   one for its target: directions stay), and each task fits its own intercept at home.

**Sensitivity** of the sum: 2K (replace), K (zero-out).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from tacit.arrays import FloatArray
from tacit.engine import Facts, Message, Public, Step, Unprotected
from tacit.estimator import Home, PrivateLearner, learner
from tacit.linear.row_algebra import or_zero
from tacit.linear.single_task_fits import best_alone
from tacit.linear.standardised import AUTO_CLIP, standardised, with_own_intercepts
from tacit.linear.threads import isolated
from tacit.parameters import Positive
from tacit.privacy.mechanisms import GaussianSum
from tacit.privacy.release import Declared, Release


@learner
class AveragedModel(PrivateLearner):
    """One model for all tasks: the (noisy) average of what each learned alone.

    >>> from tacit.datasets import related_tasks
    >>> from tacit.privacy.budget import Budget
    >>> data = related_tasks(40, rng=np.random.default_rng(0))
    >>> model = AveragedModel(budget=Budget(2.0), noise="simulated", random_state=0)
    >>> model.fit(data.X, data.y, task=data.task).coef_.shape
    (10, 40)
    """

    clip_norm: Positive | Literal["auto"] = "auto"

    @property
    def _own_units(self) -> bool:
        return self.clip_norm == "auto"

    def _open(self, home: Home) -> Message:
        mean = Tasks(home, self._own_units).models().mean(axis=0)
        return {"mean": Unprotected(mean), "own_units": Unprotected(self._own_units)}

    def _coordinator(self, facts: Facts) -> Curator:
        clip_norm = AUTO_CLIP if self.clip_norm == "auto" else float(self.clip_norm)
        step = Step("average", GaussianSum.for_mu(clip_norm, facts.mu, facts.neighbours))
        return Curator(facts.width - 1, facts.n_tasks, self._own_units, (step,))

    def _participant(self, home: Home, facts: Facts) -> Tasks:
        return Tasks(home, self._own_units)

    @isolated()
    def _at_home(self, home: Home, shared: Message) -> FloatArray:
        own = standardised(home.problems, home.loss, scaled=bool(shared["own_units"].value))
        mean = np.append(np.asarray(shared["mean"].value), 0.0)
        models = or_zero(own.outwards(np.tile(mean, (home.problems.n_tasks, 1))))
        return with_own_intercepts(home.problems, home.loss, models[:, :-1])

    def _shared_model(self, shared: Message) -> FloatArray:
        mean = np.asarray(shared["mean"].value)
        return np.append(np.zeros_like(mean) if bool(shared["own_units"].value) else mean, 0.0)


@dataclass(frozen=True)
class Tasks:
    """All tasks of this process at once."""

    home: Home
    own_units: bool

    def select(self, units: Sequence[int]) -> Tasks:
        """These tasks only, in this order."""
        return replace(self, home=self.home.select(units))

    @isolated()
    def models(self) -> FloatArray:
        """(m, d): each trained alone; zero for a task that has nothing to say."""
        problems, loss = self.home.problems, self.home.loss
        own = standardised(problems, loss, scaled=self.own_units)
        return or_zero(own.inwards(best_alone(problems, loss))[:, :-1], problems.speak(loss))

    def contribute(self, step: Step, shared: Message, state: Any) -> tuple[FloatArray, Any]:
        """The models; the mechanism clips them."""
        return self.models(), None


@dataclass(frozen=True)
class Curator:
    """Divides the noisy sum by the public number of tasks."""

    width: int
    n_tasks: int
    own_units: bool
    steps: tuple[Step, ...]

    def start(self) -> Public:
        """No average yet."""
        return {"mean": Declared(np.zeros(self.width)), "own_units": Declared(self.own_units)}

    def absorb(self, step: Step, shared: Public, release: Release) -> Public:
        """The average."""
        return {**shared, "mean": release.map(lambda total: total / self.n_tasks)}
