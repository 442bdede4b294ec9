"""What a run may spend, for whom it is opened, and the guarantee that everything adds up to."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from tacit.arrays import FloatArray
from tacit.errors import BudgetExceeded, InvalidInput, NotPure
from tacit.privacy.accounting import Cost, Event, cost, gaussian_mu, remaining_mu
from tacit.privacy.budget import A_TASK, OTHER_TASKS, Budget, Guarantee, Neighbours
from tacit.privacy.chain import event_from_json
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import PURE
from tacit.privacy.not_covered import not_covered
from tacit.privacy.release import Key, Mechanism, Release, new_run
from tacit.privacy.runs import RunTerms, numbered
from tacit.tasks.labels import canonical_label, require_one_text

UNIT = Guarantee(
    epsilon=math.inf,
    delta=0.0,
    unit=A_TASK,
    neighbours="none",
    adversary=OTHER_TASKS,
    not_covered=(
        "the operator of the trusted side, who sees everything",
        "a task's own model, which is solved without noise: hand it to nobody but that task",
        "the labels and the number of tasks, and every declared range, category and class",
    ),
    secure_noise=False,
    proven=False,
)
"""Task-level joint DP, before anything is known about the run."""

SIMULATED = "simulated noise: floating-point draws from a seeded generator"


@dataclass(frozen=True)
class Door:
    """What a run needs to release anything."""

    ledger: Ledger
    run: str
    labels: tuple[Hashable, ...]
    budgets: tuple[Budget | None, ...]  # per task; None: not charged, contributes zero
    shares: FloatArray  # (m,), each task's clip norm relative to the most generous budget
    mu: float  # what the most generous task spends, as μ-GDP; 0 if the run is no such
    rng: np.random.Generator | None  # None: secure noise
    pure: Cost | None = None  # in a pure run: the ε and δ of the most generous task
    promise: Guarantee = UNIT  # whom the run protects from whom
    doubts: tuple[str, ...] = ()  # why nothing is proven
    family: str = ""
    at_home: Door | None = None  # of what tasks release to the curator, if he is not trusted either

    def open(self, mechanisms: Sequence[Mechanism]) -> None:
        """Declares a run of these releases on the ledger; BudgetExceeded before any noise is
        drawn."""
        plan: list[Event] = []
        for _, alike in groupby(mechanisms, key=id):  # many releases by one, asked once
            mechanism, *others = alike
            plan += [mechanism.event(self.neighbours)] * (1 + len(others))
        terms = RunTerms(
            self.promise.unit,
            self.promise.adversary,
            self.rng is None,
            self.doubts,
            family=self.family,
        )
        self.ledger.open_run(self.run, self.labels, self.budgets, plan, terms, shares=self.shares)

    @property
    def neighbours(self) -> Neighbours:
        """The relation of all budgets of the run."""
        return next(budget.neighbours for budget in self.budgets if budget is not None)

    def release(self, number: int, party: str, mechanism: Mechanism, contributions: Any) -> Release:
        """Release ``number`` of the run, by this party."""
        key = Key(self.run, number, party)
        return self.ledger.release(mechanism, contributions, key=key, rng=self.rng)

    def released(self, number: int, party: str, mechanism: Mechanism) -> Release | None:
        """That release, if it is on the ledger, and by this mechanism: it needs no contributions;
        LedgerError if it was made by another."""
        if self.ledger.released(Key(self.run, number, party)) is None:
            return None
        return self.release(number, party, mechanism, None)


def open_door(
    ledger: Ledger,
    run: str | None,
    labels: tuple[Hashable, ...],
    budget: Budget | Mapping[Hashable, Budget],
    rng: np.random.Generator | None,
    *,
    pure: bool,
    promise: Guarantee = UNIT,
    doubts: Sequence[str] = (),
    family: str = "",
    part: Callable[[str, int], str] = lambda run, _: run,
    by_plan: bool = False,
) -> Door:
    """The door of a run that spends its budget; BudgetExceeded before any noise is drawn.

    ``part``: the name under which the ledger knows task i's part of the run. ``by_plan``: all tasks
    reveal the same, and what that is only the whole plan tells, when the door is opened (samples).
    """
    budgets = per_task(budget, labels)
    run = run or new_run()
    different, _ = numbered(budgets)
    if not pure and any(each.delta == 0 for each in different):
        raise NotPure(
            "delta = 0 with Gaussian releases: take a budget with delta > 0; pure mechanisms are "
            f"{', '.join(PURE)}"
        )
    partly = isinstance(budget, Mapping)
    amounts = np.ones(len(labels))
    if not by_plan:
        of_run = partial(part, run)
        amounts = affordable(ledger, of_run, labels, budgets, pure=pure, partly=partly)
    top = float(amounts.max())
    return Door(
        ledger,
        run,
        labels,
        budgets if np.all(amounts > 0) else _charged(budgets, amounts),
        amounts / top,
        0.0 if pure or by_plan else top,
        rng,
        Cost(epsilon=top, delta=budgets[0].delta if len(different) == 1 else 0.0) if pure else None,
        promise,
        (*doubts, *([] if rng is None else [SIMULATED])),
        family,
    )


def _charged(budgets: Sequence[Budget], amounts: FloatArray) -> tuple[Budget | None, ...]:
    return tuple(b if amount > 0 else None for b, amount in zip(budgets, amounts, strict=True))


def affordable(
    ledger: Ledger,
    part: Callable[[int], str],
    labels: Sequence[Hashable],
    budgets: Sequence[Budget],
    *,
    pure: bool,
    partly: bool,
) -> FloatArray:
    """μ, or ε of a pure run, that each task may spend: its budget, if the lifetime cap allows it.

    ``partly``: a task with less left than its budget spends that, one with nothing spends nothing;
    otherwise, or if nobody has anything left, it stops the run.
    """
    different, budget_of = numbered(budgets)
    amounts = [b.epsilon if pure else gaussian_mu(b.epsilon, b.delta) for b in different]
    asked = np.array(amounts)[budget_of]
    cap = ledger.lifetime()
    if not cap:
        return asked
    spent = ledger.costs(labels, before=[*map(part, range(len(labels)))])
    remaining = remaining_epsilon if pure else remaining_mu
    found = {each: remaining(cap[-1], each) for each in set(spent)}
    left = np.array([found[each] for each in spent])
    short = left < asked * (1 - 1e-9)
    if short.any() and not (partly and left.any()):
        i = int(np.argmax(short))
        rest = cap[-1].epsilon - spent[i].epsilon_at(cap[-1].delta)
        raise BudgetExceeded(labels[i], max(0.0, rest), budgets[i].epsilon, cap[-1])
    return np.asarray(np.minimum(asked, left))


def per_task(
    budget: Budget | Mapping[Hashable, Budget], labels: Sequence[Hashable]
) -> tuple[Budget, ...]:
    """One budget per task, all with the same neighbours."""
    if isinstance(budget, Budget):
        return (budget,) * len(labels)
    if not isinstance(budget, Mapping):
        raise InvalidInput(
            f"budget must be a Budget, a mapping of labels to Budgets or None, got {budget!r}"
        )
    require_one_text(budget, "budget")
    named = {canonical_label(label): each for label, each in budget.items()}
    missing = [label for label in labels if canonical_label(label) not in named]
    if missing:
        raise InvalidInput(
            f"budget names no budget for task {missing[0]!r} ({len(missing)} missing)"
        )
    budgets = tuple(named[canonical_label(label)] for label in labels)
    if len({b.neighbours for b in budgets}) > 1:
        raise InvalidInput("all budgets of a run must have the same neighbours")
    return budgets


def remaining_epsilon(budget: Budget, spent: Cost) -> float:
    """The largest ε that one more pure run may have on top of what was spent; 0 if none.

    What a calibrated run leaves by rounding is nothing.
    """
    left = budget.epsilon - spent.epsilon_at(budget.delta)
    return left if left > 1e-6 * budget.epsilon else 0.0


# --- what it adds up to --------------------------------------------------------------------------


def stated(
    promise: Guarantee,
    ledger: Ledger,
    labels: Sequence[Hashable],
    runs: Sequence[str],
    *,
    neighbours: str,
    accountant: str,
) -> Guarantee:
    """What this run, and everything else recorded for these tasks, reveals about one unit."""
    found = ledger.statement(labels, runs)
    how = "" if found.runs <= 1 else f"; {found.runs} runs, "
    how += "their ε and δ added" if found.after_output else "under the lifetime cap" if how else ""
    return replace(
        promise,
        epsilon=found.epsilon,
        delta=found.delta,
        neighbours=neighbours,
        not_covered=not_covered(promise.not_covered, found.delta, len(labels)),
        accountant=accountant + how,
        secure_noise=found.secure_noise,
        proven=found.proven,
        reason="; ".join(found.doubts),
        runs=found.runs,
        after_output=found.after_output,
        run_epsilon=found.run_epsilon,
        run_delta=found.run_delta,
    )


def history(door: Door) -> list[dict[str, Any]]:
    """Each release of the run: its mechanism, its event, and the ε of the run after it; of samples,
    which only add up as a whole, no ε."""
    delta = max(b.delta for b in door.budgets if b is not None)
    spent, lines = Cost(), []
    for entry in door.ledger.spends(door.run):
        line = {name: entry.payload[name] for name in ("round", "mechanism", "event")}
        added = cost(event_from_json(line["event"]))
        if added is not None:
            spent += added
            line["epsilon"] = spent.epsilon_at(delta)
        lines.append(line)
    return lines
