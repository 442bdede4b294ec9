r"""The public plan of silos: who is protected from whom, what each release weighs and costs.

Everything here is a function of what is declared: the columns, the budgets, the number of people of
each silo (public under replace), the loss.

**The first release** are second moments (block_moments.py). Let R = Σ r_g over columns, numbers
weighing half as much as categories. Products with the constant get α² = .3 R, with the target
β² = .6 R, the target's sum γ = .3 R, and all squares together 3% of the rest of Δ². The optimum is
flat: twice or half as much of any is within a percent.

**The second** are scores: sums over people of w∘f · ψ, f = (1, v), ψ in [−1, 1] the residual at a
shared model, clipped at CLIP deviations and divided by that (of a class: the residual of its
probability). So ‖w∘f·ψ‖² ≤ C² = R + 1, whatever the row is, and Δ = 2C (replace).

μ-GDP adds in squares: the moments have the share FIRST of μ², the scores the rest. Residuals of
probabilities are no smaller than their classes, so that scores pay later: of two classes where μ
times the people of a silo is at least ENOUGH; else moments have everything. The constants were set
on generated tables.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tacit.arrays import FloatArray
from tacit.engine import Step
from tacit.errors import InvalidInput
from tacit.linear.losses import Loss
from tacit.privacy.accounting import Gaussian
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms import Blocks, GaussianSum, MomentsGaussian
from tacit.privacy.mechanisms.block_moments import NUMBER
from tacit.privacy.mechanisms.noisy_statistic import parameters
from tacit.privacy.mechanisms.wrapping import Wrapping
from tacit.privacy.release import Mechanism

MOMENTS, SCORES = "moments", "scores"
COUNT, SLOPE, TOTAL, SQUARES = 0.3, 0.6, 0.3, 0.03
NUMBER_WEIGHT = math.sqrt(0.5)
FIRST, FIRST_OF_CLASSES = 0.5, 0.3
CLIP = 2.0
ENOUGH = 70.0


@dataclass(frozen=True)
class InSeveralSilos(Wrapping[GaussianSum | MomentsGaussian]):
    """A release of each of so many silos of one person: together they reveal √s as much."""

    silos: int

    def event(self, neighbours: Neighbours) -> Gaussian:
        """Of all of them, by Gaussian DP."""
        return Gaussian(math.sqrt(self.silos) * self.of.event(neighbours).mu)

    def to_dict(self) -> dict[str, object]:
        """Name and parameters."""
        return parameters(self)


def blocks_for(levels: tuple[int, ...]) -> Blocks:
    """The weights of all products, for columns of these levels."""
    weights = tuple(NUMBER_WEIGHT if k == NUMBER else 1.0 for k in levels)
    R = max(1.0, float(Blocks(levels, weights, 1.0, 1.0, 1.0).radii.sum()))
    heavy = Blocks(levels, weights, math.sqrt(COUNT * R), math.sqrt(SLOPE * R), TOTAL * R)
    rest = replace(heavy, square=1e-9).sensitivity("replace")
    return replace(heavy, square=rest * math.sqrt(SQUARES / len(heavy.numbers)))


def first_share(loss: Loss, mu: float, people: float) -> float:
    """The share of μ² that moments have, at the most generous budget and so many people a silo.

    >>> from tacit.linear.losses import Logistic
    >>> first_share(Logistic(), 0.3, 100), first_share(Logistic(), 0.3, 1000)
    (1.0, 0.3)
    """
    if not loss.targets_are_classes:
        return FIRST
    return FIRST_OF_CLASSES if mu * people >= ENOUGH else 1.0


@dataclass(frozen=True)
class SiloPlan:
    """What one silo does, fixed before it starts."""

    blocks: Blocks
    loss: Loss
    mu: float  # what it may spend, as μ-GDP
    first: float = FIRST  # the share of μ² that moments have; 1: there are no scores
    neighbours: Neighbours = "replace"
    silos: int = 1  # in so many of them may a person be

    def __post_init__(self) -> None:
        if self.neighbours != "replace":
            raise InvalidInput(
                "where people inside a silo are protected their number is public: the budget must "
                f"have replace neighbours, got {self.neighbours!r}"
            )

    @property
    def score_weights(self) -> FloatArray:
        """(d,): w, coordinate by coordinate, 1 of the constant."""
        return np.array([1.0, *self.blocks.weights, 1.0])[self.blocks.owner + 1][:-1]

    @property
    def moments(self) -> MomentsGaussian:
        """The first release."""
        mu = self.mu * math.sqrt(self.first / self.silos)
        return MomentsGaussian.for_mu(self.blocks, mu, self.neighbours)

    @property
    def scores(self) -> GaussianSum:
        """The second."""
        mu = self.mu * math.sqrt((1 - self.first) / self.silos)
        longest = math.sqrt(float(self.blocks.radii.sum()) + 1)
        return GaussianSum.for_mu(longest, mu, self.neighbours)

    @property
    def steps(self) -> tuple[Step, ...]:
        """All releases, in order."""
        moments = Step(MOMENTS, self._known(self.moments))
        return (moments,) if self.first == 1 else (moments, Step(SCORES, self._known(self.scores)))

    def _known(self, mechanism: GaussianSum | MomentsGaussian) -> Mechanism:
        return mechanism if self.silos == 1 else InSeveralSilos(mechanism, self.silos)
