"""What a run costs. Two prices, both fixed with its declaration:

**Its own** (ε, δ) for each task, composed as tightly as we can prove (``accounting.epsilon``),
since everything in it is fixed in advance. It must stay within the task's budget, and is charged
whole with the first release. Prices of several runs on one task add up, ε and δ both: basic
composition survives that later runs are chosen after seeing earlier outputs.

**Under a lifetime cap**, which was fixed before the first output of all, runs compose tightly
however they are chosen (a filter), so there each release also costs (μ², ε, δ₀):

================  ===================================================================
``Gaussian(μ)``   (μ · share)², release by release
``Pure(ε)``       ε · share, release by release
``Approximate``   (ε, δ), release by release; nothing where the share is 0
sampled           the whole block of the plan once, with its first release: the smallest μ with
                  δ_run(ε) ≤ (1 − δ₀) δ_GDP(ε; μ) + δ₀ for all ε (``accounting.dominating``)
================  ===================================================================

Pure releases whose sum exceeds the budget, but whose optimal composition does not, are a block too:
they cost the run's own (ε, δ), once. Where k releases of one pure event were planned beforehand and
come one by one, in runs of their own (a person's reports), the first costs the optimal composition
of all k, the others nothing, and the k + 1st is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import BoolArray, FloatArray
from tacit.errors import BudgetExceeded
from tacit.privacy import accounting
from tacit.privacy.accounting import Approximate, Cost, Event, Gaussian, Poisson, Pure, Visible
from tacit.privacy.budget import Budget
from tacit.privacy.chain import RELATIVE
from tacit.privacy.runs import SAMPLED, Cap, Run

EXPECTED = 2
"""Of a cap's δ a sampled run takes what is best if there are so many like it: a public rule."""


def priced(run: Run, cap: Cap) -> Run:
    """The run with its prices; BudgetExceeded if its own exceeds a task's budget."""
    m = len(run.tasks)
    pairs, block = np.zeros((m, 2)), np.zeros((m, 3))
    keys = np.column_stack([run.shares, run.budget_of])
    for group in groups(keys, run.shares > 0):
        events = scaled_plan(run.plan, float(run.shares[group[0]]))
        budget = run.budgets[run.budget_of[group[0]]]
        pairs[group] = pair = own_pair(events, budget)
        if pair[0] > budget.epsilon * (1 + RELATIVE):
            raise BudgetExceeded(run.tasks[group[0]], budget.epsilon, pair[0], budget)
        if cap and any(type(event) in SAMPLED for event, _ in events):
            block[group] = _sampled_price(events, cap[-1])
    kinds = SAMPLED
    if all(isinstance(event, Pure) for event, _ in run.plan) and (pairs[:, 1].any() or run.planned):
        whole = _planned_price(run, cap) if run.planned and cap else pairs
        kinds, block = SAMPLED | {Pure}, np.column_stack([np.zeros(m), whole])
    return replace(run, cap=cap, pairs=pairs, block=block, block_kinds=kinds)


def _planned_price(run: Run, cap: Cap) -> FloatArray:
    """(m, 2): the optimal composition of the k releases that were planned, for each task."""
    plan, _ = run.planned_event()
    pair = np.array(own_pair([plan], cap[-1]))
    return np.asarray((run.shares > 0)[:, None] * pair)


def scaled_plan(plan: Sequence[tuple[Event, int]], share: float) -> tuple[tuple[Event, int], ...]:
    """The plan as it is for a task that reveals ``share`` of each event.

    >>> scaled_plan([(Gaussian(0.4), 2), (Pure(1.0), 1)], 0.5)
    ((Gaussian(mu=0.2), 2), (Pure(epsilon=0.5), 1))
    """
    return tuple((_scaled(event, share), count) for event, count in plan)


def _scaled(event: Event, share: float) -> Event:
    match event:
        case Poisson():
            return replace(event, noise_multiplier=event.noise_multiplier / share)
        case Gaussian() | Visible():
            return replace(event, mu=event.mu * share)
        case Pure(epsilon):
            return Pure(epsilon * share)
    return event  # Approximate


