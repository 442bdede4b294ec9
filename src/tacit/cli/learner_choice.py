"""Which learner: the names on the command line, and the public rule behind ``--learner auto``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.linear.losses import LossName
    from tacit.tasks import Schema

LEARNERS = {
    "mean": "MeanRegularized",
    "covariance": "CovariancePrior",
    "low-rank": "LowRank",
    "group-sparse": "GroupSparse",
    "decomposed": "Decomposed",
    "task-relationship": "TaskRelationship",
    "averaged": "AveragedModel",
}
"""The learners that a budget protects: the name on the command line -> the class in tacit."""

TASKS_PER_COLUMN = 15
FEWEST_TASKS = 200


def automatic(n_tasks: int, n_columns: int, loss: LossName) -> str:
    """The learner that ``auto`` stands for, by public facts alone.

    ========  =====================  ==========  ==============================================
    loss      tasks m, columns d     learner     because (docs/commands/fit.md has the numbers)
    ========  =====================  ==========  ==============================================
    squared   m ≥ 15·d and m ≥ 200   covariance  its d(d+1)/2 shared numbers stand out of the
                                                 noise, and it loses little where a mean is
                                                 right; a mean loses much where few directions
                                                 are
    squared   fewer                  mean        d numbers need fewer tasks than a covariance
    logistic  any                    mean        the same, measured on one real table only
    ========  =====================  ==========  ==============================================

    >>> automatic(139, 27, "squared"), automatic(5000, 18, "squared")
    ('mean', 'covariance')
    """
    enough = n_tasks >= max(TASKS_PER_COLUMN * n_columns, FEWEST_TASKS)
    return "covariance" if loss == "squared" and enough else "mean"


def learner_names() -> list[str]:
    """What --learner takes."""
    return ["auto", *LEARNERS]


def require_learner(name: str) -> None:
    """Refuse a name that is no learner, suggesting the nearest."""
    from tacit.errors import InvalidInput
    from tacit.tasks.tables import nearest

    known = learner_names()
    if name not in known:
        raise InvalidInput(
            f"--learner is {name!r}{nearest(name, known)}; expected one of {', '.join(known)}"
        )


def learner_class(class_name: str) -> Any:
    """The learner of that name, one of tacit's public names."""
    import tacit
    from tacit.errors import InvalidInput
    from tacit.estimator import MultiTaskEstimator

    found = getattr(tacit, class_name) if class_name in tacit.__all__ else None
    if not (isinstance(found, type) and issubclass(found, MultiTaskEstimator)):
        raise InvalidInput(f"{class_name!r} is not a learner of tacit")
    return found


def chosen_loss(asked: str, schema: Schema) -> LossName:
    """``auto``: a target declared as two categories is logistic, any other is squared."""
    from tacit.errors import InvalidInput

    declared: LossName = "squared" if schema.target.categories is None else "logistic"
    if asked == "auto" or asked == declared:
        return declared
    if asked == "logistic":
        raise InvalidInput("--loss logistic needs the target declared as two categories")
    if asked == "squared":
        raise InvalidInput("--loss squared needs the target declared as a number, not categories")
    raise InvalidInput(f"--loss is {asked!r}; expected auto, squared or logistic")
