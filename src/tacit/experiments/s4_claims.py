"""What S4 says of its figures, and checks of them."""

from __future__ import annotations

from typing import Final

import numpy as np

from tacit.encoders.base import Strategy
from tacit.experiments.comparisons import Check, below, gains, mostly_below, ours_no_worse, verdict
from tacit.experiments.declared import Judgement, Statement
from tacit.experiments.measured import Measured
from tacit.experiments.s4_measures import AGNOSTIC, AWARE, BLIND, OURS

BEATS_BOTH = (
    Statement("Task-aware outperforms task-agnostic at every ε.", below(AWARE, AGNOSTIC)),
    Statement("Task-aware outperforms privacy-agnostic at every ε.", below(AWARE, BLIND)),
    ours_no_worse([(OURS, AWARE)]),
)


BEATS_BOTH_NEARLY = (
    Statement("Task-aware outperforms task-agnostic nearly always.", mostly_below(AWARE, AGNOSTIC)),
    Statement("Task-aware outperforms privacy-agnostic nearly always.", mostly_below(AWARE, BLIND)),
    ours_no_worse([(OURS, AWARE)]),
)
SAMPLES: Final = {"household-power": 1417, "real-estate": 414, "breast-cancer": 569}
SECONDS: Final = {"household-power": 60, "real-estate": 7200, "breast-cancer": 7200}


def gains_most_in_first(measured: Measured) -> Judgement:
    """The largest gain over all r/ε, by setting."""
    gain = {
        panel: max(
            1 - measured.mean(AWARE, x, panel).mean / measured.mean(AGNOSTIC, x, panel).mean
            for x in measured.places(AWARE, panel)
        )
        for panel in measured.panels
    }
    first, *rest = gain.values()
    said = ", ".join(f"{panel} {found:.1%}" for panel, found in gain.items())
    return Judgement(verdict([first > other for other in rest]), first, f"at most {said}")


def gains_less_in_first(measured: Measured) -> Judgement:
    """On privacy-agnostic, at the least r/ε, by setting."""
    gain = [
        1 - measured.mean(AWARE, x, panel).mean / measured.mean(BLIND, x, panel).mean
        for panel in measured.panels
        for x in measured.places(AWARE, panel)[:1]
    ]
    said = ", ".join(f"{p} {g:.1%}" for p, g in zip(measured.panels, gain, strict=True))
    return Judgement(verdict([other > gain[0] for other in gain[1:]]), min(gain[1:]), said)


def as_many_samples(measured: Measured) -> Judgement:
    found = {panel: measured.mean(AWARE, "samples", panel).mean for panel in measured.panels}
    good = [found[name] == count for name, count in SAMPLES.items()]
    said = ", ".join(f"{name} {count:.0f}" for name, count in found.items())
    return Judgement(verdict(good), sum(found.values()), said)


def as_quick(measured: Measured) -> Judgement:
    """What it turns on is how many are: seconds are the machine's."""
    found = {panel: measured.mean(AWARE, "seconds", panel).mean for panel in measured.panels}
    good = [found[name] < most for name, most in SECONDS.items()]
    said = ", ".join(f"{name} {seconds:.2g} s" for name, seconds in found.items())
    return Judgement(verdict(good), float(sum(good)), said)


def best_on_average(curve: str, *curves: str) -> Check:
    """Its mean over all ε is the least of theirs."""

    def check(measured: Measured) -> Judgement:
        over = {each: float(np.mean([m.mean for m in measured.means(each)])) for each in curves}
        ratios = [over[curve] / mean for each, mean in over.items() if each != curve]
        said = ", ".join(f"{each} {mean:.4g}" for each, mean in over.items())
        return Judgement(verdict([ratio < 1 for ratio in ratios]), max(ratios), said)

    return check


def gain(epsilon: float, benchmark: Strategy, claimed: float) -> Statement:
    """The largest that the paper reports."""
    sentence = f"The largest gain on {benchmark} is {claimed:.1%} (ε = {epsilon:g})."
    return Statement(sentence, gains(AWARE, benchmark, claimed, at=1 / epsilon))
