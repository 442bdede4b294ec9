"""How many private rounds, and how far each may go: a public rule that keeps noise below signal.

Everybody takes part in T rounds with clip norms γ_1, …, γ_T. A broadcast is the mean of n updates
(n, the ``crowd``), so a round moves the shared model by at most γ_t, and all of them by at most the
travel L = Σγ_t. To fit a budget of one Gaussian of multiplier z₁ (what the whole budget buys a
single round), each round needs z = z₁√T, and the noise that all rounds add to one parameter has the
deviation

    s = (z₁√T / n) √Σγ_t² ≥ z₁ L / n                      (Cauchy–Schwarz; equal if all γ_t are)

So noise follows from how far the model may travel, not from how many rounds it takes to get there.

1. **Travel.** s may be NOISE times the size that a parameter starts with, PyTorch's 1/√(3·fan-in):
   networks whose weights have been shaken that much still learn, and the rounds to come mend part
   of it. L = NOISE · size · n / z₁.
2. **Rounds.** L in steps of about STRIDE: of a stride's length, the clients' updates still point
   the same way. Not more than MOST: they cost time; L is then at most WIDEST a round.
3. **Cooling.** γ_t falls by a constant factor, to a fifth in all: early noise is mended by later
   rounds, so the last ones make little of it. It serves like averaging iterates (measured: a
   little better where noise is strong), and clients improve the very model that they are shown.
4. **No round at all** where clients do better alone, and the budget is not touched: if the noise in
   all d parameters, s√d, exceeds HOPELESS times the travel, √d · z₁ / n > HOPELESS; or if that in
   the outputs does, which is what counts where layers are few. Of k outputs W h each has noise
   s‖h‖; the travel, which their k rows share, moves each by (L/√k)‖h‖ at most, all of it along h.
   The one over the other is s√k / L = √k · z₁ / n, and DROWNED is too much of it.

The constants were fixed on writers of MNIST's test part and on rows of other tasks that are in no
reported score (docs/federated.md). What a client takes home is decided there, by its own rows
(client_choice.py): a schedule that is off costs accuracy, never privacy.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tacit.errors import NoiseWarning
from tacit.neural.mixing import Mixing
from tacit.neural.round_costs import multiplier
from tacit.neural.sampling import Everyone
from tacit.privacy.budget import Budget

FEWEST, MOST = 10, 120
"""Rounds."""

COOLED = 0.2
"""The last clip norm over the first."""

HOPELESS = 4.0
"""Noise over travel: at 4 joining still paid, at 5 no more where clients do well alone."""

DROWNED = 0.3
"""Noise in an output over what the travel moves it: at .26 joining still paid clients of few rows,
at .32 nobody, with 3 to 40 classes; with a hidden layer of 100 HOPELESS decides first."""


@dataclass(frozen=True)
class RoundSchedule:
    """What is fixed before the first round; rounds = 0: better alone."""

    rounds: int
    clip_norm: float  # γ of the first round
    cooling: float  # γ of a round over γ of the round before
    noise_to_signal: float  # s√d / L, at least: in all parameters, over the travel
    in_outputs: float = 0.0  # s√k / L: in each of k outputs, over what the travel moves it

    @property
    def better_alone(self) -> bool:
        """Does noise leave nothing to learn?"""
        return self.noise_to_signal > HOPELESS or self.in_outputs > DROWNED

    def chosen(self, rounds: int | None, clip_norm: float | None) -> RoundSchedule:
        """With what somebody chose instead; a clip norm of one's own stays as it is."""
        found = self if rounds is None else replace(self, rounds=rounds)
        return found if clip_norm is None else replace(found, clip_norm=clip_norm, cooling=1.0)

    def warn(self) -> None:
        """Says that joining will hardly pay: from what is public, before the first round."""
        if not self.better_alone:
            return
        alone = "; no round is run, nothing is spent, and every client trains alone"
        found, most, where = self.noise_to_signal, HOPELESS, "all parameters"
        better = ", more budget or fewer parameters"
        if found <= most:
            found, most, where = self.in_outputs, DROWNED, "each output"
            better = " or more budget"
        warnings.warn(
            f"the noise in {where} is {found:.2g} times as long as the way that the model may go "
            f"there, where {most:g} leave something to learn: more clients{better} would help"
            f"{'' if self.rounds else alone}",
            NoiseWarning,
            stacklevel=4,  # where fit was called
        )


