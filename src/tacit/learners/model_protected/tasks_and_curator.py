"""The two halves of S1's proximal algorithms (2, 3 and 4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from tacit.arrays import FloatArray, IntArray
from tacit.engine import Message, Public, Step
from tacit.errors import InvalidInput
from tacit.estimator import Home
from tacit.learners.model_protected.covariance_schedule import Kind
from tacit.linear.covariance_maps import applied, group_map, trace_map
from tacit.linear.losses import Loss
from tacit.linear.penalties import ColumnNorm, L1Norm, Penalty, SquaredNorm
from tacit.linear.problems import Problems
from tacit.linear.proximal import lasso_alone
from tacit.linear.row_algebra import or_zero
from tacit.linear.single_task_fits import best_alone
from tacit.linear.standardised import Standardised, standardised
from tacit.linear.threads import isolated
from tacit.privacy.mechanisms import clip_rows
from tacit.privacy.release import Declared, Release

Start = Literal["ridge", "lasso", "zeros"] | Callable[[Problems, Loss], FloatArray]

Noised = Callable[[int], FloatArray | None]
"""Algorithm 5, as printed: the noisy models (m, d) of each step, with which tasks go on."""

SHIFT = {"full": 1.25, "diagonal": 2.0, "tasks": 1.25}  # c, in edges of the noise: none is lost

OWN_PENALTIES: dict[str, Penalty] = {
    "l1": L1Norm(),
    "column": ColumnNorm(),
    "squared": SquaredNorm(),
}
STARTS: tuple[Literal["ridge", "lasso", "zeros"], ...] = ("ridge", "lasso", "zeros")
KINDS: tuple[Kind, ...] = ("full", "diagonal", "tasks")


# --- what everybody knows ------------------------------------------------------------------------


@dataclass(frozen=True)
class Rules:
    """Public constants of a run: declared, or a fixed rule of (ε, δ, m, d)."""

    kind: int  # of KINDS
    clip_norm: float
    own_units: bool  # each task scales itself; otherwise clip_norm is in the units given
    own_step: bool  # each task divides its loss by its curvature; otherwise η is of ΣL_i + λΩ(W)
    level: float  # ηλ
    step: float  # η
    strong_convexity: float
    accelerated: bool
    literal: bool  # as printed: iterates clipped too, min(d, m) eigenvalues, Q from W
    refit: bool
    start: int  # of STARTS; −1: a function of the user's
    own: int  # of OWN_PENALTIES; −1: the model is not decomposed
    own_level: float  # ηλ₂
    momenta: tuple[float, ...] = ()  # β_t of every round, where they were given

    def declared(self) -> dict[str, Declared]:
        """As part of the shared state."""
        every = {field.name: getattr(self, field.name) for field in fields(self)}
        return {k: Declared(np.array(v) if isinstance(v, tuple) else v) for k, v in every.items()}

    @classmethod
    def of(cls, shared: Message) -> Rules:
        """Read from the shared state; a folder of before ``momenta`` has none."""
        kinds = {"int": int, "float": float, "bool": bool, "tuple[float, ...]": tuple}
        there = [field for field in fields(cls) if field.name in shared]
        return cls(**{f.name: kinds[str(f.type)](shared[f.name].value) for f in there})

    def momentum(self, t: int) -> float:
        """β_t: given; or S1 §4.5's 0, (t−1)/(t+2), or (1 − √(μ/L))/(1 + √(μ/L)), L = 1/η."""
        if self.momenta:
            return float(self.momenta[t - 1])
        if not self.accelerated:
            return 0.0
        if self.strong_convexity == 0:
            return (t - 1) / (t + 2)
        root = math.sqrt(self.strong_convexity * self.step)
        return (1 - root) / (1 + root)

    @property
    def own_penalty(self) -> Penalty | None:
        """Ω of Q."""
        return None if self.own < 0 else list(OWN_PENALTIES.values())[self.own]


# --- the participant half ------------------------------------------------------------------------


@dataclass(frozen=True)
class State:
    """Where all tasks are between two rounds; rows (m, D)."""

    W: FloatArray  # W^(t), or P^(t)
    previous: FloatArray | None  # Ŵ^(t), or P̂^(t); None: Ŵ^(0) = W̃^(0), once it is known
    Q: FloatArray
    previous_Q: FloatArray
    round: int

    @property
    def models(self) -> FloatArray:
        """Ŵ^(t): what the algorithm returns."""
        assert self.previous is not None  # a run has at least one round
        return self.previous + self.previous_Q


