"""S3: Xie, Baytas, Lin, Zhou, "Privacy-Preserving Distributed Multi-Task Learning with Asynchronous
Updates", KDD 2017. Figures 2 to 7 and Table 1; Figure 1 is a drawing.

ε is that of one message, as in the paper: its 10,000 iterations add up to thousands. Ours has two
curves: ε in all, and the sum that the published messages claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from tacit.experiments.comparisons import Check, below, ours_no_worse_in_the_end, verdict
from tacit.experiments.declared import Experiment, Judgement, Kind, Statement
from tacit.experiments.measured import Measured
from tacit.experiments.s3_measures import OBJECTIVE, RANK, TASKS, shape, trajectory

OPEN, ALONE = "no noise", "single-task"
IN_ALL, SAME_SUM = "tacit, ε in all", "tacit, same sum"


def published(epsilon: float) -> str:
    """The name of its curve."""
    return f"as published, ε = {epsilon:g}"


def _ours(learner: str, epsilon: float) -> str:
    return f"{learner}, ε = {epsilon:g}"


def _curves(epsilons: Sequence[float]) -> dict[str, Kind]:
    kinds: dict[str, Kind] = {OPEN: "open", ALONE: "alone"}
    for epsilon in epsilons:
        kinds[published(epsilon)] = "published"
        kinds[_ours(IN_ALL, epsilon)] = kinds[_ours(SAME_SUM, epsilon)] = "ours"
    return kinds


def _grids(
    data: str, loss: str, epsilons: Sequence[float], first: float | None, **steps: float
) -> tuple[dict[str, Any], ...]:
    """``first``: ε₁, where it is not ε."""
    common = {"data": data, "loss": loss, "iterations": 10_000, **steps}
    pairs = tuple((e if first is None else first, e) for e in epsilons)
    return (
        {**common, "learner": ("as published", ALONE)},
        {**common, "learner": ("as published", IN_ALL, SAME_SUM), "epsilons": pairs},
    )


# --- what the paper says of its figures -----------------------------------------------------------


def _converges(curves: Sequence[str]) -> Check:
    """The objective ends below where it began."""

    def check(measured: Measured) -> Judgement:
        found = {c: [m.mean for m in measured.means(c, OBJECTIVE)] for c in curves}
        fell = [values[-1] < values[0] for values in found.values()]
        said = "; ".join(f"{c}: {v[0]:.4g} to {v[-1]:.4g}" for c, v in found.items())
        size = float(np.median([v[-1] / v[0] for v in found.values()]))
        return Judgement(verdict(fell), size, said)

    return check


def _fast(curves: Sequence[str]) -> Check:
    """After a quarter of the iterations at least half of the fall is done; what rises has none."""

    def check(measured: Measured) -> Judgement:
        share = {}
        for curve in curves:
            values = [m.mean for m in measured.means(curve, OBJECTIVE)]
            quarter = values[: len(values) // 4 + 1]
            fall, done = (values[0] - min(part) for part in (values, quarter))
            share[curve] = done / fall if values[-1] < values[0] else 0.0
        said = ", ".join(f"{curve} {each:.0%}" for curve, each in share.items())
        told = verdict([each >= 0.5 for each in share.values()])
        return Judgement(told, max(share.values()), f"of the fall, after a quarter: {said}")

    return check


def _mostly_of_rank_3(curves: Sequence[str]) -> Check:
    """At more than half of the iterations that were recorded."""

    def check(measured: Measured) -> Judgement:
        ranks = {c: [m.mean for m in measured.means(c, RANK)] for c in curves}
        share = {c: float(np.mean([rank == 3 for rank in found])) for c, found in ranks.items()}
        said = "; ".join(
            f"{c}: {min(found):.0f} to {max(found):.0f}, 3 at {share[c]:.0%}"
            for c, found in ranks.items()
        )
        return Judgement(verdict([s > 0.5 for s in share.values()]), sum(share.values()), said)

    return check


def _ordered(epsilons: Sequence[float], *, spread: bool, panels: Sequence[str]) -> Check:
    """At the end smaller ε are above; ``spread``: they fluctuate more over the second half."""

    def check(measured: Measured) -> Judgement:
        found = []
        for epsilon in sorted(epsilons):
            values = [_tail(measured, published(epsilon), panel) for panel in panels]
            found.append(float(np.mean([np.std(v) if spread else v[-1] for v in values])))
        said = ", ".join(
            f"{v:.4g} at ε = {e:g}" for e, v in zip(sorted(epsilons), found, strict=True)
        )
        size = found[0] / found[-1]
        return Judgement(verdict([a > b for a, b in pairwise(found)]), size, said)

    return check


def _tail(measured: Measured, curve: str, panel: str) -> list[float]:
    means = [m.mean for m in measured.means(curve, panel)]
    return means[len(means) // 2 :]


def _objectives(epsilons: Sequence[float]) -> tuple[Statement, ...]:
    here = (OBJECTIVE,)
    every = [OPEN, *map(published, epsilons)]
    return (
        Statement("The algorithm converges, with noise and without.", _converges(every)),
        Statement(
            "A smaller ε has a larger objective.", _ordered(epsilons, spread=False, panels=here)
        ),
        Statement(
            "The objective fluctuates more as ε gets smaller.",
            _ordered(epsilons, spread=True, panels=here),
        ),
        Statement("The rank of P is 3 most of the time.", _mostly_of_rank_3(every)),
        _no_worse(epsilons),
    )


def _errors(epsilons: Sequence[float]) -> tuple[Statement, ...]:
    return (
        Statement(
            "A smaller ε has a larger error.", _ordered(epsilons, spread=False, panels=TASKS)
        ),
        Statement(
            "The error fluctuates less as ε gets larger.",
            _ordered(epsilons, spread=True, panels=TASKS),
        ),
        Statement(
            "Without noise, learning together beats each task alone.",
            below(OPEN, ALONE),
            ours=True,
        ),
        _no_worse(epsilons),
    )


def _bearable(epsilons: Sequence[float]) -> Check:
    """In the mean over tasks the error at the least ε ends within twice that at the largest."""

    def check(measured: Measured) -> Judgement:
        ends = [
            float(np.mean([_tail(measured, published(epsilon), task)[-1] for task in TASKS]))
            for epsilon in (min(epsilons), max(epsilons))
        ]
        ratio = ends[0] / ends[1]
        said = f"{ends[0]:.4g} at ε = {min(epsilons):g}, {ends[1]:.4g} at ε = {max(epsilons):g}"
        return Judgement(verdict([ratio <= 2]), ratio, said)

    return check


def _no_worse(epsilons: Sequence[float]) -> Statement:
    """In the mean over tasks: of ADNI's shape each has ten rows or so to be tested on."""
    return ours_no_worse_in_the_end([(_ours(SAME_SUM, e), published(e)) for e in epsilons])


