"""tacit: learn together without telling.

Public names are resolved when they are first used (PEP 562), so that ``import tacit`` is light.

>>> import tacit
>>> tacit.Budget(1.0).epsilon
1.0
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tacit._version import __version__

if TYPE_CHECKING:
    from tacit.encoders.linear_encoder import TaskAwareEncoder
    from tacit.learners.async_proximal.estimator import AsyncProximal
    from tacit.learners.mean_regularized import MeanRegularized
    from tacit.learners.model_protected import (
        Decomposed,
        GroupSparse,
        LowRank,
        ModelProtected,
    )
    from tacit.learners.model_protected.averaged_model import AveragedModel
    from tacit.learners.model_protected.task_relationship import TaskRelationship
    from tacit.learners.pooled import Pooled
    from tacit.learners.shared_prior import SharedPrior
    from tacit.learners.single_task import SingleTask
    from tacit.privacy.budget import Budget, Guarantee
    from tacit.privacy.ledger import Ledger
    from tacit.privacy.release import Declared, Release
    from tacit.tasks import Column, TaskSet

_HOME = {
    "AsyncProximal": "tacit.learners.async_proximal.estimator",
    "AveragedModel": "tacit.learners.model_protected.averaged_model",
    "Budget": "tacit.privacy.budget",
    "Column": "tacit.tasks",
    "Declared": "tacit.privacy.release",
    "Decomposed": "tacit.learners.model_protected",
    "GroupSparse": "tacit.learners.model_protected",
    "Guarantee": "tacit.privacy.budget",
    "Ledger": "tacit.privacy.ledger",
    "LowRank": "tacit.learners.model_protected",
    "MeanRegularized": "tacit.learners.mean_regularized",
    "ModelProtected": "tacit.learners.model_protected",
    "Pooled": "tacit.learners.pooled",
    "Release": "tacit.privacy.release",
    "SharedPrior": "tacit.learners.shared_prior",
    "SingleTask": "tacit.learners.single_task",
    "TaskAwareEncoder": "tacit.encoders.linear_encoder",
    "TaskRelationship": "tacit.learners.model_protected.task_relationship",
    "TaskSet": "tacit.tasks",
}

__all__ = [
    "AsyncProximal",
    "AveragedModel",
    "Budget",
    "Column",
    "Declared",
    "Decomposed",
    "GroupSparse",
    "Guarantee",
    "Ledger",
    "LowRank",
    "MeanRegularized",
    "ModelProtected",
    "Pooled",
    "Release",
    "SharedPrior",
    "SingleTask",
    "TaskAwareEncoder",
    "TaskRelationship",
    "TaskSet",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name == "neural":  # needs PyTorch, so it comes when it is asked for
        return import_module("tacit.neural")
    if name not in _HOME:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
