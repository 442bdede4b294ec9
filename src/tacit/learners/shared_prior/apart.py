"""Where nothing can be shared: far more columns than tasks, under noise that drowns a mean.

A model of 3,000 street names for 40 schools is no estimate of anything that schools have in common;
votes on its scale are all that could be released, and each task by itself does better without them
(from about twice as many columns as tasks on). So nothing is released, nothing is spent, and every
task is solved by itself. The rule is of public facts alone: (μ, m, D).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from tacit.engine import Facts, Public, Step
from tacit.learners.shared_prior.release_schedule import ReleaseSchedule
from tacit.privacy.release import Declared, Release

APART = "apart"
"""In what is shared: that nothing is."""

LEAST_WIDTH = 100  # of a model; below, sharing a little costs nothing
COLUMNS_PER_TASK = 2


@dataclass(frozen=True)
class NothingShared:
    """A coordinator without a release."""

    steps: tuple[Step, ...] = ()

    def start(self) -> Public:
        """The one constant."""
        return {APART: Declared(np.asarray(True))}

    def absorb(self, step: Step, shared: Public, release: Release) -> NoReturn:
        """There is nothing to absorb."""
        raise AssertionError(f"{step.name} is no step of a run without releases")


def must_stay_apart(facts: Facts) -> bool:
    """Whether so many columns, for so few tasks, are better left to each task."""
    wide = facts.width > max(LEAST_WIDTH, COLUMNS_PER_TASK * facts.n_tasks)
    return wide and bool(facts.mu) and ReleaseSchedule.of(facts).drowned