@dataclass(frozen=True)
class TravelRule:
    """How far a run goes, and in what steps."""

    noise: float  # NOISE: s, over the size of a parameter at the start
    stride: float  # STRIDE: the mean γ that rounds are chosen for
    widest: float  # WIDEST: the largest, where there is budget for more rounds than MOST

    def planned(
        self, noise: float, shapes: Sequence[Sequence[int]], rounds: int | None
    ) -> RoundSchedule:
        """``noise``: z₁/n, s of a single round over γ."""
        ratio = math.sqrt(sum(math.prod(shape) for shape in shapes)) * noise
        nothing = RoundSchedule(0, 1.0, 1.0, ratio, math.sqrt(outputs_of(shapes)) * noise)
        if rounds is None and nothing.better_alone:
            return nothing
        travel = self.noise * starting_size(shapes) / noise
        number = rounds or int(min(max(travel / self.stride, FEWEST), MOST))
        cooling = COOLED ** (1 / max(1, number - 1))
        first = min(travel, self.widest * number) / sum(cooling**t for t in range(number))
        return replace(nothing, rounds=number, clip_norm=first, cooling=cooling)


AMONG_TASKS = TravelRule(noise=4.0, stride=0.5, widest=1.0)

INSIDE_SILOS = TravelRule(noise=2.0, stride=3.0, widest=6.0)
"""Set on generated silos (docs/silos.md): a mean of clipped gradients goes less far than a mean of
trained models, and one step a round bears wider strides."""

UNPLANNED = RoundSchedule(50, 1.0, 1.0, 0.0)
"""For the methods of papers, which plan nothing."""


def schedule(
    budget: Budget | None,
    mixing: Mixing,
    shapes: Sequence[Sequence[int]],
    rounds: int | None = None,
) -> RoundSchedule:
    """The rule, for parameters of these shapes; ``rounds``: as many, whatever the noise.

    >>> from tacit.neural import mixing
    >>> mlp = [(100, 784), (100,), (10, 100), (10,)]
    >>> writers, budget = mixing.mean(538), Budget(2.0, 1e-5, neighbours="zero-out")
    >>> planned = schedule(budget, writers, mlp)
    >>> planned.rounds, round(planned.clip_norm, 2), round(planned.noise_to_signal, 2)
    (46, 1.01, 1.04)
    >>> schedule(budget, mixing.mean(20), mlp).rounds
    0
    """
    if budget is None:
        return RoundSchedule(rounds or MOST, 1.0, 1.0, 0.0)
    whole = multiplier(Everyone(), 1, 1, budget)  # z₁
    crowd = float((mixing.weights.sum(axis=1) / mixing.reach).mean())
    return AMONG_TASKS.planned(whole / crowd, shapes, rounds)


def silo_schedule(
    noise: float, shapes: Sequence[Sequence[int]], rounds: int | None = None
) -> RoundSchedule:
    """The same where silos protect their people, whose clipped gradients are what a round adds up:
    ``noise`` is s of a single round over γ.

    >>> planned = silo_schedule(1 / 270, [(100, 186), (100,), (6, 100), (6,)])
    >>> planned.rounds, round(planned.clip_norm, 2), round(planned.noise_to_signal, 2)
    (10, 4.56, 0.51)
    """
    return INSIDE_SILOS.planned(noise, shapes, rounds)


def outputs_of(shapes: Sequence[Sequence[int]]) -> int:
    """How many numbers the last layer gives: its weights' or its bias's first dimension.

    >>> outputs_of([(10, 3), (10,)])
    10
    """
    return shapes[-1][0] if shapes and len(shapes[-1]) else 1


def starting_size(shapes: Sequence[Sequence[int]]) -> float:
    """The root mean square of weights as PyTorch draws them: uniform within ±1/√fan-in.

    >>> round(starting_size([(10, 3), (10,)]), 4)
    0.3333
    """
    weights = [shape for shape in shapes if len(shape) > 1] or [(1, *shape) for shape in shapes]
    numbers = sum(math.prod(shape) for shape in weights)
    # A weight's mean square is 1/(3·fan-in), and there are outputs · fan-in of them.
    return math.sqrt(sum(shape[0] / 3 for shape in weights) / numbers)
