"""The two halves of S1's algorithms, and what a task makes of the releases at home."""

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
from tacit.linear.batched import Path, solve_path
from tacit.linear.covariance_maps import applied, group_map, spread, trace_map
from tacit.linear.losses import Loss
from tacit.linear.model_averaging import LEAST_TRUST, log_evidence, mixture, usual_penalties
from tacit.linear.penalties import ColumnNorm, L1Norm, Penalty, SquaredNorm
from tacit.linear.prior_models import split_path, with_intercept
from tacit.linear.problems import Problems
from tacit.linear.proximal import lasso_alone
from tacit.linear.row_algebra import or_zero
from tacit.linear.single_task_fits import INTERCEPT_VARIANCE, PENALTIES, best_alone, own_path
from tacit.linear.standardised import Standardised, standardised
from tacit.linear.threads import isolated
from tacit.privacy.mechanisms import clip_rows
from tacit.privacy.release import Declared, Release

Start = Literal["ridge", "lasso", "zeros"] | Callable[[Problems, Loss], FloatArray]

SHIFT = {"full": 1.25, "diagonal": 2.0, "tasks": 1.25}  # c, in edges of the noise: none is lost
HEARD = 1.1  # an eigenvalue of the covariance counts when it exceeds the noise by this factor

OWN_PENALTIES: dict[str, Penalty] = {
    "l1": L1Norm(),
    "column": ColumnNorm(),
    "squared": SquaredNorm(),
}
STARTS = ("ridge", "lasso", "zeros")
KINDS: tuple[Kind, ...] = ("full", "diagonal", "tasks")


# --- what everybody knows ------------------------------------------------------------------------


