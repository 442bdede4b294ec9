"""The PyTorch part: personal models in batch, federated rounds, finetuning, encoders.

Everything here runs with numpy, scipy, scikit-learn and PyTorch alone; the names below are
resolved when they are asked for, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.encoders.neural import TaskAwareEncoder
    from tacit.neural.federated import FederatedMTL

_HOME = {
    "FederatedMTL": "tacit.neural.federated",
    "TaskAwareEncoder": "tacit.encoders.neural",
}

__all__ = ["FederatedMTL", "TaskAwareEncoder"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
