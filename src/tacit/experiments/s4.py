"""S4: Cheng, Tang, Chinchali, "Task-aware Privacy Preservation for Multi-dimensional Data", ICML
2022. Figures 1 and 3 to 8 and Table 1; Figure 2 is a drawing.

The paper says neither how often it repeated nor how it scaled its data: here five random 70/30
splits, power in units of its largest load, the other data sets scaled to [0, 1] by the fit rows.
Quick runs take 80 epochs or fewer of the 2,000, at ten times the rate.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tacit.encoders.base import Strategy
from tacit.experiments.comparisons import above, below, gains, ours_no_worse, rises, verdict
from tacit.experiments.declared import Experiment, Judgement, Kind, Point, Statement
from tacit.experiments.measured import Measured
from tacit.experiments.s4_measures import (
    AGNOSTIC,
    AWARE,
    BLIND,
    OURS,
    mean_wage,
    power_by_hour,
    power_loss,
    theoretical,
)

EXACT = "exact rows"
CURVES: Final[dict[str, Kind]] = {
    AWARE: "published",
    AGNOSTIC: "published",
    BLIND: "published",
    OURS: "ours",
    EXACT: "open",
}
METHODS = (AWARE, AGNOSTIC, BLIND, OURS)
POWER = "household_power_daily_hourly.npz"
ESTATE = "real_estate_taiwan.npz"
MNIST = "mnist_by_writer.npz"

BEATS_BOTH = (
    Statement("Task-aware outperforms task-agnostic at every ε.", below(AWARE, AGNOSTIC)),
    Statement("Task-aware outperforms privacy-agnostic at every ε.", below(AWARE, BLIND)),
    ours_no_worse([(OURS, AWARE)]),
)


def trained_loss(seed: int, **cell: Any) -> Iterator[Point]:
    """Needs PyTorch, so it comes when it is asked for."""
    from tacit.experiments.s4_networks import task_loss

    return task_loss(seed, **cell)


def training_time(seed: int, **cell: Any) -> Iterator[Point]:
    """Seconds of training, which no verdict rests on."""
    from tacit.experiments.s4_networks import timed

    return timed(seed, **cell)


def _networks(case: str, **more: Any) -> tuple[dict[str, Any], ...]:
    common = {"case": case, "epochs": 2000, "rate": 1e-3, "rows": None} | more
    return ({**common, "method": METHODS}, {**common, "method": EXACT, "epsilon": 1.0})


def _widths(
    case: str, widths: tuple[int, ...], epsilons: tuple[float, ...]
) -> tuple[dict[str, Any], ...]:
    common = {
        "case": case,
        "epochs": 2000,
        "rate": 1e-3,
        "rows": None,
        "method": AWARE,
        "by_width": True,
    }
    return ({**common, "dimensions": widths, "epsilon": epsilons},)


def _gains_most_in_first(measured: Measured) -> Judgement:
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


def _as_many_samples(measured: Measured) -> Judgement:
    found = {panel: measured.mean(AWARE, "samples", panel).mean for panel in measured.panels}
    good = [found["real-estate"] == 414, found["breast-cancer"] == 569]
    said = ", ".join(f"{name} {count:.0f}" for name, count in found.items())
    return Judgement(verdict(good), found["real-estate"], said)


LOSS = ("1/ε", "task loss")
HOUSES = (1.0, 1.25, 5 / 3, 2.5, 5.0, 10.0)
TUMOURS = (5.0, 20 / 3, 10.0, 20.0, 40.0)
Grids = tuple[dict[str, Any], ...]
Claims = tuple[Statement, ...]
CASES: Final[dict[str, tuple[tuple[str, ...], dict[str, Any]]]] = {
    # files, and what --quick has instead
    "real-estate": ((ESTATE,), {"epsilon": (1.0, 5.0), "epochs": 80}),
    "breast-cancer": ((), {"epsilon": (5.0, 20.0), "epochs": 80}),
    "mnist": ((MNIST,), {"epsilon": (5.0, 20.0), "epochs": 15, "rows": 1000}),
}


def _learned(
    name: str, title: str, shows: str, grids: Grids, claims: Claims, **more: Any
) -> Experiment:
    """A figure of encoders that are trained."""
    files, quick = CASES[grids[0]["case"].removesuffix("-hidden")]
    return Experiment(
        name=name,
        title=title,
        shows=shows,
        axes=LOSS,
        measure=trained_loss,
        grids=grids,
        curves=CURVES | {f"Z = {width}": "published" for width in (1, 3, 6, 15, 30)},
        claims=claims,
        quick=quick | {"rate": 1e-2},
        repetitions=5,
        files=files,
        **more,
    )


def _gain(epsilon: float, benchmark: Strategy, claimed: float) -> Statement:
    """The largest that the paper reports."""
    sentence = f"The largest gain on {benchmark} is {claimed:.1%} (ε = {epsilon:g})."
    return Statement(sentence, gains(AWARE, benchmark, claimed, at=1 / epsilon))


FIGURES: Final = (
    Experiment(
        name="S4-fig1",
        title="A task-aware report perturbs the wage less",
        shows="Squared error of the estimated mean wage of Alice and Bob at ε = 1: both attributes "
        "with Laplace noise of scale 20, the wage alone with scale 10, and the wage by the "
        "staircase mechanism. The range of ten is declared here, so all three are private.",
        axes=("", "squared error of the mean wage"),
        measure=mean_wage,
        grids=({"epsilon": 1.0, "draws": 10_000},),
        curves={AWARE: "other", AGNOSTIC: "other", OURS: "ours"},
        claims=(
            Statement(
                "The task-aware estimate is closer to the real value.", below(AWARE, AGNOSTIC)
            ),
            ours_no_worse([(OURS, AWARE)]),
        ),
        quick={},
        repetitions=5,
        quick_repetitions=2,
        drawn="table",
    ),
    Experiment(
        name="S4-fig3",
        title="Theoretical loss of the three approaches",
        shows="Eq. (13), (58) and (59) for n = 4, λ₁ = 4 and the other λ 0, 1 or 2; L = I and the "
        "data on a sphere. Ours is the best of Laplace (the same), "
        "PrivUnitG and the staircase on the declared sphere, r = 1.",
        axes=("r/ε", "overall task loss"),
        measure=theoretical,
        grids=({"setting": (1, 2, 3), "ratio": tuple(round(0.05 * i, 2) for i in range(1, 21))},),
        curves={AWARE: "other", AGNOSTIC: "other", BLIND: "other", OURS: "ours"},
        claims=(
            Statement("Task-aware gains most on task-agnostic in setting 1.", _gains_most_in_first),
            Statement("It is never behind the privacy-agnostic one.", below(AWARE, BLIND)),
            Statement("The loss of every approach grows with r/ε.", rises(AWARE, AGNOSTIC, BLIND)),
            ours_no_worse([(OURS, AWARE)]),
        ),
        quick={},
    ),
    Experiment(
        name="S4-fig4a",
        title="Household power: task loss by budget",
        shows="1,417 days of 24 hours, hours 9 to 20 weighted 2, closed forms of Section 4.1; "
        "privacy-agnostic with Z = 3.",
        axes=LOSS,
        measure=power_loss,
        grids=({"method": METHODS, "epsilon": (1.0, 1.25, 5 / 3, 2.5, 5.0, 10.0, 20.0)},),
        curves=CURVES,
        claims=(
            Statement("The loss falls as ε grows.", rises(AWARE, AGNOSTIC, BLIND)),
            *BEATS_BOTH,
            _gain(10.0, AGNOSTIC, 0.229),
            _gain(5.0, BLIND, 0.117),
        ),
        quick={},
        repetitions=5,
        quick_repetitions=3,
        files=(POWER,),
    ),
    Experiment(
        name="S4-fig4b",
        title="Household power: error of each hour at ε = 5",
        shows="Mean squared error of each hour, same encoders as on the left.",
        axes=("hour", "MSE of power"),
        measure=power_by_hour,
        grids=({"method": METHODS, "epsilon": 5.0},),
        curves=CURVES,
        claims=(
            Statement(
                "Task-aware has a lower error in every hour of the day.",
                below(AWARE, AGNOSTIC, at=tuple(range(9, 21))),
            ),
            Statement(
                "So it has against privacy-agnostic.", below(AWARE, BLIND, at=tuple(range(9, 21)))
            ),
            ours_no_worse([(OURS, AWARE)]),
        ),
        quick={},
        repetitions=5,
        quick_repetitions=3,
        files=(POWER,),
    ),
    _learned(
        "S4-fig5a",
        "Real estate: task loss by budget",
        "414 sales, a network of one hidden layer as the task, linear encoder and decoder, "
        "Z = 3, η = 0.2.",
        _networks("real-estate", dimensions=3, epsilon=HOUSES),
        (*BEATS_BOTH, _gain(5.0, AGNOSTIC, 0.219), _gain(5.0, BLIND, 0.135)),
    ),
    _learned(
        "S4-fig5b",
        "Breast cancer: task loss by budget",
        "569 diagnoses, cross-entropy of a network of one hidden layer, encoder and decoder "
        "with one hidden layer each, Z = 3, η = 0.001.",
        _networks("breast-cancer", dimensions=3, epsilon=TUMOURS),
        (*BEATS_BOTH, _gain(20.0, AGNOSTIC, 0.730), _gain(20.0, BLIND, 0.456)),
    ),
    *(
        _learned(
            f"S4-fig6{letter}",
            f"{data}: the task-aware report's width Z",
            f"As Figure 5{letter}, task-aware as published with Z = {', '.join(map(str, widths))}.",
            _widths(data.lower().replace(" ", "-"), widths, epsilons),
            tuple(
                Statement(f"Z = 3 is better than Z = {width}.", below("Z = 3", f"Z = {width}"))
                for width in widths
                if width != 3
            ),
        )
        for letter, data, widths, epsilons in (
            ("a", "Real estate", (1, 3, 6), HOUSES),
            ("b", "Breast cancer", (3, 15, 30), TUMOURS),
        )
    ),
    _learned(
        "S4-fig7",
        "Real estate: encoder and decoder with a hidden layer",
        "As Figure 5a, but encoder and decoder have one hidden layer of 6 ReLUs, η = 0.001; "
        "“Z = 3” is Figure 5a's task-aware encoder.",
        (
            *_networks("real-estate-hidden", dimensions=3, epsilon=HOUSES),
            *_widths("real-estate", (3,), HOUSES),
        ),
        (
            *BEATS_BOTH,
            Statement("It is worse than with a linear encoder.", above(AWARE, "Z = 3")),
        ),
    ),
    _learned(
        "S4-fig8",
        "Handwritten digits: task loss by budget",
        "MNIST's 60,000 training digits split 70/30, cross-entropy of a linear classifier, "
        "linear encoder and decoder, Z = 10; quick: 1,000 digits.",
        _networks("mnist", dimensions=10, epsilon=(5.0, 20 / 3, 10.0, 20.0)),
        (
            Statement("Task-agnostic is far behind (a figure of its own).", above(AGNOSTIC, AWARE)),
            *BEATS_BOTH[1:],
            _gain(20.0, BLIND, 0.238),
        ),
        logarithmic="y",
    ),
    Experiment(
        name="S4-table1",
        title="Evaluation details",
        shows="Samples and epochs as printed, and the seconds that training took here (the paper: "
        "up to two hours).",
        axes=("", ""),
        measure=training_time,
        grids=(
            {
                "case": ("real-estate", "breast-cancer"),
                "method": AWARE,
                "epochs": 2000,
                "rate": 1e-3,
            },
        ),
        curves={AWARE: "published"},
        claims=(Statement("Real estate has 414 samples, breast cancer 569.", _as_many_samples),),
        quick={"epochs": 80, "rate": 1e-2},
        files=(ESTATE,),
        drawn="table",
    ),
)