@dataclass(frozen=True)
class Rules:
    """Public constants of a run: declared, or a fixed rule of (ε, δ, m, d)."""

    kind: int  # of KINDS
    clip_norm: float
    own_units: bool  # each task scales itself; otherwise clip_norm is in the units given
    level: float  # ηλ
    step: float  # η
    strong_convexity: float
    accelerated: bool
    literal: bool  # as printed: iterates clipped too, min(d, m) eigenvalues, Q from W
    refit: bool
    start: int  # of STARTS; −1: a function of the user's
    own: int  # of OWN_PENALTIES; −1: the model is not decomposed
    own_level: float  # ηλ₂

    def declared(self) -> dict[str, Declared]:
        """As part of the shared state."""
        return {field.name: Declared(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def of(cls, shared: Message) -> Rules:
        """Read from the shared state."""
        kinds = {"int": int, "float": float, "bool": bool}
        return cls(**{f.name: kinds[str(f.type)](shared[f.name].value) for f in fields(cls)})

    def momentum(self, t: int) -> float:
        """β_t of S1 §4.5: 0; (t−1)/(t+2); or, with L = 1 + μ, (1 − √(μ/L))/(1 + √(μ/L))."""
        if not self.accelerated:
            return 0.0
        if self.strong_convexity == 0:
            return (t - 1) / (t + 2)
        root = math.sqrt(self.strong_convexity / (1 + self.strong_convexity))
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
    previous: FloatArray  # Ŵ^(t), or P̂^(t)
    Q: FloatArray
    previous_Q: FloatArray
    round: int

    @property
    def models(self) -> FloatArray:
        """Ŵ^(t): what the algorithm returns."""
        return self.previous + self.previous_Q


@dataclass(frozen=True)
class Tasks:
    """All tasks of this process: private data in, models out, round by round."""

    home: Home
    rules: Rules
    first: Callable[[Problems, Loss], FloatArray]
    own: Standardised
    members: IntArray | None = None  # (m,): which of all tasks they are; None: all, or newcomers

    @classmethod
    def at(cls, home: Home, rules: Rules, start: Start | None = None) -> Tasks:
        """At home, in units that the rules say; ``start`` is the function if the user gave one."""
        first = one_at_a_time(start) if callable(start) else _starts(rules.start)
        return cls(
            home, rules, first, standardised(home.problems, home.loss, scaled=rules.own_units)
        )

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
            return State(W, self._clipped(W), zero, zero, 0)
        Q = np.where(np.arange(W.shape[1]) < W.shape[1] - 1, W, 0.0) if self.rules.literal else zero
        return State(W, self._clipped(W), Q, Q, 0)  # Algorithm 4, steps 2 and 4

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
        W_hat = self._mapped(shared_map, self._clipped(state.W))
        Q_hat = state.Q
        if rules.own_penalty is not None:
            Q_hat = state.Q.copy()
            Q_hat[:, :-1] = rules.own_penalty.prox(state.Q[:, :-1].T, rules.own_level).T
        beta = rules.momentum(t)
        Z = W_hat + beta * (W_hat - state.previous)
        Z_own = Q_hat + beta * (Q_hat - state.previous_Q)
        slope = self.own.smooth.gradient(Z + Z_own)
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

    def _clipped(self, W: FloatArray) -> FloatArray:
        if not self.rules.literal:
            return W
        return np.column_stack([clip_rows(W[:, :-1], self.rules.clip_norm), W[:, -1]])


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


def _starts(number: int) -> Callable[[Problems, Loss], FloatArray]:
    if number == STARTS.index("lasso"):
        return lasso_alone
    if number == STARTS.index("zeros"):
        return lambda problems, loss: np.zeros((problems.n_tasks, problems.X.shape[1]))
    return best_alone


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


# --- what a task makes of it, at home ------------------------------------------------------------


@isolated()
def solved_at_home(tasks: Tasks, shared: Message) -> FloatArray:
    """(m, D): Ŵ^(T); or, with refit, what each task finds best by its held-out rows.

    Zero where that is no number: nothing in a task's data stops a run.
    """
    return or_zero(_solved(tasks, shared))


def _solved(tasks: Tasks, shared: Message) -> FloatArray:
    rules = tasks.rules
    if not rules.refit or KINDS[rules.kind] == "tasks":
        return tasks.own.from_smooth(tasks.followed(shared).models)
    covariance, edge = np.asarray(shared["covariance"].value), float(shared["edge"].value)
    trust = trusted_share(covariance, edge)
    if trust == 0:  # Proposition 1, exactly
        return best_alone(tasks.home.problems, tasks.home.loss)
    loss = tasks.home.loss
    own = standardised(
        tasks.home.problems, loss, scaled=True
    )  # directions are the same in any units
    problems = own.problems
    usual = usual_penalties(PENALTIES, problems.X.shape[1])
    options = [(own_path(problems, loss), math.log(max(1 - trust, LEAST_TRUST)) + usual)]
    for found, prior in _together(problems, loss, covariance, edge, rules):
        options.append((found, math.log(trust) + prior))
    coef = np.concatenate([found.coef for found, _ in options], axis=1)
    weights = [log_evidence(problems, found, loss) + prior for found, prior in options]
    return own.outwards(mixture(coef, np.concatenate(weights, axis=1)))


def trusted_share(covariance: FloatArray, edge: float) -> float:
    """How much of the strongest direction is not noise, in [0, 1]; 0 if none stands out of it."""
    sizes = covariance if covariance.ndim == 1 else np.linalg.eigvalsh(covariance)
    largest = float(sizes.max(initial=0.0))
    return 1 - edge / largest if largest > HEARD * edge and largest > 0 else 0.0


def _together(
    problems: Problems, loss: Loss, covariance: FloatArray, edge: float, rules: Rules
) -> list[tuple[Path, FloatArray]]:
    """Paths under the shared prior, with everything or only what stands out of the noise."""
    usual = usual_penalties(PENALTIES, problems.X.shape[1])
    found = []
    for threshold in (0.0, edge):
        S = spread(covariance, threshold)
        if rules.own_penalty is None:
            prior = with_intercept(S, INTERCEPT_VARIANCE)
            found.append((solve_path(problems, PENALTIES, loss=loss, covariance=prior), usual))
        else:
            split = split_path(problems, loss, S, rules.own_penalty)
            found.append((split, np.zeros(len(split.penalties))))
    return found