def own_pair(events: Sequence[tuple[Event, int]], budget: Budget) -> tuple[float, float]:
    """(ε, δ) of a plan by itself: at δ = 0 where pure releases fit by plain addition.

    >>> own_pair([(Pure(0.1), 5)], Budget(1.0)), own_pair([], Budget(1.0))
    ((0.5, 0.0), (0.0, 0.0))
    """
    every = [event for event, count in events for _ in range(count)]
    if all(isinstance(event, Pure) for event in every):
        total = math.fsum(event.epsilon for event in every if isinstance(event, Pure))
        if total <= budget.epsilon * (1 + RELATIVE) or budget.delta == 0:
            return total, 0.0
    return accounting.epsilon(every, budget.delta), budget.delta


def _sampled_price(events: Sequence[tuple[Event, int]], cap: Budget) -> tuple[float, float, float]:
    """(μ², 0, δ₀) of the sampled part of a plan, under a cap."""
    inside = [event for event, count in events for _ in range(count) if type(event) in SAMPLED]
    mu, delta = accounting.dominating(inside, cap.delta, runs=EXPECTED)
    return mu * mu, 0.0, delta


def event_charge(event: Event, shares: FloatArray) -> FloatArray:
    """What one release of an event that adds up costs each task, (m, 3): μ², ε, δ.

    >>> event_charge(Gaussian(0.5), np.array([1.0, 0.5, 0.0]))[:, 0]
    array([0.25  , 0.0625, 0.    ])
    """
    if len(shares) > 1 and np.all(shares == shares[0]):  # one for all of them, written once
        return np.broadcast_to(event_charge(event, shares[:1]), (len(shares), 3))
    charge = np.zeros((len(shares), 3))
    match event:
        case Gaussian(mu):
            charge[:, 0] = (mu * shares) ** 2
        case Pure(epsilon):
            charge[:, 1] = epsilon * shares
        case Approximate(epsilon, delta):
            charge[shares > 0] = (0.0, epsilon, delta)
        case _:
            raise AssertionError(f"{event} has no cost of its own")
    return charge


def groups(keys: FloatArray, among: BoolArray) -> list[NDArray[np.intp]]:
    """The rows that have equal keys, among those asked for; in the order of their first rows.

    >>> [g.tolist() for g in groups(np.array([[2.0], [1.0], [2.0], [1.0]]), np.array([1, 1, 1, 0]))]
    [[0, 2], [1]]
    """
    rows = np.flatnonzero(among)
    if not rows.size:
        return []
    if np.all(keys[rows] == keys[rows[0]]):
        return [rows]
    codes = np.zeros(rows.size, dtype=np.intp)
    for column in keys[rows].T:
        _, code = np.unique(column, return_inverse=True)
        _, codes = np.unique(codes * (code.max() + 1) + code, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    found = np.split(rows[order], np.flatnonzero(np.diff(codes[order])) + 1)
    return sorted(found, key=lambda group: int(group[0]))


def refusal(run: Run, spent: FloatArray, charge: FloatArray) -> BudgetExceeded | None:
    """The first task whose charge exceeds the run's lifetime cap on top of what was spent on it."""
    if not run.cap:
        return None
    cap, charged, total = run.cap[-1], np.any(charge > 0, axis=1), spent + charge
    # Costs only ever forbid more as they grow: if the worst of each fits, all do.
    if Cost(*total[charged].max(axis=0, initial=0.0).tolist()).within(with_slack(cap)):
        return None
    for group in groups(total, charged):
        first = int(group[0])
        after = Cost(*total[first].tolist())
        if not after.within(with_slack(cap)):
            before = Cost(*spent[first].tolist()).epsilon_at(cap.delta)
            asked = after.epsilon_at(cap.delta) - before if before < math.inf else math.inf
            return BudgetExceeded(run.tasks[first], max(0.0, cap.epsilon - before), asked, cap)
    return None


def with_slack(budget: Budget) -> Budget:
    """The budget and the rounding of adding its parts up: T times ε/T may exceed ε by an ulp."""
    up = 1 + RELATIVE
    return replace(budget, epsilon=budget.epsilon * up, delta=min(budget.delta * up, 1 - RELATIVE))
