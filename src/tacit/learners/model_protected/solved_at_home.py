"""What a task makes of S1's releases at home, after the last round; nothing of it is released."""

from __future__ import annotations

import math

import numpy as np

from tacit.arrays import FloatArray
from tacit.engine import Message
from tacit.learners.model_protected.tasks_and_curator import KINDS, Rules, Tasks
from tacit.linear.batched import Path, solve_path
from tacit.linear.covariance_maps import spread
from tacit.linear.losses import Loss
from tacit.linear.model_averaging import LEAST_TRUST, log_evidence, mixture, usual_penalties
from tacit.linear.prior_models import split_path, with_intercept
from tacit.linear.problems import Problems
from tacit.linear.row_algebra import or_zero
from tacit.linear.single_task_fits import INTERCEPT_VARIANCE, PENALTIES, best_alone, own_path
from tacit.linear.standardised import standardised
from tacit.linear.threads import isolated

HEARD = 1.1  # an eigenvalue of the covariance counts when it exceeds the noise by this factor


@isolated()
def solved_at_home(tasks: Tasks, shared: Message) -> FloatArray:
    """(m, D): Ŵ^(T); or, with refit, what each task finds best by its held-out rows.

    Zero where that is no number: nothing in a task's data stops a run.
    """
    return or_zero(_solved(tasks, shared))


def _solved(tasks: Tasks, shared: Message) -> FloatArray:
    rules = tasks.rules
    if not rules.refit or KINDS[rules.kind] == "tasks":
        return tasks.own.from_smooth(tasks.followed(shared).models)
    covariance, edge = np.asarray(shared["covariance"].value), float(shared["edge"].value)
    trust = trusted_share(covariance, edge)
    if trust == 0:  # Proposition 1, exactly
        return best_alone(tasks.home.problems, tasks.home.loss)
    loss = tasks.home.loss
    own = standardised(
        tasks.home.problems, loss, scaled=True
    )  # directions are the same in any units
    problems = own.problems
    usual = usual_penalties(PENALTIES, problems.X.shape[1])
    options = [(own_path(problems, loss), math.log(max(1 - trust, LEAST_TRUST)) + usual)]
    for found, prior in _together(problems, loss, covariance, edge, rules):
        options.append((found, math.log(trust) + prior))
    coef = np.concatenate([found.coef for found, _ in options], axis=1)
    weights = [log_evidence(problems, found, loss) + prior for found, prior in options]
    return own.outwards(mixture(coef, np.concatenate(weights, axis=1)))


def trusted_share(covariance: FloatArray, edge: float) -> float:
    """How much of the strongest direction is not noise, in [0, 1]; 0 if none stands out of it."""
    sizes = covariance if covariance.ndim == 1 else np.linalg.eigvalsh(covariance)
    largest = float(sizes.max(initial=0.0))
    return 1 - edge / largest if largest > HEARD * edge and largest > 0 else 0.0


def _together(
    problems: Problems, loss: Loss, covariance: FloatArray, edge: float, rules: Rules
) -> list[tuple[Path, FloatArray]]:
    """Paths under the shared prior, with everything or only what stands out of the noise."""
    usual = usual_penalties(PENALTIES, problems.X.shape[1])
    found = []
    for threshold in (0.0, edge):
        S = spread(covariance, threshold)
        if rules.own_penalty is None:
            prior = with_intercept(S, INTERCEPT_VARIANCE)
            found.append((solve_path(problems, PENALTIES, loss=loss, covariance=prior), usual))
        else:
            split = split_path(problems, loss, S, rules.own_penalty)
            found.append((split, np.zeros(len(split.penalties))))
    return found
