"""S2's Algorithm 1 (PMTL) for linear models, line by line; and for any fixed Ω.

A broadcast is w̃, or one row of B W for each different row of B (linear/task_relations.py). The loss
is the sum over a task's rows and SGD takes all of them in each step; w_k begins at zero.

**Sensitivity.** A task moves all broadcasts together by γ‖B_·k‖/(q/m) at most, twice that under
replace: for the mean γ/q. With everybody in every round the noise of Theorem 1 is enough, and the
ledger says exactly how much it reveals. A cohort of q < m tasks is not amplified as the paper
claims: the others count themselves (docs/privacy.md, E).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit.arrays import FloatArray, IntArray
from tacit.engine import Message, Public, Step
from tacit.estimator import Home
from tacit.linear.row_algebra import or_zero, row_sums
from tacit.linear.task_relations import Omega
from tacit.linear.threads import isolated
from tacit.privacy.accounting import Approximate
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms import GaussianSum, clip_rows
from tacit.privacy.release import Declared, Release

VISIBLE = (
    "cohorts of a fixed size are not amplified under joint DP: the other tasks count themselves "
    "and learn who took part; ε is claimed, not proven"
)


@dataclass(frozen=True)
class Inputs:
    """Line 1: what the algorithm is given."""

    rounds: int  # T
    local_steps: int  # E
    penalty: float  # λ
    step: float  # η
    clip_norm: float  # γ
    cohort: int  # q = |S_t|
    omega: Omega
    intercept: bool  # whether the last coordinate is one; else it stays zero, as does its noise

    @property
    def n_tasks(self) -> int:
        """m."""
        return len(self.omega.matrix)

    @property
    def pull(self) -> float:
        """λs: how strongly a task is held to what it hears."""
        return self.penalty * self.omega.scale

    @property
    def reach(self) -> float:
        """max_k ‖B_·k‖: how far one task moves all broadcasts, in clip norms. 1/m for the mean."""
        return float(np.sqrt((self.omega.broadcasts[0] ** 2).sum(axis=0)).max())

    def chosen(self, seed: Sequence[int], number: int) -> IntArray:
        """Line 3: S_t, q of the m tasks, by coins of the trusted side."""
        coins = np.random.default_rng([*seed, number])
        return np.sort(coins.choice(self.n_tasks, self.cohort, replace=False))


@dataclass(frozen=True)
class ClaimedSum(GaussianSum):
    """A sum over a cohort of fixed size, and what the paper claims for it. It is no proof."""

    claim: tuple[float, float]

    def event(self, neighbours: Neighbours) -> Approximate:  # type: ignore[override]  # a claim
        """For either relation."""
        return Approximate(*self.claim)


@dataclass(frozen=True)
class GlobalLearner:
    """Line 8: from noisy sums of clipped updates to the next broadcasts."""

    inputs: Inputs
    width: int
    steps: tuple[Step, ...]

    def start(self) -> Public:
        """All models are zero, and so is every mean of them: (1, R, D)."""
        shape = 1, len(self.inputs.omega.broadcasts[0]), self.width
        return {"centres": Declared(np.zeros(shape))}

    def absorb(self, step: Step, shared: Public, release: Release) -> Public:
        """Every broadcast so far, and one more."""
        share = self.inputs.cohort / self.inputs.n_tasks

        def moved(centres: FloatArray, total: FloatArray) -> FloatArray:
            new = centres[-1] + total.reshape(centres.shape[1:]) / share
            new[:, -1] *= self.inputs.intercept
            return np.concatenate([centres, new[None]])

        return {"centres": Release.combine(moved, shared["centres"], release)}


@dataclass(frozen=True)
class TaskLearners:
    """Lines 4–6 and 11–14, for all tasks of this process."""

    home: Home
    inputs: Inputs
    seed: tuple[int, ...]
    members: IntArray  # (m,): which of all tasks they are

    def select(self, units: Sequence[int]) -> TaskLearners:
        """These tasks only, in this order."""
        members = self.members[np.asarray(units, dtype=np.int64)]
        return replace(self, home=self.home.select(units), members=members)

    @isolated()
    def contribute(
        self, step: Step, shared: Message, state: tuple[int, FloatArray] | None
    ) -> tuple[FloatArray, Any]:
        """(m, R·D): B_·k ⊗ the clipped update of task k, zero for who is not in the cohort."""
        centres = np.asarray(shared["centres"].value)
        number, models = len(centres) - 1, self.followed(centres[:-1], state)
        after = self.updated(models, centres[-1], number)
        update = or_zero(after - models, self.home.problems.speak(self.home.loss))
        clipped = clip_rows(update, self.inputs.clip_norm)
        weights = self.inputs.omega.broadcasts[0].T[self.members]  # (m, R)
        rows = (weights[:, :, None] * clipped[:, None, :]).reshape(len(clipped), -1)
        return rows, (number + 1, after)

    @isolated()
    def personal(self, centres: FloatArray) -> FloatArray:
        """Line 10: w_1, …, w_m; zero where that is no number."""
        return or_zero(self.followed(centres))

    def followed(
        self, centres: FloatArray, state: tuple[int, FloatArray] | None = None
    ) -> FloatArray:
        """(m, D): every w_k after these broadcasts, one round or a run that is taken up again."""
        if state is None:
            state = 0, np.zeros((len(self.members), centres.shape[2]))
        number, models = state
        for t in range(number, len(centres)):
            models = self.updated(models, centres[t], t)
        return models

    def updated(self, models: FloatArray, centres: FloatArray, number: int) -> FloatArray:
        """ClientUpdate of those in S_t: E steps w − η(∇l_k(w) + λs(w − c_k)); the others stay."""
        chosen = np.isin(self.members, self.inputs.chosen(self.seed, number))
        return np.where(chosen[:, None], self.trained(models, self._heard(centres)), models)

    def trained(self, W: FloatArray, heard: FloatArray) -> FloatArray:
        """Lines 12–14."""
        problems, loss, inputs = self.home.problems, self.home.loss, self.inputs
        for _ in range(inputs.local_steps):
            slope = loss.slope(row_sums(problems.X * W[problems.task]), problems.y)
            gradient = problems.sum_rows(problems.X * slope[:, None])
            W = W - inputs.step * (gradient + inputs.pull * (W - heard))
        return W

    def _heard(self, centres: FloatArray) -> FloatArray:
        return np.asarray(centres[self.inputs.omega.broadcasts[1][self.members]])


# --- Theorem 1 -----------------------------------------------------------------------------------


def theorem_1_sigma(
    clip_norm: float, rounds: int, n_tasks: int, epsilon: float, delta: float, constant: float = 4.0
) -> float:
    """σ = c γ√(T log(1/δ))/(mε), of the noise on w̃; c = 4 with everybody in every round.

    There it holds: μ = 2γ√T/(mσ) = ε/(2√log(1/δ)) under replace, so that the tail at ε is below
    exp(−2 log(1/δ) + ε/2) ≤ δ for ε ≤ 2 log(1/δ). For a cohort the paper names no constant.

    >>> round(theorem_1_sigma(1.0, 100, 500, 2.0, 1e-5), 6)
    0.135723
    """
    return constant * clip_norm * math.sqrt(rounds * math.log(1 / delta)) / (n_tasks * epsilon)
