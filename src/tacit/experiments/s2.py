"""S2: Hu, Wu, Smith, "Private Multi-Task Learning: Formulation and Applications to Federated
Learning", arXiv 2108.12978. Figures 2 and 3 and Table 1; Figure 1 is a drawing.

StackOverflow, CelebA and FEMNIST's training part are not to be had, nor is the appendix with models
and settings. Here: MNIST by writer, FEMNIST's test part, and a linear classifier of 7 × 7 pixels.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tacit.experiments.comparisons import (
    above,
    falls,
    ours_no_worse,
    ours_no_worse_in_the_end,
    rises,
    verdict,
)
from tacit.experiments.declared import Experiment, Judgement, Kind, Statement
from tacit.experiments.measured import Measured
from tacit.experiments.s2_measures import accuracy_by_epsilon, by_round, finetuned_accuracy

MTL, AVERAGED, PROXIMAL, OURS, ALONE = "MTL", "FedAvg", "FedProx", "tacit", "single-task"
AT_HOME = f"{OURS}, taken home"
DATA = ("MNIST by writer", "FEMNIST, test part")
FILES = ("mnist_by_writer.npz", "femnist_pmtl_testpart.npz")
NO_PRIVACY = "no privacy"
EPSILONS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 4.0)
CURVES: Final[dict[str, Kind]] = {
    MTL: "published",
    AVERAGED: "published",
    PROXIMAL: "published",
    OURS: "ours",
    AT_HOME: "ours",
    f"{MTL}, no privacy": "open",
    f"{AVERAGED}, no privacy": "open",
    ALONE: "alone",
}


def _global_ahead(measured: Measured) -> Judgement:
    """The global model at "mean" against the best of MTL's rows."""
    by_mean = measured.mean(AVERAGED, "mean", NO_PRIVACY).mean
    best = max(measured.means(MTL, NO_PRIVACY), key=lambda m: m.mean)
    told = verdict([by_mean > best.mean])
    said = f"{AVERAGED}, mean {by_mean:.3f}; {MTL}, {best.x} {best.mean:.3f}"
    return Judgement(told, by_mean / best.mean, said)


def _wider_at_small_epsilon(measured: Measured) -> Judgement:
    """MTL less the global model, both finetuned with KL."""
    gaps = {
        panel: measured.mean(MTL, "kl", panel).mean - measured.mean(AVERAGED, "kl", panel).mean
        for panel in ("ε = 0.1", NO_PRIVACY)
    }
    small, none = gaps.values()
    said = ", ".join(f"{gap:.3f} ({panel})" for panel, gap in gaps.items())
    return Judgement(verdict([small > max(none, 0.0)]), small, f"{MTL} less {AVERAGED}: {said}")


def _ahead_with_privacy(measured: Measured) -> Judgement:
    """At every ε of the table, and with every finetuning."""
    panels = [panel for panel in measured.panels if panel != NO_PRIVACY]
    found = [above(MTL, AVERAGED, panel=panel)(measured) for panel in panels]
    told = {each.verdict for each in found}
    said = "; ".join(each.numbers for each in found)
    size = min(each.size for each in found)
    return Judgement(found[0].verdict if len(told) == 1 else "holds in part", size, said)


def _early(measured: Measured) -> Judgement:
    """Half of what the loss falls it has fallen before half of the claimed ε is spent."""
    good, said = [], []
    for data in DATA:
        loss = measured.means(MTL, f"{data}: loss")
        half = (loss[0].mean + loss[-1].mean) / 2
        spent = measured.means("claimed", f"{data}: ε")
        (there, *_) = [e.mean for m, e in zip(loss, spent, strict=True) if m.mean <= half]
        good.append(there <= spent[-1].mean / 2)
        said.append(f"{data}: half of the fall at ε = {there:.3g} of {spent[-1].mean:.3g}")
    return Judgement(verdict(good), float(sum(good)), "; ".join(said))


def _amplified(measured: Measured) -> Judgement:
    """MTL less the global model, at every ε below one and without privacy, by data set."""
    good: list[bool] = []
    said = []
    for panel in measured.panels:
        at = measured.places(MTL, panel)
        one, other = (
            {x: measured.mean(name, x, panel).mean for x in at if isinstance(x, float) and x < 1}
            | {None: measured.mean(f"{name}, {NO_PRIVACY}", None, panel).mean}
            for name in (MTL, AVERAGED)
        )
        gaps = {x: one[x] - other[x] for x in one}
        without = gaps.pop(None)
        good += [gap > max(without, 0.0) for gap in gaps.values()]
        each = ", ".join(f"{gap:.3f} at {x:g}" for x, gap in gaps.items())
        said.append(f"{panel}: {each}, {without:.3f} without privacy")
    found = f"{MTL} less {AVERAGED}: {'; '.join(said)}"
    return Judgement(verdict(good), float(sum(good)), found)


