"""S1: Liang et al., "Model-Protected Multi-Task Learning", TPAMI (arXiv 1809.06546).

Figures 2 to 12 and Table 2; Figure 1 is a drawing and Table 1 the notation.

LSOA II is not to be had: landmine stands in for it (Figures 9b, 10b, 12). The first version's
figures are the same but for their numbers: its 7 is 8 here, its 8 is 9, its Table 1 is Table 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from tacit.experiments.declared import Experiment, Kind, Statement
from tacit.experiments.s1_claims import (
    ALLOCATION,
    BASELINES_GROUP_SPARSE,
    BASELINES_LOW_RANK,
    BASELINES_LSOA,
    BASELINES_SCHOOL,
    MAIN_GROUP_SPARSE,
    MAIN_LOW_RANK,
    MAIN_LSOA,
    MAIN_SCHOOL,
    NOISE,
    NUMBER_OF_TASKS,
    SAME_EVERYWHERE,
    keeps_strongest_features,
)
from tacit.experiments.s1_measures import (
    ACCELERATED,
    AGGR,
    GS,
    LR,
    MTL,
    MTRL,
    OUR_GS,
    OUR_LR,
    OWN_STL,
    PLAIN,
    REPAIRED,
    SHARED,
    STL,
    error_by_epsilon,
    error_by_schedule,
    error_by_tasks,
)
from tacit.experiments.s1_pictures import (
    agreement,
    leakage,
    likeness,
    noise_to_signal,
    output_models,
    powers_as_printed,
    utility_powers,
)

CURVES: Final[dict[str, Kind]] = {
    LR: "published",
    GS: "published",
    MTRL: "published",
    AGGR: "published",
    SHARED: "ours",
    OUR_LR: "ours",
    OUR_GS: "ours",
    REPAIRED[MTRL]: "ours",
    REPAIRED[AGGR]: "ours",
    STL: "alone",
    OWN_STL: "alone",
    MTL: "open",
    ACCELERATED: "published",
    PLAIN: "published",
}
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
QUICKLY: Final = {"most": 6, "folds": 2}
QUICK: Final = {"epsilon": (0.1, 1.0, 10.0), **QUICKLY}
SEARCH: Final = {"most": 60, "folds": 5}
ERROR = ("ε", "nMSE")
SCHOOL, LANDMINE = ("school_ilea.npz",), ("landmine.npz",)


def _grids(data: Any, learners: Sequence[str], **more: Any) -> tuple[dict[str, Any], ...]:
    """The private learners at every ε, and those that have none."""
    common = {"data": data, **SEARCH, **more}
    private = tuple(name for name in learners if CURVES[name] in ("published", "ours"))
    level = tuple(name for name in learners if name not in private)
    return ({**common, "learner": private, "epsilon": EPSILONS}, {**common, "learner": level})


_figure = partial(Experiment, curves=CURVES, repetitions=100)

# --- Figures 2 to 5 -------------------------------------------------------------------------------

_SCHEDULES = ("power", "geometric")
_ALLOCATION: Final = {"epsilon": 0.1, "rounds": 30, "folds": 5, "schedule": _SCHEDULES}
_PICTURES = (
    Experiment(
        name="S1-fig2",
        title="Model leakage and model protection",
        shows="Ten tasks of five features; the tenth model is a hundred times as long. Algorithm 2 "
        "with T = 1, η = 1, K = 100√5, λ = 50, without noise (ε = 10⁹) and at ε = 0.1; ours at "
        "ε = 0.1. Columns are divided by their norms.",
        axes=("task", "feature"),
        measure=leakage,
        grids=(
            {"learner": "before", "epsilon": 1.0},
            {"learner": "with leakage", "epsilon": 1e9},
            {"learner": ("with protection, as published", OUR_LR), "epsilon": 0.1},
        ),
        curves={},
        claims=(
            Statement(
                "With leakage the other models become like the tenth.",
                likeness("with leakage", "before", more=True),
            ),
            Statement(
                "With protection they do not.",
                likeness("with protection, as published", "with leakage", more=False),
            ),
            Statement(
                "The two features that are strongest in the other tasks still are with protection.",
                keeps_strongest_features("with protection, as published", "before"),
            ),
            Statement("Nor do ours.", likeness(OUR_LR, "with leakage", more=False), ours=True),
        ),
        quick={},
        drawn="matrices",
    ),
    *(
        _figure(
            name=name,
            title=title,
            shows="The first 20 of 320 tasks on low-rank data at ε = 0.1; averages over the noise, "
            "the data stay. The paper shows Σ as a picture only; here W = BA of rank 5.",
            axes=("task", row),
            measure=output_models,
            grids=(
                {"learner": "true", "epsilon": 0.1, **SEARCH},
                {"learner": (LR, MTRL, OUR_LR), "epsilon": 0.1, **SEARCH},
            ),
            curves={},
            claims=(
                Statement(
                    "MP-MTL keeps the pattern.",
                    agreement(f"{what}: {LR}", f"{what}: true", at_least=0.8),
                ),
                Statement(
                    "DP-MTRL affects it significantly (here: a correlation below a half).",
                    agreement(f"{what}: {MTRL}", f"{what}: true", at_most=0.5),
                ),
                Statement(
                    "Ours keeps it.",
                    agreement(f"{what}: {OUR_LR}", f"{what}: true", at_least=0.8),
                    ours=True,
                ),
            ),
            quick=QUICKLY,
            panels=tuple(f"{what}: {learner}" for learner in ("true", LR, MTRL, OUR_LR)),
            drawn="matrices",
        )
        for name, title, row, what in (
            ("S1-fig3a", "Task relationships (panels a to c)", "task", "relationships"),
            ("S1-fig3d", "Output model matrices (panels d to f)", "feature", "models"),
        )
    ),
    _figure(
        name="S1-fig4",
        title="Privacy-budget allocation",
        shows="Cross-validation error on low-rank data at ε = 0.1, λ = 1: by α where ε_t ∝ t^α, "
        "and by log Q/log Q₀ where ε_t ∝ Q^−t, Q₀ = 1 − √0.001. LowRank with the same schedules; "
        "SharedPrior has none.",
        axes=("α, or log Q/log Q₀", "nMSE"),
        measure=error_by_schedule,
        grids=(
            {
                **_ALLOCATION,
                "learner": (ACCELERATED, PLAIN, OUR_LR),
                "power": (-2.0, -1.0, -0.5, 0.0, 0.2, 0.4, 0.8, 1.5, 3.0),
            },
            {**_ALLOCATION, "learner": (SHARED, STL, MTL)},
        ),
        claims=ALLOCATION,
        quick={"folds": 2, "power": (-2.0, -1.0, 0.0, 0.4, 1.5)},
    ),
    _figure(
        name="S1-fig5",
        title="Noise to signal",
        shows="‖E‖ over ‖Σ̃‖ (Frobenius) in each round on low-rank data at ε = 0.1, "
        "Algorithm 2 with acceleration, ε_t ∝ t^0.4; ours: Gaussian noise of the same ε.",
        axes=("round", "noise/signal"),
        measure=noise_to_signal,
        grids=({"learner": (LR, OUR_LR), "epsilon": 0.1, "rounds": 20},),
        claims=NOISE,
        quick={"rounds": 8},
        logarithmic="y",
    ),
)

# --- Figures 6 to 12 ------------------------------------------------------------------------------

_MAIN = (LR, GS, SHARED, OUR_LR, OUR_GS, STL, MTL)
_DETAIL = (LR, MTRL, AGGR, SHARED, REPAIRED[MTRL], REPAIRED[AGGR], STL, MTL)


_OWN_ROWS = " SharedPrior has rows as they are, with declared ranges and an intercept."


def _said(shares: float | tuple[float, ...]) -> str:
    return "" if isinstance(shares, float) else "30 to 90% for training"


def _tradeoff(
    number: str, data: str, learners: Sequence[str], claims: tuple[Statement, ...], **more: Any
) -> Experiment:
    """Error by ε on one data set."""
    real = data in ("School", "landmine")
    stand_in = " Landmine stands in for LSOA II." if data == "landmine" else ""
    shares = more.pop("training", 0.3)
    detail = "of the baselines" if AGGR in learners else "of MP-MTL"
    return _figure(
        name=f"S1-fig{number}",
        title=f"Privacy and accuracy {detail}: {data}, {_said(shares)}".removesuffix(", "),
        shows=f"Unit rows, no intercepts, δ = 1/(m ln m); parameters of what is published by "
        f"S1's own cross-validation, which is uncounted.{stand_in}{_OWN_ROWS if real else ''}",
        axes=ERROR if data != "landmine" else ("ε", "1 − aAUC"),
        measure=error_by_epsilon,
        grids=_grids(
            data,
            (*learners, OWN_STL) if real else learners,
            **({"training": shares} if real else {}),
        ),
        claims=claims,
        quick=QUICK if real else QUICK | {"folds": 5},  # two folds leave 15 rows a task
        files={"School": SCHOOL, "landmine": LANDMINE}.get(data, ()),
        logarithmic="x" if AGGR not in learners else "xy",
        **more,
    )


_SHARES = (0.3, 0.5, 0.7, 0.9)
_SUPPLEMENT = (LR, MTRL, AGGR, SHARED, OUR_LR, STL, MTL)
FIGURES: Final = (
    *_PICTURES,
    _tradeoff("6a", "low rank", _MAIN, MAIN_LOW_RANK),
    _tradeoff("6b", "group sparse", _MAIN, MAIN_GROUP_SPARSE),
    _tradeoff("7a", "low rank", (GS, *_DETAIL), BASELINES_LOW_RANK),
    _tradeoff("7b", "group sparse", _DETAIL, BASELINES_GROUP_SPARSE),
    _figure(
        name="S1-fig8",
        title="The number of tasks",
        shows="nMSE of the first 20 tasks on low-rank data at ε = 0.1, learned together with "
        "the others.",
        axes=("tasks", "nMSE"),
        measure=error_by_tasks,
        grids=(
            {
                "learner": (LR, SHARED, OUR_LR, STL, MTL),
                "tasks": (20, 40, 80, 160, 320),
                "epsilon": 0.1,
                **SEARCH,
            },
        ),
        claims=NUMBER_OF_TASKS,
        quick={"tasks": (20, 80, 320), **QUICKLY},
        quick_repetitions=3,
    ),
    _tradeoff("9a", "School", _MAIN, MAIN_SCHOOL),
    _tradeoff("9b", "landmine", _MAIN, MAIN_LSOA),
    _tradeoff("10a", "School", _DETAIL, BASELINES_SCHOOL),
    _tradeoff("10b", "landmine", _DETAIL, BASELINES_LSOA),
    _tradeoff("11", "School", _SUPPLEMENT, SAME_EVERYWHERE, training=_SHARES),
    _tradeoff("12", "landmine", _SUPPLEMENT, SAME_EVERYWHERE, training=_SHARES),
    Experiment(
        name="S1-table2",
        title="The powers of the utility bounds",
        shows="The power of d log d/(√m ε) (low rank) and of log d/(m ε) (group sparse): as "
        "printed, and as Theorems 6 and 11 have it at the recommended schedule.",
        axes=("", "power"),
        measure=utility_powers,
        grids=({},),
        curves={"printed": "other", "theorems": "other"},
        claims=(Statement("Table 2 follows from the theorems.", powers_as_printed),),
        quick={},
        drawn="table",
    ),
)
