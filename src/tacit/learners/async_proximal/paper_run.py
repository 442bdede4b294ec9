"""A run of S3 as printed: its nodes, its server, and where it is after every iteration."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tacit.arrays import FloatArray
from tacit.engine import Message, Released, Unprotected, combined
from tacit.engine.arrivals import GRADIENT, Moment, Parties, Visit, moments
from tacit.errors import InvalidInput, NoiseWarning
from tacit.learners.async_proximal.formulations import Formulation, MeanLoss, mean_losses
from tacit.learners.async_proximal.paper_nodes import FirstNoise, PaperNode, PublishedNoise
from tacit.learners.async_proximal.plan import allowances
from tacit.learners.async_proximal.printed import Printed, as_printed
from tacit.learners.async_proximal.server import Server
from tacit.learners.async_proximal.updates import (
    Descent,
    LastGradients,
    curvature_with_own,
    largest_step,
)
from tacit.linear.losses import Loss
from tacit.linear.penalties import Penalty
from tacit.linear.problems import Problems
from tacit.linear.single_task_fits import best_alone
from tacit.linear.threads import one_blas_thread
from tacit.parameters import LARGEST
from tacit.privacy.mechanisms.clipping import clip_rows
from tacit.privacy.node_runs import node_doors
from tacit.privacy.planning import Door

DIVERGED = 100.0
"""Times as long as C₃: no column of a P that settled is, of rows and targets in their ranges."""


@dataclass(frozen=True)
class PaperRun:
    """Eq. (2) of these tasks, and how S3 goes about it."""

    settings: Printed
    tasks: list[MeanLoss]  # rows within C₁
    formulation: Formulation
    steps: tuple[float, float]  # α₁, α₂
    starts: FloatArray  # (T, D), q⁽⁰⁾

    @property
    def width(self) -> int:
        """D."""
        return int(self.tasks[0].X.shape[1])

    def parties(self, messages: int, door: Door | None) -> Parties:
        """The server and the nodes; without a door there is no noise, and the server is trusted."""
        kind = Descent if self.settings.server == "descent" else LastGradients
        update = kind(self.formulation.shared, self.formulation.shared_level, self.steps[1])
        server = Server(update, self.width, len(self.tasks))
        if door is None:
            nodes = [self._node(t, messages) for t in range(len(self.tasks))]
            return Parties(server, nodes, server_trusted=True)
        return Parties(server, self._noisy_nodes(messages, door), node_doors(door))

    def _node(self, t: int, messages: int) -> PaperNode:
        return PaperNode(
            self.tasks[t],
            self.formulation,
            messages,
            self.steps[0],
            self.starts[t],
            self.settings.own,
            self.settings.order,
        )

    def _noisy_nodes(self, messages: int, door: Door) -> list[PaperNode]:
        """At ε₁ and ε₂, or at equal parts of their budgets; one that has none left is silent."""
        nodes = []
        for t, allowed in enumerate(allowances(door, None)):
            half = allowed.rest.epsilon / messages / 2
            first, second = self.settings.epsilons or (half, half)
            rows, loss = len(self.tasks[t].y), self.tasks[t].loss
            S1, S2 = self.settings.sensitivities(loss, self.width, rows, self.steps[0])
            seed = None if door.rng is None else int(door.rng.integers(2**32))
            node = self._node(t, 0 if door.budgets[t] is None else messages)
            noises = FirstNoise(S1 / first, seed), PublishedNoise(S2, first, second)
            nodes.append(replace(node, first=noises[0], mechanism=noises[1]))
        return nodes

    def parts(self, parties: Parties, end: Moment, columns: int) -> Message:
        """P and Q, with zeros for columns that took no part; P as what was released, if it was."""
        server = parties.server
        assert isinstance(server, Server)
        P: Released = Unprotected(server.shared(end.server))
        if not parties.server_trusted:
            sent = [message[GRADIENT] for _, _, message in end.transcript]
            P = server.after(sent, end.arrivals)
        Q = Unprotected(own_parts(end))  # Algorithm 1 hides it, unnoised

        def padded(part: FloatArray) -> FloatArray:
            return np.vstack([part, np.zeros((columns - len(part), part.shape[1]))])

        return {"P": combined(padded, P), "Q": combined(padded, Q)}


def paper_run(
    settings: Printed,
    problems: Problems,
    loss: Loss,
    penalties: tuple[Penalty, Penalty],
    width: int,
) -> PaperRun:
    """With the first ``width`` columns of the problems: all of them, or all but the intercept."""
    starts = np.zeros((problems.n_tasks, width))
    if settings.start == "single-task":
        starts = best_alone(problems, loss)[:, :width]
    rows = clip_rows(problems.X[:, :width], settings.longest_row(width))
    tasks = mean_losses(Problems(rows, problems.y, problems.offsets), as_printed(loss))
    shared, own = penalties
    steps = _steps(settings, tasks, own)
    formulation = settings.formulation(shared, own, loss, steps[1])
    return PaperRun(settings, tasks, formulation, steps, starts)


def _steps(settings: Printed, tasks: list[MeanLoss], own: Penalty) -> tuple[float, float]:
    """α₁ and α₂; "safe": the largest that provably descends, which takes a look at X."""
    single, curvature = settings.own == "single", max(task.curvature for task in tasks)
    if own.is_ridge:
        tau = settings.eq2_own_level(own, tasks[0].loss)
        curvature = curvature + tau if single else curvature_with_own(curvature, tau)
    safe = largest_step(curvature, joint=single)
    given = (settings.own_step, settings.shared_step)
    first, second = (safe if step == "safe" else step for step in given)
    return first, second


# --- the trajectory ------------------------------------------------------------------------------


class Trajectory(NamedTuple):
    """A line for every ``record_every`` iterations, and the models then, each (T, D)."""

    lines: list[dict[str, float]]
    models: list[FloatArray]


def watched(
    run: PaperRun, parties: Parties, schedule: Iterable[Visit]
) -> tuple[Moment, Trajectory]:
    """Runs the schedule to its end, to where W stops moving, or to where it is beyond all bounds.

    What is seen on the way is the trusted side's private view.
    """
    found, before = Trajectory([], []), run.starts
    every, settings = run.settings.record_every * len(run.tasks), run.settings
    now: Moment | None = None
    with one_blas_thread(), np.errstate(all="ignore"):
        for now in moments(parties, schedule):
            if sum(now.sent) < every * (len(found.lines) + 1):
                continue
            line, models = _measured(run, parties, now)
            line["moved"] = float(np.linalg.norm(models - before))
            found.lines.append(line)
            found.models.append(models)
            before = models
            settled = settings.stop > 0 and line["moved"] <= settings.stop
            if settled or not line["moved"] < LARGEST:
                break
    if now is None:
        raise InvalidInput("no node sends anything")
    return now, found


def _measured(run: PaperRun, parties: Parties, now: Moment) -> tuple[dict[str, float], FloatArray]:
    """Where everybody is: in numbers, and W (T, D)."""
    server = parties.server
    assert isinstance(server, Server)
    P, Q = server.shared(now.server), own_parts(now)
    W, formulation = (P + Q).T, run.formulation
    level = run.settings.eq1_level(run.tasks[0].loss)
    losses = [task.value(w) for task, w in zip(run.tasks, W, strict=True)]
    line = {
        "iteration": sum(now.sent) // len(run.tasks),
        "messages": sum(now.sent),
        "time": now.time,
        "objective": sum(losses) + level * formulation.shared.value(W.T),  # Eq. (1)
        "split_objective": formulation.objective(run.tasks, P, Q),  # Eq. (2)
        "error": float(np.mean([_error(task, w) for task, w in zip(run.tasks, W, strict=True)])),
        "rank": int(np.linalg.matrix_rank(P)),
    }
    return line, W


def _error(task: MeanLoss, w: FloatArray) -> float:
    """On the rows of training: the share of wrong signs, or the mean square."""
    eta = task.X @ w
    if task.loss.targets_are_classes:
        return float(np.mean(np.sign(eta) != task.y))
    return float(np.mean((eta - task.y) ** 2))


def warn_of_divergence(settings: Printed, P: FloatArray) -> None:
    """NoiseWarning if P (D, T) is far from what S3 assumes of models; P follows from the releases,
    Q does not, and is not looked at."""
    longest, assumed = float(np.linalg.norm(P, axis=0).max()), settings.model_bounds[0]
    if not longest <= DIVERGED * assumed:
        warnings.warn(
            f"the run diverged: a column of P has length {longest:.1e}, where S3 assumes models "
            f"within {assumed:g}; smaller steps, fewer messages or more budget would help",
            NoiseWarning,
            stacklevel=2,
        )


def own_parts(now: Moment) -> FloatArray:
    """Q (D, T)."""
    return np.stack([state.q for state in now.nodes], axis=1)
