"""Where and when the two halves of a learner run, and what may cross between parties."""

from tacit.engine.protocol import (
    Coordinator,
    Facts,
    Message,
    Outcome,
    Participant,
    Progress,
    Public,
    Step,
    Transcript,
    Unprotected,
)
from tacit.engine.rounds import run_rounds
from tacit.engine.trust import Edge

__all__ = [
    "Coordinator",
    "Edge",
    "Facts",
    "Message",
    "Outcome",
    "Participant",
    "Progress",
    "Public",
    "Step",
    "Transcript",
    "Unprotected",
    "run_rounds",
]
