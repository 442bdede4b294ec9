"""Mean-regularised multi-task learning for linear models, under task-level joint DP.

S2: Hu, Wu, Smith, "Private Multi-Task Learning: Formulation and Applications to Federated
Learning", arXiv 2108.12978. Objective (2): Σ_k [Σ_i l_k(x_i, w_k) + λ/2 ‖w_k − w̄‖²].

**Symbols**

====  =====================  ==============================================================
w_k   ``coef``               one model per task, intercept last
w̄     ``mean``               the shared mean
λ     ``penalty``            how strongly a task is held to the mean
γ     ``clip_norm``          the norm to which a contribution is clipped
T     ``rounds``             pairs of a direction and a step
σ     ``sigma``              noise on a sum of contributions
====  =====================  ==============================================================

**Differs from the paper in**

1. Each task solves Eq. (3) exactly at home (the paper: E steps of SGD); linear models allow it.
2. A round is a *private line search*. Every task sends the direction in which its own solution
   pulls the mean, at norm one (a clip norm below every update: the sum then loses no signal to a
   clip that is too wide, in any units); then, along the noisy mean direction v, every task sends
   two numbers that determine the best step (the slope and curvature of its leave-one-out loss).
   A sum of clipped updates (Algorithm 1, line 8) needs many rounds to reach the mean's length;
   this needs one.
3. A last release asks all tasks how strongly to hold on to the mean: each sends, at norm one, how
   well each penalty predicts its held-out rows, with and without the mean. Two dozen numbers, so
   they survive a small budget in which a mean of d numbers would drown. When the predicted noise
   of a direction exceeds its signal (``quietest``), only this is released.
4. Full participation, fixed denominator m, exact Gaussian DP (docs/privacy.md, E): S2's fixed-size
   sampling is not amplified when the other tasks can count themselves.
5. What a task does at home is free (billboard lemma): it mixes the models along the penalty path,
   around the mean and on its own, by their leave-one-out likelihood times a public prior.

**Sensitivity.** Every release is a sum of rows clipped to norm one: Δ₂ = 2 (replace), 1 (zero-out);
the votes on scales, which are one-hot, √2 and 1.
All noise levels, the number of rounds and all constants below are functions of (ε, δ, m, d) alone.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from tacit.arrays import FloatArray
from tacit.engine import Facts, Message, Unprotected
from tacit.estimator import Home, PrivateLearner, learner
from tacit.estimator.open_scale import in_shared_units, units_of
from tacit.learners.mean_regularized.curator import Curator
from tacit.learners.mean_regularized.participant import VOTED, PriorMean, Tasks
from tacit.linear.batched import shared_mean, solve_path
from tacit.linear.losses import Loss, loss_named
from tacit.linear.model_averaging import LEAST_TRUST, STRONGEST, log_evidence
from tacit.linear.problems import Problems
from tacit.linear.single_task_fits import PENALTIES
from tacit.parameters import Count, Positive

__all__ = ["Curator", "MeanRegularized", "Tasks"]


@learner
class MeanRegularized(PrivateLearner):
    """One linear model per task, held to a shared mean as strongly as the data ask for.

    budget=None solves S2's objective (2) exactly and chooses λ by leave-one-out over all tasks.

    >>> from tacit.datasets import related_tasks
    >>> from tacit.privacy.budget import Budget
    >>> data = related_tasks(60, rng=np.random.default_rng(0))
    >>> model = MeanRegularized(budget=Budget(2.0), ranges=data.ranges, noise="simulated",
    ...                         random_state=0).fit(data.X, data.y, task=data.task)
    >>> model.coef_.shape
    (10, 60)
    """

    rounds: Count | Literal["auto"] = "auto"
    clip_norm: Positive | Literal["auto"] = "auto"

    def _open(self, home: Home) -> Message:
        return open_optimum(home)

    def _coordinator(self, facts: Facts) -> Curator:
        return Curator.planned(facts, None if self.rounds == "auto" else int(self.rounds))

    def _participant(self, home: Home, facts: Facts) -> Tasks:
        return Tasks(home, None if self.clip_norm == "auto" else float(self.clip_norm))

    def _at_home(self, home: Home, shared: Message) -> FloatArray:
        return PriorMean.of(shared).mixture(home)

    def _shared_model(self, shared: Message) -> FloatArray:
        prior = PriorMean.of(shared)
        return prior.mean * units_of(loss_named(self.loss), prior.target_scale, prior.feature_scale)


# --- the non-private twin ------------------------------------------------------------------------


def open_optimum(home: Home) -> Message:
    """S2's objective (2) solved exactly; λ of the mean by leave-one-out over all tasks together.

    The vote is the exact total log likelihood, as strong as a private one may get.
    """
    problems, loss = home.problems, home.loss
    target = 1.0 if loss.targets_are_classes or home.declared_target else _rms(problems.y)
    undeclared = ~home.declared_features
    columns = problems.X[:, :-1]
    feature = np.where(undeclared, _rms(columns[:, undeclared]), 1.0)
    vote = np.zeros((2, len(PENALTIES)))
    scaled = in_shared_units(home, target, feature)
    mean = max((_joined(scaled, loss, penalty) for penalty in VOTED[1:]), key=lambda f: f[0])[1]
    together = PriorMean(mean, True, 1 - LEAST_TRUST, False, vote, target, feature)
    total = together.options(scaled, loss)[1].sum(0)
    found = vars(together) | {"vote": np.maximum(total - total.max(), -STRONGEST)}
    return {name: Unprotected(value) for name, value in found.items()}


def _joined(problems: Problems, loss: Loss, penalty: float) -> tuple[float, FloatArray]:
    mean = shared_mean(problems, penalty, loss=loss)
    path = solve_path(problems, np.array([penalty]), loss=loss, mean=mean)
    return float(log_evidence(problems, path, loss).sum()), mean


def _rms(values: FloatArray) -> float:
    size = float(np.sqrt(np.mean(values**2))) if values.size else 0.0
    return 2 * size if size > 0 else 1.0