# --- the figures ----------------------------------------------------------------------------------

_EPSILONS: Final = (0.3, 1.0, 10.0)
_CURVES: Final = (OPEN, *map(published, _EPSILONS))
_CONVERGES_FAST = Statement(
    "It converges fast (here: half of the fall in a quarter of the iterations).", _fast(_CURVES)
)
_SAID_OF_ONE: Final = {
    "S3-fig2a": (_CONVERGES_FAST,),
    "S3-fig2b": (_CONVERGES_FAST,),
    "S3-fig5": (
        Statement(
            "A smaller ε does not increase the error dramatically (here: at most twice).",
            _bearable(_EPSILONS),
        ),
    ),
}
_SYNTHETIC = "20 tasks of 200 rows and 28 features, 30% for training, delays of 0 to 15 ms. "
_ADNI = (
    "A generator of ADNI's shape: 20 tasks of 15 to 27 rows and 248 features, 30% for training. "
)
_RUNS: Final = {
    # figure of the objective, figure of the errors: data, loss, ε₁, and what was run
    ("S3-fig2a", "S3-fig3"): ("synthetic", "logistic", None, 0.1, 1.5e-3),
    ("S3-fig2b", "S3-fig4"): ("ADNI-shaped", "logistic", 0.5, 0.1, 1.5e-3),
    ("S3-fig2c", "S3-fig5"): ("synthetic", "squared", None, 0.1, 1.5e-3),
    ("S3-fig7", "S3-fig6"): ("ADNI-shaped", "squared", 10.0, 1e-3, 1e-4),
}


def _pair(
    names: tuple[str, str], data: str, loss: str, first: float | None, step: float, threshold: float
) -> tuple[Experiment, Experiment]:
    """The objective by iteration, and the errors of the same runs."""
    problem = "classification" if loss == "logistic" else "regression"
    error = "error rate" if loss == "logistic" else "mean squared error"
    common: dict[str, Any] = {
        "shows": (_SYNTHETIC if data == "synthetic" else _ADNI)
        + f"α₁ = α₂ = {step:g}, μ = {threshold:g}; quick: 200 iterations instead of 10,000.",
        "measure": trajectory,
        "grids": _grids(data, loss, _EPSILONS, first, step=step, threshold=threshold),
        "curves": _curves(_EPSILONS),
        "quick": {"iterations": 200},
        "logarithmic": "y",
    }
    return (
        Experiment(
            name=names[0],
            title=f"Objective by iteration: {data} data, {problem}",
            axes=("iteration", ""),
            claims=(*_objectives(_EPSILONS), *_SAID_OF_ONE.get(names[0], ())),
            panels=(OBJECTIVE, RANK),
            **common,
        ),
        Experiment(
            name=names[1],
            title=f"Errors of five tasks by iteration: {data} data, {problem}",
            axes=("iteration", error),
            claims=(*_errors(_EPSILONS), *_SAID_OF_ONE.get(names[1], ())),
            panels=TASKS,
            **common,
        ),
    )


def _table_shapes(measured: Measured) -> Judgement:
    wanted = {
        "synthetic": {"tasks": 20, "fewest samples": 200, "most samples": 200, "dimensions": 28},
        "ADNI-shaped": {"tasks": 20, "fewest samples": 15, "most samples": 27, "dimensions": 248},
    }
    met = [
        measured.mean(data, x).mean == value
        for data, values in wanted.items()
        for x, value in values.items()
    ]
    return Judgement(
        verdict(met), float(sum(met)), f"{sum(met)} of {len(met)} numbers of the table"
    )


FIGURES: Final = (
    *(figure for names, run in _RUNS.items() for figure in _pair(names, *run)),
    Experiment(
        name="S3-table1",
        title="The data sets",
        shows="The synthetic data, and the generator that stands in for ADNI, which is not public.",
        axes=("", ""),
        measure=shape,
        grids=({"data": ("synthetic", "ADNI-shaped")},),
        curves={},
        claims=(Statement("Tasks, samples and dimensions are as printed.", _table_shapes),),
        quick={},
        drawn="table",
    ),
)
