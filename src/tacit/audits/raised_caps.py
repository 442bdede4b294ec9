r"""Ours: a cap that is raised after seeing output promises nothing.

A filter lets releases be chosen adaptively as long as their total stays below a cap, *fixed before
the first output*. Our first version took the budget of the newest run as the cap of all of them, so
a second run with a larger budget was a cap raised after looking. The analyst's game: spend all of
ε₁; while the privacy loss so far is below what was printed, raise the cap to the next ε_k and spend
the difference; stop when it is above. Printed is the ε_k of the stop, with one δ. If the printed
pair were true then over all stops S_k, for both neighbours P and Q,

.. math:: Σ_k [P(S_k) − e^{ε_k} Q(S_k)] ≤ δ.

Sampling from P alone, each path has (1 − e^{ε_k − L})₊ at its stop, L its loss: a number in [0, 1],
whose mean is the left side. Its lower bound is Maurer and Pontil's (2009, Theorem 4). What is
reported is how much every printed ε must be raised at least for the sum to come down to δ.

Now: without a cap ε and δ both add up, run by run; a ladder of caps is declared beforehand, with δ
split over its rungs, and each rung is held to its own part.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from tacit.arrays import FloatArray
from tacit.audits.cases import Asked, Audit, Case, task_claim
from tacit.privacy.accounting import Approximate, gaussian_epsilon, gaussian_mu
from tacit.privacy.auditing import AuditResult
from tacit.rounding import rounded_down

RAISES = 10
GROWTH = 1.3  # each cap over the one before


@dataclass(frozen=True)
class Game:
    """What is printed after each run, and the μ of everything released until then; (K,) each."""

    epsilons: FloatArray
    mus: FloatArray
    delta: float  # what was printed with the last


Play = Callable[[float, float], Game]


def caps(epsilon: float) -> FloatArray:
    """ε_k, each larger by GROWTH."""
    return np.asarray(epsilon * GROWTH ** np.arange(RAISES))


def raised(epsilon: float, delta: float) -> Game:
    """As it was: every run spends what its own budget leaves, at the same δ."""
    every = caps(epsilon)
    return Game(every, np.array([gaussian_mu(e, delta) for e in every]), delta)


def added(epsilon: float, delta: float) -> Game:
    """As it is: the same releases, each run at its own price, ε and δ added; δ in all."""
    mus = raised(epsilon, delta / RAISES).mus
    own = np.sqrt(np.diff(mus**2, prepend=0.0))
    prices = [gaussian_epsilon(delta / RAISES, float(mu)) for mu in own]
    return Game(np.cumsum(prices), mus, delta)


def ladder(epsilon: float, delta: float) -> Game:
    """As it may be: the caps declared beforehand, each with its part of δ."""
    every = caps(epsilon)
    return Game(every, np.array([gaussian_mu(e, delta / RAISES) for e in every]), delta)


def losses_at_stop(game: Game, rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
    """For n paths: the privacy loss where the analyst stops, and the ε that is printed there.

    The loss of Gaussian releases of total μ is N(μ²/2, μ²): a path in μ².
    """
    steps = np.diff(game.mus**2, prepend=0.0)
    paths = np.cumsum(steps / 2 + np.sqrt(steps) * rng.standard_normal((n, len(steps))), axis=1)
    above = paths > game.epsilons
    stop = np.where(above.any(axis=1), above.argmax(axis=1), len(steps) - 1)
    return paths[np.arange(n), stop], game.epsilons[stop]


def least_excess(
    losses: FloatArray, printed: FloatArray, delta: float, mistake: float
) -> tuple[float, float]:
    """How much each printed ε must rise at least, and a lower bound on the left side at 0.

    The rise is chosen on one half of the paths, and bounded on the other.
    """
    half = len(losses) // 2
    beyond = losses - printed
    rises = np.linspace(0.0, max(float(beyond[:half].max(initial=0.0)), 1e-9), 200)
    found = [r for r in rises if _least_mean(_lost(beyond[:half] - r), mistake) > delta]
    rise = found[-1] / 2 if found else 0.0
    sure = _least_mean(_lost(beyond[half:] - rise), mistake)
    return (rise if sure > delta else 0.0), _least_mean(_lost(beyond[half:]), mistake)


def _lost(beyond: FloatArray) -> FloatArray:
    return np.asarray(-np.expm1(-np.maximum(beyond, 0.0)))


def _least_mean(values: FloatArray, mistake: float) -> float:
    """A lower bound on the mean of numbers in [0, 1], wrong with probability ``mistake``."""
    n, log = len(values), math.log(2 / mistake)
    spread = math.sqrt(2 * float(values.var(ddof=1)) * log / n)
    return float(values.mean()) - spread - 7 * log / (3 * (n - 1))


def stopped(play: Play, printed: str, asked: Asked) -> AuditResult:
    """The analyst's game, against what was printed."""
    game = play(asked.epsilon, asked.delta)
    seed = asked.some_seed()
    losses, epsilons = losses_at_stop(game, np.random.default_rng(seed), asked.samples)
    rise, least = least_excess(losses, epsilons, asked.delta, (1 - asked.confidence) / 2)
    return AuditResult(
        name="caps",
        claim=task_claim(Approximate(asked.epsilon, asked.delta), printed, read_at=asked.delta),
        pair="two tasks that every release tells apart by its μ",
        statistic="privacy loss at the stop, less the ε printed there; δ is at least "
        + rounded_down(least, 2),
        event="the loss is above what was printed",
        counts=(),
        epsilon_low=asked.epsilon + rise if rise > 0 else 0.0,
        mu_low=None,
        confidence=asked.confidence,
        seed=seed,
    )


def raised_cap_audits() -> tuple[Audit, ...]:
    """Our first form, and the two that replace it."""

    def case(name: str, play: Play, printed: str, *, flawed: bool = False) -> Case:
        return Case(name, partial(stopped, play, printed), 0.5, 1e-3, 400_000, flawed)

    return (
        Audit(
            "caps",
            "several runs on one ledger: a cap that is raised after seeing output",
            (
                case("caps, raised ten times", raised, "tacit 0.1: the newest budget", flawed=True),
                case("caps, none: ε and δ added", added, "Ledger.statement"),
                case("caps, a ladder declared beforehand", ladder, "Ledger(cap=[...])"),
            ),
        ),
    )
