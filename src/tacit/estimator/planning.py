"""What a run may spend: budgets, what is left of them, and the guarantee they add up to."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from tacit.errors import BudgetExceeded, InvalidInput, NotPure
from tacit.estimator.halves import Door
from tacit.linear.losses import FloatArray
from tacit.privacy.accounting import Cost, cost, remaining_mu
from tacit.privacy.budget import Budget, Guarantee
from tacit.privacy.chain import event_from_json
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import PURE
from tacit.privacy.release import new_run

UNIT = Guarantee(
    epsilon=math.inf,
    delta=0.0,
    unit="a whole task: its data and its model",
    neighbours="none",
    adversary="all other tasks together, who see every release and know their own data",
    not_covered=(
        "the operator of the trusted side, who sees everything",
        "a task's own model, which is solved without noise: hand it to nobody but that task",
        "the labels and the number of tasks, and every declared range, category and class",
    ),
    secure_noise=False,
    proven=False,
)
"""Task-level joint DP, before anything is known about the run."""


def large_delta(delta: float, tasks: int) -> tuple[str, ...]:
    """What to add to not_covered where δ is not well below 1/m; the papers' 1/m is not.

    >>> large_delta(1e-5, 139), large_delta(1 / 139, 139)[0][:33]
    ((), 'one whole task, with probability ')
    """
    if delta * tasks <= 0.1:
        return ()
    return (
        f"one whole task, with probability delta: {delta:.2g} is not well below 1/{tasks}, "
        "so somebody may leak; take a smaller delta",
    )


def opened(ledger: Any) -> Ledger:
    if ledger is None:
        return Ledger.in_memory()
    return ledger if isinstance(ledger, Ledger) else Ledger(ledger)


def open_door(
    ledger: Ledger,
    run: str | None,
    labels: tuple[Hashable, ...],
    budget: Budget | Mapping[Hashable, Budget],
    rng: np.random.Generator | None,
    *,
    pure: bool,
) -> Door:
    """The door of a run that spends all that is left; BudgetExceeded before any noise is drawn."""
    budgets = per_task(budget, labels)
    run = run or new_run()
    spent = ledger.costs(labels, before=run)
    remaining = remaining_epsilon if pure else remaining_mu
    pairs = list(zip(budgets, spent, strict=True))
    found = {pair: remaining(*pair) for pair in set(pairs)}
    left = np.array([found[pair] for pair in pairs])
    if not isinstance(budget, Mapping) or not left.any():
        require_left(labels, budgets, spent, left, pure)
    charged = tuple(b if mu > 0 else None for b, mu in zip(budgets, left, strict=True))
    top = float(left.max())
    if not pure:
        return Door(ledger, run, labels, charged, left / top, top, rng)
    planned = Cost(epsilon=top, delta=composition_delta(budgets, spent))
    return Door(ledger, run, labels, charged, left / top, 0.0, rng, planned)


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
    missing = [label for label in labels if label not in budget]
    if missing:
        raise InvalidInput(
            f"budget names no budget for task {missing[0]!r} ({len(missing)} missing)"
        )
    budgets = tuple(budget[label] for label in labels)
    if len({b.neighbours for b in budgets}) > 1:
        raise InvalidInput("all budgets of a run must have the same neighbours")
    return budgets


def remaining_epsilon(budget: Budget, spent: Cost) -> float:
    """The largest ε that one more pure run may have on top of what was spent; 0 if none.

    What a calibrated run leaves by rounding is nothing.
    """
    left = budget.epsilon - spent.epsilon_at(budget.delta)
    return left if left > 1e-6 * budget.epsilon else 0.0


def composition_delta(budgets: Sequence[Budget], spent: Sequence[Cost]) -> float:
    """The δ with which a pure run's releases may be composed; 0, plain addition, unless all tasks
    are alike and nothing else was spent on them."""
    if len(set(budgets)) > 1 or any(cost != Cost() for cost in spent):
        return 0.0
    return budgets[0].delta


def require_left(
    labels: Sequence[Hashable],
    budgets: Sequence[Budget],
    spent: Sequence[Cost],
    left: FloatArray,
    pure: bool,
) -> None:
    """A task with nothing left stops the run before any noise is drawn."""
    if not pure and any(budget.delta == 0 for budget in budgets):
        raise NotPure(f"delta = 0 with Gaussian releases; pure mechanisms are {', '.join(PURE)}")
    if not left.all():
        i = int(np.argmin(left))
        rest = budgets[i].epsilon - spent[i].epsilon_at(budgets[i].delta)
        raise BudgetExceeded(labels[i], max(0.0, rest), budgets[i].epsilon, budgets[i])


def history(door: Door) -> list[dict[str, Any]]:
    """Each release of the run: its mechanism, its μ, and the ε of the run after it."""
    delta = max(b.delta for b in door.budgets if b is not None)
    spent, lines = Cost(), []
    for entry in door.ledger.entries():
        if entry.kind == "spend" and entry.payload["run"] == door.run:
            event = event_from_json(entry.payload["event"])
            spent += cost(event) or Cost()
            lines.append(
                {
                    "round": entry.payload["round"],
                    "mechanism": entry.payload["mechanism"],
                    "event": entry.payload["event"],
                    "epsilon": spent.epsilon_at(delta),
                }
            )
    return lines
