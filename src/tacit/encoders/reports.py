"""Reports through the door: who is charged, and what is promised.

A user's label is a task of the ledger. Each report costs the user the mechanism's event; the budget
is the lifetime cap of whatever that user reports through the ledger, planned for so many reports. A
batch may hold several reports of one user: the users with c reports in it form a run with c
releases, and all runs are declared, and so held against everybody's budget, before the first noise
is drawn.

A certificate is about reports to come. It rests on what a ledger says of somebody who has made all
that the budget is for: they are rehearsed, on zeros, through the same door.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import FloatArray
from tacit.certificate import CertifiedRun
from tacit.errors import LedgerError
from tacit.privacy.accounting import Event, Pure
from tacit.privacy.budget import Budget, Guarantee
from tacit.privacy.dataset_account import IN_FLOATS
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms.local import LocalMechanism
from tacit.privacy.not_covered import DELTA, PREPROCESSING, REPORTS, not_covered
from tacit.privacy.planning import SIMULATED
from tacit.privacy.release import Key, Mechanism, new_run
from tacit.privacy.runs import RunTerms
from tacit.rounding import odds
from tacit.tasks import task_codes

ONCE = "each row another person, who reports once"
"""What is assumed of reports that name nobody."""

ANYBODY = "anybody"

LOCAL = Guarantee(
    epsilon=math.inf,
    delta=0.0,
    unit="one user's vector",
    neighbours="replace",
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
    if whole.lifetime() not in ((), (budget,)):
        raise LedgerError(
            f"the ledger's lifetime cap is {' < '.join(map(str, whole.lifetime()))}, and a user is "
            f"promised {budget} for all reports: give the ledger no cap, or this one"
        )
    door = whole.beside(whole.dataset, cap=budget)
    doubts = () if rng is None else (SIMULATED,)
    terms = _terms(mechanism, reports, secure=rng is None, doubts=doubts)
    event = mechanism.event("replace")
    runs = list(_runs(user, len(rows)))
    for run, labels, turns in runs:
        door.open_run(run, labels, budget, [event] * len(turns), terms)
    out = np.empty(rows.shape)
    for run, _, turns in runs:
        for turn, where in enumerate(turns, start=1):
            key = Key(run, turn, "users")
            out[where] = door.release(mechanism, rows[where], key=key, rng=rng).value
    return out


def _runs(user: Any, n: int) -> Iterator[tuple[str, list[Hashable], list[NDArray[np.intp]]]]:
    """One run for all users with the same number of reports: its name, users, rows of each turn.

    Every turn holds one row of each user of the run, in the order of the labels.
    """
    if user is None:
        run = new_run()
        yield run, [f"batch {run}: {ONCE}"], [np.arange(n)]
        return
    labels, codes = task_codes(user, n)
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes, minlength=len(labels))
    starts = np.cumsum(counts) - counts
    for count in np.unique(counts):
        users = np.flatnonzero(counts == count)
        turns = [order[starts[users] + turn] for turn in range(count)]
        yield new_run(), [labels[int(i)] for i in users], turns


def _terms(
    mechanism: Mechanism, reports: int, *, secure: bool, doubts: tuple[str, ...]
) -> RunTerms:
    """What every run of reports declares: who is protected, from whom, in how many reports."""
    event = mechanism.event("replace")
    planned = reports if isinstance(event, Pure) and reports > 1 else 0
    return RunTerms(_unit(event, reports), LOCAL.adversary, secure, doubts, planned)


def _unit(event: Event, reports: int) -> str:
    return LOCAL.unit + ("" if reports == 1 else f", in at most {reports} reports of {event}")


# --- what is promised ----------------------------------------------------------------------------


def guarantee(
    mechanism: LocalMechanism | None,
    budget: Budget | None,
    *,
    reports: int = 1,
    simulated: bool = False,
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
    doubts = [] if mechanism.proven else [mechanism.reason]
    if simulated:
        doubts.append(SIMULATED)
    exact = mechanism.secure(None)
    if mechanism.proven and not (exact or budget.delta > 0):
        doubts.append(IN_FLOATS)
    remarks = [mechanism.reason] if mechanism.proven and mechanism.reason else []
    delta = 0.0 if exact and mechanism.pure and reports == 1 else budget.delta
    return replace(
        LOCAL,
        epsilon=budget.epsilon,
        delta=delta,
        unit=_unit(mechanism.event("replace"), reports),
        not_covered=_left_open(delta),
        accountant=_accountant(mechanism, budget),
        secure_noise=exact and not simulated,
        proven=not doubts,
        reason="; ".join([*doubts, *remarks]),
        run_epsilon=budget.epsilon,
        run_delta=delta,
    )


def _left_open(delta: float) -> tuple[str, ...]:
    """What is not covered, with δ said of a user: nobody knows how many report."""
    said = not_covered(LOCAL.not_covered, 0.0, 1)
    leak = f"{DELTA} a user's vector may leak whole with a chance of up to"
    return said if delta == 0 else (*said, f"{leak} {odds(delta)}, in all that they report")


def _accountant(mechanism: LocalMechanism, budget: Budget) -> str:
    if not mechanism.pure:
        return "exact Gaussian DP, μ² a report"
    return "optimal composition of pure reports" if budget.delta > 0 else "ε a report, added"


def on_device(mechanism: LocalMechanism, promised: Guarantee, delta: float) -> Guarantee:
    """What is left of a guarantee where encode.py draws the noise: it has an exact sampler for
    Laplace noise only. Of the others it states the budget's ``delta``, and doubts where that is 0.
    """
    if mechanism.exact_on_device:
        how = "encode.py draws exact discrete Laplace noise on the grid, in integers"
        return replace(promised, reason="; ".join(filter(None, [promised.reason, how])))
    reasons = [promised.reason, "encode.py draws this noise in floating point, on a public grid"]
    if delta == 0:
        reasons.append(f"{IN_FLOATS}; take a budget with delta > 0, or mechanism='laplace'")
    return replace(
        promised,
        delta=delta,
        not_covered=_left_open(delta),
        secure_noise=False,
        proven=promised.proven and delta > 0,
        reason="; ".join(filter(None, reasons)),
        run_delta=delta,
    )


def rehearsed(
    learner: str, mechanism: LocalMechanism, promised: Guarantee, size: int, *, reports: int
) -> CertifiedRun:
    """What a certificate of this promise rests on: all reports of one user, of ``size`` numbers."""
    budget = Budget(promised.epsilon, promised.delta)
    ledger, run, event = Ledger.in_memory(cap=budget), new_run(), mechanism.event("replace")
    doubts = () if promised.proven else (promised.reason,)
    terms = _terms(mechanism, reports, secure=promised.secure_noise, doubts=doubts)
    ledger.open_run(run, [ANYBODY], budget, [event] * reports, terms)
    rng = None if promised.secure_noise else np.random.default_rng(0)
    for turn in range(1, reports + 1):
        ledger.release(mechanism, np.zeros((1, size)), key=Key(run, turn, "users"), rng=rng)
    spent = next(entry.payload for entry in ledger.entries() if entry.kind == "spend")
    step = {name: spent[name] for name in ("round", "mechanism", "event")}
    steps = [step | {"epsilon": promised.epsilon, "count": reports}]
    return CertifiedRun(learner, promised, steps, ledger, [ANYBODY], run)
