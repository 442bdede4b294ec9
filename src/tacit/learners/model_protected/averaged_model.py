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

``as_published=True`` is DP-AGGR as S1 ran it (output_perturbation.py): models of (1/n) Σ ℓ +
(λ/2)‖w‖², their average, and noise by the largest sensitivity of one of them, 2L/(n_(1)λ) (Pathak
et al. do not divide it by m), at ε/n of an example. Not private.

**Sensitivity** of the sum: 2K (replace), K (zero-out).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from tacit.arrays import FloatArray
from tacit.engine import Facts, Message, Public, Step, Unprotected
from tacit.errors import InvalidInput
from tacit.estimator import Home, PrivateLearner, learner
from tacit.learners.model_protected.output_perturbation import (
    MEASURED,
    OutputPerturbation,
    example_budget,
    mean_ridge,
    with_sensitivities,
)
from tacit.linear.row_algebra import or_zero
from tacit.linear.single_task_fits import best_alone
from tacit.linear.standardised import AUTO_CLIP, standardised, with_own_intercepts
from tacit.linear.threads import isolated
from tacit.parameters import Positive, Size
from tacit.privacy.budget import Budget
from tacit.privacy.mechanisms import GaussianSum
from tacit.privacy.release import Declared, Mechanism, Release


@learner
class AveragedModel(PrivateLearner):
    """One model for all tasks: the (noisy) average of what each learned alone.

    ``penalty`` is λ of each task's (1/n) Σ ℓ + (λ/2)‖w‖², in the units of the data; None: chosen
    by each task's held-out rows. ``max_rows`` is n of Proposition 3, as published.

    >>> from tacit.datasets import related_tasks
    >>> from tacit.privacy.budget import Budget
    >>> data = related_tasks(40, rng=np.random.default_rng(0))
    >>> model = AveragedModel(budget=Budget(2.0), noise="simulated", random_state=0)
    >>> model.fit(data.X, data.y, task=data.task).coef_.shape
    (10, 40)
    """

    clip_norm: Positive | Literal["auto"] = "auto"
    penalty: Positive | None = None
    max_rows: Size | None = None
    as_published: bool = False

    @property
    def _own_units(self) -> bool:
        return self.clip_norm == "auto" and self.penalty is None

    def _check(self) -> None:
        if self.as_published and (self.penalty is None or self.max_rows is None):
            raise InvalidInput("as_published=True needs the paper's λ and n: penalty and max_rows")

    def _is_pure(self) -> bool:
        return self.as_published

    def _accountant(self) -> str:
        return "S1 Proposition 3, of a claim" if self.as_published else super()._accountant()

    def _claimed_only(self) -> str:
        return MEASURED if self.as_published else ""

    def _tasks(self, home: Home) -> Tasks:
        return Tasks(home, self._own_units, self.penalty, self.as_published)

    def _open(self, home: Home) -> Message:
        mean = self._tasks(home).models().mean(axis=0)
        return {"mean": Unprotected(mean), "own_units": Unprotected(self._own_units)}

    def _coordinator(self, facts: Facts) -> Curator:
        return Curator(
            facts.width - 1,
            1 if self.as_published else facts.n_tasks,
            self._own_units,
            (Step("average", self._mechanism(facts)),),
        )

    def _mechanism(self, facts: Facts) -> Mechanism:
        if facts.pure is not None:
            whole = Budget(facts.pure.epsilon, facts.pure.delta)
            each = example_budget(whole, int(self.max_rows or 1))
            return OutputPerturbation(each.epsilon, (whole.epsilon, whole.delta), averaged=True)
        clip_norm = AUTO_CLIP if self.clip_norm == "auto" else float(self.clip_norm)
        return GaussianSum.for_mu(clip_norm, facts.mu, facts.neighbours)

    def _participant(self, home: Home, facts: Facts) -> Tasks:
        return self._tasks(home)

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
    penalty: float | None = None
    measured: bool = False  # as published: each model brings its sensitivity

    def select(self, units: Sequence[int]) -> Tasks:
        """These tasks only, in this order."""
        return replace(self, home=self.home.select(units))

    @isolated()
    def models(self) -> FloatArray:
        """(m, d): each trained alone; zero for a task that has nothing to say."""
        problems, loss = self.home.problems, self.home.loss
        if self.penalty is not None:
            return or_zero(mean_ridge(problems, loss, self.penalty), problems.speak(loss))
        own = standardised(problems, loss, scaled=self.own_units)
        return or_zero(own.inwards(best_alone(problems, loss))[:, :-1], problems.speak(loss))

    def contribute(self, step: Step, shared: Message, state: Any) -> tuple[FloatArray, Any]:
        """The models; the mechanism clips them, or takes the sensitivities that come with them."""
        models = self.models()
        if not self.measured or self.penalty is None:
            return models, None
        home = self.home
        return with_sensitivities(home.problems, home.loss, models, self.penalty), None


@dataclass(frozen=True)
class Curator:
    """Divides the noisy sum by the public number of tasks."""

    width: int
    divisor: int  # m; 1 where the release is an average already
    own_units: bool
    steps: tuple[Step, ...]

    def start(self) -> Public:
        """No average yet."""
        return {"mean": Declared(np.zeros(self.width)), "own_units": Declared(self.own_units)}

    def absorb(self, step: Step, shared: Public, release: Release) -> Public:
        """The average."""
        return {**shared, "mean": release.map(lambda total: total / self.divisor)}
