"""The estimator contract (contract.py), the two halves of a collaborative learner (halves.py), and
what a run may spend (planning.py)."""

from tacit.estimator.contract import MultiTaskEstimator
from tacit.estimator.halves import (
    Coordinator,
    Door,
    Home,
    Message,
    Participant,
    Progress,
    Public,
    Step,
    Transcript,
    Unprotected,
)
from tacit.estimator.planning import UNIT

__all__ = [
    "UNIT",
    "Coordinator",
    "Door",
    "Home",
    "Message",
    "MultiTaskEstimator",
    "Participant",
    "Progress",
    "Public",
    "Step",
    "Transcript",
    "Unprotected",
]
