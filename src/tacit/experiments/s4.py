"""S4: Cheng, Tang, Chinchali, "Task-aware Privacy Preservation for Multi-dimensional Data", ICML
2022. Figures 1 and 3 to 8 and Table 1; Figure 2 is a drawing.

The paper says neither how often it repeated nor how it scaled its data: here five random 70/30
splits, power in units of its largest load, the other data sets scaled to [0, 1] by the fit rows.
Quick runs take 80 epochs or fewer of the 2,000, at ten times the rate.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from tacit.experiments.comparisons import (
    above,
    below,
    ours_no_worse,
    rises,
    rivals,
)
from tacit.experiments.declared import Experiment, Kind, Statement
from tacit.experiments.s4_claims import (
    BEATS_BOTH,
    BEATS_BOTH_NEARLY,
    as_many_samples,
    as_quick,
    best_on_average,
    gain,
    gains_less_in_first,
    gains_most_in_first,
)
from tacit.experiments.s4_measures import (
    AGNOSTIC,
    AWARE,
    BLIND,
    OURS,
    mean_wage,
    power_by_hour,
    power_loss,
    theoretical,
    trained_loss,
    training_time,
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
Grids = tuple[dict[str, Any], ...]
POWER = "household_power_daily_hourly.npz"
ESTATE = "real_estate_taiwan.npz"
MNIST = "mnist_by_writer.npz"


def _networks(case: str, methods: tuple[str, ...] = METHODS, **more: Any) -> Grids:
    common = {"case": case, "epochs": 2000, "rate": 1e-3, "rows": None} | more
    return ({**common, "method": methods}, {**common, "method": EXACT, "epsilon": 1.0})


def _widths(
    case: str, widths: tuple[int, ...], epsilons: tuple[float, ...], *methods: str
) -> Grids:
    more = {"dimensions": widths, "epsilon": epsilons, "by_width": True}
    return _networks(case, methods or (AWARE,), **more)[:1]


LOSS = ("1/ε", "task loss")
WIDTHS = (1, 3, 6, 15, 30)
HOUSES = (1.0, 1.25, 5 / 3, 2.5, 5.0, 10.0)
TUMOURS = (5.0, 20 / 3, 10.0, 20.0, 40.0)
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
        curves=CURVES | {f"{of}Z = {z}": "published" for of in ("", f"{BLIND}, ") for z in WIDTHS},
        claims=claims,
        quick=quick | {"rate": 1e-2},
        repetitions=5,
        files=files,
        **more,
    )


_power_figure = partial(
    Experiment, curves=CURVES, quick={}, repetitions=5, quick_repetitions=3, files=(POWER,)
)
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
            Statement("Task-aware gains most on task-agnostic in setting 1.", gains_most_in_first),
            Statement("It is never behind the privacy-agnostic one.", below(AWARE, BLIND)),
            Statement(
                "At small r/ε it gains more on it in settings 2 and 3, of whose coordinates Z = 2 "
                "leaves out two that matter.",
                gains_less_in_first,
            ),
            Statement("The loss of every approach grows with r/ε.", rises(AWARE, AGNOSTIC, BLIND)),
            ours_no_worse([(OURS, AWARE)]),
        ),
        quick={},
    ),
    _power_figure(
        name="S4-fig4a",
        title="Household power: task loss by budget",
        shows="1,417 days of 24 hours, hours 9 to 20 weighted 2, closed forms of Section 4.1; "
        "privacy-agnostic with Z = 3. Without privacy x̂ = x, and nothing is lost.",
        axes=LOSS,
        measure=power_loss,
        grids=({"method": METHODS, "epsilon": (1.0, 1.25, 5 / 3, 2.5, 5.0, 10.0, 20.0)},),
        claims=(
            Statement("The loss falls as ε grows.", rises(AWARE, AGNOSTIC, BLIND)),
            *BEATS_BOTH,
            gain(10.0, AGNOSTIC, 0.229),
            gain(5.0, BLIND, 0.117),
        ),
    ),
    _power_figure(
        name="S4-fig4b",
        title="Household power: error of each hour at ε = 5",
        shows="Mean squared error of each hour, same encoders as on the left.",
        axes=("hour", "MSE of power"),
        measure=power_by_hour,
        grids=({"method": METHODS, "epsilon": 5.0},),
        claims=(
            Statement(
                "Task-aware has a lower error in every hour of the day.",
                below(AWARE, AGNOSTIC, at=tuple(range(9, 21))),
            ),
            Statement(
                "So it has against privacy-agnostic.", below(AWARE, BLIND, at=tuple(range(9, 21)))
            ),
            Statement(
                "In the hours of the night it is similar.",
                rivals(AWARE, AGNOSTIC, at=(*range(1, 9), *range(21, 25))),
            ),
            ours_no_worse([(OURS, AWARE)]),
        ),
    ),
    _learned(
        "S4-fig5a",
        "Real estate: task loss by budget",
        "414 sales, a network of one hidden layer as the task, linear encoder and decoder, "
        "Z = 3, η = 0.2.",
        _networks("real-estate", dimensions=3, epsilon=HOUSES),
        (*BEATS_BOTH_NEARLY, gain(5.0, AGNOSTIC, 0.219), gain(5.0, BLIND, 0.135)),
    ),
    _learned(
        "S4-fig5b",
        "Breast cancer: task loss by budget",
        "569 diagnoses, cross-entropy of a network of one hidden layer, encoder and decoder "
        "with one hidden layer each, Z = 3, η = 0.001.",
        _networks("breast-cancer", dimensions=3, epsilon=TUMOURS),
        (*BEATS_BOTH_NEARLY, gain(20.0, AGNOSTIC, 0.730), gain(20.0, BLIND, 0.456)),
    ),
    *(
        _learned(
            f"S4-fig6{letter}",
            f"{data}: the task-aware report's width Z",
            f"As Figure 5{letter}, task-aware (“Z = …”) and privacy-agnostic as published with "
            f"Z = {', '.join(map(str, widths))}; ours chooses Z on held-out rows.",
            (
                *_widths(case, widths, epsilons, AWARE, BLIND),
                *_networks(case, (OURS,), dimensions=3, epsilon=epsilons),
            ),
            (
                Statement(
                    "On average Z = 3 is best.",
                    best_on_average("Z = 3", *(f"Z = {width}" for width in widths)),
                ),
                Statement(
                    "Of privacy-agnostic it is, too.",
                    best_on_average(f"{BLIND}, Z = 3", *(f"{BLIND}, Z = {z}" for z in widths)),
                ),
                ours_no_worse([(OURS, "Z = 3")]),
            ),
        )
        for letter, data, case, widths, epsilons in (
            ("a", "Real estate", "real-estate", (1, 3, 6), HOUSES),
            ("b", "Breast cancer", "breast-cancer", (3, 15, 30), TUMOURS),
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
            Statement("It is worse than with a linear encoder.", above(AWARE, "Z = 3")),
            ours_no_worse([(OURS, AWARE)]),
        ),
    ),
    _learned(
        "S4-fig8",
        "Handwritten digits: task loss by budget",
        "MNIST's 70,000 digits split 70/30, cross-entropy of a linear classifier, "
        "linear encoder and decoder, Z = 10; quick: 1,000 digits.",
        _networks("mnist", dimensions=10, epsilon=(5.0, 20 / 3, 10.0, 20.0)),
        (
            Statement("Task-agnostic is far behind (a figure of its own).", above(AGNOSTIC, AWARE)),
            *BEATS_BOTH[1:],
            gain(20.0, BLIND, 0.238),
        ),
        logarithmic="y",
    ),
    Experiment(
        name="S4-table1",
        title="Evaluation details",
        shows="Samples and epochs as printed, and the seconds that training took here (the paper: "
        "household power, in closed form, under a minute, the others under two hours).",
        axes=("", ""),
        measure=training_time,
        grids=(
            {"case": "household-power"},
            {
                "case": ("real-estate", "breast-cancer"),
                "method": AWARE,
                "epochs": 2000,
                "rate": 1e-3,
            },
        ),
        curves={AWARE: "published"},
        claims=(
            Statement(
                "Household power has 1,417 samples, real estate 414, breast cancer 569.",
                as_many_samples,
            ),
            Statement(
                "It takes under a minute for household power, under two hours for the others.",
                as_quick,
            ),
        ),
        quick={"epochs": 80, "rate": 1e-2},
        files=(POWER, ESTATE),
        drawn="table",
    ),
)
