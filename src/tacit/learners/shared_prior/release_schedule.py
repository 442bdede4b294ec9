"""Which releases a run makes, and what each may spend: by public facts alone.

``noise`` = Δ d^1.5/(μm), the spectral norm of the noise on an average second moment of d numbers
against the identity's one, decides how much can be learned at all:

==================  ==============================================================================
noise of a mean     above DROWNED: only level, size and votes, a handful of numbers
noise ≥ RICH        1, 2 or 3 rounds of directions, later ones in coordinates that are voted on
below               two rounds of directions with 40%, then refinement: generalised least squares
                    and EM steps, the more of them the less noise there is
==================  ==============================================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.arrays import FloatArray
from tacit.engine import Facts, Step
from tacit.estimator import open_scale
from tacit.linear.losses import Loss
from tacit.privacy.mechanisms import GaussianSum, SymmetricGaussian, VoteSum, sum_sensitivity
from tacit.privacy.mechanisms.sensitivities import covariance_sensitivity
from tacit.privacy.release import Mechanism

RICH, DROWNED = 0.03, 0.6
VOTES = 0.14  # of μ²: both votes at the end, of which the first takes
VARIANCES = 0.35
TARGETS = 0.05  # of what is left: level and size of the targets together
LENGTHS = 0.15  # the line searches
COORDINATES = 0.02  # the votes on those of later rounds
COARSE = 0.4  # the direction rounds of a rich run
REFINING = {"votes": 0.12, "information": 0.18, "scores": 0.7}
MOST_REFINEMENTS = 6
VOTERS = 10_000  # so many tasks' ballots say as much as more
ONE_ROUND = 5.0  # noise from which a second one shows no more than the first
TWO_LENGTHS = 0.1  # noise of a number from which a second line search is not worth it
BOTH = 0.4  # t of a first round of much noise, at least: it shows which of both is worth more
MEAN_ONLY = (4.0, 8.0)  # noise from which a moment gives way to the mean, and where it is given up
UNTRUSTED = (1.0, 2.0)  # the same of later rounds, where tasks do not trust what they saw of it


@dataclass(frozen=True)
class ReleaseSchedule:
    """The public plan of a run."""

    noise: float
    drowned: bool
    directions: int
    refinements: int
    tilt: float  # t of the first round: the constant beside a direction in one joint release
    steps: tuple[Step, ...]

    @classmethod
    def of(cls, facts: Facts) -> ReleaseSchedule:
        """From (μ, m, D), the loss and the declarations."""
        width, m = facts.width, facts.n_tasks
        noise = covariance_sensitivity(1.0, facts.neighbours) * width**1.5 / (facts.mu * m)
        of_number = sum_sensitivity(1.0, facts.neighbours) / (facts.mu * m)
        drowned = of_number * math.sqrt(width) > DROWNED
        rich = noise < RICH and not drowned
        directions = 0 if drowned else 2 if rich else direction_rounds(noise, of_number)
        refinements = refining_rounds(noise) if rich else 0
        shares = _shares(facts, directions, refinements)
        steps = tuple(Step(name, _mechanism(name, share, facts)) for name, share in shares)
        return cls(noise, drowned, directions, refinements, tilt_for(width, noise), steps)


def direction_rounds(noise: float, of_number: float) -> int:
    """A second look in better coordinates pays, unless the first sees nothing but noise, or there
    are too few tasks for two line searches: their noise is that of an average number.

    >>> [direction_rounds(noise, 0.03) for noise in (6.0, 2.0, 0.1)], direction_rounds(2.0, 0.2)
    ([1, 2, 3], 1)
    """
    if noise > ONE_ROUND or (noise > 1 and of_number > TWO_LENGTHS):
        return 1
    return 2 if noise > 0.2 else 3


def refining_rounds(noise: float) -> int:
    """As many as keep the noise of each low.

    >>> [refining_rounds(noise) for noise in (0.02, 0.01, 1e-6)]
    [2, 4, 6]
    """
    return int(min(MOST_REFINEMENTS, 1 + RICH / noise))


def score_width(noise: float) -> float:
    """The clip of a score, in usual lengths: what is cut off costs more the less noise there is.

    >>> [round(score_width(noise), 1) for noise in (0.02, 0.002, 1e-6)]
    [2.0, 3.5, 10.0]
    """
    return float(np.clip(2 * (0.01 / noise) ** 0.35, 2, 10))


def tilt_for(width: int, noise: float) -> float:
    """t: a mean of d numbers beside a moment of d(d+1)/2 needs the less weight the more there are;
    but where the moment drowns, t = 1, and the mean is as accurate as if it alone were released.

    >>> [round(tilt_for(27, noise), 3) for noise in (1.0, 2.0, 6.0, 10.0)]
    [0.283, 0.4, 0.751, 1.0]
    """
    least = BOTH if noise > 1 else 0.0
    return _towards_one(max(_beside(width), least), _within(noise, MEAN_ONLY))


def later_tilt(width: int, noise: float, trust: float) -> float:
    """t of a later round: where noise is large, and tasks trust none (of one) of the covariance
    seen so far, the mean alone is worth sending. x has norm one, whatever t is.

    >>> [round(later_tilt(27, 2.0, trust), 3) for trust in (1.0, 0.5, 0.0)]
    [0.283, 0.642, 1.0]
    """
    return _towards_one(_beside(width), (1 - trust) * _within(noise, UNTRUSTED))


def _beside(width: int) -> float:
    return float(min(0.5, 0.85 * width ** (-1 / 3)))


def _within(noise: float, bounds: tuple[float, float]) -> float:
    """Where log noise lies between two bounds: zero below, one above."""
    return float(np.interp(math.log(noise), np.log(bounds), (0.0, 1.0)))


def _towards_one(tilt: float, way: float) -> float:
    return tilt + way * (1 - tilt)


def _shares(facts: Facts, directions: int, refinements: int) -> list[tuple[str, float]]:
    """Names of the steps and their shares of μ², one in all."""
    unscaled = bool((~facts.declared_features).any() or not facts.declared_target)
    shares = [("scale", open_scale.SHARE)] if unscaled else []
    rest = 1 - sum(share for _, share in shares)
    targets = 0.0 if facts.loss.targets_are_classes else TARGETS
    if not directions and targets:
        shares += [("level", targets * rest), ("size", targets * rest)]
    lessons = (1 - VOTES) * rest
    coarse = COARSE * lessons if refinements else lessons
    if directions and targets:
        shares += [("level", targets / 2 * coarse), ("size", targets / 2 * coarse)]
    voted = COORDINATES * coarse if directions > 1 else 0.0
    moments = (1 - targets - LENGTHS) * coarse - voted
    for i in range(directions):
        if i:
            shares.append((f"coordinates {i}", voted / (directions - 1)))
        shares.append((f"directions {i}", moments / directions))
        shares.append((f"length {i}", LENGTHS * coarse / directions))
    for i in range(refinements):
        amount = (lessons - coarse) / refinements
        shares += [(_vote(i), REFINING["votes"] * amount)]
        shares += [(f"{kind} {i}", REFINING[kind] * amount) for kind in ("information", "scores")]
    left = 1 - sum(share for _, share in shares)
    last = (_vote(refinements), VARIANCES * left)
    return [*shares, last, ("priors", (1 - VARIANCES) * left)]


def _vote(number: int) -> str:
    """The vote on (c, s) before refinement ``number``, or after the last."""
    return f"adjustment {number}" if number else "variances 0"


def _mechanism(name: str, share: float, facts: Facts) -> Mechanism:
    """Votes and rows of norm one; outer products of vectors of norm one; Ã − I/2, of norm √D/2."""
    mu, neighbours = facts.mu * math.sqrt(share), facts.neighbours
    match name.split()[0]:
        case "scale" | "level" | "size" | "coordinates" | "variances" | "adjustment" | "priors":
            return VoteSum.for_mu(1.0, mu, neighbours)
        case "directions" | "scores":
            return SymmetricGaussian.for_mu(1.0, mu, neighbours)
        case "information":
            return GaussianSum.for_mu(math.sqrt(facts.width) / 2, mu, neighbours)
    return GaussianSum.for_mu(1.0, mu, neighbours)


def voting_share(n_tasks: int) -> float:
    """Of the tasks: whose ballots are asked for.

    Sums of k ballots, each within [0, 1], have a sampling error of √k/2 at most. At k = 10,000 that
    is 50, no more than what is indifferent anyway (½% or 1% of k), and noise is far below it.

    >>> voting_share(400), voting_share(1_000_000)
    (1.0, 0.01)
    """
    return min(1.0, VOTERS / n_tasks)


def is_wide(step: str) -> bool:
    """Whether a vote on (c, s) searches far, or close by."""
    return step.startswith("variances")


def reach(step: str) -> float:
    """How far an adjustment looks, over the usual: less and less, so that (c, s) settle.

    >>> [round(reach(f"adjustment {i}"), 2) for i in (1, 2, 3, 9)]
    [2.0, 1.41, 1.0, 0.5]
    """
    return float(max(0.5, 2 ** ((3 - int(step.split()[1])) / 2)))


def variance_grid(step: str, loss: Loss) -> tuple[FloatArray, FloatArray]:
    """The scales c and the noises, relative to s, that tasks vote on; a logistic task has no s."""
    if is_wide(step):
        decades = np.arange(-2.0, 4.0)
        nats = np.array([-4.5, -3.5, -2.7, -2, -1.4, -0.9, -0.4, 0.1])
    else:
        decades = reach(step) * np.linspace(-0.7, 0.7, 5)
        nats = reach(step) * np.linspace(-0.5, 0.5, 5)
    return 10.0**decades, np.ones(1) if loss.targets_are_classes else np.exp(nats)