@dataclass(frozen=True)
class Tasks:
    """All tasks of this process: private data in, models out, round by round."""

    home: Home
    rules: Rules
    first: Callable[[Problems, Loss], FloatArray]
    own: Standardised
    noised: Noised | None = None
    members: IntArray | None = None  # (m,): which of all tasks they are; None: all, or newcomers

    @classmethod
    def at(
        cls, home: Home, rules: Rules, start: Start | None = None, noised: Noised | None = None
    ) -> Tasks:
        """At home, in units that the rules say; ``start`` is the function if the user gave one."""
        first = starting(start if callable(start) else STARTS[max(rules.start, 0)])
        own = standardised(home.problems, home.loss, scaled=rules.own_units)
        return cls(home, rules, first, own, noised)

    def select(self, units: Sequence[int]) -> Tasks:
        """These tasks only, in this order."""
        chosen, home = np.asarray(units, dtype=np.int64), self.home.select(units)
        own = standardised(home.problems, home.loss, scaled=self.rules.own_units)
        members = chosen if self.members is None else self.members[chosen]
        return replace(self, home=home, own=own, members=members)

    def begin(self) -> State:
        """W^(0), by a single-task learner."""
        W = self.own.inwards(self.first(self.home.problems, self.home.loss))
        zero = np.zeros_like(W)
        if self.rules.own < 0:
            return State(W, None, zero, zero, 0)
        Q = np.where(np.arange(W.shape[1]) < W.shape[1] - 1, W, 0.0) if self.rules.literal else zero
        return State(W, None, Q, Q, 0)  # Algorithm 4, steps 2 and 4

    @isolated()
    def contribute(
        self, step: Step, shared: Message, state: State | None
    ) -> tuple[FloatArray, Any]:
        """The models of all tasks; the mechanism clips them (Algorithm 2, step 3)."""
        state = self.followed(shared, state)
        return or_zero(state.W[:, :-1], self.home.problems.speak(self.home.loss)), state

    def followed(self, shared: Message, state: State | None = None) -> State:
        """Where all tasks are after every map so far: one more round, or a run that resumes."""
        state = self.begin() if state is None else state
        for shared_map in shared["maps"].value[state.round :]:
            state = self.advance(state, shared_map)
        return state

    def advance(self, state: State, shared_map: FloatArray) -> State:
        """Algorithm 2, steps 9–11 (3: 8–10; 4: 10–16); Ŵ and then the next gradient step."""
        t, rules = state.round + 1, self.rules
        W_tilde = self._tilde(state)
        before = W_tilde if state.previous is None else state.previous
        W_hat = self._mapped(shared_map, W_tilde)
        Q_hat = state.Q
        if rules.own_penalty is not None:
            Q_hat = state.Q.copy()
            Q_hat[:, :-1] = rules.own_penalty.prox(state.Q[:, :-1].T, rules.own_level).T
        beta = rules.momentum(t)
        Z = W_hat + beta * (W_hat - before)
        Z_own = Q_hat + beta * (Q_hat - state.previous_Q)
        slope = self.own.smooth.gradient(Z + Z_own)
        if not rules.own_step:
            slope *= self.own.curvature[:, None]
        slope[:, :-1] += rules.strong_convexity * (Z + Z_own)[:, :-1]
        W, Q = Z - rules.step * slope, Z_own
        if rules.own >= 0:
            Q = Z_own - rules.step * np.column_stack([slope[:, :-1], np.zeros(len(slope))])
        return State(W, W_hat, Q, Q_hat, t)

    def _mapped(self, shared_map: FloatArray, W: FloatArray) -> FloatArray:
        if KINDS[self.rules.kind] == "tasks":
            shared_map = self._own_factors(shared_map)[:, None]
        return np.column_stack([applied(shared_map, W[:, :-1]), W[:, -1]])

    def _own_factors(self, shared_map: FloatArray) -> FloatArray:
        """(m,): each task's own factor; a newcomer has the average one."""
        if self.members is not None:
            return shared_map[self.members]
        m = self.home.problems.n_tasks
        return shared_map if len(shared_map) == m else np.full(m, shared_map.mean())

    def _tilde(self, state: State) -> FloatArray:
        """W̃^(t): as printed the clipped models, or (Algorithm 5) the noisy ones; else W^(t)."""
        W = state.W
        if not self.rules.literal:
            return W
        noisy = None if self.noised is None else self.noised(state.round)
        if noisy is None:
            noisy = clip_rows(W[:, :-1], self.rules.clip_norm)
        elif self.members is not None:
            noisy = noisy[self.members]
        return np.column_stack([noisy, W[:, -1]])


