"""Reports through the door: which mechanism a budget buys, who is charged, what is promised.

A user's label is a task of the ledger. Each report costs the user the mechanism's event; the budget
is the lifetime cap of whatever that user reports through the ledger, planned for so many reports. A
batch may hold several reports of one user: the users with c reports in it form a run with c
releases, and all runs are declared, and so held against everybody's budget, before the first noise
is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidInput, NotPure
from tacit.privacy.accounting import Pure, gaussian_mu, per_report_epsilon
from tacit.privacy.budget import Budget, Guarantee
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms.local import (
    LocalGaussian,
    LocalKNorm,
    LocalLaplace,
    LocalMechanism,
    LocalStaircase,
    PrivUnitG,
)
from tacit.privacy.noise import FloatArray
from tacit.privacy.promises import PREPROCESSING, REPORTS
from tacit.privacy.release import Key, Mechanism, new_run
from tacit.privacy.spending import IN_FLOATS
from tacit.tasks import task_codes

SIMULATED = "simulated noise: floating-point draws from a seeded generator"

LocalName = Literal["laplace", "knorm", "privunit", "gaussian", "staircase"]
MECHANISMS: tuple[LocalName, ...] = get_args(LocalName)[:4]
"""Those for reports of any length; "staircase" is for reports of one number."""

ONCE = "each row another person, who reports once"
"""What is assumed of reports that name nobody."""

LOCAL = Guarantee(
    epsilon=math.inf,
    delta=0.0,
    unit="one user's vector",
    neighbours="any two vectors (replace)",
    adversary="whoever sees the user's reports, the collector included",
    not_covered=(
        "the rows given to fit: they shape the encoder and are treated as public (volunteers)",
        "people who report through an encoder that was not fixed before they report",
        "that somebody reports, when, and how often",
        "reports that the user makes elsewhere, or that this ledger does not see",
        f"{REPORTS}; of reports that name nobody (user=None) it is assumed: {ONCE}",
        PREPROCESSING,
    ),
    secure_noise=False,
    proven=False,
)
"""Local DP, before anything is known about the mechanism."""


def available(budget: Budget, reports: int = 1) -> tuple[LocalName, ...]:
    """The mechanisms whose guarantee the budget can state: without δ only those that are pure and
    drawn exactly, since δ = 0 is not claimed of noise that is near its law.

    >>> available(Budget(1.0)), "knorm" in available(Budget(1.0, 0.0))
    (('laplace', 'knorm', 'privunit', 'gaussian', 'staircase'), False)
    """
    every: tuple[LocalName, ...] = get_args(LocalName)
    return tuple(name for name in every if _can_be_stated(name, budget, reports))


def _can_be_stated(name: LocalName, budget: Budget, reports: int) -> bool:
    try:
        mechanism = local_mechanism(name, 1.0, budget, 1, reports=reports)
    except InvalidInput:  # not pure, or this ε is beyond what it can draw
        return False
    return budget.delta > 0 or mechanism.secure(None)


def local_mechanism(
    name: LocalName,
    radius: float,
    budget: Budget,
    dim: int,
    *,
    reports: int = 1,
    weights: Sequence[float] | None = None,
) -> LocalMechanism:
    """The mechanism whose ``reports`` releases spend a user's budget: μ/√k each, or the ε whose
    optimal composition at δ is ε (ε/k at δ = 0).

    ``weights`` (dim,) are Laplace's σ; equal ones by default.

    >>> local_mechanism("gaussian", 1.0, Budget(1.0), 3, reports=4).event("replace").mu.__round__(4)
    0.134
    """
    if budget.neighbours != "replace":
        raise InvalidInput(f"a local budget is for any two vectors: 'replace', got {budget}")
    if not (isinstance(reports, int | np.integer) and reports >= 1):
        raise InvalidInput(f"reports must be a positive integer, got {reports!r}")
    epsilon = per_report_epsilon(reports, budget)
    match name:
        case "laplace":
            return LocalLaplace(
                radius, epsilon, (1.0,) * dim if weights is None else tuple(weights)
            )
        case "knorm":
            return LocalKNorm(radius, epsilon)
        case "privunit":
            return PrivUnitG(radius, epsilon)
        case "staircase":
            return LocalStaircase(radius, epsilon)
        case "gaussian":
            return LocalGaussian(radius, _mu(budget) / math.sqrt(reports))
    raise InvalidInput(f"mechanism must be 'auto' or one of {get_args(LocalName)}, got {name!r}")


def _mu(budget: Budget) -> float:
    if budget.delta == 0:
        raise NotPure(f"delta = 0 with Gaussian reports; pure mechanisms are {MECHANISMS[:3]}")
    return gaussian_mu(budget.epsilon, budget.delta)


# --- through the ledger --------------------------------------------------------------------------


def reported(
    mechanism: Mechanism,
    rows: FloatArray,
    budget: Budget,
    *,
    reports: int = 1,
    user: Any = None,
    ledger: Ledger | None = None,
    rng: np.random.Generator | None = None,
) -> FloatArray:
    """One report for each row (n, dim), charged to its user on the ledger.

    ``user`` labels the rows; None: every row is another person who reports once, so there is
    nothing to add up, and the batch is recorded under a label that says so. Nobody is charged and
    no noise drawn if one user cannot pay.
    """
    if not len(rows):
        return np.zeros(rows.shape)
    whole = Ledger.in_memory(cap=budget) if ledger is None else ledger
    door = whole if whole.lifetime() else whole.beside(whole.dataset, cap=budget)
    terms = _terms(mechanism, reports, rng)
    out = np.empty(rows.shape)
    if user is None:
        everybody = np.arange(len(rows))
        run = new_run()
        label = f"batch {run}: {ONCE}"
        door.open_run(run, [label], budget, [mechanism.event("replace")], **terms)
        runs = [(run, [everybody])]
    else:
        runs = _declared(door, mechanism, *task_codes(user, len(rows)), budget, terms)
    for run, rounds in runs:
        for turn, where in enumerate(rounds, start=1):
            key = Key(run, turn, "users")
            out[where] = door.release(mechanism, rows[where], key=key, rng=rng).value
    return out


def _terms(mechanism: Mechanism, reports: int, rng: np.random.Generator | None) -> dict[str, Any]:
    """What every run of reports declares: who is protected, from whom, in how many reports."""
    event = mechanism.event("replace")
    several = "" if reports == 1 else f", in at most {reports} reports of {event}"
    return {
        "unit": LOCAL.unit + several,
        "adversary": LOCAL.adversary,
        "secure": rng is None,
        "doubts": () if rng is None else (SIMULATED,),
        "planned": reports if isinstance(event, Pure) and reports > 1 else 0,
    }


def _declared(
    ledger: Ledger,
    mechanism: Mechanism,
    labels: Sequence[Hashable],
    codes: NDArray[np.int64],
    budget: Budget,
    terms: dict[str, Any],
) -> list[tuple[str, list[NDArray[np.intp]]]]:
    """One run for all users with the same number of reports: its name, and the rows of each turn.

    Every turn holds one row of each user of the run, in the order of the labels.
    """
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes, minlength=len(labels))
    starts = np.cumsum(counts) - counts
    runs = []
    for count in np.unique(counts):
        users = np.flatnonzero(counts == count)
        run = new_run()
        plan = [mechanism.event("replace")] * int(count)
        ledger.open_run(run, [labels[int(i)] for i in users], budget, plan, **terms)
        runs.append((run, [order[starts[users] + turn] for turn in range(count)]))
    return runs


# --- what is promised ----------------------------------------------------------------------------


def guarantee(
    mechanism: LocalMechanism | None,
    budget: Budget | None,
    *,
    reports: int = 1,
    simulated: bool = False,
    claimed_only: str = "",
) -> Guarantee:
    """What a user who reports ``reports`` times through this encoder reveals.

    No budget: nothing is promised. No mechanism: nothing is reported, so nothing is revealed. δ = 0
    is claimed of exact pure noise whose ε add up to the budget; noise drawn in floating point is
    near its law and not equal to it, so the budget's δ is stated, and where that is 0 a doubt.
    """
    if budget is None:
        return replace(LOCAL, reason="budget=None: no privacy at all")
    if mechanism is None:
        return replace(LOCAL, epsilon=0.0, proven=True, secure_noise=True, reason="no report")
    doubts = [claimed_only] if claimed_only else []
    if simulated:
        doubts.append(SIMULATED)
    exact = mechanism.secure(None)
    if not (exact or claimed_only or budget.delta > 0):
        doubts.append(IN_FLOATS)
    why = [mechanism.reason] if mechanism.reason and not claimed_only else []
    return replace(
        LOCAL,
        epsilon=budget.epsilon,
        delta=0.0 if exact and mechanism.pure and reports == 1 else budget.delta,
        unit=LOCAL.unit if reports == 1 else f"{LOCAL.unit}, in {reports} reports together",
        accountant=_accountant(mechanism, budget),
        secure_noise=exact and not simulated,
        proven=mechanism.proven and not doubts,
        reason="; ".join([*doubts, *why]),
    )


def _accountant(mechanism: LocalMechanism, budget: Budget) -> str:
    if not mechanism.pure:
        return "exact Gaussian DP, μ² a report"
    return "optimal composition of pure reports" if budget.delta > 0 else "ε a report, added"
