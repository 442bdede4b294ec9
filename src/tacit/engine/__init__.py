"""Where and when the two halves of a learner run, and what may cross between parties."""

from tacit.engine.protocol import (
    Contributions,
    Coordinator,
    Facts,
    Message,
    Outcome,
    Participant,
    Progress,
    Public,
    Released,
    Step,
    Transcript,
    Unprotected,
    combined,
)
from tacit.engine.rounds import CURATOR, require_isolation, run_rounds
from tacit.engine.trust import Edge

__all__ = [
    "CURATOR",
    "Contributions",
    "Coordinator",
    "Edge",
    "Facts",
    "Message",
    "Outcome",
    "Participant",
    "Progress",
    "Public",
    "Released",
    "Step",
    "Transcript",
    "Unprotected",
    "combined",
    "require_isolation",
    "run_rounds",
]