def one_at_a_time(
    start: Callable[[Problems, Loss], FloatArray],
) -> Callable[[Problems, Loss], FloatArray]:
    """The user's function, called with one task each time: it cannot pool what it never sees."""

    def first(problems: Problems, loss: Loss) -> FloatArray:
        models = [start(task, loss) for task in problems.chunks(most=1)]
        expected = (1, problems.X.shape[1])
        for found in models:
            shape = getattr(found, "shape", None)
            if shape != expected or found.dtype.kind not in "fiu":
                seen = f"{type(found).__name__}" if shape is None else f"{shape} of {found.dtype}"
                raise InvalidInput(
                    "start is called with one task and returns its model, intercept last: an "
                    f"array of numbers, expected shape {expected}, got {seen}"
                )
        return np.concatenate(models, dtype=np.float64)

    return first


def starting(start: Start) -> Callable[[Problems, Loss], FloatArray]:
    """W^(0) of all tasks, each by itself."""
    if callable(start):
        return one_at_a_time(start)
    if start == "zeros":
        return lambda problems, loss: np.zeros((problems.n_tasks, problems.X.shape[1]))
    return lasso_alone if start == "lasso" else best_alone


# --- the coordinator half ------------------------------------------------------------------------


@dataclass(frozen=True)
class Curator:
    """Post-processing of releases; every number here is public."""

    rules: Rules
    steps: tuple[Step, ...]
    edges: tuple[float, ...]  # of the noise of each round
    n_tasks: int
    dim: int

    def start(self) -> Public:
        """The rules, and nothing else."""
        kind = KINDS[self.rules.kind]
        side = self.n_tasks if kind == "tasks" else self.dim
        shape = (side, side) if kind == "full" else (side,)
        return {
            **self.rules.declared(),
            "maps": Declared(np.zeros((0, *shape))),
            "covariance": Declared(np.zeros((self.dim, self.dim) if kind == "full" else shape)),
            "edge": Declared(_average_edge(self.edges)),
        }

    def absorb(self, step: Step, shared: Public, release: Release) -> Public:
        """One more map, and the average of all covariances so far."""
        t = self.steps.index(step)
        new = release.map(lambda covariance: self.shared_map(covariance, self.edges[t])[None])
        precision = np.array([edge**-2.0 if edge > 0 else 1.0 for edge in self.edges])
        weight = float(precision[t] / precision.sum())
        diagonal = KINDS[self.rules.kind] != "full"

        def added(old: FloatArray, covariance: FloatArray) -> FloatArray:
            part = np.diag(covariance) if diagonal and covariance.ndim == 2 else covariance
            return np.asarray(old + weight * part)

        return {
            **shared,
            "maps": Release.combine(lambda a, b: np.concatenate([a, b]), shared["maps"], new),
            "covariance": Release.combine(added, shared["covariance"], release),
        }

    def shared_map(self, covariance: FloatArray, edge: float) -> FloatArray:
        """M^(t) of Σ^(t) + cI, c above the edge of the noise (0 where the noise is positive)."""
        rules, kind = self.rules, KINDS[self.rules.kind]
        shift = SHIFT[kind] * edge
        if kind == "diagonal":
            diagonal = np.diag(covariance) if covariance.ndim == 2 else covariance
            return group_map(
                diagonal if rules.literal else np.maximum(diagonal + shift, 0.0), rules.level
            )
        most = min(self.dim, self.n_tasks) if rules.literal else None
        M = trace_map(covariance + shift * np.eye(len(covariance)), rules.level, most)
        return np.diag(M).copy() if kind == "tasks" else M


def _average_edge(edges: tuple[float, ...]) -> float:
    """Of Σ_t Σ^(t)/edge_t², normalised: noise adds in squares."""
    if min(edges, default=0.0) <= 0:
        return 0.0
    return float(np.sum(np.asarray(edges) ** -2.0) ** -0.5)
