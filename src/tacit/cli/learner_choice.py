"""Which learner: the names on the command line, and what ``--learner auto`` stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.linear.losses import LossName
    from tacit.tasks import Schema

LEARNERS = {
    "shared": "SharedPrior",
    "mean": "MeanRegularized",
    "low-rank": "LowRank",
    "group-sparse": "GroupSparse",
    "decomposed": "Decomposed",
    "task-relationship": "TaskRelationship",
    "averaged": "AveragedModel",
    "async": "AsyncProximal",
}
"""The learners that a budget protects: the name on the command line -> the class in tacit."""

AUTOMATIC = "shared"
"""What ``auto`` stands for, whatever the data: it serves tasks around a mean, along few directions,
or with nothing in common, and becomes single-task learning where noise drowns what is shared
(docs/shared_prior.md has the numbers)."""

INSIDE_SILOS = ("shared", "mean")
"""The learners that can protect people inside tasks."""

NETWORKS = "neural.FederatedMTL"
"""How folders name the learner of networks, which ``fit`` does not offer."""

OF_NODES = "async"
"""The learner that protects each row of a task, from everybody outside it."""


def learner_names() -> list[str]:
    """What --learner takes."""
    return ["auto", *LEARNERS]


def require_learner(name: str) -> None:
    """Refuse a name that is no learner, suggesting the nearest."""
    from tacit.errors import InvalidInput, nearest

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

    if class_name == NETWORKS:
        return _networks()
    found = getattr(tacit, class_name) if class_name in tacit.__all__ else None
    if not (isinstance(found, type) and issubclass(found, MultiTaskEstimator)):
        raise InvalidInput(f"{class_name!r} is not a learner of tacit")
    return found


def _networks() -> Any:
    """The learner of networks, where PyTorch is."""
    from tacit.errors import InvalidInput

    try:
        from tacit.neural import FederatedMTL
    except ImportError:
        raise InvalidInput("networks need PyTorch: pip install 'tacit[neural]'") from None
    return FederatedMTL


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