_CHOSEN: Final = {
    # The appendix with S2's grids is not to be had: γ as in Figure 2, T and λ by powers.
    "writers": None,
    "clips": [0.2, 0.5, 1.0],
    "rounds": [10, 30, 100],
    "pulls": [0.01, 0.1, 1.0],
}
_QUICK: Final = {"writers": 100, "clips": [0.5], "rounds": [30]}
_COMMON: Final = {**_CHOSEN, "data": DATA}
_ROUNDS: Final = {"data": DATA, "rounds": 800, "clip": 0.2, "writers": None}
_TABLE: Final = {**_CHOSEN, "epsilon": (0.1, 0.8, 2.0, None)}

_figure = partial(Experiment, curves=CURVES, repetitions=3, files=FILES)
FIGURES: Final = (
    _figure(
        name="S2-fig2",
        title="Loss and ε by round",
        shows="S2's Algorithm 1 with σ = 0.01 on the mean of a cohort (a fifth of the clients), "
        "γ = 0.2, δ = 1/m. ε as S2 claims it, amplified, and what holds for cohorts of fixed size "
        "that the others can see. Ours at the ε that is claimed in the end: the shared model by "
        "the round, and what clients take home after the last.",
        axes=("round", ""),
        measure=by_round,
        grids=(
            {**_ROUNDS, "method": (MTL, OURS), "sigma": 0.01},
            {**_ROUNDS, "method": (MTL, ALONE), "sigma": None},
        ),
        curves=CURVES | {"claimed": "published", "what holds": "other"},
        claims=(
            Statement("The loss falls by the round.", falls(MTL)),
            Statement("ε grows by the round.", rises("claimed", "what holds")),
            Statement(
                "It converges fairly quickly with respect to ε (here: half of the fall before half "
                "of ε).",
                _early,
            ),
            Statement(
                "What holds is no more than what is claimed.", above("claimed", "what holds")
            ),
            ours_no_worse_in_the_end([(AT_HOME, MTL)]),
        ),
        quick={"rounds": 60, "writers": 100},
    ),
    _figure(
        name="S2-fig3",
        title="Test accuracy of private MTL and of a private global model",
        shows="Accuracy over all clients' test rows at eight ε, δ = 1/m; γ, T and λ by validation "
        "accuracy at each ε, which S2 does not count. FedProx is the paper's Appendix A.6.",
        axes=("ε", "test accuracy"),
        measure=accuracy_by_epsilon,
        grids=(
            {**_COMMON, "method": (MTL, AVERAGED, PROXIMAL, OURS), "epsilon": EPSILONS},
            {**_COMMON, "method": (MTL, AVERAGED, ALONE), "epsilon": None},
        ),
        claims=(
            Statement("Private MTL beats a private global model.", above(MTL, AVERAGED)),
            Statement("It beats private FedProx.", above(MTL, PROXIMAL)),
            Statement(
                "Without privacy it does, too.",
                above(f"{MTL}, no privacy", f"{AVERAGED}, no privacy"),
            ),
            Statement("For ε < 1 it is further ahead than without privacy.", _amplified),
            Statement("Accuracy grows with ε.", rises(MTL, AVERAGED)),
            ours_no_worse([(OURS, MTL), (OURS, AVERAGED), (OURS, PROXIMAL)], "higher"),
        ),
        quick={**_QUICK, "epsilon": (0.1, 0.8, 4.0)},
        logarithmic="x",
    ),
    _figure(
        name="S2-table1",
        title="Finetuning at home after private MTL or a private global model",
        shows="FEMNIST's test part; γ, T and λ as in Figure 3. Vanilla finetuning, "
        "mean-regularization, symmetrised KL and EWC; ours takes home what its own rows prefer, "
        "whichever row of the table.",
        axes=("finetuning", "test accuracy"),
        measure=finetuned_accuracy,
        grids=(
            {**_TABLE, "method": (MTL, AVERAGED), "finetune": ("vanilla", "mean", "kl", "ewc")},
            {**_TABLE, "method": (OURS, ALONE), "finetune": None},
        ),
        claims=(
            Statement(
                "Private MTL with finetuning beats the global model with finetuning.",
                _ahead_with_privacy,
            ),
            Statement(
                "Without privacy the global model with mean-regularization is ahead of MTL with "
                "whatever finetuning.",
                _global_ahead,
            ),
            Statement(
                "With KL the gap is larger at ε = 0.1 than without privacy.",
                _wider_at_small_epsilon,
            ),
            ours_no_worse([(OURS, MTL), (OURS, AVERAGED)], "higher"),
        ),
        quick={**_QUICK, "epsilon": (0.1, 2.0, None)},
        files=(FILES[1],),
        drawn="table",
    ),
)
