"""Where and when the two halves of a learner run, and what may cross between parties."""

from tacit.engine.rounds import run_rounds
from tacit.engine.trust import Edge

__all__ = ["Edge", "run_rounds"]
